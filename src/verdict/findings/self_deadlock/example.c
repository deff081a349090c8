/* A function takes a lock and calls another one that takes it too. */
#include <pthread.h>

static pthread_mutex_t ledger = PTHREAD_MUTEX_INITIALIZER;
static int total;

static void add(int amount) {
    pthread_mutex_lock(&ledger);
    total += amount;
    pthread_mutex_unlock(&ledger);
}

static void add_twice(int amount) {
    pthread_mutex_lock(&ledger);
    add(amount);
    add(amount);
    pthread_mutex_unlock(&ledger);
}

int main(void) {
    add_twice(1);
    return 0;
}
