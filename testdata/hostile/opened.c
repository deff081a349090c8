/* opened FILE...: says so whenever one of the files is opened, by whomever; ends with its standard input. */
#include <poll.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int watch = inotify_init1(IN_NONBLOCK);
    char buffer[4096];
    for (int i = 1; i < argc; i++)
        if (inotify_add_watch(watch, argv[i], IN_OPEN) < 0) {
            perror(argv[i]);
            return 1;
        }
    printf("READY pids=%d\n", getpid());
    fflush(stdout);
    for (;;) {
        struct pollfd files[2] = {{0, POLLIN, 0}, {watch, POLLIN, 0}};
        poll(files, 2, -1);
        while (read(watch, buffer, sizeof buffer) > 0) {
            printf("opened\n");
            fflush(stdout);
        }
        if (files[0].revents && read(0, buffer, sizeof buffer) <= 0) return 0;
    }
}
