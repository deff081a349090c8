/* Calls that a debugger's stop must not end early. Each thread is blocked in one call that nobody ends; a call that
 * returns is counted. On SIGTERM the program prints how many returned, by name, and ends. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <time.h>
#include <unistd.h>

static volatile int early[6];
static const char *names[6] = {"epoll_wait", "sigtimedwait", "semop", "nanosleep", "read", "sem_wait"};
static sem_t semaphore;

static void *block(void *which) {
    long i = (long)which;
    pthread_setname_np(pthread_self(), names[i]);
    sigset_t set;
    struct timespec hour = {3600, 0};
    struct epoll_event event;
    int epoll = epoll_create1(0), ends[2], set_of_one = semget(IPC_PRIVATE, 1, 0600);
    char byte;
    struct sembuf down = {0, -1, 0};
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    if (i == 4 && pipe(ends)) return 0;
    for (;;) {
        switch (i) {
        case 0: epoll_wait(epoll, &event, 1, -1); break;
        case 1: sigtimedwait(&set, 0, &hour); break;
        case 2: semop(set_of_one, &down, 1); break;
        case 3: nanosleep(&hour, 0); break;
        case 4: read(ends[0], &byte, 1); break;
        default: sem_wait(&semaphore);
        }
        early[i]++;
    }
}

int main(void) {
    sigset_t set;
    pthread_t thread;
    alarm(900);
    sem_init(&semaphore, 0, 0);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, 0);
    for (long i = 0; i < 6; i++) pthread_create(&thread, 0, block, (void *)i);
    printf("READY pids=%d\n", getpid());
    fflush(stdout);
    int signal;
    sigdelset(&set, SIGUSR2);
    sigwait(&set, &signal);
    for (int i = 0; i < 6; i++) printf("%s=%d\n", names[i], early[i]);
    return 0;
}
