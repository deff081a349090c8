/* jailed: a program without a build id whose debug file is named in it; `jailed ROOT` runs it with that root. */
#define _GNU_SOURCE
#include <stdio.h>
#include <unistd.h>

int __attribute__((noinline)) wait_in_jail(void) {
    int result = pause();
    return result + 1;
}

int main(int argc, char **argv) {
    if (argc > 1) {
        if (chroot(argv[1]) || chdir("/")) {
            perror("chroot");
            return 1;
        }
        execl("/jailed", "jailed", (char *)0);
        perror("/jailed");
        return 1;
    }
    alarm(300);
    printf("READY pids=%d\n", getpid());
    fflush(stdout);
    for (;;) wait_in_jail();
}
