/* The main thread has exited; another one sleeps on. */
#include <pthread.h>
#include <time.h>

static void *sleeper(void *unused) {
    struct timespec time = {60, 0};
    nanosleep(&time, 0);
    return unused;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, sleeper, 0);
    pthread_exit(0);
}
