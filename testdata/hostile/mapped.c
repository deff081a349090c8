/* Maps a file shared, as numpy.memmap does. One thread sleeps in read(2) into a page of it that is not in memory. FILE is the
 * argument; see watched.h for what it says. */
#include <fcntl.h>
#include <sys/mman.h>

#include "watched.h"

static char *area;
static int ends[2];

static void *sleep_in_read(void *unused) {
    if (read(ends[0], area + 16 * 4096, 4096) < 0) pause();
    return unused;
}

int main(int count, char **arguments) {
    pthread_t thread;
    watched_begin();
    int file = count > 1 ? open(arguments[1], O_RDONLY) : -1;
    area = file < 0 ? MAP_FAILED : mmap(0, 1 << 20, PROT_READ, MAP_SHARED, file, 0);
    if (area == MAP_FAILED || pipe(ends)) return 2;
    pthread_create(&thread, 0, sleep_in_read, 0);
    return watched_until_term();
}
