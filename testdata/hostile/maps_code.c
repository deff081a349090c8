/* maps_code FILE: maps the file as code, as a library on a file system that has died since, and waits. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int file = open(argc > 1 ? argv[1] : "", O_RDONLY);
    void *code = mmap(0, 1 << 16, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
    if (code == MAP_FAILED) printf("IMPOSSIBLE mmap: %s\n", strerror(errno));
    alarm(300);
    printf("READY pids=%d\n", getpid());
    fflush(stdout);
    for (;;) pause();
}
