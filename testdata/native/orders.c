// Locks that are taken in orders which do or do not differ, at different times: nothing hangs. What is said first is the truth.
//   gcc -g -O1 -pthread orders.c && ./a.out CASE
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t ledger = PTHREAD_MUTEX_INITIALIZER, journal = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t index_lock = PTHREAD_MUTEX_INITIALIZER, gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER, cache = PTHREAD_RWLOCK_INITIALIZER;
static const char *which;
static int is(const char *name) { return !strcmp(which, name); }

// A thread runs after the other has said so, which no lock tells.
static int turns[2], later[2], others[2];
static void say(int *pipe) { if (write(pipe[1], "x", 1) != 1) abort(); }
static void hear(int *pipe) { char c; if (read(pipe[0], &c, 1) != 1) abort(); }

static void both(pthread_mutex_t *one, pthread_mutex_t *other) {
    pthread_mutex_lock(one);
    pthread_mutex_lock(other);
    pthread_mutex_unlock(other);
    pthread_mutex_unlock(one);
}

static void pay(void) {
    pthread_mutex_lock(&ledger);
    pthread_mutex_lock(&journal);
    pthread_mutex_unlock(&journal);
    pthread_mutex_unlock(&ledger);
}

static void audit(void) {
    pthread_mutex_lock(&journal);
    if (is("tried") ? pthread_mutex_trylock(&ledger) : pthread_mutex_lock(&ledger)) abort();
    pthread_mutex_unlock(&ledger);
    pthread_mutex_unlock(&journal);
}

// Of two accounts each has its lock, and all are taken here: in the order of their addresses, or as they come.
struct account { pthread_mutex_t lock; };
static struct account accounts[4];
static void transfer(struct account *from, struct account *to) {
    if (is("sorted") && from > to) { struct account *swap = from; from = to; to = swap; }
    pthread_mutex_lock(&from->lock);
    pthread_mutex_lock(&to->lock);
    pthread_mutex_unlock(&to->lock);
    pthread_mutex_unlock(&from->lock);
}

// A lock that ends, and another that begins at its address.
static void with_new(int first) {
    static pthread_mutex_t place;
    pthread_mutex_init(&place, 0);
    if (first) both(&ledger, &place); else both(&place, &ledger);
    pthread_mutex_destroy(&place);
}

static void reads(int first) {
    pthread_rwlock_t *one = first ? &table : &cache, *other = first ? &cache : &table;
    pthread_rwlock_rdlock(one);
    // One that writes waits for a reader, which waits for nobody; two wait for each other.
    if (is("written") || (is("written-once") && first)) pthread_rwlock_wrlock(other); else pthread_rwlock_rdlock(other);
    pthread_rwlock_unlock(other);
    pthread_rwlock_unlock(one);
}

static void first(void) {
    if (is("gated")) { pthread_mutex_lock(&gate); pay(); pthread_mutex_unlock(&gate); }
    else if (is("made-anew")) with_new(1);
    else if (is("sorted") || is("transfers")) transfer(&accounts[0], &accounts[1]);
    else if (is("instances")) transfer(&accounts[0], &accounts[1]);
    else if (is("read") || is("written") || is("written-once")) reads(1);
    else if (is("three") || is("four")) both(&ledger, &journal);
    else pay();
}

static void second(void) {
    if (is("gated")) { pthread_mutex_lock(&gate); audit(); pthread_mutex_unlock(&gate); }
    else if (is("made-anew")) with_new(0);
    else if (is("sorted") || is("transfers")) transfer(&accounts[1], &accounts[0]);
    else if (is("instances")) transfer(&accounts[3], &accounts[2]);
    else if (is("read") || is("written") || is("written-once")) reads(0);
    else if (is("three") || is("four")) both(&journal, &index_lock);
    else audit();
}

static void *payer(void *unused) {
    pthread_setname_np(pthread_self(), "payer");
    first();
    if (is("one-thread")) second();
    say(turns);
    if (!is("joined")) hear(others);
    return unused;
}

static void *auditor(void *unused) {
    pthread_setname_np(pthread_self(), "auditor");
    hear(turns);
    if (!is("one-thread")) second();
    say(later);
    if (!is("joined")) hear(others);
    return unused;
}

// The fourth of a ring, made by the third while that goes on.
static void *archives(void *unused) {
    both(&gate, &ledger);
    return unused;
}

static void *indexer(void *unused) {
    pthread_setname_np(pthread_self(), "indexer");
    hear(later);
    if (is("three")) both(&index_lock, &ledger);
    if (is("four")) {
        pthread_t archivist;
        pthread_create(&archivist, 0, archives, 0);
        both(&index_lock, &gate);
        pthread_join(archivist, 0);
    }
    if (!is("joined")) { say(others); say(others); }
    return unused;
}

int main(int count, char **arguments) {
    which = count > 1 ? arguments[1] : "";
    alarm(60);
    if (pipe(turns) || pipe(later) || pipe(others)) return 1;
    for (int i = 0; i < 4; i++) pthread_mutex_init(&accounts[i].lock, 0);
    static const char *bad[] = {"differ", "transfers", "written", "three", "four", "joined"};
    int is_bad = 0;
    for (int i = 0; i < 6; i++) is_bad |= is(bad[i]);
    printf("%s\n", is("joined") ? "orders differ, one after the other" : is_bad ? "orders differ" : "orders do not differ");
    fflush(stdout);
    pthread_t threads[3];
    void *(*functions[3])(void *) = {payer, auditor, indexer};
    for (int i = 0; i < 3; i++) {
        pthread_create(&threads[i], 0, functions[i], 0);
        if (is("joined")) pthread_join(threads[i], 0);
    }
    for (int i = 0; i < 3 && !is("joined"); i++) pthread_join(threads[i], 0);
    return 0;
}
