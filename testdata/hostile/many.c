/* A process with COUNT children, each of which waits for a byte that never comes. usage: many COUNT */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words) {
    int ends[2], children = count > 1 ? atoi(words[1]) : 1;
    char byte;
    alarm(180);
    if (pipe(ends)) return 1;
    for (int i = 0; i < children; i++) {
        if (fork()) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        return read(ends[0], &byte, 1) < 0;
    }
    printf("READY pids=%d\n", getpid());
    fflush(stdout);
    wait(0);
    return 0;
}
