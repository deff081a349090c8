/* Threads deep in a recursion whose unwind information has, for each register, an expression that jumps back for ever: expressions
   THREADS DEPTH. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int waiting;

__attribute__((used)) static void innermost(void) {
    __sync_fetch_and_add(&waiting, 1);
    pthread_mutex_lock(&mutex);
}

void deep(long depth);
/* DW_CFA_val_expression: lit0, skip -4. */
#define LOOPS(register) ".cfi_escape 0x16," #register ",4,0x30,0x2f,0xfc,0xff\n"
__asm__(".text\n.type deep,@function\ndeep:\n.cfi_startproc\n"
        LOOPS(0) LOOPS(1) LOOPS(2) LOOPS(4) LOOPS(5) LOOPS(8) LOOPS(9) LOOPS(10) LOOPS(11) LOOPS(12) LOOPS(13) LOOPS(14) LOOPS(15)
        "push %rbx\n.cfi_adjust_cfa_offset 8\nmov %rdi,%rbx\ntest %rdi,%rdi\njz 1f\n"
        "dec %rdi\ncall deep\njmp 2f\n1: call innermost\n2: pop %rbx\n.cfi_adjust_cfa_offset -8\nret\n"
        ".cfi_endproc\n.size deep,.-deep\n");

static void *work(void *depth) {
    deep((long)depth);
    return 0;
}

int main(int count, char **words) {
    alarm(120);
    int threads = atoi(words[1]);
    long depth = atol(words[2]);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, depth * 16 + (1 << 20));
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        pthread_create(&thread, &attributes, work, (void *)depth);
    }
    while (__sync_fetch_and_add(&waiting, 0) < threads) usleep(1000);
    printf("READY pids=%d\n", (int)getpid());
    fflush(stdout);
    pause();
}
