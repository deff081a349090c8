/* Preloaded into a benchmark's target: a real-time thread that wakes every 20 us and notes the longest time between two
 * wake-ups, in nanoseconds, in the first word of the file that PAUSEMETER_FILE names. A stop from outside shows there. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static volatile uint64_t *longest;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *beat(void *unused) {
    struct sched_param highest = {.sched_priority = 50};
    pthread_setschedparam(pthread_self(), SCHED_FIFO, &highest);
    for (uint64_t last = now();;) {
        struct timespec pause = {0, 20000};
        nanosleep(&pause, 0);
        uint64_t this = now();
        if (this - last > *longest) *longest = this - last;
        last = this;
    }
    return unused;
}

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("PAUSEMETER_FILE");
    int file = path ? open(path, O_RDWR) : -1;
    pthread_t thread;
    if (file < 0) return;
    unsetenv("LD_PRELOAD");
    longest = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (longest != MAP_FAILED) pthread_create(&thread, 0, beat, 0);
}
