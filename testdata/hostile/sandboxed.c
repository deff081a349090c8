/* A program that gives itself a filter of system calls without restart_syscall, as sandboxes have: any call that is not named ends it.
 * usage: sandboxed asleep | busy | ends | records | inherits | raw
 * The last two have a filter that knows what the loader and the C library call, and nothing of what a recorder may: one is set before
 * the program begins, the other by an instruction of the program's own. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int is_busy;
static volatile int begun;
static pthread_mutex_t ledger = PTHREAD_MUTEX_INITIALIZER, journal = PTHREAD_MUTEX_INITIALIZER;

/* Threads of the calls that the kernel goes on with by restart_syscall: nanosleep and poll. */
static void *sleeps(void *in_poll) {
    struct timespec moment = {is_busy ? 0 : 100, is_busy ? 1500000 : 0};
    __atomic_add_fetch(&begun, 1, __ATOMIC_SEQ_CST);
    for (;;) {
        if (in_poll) poll(0, 0, is_busy ? 2 : 100000);
        else nanosleep(&moment, 0);
        for (volatile int i = 0; is_busy && i < 100000; i++);
    }
    return 0;
}

static void filter(void) {
    int known[] = {SYS_write, SYS_poll, SYS_nanosleep, SYS_clock_nanosleep, SYS_futex, SYS_exit_group, SYS_rt_sigreturn};
    enum { COUNT = sizeof known / sizeof *known };
    struct sock_filter code[COUNT + 3];
    struct sock_fprog program = {COUNT + 3, code};
    code[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < COUNT; i++)
        code[1 + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, known[i], COUNT - i, 0);
    code[COUNT + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    code[COUNT + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}

/* All but these: what neither the loader nor the program calls. */
static void filter_of_few(int is_raw) {
    int unknown[] = {SYS_gettid, SYS_getpid, SYS_fallocate, SYS_tgkill, SYS_readlinkat, SYS_restart_syscall};
    enum { COUNT = sizeof unknown / sizeof *unknown };
    struct sock_filter code[COUNT + 3];
    struct sock_fprog program = {COUNT + 3, code};
    long result;
    code[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < COUNT; i++)
        code[1 + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, unknown[i], COUNT - i, 0);
    code[COUNT + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[COUNT + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (!is_raw) {
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
        return;
    }
#ifdef __x86_64__
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_seccomp), "D"(SECCOMP_SET_MODE_FILTER), "S"(0), "d"(&program)
                     : "rcx", "r11", "memory");
#else
    (void)result;
#endif
}

static void take(pthread_mutex_t *one, pthread_mutex_t *other) {
    pthread_mutex_lock(one);
    pthread_mutex_lock(other);
    pthread_mutex_unlock(other);
    pthread_mutex_unlock(one);
}

static void *takes_both(void *unused) {
    for (int i = 0; i < 20000; i++) {
        take(&ledger, &journal);
        take(&journal, &ledger);
    }
    return unused;
}

int main(int count, char **words) {
    const char *how = count > 1 ? words[1] : "asleep";
    char ready[40];
    pthread_t thread;
    struct timespec moment = {1, 0};
    int length;
    alarm(180);
    if (!strcmp(how, "inherits")) {
        filter_of_few(0);
        execl("/proc/self/exe", words[0], "locks", (char *)0);
        return 1;
    }
    if (!strcmp(how, "raw") || !strcmp(how, "locks")) {
        if (!strcmp(how, "raw")) filter_of_few(1);
        pthread_create(&thread, 0, takes_both, 0);
        pthread_join(thread, 0);
        takes_both(0);
        return 7;
    }
    length = snprintf(ready, sizeof ready, "READY pids=%d\n", getpid());
    is_busy = strcmp(how, "asleep");
    if (strcmp(how, "records")) {
        for (long i = 0; i < 8; i++) pthread_create(&thread, 0, sleeps, (void *)(i & 1));
        /* What the C library calls for a new thread is not known to the filter. */
        while (begun < 8) usleep(1000);
    }
    filter();
    if (write(1, ready, length) != length) return 1;
    if (!strcmp(how, "records")) {
        for (int i = 0; i < 1000; i++) {
            take(&ledger, &journal);
            take(&journal, &ledger);
        }
        _exit(7);
    }
    for (int i = 0; strcmp(how, "ends") || i < 5; i++) nanosleep(&moment, 0);
    _exit(7);
}
