/* Has a write lease on the source file of its own code, for which the kernel sends SIGIO to it as soon as anybody opens that file.
 * usage: lease SOURCE */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t ledger = PTHREAD_MUTEX_INITIALIZER;

int main(int count, char **words) {
    int file = count > 1 ? open(words[1], O_RDWR) : -1;
    alarm(180);
    if (fcntl(file, F_SETLEASE, F_WRLCK)) puts("IMPOSSIBLE no lease");
    printf("READY pids=%d\n", getpid());
    fflush(stdout);
    pthread_mutex_lock(&ledger);
    pthread_mutex_lock(&ledger);
    return 0;
}
