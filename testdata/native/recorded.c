/* Locks whose holder no word of the lock names: ./recorded CASE
 * returned: the function that took a lock for reading has returned; the main thread wants to write. Blocked by "reader", whose
 *   begin_reading took it.
 * orders: "reader" reads and wants the mutex, "writer" has the mutex and wants to write, beside a thread that has read and gives a
 *   sign of life no more: a deadlock of the first two.
 * given-back: "reader" has read and given back, and still has the lock's address at hand; the main thread waits for a mutex that
 *   "owner" has. Nobody is said to have the rwlock.
 * forked: the child wants to write what a thread of the parent reads; no thread of the child has it.
 * Prints "READY pids=P" when it is about to hang, and ends by SIGALRM after two minutes. */
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include "processes.h"

static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t journal = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;

static void *named(const char *name, void *argument) {
    pthread_setname_np(pthread_self(), name);
    return argument;
}

static __attribute__((noinline)) void begin_reading(void) {
    pthread_rwlock_rdlock(&table);
}

static void *reader(void *argument) {
    named("reader", argument);
    begin_reading();
    pthread_barrier_wait(&both);
    for (;;) pause();
    return argument;
}

static void *reader_of_both(void *argument) {
    named("reader", argument);
    begin_reading();
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&journal);
    return argument;
}

static void *writer(void *argument) {
    named("writer", argument);
    pthread_mutex_lock(&journal);
    pthread_barrier_wait(&both);
    pthread_rwlock_wrlock(&table);
    return argument;
}

static void *has_read(void *argument) {
    pthread_rwlock_t *volatile at_hand = &table;
    named("has-read", argument);
    pthread_rwlock_rdlock(at_hand);
    pthread_rwlock_unlock(at_hand);
    pthread_barrier_wait(&both);
    for (;;) pause();
    return (void *)at_hand;
}

static void *owner(void *argument) {
    named("owner", argument);
    pthread_mutex_lock(&journal);
    pthread_barrier_wait(&both);
    for (;;) pause();
    return argument;
}

static void start(void *(*first)(void *), void *(*second)(void *), void *(*third)(void *)) {
    void *(*all[])(void *) = { first, second, third };
    unsigned count = 0;
    while (count < 3 && all[count]) count++;
    pthread_barrier_init(&both, 0, count + 1);
    for (unsigned i = 0; i < count; i++) {
        pthread_t thread;
        pthread_create(&thread, 0, all[i], 0);
    }
    pthread_barrier_wait(&both);
}

int main(int count, char **words) {
    const char *wanted = count > 1 ? words[1] : "";
    alarm(120);
    if (!strcmp(wanted, "returned")) {
        start(reader, 0, 0);
        ready(0);
        pthread_rwlock_wrlock(&table);
    } else if (!strcmp(wanted, "orders")) {
        start(reader_of_both, writer, has_read);
        ready(0);
        for (;;) pause();
    } else if (!strcmp(wanted, "given-back")) {
        start(has_read, owner, 0);
        ready(0);
        pthread_mutex_lock(&journal);
    } else if (!strcmp(wanted, "forked")) {
        start(reader, 0, 0);
        pid_t pid = child();
        if (pid == 0) {
            pthread_rwlock_wrlock(&table);
            return 1;
        }
        printf("READY pids=%d\n", pid);
        fflush(stdout);
        for (;;) pause();
    }
    return 2;
}
