/* Calls into CUDA's driver, asked for as frameworks and CUDA's runtime ask, for `run --record`: ./recorded_cuda LIBRARY CASE
 * failed: "worker" gets the error 700 of a kernel from cuCtxSynchronize, tells nobody, and the main thread waits for its result.
 * refused: the same with a call that was refused for its arguments (1), which ends no context.
 * passes: a kernel that never ends; its stream and its arguments are words on the stack of the launch. The main thread is in
 *   cuStreamSynchronize, its stream the first argument.
 * within: "worker" is in cuOccupancyMaxPotentialBlockSize, whose callback has made another call, which has come back, and waits.
 * same: prints what dlsym answers, and ends; nothing of it differs with the recorder.
 * All but the last print "READY pids=P" when they are about to hang, and end by SIGALRM after two minutes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "processes.h"

typedef int (*ask)(const char *, void **, int, uint64_t, int *);
typedef int (*launch)(const char *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

static void *library;
static ask ask_driver;
static sem_t entered, never;

static void *by_dlsym(const char *name) {
    void *found = dlsym(library, name);
    if (!found) exit(3);
    return found;
}

static void *by_driver(const char *name) {
    void *found = 0;
    if (ask_driver(name, &found, 12000, 0, 0) || !found) exit(4);
    return found;
}

static int start_kernel(launch function, const char *kernel, void *stream, void **arguments) {
    return function(kernel, 1, 1, 1, 32, 1, 1, 0, stream, arguments, 0);
}

static void *fails(void *unused) {
    pthread_setname_np(pthread_self(), "worker");
    int (*synchronise)(void) = by_driver("cuCtxSynchronize");
    start_kernel(by_dlsym("cuLaunchKernel"), "wrong_address", 0, 0);
    if (synchronise() != 700 || synchronise() != 700) exit(5);
    sem_post(&entered);
    while (sem_wait(&never)) {}
    return unused;
}

static void *refused(void *unused) {
    pthread_setname_np(pthread_self(), "worker");
    int (*wait_value)(void *, uint64_t, unsigned, unsigned) = by_driver("cuStreamWaitValue32");
    if (wait_value(0, 0, 7, 7) != 1) exit(5);
    sem_post(&entered);
    while (sem_wait(&never)) {}
    return unused;
}

static size_t shared_memory(int block) {
    int (*current)(void *) = by_dlsym("cuCtxSetCurrent");
    if (current(0)) exit(5);
    sem_post(&entered);
    sem_wait(&never);
    return (size_t)block;
}

static void *within(void *unused) {
    pthread_setname_np(pthread_self(), "worker");
    int grid, block;
    int (*occupancy)(int *, int *, void *, size_t (*)(int), size_t, int) = by_driver("cuOccupancyMaxPotentialBlockSize");
    occupancy(&grid, &block, 0, shared_memory, 0, 0);
    return unused;
}

static void waits_for(void *(*worker)(void *)) {
    pthread_t thread;
    pthread_create(&thread, 0, worker, 0);
    while (sem_wait(&entered)) {}
    ready(0);
    while (sem_wait(&never)) {}
}

static void passes(void) {
    static uint32_t flag;
    uint64_t address = (uintptr_t)&flag;
    void *arguments[] = { &address }, *stream = 0;
    int (*create)(void **, unsigned) = by_dlsym("cuStreamCreate");
    int (*synchronise)(void *) = by_driver("cuStreamSynchronize");
    int (*flags)(int, unsigned) = by_dlsym("cuDevicePrimaryCtxSetFlags_v2");
    if (flags(0, 4)) exit(5); /* who waits sleeps */
    create(&stream, 0);
    if (start_kernel(by_driver("cuLaunchKernel"), "until_flag", stream, arguments)) exit(5);
    ready(0);
    synchronise(stream);
}

static void same(void) {
    dlerror();
    printf("%d", dlsym(library, "cuNothing") == 0);
    const char *error = dlerror();
    printf(" %d", error && strstr(error, "cuNothing") != 0);
    printf(" %d", dlsym(RTLD_DEFAULT, "cuInit") == 0);
    printf(" %d", dlsym(RTLD_NEXT, "malloc") == dlsym(RTLD_DEFAULT, "malloc"));
    /* Named as the driver's are, of another library: the program's own. */
    void *own = dlopen(0, RTLD_NOW);
    printf(" %d", own && dlsym(own, "cuOfTheProgram") != 0 && dlsym(own, "cuOfTheProgram") == dlsym(RTLD_DEFAULT, "cuOfTheProgram"));
    /* Twice the same, and by each way. */
    printf(" %d", by_dlsym("cuInit") == by_dlsym("cuInit"));
    printf(" %d", by_driver("cuInit") == by_dlsym("cuInit"));
    printf(" %d", by_driver("cuMemAlloc") == by_dlsym("cuMemAlloc_v2"));
    void *none = (void *)1;
    printf(" %d", ask_driver("cuNothing", &none, 12000, 0, 0));
    printf(" %d\n", none == 0);
}

int cuOfTheProgram(void) { return 1; }

int main(int count, char **words) {
    if (count < 3) return 2;
    alarm(120);
    library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) return 2;
    sem_init(&entered, 0, 0);
    sem_init(&never, 0, 0);
    ask_driver = (ask)by_dlsym("cuGetProcAddress_v2");
    int (*initialise)(unsigned) = by_driver("cuInit");
    if (initialise(0)) return 6;
    if (!strcmp(words[2], "failed")) waits_for(fails);
    if (!strcmp(words[2], "refused")) waits_for(refused);
    if (!strcmp(words[2], "within")) waits_for(within);
    if (!strcmp(words[2], "passes")) passes();
    if (!strcmp(words[2], "same")) same();
    return 0;
}
