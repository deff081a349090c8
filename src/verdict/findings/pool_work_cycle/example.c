// Who waits for a task has the lock that the task wants.
#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t totals_lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int begun;
static int total;

static void add(void) {
    begun = 1;
    pthread_mutex_lock(&totals_lock);
    total++;
    pthread_mutex_unlock(&totals_lock);
}

int main(void) {
#pragma omp parallel num_threads(2)
#pragma omp single
    {
        pthread_mutex_lock(&totals_lock);
#pragma omp task
        add();
        while (!begun) usleep(1000); // another thread of the team takes it
#pragma omp taskwait
        pthread_mutex_unlock(&totals_lock);
    }
    return total != 1;
}
