/* For LD_PRELOAD: the processor time of a thread is eleven seconds more from the second question on, as if all before it had taken long. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int asked;
    int result = syscall(SYS_clock_gettime, clock, time);
    if (!result && clock == CLOCK_THREAD_CPUTIME_ID && asked++) time->tv_sec += 11;
    return result;
}
