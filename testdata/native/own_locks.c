/* Locks that a program makes itself of a futex: ./own_locks CASE
 * The word is 0 for free, 1 for taken, 2 for taken with somebody who waits (U. Drepper, Futexes Are Tricky). Each case says what is
 * true of it before it is ready, and ends by SIGALRM after two minutes:
 *   two-orders                 two threads take two locks in both orders
 *   two-orders-busy            the same beside a thread that computes
 *   handed-back                the same, but both gave their first lock back, and a third thread sleeps with both: it goes on
 *   gates                      two threads passed one gate and wait at the next, which a third thread opens later */
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

atomic_int ledger, journal;
pthread_barrier_t both;

__attribute__((noinline)) static void take(atomic_int *word) {
    int before = 0;
    if (atomic_compare_exchange_strong(word, &before, 1)) return;
    if (before != 2) before = atomic_exchange(word, 2);
    while (before) {
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 2, 0, 0, 0);
        before = atomic_exchange(word, 2);
    }
}

__attribute__((noinline)) static void give(atomic_int *word) {
    if (atomic_exchange(word, 0) == 2) syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
}

__attribute__((noinline)) static void pass(atomic_int *gate) {
    while (atomic_load(gate) == 2) syscall(SYS_futex, gate, FUTEX_WAIT_PRIVATE, 2, 0, 0, 0);
}

static void *ledger_first(void *unused) {
    take(&ledger);
    pthread_barrier_wait(&both);
    take(&journal);
    give(&journal);
    give(&ledger);
    return unused;
}
static void *journal_first(void *unused) {
    take(&journal);
    pthread_barrier_wait(&both);
    take(&ledger);
    give(&ledger);
    give(&journal);
    return unused;
}

static void *ledger_given_back(void *unused) {
    take(&ledger);
    give(&ledger);
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    take(&journal);
    return unused;
}
static void *journal_given_back(void *unused) {
    take(&journal);
    give(&journal);
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    take(&ledger);
    return unused;
}
static void *both_for_long(void *unused) {
    pthread_barrier_wait(&both);
    take(&ledger);
    take(&journal);
    pthread_barrier_wait(&both);
    sleep(100);
    give(&journal);
    give(&ledger);
    return unused;
}

static void *through(void *unused) {
    pass(&ledger);
    pass(&journal);
    return unused;
}
static void *opener(void *unused) {
    sleep(100);
    atomic_store(&journal, 0);
    syscall(SYS_futex, &journal, FUTEX_WAKE_PRIVATE, 2, 0, 0, 0);
    return unused;
}

static void *busy(void *unused) {
    for (volatile long count = 0;; count++) {}
    return unused;
}

static void start(void *(*body)(void *)) {
    pthread_t thread;
    pthread_create(&thread, 0, body, 0);
}

int main(int count, char **words) {
    const char *name = count > 1 ? words[1] : "";
    alarm(120);
    int hangs = !strncmp(name, "two-orders", 10);
    if (hangs) {
        pthread_barrier_init(&both, 0, 2);
        if (!strcmp(name, "two-orders-busy")) start(busy);
        start(ledger_first);
        start(journal_first);
    } else if (!strcmp(name, "handed-back")) {
        pthread_barrier_init(&both, 0, 3);
        start(ledger_given_back);
        start(journal_given_back);
        start(both_for_long);
    } else if (!strcmp(name, "gates")) {
        journal = 2;
        start(through);
        start(through);
        start(opener);
    } else {
        return 2;
    }
    printf("TRUTH %s\nREADY pids=%d\n", hangs ? "hang" : "healthy", getpid());
    fflush(stdout);
    for (;;) pause();
}
