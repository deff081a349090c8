/* Two hundred threads that sleep in futex calls of their own, each with other values in all registers that a call keeps. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#define THREADS 200
static int words[THREADS];

static void *sleep_with(void *number) {
    long own = (long)number + 1;
    for (;;) {
        long result = SYS_futex;
        __asm__ volatile(
            "push %%rbp\n\t"
            "xor %%r10d, %%r10d\n\t"
            "lea 0x100000(%[own]), %%rbx\n\t"
            "lea 0x200000(%[own]), %%r12\n\t"
            "lea 0x300000(%[own]), %%r13\n\t"
            "lea 0x400000(%[own]), %%r14\n\t"
            "lea 0x500000(%[own]), %%r15\n\t"
            "lea 0x600000(%[own]), %%r8\n\t"
            "lea 0x700000(%[own]), %%rbp\n\t"
            "syscall\n\t"
            "pop %%rbp"
            : "+a"(result)
            : "D"(&words[own - 1]), "S"((long)FUTEX_WAIT_PRIVATE), "d"(0L), [own] "r"(own)
            : "rbx", "r8", "r10", "r11", "r12", "r13", "r14", "r15", "rcx", "memory");
    }
    return NULL;
}

int main(void) {
    alarm(120);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    for (long i = 0; i < THREADS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &small, sleep_with, (void *)i)) return 1;
    }
    pause();
    return 0;
}
