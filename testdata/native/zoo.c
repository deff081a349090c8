/* Threads asleep in calls that a careless stop ends early. Nobody ends any of them, so that each return is an early one; on SIGTERM
 * the program prints how many there were, by name. Those called part_* have moved some bytes, messages or events already, and
 * would return their number; of io_uring, submit_and_wait would return what it always returns, too early.
 *
 * With `running` as argument, threads that are at work instead: they count calls that returned less than they were asked for. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/random.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define LARGE (1 << 20)
static const struct timespec hour = {3600, 0};
static const struct timeval hour_of_socket = {3600, 0};
static char bytes[LARGE];
static sigset_t waited_for;

/* A pipe that nobody writes to, and one that nobody reads; a file of a mebibyte. */
static int quiet(void) {
    int ends[2];
    return pipe(ends) ? -1 : ends[0];
}
static int stuffed(void) {
    int ends[2];
    return pipe(ends) ? -1 : ends[1];
}
static int file(void) {
    int it = memfd_create("file", MFD_CLOEXEC);
    if (write(it, bytes, LARGE) != LARGE) abort();
    lseek(it, 0, SEEK_SET);
    return it;
}
static int stream(void) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) abort();
    return ends[0];
}
static int listening(void) {
    int it = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(it, (void *)&address, sizeof address) || listen(it, 1)) abort();
    return it;
}
static int event_poll(int of) {
    int it = epoll_create1(0);
    struct epoll_event event = {EPOLLIN};
    epoll_ctl(it, EPOLL_CTL_ADD, of, &event);
    return it;
}

/* What a call needs is made once a thread, by `prepare`; `call` is called again and again. */
static __thread int at, with;
static __thread void *more;
static void make_quiet(void) { at = quiet(); }
static void make_stuffed(void) { at = stuffed(); }
static void make_stuffed_file(void) { at = stuffed(), with = file(); }
static void make_stream_and_file(void) { at = stream(), with = file(); }
static void make_stream(void) { at = stream(); }
static void make_poll(void) { at = event_poll(quiet()); }
static void make_semaphore(void) { at = semget(IPC_PRIVATE, 1, 0600), with = at; }
static void make_queue(void) { at = msgget(IPC_PRIVATE, 0600); }
static void make_timed_stream(void) {
    at = stream();
    setsockopt(at, SOL_SOCKET, SO_RCVTIMEO, &hour_of_socket, sizeof hour_of_socket);
}
static void make_timed_listener(void) {
    at = listening();
    setsockopt(at, SOL_SOCKET, SO_RCVTIMEO, &hour_of_socket, sizeof hour_of_socket);
}
/* One of ten bytes, one of two datagrams. */
static void make_begun_stream(void) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) || write(ends[1], "x", 1) != 1) abort();
    at = ends[0];
}
static void make_begun_datagrams(void) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) || write(ends[1], "x", 1) != 1) abort();
    at = ends[0];
}
/* A connection whose other side reads nothing, full to the brim, that lingers an hour. */
static void make_lingering(void) {
    int server = listening();
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    struct linger linger = {1, 3600};
    getsockname(server, (void *)&address, &length);
    at = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(at, (void *)&address, sizeof address)) abort();
    setsockopt(at, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    while (send(at, bytes, 65536, MSG_DONTWAIT) > 0) {}
}
/* Two polls, of which one is done. */
static void make_events(void) {
    aio_context_t context = 0;
    int ends[2];
    static struct iocb polls[2];
    struct iocb *list[2] = {&polls[0], &polls[1]};
    at = -1;
    if (syscall(SYS_io_setup, 4, &context) || pipe(ends) || write(ends[1], "x", 1) != 1) return;
    for (int i = 0; i < 2; i++) {
        polls[i].aio_lio_opcode = IOCB_CMD_POLL;
        polls[i].aio_fildes = i ? quiet() : ends[0];
        polls[i].aio_buf = POLLIN;
    }
    if (syscall(SYS_io_submit, context, 2, list) == 2) at = 0, more = (void *)context;
}
/* A ring, and one poll of a quiet pipe to submit at each call. */
struct ring {
    unsigned *tail, *mask, *array;
    struct io_uring_sqe *entries;
};
static void make_ring(void) {
    struct io_uring_params parameters = {0};
    struct ring *ring = calloc(1, sizeof *ring);
    at = syscall(SYS_io_uring_setup, 64, &parameters);
    if (at < 0) return;
    size_t length = parameters.sq_off.array + parameters.sq_entries * sizeof(unsigned);
    char *queue = mmap(0, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, at, IORING_OFF_SQ_RING);
    ring->entries = mmap(0, parameters.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_POPULATE, at, IORING_OFF_SQES);
    ring->tail = (void *)(queue + parameters.sq_off.tail);
    ring->mask = (void *)(queue + parameters.sq_off.ring_mask);
    ring->array = (void *)(queue + parameters.sq_off.array);
    with = quiet();
    more = ring;
}

