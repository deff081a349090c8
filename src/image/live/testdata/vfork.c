/* A vfork parent: in state D until its child ends, 3 seconds later or when the parent is killed. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

int main(void) {
    if (vfork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct timespec time = {3, 0};
        nanosleep(&time, 0);
        _exit(0);
    }
    for (;;) pause();
}
