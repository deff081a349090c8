// A thread takes so many locks one after the other, each under all before it, and gives them back: many_locks COUNT.
//   gcc -g -O1 -pthread many_locks.c && ./a.out 64
#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t locks[256];

int main(int count, char **arguments) {
    int wanted = count < 2 ? 0 : atoi(arguments[1]);
    if (wanted < 1 || wanted > 256) return 2;
    for (int one = 0; one < wanted; one++) pthread_mutex_init(&locks[one], 0);
    for (int one = 0; one < wanted; one++) pthread_mutex_lock(&locks[one]);
    for (int one = wanted; one-- > 0;) pthread_mutex_unlock(&locks[one]);
    return 0;
}