static long in_epoll_wait(void) { struct epoll_event event; return epoll_wait(at, &event, 1, -1); }
static long in_epoll_pwait2(void) { struct epoll_event event; return syscall(441, at, &event, 1, &hour, 0, 8); }
static long in_poll(void) { struct pollfd it = {at, POLLIN, 0}; return poll(&it, 1, -1); }
static long in_ppoll(void) { struct pollfd it = {at, POLLIN, 0}; return ppoll(&it, 1, &hour, 0); }
static long in_select(void) { fd_set set; struct timeval limit = hour_of_socket; FD_ZERO(&set); FD_SET(at, &set); return select(at + 1, &set, 0, 0, &limit); }
static long in_nanosleep(void) { return nanosleep(&hour, 0); }
static long in_futex(void) { static int word; return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &hour, 0, 0); }
static long in_semop(void) { struct sembuf down = {0, -1, 0}; return semop(at, &down, 1); }
static long in_semtimedop(void) { struct sembuf down = {0, -1, 0}; return semtimedop(at, &down, 1, &hour); }
static long in_sigtimedwait(void) { return sigtimedwait(&waited_for, 0, &hour); }
static long in_sigwaitinfo(void) { return sigwaitinfo(&waited_for, 0); }
static long in_recv(void) { char byte; return recv(at, &byte, 1, 0); }
static long in_accept(void) { return accept(at, 0, 0); }
static long in_read(void) { char byte; return read(at, &byte, 1); }
static long in_preadv2(void) { char byte; struct iovec one = {&byte, 1}; return preadv2(at, &one, 1, -1, 0); }
static long in_msgrcv(void) { struct { long type; char text[8]; } it; return msgrcv(at, &it, 8, 0, 0); }
static long in_msgsnd(void) { static struct { long type; char text[4096]; } it = {1}; while (!msgsnd(at, &it, 4096, IPC_NOWAIT)) {} return msgsnd(at, &it, 4096, 0); }
static long in_cond(void) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    struct timespec then;
    clock_gettime(CLOCK_REALTIME, &then);
    then.tv_sec += 3600;
    pthread_mutex_lock(&mutex);
    long result = pthread_cond_timedwait(&condition, &mutex, &then);
    pthread_mutex_unlock(&mutex);
    return result;
}
static long in_tee(void) { return tee(at, with, 4096, 0); }
static void make_tee(void) { at = quiet(), with = stuffed(); }
static long in_write(void) { return write(at, bytes, LARGE); }
static long in_writev(void) { struct iovec one = {bytes, LARGE}; return writev(at, &one, 1); }
static long in_pwritev2(void) { struct iovec one = {bytes, LARGE}; return pwritev2(at, &one, 1, -1, 0); }
static long in_send(void) { return send(at, bytes, LARGE, 0); }
static long in_sendmsg(void) { struct iovec one = {bytes, LARGE}; struct msghdr it = {.msg_iov = &one, .msg_iovlen = 1}; return sendmsg(at, &it, 0); }
static long in_sendmmsg(void) {
    struct iovec one = {bytes, 50000};
    struct mmsghdr them[16] = {0};
    for (int i = 0; i < 16; i++) them[i].msg_hdr.msg_iov = &one, them[i].msg_hdr.msg_iovlen = 1;
    return sendmmsg(at, them, 16, 0);
}
static long in_sendfile(void) { return sendfile(at, with, 0, LARGE); }
static long in_vmsplice(void) { struct iovec one = {bytes, LARGE}; while (vmsplice(at, &one, 1, SPLICE_F_NONBLOCK) > 0) {} return vmsplice(at, &one, 1, 0); }
static long in_splice(void) { while (splice(with, 0, at, 0, LARGE, SPLICE_F_NONBLOCK) > 0) {} return splice(with, 0, at, 0, 65536, 0); }
static long in_recv_all(void) { char ten[10]; return recv(at, ten, 10, MSG_WAITALL); }
static long in_recvmmsg(void) {
    char one[10], two[10];
    struct iovec pieces[2] = {{one, 10}, {two, 10}};
    struct mmsghdr them[2] = {{{.msg_iov = &pieces[0], .msg_iovlen = 1}}, {{.msg_iov = &pieces[1], .msg_iovlen = 1}}};
    return recvmmsg(at, them, 2, 0, 0);
}
static long in_events(void) { struct io_event events[2]; return syscall(SYS_io_getevents, more, 2, 2, events, 0); }
static long in_close(void) { return close(at); }
static long in_ring(int submit) {
    struct ring *ring = more;
    if (submit) {
        unsigned tail = *ring->tail, index = tail & *ring->mask;
        memset(&ring->entries[index], 0, sizeof *ring->entries);
        ring->entries[index].opcode = IORING_OP_POLL_ADD;
        ring->entries[index].fd = with;
        ring->entries[index].poll32_events = POLLIN;
        ring->array[index] = index;
        __atomic_store_n(ring->tail, tail + 1, __ATOMIC_RELEASE);
    }
    return syscall(SYS_io_uring_enter, at, submit, 1, IORING_ENTER_GETEVENTS, 0, 0);
}
static long in_submit_and_wait(void) { return in_ring(1); }
static long in_ring_wait(void) { return in_ring(0); }

