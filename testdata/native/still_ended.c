/* Rings and waits that something still ends which is no holder, and the same without it: still_ended CASE
 * Each has taken its first lock before any asks for its second. What would end a wait comes long after the program's own end. */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include "processes.h"

#define LATE 3600
#define NOINLINE __attribute__((noinline))

static pthread_barrier_t met;
static pthread_t first_thread, second_thread;
static const char *which;

static int is(const char *word) { return strstr(which, word) != 0; }
static void sleep_long(void) { struct timespec late = { LATE, 0 }; nanosleep(&late, 0); }
static pthread_t start(void *(*function)(void *)) { pthread_t thread; if (pthread_create(&thread, 0, function, 0)) abort(); return thread; }
static void join(void) { ready(0); pthread_join(first_thread, 0); pthread_join(second_thread, 0); }
static void only_returns(int signal) { (void)signal; }
static void handle(int signal, void (*handler)(int)) {
    struct sigaction action = { .sa_handler = handler };
    sigaction(signal, &action, 0);
}

/* Two processes in a ring of file locks. A timer interrupts one of them, by the name of the case. */
static void files(void) {
    char paths[2][64];
    int both[2], told[2][2];
    for (int i = 0; i < 2; i++) {
        snprintf(paths[i], sizeof paths[i], "/tmp/still-ended-%d-%d", getpid(), i);
        if (pipe(told[i])) abort();
    }
    pid_t other = child();
    int own = other == 0;
    for (int i = 0; i < 2; i++) both[i] = open(paths[i], O_RDWR | O_CREAT, 0600);
    flock(both[own], LOCK_EX);
    char byte = 'x';
    if (write(told[own][1], &byte, 1) != 1 || read(told[!own][0], &byte, 1) != 1) abort();
    if (is("alarm")) {
        handle(SIGALRM, only_returns);
        alarm(LATE);
    } else if (is("timer")) {
        timer_t timer;
        int number = is("realtime") ? SIGRTMIN : SIGUSR2;
        struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = number };
        struct itimerspec late = { .it_value.tv_sec = LATE };
        handle(number, only_returns);
        if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &late, 0)) abort();
    } else if (is("handled")) {
        handle(SIGUSR2, only_returns);
    }
    for (int i = 0; i < 2 && own; i++) unlink(paths[i]);
    if (other) ready(other);
    flock(both[!own], LOCK_EX);
    _exit(0);
}

static sem_t units[2];

static NOINLINE void *takes_both(int own) {
    sem_wait(&units[own]);
    pthread_barrier_wait(&met);
    if (sem_wait(&units[!own]) == 0) sem_post(&units[!own]);
    sem_post(&units[own]);
    return 0;
}
static void *takes_first(void *none) { (void)none; return takes_both(0); }
static void *takes_second(void *none) { (void)none; return takes_both(1); }
static void posts(int signal) { (void)signal; sem_post(&units[0]); }
static void posts_by_value(union sigval none) { (void)none; sem_post(&units[0]); }

/* A ring of two semaphores used as locks: a handler posts one, or main interrupts a wait. */
static void semaphores(void) {
    sem_init(&units[0], 0, 1), sem_init(&units[1], 0, 1);
    if (is("alarm")) handle(SIGALRM, posts), alarm(LATE);
    if (is("kick")) handle(SIGUSR1, only_returns);
    if (is("child-ends")) {
        handle(SIGCHLD, posts);
        if (child() == 0) sleep_long(), _exit(0);
    }
    if (is("calls-back")) {
        timer_t timer;
        struct sigevent event = { .sigev_notify = SIGEV_THREAD, .sigev_notify_function = posts_by_value };
        struct itimerspec late = { .it_value.tv_sec = LATE };
        if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &late, 0)) abort();
    }
    first_thread = start(takes_first), second_thread = start(takes_second);
    if (is("kick")) {
        ready(0);
        sleep_long();
        pthread_kill(first_thread, SIGUSR1);
    }
    join();
}

static pid_t watched;
static void ends_child(int signal) { (void)signal; kill(watched, SIGTERM); }

/* A parent waits for its child, and that for a byte which only the parent writes. */
static void child_and_pipe(void) {
    int ends[2];
    char byte;
    if (pipe(ends)) abort();
    watched = child();
    if (watched == 0) {
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) != 1);
    }
    close(ends[0]);
    if (is("alarm")) handle(SIGALRM, ends_child), alarm(LATE);
    ready(watched);
    waitpid(watched, 0, 0);
}

