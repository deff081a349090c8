/* Small programs that hang, or do not, in ways whose truth is known: ./deadlocks CASE
 * Each names its threads, prints "READY pids=P[,P2]" and ends by SIGALRM after two minutes. The table of what is true
 * of each case stands in tests/integration/native.rs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void *(*body)(void *);

pthread_mutex_t ledger_lock = PTHREAD_MUTEX_INITIALIZER, journal_lock = PTHREAD_MUTEX_INITIALIZER,
                index_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_rwlock_t scene_lock = PTHREAD_RWLOCK_INITIALIZER, physics_lock = PTHREAD_RWLOCK_INITIALIZER;
pthread_barrier_t both;
pthread_t joined[3];

static pthread_t start(const char *name, body run, void *argument) {
    pthread_t thread;
    pthread_create(&thread, 0, run, argument);
    pthread_setname_np(thread, name);
    return thread;
}

static void ready(const char *format, int first, int second) {
    printf(format, first, second);
    fflush(stdout);
}

static void kind(pthread_mutex_t *mutex, int protocol, int robust, int shared, int type) {
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_settype(&a, type);
    pthread_mutexattr_setprotocol(&a, protocol);
    if (robust) pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    if (shared) pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(mutex, &a);
}

static void *first_then_second(void *unused) {
    pthread_mutex_lock(&ledger_lock);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&journal_lock);
    return unused;
}
static void *second_then_first(void *unused) {
    pthread_mutex_lock(&journal_lock);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&ledger_lock);
    return unused;
}
static void abba(void) {
    pthread_barrier_init(&both, 0, 2);
    pthread_t a = start("writer", first_then_second, 0);
    start("reader", second_then_first, 0);
    ready("READY pids=%d\n", getpid(), 0);
    pthread_join(a, 0);
}

static void *ring_of_three(void *which) {
    pthread_mutex_t *ring[] = {&ledger_lock, &journal_lock, &index_lock};
    long i = (long)which;
    pthread_mutex_lock(ring[i]);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(ring[(i + 1) % 3]);
    return which;
}
static void ring(void) {
    const char *names[] = {"ring-0", "ring-1", "ring-2"};
    pthread_t last = 0;
    pthread_barrier_init(&both, 0, 3);
    for (long i = 0; i < 3; i++) last = start(names[i], ring_of_three, (void *)i);
    ready("READY pids=%d\n", getpid(), 0);
    pthread_join(last, 0);
}

static void *lock_twice(void *unused) {
    pthread_mutex_lock(&ledger_lock);
    pthread_mutex_lock(&ledger_lock);
    return unused;
}
static void self(void) {
    pthread_t t = start("twice", lock_twice, 0);
    ready("READY pids=%d\n", getpid(), 0);
    pthread_join(t, 0);
}

static void *scene_then_physics(void *unused) {
    pthread_rwlock_wrlock(&scene_lock);
    pthread_barrier_wait(&both);
    pthread_rwlock_rdlock(&physics_lock);
    return unused;
}
static void *physics_then_scene(void *unused) {
    pthread_rwlock_wrlock(&physics_lock);
    pthread_barrier_wait(&both);
    pthread_rwlock_wrlock(&scene_lock);
    return unused;
}
static void rwlocks(void) {
    pthread_barrier_init(&both, 0, 2);
    pthread_t a = start("render", scene_then_physics, 0);
    start("simulate", physics_then_scene, 0);
    ready("READY pids=%d\n", getpid(), 0);
    pthread_join(a, 0);
}

static void *read_then_write(void *unused) {
    pthread_rwlock_rdlock(&scene_lock);
    pthread_rwlock_wrlock(&scene_lock);
    return unused;
}
static void *read_both_then_write(void *unused) {
    pthread_rwlock_rdlock(&scene_lock);
    pthread_barrier_wait(&both);
    pthread_rwlock_wrlock(&scene_lock);
    return unused;
}
static void two_upgrades(void) {
    pthread_barrier_init(&both, 0, 2);
    pthread_t t = start("upgrade-0", read_both_then_write, 0);
    start("upgrade-1", read_both_then_write, 0);
    ready("READY pids=%d\n", getpid(), 0);
    pthread_join(t, 0);
}
static void upgrade(void) {
    pthread_t t = start("upgrade", read_then_write, 0);
    ready("READY pids=%d\n", getpid(), 0);
    pthread_join(t, 0);
}

static void *join_next(void *which) {
    long i = (long)which;
    pthread_barrier_wait(&both);
    pthread_join(joined[(i + 1) % 3], 0);
    return which;
}
static void join_ring(void) {
    const char *names[] = {"join-0", "join-1", "join-2"};
    pthread_barrier_init(&both, 0, 4);
    for (long i = 0; i < 3; i++) joined[i] = start(names[i], join_next, (void *)i);
    pthread_barrier_wait(&both);
    ready("READY pids=%d\n", getpid(), 0);
    pause();
}

static void *take_ledger(void *unused) {
    pthread_mutex_lock(&ledger_lock);
    return unused;
}
/* Healthy: three threads join each other, and a fourth cancels one of them later. */
static void *cancel_one(void *none) {
    (void)none;
    sleep(110);
    pthread_cancel(joined[1]);
    return 0;
}