static struct call {
    const char *name;
    void (*prepare)(void);
    long (*call)(void);
    /* Not called again once it has returned. */
    int once;
    volatile int early;
    /* What the last return was. */
    volatile long result, error;
} calls[] = {
    {"epoll_wait", make_poll, in_epoll_wait},
    {"epoll_pwait2", make_poll, in_epoll_pwait2},
    {"poll", make_quiet, in_poll},
    {"ppoll", make_quiet, in_ppoll},
    {"select", make_quiet, in_select},
    {"nanosleep", 0, in_nanosleep},
    {"futex", 0, in_futex},
    {"semop", make_semaphore, in_semop},
    {"semtimedop", make_semaphore, in_semtimedop},
    {"sigtimedwait", 0, in_sigtimedwait},
    {"sigwaitinfo", 0, in_sigwaitinfo},
    {"recv_timeo", make_timed_stream, in_recv},
    {"accept_timeo", make_timed_listener, in_accept},
    {"read", make_quiet, in_read},
    {"preadv2", make_quiet, in_preadv2},
    {"msgrcv", make_queue, in_msgrcv},
    {"msgsnd", make_queue, in_msgsnd},
    {"cond_timedwait", 0, in_cond},
    {"tee", make_tee, in_tee},
    {"part_write", make_stuffed, in_write},
    {"part_writev", make_stuffed, in_writev},
    {"part_pwritev2", make_stuffed, in_pwritev2},
    {"part_send", make_stream, in_send},
    {"part_sendmsg", make_stream, in_sendmsg},
    {"part_sendmmsg", make_stream, in_sendmmsg},
    {"part_sendfile", make_stream_and_file, in_sendfile, 1},
    {"part_vmsplice", make_stuffed, in_vmsplice},
    {"part_splice", make_stuffed_file, in_splice, 1},
    {"part_recv_all", make_begun_stream, in_recv_all},
    {"part_recvmmsg", make_begun_datagrams, in_recvmmsg},
    {"part_io_getevents", make_events, in_events, 1},
    {"linger_close", make_lingering, in_close, 1},
    {"submit_and_wait", make_ring, in_submit_and_wait},
    {"io_uring_wait", make_ring, in_ring_wait},
};
#define CALLS (int)(sizeof calls / sizeof *calls)

