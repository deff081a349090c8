/* Every wait of the C library's locks, one sleeping thread each: ./waits GROUP [LIBRARY]
 * For each thread, once it sleeps, a line with what is true of it:
 *     WAIT TID KIND ADDRESS OWNER what it is
 * OWNER is the id of the thread that the lock records; 0 where it records none; negative for one that has exited.
 * Then "READY pids=P". Ends by SIGALRM after two minutes. Run on several C libraries (tests/integration/libcs.rs). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <locale.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "waiting.h"
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#include <malloc.h>
/* They came with glibc 2.30. */
#define CLOCK_FORMS __GLIBC_PREREQ(2, 30)
#else
#define CLOCK_FORMS 0
#endif

enum { UNTIMED, REALTIME, MONOTONIC };
typedef void (*action)(void *object, int clock);

struct task {
    action run;
    void *object;
    int clock;
    volatile int tid;
    pthread_t thread;
};

static struct timespec later(int clock) {
    struct timespec time;
    clock_gettime(clock == MONOTONIC ? CLOCK_MONOTONIC : CLOCK_REALTIME, &time);
    time.tv_sec += 300;
    return time;
}

static void *body(void *argument) {
    struct task *task = argument;
    task->tid = own_tid();
    task->run(task->object, task->clock);
    park();
    return 0;
}

static struct task *start(action run, void *object, int clock) {
    struct task *task = calloc(1, sizeof *task);
    task->run = run, task->object = object, task->clock = clock;
    pthread_create(&task->thread, 0, body, task);
    while (!task->tid) moment();
    return task;
}

/* A thread that takes something and keeps it: it is in pause() then. */
static int holder(action take, void *object) {
    struct task *task = start(take, object, UNTIMED);
    until_asleep(task->tid, " 34 ");
    return task->tid;
}

/* A thread that takes something and ends with it. */
static void *take_and_end(void *argument) {
    struct task *task = argument;
    task->tid = own_tid();
    task->run(task->object, UNTIMED);
    return 0;
}

static int lost_holder(action take, void *object) {
    struct task task = { take, object, UNTIMED, 0, 0 };
    pthread_create(&task.thread, 0, take_and_end, &task);
    pthread_join(task.thread, 0);
    return task.tid;
}

enum { OWN = 1 << 30 };

static int waiter(const char *what, const char *kind, action wait, void *object, void *address, int owner, int clock) {
    struct task *task = start(wait, object, clock);
    until_asleep(task->tid, " 202 219 34 ");
    say("WAIT %d %s %p %d %s%s\n", task->tid, kind, address, owner == OWN ? task->tid : owner, what,
        clock == REALTIME ? ", timed" : clock == MONOTONIC ? ", with a clock" : "");
    return task->tid;
}

static void lock(void *mutex, int clock) {
    struct timespec time = later(clock);
    if (clock == REALTIME) pthread_mutex_timedlock(mutex, &time);
#if CLOCK_FORMS
    else if (clock == MONOTONIC) pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &time);
#endif
    else pthread_mutex_lock(mutex);
}

static void lock_twice(void *mutex, int clock) {
    pthread_mutex_lock(mutex);
    lock(mutex, clock);
}

static void *shared(size_t size) {
    return mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static pthread_mutex_t *mutex(int type, int inherits, int robust, int is_shared) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, type);
    if (inherits) pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    if (robust) pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    if (is_shared) pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutex_t *made = is_shared ? shared(4096) : calloc(1, sizeof *made);
    if (pthread_mutex_init(made, &attributes)) return 0;
    return made;
}

static int clocks(void) { return CLOCK_FORMS ? MONOTONIC : REALTIME; }

