/* A thread that ends at SIGUSR1, and a first thread that becomes another program at SIGUSR2. */
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static sigset_t both, first, second;

static void *ends(void *unused) {
    int got;
    sigwait(&first, &got);
    return unused;
}

int main(void) {
    pthread_t thread;
    int got;
    alarm(120);
    sigemptyset(&both), sigemptyset(&first), sigemptyset(&second);
    sigaddset(&first, SIGUSR1), sigaddset(&second, SIGUSR2);
    sigaddset(&both, SIGUSR1), sigaddset(&both, SIGUSR2);
    sigprocmask(SIG_BLOCK, &both, 0);
    pthread_create(&thread, 0, ends, 0);
    sigwait(&second, &got);
    execlp("sleep", "sleep", "60", (char *)0);
    return 1;
}