static pthread_mutex_t preparing = PTHREAD_MUTEX_INITIALIZER;
static volatile int prepared;

static void *sleep_in(void *which) {
    struct call *call = which;
    char name[16];
    snprintf(name, sizeof name, "%s", call->name);
    pthread_setname_np(pthread_self(), name);
    pthread_mutex_lock(&preparing);
    if (call->prepare) call->prepare();
    prepared++;
    pthread_mutex_unlock(&preparing);
    /* A kernel without that call: the thread sleeps all the same. */
    if (call->prepare && at < 0) for (;;) pause();
    for (;;) {
        call->result = call->call();
        call->error = errno;
        call->early++;
        if (call->once || call->error == ENOSYS || call->error == EINVAL) for (;;) pause();
    }
    return which;
}

/* At work: each returns whether the call did all that it was asked for. */
static volatile long rounds[4], shorter[4];
static const char *works[4] = {"getrandom", "copy_file_range", "write_pipe", "sendfile"};
static int drained[2];
static void *drain(void *unused) {
    static char out[65536];
    while (read(drained[0], out, sizeof out) > 0) {}
    return unused;
}
static void *work(void *which) {
    long i = (long)which;
    static __thread char target[LARGE];
    int from = file(), to = memfd_create("to", 0), into = 0;
    if (i == 3) into = open("/dev/null", O_WRONLY);
    for (;;) {
        long got = 0, wanted = LARGE;
        switch (i) {
        case 0: got = getrandom(target, LARGE, 0); break;
        case 1: lseek(from, 0, SEEK_SET), lseek(to, 0, SEEK_SET), got = copy_file_range(from, 0, to, 0, LARGE, 0); break;
        case 2: got = write(drained[1], bytes, LARGE); break;
        default: lseek(from, 0, SEEK_SET), got = sendfile(into, from, 0, LARGE);
        }
        rounds[i]++;
        if (got != wanted) shorter[i]++;
    }
    return which;
}

int main(int count, char **arguments) {
    int signal, is_running = count > 1 && !strcmp(arguments[1], "running");
    sigset_t set;
    pthread_t thread;
    alarm(900);
    sigemptyset(&waited_for);
    sigaddset(&waited_for, SIGUSR1);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigset_t both = set;
    sigaddset(&both, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &both, 0);
    if (is_running) {
        if (pipe(drained)) return 2;
        pthread_create(&thread, 0, drain, 0);
        for (long i = 0; i < 4; i++) pthread_create(&thread, 0, work, (void *)i);
    } else {
        for (int i = 0; i < CALLS; i++) pthread_create(&thread, 0, sleep_in, &calls[i]);
        while (prepared < CALLS) usleep(1000);
    }
    printf("READY pids=%d\n", getpid());
    fflush(stdout);
    sigwait(&set, &signal);
    if (is_running) for (int i = 0; i < 4; i++) printf("%s=%ld of %ld\n", works[i], shorter[i], rounds[i]);
    else for (int i = 0; i < CALLS; i++) printf("%s=%d last %ld errno %ld\n", calls[i].name, calls[i].early, calls[i].result, calls[i].error);
    return 0;
}
