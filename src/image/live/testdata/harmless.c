/* Threads blocked in calls that a careless stop breaks. Exits with 0 if each call ended as it would have unwatched. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <time.h>
#include <unistd.h>

#define SECONDS 2
static int channel[2];
static sem_t semaphore;
static int failed;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void check(const char *name, double begin, int result, int error, int wanted) {
    double took = now() - begin;
    if (result != (wanted ? -1 : 0) || (wanted && error != wanted) || took < SECONDS - 0.01) {
        printf("%s: result %d errno %d after %.3f s\n", name, result, error, took);
        __atomic_store_n(&failed, 1, __ATOMIC_SEQ_CST);
    }
}

static void *in_epoll(void *unused) {
    int poll = epoll_create1(0);
    struct epoll_event event;
    double begin = now();
    int result = epoll_wait(poll, &event, 1, SECONDS * 1000);
    check("epoll_wait", begin, result, errno, 0);
    return unused;
}

static void *in_sigtimedwait(void *unused) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    struct timespec limit = {SECONDS, 0};
    double begin = now();
    int result = sigtimedwait(&set, NULL, &limit);
    check("sigtimedwait", begin, result, errno, EAGAIN);
    return unused;
}

static void *in_semop(void *unused) {
    int id = semget(IPC_PRIVATE, 1, 0600);
    struct sembuf take = {0, -1, 0};
    struct timespec limit = {SECONDS, 0};
    double begin = now();
    int result = semtimedop(id, &take, 1, &limit);
    check("semtimedop", begin, result, errno, EAGAIN);
    semctl(id, 0, IPC_RMID);
    return unused;
}

static void *in_nanosleep(void *unused) {
    struct timespec time = {SECONDS, 0};
    double begin = now();
    int result = nanosleep(&time, NULL);
    check("nanosleep", begin, result, errno, 0);
    if (now() - begin > SECONDS + 1.5) {
        printf("nanosleep: late\n");
        failed = 1;
    }
    return unused;
}

static void *in_read(void *unused) {
    char byte;
    double begin = now();
    int result = read(channel[0], &byte, 1) == 1 ? 0 : -1;
    check("read", begin, result, errno, 0);
    return unused;
}

static void *in_sem_wait(void *unused) {
    double begin = now();
    int result = sem_wait(&semaphore);
    check("sem_wait", begin, result, errno, 0);
    return unused;
}

int main(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    sem_init(&semaphore, 0, 0);
    if (pipe(channel)) return 2;
    void *(*calls[])(void *) = {in_read, in_sem_wait, in_epoll, in_sigtimedwait, in_semop, in_nanosleep};
    pthread_t threads[6];
    for (int i = 0; i < 6; i++) pthread_create(&threads[i], NULL, calls[i], NULL);
    for (int i = 2; i < 6; i++) pthread_join(threads[i], NULL);
    usleep(200000);
    sem_post(&semaphore);
    if (write(channel[1], "x", 1) != 1) return 2;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    return failed;
}
