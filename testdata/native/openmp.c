/* A team of three, one of which wants a lock that its master keeps while it waits for all at a barrier. */
#include <omp.h>
#include <pthread.h>
#include "processes.h"

static pthread_mutex_t results = PTHREAD_MUTEX_INITIALIZER;

int main(void) {
    alarm(120);
    pthread_mutex_lock(&results);
    ready(0);
#pragma omp parallel num_threads(3)
    {
        if (omp_get_thread_num() == 1) pthread_mutex_lock(&results);
#pragma omp barrier
    }
    return 0;
}
