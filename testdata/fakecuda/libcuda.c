/* A stand-in for the CUDA driver, with a GPU that is a list of operations for each stream. It waits and locks as the real one
 * was measured to (driver 580.159.04): cuOccupancyMaxPotentialBlockSize has a rwlock of the context for writing while it
 * calls back; launches and event records take it for reading, allocations, copies, loading and host functions for writing;
 * synchronising calls spin, yield or sleep as the context was made; host functions run on a thread of the driver's own.
 * Kernels are known by name: `endless`, `until_flag`, `wrong_address`; all others are done at once. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, DEINITIALIZED = 4, NOT_FOUND = 500, ILLEGAL_ADDRESS = 700 };
enum kind { DONE, ENDLESS, UNTIL_FLAG, HOST_FUNCTION };
enum { YIELDS = 2, SLEEPS = 4, MOST = 64 };

struct operation { enum kind kind; volatile uint32_t *flag; void (*function)(void *); void *data; int given; };
struct stream { struct operation list[MOST]; int first, count; struct stream *next; };
struct event { struct stream *stream; int behind; };

static pthread_rwlock_t ctx_lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t gpu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t to_run = PTHREAD_COND_INITIALIZER;
static sem_t progressed;
static struct stream *streams, default_stream;
static struct operation *waiting;
static int initialised_in, schedule, failed;

static int usable(void) { return initialised_in == getpid() ? SUCCESS : NOT_INITIALIZED; }

/* The driver's event thread: it has nothing to do. */
static void *handle_events(void *unused) {
    for (;;) poll(NULL, 0, 100);
    return unused;
}

static void *run_host_functions(void *unused) {
    for (;;) {
        pthread_mutex_lock(&gpu);
        while (!waiting) pthread_cond_wait(&to_run, &gpu);
        struct operation *one = waiting;
        waiting = NULL;
        pthread_mutex_unlock(&gpu);
        one->function(one->data);
        pthread_mutex_lock(&gpu);
        one->kind = DONE;
        pthread_mutex_unlock(&gpu);
        sem_post(&progressed);
    }
    return unused;
}

static void start(void *(*what)(void *), const char *name) {
    pthread_t thread;
    pthread_create(&thread, NULL, what, NULL);
    if (name) pthread_setname_np(thread, name);
    pthread_detach(thread);
}

int cuInit(unsigned flags) {
    (void)flags;
    if (initialised_in) return usable();
    initialised_in = getpid();
    sem_init(&progressed, 0, 0);
    streams = &default_stream;
    start(handle_events, "cuda-EvtHandlr");
    return SUCCESS;
}

int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
    (void)version, (void)flags;
    *function = dlsym(RTLD_DEFAULT, name);
    if (!*function) {
        char second[128];
        snprintf(second, sizeof second, "%s_v2", name);
        *function = dlsym(RTLD_DEFAULT, second);
    }
    if (status) *status = !*function;
    return *function ? SUCCESS : NOT_FOUND;
}

__attribute__((destructor)) static void deinitialise(void) { initialised_in = -1; }

/* Take away what is done, hand out what is to run on the host. Needs the lock. */
static void advance(struct stream *stream) {
    while (stream->count) {
        struct operation *one = &stream->list[stream->first];
        if (one->kind == HOST_FUNCTION && !one->given) {
            one->given = 1;
            waiting = one;
            pthread_cond_signal(&to_run);
        }
        if (one->kind != DONE && !(one->kind == UNTIL_FLAG && *one->flag)) break;
        stream->first = (stream->first + 1) % MOST;
        stream->count--;
    }
}

static void pause_once(void);

static void enqueue(struct stream *stream, struct operation operation) {
    if (!stream) stream = &default_stream;
    /* A full queue: the launch waits, with the lock that it has. */
    for (volatile int *count = &stream->count; *count == MOST;) pause_once();
    pthread_mutex_lock(&gpu);
    stream->list[(stream->first + stream->count++) % MOST] = operation;
    advance(stream);
    pthread_mutex_unlock(&gpu);
}

/* How many operations are left; 1 also where another thread looks just now, since a spin of the driver sleeps on no lock. */
static int progress(struct stream *stream) {
    if (pthread_mutex_trylock(&gpu)) return 1;
    advance(stream);
    int left = stream->count;
    pthread_mutex_unlock(&gpu);
    return left;
}

static int is_busy(struct stream *only) {
    for (struct stream *stream = streams; stream; stream = stream->next)
        if ((!only || stream == only) && progress(stream)) return 1;
    return 0;
}

/* How a thread waits, by what the context was made with. */
static void pause_once(void) {
    if (schedule == YIELDS) sched_yield();
    if (schedule == SLEEPS) while (sem_wait(&progressed) && errno == EINTR) {}
}

static int wait_for(struct stream *stream) {
    while (is_busy(stream)) pause_once();
    return failed;
}

/* As in the driver, the exported function passes its arguments on, and another keeps them. */
static int synchronise(struct stream *stream) { return wait_for(stream ? stream : &default_stream); }
static int (*volatile synchronise_inner)(struct stream *) = synchronise;

