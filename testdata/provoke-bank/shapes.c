// Lock orders that differ, in many shapes, at times at which they do not meet: by itself the program ends.
//   gcc -g -O1 -pthread shapes.c && ./a.out SHAPE KIND [GUARD]
// SHAPE says how locks are taken, KIND which locks they are, and GUARD what keeps the threads apart so that nothing can hang.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 8 };
static const char *shape = "order", *kind = "mutex", *guard = "";
static int is_shape(const char *name) { return !strcmp(shape, name); }
static int is_kind(const char *name) { return !strcmp(kind, name); }
static int is_guard(const char *name) { return !strcmp(guard, name); }

struct lock {
    pthread_mutex_t mutex;
    pthread_rwlock_t rwlock;
    pthread_spinlock_t spinlock;
    sem_t semaphore;
};
static struct lock locks[MOST], gate, own[MOST];
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int count = 2, pause_ms = 60;

static void make(struct lock *lock) {
    pthread_mutexattr_t type;
    pthread_mutexattr_init(&type);
    int types[] = {PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ADAPTIVE_NP};
    const char *names[] = {"recursive", "checking", "adaptive"};
    for (int i = 0; i < 3; i++) if (is_kind(names[i])) pthread_mutexattr_settype(&type, types[i]);
    pthread_mutex_init(&lock->mutex, &type);
    pthread_rwlock_init(&lock->rwlock, 0);
    pthread_spin_init(&lock->spinlock, 0);
    sem_init(&lock->semaphore, 0, 1);
}

// The position of a lock decides its kind where kinds are mixed. The first lock of a thread is `outer`.
static int kind_of(struct lock *lock) {
    int position = (int)(lock - locks) & 1;
    if (is_kind("writer") || (is_kind("mixed") && position)) return 'w';
    if (is_kind("reader")) return 'r';
    if (is_kind("spinlock")) return 's';
    if (is_kind("semaphore")) return 'u';
    return 'm';
}

static __attribute__((always_inline)) inline void take(struct lock *lock, int outer) {
    switch (kind_of(lock)) {
    case 'w': pthread_rwlock_wrlock(&lock->rwlock); break;
    case 'r':
        if (outer || is_guard("read")) pthread_rwlock_rdlock(&lock->rwlock);
        else pthread_rwlock_wrlock(&lock->rwlock);
        break;
    case 's': pthread_spin_lock(&lock->spinlock); break;
    case 'u': sem_wait(&lock->semaphore); break;
    default: pthread_mutex_lock(&lock->mutex);
    }
}

static void give(struct lock *lock) {
    switch (kind_of(lock)) {
    case 'w': case 'r': pthread_rwlock_unlock(&lock->rwlock); break;
    case 's': pthread_spin_unlock(&lock->spinlock); break;
    case 'u': sem_post(&lock->semaphore); break;
    default: pthread_mutex_unlock(&lock->mutex);
    }
}

// A second lock that is taken without waiting for it, or for a limited time.
static int takes_softly(struct lock *lock) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 3;
    int is_tried = is_guard("tried");
    switch (kind_of(lock)) {
    case 'w': case 'r':
        return !(is_tried ? pthread_rwlock_trywrlock(&lock->rwlock) : pthread_rwlock_timedwrlock(&lock->rwlock, &until));
    case 's': return !pthread_spin_trylock(&lock->spinlock);
    case 'u': return !(is_tried ? sem_trywait(&lock->semaphore) : sem_timedwait(&lock->semaphore, &until));
    default: return !(is_tried ? pthread_mutex_trylock(&lock->mutex) : pthread_mutex_timedlock(&lock->mutex, &until));
    }
}

static __attribute__((noinline)) void both(struct lock *one, struct lock *other) {
    take(one, 1);
    take(other, 0);
    give(other);
    give(one);
}

static __attribute__((noinline)) void even(struct lock *one, struct lock *other) {
    take(one, 1);
    take(other, 0);
    give(other);
    give(one);
}

static __attribute__((noinline)) void odd(struct lock *one, struct lock *other) {
    take(one, 1);
    if (is_guard("tried") || is_guard("timed")) {
        if (takes_softly(other)) give(other);
    } else {
        take(other, 0);
        give(other);
    }
    give(one);
}

static __attribute__((noinline)) void in_a_callback(struct lock *one, struct lock *other, void (*then)(struct lock *)) {
    take(one, 1);
    then(other);
    give(one);
}
static void alone(struct lock *lock) { take(lock, 0); give(lock); }

// Its end runs the destructor, which takes the other lock.
static pthread_key_t at_end;
static void destroyed(void *lock) { alone(lock); give(lock == &locks[0] ? &locks[1] : &locks[0]); }

