// Starts as many children as its argument says, which all wait; after two seconds ends them and itself, with status 9.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 1;
    pid_t *children = calloc(count, sizeof *children);
    int started = 0;
    while (started < count) {
        pid_t child = fork();
        if (child == 0) {
            // Nobody is left behind, whatever becomes of the parent.
            alarm(60);
            pause();
            _exit(0);
        }
        if (child < 0) break;
        children[started++] = child;
    }
    printf("%d of %d\n", started, count);
    fflush(stdout);
    // They all wait now: time for some looks.
    sleep(2);
    for (int i = 0; i < started; i++) kill(children[i], SIGKILL);
    while (wait(NULL) > 0) {}
    return started == count ? 9 : 1;
}
