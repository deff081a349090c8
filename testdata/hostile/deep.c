/* Threads deep in recursion, the innermost calls of which wait for a mutex of the main thread's, which waits for it as well.
 * usage: deep THREADS DEPTH */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int depth, begun;
static pthread_mutex_t ledger = PTHREAD_MUTEX_INITIALIZER;

static __attribute__((noinline)) long descend(int left) {
    if (!left) {
        __atomic_add_fetch(&begun, 1, __ATOMIC_SEQ_CST);
        pthread_mutex_lock(&ledger);
        pthread_mutex_unlock(&ledger);
        return 1;
    }
    long below = descend(left - 1);
    __asm__ volatile("" ::: "memory");
    return below + left;
}

static void *run(void *unused) { return descend(depth) ? unused : 0; }

int main(int count, char **words) {
    int threads = count > 1 ? atoi(words[1]) : 1;
    pthread_attr_t room;
    pthread_t thread;
    depth = count > 2 ? atoi(words[2]) : 100;
    alarm(300);
    pthread_attr_init(&room);
    pthread_attr_setstacksize(&room, 4 << 20);
    pthread_mutex_lock(&ledger);
    for (int i = 0; i < threads; i++)
        if (pthread_create(&thread, &room, run, 0)) return 1;
    while (__atomic_load_n(&begun, __ATOMIC_SEQ_CST) < threads) usleep(1000);
    printf("READY pids=%d\n", getpid());
    fflush(stdout);
    pthread_mutex_lock(&ledger);
    return 0;
}
