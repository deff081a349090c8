/* A process that serves its own userfaultfd, as garbage collectors and emulators do. One thread sleeps in read(2) with its buffer
 * in registered memory that has not been populated. A page that is read while the server stands still never comes.
 * It says the longest time for which one of its threads, which naps for a millisecond each time, did not run; on SIGTERM. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "watched.h"

#define SIZE (1 << 20)
static char *area;
static int faults, ends[2];
static long answered;
/* "answers": the server does its work; "silent": it never does, and the page cannot be had after the release either. */
static int is_silent;

static void *serve(void *unused) {
    struct pollfd wanted = {faults, POLLIN, 0};
    /* On 64-bit Arm the kernel's may be larger than 4 KiB, and what is smaller is refused. */
    unsigned long page = sysconf(_SC_PAGESIZE);
    struct uffd_msg message;
    for (;;) {
        poll(&wanted, 1, -1);
        if (read(faults, &message, sizeof message) != sizeof message || message.event != UFFD_EVENT_PAGEFAULT) continue;
        if (is_silent && answered) continue;
        struct uffdio_zeropage zero = {.range = {message.arg.pagefault.address & -page, page}};
        ioctl(faults, UFFDIO_ZEROPAGE, &zero);
        answered++;
    }
    return unused;
}

static void *sleep_in_read(void *unused) {
    char *buffer = area + SIZE / 2;
    for (;;)
        if (read(ends[0], buffer, 4096) < 0) pause();
    return unused;
}

int main(int count, char **arguments) {
    pthread_t thread;
    is_silent = count > 1 && !strcmp(arguments[1], "silent");
    watched_begin();
    faults = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    /* Without privilege: faults of user mode only, so that no call of the kernel's waits. */
    if (faults < 0) faults = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    struct uffdio_api api = {.api = UFFD_API};
    if (faults < 0 || ioctl(faults, UFFDIO_API, &api)) watched_impossible("userfaultfd");
    area = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register wished = {.range = {(unsigned long)area, SIZE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (area == MAP_FAILED || ioctl(faults, UFFDIO_REGISTER, &wished) || pipe(ends)) watched_impossible("userfaultfd");
    pthread_create(&thread, 0, serve, 0);
    pthread_create(&thread, 0, sleep_in_read, 0);
    *(volatile char *)area = 1; /* the server works */
    return watched_until_term();
}
