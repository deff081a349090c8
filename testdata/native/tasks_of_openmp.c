/* Who waits for a task of OpenMP, and what the task waits for: ./tasks_of_openmp CASE
 * Prints "READY pids=P" just before the last step and ends by SIGALRM after two minutes. The truth of each case:
 *   under-lock          the task wants the lock that the thread has which waits for it: a deadlock
 *   under-lock-beside   the same beside a thread that beats and one that is at work
 *   at-work             the task takes its time: it will come to its end
 *   own-lock            the task waits for a lock that a third thread gives back in the end */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "processes.h"

static pthread_mutex_t totals_lock = PTHREAD_MUTEX_INITIALIZER, other_lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int begun, taken;
static long total;

static void *beat(void *unused) {
    for (;;) usleep(50000);
    return unused;
}

static void *burn(void *unused) {
    for (volatile long count = 0;; count++) {}
    return unused;
}

static void *keep(void *unused) {
    pthread_mutex_lock(&other_lock);
    taken = 1;
    sleep(100);
    pthread_mutex_unlock(&other_lock);
    return unused;
}

static void add(pthread_mutex_t *lock, int naps) {
    begun = 1;
    if (naps) sleep(100);
    pthread_mutex_lock(lock);
    total++;
    pthread_mutex_unlock(lock);
}

static void run(pthread_mutex_t *lock, int naps) {
#pragma omp parallel num_threads(2)
#pragma omp single
    {
        pthread_mutex_lock(&totals_lock);
#pragma omp task
        add(lock, naps);
        while (!begun) usleep(1000);
        ready(0);
#pragma omp taskwait
        pthread_mutex_unlock(&totals_lock);
    }
}

int main(int count, char **words) {
    const char *name = count > 1 ? words[1] : "";
    pthread_t thread;
    alarm(120);
    if (!strcmp(name, "under-lock-beside")) {
        pthread_create(&thread, 0, beat, 0);
        pthread_create(&thread, 0, burn, 0);
        run(&totals_lock, 0);
    } else if (!strcmp(name, "under-lock")) {
        run(&totals_lock, 0);
    } else if (!strcmp(name, "at-work")) {
        run(&other_lock, 1);
    } else if (!strcmp(name, "own-lock")) {
        pthread_create(&thread, 0, keep, 0);
        while (!taken) usleep(1000);
        run(&other_lock, 0);
    } else {
        return 2;
    }
    return 0;
}
