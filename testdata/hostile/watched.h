/* For programs that measure how long they were stopped: a thread that naps for a millisecond says the longest time between two
 * turns of its own, less what the machine itself kept it waiting for a processor (its run delay in schedstat). */
#ifndef WATCHED_H
#define WATCHED_H
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static volatile long watched_longest_us;

static long watched_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

static long watched_delay(void) {
    long ran = 0, delay = 0;
    FILE *file = fopen("/proc/thread-self/schedstat", "r");
    if (!file) return 0;
    if (fscanf(file, "%ld %ld", &ran, &delay) != 2) delay = 0;
    fclose(file);
    return delay / 1000;
}

static void *watched_nap(void *unused) {
    long before = watched_now(), delayed = watched_delay();
    for (;;) {
        usleep(1000);
        long now = watched_now(), delay = watched_delay(), took = now - before - (delay - delayed);
        if (took > watched_longest_us) watched_longest_us = took;
        before = watched_now();
        delayed = delay;
    }
    return unused;
}

/* First of all: SIGTERM waits for watched_until_term. */
static void watched_begin(void) {
    sigset_t set;
    alarm(180);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, 0);
}

static __attribute__((unused)) void watched_impossible(const char *what) {
    printf("IMPOSSIBLE %s\nREADY pids=%d\n", what, getpid());
    fflush(stdout);
    pause();
}

static __attribute__((unused)) int watched_until_term(void) {
    pthread_t thread;
    sigset_t set;
    int signal;
    pthread_create(&thread, 0, watched_nap, 0);
    printf("READY pids=%d\n", getpid());
    fflush(stdout);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigwait(&set, &signal);
    printf("longest_us=%ld\n", watched_longest_us);
    return 0;
}
#endif
