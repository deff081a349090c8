/* A reader whose call of the lock lies as near to the linker's stub of that call as code can: with -O2 the first function behind the stubs
 * is main(). It has the lock and joins `writer`, which waits for it. No other call of the program takes or gives back a lock.
 * Prints "READY pids=P" when both wait, and ends by SIGALRM after two minutes. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;

static void *write_row(void *nothing) {
    pthread_setname_np(pthread_self(), "writer");
    pthread_rwlock_wrlock(&table);
    return nothing;
}

int main(void) {
    pthread_t writer;
    pthread_rwlock_rdlock(&table);
    alarm(120);
    pthread_create(&writer, NULL, write_row, NULL);
    dprintf(1, "READY pids=%d\n", getpid());
    pthread_join(writer, NULL);
}