static void join_ring_cancelled(void) {
    start("canceller", cancel_one, 0);
    join_ring();
}

static void join_under_lock(void) {
    pthread_mutex_lock(&ledger_lock);
    pthread_t t = start("worker", take_ledger, 0);
    ready("READY pids=%d\n", getpid(), 0);
    pthread_join(t, 0);
}

static void exit_holding(void) {
    pthread_join(start("careless", take_ledger, 0), 0);
    pthread_t t = start("waiter", take_ledger, 0);
    ready("READY pids=%d\n", getpid(), 0);
    pthread_join(t, 0);
}

static void *hold_and_wait(void *unused) {
    pthread_mutex_lock(&ledger_lock);
    pthread_barrier_wait(&both);
    pause();
    return unused;
}
static void fork_held(void) {
    pthread_barrier_init(&both, 0, 2);
    start("logger", hold_and_wait, 0);
    pthread_barrier_wait(&both);
    int child = fork();
    if (child == 0) {
        alarm(120);
        pthread_mutex_lock(&ledger_lock);
        _exit(0);
    }
    ready("READY pids=%d,%d\n", child, getpid());
    waitpid(child, 0, 0);
}

static void pshared(void) {
    pthread_mutex_t *locks = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrier_t *start_line = (pthread_barrier_t *)(locks + 2);
    pthread_barrierattr_t a;
    pthread_barrierattr_init(&a);
    pthread_barrierattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(start_line, &a, 2);
    for (int i = 0; i < 2; i++) kind(&locks[i], PTHREAD_PRIO_NONE, 0, 1, PTHREAD_MUTEX_NORMAL);
    int child = fork(), mine = child == 0;
    if (child == 0) {
        alarm(120);
        pthread_setname_np(pthread_self(), "right");
    } else {
        pthread_setname_np(pthread_self(), "left");
    }
    pthread_mutex_lock(&locks[mine]);
    pthread_barrier_wait(start_line);
    if (child) ready("READY pids=%d,%d\n", getpid(), child);
    pthread_mutex_lock(&locks[1 - mine]);
}

/* A thread holds a lock and waits for a post that nobody can send; another waits for the lock. Of which kind the lock
 * is must make no difference: a mutex here, the dynamic loader's in the case after it. */
static sem_t never_posted;
static void *wait_with_lock(void *unused) {
    pthread_mutex_lock(&ledger_lock);
    pthread_barrier_wait(&both);
    sem_wait(&never_posted);
    return unused;
}
static void *want_lock(void *unused) {
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&ledger_lock);
    return unused;
}
static void mutex_behind_semaphore(void) {
    pthread_barrier_init(&both, 0, 2);
    sem_init(&never_posted, 0, 0);
    pthread_t holder = start("holder", wait_with_lock, 0);
    start("wants", want_lock, 0);
    ready("READY pids=%d\n", getpid(), 0);
    pthread_join(holder, 0);
}