static void mutexes(void) {
    static const struct { const char *name; int type, inherits, robust, is_shared, owner_in_musl; } kinds[] = {
        { "normal mutex", PTHREAD_MUTEX_NORMAL, 0, 0, 0, 0 },
        { "recursive mutex", PTHREAD_MUTEX_RECURSIVE, 0, 0, 0, 1 },
        { "error-checking mutex", PTHREAD_MUTEX_ERRORCHECK, 0, 0, 0, 1 },
#ifdef __GLIBC__
        { "adaptive mutex", PTHREAD_MUTEX_ADAPTIVE_NP, 0, 0, 0, 0 },
#endif
        { "shared mutex", PTHREAD_MUTEX_NORMAL, 0, 0, 1, 0 },
        { "robust mutex", PTHREAD_MUTEX_NORMAL, 0, 1, 0, 1 },
        { "robust shared mutex", PTHREAD_MUTEX_NORMAL, 0, 1, 1, 1 },
        { "inheriting mutex", PTHREAD_MUTEX_NORMAL, 1, 0, 0, 1 },
        { "inheriting recursive mutex", PTHREAD_MUTEX_RECURSIVE, 1, 0, 0, 1 },
        { "inheriting robust mutex", PTHREAD_MUTEX_NORMAL, 1, 1, 0, 1 },
        { "inheriting shared mutex", PTHREAD_MUTEX_NORMAL, 1, 0, 1, 1 },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        for (int clock = UNTIMED; clock <= clocks(); clock++) {
            pthread_mutex_t *held = mutex(kinds[i].type, kinds[i].inherits, kinds[i].robust, kinds[i].is_shared);
            if (!held) continue;
            int owner = holder(lock, held);
#ifndef __GLIBC__
            if (!kinds[i].owner_in_musl) owner = 0;
#else
            /* An inheriting mutex with another clock than the kernel's needs FUTEX_LOCK_PI2, since glibc 2.35. */
            if (kinds[i].inherits && clock == MONOTONIC && strcmp(gnu_get_libc_version(), "2.35") < 0) continue;
#endif
            waiter(kinds[i].name, "pthread_mutex", lock, held, held, owner, clock);
        }
    }
    int own = OWN;
#ifdef __GLIBC__
    pthread_mutex_t *lost = mutex(PTHREAD_MUTEX_NORMAL, 0, 0, 0);
    waiter("normal mutex of one that exited", "pthread_mutex", lock, lost, lost, -lost_holder(lock, lost), UNTIMED);
    pthread_mutex_t *inheriting = mutex(PTHREAD_MUTEX_NORMAL, 1, 0, 0);
    int dead = lost_holder(lock, inheriting);
    waiter("inheriting mutex of one that exited", "pthread_mutex", lock, inheriting, inheriting, -dead, UNTIMED);
    pthread_mutex_t *again = mutex(PTHREAD_MUTEX_NORMAL, 1, 0, 0);
    waiter("inheriting mutex taken twice", "pthread_mutex", lock_twice, again, again, own, UNTIMED);
#else
    own = 0;
#endif
    pthread_mutex_t *twice = mutex(PTHREAD_MUTEX_NORMAL, 0, 0, 0);
    waiter("normal mutex taken twice", "pthread_mutex", lock_twice, twice, twice, own, UNTIMED);
    pthread_mutex_t *inherited = mutex(PTHREAD_MUTEX_NORMAL, 0, 1, 0);
    lost_holder(lock, inherited);
    int heir = holder(lock, inherited);
    waiter("robust mutex of a dead owner's heir", "pthread_mutex", lock, inherited, inherited, heir, UNTIMED);
}

static void read_lock(void *rwlock, int clock) {
    struct timespec time = later(clock);
    if (clock == REALTIME) pthread_rwlock_timedrdlock(rwlock, &time);
#if CLOCK_FORMS
    else if (clock == MONOTONIC) pthread_rwlock_clockrdlock(rwlock, CLOCK_MONOTONIC, &time);
#endif
    else pthread_rwlock_rdlock(rwlock);
}

static void write_lock(void *rwlock, int clock) {
    struct timespec time = later(clock);
    if (clock == REALTIME) pthread_rwlock_timedwrlock(rwlock, &time);
#if CLOCK_FORMS
    else if (clock == MONOTONIC) pthread_rwlock_clockwrlock(rwlock, CLOCK_MONOTONIC, &time);
#endif
    else pthread_rwlock_wrlock(rwlock);
}

static pthread_rwlock_t *rwlock(int kind, int is_shared) {
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
#ifdef __GLIBC__
    if (kind) pthread_rwlockattr_setkind_np(&attributes, kind);
#endif
    (void)kind;
    if (is_shared) pthread_rwlockattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_rwlock_t *made = is_shared ? shared(4096) : calloc(1, sizeof *made);
    pthread_rwlock_init(made, &attributes);
    return made;
}

#ifdef __GLIBC__
#define RECORDED(owner) (owner)
#else
#define RECORDED(owner) ((void)(owner), 0)
#endif