/* Both ends of a connection receive, by sockets that end each call after a time, or not. */
static void sockets(void) {
    int ends[2];
    char byte;
    struct timeval late = { LATE, 0 };
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) abort();
    for (int i = 0; i < 2 && is("limited"); i++) setsockopt(ends[i], SOL_SOCKET, SO_RCVTIMEO, &late, sizeof late);
    pid_t other = child();
    close(ends[!other]);
    if (other) ready(other);
    recv(ends[!!other], &byte, 1, 0);
}

static pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER, inner = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static volatile int items;

static NOINLINE void tick(void) { struct timespec moment = { 0, 50000000 }; nanosleep(&moment, 0); }
static NOINLINE void fill(void) { items = 1; pthread_cond_signal(&filled); }
static NOINLINE void count(void) { static volatile long ticks; ticks++; }
static void (*volatile each_tick)(void) = count;

static void *beats(void *none) {
    for (;;) {
        tick();
        if (is("filling") && items > 2) fill();
        if (is("calling")) each_tick();
        count();
    }
    return none;
}
static void *beats_only(void *none) {
    for (;;) tick(), count();
    return none;
}
static void *consumes(void *none) {
    pthread_mutex_lock(&outer);
    pthread_mutex_lock(&inner);
    pthread_barrier_wait(&met);
    while (!items) pthread_cond_wait(&filled, &inner);
    pthread_mutex_unlock(&inner);
    pthread_mutex_unlock(&outer);
    return none;
}
static void *produces(void *none) {
    pthread_barrier_wait(&met);
    pthread_mutex_lock(&outer);
    fill();
    pthread_mutex_unlock(&outer);
    return none;
}

/* A consumer keeps the producer's lock while it waits, beside a heartbeat that calls nothing which wakes, or may. */
static void monitor(void) {
    start(is("only") ? beats_only : beats);
    first_thread = start(consumes), second_thread = start(produces);
    join();
}

static void posted(union sigval none) { (void)none; sem_post(&units[0]); }

/* The C library's own thread runs what a timer calls. */
static void library_thread(void) {
    timer_t timer;
    struct sigevent event = { .sigev_notify = SIGEV_THREAD, .sigev_notify_function = posted };
    struct itimerspec late = { .it_value.tv_sec = LATE };
    sem_init(&units[0], 0, 0);
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &late, 0)) abort();
    ready(0);
    sem_wait(&units[0]);
}

struct shared { pthread_mutex_t lock; pthread_cond_t filled; };

/* A condition in memory that processes share: who would signal it has ended, or sleeps. */
static void shared_condition(void) {
    struct shared *shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t of_lock;
    pthread_condattr_t of_condition;
    pthread_mutexattr_init(&of_lock), pthread_mutexattr_setpshared(&of_lock, PTHREAD_PROCESS_SHARED);
    pthread_condattr_init(&of_condition), pthread_condattr_setpshared(&of_condition, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shared->lock, &of_lock), pthread_cond_init(&shared->filled, &of_condition);
    pid_t other = child();
    if (other == 0) {
        if (is("lives")) {
            sleep_long();
            pthread_cond_signal(&shared->filled);
        }
        _exit(0);
    }
    if (!is("lives")) waitpid(other, 0, 0);
    ready(0);
    pthread_mutex_lock(&shared->lock);
    for (;;) pthread_cond_wait(&shared->filled, &shared->lock);
}

/* A semaphore with a name, by which any process may still come to it, or without. */
static void named_semaphore(void) {
    char name[64];
    snprintf(name, sizeof name, "/still-ended-%d", getpid());
    sem_t *semaphore = sem_open(name, O_CREAT, 0600, 0);
    if (semaphore == SEM_FAILED) abort();
    /* This takes the name away again when the program has ended. */
    if (is("named") && child() == 0) {
        munmap((void *)((uintptr_t)semaphore & ~4095ul), 4096);
        for (pid_t parent = getppid(); getppid() == parent;) tick();
        sem_unlink(name);
        _exit(0);
    }
    if (!is("named")) sem_unlink(name);
    ready(0);
    sem_wait(semaphore);
}

/* A lock of the program's own: beside its word stands who has made it. */
struct own_lock { atomic_int word; int flags, maker, spare; long rest[8]; };
static struct own_lock *made[2];

