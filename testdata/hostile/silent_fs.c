/* A FUSE file system of one file, `file`, whose reads are never answered. MOUNTPOINT is the argument; it is mounted in a name space
 * of this program's own, in which it runs the rest of the arguments; on its end the kernel ends all that waits for it. The file is
 * a mebibyte of zeros, or has the bytes of the one that SERVES names; ANSWERS reads are answered before the silence; with
 * INTERRUPTIBLE one that is interrupted, as by a signal to who waits for it, is given up. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

static int device, served = -1;
static long size = 1 << 20, answers;

static void answer(unsigned long id, int error, const void *data, size_t length) {
    static char out[(1 << 17) + 4096];
    struct fuse_out_header head = {sizeof head + length, error, id};
    memcpy(out, &head, sizeof head);
    if (length) memcpy(out + sizeof head, data, length);
    if (write(device, out, sizeof head + length) < 0) perror("answer");
}

static struct fuse_attr attributes(unsigned long node) {
    struct fuse_attr it = {.ino = node, .nlink = 1, .blksize = 4096};
    it.mode = node == 1 ? S_IFDIR | 0755 : S_IFREG | 0755;
    if (node != 1) it.size = size, it.blocks = it.size / 512;
    return it;
}

static int impossible(const char *what) {
    printf("IMPOSSIBLE %s: %s\nREADY pids=%d\n", what, strerror(errno), getpid());
    fflush(stdout);
    pause();
    return 1;
}

int main(int count, char **arguments) {
    static char in[1 << 17];
    char options[100];
    if (count < 3) return 2;
    alarm(180);
    if (getenv("ANSWERS")) answers = atol(getenv("ANSWERS"));
    if (getenv("SERVES") && (served = open(getenv("SERVES"), O_RDONLY | O_CLOEXEC)) >= 0) size = lseek(served, 0, SEEK_END);
    if (unshare(CLONE_NEWNS) || mount("none", "/", 0, MS_REC | MS_PRIVATE, 0)) return impossible("a mount name space");
    device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (device < 0) return impossible("/dev/fuse");
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device);
    if (mount("silent", arguments[1], "fuse", MS_NOSUID, options)) return impossible("mounting");
    pid_t server = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != server) return 1;
        execv(arguments[2], arguments + 2);
        return 1;
    }
    close(1); /* whoever reads what the program says sees its end */
    for (;;) {
        ssize_t length = read(device, in, sizeof in);
        if (length < 0 && (errno == EINTR || errno == ENOENT)) continue;
        if (length < 0) return 1;
        struct fuse_in_header *head = (void *)in;
        switch (head->opcode) {
        case FUSE_INIT: {
            struct fuse_init_out it = {.major = 7, .minor = 31, .max_readahead = 4096, .max_write = 65536, .max_pages = 1};
            it.max_background = 12, it.congestion_threshold = 9;
            answer(head->unique, 0, &it, sizeof it);
            break;
        }
        case FUSE_LOOKUP: {
            struct fuse_entry_out it = {.nodeid = 2, .attr_valid = 3600, .entry_valid = 3600, .attr = attributes(2)};
            if (strcmp(in + sizeof *head, "file")) answer(head->unique, -ENOENT, 0, 0);
            else answer(head->unique, 0, &it, sizeof it);
            break;
        }
        case FUSE_GETATTR: {
            struct fuse_attr_out it = {.attr_valid = 3600, .attr = attributes(head->nodeid)};
            answer(head->unique, 0, &it, sizeof it);
            break;
        }
        case FUSE_OPEN:
        case FUSE_OPENDIR: {
            struct fuse_open_out it = {0};
            answer(head->unique, 0, &it, sizeof it);
            break;
        }
        case FUSE_READ: {
            static char data[1 << 17];
            struct fuse_read_in *wanted = (void *)(in + sizeof *head);
            size_t most = wanted->size < sizeof data ? wanted->size : sizeof data;
            if (answers-- <= 0) break;
            memset(data, 0, sizeof data);
            ssize_t got = served < 0 ? (ssize_t)most : pread(served, data, most, wanted->offset);
            answer(head->unique, 0, data, got < 0 ? 0 : got);
            break;
        }
        case FUSE_FORGET:
        case FUSE_BATCH_FORGET:
            break;
        case FUSE_INTERRUPT: /* a read is never answered, and an interruption of one changes nothing unless that is wanted */
            if (getenv("INTERRUPTIBLE")) answer(((struct fuse_interrupt_in *)(in + sizeof *head))->unique, -EINTR, 0, 0);
            break;
        case FUSE_RELEASE:
        case FUSE_RELEASEDIR:
        case FUSE_FLUSH: answer(head->unique, 0, 0, 0); break;
        default: answer(head->unique, -ENOSYS, 0, 0);
        }
    }
}