static void rwlocks(void) {
    const char *kind = "pthread_rwlock";
    for (int is_shared = 0; is_shared < 2; is_shared++) {
        for (int clock = UNTIMED; clock <= clocks(); clock++) {
            pthread_rwlock_t *written = rwlock(0, is_shared);
            int owner = RECORDED(holder(write_lock, written));
            waiter("written rwlock, to write", kind, write_lock, written, written, owner, clock);
            waiter("written rwlock, to write behind a writer", kind, write_lock, written, written, owner, clock);
            pthread_rwlock_t *wanted = rwlock(0, is_shared);
            owner = RECORDED(holder(write_lock, wanted));
            waiter("written rwlock, to read", kind, read_lock, wanted, wanted, owner, clock);
            waiter("written rwlock, to read beside a reader", kind, read_lock, wanted, wanted, owner, clock);
            waiter("written rwlock, to write behind readers", kind, write_lock, wanted, wanted, owner, clock);
            pthread_rwlock_t *read = rwlock(0, is_shared);
            for (int i = 0; i < 3; i++) holder(read_lock, read);
            waiter("read rwlock, to write", kind, write_lock, read, read, 0, clock);
            waiter("read rwlock, to write behind a writer", kind, write_lock, read, read, 0, clock);
        }
    }
#ifdef __GLIBC__
    pthread_rwlock_t *preferring = rwlock(PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP, 0);
    holder(read_lock, preferring);
    waiter("read rwlock of writers, to write", kind, write_lock, preferring, preferring, 0, UNTIMED);
    /* It waits for the writer's turn, which has a node of its own (the lock + 4). */
    waiter("read rwlock of writers, to read", kind, read_lock, preferring, (char *)preferring + 4, 0, UNTIMED);
#endif
}

struct condition {
    pthread_cond_t condition;
    pthread_mutex_t mutex;
};

static void wait_for(void *object, int clock) {
    struct condition *waited = object;
    struct timespec time = later(clock);
    pthread_mutex_lock(&waited->mutex);
    if (clock == REALTIME) pthread_cond_timedwait(&waited->condition, &waited->mutex, &time);
#if CLOCK_FORMS
    else if (clock == MONOTONIC) pthread_cond_clockwait(&waited->condition, &waited->mutex, CLOCK_MONOTONIC, &time);
#endif
    else pthread_cond_wait(&waited->condition, &waited->mutex);
    pthread_mutex_unlock(&waited->mutex);
}

static void wait_monotonic(void *object, int clock) {
    struct condition *waited = object;
    struct timespec time = later(MONOTONIC);
    (void)clock;
    pthread_mutex_lock(&waited->mutex);
    pthread_cond_timedwait(&waited->condition, &waited->mutex, &time);
}

static struct condition *condition(int monotonic, int is_shared) {
    struct condition *made = is_shared ? shared(4096) : calloc(1, sizeof *made);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    if (monotonic) pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (is_shared) pthread_condattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_cond_init(&made->condition, &attributes);
    pthread_mutexattr_t of_mutex;
    pthread_mutexattr_init(&of_mutex);
    if (is_shared) pthread_mutexattr_setpshared(&of_mutex, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&made->mutex, &of_mutex);
    return made;
}

static void conditions(void) {
    const char *kind = "pthread_cond";
    for (int is_shared = 0; is_shared < 2; is_shared++) {
        for (int clock = UNTIMED; clock <= clocks(); clock++) {
            struct condition *waited = condition(0, is_shared);
            waiter("condition", kind, wait_for, waited, &waited->condition, 0, clock);
            waiter("condition, the second", kind, wait_for, waited, &waited->condition, 0, clock);
            struct condition *used = condition(0, is_shared);
            struct task *first = start(wait_for, used, clock);
            until_asleep(first->tid, " 202 219 ");
            pthread_cond_signal(&used->condition);
            until_asleep(first->tid, " 34 ");
            /* The next waiter is in the other group. */
            waiter("condition after a signal", kind, wait_for, used, &used->condition, 0, clock);
        }
    }
    struct condition *monotonic = condition(1, 0);
    waiter("condition of the monotonic clock, timed", kind, wait_monotonic, monotonic, &monotonic->condition, 0, UNTIMED);
    struct condition *signalled = condition(0, 0);
    struct task *task = start(wait_for, signalled, UNTIMED);
    until_asleep(task->tid, " 202 ");
    int owner = RECORDED(holder(lock, &signalled->mutex));
    pthread_cond_signal(&signalled->condition);
    until_asleep(task->tid, " 202 ");
    say("WAIT %d pthread_mutex %p %d mutex of a condition after its signal\n", task->tid, (void *)&signalled->mutex, owner);
}

static void sem(void *semaphore, int clock) {
    struct timespec time = later(clock);
    if (clock == REALTIME) sem_timedwait(semaphore, &time);
#if CLOCK_FORMS
    else if (clock == MONOTONIC) sem_clockwait(semaphore, CLOCK_MONOTONIC, &time);
#endif
    else sem_wait(semaphore);
}

static void barrier(void *object, int clock) {
    (void)clock;
    pthread_barrier_wait(object);
}

