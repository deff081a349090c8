/* OpenMP's critical sections and locks: ./critical_sections CASE
 * orders: two threads enter two named sections in two orders.
 * locks: the same with two locks.
 * nameless: a thread enters the section without a name twice.
 * branches: one thread is in a section and sleeps, another waits for it in another branch of the same function: healthy.
 * contended: two threads enter one section and within it the other again and again: healthy.
 * Prints "READY pids=P" when it is about to hang, and ends by SIGALRM after two minutes. */
#include <omp.h>
#include <pthread.h>
#include <string.h>
#include "processes.h"

static pthread_barrier_t both;
static omp_lock_t table, journal;
static volatile int entries;

static void orders(void) {
    if (omp_get_thread_num() == 0) {
#pragma omp critical(table)
        {
            pthread_barrier_wait(&both);
            ready(0);
#pragma omp critical(journal)
            entries++;
        }
    } else {
#pragma omp critical(journal)
        {
            pthread_barrier_wait(&both);
#pragma omp critical(table)
            entries++;
        }
    }
}

static void first_then_second(omp_lock_t *first, omp_lock_t *second) {
    omp_set_lock(first);
    pthread_barrier_wait(&both);
    omp_set_lock(second);
    entries++;
    omp_unset_lock(second);
    omp_unset_lock(first);
}

static void add(void) {
#pragma omp critical
    entries++;
}

static void add_twice(void) {
#pragma omp critical
    {
        entries++;
        add();
    }
}

static void branches(void) {
    if (omp_get_thread_num() == 0) {
#pragma omp critical(table)
        {
            entries++;
            pthread_barrier_wait(&both);
            ready(0);
            for (;;) pause();
        }
    } else {
        pthread_barrier_wait(&both);
#pragma omp critical(table)
        entries--;
    }
}

static void contended(void) {
    if (omp_get_thread_num() == 0) ready(0);
    for (;;) {
#pragma omp critical(table)
        {
            entries++;
#pragma omp critical(journal)
            entries--;
        }
    }
}

int main(int count, char **arguments) {
    alarm(120);
    const char *which = count > 1 ? arguments[1] : "";
    pthread_barrier_init(&both, 0, 2);
    omp_init_lock(&table), omp_init_lock(&journal);
    if (!strcmp(which, "nameless")) {
        ready(0);
        add_twice();
        return 0;
    }
#pragma omp parallel num_threads(2)
    {
        if (!strcmp(which, "orders")) orders();
        else if (!strcmp(which, "locks") && omp_get_thread_num() == 0) ready(0), first_then_second(&table, &journal);
        else if (!strcmp(which, "locks")) first_then_second(&journal, &table);
        else if (!strcmp(which, "branches")) branches();
        else if (!strcmp(which, "contended")) contended();
    }
    return 0;
}
