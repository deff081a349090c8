/* Many threads that wait in the common ways: ./many_threads COUNT
 * For one mutex that the first thread holds, for a condition, a semaphore and a pipe of their own. Prints
 * "READY pids=P" when all are started and ends by SIGALRM after two minutes. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

struct own {
    long number;
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    sem_t semaphore;
};

static void *wait_somehow(void *argument) {
    struct own *own = argument;
    switch (own->number % 3) {
    case 0: pthread_mutex_lock(&held); break;
    case 1:
        pthread_mutex_lock(&own->mutex);
        pthread_cond_wait(&own->condition, &own->mutex);
        break;
    default: sem_wait(&own->semaphore);
    }
    return 0;
}

int main(int count, char **words) {
    alarm(120);
    long threads = count > 1 ? atol(words[1]) : 5000;
    pthread_mutex_lock(&held);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    for (long i = 0; i < threads; i++) {
        struct own *own = calloc(1, sizeof *own);
        own->number = i;
        pthread_t thread;
        if (pthread_create(&thread, &attributes, wait_somehow, own)) return 1;
    }
    printf("READY pids=%d\n", getpid());
    fflush(stdout);
    pause();
}
