/* One thread that runs, twenty that sleep for good, and twenty that sleep for ten milliseconds each time. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <time.h>
#include <unistd.h>

static void *run(void *unused) {
    for (volatile unsigned long turns = 0;; turns++) {}
    return unused;
}

static void *sleep_for_good(void *unused) {
    sem_t never;
    sem_init(&never, 0, 0);
    for (;;) sem_wait(&never);
    return unused;
}

static void *poll_now_and_then(void *unused) {
    struct timespec moment = {0, 10000000};
    for (;;) nanosleep(&moment, 0);
    return unused;
}

static void start(void *(*body)(void *), const char *name, int count) {
    while (count--) {
        pthread_t thread;
        if (pthread_create(&thread, 0, body, 0)) _exit(1);
        pthread_setname_np(thread, name);
    }
}

int main(void) {
    alarm(120);
    start(sleep_for_good, "sleeper", 20);
    start(poll_now_and_then, "poller", 20);
    start(run, "busy", 1);
    pause();
    return 0;
}
