/* Is asked before each opening of a file of a mount, as scanners of files are, and hangs. usage: listener MOUNT */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/fanotify.h>
#include <unistd.h>

static pthread_mutex_t ledger = PTHREAD_MUTEX_INITIALIZER;

int main(int count, char **words) {
    int listener = fanotify_init(FAN_CLASS_CONTENT, O_RDONLY);
    int marks = FAN_MARK_ADD | FAN_MARK_MOUNT;
    alarm(180);
    if (count < 2 || fanotify_mark(listener, marks, FAN_OPEN_PERM | FAN_ACCESS_PERM, AT_FDCWD, words[1]))
        puts("IMPOSSIBLE no listener");
    printf("READY pids=%d\n", getpid());
    fflush(stdout);
    pthread_mutex_lock(&ledger);
    pthread_mutex_lock(&ledger);
    return 0;
}
