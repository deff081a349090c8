/* Two threads that lock two mutexes in two orders, beside BUSY threads that run and POLLING ones that sleep for a moment again and
 * again: ./beside BUSY POLLING. With `holding` for BUSY one thread that runs has the lock that another one wants, and nobody
 * hangs. Prints "READY pids=P" when all are started and ends by SIGALRM after two minutes. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

pthread_mutex_t ledger_lock = PTHREAD_MUTEX_INITIALIZER, journal_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;

static void lock_both(pthread_mutex_t *one, pthread_mutex_t *other) {
    pthread_mutex_lock(one);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(other);
    pthread_mutex_unlock(other);
}

static void *first(void *unused) {
    lock_both(&ledger_lock, &journal_lock);
    return unused;
}

static void *second(void *unused) {
    lock_both(&journal_lock, &ledger_lock);
    return unused;
}

static void *run(void *unused) {
    for (volatile unsigned long turns = 0;; turns++) {}
    return unused;
}

static void *run_with_the_lock(void *unused) {
    pthread_mutex_lock(&ledger_lock);
    pthread_barrier_wait(&both);
    return run(unused);
}

static void *want_the_lock(void *unused) {
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&ledger_lock);
    return unused;
}

static void *sleep_now_and_then(void *unused) {
    struct timespec moment = {0, 20000000};
    for (;;) nanosleep(&moment, 0);
    return unused;
}

static void start(const char *name, void *(*body)(void *)) {
    pthread_t thread;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    if (pthread_create(&thread, &small, body, 0)) exit(1);
    pthread_setname_np(thread, name);
}

int main(int count, char **words) {
    alarm(120);
    if (count < 3) return 2;
    pthread_barrier_init(&both, 0, 2);
    int holding = !strcmp(words[1], "holding");
    start(holding ? "wanting" : "first", holding ? want_the_lock : first);
    start(holding ? "holding" : "second", holding ? run_with_the_lock : second);
    for (int left = holding ? 0 : atoi(words[1]); left > 0; left--) start("busy", run);
    for (int left = atoi(words[2]); left > 0; left--) start("polling", sleep_now_and_then);
    printf("READY pids=%d\n", getpid());
    fflush(stdout);
    pause();
}
