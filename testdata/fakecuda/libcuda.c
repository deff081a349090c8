/* A stand-in for the CUDA driver that locks as the real one was measured to: cuOccupancyMaxPotentialBlockSize holds a
 * rwlock of the context for writing while it calls back; launches and event records take it for reading,
 * allocations and stream callbacks for writing. */
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>

static pthread_rwlock_t ctx_lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t inside;
static sem_t arrived;

__attribute__((constructor)) static void prepare(void) {
    pthread_barrier_init(&inside, 0, 2);
    sem_init(&arrived, 0, 0);
}

/* The repro's clock: returns when the other thread holds the lock. That one calls back when somebody has arrived here
 * with the GIL in hand, so the deadlock comes every time. */
void repro_wait_until_locked(void) { pthread_barrier_wait(&inside); }

int cuOccupancyMaxPotentialBlockSize(int *grid, int *block, void *function, size_t (*shared)(int), size_t dynamic, int limit) {
    (void)function, (void)dynamic, (void)limit;
    pthread_rwlock_wrlock(&ctx_lock);
    pthread_barrier_wait(&inside);
    sem_wait(&arrived);
    *grid = 80, *block = (int)shared(256);
    pthread_rwlock_unlock(&ctx_lock);
    return 0;
}

static int reading(void) { return sem_post(&arrived) || pthread_rwlock_rdlock(&ctx_lock) || pthread_rwlock_unlock(&ctx_lock); }
static int writing(void) { return sem_post(&arrived) || pthread_rwlock_wrlock(&ctx_lock) || pthread_rwlock_unlock(&ctx_lock); }

int cuLaunchKernel(void *function) { (void)function; return reading(); }
int cuEventRecord(void *event, void *stream) { (void)event, (void)stream; return reading(); }
int cuMemAlloc_v2(void *pointer, size_t size) { (void)pointer, (void)size; return writing(); }
int cuStreamAddCallback(void *stream, void *callback, void *data, unsigned flags) {
    (void)stream, (void)callback, (void)data, (void)flags;
    return writing();
}
