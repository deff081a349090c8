/* Readers of a lock that records none of them, as branches, loops and helpers take it and give it back: ./branches CASE
 * Hangs, in which the thread `keeper` keeps the lock that it asks for again, to write:
 *   own       it took the lock in the same function;
 *   helper    a function took the lock and has returned;
 *   loop      it took the lock in this round of a loop, and gave it back in the rounds before;
 *   both      each branch took the lock.
 * Healthy twins, in which `keeper` has nothing and waits for `gate`. The thread `writer` has that and waits for `scanner`, which
 * reads for half a minute:
 *   gave-back      a helper gave the lock back;
 *   not-taken      the branch that takes the lock was not taken;
 *   one-gave-back  the branch that was taken gave the lock back;
 *   round-before   it took the lock in the round before, and gave it back;
 *   looped-back    it gave the lock back further down in the loop;
 *   another-before it gave another lock back before, and then this one: no code shows which lock either call gives back.
 * Prints "READY pids=P" when all wait, and ends by SIGALRM after two minutes. */
#define _GNU_SOURCE
#include <pthread.h>

#include "waiting.h"

#define APART __attribute__((noinline, noclone))

static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t others[2] = { PTHREAD_RWLOCK_INITIALIZER, PTHREAD_RWLOCK_INITIALIZER };
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t begun;
static volatile int yes = 1, no, rows;

APART static void begin_read(void) { pthread_rwlock_rdlock(&table); }
APART static void end_read(void) { pthread_rwlock_unlock(&table); }
APART static void write_row(void) {
    pthread_rwlock_wrlock(&table);
    rows++;
    pthread_rwlock_unlock(&table);
}
APART static void pass(void) {
    pthread_mutex_lock(&gate);
    rows++;
    pthread_mutex_unlock(&gate);
}

APART static void own(void) {
    pthread_rwlock_rdlock(&table);
    write_row();
    pthread_rwlock_unlock(&table);
}

APART static void helper(void) {
    begin_read();
    write_row();
    end_read();
}

APART static void loop(void) {
    for (int round = 0;; round++) {
        pthread_rwlock_rdlock(&table);
        if (round == 2) write_row();
        pthread_rwlock_unlock(&table);
    }
}

APART static void both(void) {
    if (yes) {
        rows++;
        begin_read();
    } else {
        pthread_rwlock_rdlock(&table);
    }
    write_row();
    end_read();
}

APART static void gave_back(void) {
    pthread_rwlock_rdlock(&table);
    rows++;
    end_read();
    pass();
}

APART static void not_taken(void) {
    if (!yes) pthread_rwlock_rdlock(&table);
    pass();
    if (!yes) pthread_rwlock_unlock(&table);
}

APART static void one_gave_back(void) {
    pthread_rwlock_rdlock(&table);
    if (yes) pthread_rwlock_unlock(&table);
    pass();
    if (!yes) pthread_rwlock_unlock(&table);
}

APART static void round_before(void) {
    for (int round = 0;; round++) {
        if (round == 2) pass();
        pthread_rwlock_rdlock(&table);
        rows++;
        pthread_rwlock_unlock(&table);
    }
}

APART static void looped_back(void) {
    pthread_rwlock_rdlock(&table);
    for (int round = 0;; round++) {
        if (round == 2) pass();
        if (round == 1) pthread_rwlock_unlock(&table);
    }
}

APART static void another_before(void) {
    pthread_rwlock_rdlock(&others[yes]);
    rows++;
    pthread_rwlock_unlock(&others[yes]);
    pthread_rwlock_rdlock(&table);
    rows++;
    pthread_rwlock_unlock(&table + no);
    pass();
}

static const struct {
    const char *name;
    void (*run)(void);
    int hangs;
} CASES[] = {
    { "own", own, 1 },
    { "helper", helper, 1 },
    { "loop", loop, 1 },
    { "both", both, 1 },
    { "gave-back", gave_back, 0 },
    { "not-taken", not_taken, 0 },
    { "one-gave-back", one_gave_back, 0 },
    { "round-before", round_before, 0 },
    { "looped-back", looped_back, 0 },
    { "another-before", another_before, 0 },
};

static void *scanner(void *ready) {
    pthread_setname_np(pthread_self(), "scanner");
    begin_read();
    pthread_barrier_wait(&begun);
    struct timespec time = { 30, 0 };
    nanosleep(&time, 0);
    end_read();
    return ready;
}

static void *writer(void *ready) {
    pthread_setname_np(pthread_self(), "writer");
    pthread_mutex_lock(&gate);
    pthread_barrier_wait(&begun);
    pthread_rwlock_wrlock(&table);
    pthread_rwlock_unlock(&table);
    pthread_mutex_unlock(&gate);
    return ready;
}

static void *keeper(void *run) {
    pthread_setname_np(pthread_self(), "keeper");
    (*(void (*const *)(void))run)();
    return 0;
}

int main(int count, char **arguments) {
    alarm(120);
    pthread_barrier_init(&begun, 0, 3);
    for (size_t at = 0; at < sizeof CASES / sizeof *CASES; at++) {
        if (count < 2 || strcmp(arguments[1], CASES[at].name)) continue;
        pthread_t one;
        if (!CASES[at].hangs) {
            pthread_create(&one, 0, scanner, 0);
            pthread_create(&one, 0, writer, 0);
            pthread_barrier_wait(&begun);
            moment();
        }
        pthread_create(&one, 0, keeper, (void *)&CASES[at].run);
        say("READY pids=%d\n", getpid());
        pthread_join(one, 0);
        return 0;
    }
    return 2;
}
