/* What programs have in common that hang by twos: they say which processes they are, and end by themselves. */
#include <stdio.h>
#include <unistd.h>

static inline void ready(pid_t second) {
    if (second) printf("READY pids=%d,%d\n", getpid(), second);
    else printf("READY pids=%d\n", getpid());
    fflush(stdout);
}

static inline pid_t child(void) {
    pid_t pid = fork();
    if (pid == 0) alarm(120);
    return pid;
}