static void turn(int number) {
    struct lock *one = &locks[number], *other = &locks[(number + 1) % count];
    if (is_guard("sorted") && one > other) { struct lock *swap = one; one = other; other = swap; }
    int times = is_shape("often") ? 2000 : 1;
    if (is_guard("gated")) pthread_mutex_lock(&gate.mutex);
    if (is_guard("gated-by-writers")) pthread_rwlock_wrlock(&gate.rwlock);
    if (is_guard("gated-by-one-writer")) {
        if (number) pthread_rwlock_wrlock(&gate.rwlock); else pthread_rwlock_rdlock(&gate.rwlock);
    }
    for (int i = 0; i < times; i++) {
        if (is_shape("helper")) both(one, other);
        else if (is_shape("callback")) in_a_callback(one, other, alone);
        else if (is_shape("destructor")) { take(one, 1); pthread_setspecific(at_end, other); }
        else if (is_shape("within")) { take(&own[number], 1); number & 1 ? odd(one, other) : even(one, other); give(&own[number]); }
        else if (is_shape("condition") && !number) {
            // It gives the second lock back and takes it again, while it keeps the first.
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_nsec += 20000000;
            if (until.tv_nsec >= 1000000000) { until.tv_sec++; until.tv_nsec -= 1000000000; }
            take(one, 1);
            take(other, 0);
            pthread_cond_timedwait(&changed, &other->mutex, &until);
            give(other);
            give(one);
        }
        else number & 1 ? odd(one, other) : even(one, other);
    }
    if (is_guard("gated")) pthread_mutex_unlock(&gate.mutex);
    if (is_guard("gated-by-writers") || is_guard("gated-by-one-writer")) pthread_rwlock_unlock(&gate.rwlock);
}

// A thread begins when the one before has ended, or when that takes longer than it ever does by itself; with the guard
// `told` only when it has ended.
static int ends[MOST][2];
static void *member(void *argument) {
    int number = (int)(long)argument;
    if (number && !is_guard("joined")) {
        struct pollfd end = {ends[number - 1][0], POLLIN, 0};
        poll(&end, 1, is_guard("told") ? -1 : pause_ms);
        if (is_shape("late")) usleep(pause_ms * 1000);
    }
    if (is_guard("one-thread")) { for (int i = 0; !number && i < count; i++) turn(i); }
    else turn(number);
    if (write(ends[number][1], "x", 1) != 1) abort();
    return 0;
}

static void *joins_first(void *argument) {
    pthread_t first;
    pthread_create(&first, 0, member, 0);
    pthread_join(first, 0);
    return argument;
}

// A pool: each job is done by whichever of two threads is free.
static void *works(void *unused) {
    static int next;
    for (int job; (job = __atomic_fetch_add(&next, 1, __ATOMIC_SEQ_CST)) < 40;) {
        usleep(3000 + job % 7 * 1000);
        turn(job % 10 == 0);
    }
    return unused;
}

// Joins a thread that takes the lock which the joiner holds, when the thread has taken it already.
static void *takes_the_first(void *unused) {
    even(&own[0], &locks[0]);
    return unused;
}
static void joins_under_a_lock(void) {
    pthread_t thread;
    if (is_guard("before")) {
        pthread_create(&thread, 0, takes_the_first, 0);
        pthread_join(thread, 0);
        take(&locks[0], 1);
        give(&locks[0]);
        return;
    }
    pthread_create(&thread, 0, takes_the_first, 0);
    usleep(20000);
    take(&locks[0], 1);
    pthread_join(thread, 0);
    give(&locks[0]);
}

// A wait that no notification follows: none is lost as long as the notifier comes later.
static int is_ready;
static void *waits(void *unused) {
    usleep(is_guard("flag") ? 60000 : 0);
    pthread_mutex_lock(&locks[0].mutex);
    if (!is_guard("flag") || !is_ready) pthread_cond_wait(&changed, &locks[0].mutex);
    pthread_mutex_unlock(&locks[0].mutex);
    return unused;
}
static void notifies(void) {
    pthread_t thread;
    pthread_create(&thread, 0, waits, 0);
    usleep(is_guard("flag") ? 0 : 40000);
    pthread_mutex_lock(&locks[0].mutex);
    is_ready = 1;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&locks[0].mutex);
    pthread_join(thread, 0);
}

static void all(void) {
    pthread_t threads[MOST];
    if (is_shape("join")) return joins_under_a_lock();
    if (is_shape("wake-up")) return notifies();
    if (is_shape("pool")) {
        for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, works, 0);
        for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
        return;
    }
    for (long i = 0; i < count; i++) {
        int is_between = is_guard("joined-between") && !i;
        pthread_create(&threads[i], 0, is_between ? joins_first : member, (void *)i);
        if (is_guard("joined") || is_between) pthread_join(threads[i], 0);
    }
    if (!is_guard("joined")) for (int i = is_guard("joined-between"); i < count; i++) pthread_join(threads[i], 0);
}

int main(int argument_count, char **arguments) {
    if (argument_count > 1) shape = arguments[1];
    if (argument_count > 2) kind = arguments[2];
    if (argument_count > 3) guard = arguments[3];
    printf("%s\n", *guard ? "cannot hang" : "can hang");
    fflush(stdout);
    if (!strncmp(shape, "ring", 4)) count = atoi(shape + 4);
    if (is_shape("late")) pause_ms = 700;
    if (count < 2 || count > MOST) return 2;
    pthread_key_create(&at_end, destroyed);
    make(&gate);
    for (int i = 0; i < MOST; i++) {
        make(&locks[i]);
        make(&own[i]);
        if (pipe(ends[i])) return 1;
    }
    if (is_shape("forked") || is_shape("replaced")) {
        pid_t child = fork();
        if (!child) {
            if (is_shape("replaced")) execl("/proc/self/exe", "shapes", "order", kind, guard, (char *)0);
            all();
            exit(0);
        }
        int status;
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    }
    all();
    return 0;
}
