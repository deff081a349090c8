/* Processes that have one address space: ./borrowed_memory CASE
 * Prints "READY pids=P,C" of parent and child just before the last step and ends by SIGALRM after two minutes. The truth of
 * each case:
 *   ring     a thread in vfork keeps the table's lock; its child waits for the environment's; its owner for the table's: deadlock
 *   living   the child in vfork waits for a lock whose owner, a thread of the parent, may give it back
 *   poster   nothing in the parent can post the semaphore that it waits for; a process made by clone with CLONE_VM will */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include "processes.h"

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER, environment_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both_have;
static sem_t work;
static const char *which;

static void *launch(void *unused) {
    pthread_mutex_lock(&table_lock);
    pthread_barrier_wait(&both_have);
    if (vfork() == 0) {
        alarm(120);
        printf("READY pids=%d,%d\n", getppid(), getpid());
        fflush(stdout);
        pthread_mutex_lock(&environment_lock);
        _exit(0);
    }
    pthread_mutex_unlock(&table_lock);
    return unused;
}

static void *rehash(void *unused) {
    pthread_mutex_lock(&environment_lock);
    pthread_barrier_wait(&both_have);
    if (strcmp(which, "ring") == 0) pthread_mutex_lock(&table_lock);
    else pause();
    return unused;
}

static int post_later(void *unused) {
    (void)unused;
    struct timespec later = {110, 0};
    nanosleep(&later, 0);
    sem_post(&work);
    return 0;
}

int main(int argc, char **argv) {
    alarm(120);
    which = argc > 1 ? argv[1] : "";
    if (strcmp(which, "poster") == 0) {
        enum { STACK = 1 << 16 };
        pid_t poster = clone(post_later, (char *)malloc(STACK) + STACK, CLONE_VM | SIGCHLD, 0);
        if (poster < 0) abort();
        ready(0);
        sem_wait(&work);
        return 0;
    }
    pthread_t launcher, other;
    pthread_barrier_init(&both_have, 0, 2);
    pthread_create(&launcher, 0, launch, 0);
    pthread_setname_np(launcher, "launcher");
    pthread_create(&other, 0, rehash, 0);
    pthread_setname_np(other, "rehash");
    pthread_join(launcher, 0);
    return 0;
}
