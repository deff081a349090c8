/* Waits that the kernel knows: pipes, file locks, children: ./kernel_waits CASE [FOLDER]
 * Prints "READY pids=P[,P2]" just before the last step and ends by SIGALRM after two minutes. The truth of each case
 * stands in tests/integration/kernel_waits.rs. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>
#include "processes.h"

enum { MUCH = 1 << 20 };
static char bytes[MUCH];

/* Not in glibc before 2.34. */
extern pid_t _Fork(void) __attribute__((weak));

static void send_all(int to) {
    for (size_t done = 0; done < MUCH;) {
        ssize_t count = write(to, bytes + done, MUCH - done);
        if (count <= 0) _exit(1);
        done += (size_t)count;
    }
}

/* Both fill their pipe before they read the other's. */
static void both_write(void) {
    int there[2], back[2];
    if (pipe(there) || pipe(back)) abort();
    pid_t other = child();
    if (other == 0) {
        close(there[1]), close(back[0]);
        send_all(back[1]);
        _exit(0);
    }
    close(there[0]), close(back[1]);
    ready(other);
    send_all(there[1]);
}

/* The parent waits for a child's end, and the child for the parent to read. */
static void waits_for_writer(void) {
    int output[2];
    if (pipe(output)) abort();
    pid_t other = child();
    if (other == 0) {
        close(output[0]);
        send_all(output[1]);
        _exit(0);
    }
    close(output[1]);
    ready(other);
    waitpid(other, 0, 0);
}

/* Reads a pipe whose only write end it has itself. */
static void own_pipe(void) {
    int own[2];
    if (pipe(own)) abort();
    ready(0);
    char byte;
    if (read(own[0], &byte, 1) < 0) abort();
}

static int opened(const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0) abort();
    return file;
}

/* Two processes lock two files in opposite orders; a pipe makes sure that each has its first. */
static void two_files(const char *folder) {
    int first = opened(folder, "jobs.lock"), told[2], tell[2];
    if (flock(first, LOCK_EX) || pipe(told) || pipe(tell)) abort();
    pid_t other = child();
    char byte = 'x';
    if (other == 0) {
        /* Its own open files: flock belongs to these. */
        int second = opened(folder, "status.lock"), again = opened(folder, "jobs.lock");
        close(first);
        flock(second, LOCK_EX);
        if (write(told[1], &byte, 1) != 1 || read(tell[0], &byte, 1) != 1) _exit(1);
        flock(again, LOCK_EX);
        _exit(0);
    }
    int second = opened(folder, "status.lock");
    if (read(told[0], &byte, 1) != 1 || write(tell[1], &byte, 1) != 1) abort();
    ready(other);
    flock(second, LOCK_EX);
}

/* Two processes lock a file each. Each then waits for a child, which shares its open file and asks for the other's lock: of the four,
 * only the two children ask, and each lock belongs to two. If `goes_on`, a third child of the first shares its lock, too. */
static void children_with_files(const char *folder, int goes_on) {
    const char *names[2] = { "jobs.lock", "status.lock" };
    int told[2][2], pids[2];
    if (pipe(told[0]) || pipe(told[1]) || pipe(pids)) abort();
    pid_t other = child();
    int self = other == 0;
    char byte = 'x';
    if (flock(opened(folder, names[self]), LOCK_EX)) abort();
    if (write(told[self][1], &byte, 1) != 1 || read(told[!self][0], &byte, 1) != 1) abort();
    if (goes_on && !self && child() == 0)
        for (;;) pause();
    pid_t asks = child();
    if (asks == 0) {
        flock(opened(folder, names[!self]), LOCK_EX);
        _exit(0);
    }
    if (self) {
        if (write(pids[1], &asks, sizeof asks) != sizeof asks) abort();
    } else {
        pid_t others_child;
        if (read(pids[0], &others_child, sizeof others_child) != sizeof others_child) abort();
        printf("READY pids=%d,%d,%d,%d\n", getpid(), other, asks, others_child);
        fflush(stdout);
    }
    waitpid(asks, 0, 0);
}

