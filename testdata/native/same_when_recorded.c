/* What the C library's locks answer, a line each: the same with the recorder and without. It hangs nowhere.
 * Robust, inheriting, recursive and checking mutexes; 20,000 signals whose handler posts a semaphore between locks; a thread that is
 * cancelled while it waits for a condition; children of fork and vfork; the least stack; dlsym; errno. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t robust, inheriting, recursive, checking;
static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t both;
static sem_t posts;
static volatile int handled;

static void *die_with_it(void *argument) {
    pthread_mutex_lock(&robust);
    return argument;
}

static void post(int signal) {
    (void)signal;
    handled++;
    sem_post(&posts);
}

static void *send_signals(void *argument) {
    for (int i = 0; i < 20000; i++) pthread_kill(*(pthread_t *)argument, SIGUSR1);
    return argument;
}

static void give_back(void *mutex) {
    pthread_mutex_unlock(mutex);
}

static void *wait_for_ever(void *argument) {
    pthread_mutex_lock(&plain);
    pthread_cleanup_push(give_back, &plain);
    pthread_barrier_wait(&both);
    for (;;) pthread_cond_wait(&never, &plain);
    pthread_cleanup_pop(1);
    return argument;
}

static void *in_little_room(void *argument) {
    char room[1500];
    pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    memset(room, 1, sizeof room);
    pthread_mutex_lock(&plain);
    pthread_mutex_lock(&own);
    pthread_mutex_unlock(&own);
    pthread_mutex_unlock(&plain);
    return room[7] == 1 ? argument : 0;
}

static void make(pthread_mutex_t *mutex, int type, int protocol, int robustness) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, type);
    pthread_mutexattr_setprotocol(&attributes, protocol);
    pthread_mutexattr_setrobust(&attributes, robustness);
    pthread_mutex_init(mutex, &attributes);
}

static void kinds_of_mutexes(void) {
    pthread_t thread;
    make(&robust, PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_ROBUST);
    make(&inheriting, PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_INHERIT, PTHREAD_MUTEX_STALLED);
    make(&recursive, PTHREAD_MUTEX_RECURSIVE, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_STALLED);
    make(&checking, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_STALLED);
    pthread_create(&thread, 0, die_with_it, 0);
    pthread_join(thread, 0);
    int dead = pthread_mutex_lock(&robust), again = pthread_mutex_consistent(&robust);
    printf("robust %d %d %d\n", dead == EOWNERDEAD, again, pthread_mutex_unlock(&robust));
    int locked = pthread_mutex_lock(&inheriting);
    printf("inheriting %d %d\n", locked, pthread_mutex_unlock(&inheriting));
    int once = pthread_mutex_lock(&recursive), twice = pthread_mutex_lock(&recursive);
    int first = pthread_mutex_unlock(&recursive), second = pthread_mutex_unlock(&recursive);
    printf("recursive %d %d %d %d %d\n", once, twice, first, second, pthread_mutex_unlock(&recursive) == EPERM);
    int taken = pthread_mutex_lock(&checking), refused = pthread_mutex_lock(&checking);
    printf("checking %d %d %d\n", taken, refused == EDEADLK, pthread_mutex_unlock(&checking));
}

static void signals(void) {
    pthread_t own = pthread_self(), thread;
    int value;
    sem_init(&posts, 0, 0);
    signal(SIGUSR1, post);
    pthread_create(&thread, 0, send_signals, &own);
    while (pthread_tryjoin_np(thread, 0)) {
        pthread_mutex_lock(&plain);
        pthread_mutex_lock(&recursive);
        pthread_mutex_unlock(&recursive);
        pthread_mutex_unlock(&plain);
    }
    sem_getvalue(&posts, &value);
    printf("signals %d\n", value == handled && handled > 0);
}

int main(void) {
    pthread_t thread;
    pthread_attr_t little;
    void *result;
    int status;
    alarm(120);
    kinds_of_mutexes();
    signals();

    pthread_barrier_init(&both, 0, 2);
    pthread_create(&thread, 0, wait_for_ever, 0);
    pthread_barrier_wait(&both);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    printf("cancelled %d %d\n", result == PTHREAD_CANCELED, pthread_mutex_trylock(&plain));
    fflush(stdout);

    pid_t pid = fork();
    if (pid == 0) {
        pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
        pthread_mutex_lock(&own);
        pthread_mutex_unlock(&own);
        _exit(pthread_mutex_unlock(&plain) ? 1 : 7);
    }
    waitpid(pid, &status, 0);
    printf("fork %d\n", WEXITSTATUS(status));
    pthread_mutex_unlock(&plain);
    pid = vfork();
    if (pid == 0) {
        execl("/bin/true", "true", (char *)0);
        _exit(1);
    }
    waitpid(pid, &status, 0);
    printf("vfork %d\n", WEXITSTATUS(status));

    pthread_attr_init(&little);
    pthread_attr_setstacksize(&little, PTHREAD_STACK_MIN);
    pthread_create(&thread, &little, in_little_room, &plain);
    pthread_join(thread, &result);
    printf("little room %d\n", result == (void *)&plain);
    printf("dlsym %d %d\n", dlsym(RTLD_DEFAULT, "getpid") != 0, dlsym(RTLD_NEXT, "pthread_mutex_lock") != 0);
    errno = 77;
    pthread_mutex_lock(&plain);
    pthread_mutex_lock(&recursive);
    pthread_mutex_unlock(&recursive);
    pthread_mutex_unlock(&plain);
    printf("errno %d\n", errno);
    return 0;
}