static void nothing(void *object, int clock) { (void)object, (void)clock; }

static void join(void *object, int clock) {
    struct timespec time = later(clock);
    pthread_t thread = *(pthread_t *)object;
#ifdef __GLIBC__
    if (clock == REALTIME) pthread_timedjoin_np(thread, 0, &time);
#if CLOCK_FORMS
    else if (clock == MONOTONIC) pthread_clockjoin_np(thread, 0, CLOCK_MONOTONIC, &time);
#endif
    else
#endif
    pthread_join(thread, 0);
    (void)time, (void)clock;
}

static void park_in_once(void) { park(); }

static void once(void *control, int clock) {
    (void)clock;
    pthread_once(control, park_in_once);
}

static void keep_file(void *file, int clock) {
    (void)clock;
    flockfile(file);
}

static void print_to(void *file, int clock) {
    (void)clock;
    fputs("hello", file);
}

static void others(void) {
    for (int is_shared = 0; is_shared < 2; is_shared++) {
        for (int clock = UNTIMED; clock <= clocks(); clock++) {
            sem_t *semaphore = is_shared ? shared(4096) : calloc(1, sizeof *semaphore);
            sem_init(semaphore, is_shared, 0);
            waiter("semaphore", "semaphore", sem, semaphore, semaphore, 0, clock);
            waiter("semaphore, the second", "semaphore", sem, semaphore, semaphore, 0, clock);
        }
        pthread_barrier_t *meeting = is_shared ? shared(4096) : calloc(1, sizeof *meeting);
        pthread_barrierattr_t attributes;
        pthread_barrierattr_init(&attributes);
        if (is_shared) pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(meeting, &attributes, 3);
        waiter("barrier", "pthread_barrier", barrier, meeting, meeting, 0, UNTIMED);
        waiter("barrier, the second", "pthread_barrier", barrier, meeting, meeting, 0, UNTIMED);
    }
    for (int clock = UNTIMED; clock <= clocks(); clock++) {
#ifndef __GLIBC__
        if (clock) continue;
#endif
        struct task *target = start(nothing, 0, UNTIMED);
        waiter("join", "thread", join, &target->thread, 0, target->tid, clock);
    }
    static pthread_t first;
    first = pthread_self();
    waiter("join of the first thread", "thread", join, &first, 0, own_tid(), UNTIMED);
    pthread_once_t *control = calloc(1, sizeof *control);
    holder(once, control);
    waiter("once", "pthread_once", once, control, control, 0, UNTIMED);
    FILE *file = fopen("/dev/null", "w");
    if (file) {
        setvbuf(file, 0, _IONBF, 0);
        int owner = holder(keep_file, file);
#ifdef __GLIBC__
        waiter("FILE", "stdio_file", print_to, file, file->_lock, owner, UNTIMED);
#else
        waiter("FILE", "stdio_file", print_to, file, 0, owner, UNTIMED);
#endif
    }
}

static void spin(void *object, int clock) {
    (void)clock;
    pthread_spin_lock(object);
}

/* The waiter burns a processor: alone in its group. */
static void spinlock(void) {
    pthread_spinlock_t *taken = calloc(16, sizeof *taken);
    pthread_spin_init(taken, 0);
    holder(spin, (void *)taken);
    struct task *task = start(spin, (void *)taken, UNTIMED);
    say("WAIT %d pthread_spinlock %p 0 spinlock\n", task->tid, (void *)taken);
}

static int park_in_callback(struct dl_phdr_info *info, size_t size, void *data) {
    (void)info, (void)size;
    if (data) park();
    return 0;
}

static void list_objects(void *object, int clock) {
    (void)clock;
    dl_iterate_phdr(park_in_callback, object);
}

static void load(void *name, int clock) {
    (void)clock;
    dlopen(name, RTLD_NOW);
}

static void find_symbol(void *name, int clock) {
    (void)clock;
    dlsym(RTLD_DEFAULT, name);
}

/* The library's constructor parks: it has the loader's lock. */
static void loader(const char *library) {
#ifdef __GLIBC__
    int owner = holder(load, (void *)library);
    waiter("loader's lock, to load", "loader_lock", load, "libm.so.6", 0, owner, UNTIMED);
    waiter("loader's lock, to find a symbol", "loader_lock", find_symbol, "strlen", 0, owner, UNTIMED);
    owner = holder(list_objects, &owner);
    waiter("loader's list of objects", "loader_lock", list_objects, 0, 0, owner, UNTIMED);
#else
    (void)library, (void)load, (void)find_symbol, (void)list_objects;
#endif
}

#ifdef __GLIBC__
static int allocate_in_handler;