static struct flock whole(short type) {
    struct flock lock = { 0 };
    lock.l_type = type, lock.l_whence = SEEK_SET;
    return lock;
}

/* The same with locks of open files (F_OFD_SETLK), for which /proc/locks names no process; and if `shares`, with a third
 * process that has inherited the first lock and could give it back. */
static void two_open_files(const char *folder, int shares) {
    int first = opened(folder, "jobs.lock"), told[2], tell[2];
    struct flock lock = whole(F_WRLCK);
    if (fcntl(first, F_OFD_SETLK, &lock) || pipe(told) || pipe(tell)) abort();
    pid_t other = child();
    char byte = 'x';
    if (other == 0) {
        close(first);
        int second = opened(folder, "status.lock"), again = opened(folder, "jobs.lock");
        fcntl(second, F_OFD_SETLK, &lock);
        if (write(told[1], &byte, 1) != 1 || read(tell[0], &byte, 1) != 1) _exit(1);
        fcntl(again, F_OFD_SETLKW, &lock);
        _exit(0);
    }
    int second = opened(folder, "status.lock");
    if (shares && child() == 0)
        for (;;) pause();
    if (read(told[0], &byte, 1) != 1 || write(tell[1], &byte, 1) != 1) abort();
    ready(other);
    fcntl(second, F_OFD_SETLKW, &lock);
}

static void *churn(void *unused) {
    for (char *volatile sink;;) {
        sink = malloc(60000);
        free(sink);
    }
    return unused;
}

/* A child of _Fork() allocates while a lost thread of its parent has the arena. */
static void allocates_after_fork(void) {
    if (!_Fork) {
        printf("READY pids=0\n");
        exit(0);
    }
    mallopt(M_ARENA_MAX, 1), mallopt(M_MMAP_THRESHOLD, 1 << 20), mallopt(M_TRIM_THRESHOLD, 1 << 28);
    pthread_t thread;
    for (int i = 0; i < 2; i++) pthread_create(&thread, 0, churn, 0);
    for (;;) {
        int done[2];
        if (pipe(done)) abort();
        pid_t other = _Fork();
        if (other == 0) {
            alarm(120);
            char *volatile sink = malloc(70000);
            (void)sink;
            _exit(write(done[1], "k", 1) != 1);
        }
        close(done[1]);
        struct pollfd wait = { done[0], POLLIN, 0 };
        if (poll(&wait, 1, 400) == 0) {
            printf("READY pids=%d,%d\n", other, getpid());
            fflush(stdout);
            waitpid(other, 0, 0);
        }
        close(done[0]);
        waitpid(other, 0, 0);
    }
}

/* One write of more than a pipe holds: its result must be all of it, whoever looks meanwhile. */
static void one_write(void) {
    ready(0);
    memset(bytes, 'x', MUCH);
    ssize_t count = write(1, bytes, MUCH);
    _exit(count == MUCH ? 0 : 3);
}

int main(int count, char **arguments) {
    alarm(120);
    const char *which = count > 1 ? arguments[1] : "";
    if (!strcmp(which, "both-write")) both_write();
    else if (!strcmp(which, "two-open-files")) two_open_files(arguments[2], 0);
    else if (!strcmp(which, "shared-open-file")) two_open_files(arguments[2], 1);
    else if (!strcmp(which, "waits-for-writer")) waits_for_writer();
    else if (!strcmp(which, "own-pipe")) own_pipe();
    else if (!strcmp(which, "children-with-files")) children_with_files(arguments[2], 0);
    else if (!strcmp(which, "children-that-go-on")) children_with_files(arguments[2], 1);
    else if (!strcmp(which, "two-files") && count > 2) two_files(arguments[2]);
    else if (!strcmp(which, "allocates-after-fork")) allocates_after_fork();
    else if (!strcmp(which, "one-write")) one_write();
    else return 2;
    return 1;
}
