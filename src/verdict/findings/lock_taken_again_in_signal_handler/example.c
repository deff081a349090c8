/* A signal comes while a lock is held, and its handler takes the same lock. */
#include <pthread.h>
#include <signal.h>

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static void log_line(void) {
    pthread_mutex_lock(&log_lock);
    pthread_mutex_unlock(&log_lock);
}

static void on_signal(int number) {
    (void)number;
    log_line();
}

int main(void) {
    signal(SIGUSR1, on_signal);
    pthread_mutex_lock(&log_lock);
    raise(SIGUSR1); /* as it may come from outside at any time */
    pthread_mutex_unlock(&log_lock);
    return 0;
}
