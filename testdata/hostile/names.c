/* Waits for itself for ever, on a lock in memory whose name would end a line, colour a terminal and give a CI service a command; its threads
 * have such names, too. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define NAME "m\033]0;x\007\n::error::pwn\342\200\256<b>"

int main(void) {
    int file = memfd_create(NAME, 0);
    pthread_mutexattr_t shared;
    pthread_mutex_t *lock;
    alarm(180);
    prctl(PR_SET_NAME, "\033[31m\n::error::\233");
    if (file < 0 || ftruncate(file, 4096)) return 1;
    lock = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(lock, &shared);
    printf("READY pids=%d\n", getpid());
    fflush(stdout);
    pthread_mutex_lock(lock);
    pthread_mutex_lock(lock);
    return 0;
}
