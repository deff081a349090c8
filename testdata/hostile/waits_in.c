/* waits_in LIBRARY [rewritten]: waits in a function of the library; the second form has a child that cuts the library to nothing and
 * puts it back, in place, all the time. The program itself does not notice: what it runs is not touched before the wait ends. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

static void rewrite(const char *name) {
    int file = open(name, O_RDWR), asleep = 0;
    struct stat stat;
    char path[64], call[64];
    snprintf(path, sizeof path, "/proc/%d/syscall", getppid());
    /* Until it waits in pause(2), call 34: it runs nothing of the library from then on. */
    while (!asleep) {
        FILE *of_parent = fopen(path, "r");
        asleep = of_parent && fgets(call, sizeof call, of_parent) && atoi(call) == 34;
        if (of_parent) fclose(of_parent);
        usleep(1000);
    }
    fstat(file, &stat);
    char *bytes = malloc(stat.st_size);
    if (pread(file, bytes, stat.st_size, 0) != stat.st_size) exit(1);
    for (;;) {
        usleep(rand() % 3000);
        if (ftruncate(file, 0)) exit(1);
        usleep(rand() % 1000);
        if (pwrite(file, bytes, stat.st_size, 0) != stat.st_size) exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*wait_here)(void) = (int (*)(void))dlsym(library, "wait_here");
    alarm(300);
    if (argc > 2 && fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(300);
        rewrite(argv[1]);
    }
    printf("READY pids=%d\n", getpid());
    fflush(stdout);
    for (;;) wait_here();
}
