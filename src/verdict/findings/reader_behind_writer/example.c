/* A reader holds the lock for long, a writer waits for it, and no new reader gets in. */
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>

static pthread_rwlock_t table = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

static void *write_once(void *unused) {
    pthread_rwlock_wrlock(&table);
    return unused;
}

static void *read_for_long(void *unused) {
    pthread_rwlock_rdlock(&table);
    pthread_t writer;
    pthread_create(&writer, 0, write_once, 0);
    pause();
    return unused;
}

int main(void) {
    pthread_t reader;
    pthread_create(&reader, 0, read_for_long, 0);
    while (pthread_rwlock_tryrdlock(&table) == 0) /* until the writer waits */
        pthread_rwlock_unlock(&table);
    pthread_rwlock_rdlock(&table);
    return 0;
}
