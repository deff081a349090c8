/* Locks as the Rust crate parking_lot has them: a waiter sleeps on a word of its own, beside which stands the lock that it is queued
 * for: ./parked CASE. Each case says what is true of it before it is ready, and ends by SIGALRM after two minutes:
 *   two-orders        two threads take two locks in both orders
 *   two-orders-busy   the same beside a thread that computes
 *   one-goes-on       two threads wait for a lock each, and a third one, which sleeps, has both */
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* raw_rwlock.rs: PARKED_BIT, WRITER_BIT. */
enum { PARKED = 1, WRITER = 8 };

/* ThreadData of parking_lot_core 0.9. */
struct waiter {
    size_t key, next, tail, unpark_token, park_token;
    atomic_int parked;
};

struct pair {
    atomic_size_t *first, *second;
};

pthread_barrier_t both;

__attribute__((noinline)) void lock_exclusive_slow(atomic_size_t *)
    __asm__("_ZN11parking_lot10raw_rwlock9RawRwLock19lock_exclusive_slow17h0123456789abcdefE");
void lock_exclusive_slow(atomic_size_t *lock) {
    struct waiter *self = calloc(1, sizeof *self);
    self->key = (size_t)lock;
    self->parked = 1;
    atomic_fetch_or(lock, PARKED);
    while (atomic_load(&self->parked)) syscall(SYS_futex, &self->parked, FUTEX_WAIT_PRIVATE, 1, 0, 0, 0);
    free(self);
}

__attribute__((noinline)) static void take(atomic_size_t *lock) {
    size_t nobody = 0;
    if (!atomic_compare_exchange_strong(lock, &nobody, WRITER)) lock_exclusive_slow(lock);
}

__attribute__((noinline)) static void give(atomic_size_t *lock) {
    atomic_fetch_and(lock, ~(size_t)WRITER);
}

static void *in_order(void *given) {
    struct pair *pair = given;
    atomic_size_t *volatile guard = pair->first;
    take(guard);
    pthread_barrier_wait(&both);
    take(pair->second);
    give(pair->second);
    give(guard);
    return 0;
}

static void *one(void *lock) {
    pthread_barrier_wait(&both);
    take(lock);
    give(lock);
    return 0;
}

static void *both_for_long(void *given) {
    struct pair *pair = given;
    atomic_size_t *volatile guards[] = {pair->first, pair->second};
    take(guards[0]);
    take(guards[1]);
    pthread_barrier_wait(&both);
    sleep(100);
    give(guards[1]);
    give(guards[0]);
    return 0;
}

static void *busy(void *unused) {
    for (volatile long count = 0;; count++) {}
    return unused;
}

static void start(void *(*body)(void *), void *given) {
    pthread_t thread;
    pthread_create(&thread, 0, body, given);
}

/* Not in main, which has none of the locks at hand once they are given away. */
__attribute__((noinline)) static int set_up(const char *name) {
    atomic_size_t *ledger = calloc(1, sizeof *ledger), *journal = calloc(1, sizeof *journal);
    struct pair *forth = malloc(sizeof *forth), *back = malloc(sizeof *back);
    *forth = (struct pair){ledger, journal};
    *back = (struct pair){journal, ledger};
    int hangs = !strncmp(name, "two-orders", 10);
    pthread_barrier_init(&both, 0, hangs ? 2 : 3);
    if (!strcmp(name, "two-orders-busy")) start(busy, 0);
    if (hangs) {
        start(in_order, forth);
        start(in_order, back);
    } else {
        start(both_for_long, forth);
        start(one, ledger);
        start(one, journal);
    }
    return hangs;
}

int main(int count, char **words) {
    alarm(120);
    int hangs = set_up(count > 1 ? words[1] : "");
    printf("TRUTH %s\nREADY pids=%d\n", hangs ? "hang" : "healthy", getpid());
    fflush(stdout);
    for (;;) pause();
}
