/* A lock in memory that processes share, whose owner is another process: ./shared_owner CASE
 * Prints "READY pids=P[,P2]" just before the last step and ends by SIGALRM after two minutes. The truth of each case:
 *   dead                the owner has ended: nobody gives the lock back
 *   dead-beside-others  the same, while another process that maps it lives, a thread beats and one is at work
 *   dead-rwlock         the same of the writer of an rwlock
 *   living              the owner lives, and may give it back */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "processes.h"

static struct shared {
    pthread_mutex_t stock_lock;
    pthread_rwlock_t price_lock;
    volatile int taken;
} *shared;

static void make(void) {
    shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) abort();
    pthread_mutexattr_t of_mutex;
    pthread_mutexattr_init(&of_mutex);
    pthread_mutexattr_setpshared(&of_mutex, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&shared->stock_lock, &of_mutex);
    pthread_rwlockattr_t of_rwlock;
    pthread_rwlockattr_init(&of_rwlock);
    pthread_rwlockattr_setpshared(&of_rwlock, PTHREAD_PROCESS_SHARED);
    pthread_rwlock_init(&shared->price_lock, &of_rwlock);
}

static void *beat(void *unused) {
    for (;;) usleep(50000);
    return unused;
}

static void *burn(void *unused) {
    for (volatile long count = 0;; count++) {}
    return unused;
}

/* A child that takes the lock; whether it stays. */
static pid_t owner(int is_rwlock, int stays) {
    pid_t pid = child();
    if (pid == 0) {
        if (is_rwlock) pthread_rwlock_wrlock(&shared->price_lock);
        else pthread_mutex_lock(&shared->stock_lock);
        shared->taken = 1;
        while (stays) pause();
        _exit(0);
    }
    while (!shared->taken) usleep(1000);
    if (!stays) waitpid(pid, 0, 0);
    return pid;
}

static void reserve(void) {
    pthread_mutex_lock(&shared->stock_lock);
    pthread_mutex_unlock(&shared->stock_lock);
}

int main(int count, char **words) {
    const char *name = count > 1 ? words[1] : "";
    alarm(120);
    make();
    if (!strcmp(name, "dead-beside-others")) {
        pthread_t one, other;
        if (child() == 0)
            for (;;) pause();
        owner(0, 0);
        pthread_create(&one, 0, beat, 0);
        pthread_create(&other, 0, burn, 0);
        ready(0);
        reserve();
    } else if (!strcmp(name, "dead")) {
        owner(0, 0);
        ready(0);
        reserve();
    } else if (!strcmp(name, "dead-rwlock")) {
        owner(1, 0);
        ready(0);
        pthread_rwlock_rdlock(&shared->price_lock);
    } else if (!strcmp(name, "living")) {
        owner(0, 1);
        ready(0);
        reserve();
    } else {
        return 2;
    }
    return 0;
}
