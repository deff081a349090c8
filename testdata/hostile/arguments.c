/* arguments MIB arg|env: a process whose arguments, or whose environment, are MIB MiB of zeros, of which none is in memory. Any
 * user's process can say so of itself (PR_SET_MM_MAP). */
#define _GNU_SOURCE
#include <linux/prctl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    unsigned long size = strtoul(argv[1], 0, 0) << 20, word[64] = {0};
    char *area = mmap(0, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), text[4096];
    if (area == MAP_FAILED) return 1;
    alarm(300);
    /* The present values, numbered as in proc(5). */
    FILE *stat = fopen("/proc/self/stat", "r");
    text[fread(text, 1, sizeof text - 1, stat)] = 0;
    int number = 3;
    for (char *next = strtok(strrchr(text, ')') + 2, " "); next && number < 64; next = strtok(0, " "))
        word[number++] = strtoul(next, 0, 10);
    struct prctl_mm_map map = {
        .start_code = word[26], .end_code = word[27], .start_stack = word[28], .start_data = word[45], .end_data = word[46],
        .start_brk = word[47], .brk = (unsigned long)sbrk(0), .arg_start = word[48], .arg_end = word[49],
        .env_start = word[50], .env_end = word[51], .exe_fd = -1,
    };
    unsigned long start = (unsigned long)area;
    if (!strcmp(argv[2], "arg")) map.arg_start = start, map.arg_end = start + size;
    else map.env_start = start, map.env_end = start + size;
    if (prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0)) {
        perror("PR_SET_MM_MAP");
        return 1;
    }
    printf("READY pids=%d\n", getpid());
    fflush(stdout);
    for (;;) pause();
}