static void on_fault(int signal) {
    (void)signal;
    if (allocate_in_handler) {
        void *volatile again = malloc(3000);
        (void)again;
    }
    park();
}

/* A damaged list of free chunks: malloc faults with the arena's lock held. */
static void fault_in_malloc(void *object, int clock) {
    (void)object, (void)clock;
    char *volatile freed = malloc(2000);
    void *volatile guard = malloc(2000);
    (void)guard;
    free((char *)freed);
    void *bad = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ((void *volatile *)freed)[1] = bad;
    void *volatile got = malloc(3000);
    (void)got;
}

static void allocate(void *object, int clock) {
    (void)object, (void)clock;
    void *volatile got = malloc(3000);
    (void)got;
}

static void arena(int in_handler) {
    mallopt(M_ARENA_MAX, 1);
    allocate_in_handler = in_handler;
    struct sigaction fault = { .sa_handler = on_fault };
    sigaction(SIGSEGV, &fault, 0), sigaction(SIGABRT, &fault, 0);
    struct task *tasks = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    action actions[2] = { fault_in_malloc, allocate };
    for (int i = 0; i < 2; i++) tasks[i].run = actions[i], tasks[i].clock = UNTIMED;
    pthread_create(&tasks[0].thread, 0, body, &tasks[0]);
    while (!tasks[0].tid) moment();
    until_asleep(tasks[0].tid, in_handler ? " 202 " : " 34 ");
    if (in_handler) {
        say("WAIT %d malloc_arena 0 0 arena, in a signal handler\n", tasks[0].tid);
        return;
    }
    /* Its stack came before the arena was taken. */
    tasks[1].tid = own_tid();
    say("WAIT %d malloc_arena 0 0 arena\n", own_tid());
    say("READY pids=%d\n", getpid());
    allocate(0, 0);
}

static void leave(void *object, int clock) {
    (void)object, (void)clock;
    exit(3);
}

static void at_exit(void) { park(); }

/* From glibc 2.41 on a second thread in exit() waits for the first. */
static void exits(void) {
    if (strcmp(gnu_get_libc_version(), "2.41") < 0) return;
    atexit(at_exit);
    int owner = holder(leave, 0);
    struct task *second = start(leave, 0, UNTIMED);
    until_asleep(second->tid, " 202 ");
    say("WAIT %d stdio_file 0 %d lock of exit\n", second->tid, owner);
}

static void fork_and_wait(void *object, int clock) {
    (void)object, (void)clock;
    fork();
}

static void park_before_fork(void) { park(); }

/* Until 2.35 the lock of the list of handlers is held while they run. */
static void forks(void) {
    pthread_atfork(park_before_fork, 0, 0);
    holder(fork_and_wait, 0);
    struct task *second = start(fork_and_wait, 0, UNTIMED);
    until_asleep(second->tid, " 202 34 ");
    if (sleeps_in(second->tid, " 202 ")) say("WAIT %d futex 0 0 list of fork handlers\n", second->tid);
}

static void choose_locale(void *name, int clock) {
    (void)clock;
    setlocale(LC_CTYPE, name);
}

/* A locale in a FIFO that nobody writes to: reading it never ends, with the lock of setlocale held. */
static void locales(void) {
    char folder[] = "/tmp/locales-XXXXXX", path[100];
    if (!mkdtemp(folder)) _exit(5);
    setenv("LOCPATH", folder, 1);
    snprintf(path, sizeof path, "%s/xx_XX", folder);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/xx_XX/LC_CTYPE", folder);
    mkfifo(path, 0600);
    struct task *first = start(choose_locale, "xx_XX", UNTIMED);
    until_asleep(first->tid, " 257 2 ");
    int owner = first->tid;
    waiter("lock of setlocale", "pthread_rwlock", choose_locale, "C", 0, owner, UNTIMED);
    unlink(path);
    rmdir(folder);
}
#endif

int main(int count, char **words) {
    const char *group = count > 1 ? words[1] : "";
    begin();
    if (!strcmp(group, "locks")) mutexes(), rwlocks(), conditions(), others();
    else if (!strcmp(group, "spinlock")) spinlock();
    else if (!strcmp(group, "loader") && count > 2) loader(words[2]);
#ifdef __GLIBC__
    else if (!strcmp(group, "exit")) exits();
    else if (!strcmp(group, "arena")) arena(0);
    else if (!strcmp(group, "arena-in-handler")) arena(1);
    else if (!strcmp(group, "fork")) forks();
    else if (!strcmp(group, "locale")) locales();
#endif
    else return 2;
    say("READY pids=%d\n", getpid());
    park();
}