int cuStreamSynchronize(struct stream *stream) {
    if (usable()) return usable();
    int result = synchronise_inner(stream);
    return result;
}

int cuCtxSynchronize(void) {
    if (usable()) return usable();
    return wait_for(NULL);
}

int cuEventSynchronize(struct event *event) {
    if (usable()) return usable();
    return event->behind ? wait_for(event->stream) : failed;
}

int cuDeviceGet(int *device, int number) { *device = number; return usable(); }
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) { (void)device; schedule = (int)flags; return usable(); }
int cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; *context = &ctx_lock; return usable(); }
int cuCtxSetCurrent(void *context) { (void)context; return usable(); }

static int reading(void) {
    if (usable()) return usable();
    return pthread_rwlock_rdlock(&ctx_lock) || pthread_rwlock_unlock(&ctx_lock);
}

static int writing(void) {
    if (usable()) return usable();
    return pthread_rwlock_wrlock(&ctx_lock) || pthread_rwlock_unlock(&ctx_lock);
}

int cuModuleLoadData(void **module, const char *text) {
    int result = writing();
    *module = (void *)text;
    /* Loading needs memory of the context, which is to be had when nothing runs. */
    return result ? result : is_busy(NULL) ? wait_for(NULL) : SUCCESS;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
    (void)module;
    *function = strdup(name);
    return writing();
}

int cuStreamCreate(struct stream **stream, unsigned flags) {
    (void)flags;
    *stream = calloc(1, sizeof **stream);
    pthread_mutex_lock(&gpu);
    (*stream)->next = streams;
    streams = *stream;
    pthread_mutex_unlock(&gpu);
    return writing();
}

int cuMemAlloc_v2(uint64_t *pointer, size_t size) {
    int result = writing();
    if (!result) *pointer = (uintptr_t)malloc(size);
    return result;
}
int cuMemFree_v2(uint64_t pointer) {
    int result = writing();
    if (!result) result = wait_for(NULL);
    free((void *)(uintptr_t)pointer);
    return result;
}
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) {
    int result = writing();
    if (!result) memcpy((void *)(uintptr_t)to, from, size);
    return result;
}
int cuMemHostAlloc(void **pointer, size_t size, unsigned flags) { (void)flags; *pointer = malloc(size); return writing(); }
int cuMemHostGetDevicePointer_v2(uint64_t *there, void *pointer, unsigned flags) {
    (void)flags;
    *there = (uintptr_t)pointer;
    return usable();
}

int cuLaunchKernel(const char *name, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned shared,
                   struct stream *stream, void **arguments, void **more) {
    (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)shared, (void)more;
    if (usable()) return usable();
    pthread_rwlock_rdlock(&ctx_lock);
    if (!strcmp(name, "endless")) enqueue(stream, (struct operation){.kind = ENDLESS});
    if (!strcmp(name, "until_flag"))
        enqueue(stream, (struct operation){.kind = UNTIL_FLAG, .flag = (void *)(uintptr_t) * (uint64_t *)arguments[0]});
    if (!strcmp(name, "wrong_address")) failed = ILLEGAL_ADDRESS;
    pthread_rwlock_unlock(&ctx_lock);
    return SUCCESS;
}

/* Of CU_STREAM_WAIT_VALUE_EQ and the value 1 alone. */
int cuStreamWaitValue32(struct stream *stream, uint64_t address, unsigned value, unsigned flags) {
    if (usable()) return usable();
    if (value != 1 || flags != 1) return INVALID_VALUE;
    pthread_rwlock_rdlock(&ctx_lock);
    enqueue(stream, (struct operation){.kind = UNTIL_FLAG, .flag = (void *)(uintptr_t)address});
    pthread_rwlock_unlock(&ctx_lock);
    return SUCCESS;
}

int cuLaunchHostFunc(struct stream *stream, void (*function)(void *), void *data) {
    int result = writing();
    if (result) return result;
    static int started;
    if (!started++) start(run_host_functions, NULL);
    enqueue(stream, (struct operation){.kind = HOST_FUNCTION, .function = function, .data = data});
    return SUCCESS;
}

int cuStreamAddCallback(struct stream *stream, void *callback, void *data, unsigned flags) {
    (void)stream, (void)callback, (void)data, (void)flags;
    return writing();
}

int cuEventCreate(struct event **event, unsigned flags) { (void)flags; *event = calloc(1, sizeof **event); return writing(); }
int cuEventRecord(struct event *event, struct stream *stream) {
    int result = reading();
    if (result) return result;
    event->stream = stream ? stream : &default_stream;
    event->behind = 1;
    return SUCCESS;
}

int cuOccupancyMaxPotentialBlockSize(int *grid, int *block, void *function, size_t (*shared)(int), size_t dynamic, int limit) {
    (void)function, (void)dynamic, (void)limit;
    if (usable()) return usable();
    pthread_rwlock_wrlock(&ctx_lock);
    *grid = 80, *block = (int)shared(256);
    pthread_rwlock_unlock(&ctx_lock);
    return SUCCESS;
}
