// Two threads take locks in different orders at different times, and nothing else keeps them apart. By itself the program ends. Its
// first line says whether it can hang at all.
//   gcc -g -O1 -pthread provoked.c && ./a.out CASE
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t ledger = PTHREAD_MUTEX_INITIALIZER, journal = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t index_lock = PTHREAD_MUTEX_INITIALIZER, gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER, cache = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t door, window;
static const char *which;
static int is(const char *name) { return !strcmp(which, name); }

// Each begins when the one before has ended, and so does not meet it, or when that takes longer than it ever does by itself.
static int ends[3][2];
static void begin_after(int number) { struct pollfd end = {ends[number][0], POLLIN, 0}; poll(&end, 1, 60); }
static void end_of(int number) { if (write(ends[number][1], "x", 1) != 1) abort(); }

static void pay(void) {
    pthread_mutex_lock(&ledger);
    pthread_mutex_lock(&journal);
    pthread_mutex_unlock(&journal);
    pthread_mutex_unlock(&ledger);
}

static void audit(void) {
    pthread_mutex_lock(&journal);
    // A try that fails gives up.
    if (!is("tried") || !pthread_mutex_trylock(&ledger)) {
        if (!is("tried")) pthread_mutex_lock(&ledger);
        pthread_mutex_unlock(&ledger);
    }
    pthread_mutex_unlock(&journal);
}

static void file(void) {
    pthread_mutex_lock(&journal);
    pthread_mutex_lock(&index_lock);
    pthread_mutex_unlock(&index_lock);
    pthread_mutex_unlock(&journal);
}

static void look_up(void) {
    pthread_mutex_lock(&index_lock);
    pthread_mutex_lock(&ledger);
    pthread_mutex_unlock(&ledger);
    pthread_mutex_unlock(&index_lock);
}

static void refresh(int writes) {
    pthread_rwlock_rdlock(&table);
    if (writes) pthread_rwlock_wrlock(&cache); else pthread_rwlock_rdlock(&cache);
    pthread_rwlock_unlock(&cache);
    pthread_rwlock_unlock(&table);
}

static void evict(int writes) {
    pthread_rwlock_rdlock(&cache);
    if (writes) pthread_rwlock_wrlock(&table); else pthread_rwlock_rdlock(&table);
    pthread_rwlock_unlock(&table);
    pthread_rwlock_unlock(&cache);
}

static void spin(pthread_spinlock_t *one, pthread_spinlock_t *other) {
    pthread_spin_lock(one);
    pthread_spin_lock(other);
    pthread_spin_unlock(other);
    pthread_spin_unlock(one);
}

// Each of two accounts has a lock, and a transfer takes both.
struct account { pthread_mutex_t lock; };
static struct account accounts[2];
static void transfer(struct account *from, struct account *to) {
    pthread_mutex_lock(&from->lock);
    pthread_mutex_lock(&to->lock);
    pthread_mutex_unlock(&to->lock);
    pthread_mutex_unlock(&from->lock);
}

static void first(void) {
    if (is("gated")) { pthread_mutex_lock(&gate); pay(); pthread_mutex_unlock(&gate); }
    else if (is("written") || is("read")) refresh(is("written"));
    else if (is("spun")) spin(&door, &window);
    else if (is("transfers")) transfer(&accounts[0], &accounts[1]);
    else pay();
}

static void second(void) {
    if (is("gated")) { pthread_mutex_lock(&gate); audit(); pthread_mutex_unlock(&gate); }
    else if (is("written") || is("read")) evict(is("written"));
    else if (is("spun")) spin(&window, &door);
    else if (is("transfers")) transfer(&accounts[1], &accounts[0]);
    else if (is("three")) file();
    else if (is("fixed")) pay();
    else audit();
}

static void *payer(void *unused) {
    pthread_setname_np(pthread_self(), "payer");
    first();
    if (is("one-thread")) second();
    end_of(0);
    return unused;
}

static void *clerk(void *unused) {
    pthread_setname_np(pthread_self(), "clerk");
    begin_after(0);
    if (!is("one-thread")) second();
    end_of(1);
    return unused;
}

static void *indexer(void *unused) {
    pthread_setname_np(pthread_self(), "indexer");
    begin_after(1);
    if (is("three")) look_up();
    return unused;
}

int main(int count, char **arguments) {
    which = count > 1 ? arguments[1] : "";
    static const char *bad[] = {"differ", "three", "written", "spun", "transfers"};
    int is_bad = 0;
    for (int i = 0; i < 5; i++) is_bad |= is(bad[i]);
    printf("%s\n", is_bad ? "can hang" : "cannot hang");
    fflush(stdout);
    for (int i = 0; i < 3; i++) if (pipe(ends[i])) return 1;
    for (int i = 0; i < 2; i++) pthread_mutex_init(&accounts[i].lock, 0);
    pthread_spin_init(&door, 0);
    pthread_spin_init(&window, 0);
    pthread_t threads[3];
    void *(*functions[3])(void *) = {payer, clerk, indexer};
    for (int i = 0; i < 3; i++) {
        pthread_create(&threads[i], 0, functions[i], 0);
        if (is("joined")) pthread_join(threads[i], 0);
    }
    for (int i = 0; i < 3 && !is("joined"); i++) pthread_join(threads[i], 0);
    return 0;
}
