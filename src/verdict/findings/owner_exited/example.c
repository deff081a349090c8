/* A thread returns without releasing its lock. */
#include <pthread.h>

static pthread_mutex_t ledger = PTHREAD_MUTEX_INITIALIZER;

static void *add(void *amount) {
    pthread_mutex_lock(&ledger);
    if (!amount) return 0; /* here the lock stays locked */
    pthread_mutex_unlock(&ledger);
    return 0;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, add, 0);
    pthread_join(thread, 0);
    pthread_mutex_lock(&ledger);
    return 0;
}