/* A semaphore as a pool: each thread has a unit and asks for a second one. */
static sem_t connections;
__attribute__((noinline)) static void audit(void) {
    sem_wait(&connections);
    sem_post(&connections);
}
static void *pay(void *unused) {
    sem_wait(&connections);
    pthread_barrier_wait(&both);
    audit();
    sem_post(&connections);
    return unused;
}
static void *browse(void *unused) {
    sem_wait(&connections);
    pthread_barrier_wait(&both);
    sleep(60);
    sem_post(&connections);
    return unused;
}
static void pool_of_units(body second) {
    pthread_barrier_init(&both, 0, 2);
    sem_init(&connections, 0, 2);
    pthread_t first = start("first", pay, 0);
    start("second", second, 0);
    ready("READY pids=%d\n", getpid(), 0);
    pthread_join(first, 0);
}

static void *load(void *library) {
    dlopen(library, RTLD_NOW);
    return library;
}
static void loader_behind_semaphore(char *library) {
    pthread_t holder = start("holder", load, library);
    start("wants", load, library);
    ready("READY pids=%d\n", getpid(), 0);
    pthread_join(holder, 0);
}

/* Healthy ones. */
static volatile unsigned long turns;
static void *contend(void *unused) {
    for (;;) {
        pthread_mutex_lock(&ledger_lock);
        for (int i = 0; i < 2000; i++) turns++;
        pthread_mutex_unlock(&ledger_lock);
    }
    return unused;
}
static void contention(void) {
    for (int i = 0; i < 4; i++) start("contender", contend, 0);
    ready("READY pids=%d\n", getpid(), 0);
    pause();
}

static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static void *wait_for_more(void *unused) {
    pthread_mutex_lock(&ledger_lock);
    for (;;) pthread_cond_wait(&more, &ledger_lock);
    return unused;
}
static void idle_workers(void) {
    for (int i = 0; i < 4; i++) start("worker", wait_for_more, 0);
    ready("READY pids=%d\n", getpid(), 0);
    pause();
}

int main(int count, char **words) {
    const char *name = count > 1 ? words[1] : "";
    alarm(120);
    if (!strcmp(name, "abba")) abba();
    else if (!strcmp(name, "abba-recursive")) kind(&ledger_lock, 0, 0, 0, PTHREAD_MUTEX_RECURSIVE), kind(&journal_lock, 0, 0, 0, PTHREAD_MUTEX_ERRORCHECK), abba();
    else if (!strcmp(name, "abba-inheriting")) kind(&ledger_lock, PTHREAD_PRIO_INHERIT, 0, 0, 0), kind(&journal_lock, 0, 0, 0, 0), abba();
    else if (!strcmp(name, "abba-both-inheriting")) kind(&ledger_lock, PTHREAD_PRIO_INHERIT, 0, 0, 0), kind(&journal_lock, PTHREAD_PRIO_INHERIT, 0, 0, 0), abba();
    else if (!strcmp(name, "abba-robust")) kind(&ledger_lock, 0, 1, 0, 0), kind(&journal_lock, 0, 1, 0, 0), abba();
    else if (!strcmp(name, "ring")) ring();
    else if (!strcmp(name, "self")) self();
    else if (!strcmp(name, "self-inheriting")) kind(&ledger_lock, PTHREAD_PRIO_INHERIT, 0, 0, 0), self();
    else if (!strcmp(name, "rwlocks")) rwlocks();
    else if (!strcmp(name, "upgrade")) upgrade();
    else if (!strcmp(name, "two-upgrades")) two_upgrades();
    else if (!strcmp(name, "join-ring")) join_ring();
    else if (!strcmp(name, "join-ring-cancelled")) join_ring_cancelled();
    else if (!strcmp(name, "join-under-lock")) join_under_lock();
    else if (!strcmp(name, "exit-holding")) exit_holding();
    else if (!strcmp(name, "fork-held")) fork_held();
    else if (!strcmp(name, "pshared")) pshared();
    else if (!strcmp(name, "mutex-behind-semaphore")) mutex_behind_semaphore();
    else if (!strcmp(name, "loader-behind-semaphore") && count > 2) loader_behind_semaphore(words[2]);
    else if (!strcmp(name, "pool-of-units")) pool_of_units(pay);
    else if (!strcmp(name, "pool-with-one-that-goes-on")) pool_of_units(browse);
    else if (!strcmp(name, "contention")) contention();
    else if (!strcmp(name, "idle-workers")) idle_workers();
    else return 2;
}
