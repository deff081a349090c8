/* Many threads that wait in the common ways: ./many_threads COUNT [chain|ring]
 * For one mutex that the first thread holds, for a condition, a semaphore and a pipe of their own; or each for a mutex that the
 * thread before it holds, the first of them for one of the main thread's, or of the last. Prints "READY pids=P" when all are
 * started and ends by SIGALRM after two minutes. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

struct own {
    long number;
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    sem_t semaphore;
};

static pthread_mutex_t *links;
static pthread_barrier_t linked;
static long count_of_links;

static void *wait_for_the_one_before(void *argument) {
    long own = ((struct own *)argument)->number + 1;
    pthread_mutex_lock(&links[own]);
    pthread_barrier_wait(&linked);
    pthread_mutex_lock(&links[own - 1 ? own - 1 : count_of_links]);
    return 0;
}

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
    void *(*body)(void *) = count > 2 ? wait_for_the_one_before : wait_somehow;
    pthread_mutex_lock(&held);
    if (count > 2) {
        links = calloc(threads + 1, sizeof *links);
        pthread_barrier_init(&linked, 0, threads + 1);
        count_of_links = strcmp(words[2], "ring") ? 0 : threads;
        if (!count_of_links) pthread_mutex_lock(&links[0]);
    }
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    for (long i = 0; i < threads; i++) {
        struct own *own = calloc(1, sizeof *own);
        own->number = i;
        pthread_t thread;
        if (pthread_create(&thread, &attributes, body, own)) return 1;
    }
    if (count > 2) pthread_barrier_wait(&linked);
    printf("READY pids=%d\n", getpid());
    fflush(stdout);
    pause();
}