static NOINLINE void lock_own(struct own_lock *lock) {
    int free = 0;
    if (atomic_compare_exchange_strong(&lock->word, &free, 1)) return;
    while (atomic_exchange(&lock->word, 2)) syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, 2, 0, 0, 0);
}
static NOINLINE void unlock_own(struct own_lock *lock) {
    if (atomic_exchange(&lock->word, 0) == 2) syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
}
static NOINLINE struct own_lock *make_own(void) {
    struct own_lock *lock = calloc(1, sizeof *lock);
    lock->maker = (int)syscall(SYS_gettid);
    return lock;
}
static void *makes_and_asks(void *none) {
    made[0] = make_own();
    lock_own(made[0]);
    unlock_own(made[0]);
    pthread_barrier_wait(&met);
    pthread_barrier_wait(&met);
    lock_own(made[1]);
    unlock_own(made[1]);
    return none;
}
static void *keeps(void *none) {
    pthread_barrier_wait(&met);
    lock_own(made[0]);
    pthread_barrier_wait(&met);
    sleep_long();
    unlock_own(made[0]);
    return none;
}
static void *has_the_other(void *none) {
    made[1] = make_own();
    lock_own(made[1]);
    pthread_barrier_wait(&met);
    pthread_barrier_wait(&met);
    lock_own(made[0]);
    unlock_own(made[0]);
    unlock_own(made[1]);
    return none;
}
static void locks_with_makers(void) {
    pthread_barrier_destroy(&met), pthread_barrier_init(&met, 0, 3);
    first_thread = start(makes_and_asks), second_thread = start(has_the_other);
    start(keeps);
    join();
}

/* Two processes in a ring of System V semaphores, and a third one that removes the set. */
static void removed_set(void) {
    int set = semget(IPC_PRIVATE, 2, 0600), told[2][2];
    unsigned short values[2] = { 1, 1 };
    struct sembuf take = { 0, -1, SEM_UNDO };
    char byte = 'x';
    if (set < 0 || semctl(set, 0, SETALL, values) || pipe(told[0]) || pipe(told[1])) abort();
    /* The set goes with those that use it. */
    if (child() == 0) {
        pid_t parent = getppid();
        for (int left = LATE; left > 0 && getppid() == parent; left--) tick();
        semctl(set, 0, IPC_RMID);
        _exit(0);
    }
    pid_t other = child();
    int own = other == 0;
    take.sem_num = (unsigned short)own;
    semop(set, &take, 1);
    if (write(told[own][1], &byte, 1) != 1 || read(told[!own][0], &byte, 1) != 1) abort();
    if (other) ready(0);
    take.sem_num = (unsigned short)!own;
    semop(set, &take, 1);
    _exit(0);
}

static pthread_mutex_t kept = PTHREAD_MUTEX_INITIALIZER;
static NOINLINE void take_kept(void) { pthread_mutex_lock(&kept); }
static void *wants_kept(void *none) { (void)none; pthread_mutex_lock(&kept); return 0; }

/* A process forks while it has a lock, and ends: the thread that forked has the lock in the child, under another id. */
static void forked_with_a_lock(void) {
    int ends[2];
    char byte;
    if (pipe(ends)) abort();
    take_kept();
    if (fork() == 0) {
        close(ends[1]);
        alarm(120);
        if (read(ends[0], &byte, 1) != 0) abort();
        first_thread = start(wants_kept);
        ready(0);
        sleep_long();
        pthread_mutex_unlock(&kept);
        _exit(0);
    }
    _exit(0);
}

static sem_t *shared_unit;
static void *posts_late(void *none) { sleep_long(); sem_post(shared_unit); return none; }

/* A child's main thread ends, and another of its threads posts later: the process lives on. */
static void poster_without_main(void) {
    shared_unit = mmap(0, sizeof *shared_unit, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    sem_init(shared_unit, 1, 0);
    pid_t other = child();
    if (other == 0) {
        start(posts_late);
        pthread_exit(0);
    }
    ready(other);
    sem_wait(shared_unit);
}

int main(int number, char **arguments) {
    alarm(120);
    if (number < 2) return 2;
    which = arguments[1];
    pthread_barrier_init(&met, 0, 2);
    if (!strncmp(which, "files", 5)) files();
    else if (!strncmp(which, "semaphores", 10)) semaphores();
    else if (!strncmp(which, "child", 5)) child_and_pipe();
    else if (!strncmp(which, "sockets", 7)) sockets();
    else if (!strncmp(which, "monitor", 7)) monitor();
    else if (!strcmp(which, "library-thread")) library_thread();
    else if (!strncmp(which, "condition", 9)) shared_condition();
    else if (!strncmp(which, "semaphore-", 10)) named_semaphore();
    else if (!strcmp(which, "makers")) locks_with_makers();
    else if (!strcmp(which, "set")) removed_set();
    else if (!strcmp(which, "forked-with-a-lock")) forked_with_a_lock();
    else if (!strcmp(which, "poster-without-main")) poster_without_main();
    else return 2;
    return 0;
}
