/* What programs have in common whose threads wait: that they sleep is read from /proc; nothing is slept for and hoped.
 * In a chroot without /proc that is found through descriptor 9. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int proc = -1;

static int own_tid(void) { return (int)syscall(SYS_gettid); }

/* Not stdio: its locks are among what is waited for. */
static void say(const char *format, ...) {
    char line[300];
    va_list rest;
    va_start(rest, format);
    int length = vsnprintf(line, sizeof line, format, rest);
    va_end(rest);
    if (write(1, line, (size_t)length) != length) _exit(3);
}

static void park(void) {
    for (;;) pause();
}

static void moment(void) {
    struct timespec time = { 0, 1000000 };
    nanosleep(&time, 0);
}

/* Whether a thread sleeps in one of these calls of the system, a list of numbers between spaces. */
static int sleeps_in(int tid, const char *calls) {
    char name[64], line[64] = " ";
    snprintf(name, sizeof name, "self/task/%d/syscall", tid);
    int file = openat(proc, name, O_RDONLY);
    if (file < 0) _exit(4);
    if (read(file, line + 1, sizeof line - 2) < 0) line[1] = 0;
    close(file);
    char *end = strchr(line + 1, ' ');
    if (!end) return 0;
    end[1] = 0;
    return strstr(calls, line) != 0;
}

/* Several times in a row: on the way to its lock it may sleep for a moment in another call. */
static void until_asleep(int tid, const char *calls) {
    for (int seen = 0; seen < 4; moment()) seen = sleeps_in(tid, calls) ? seen + 1 : 0;
}

static void begin(void) {
    alarm(120);
    proc = open("/proc", O_RDONLY | O_DIRECTORY);
    if (proc < 0 || faccessat(proc, "self/task", F_OK, 0)) proc = 9;
}
