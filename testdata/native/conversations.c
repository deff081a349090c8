/* Processes that wait for each other through sockets, eventfds, semaphores and sets of descriptors:
 * ./conversations CASE. Prints "READY pids=P[,P2]" just before the last step and ends by SIGALRM after two minutes. The
 * truth of each case stands in tests/integration/kernel_waits.rs. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "processes.h"

enum { MUCH = 8 << 20 };
static char bytes[MUCH];

static void check(int failed) {
    if (failed) abort();
}

static void send_all(int to) {
    for (size_t done = 0; done < MUCH;) {
        ssize_t count = send(to, bytes + done, MUCH - done, 0);
        if (count <= 0) _exit(1);
        done += (size_t)count;
    }
}

static void receive(int from) {
    char byte;
    if (recv(from, &byte, 1, 0) < 0) _exit(1);
}

static void read_from(int from) {
    char buffer[8];
    if (read(from, buffer, sizeof buffer) < 0) _exit(1);
}

/* Both send more than the other's buffer holds before they receive. */
static void both_send(void) {
    int ends[2];
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    pid_t other = child();
    close(ends[other == 0]);
    if (other) ready(other);
    send_all(ends[other != 0]);
}

/* Over TCP on this machine; each waits for the other to speak first. */
static void both_listen(void) {
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    check(listener < 0 || bind(listener, (void *)&address, sizeof address) || listen(listener, 1));
    check(getsockname(listener, (void *)&address, &length));
    pid_t other = child();
    if (other == 0) {
        close(listener);
        int server = socket(AF_INET, SOCK_STREAM, 0);
        check(server < 0 || connect(server, (void *)&address, sizeof address));
        receive(server);
        _exit(0);
    }
    int client = accept(listener, 0, 0);
    close(listener);
    ready(other);
    receive(client);
}

/* Starts a child that has one end of a socket and the writing end of a pipe, and waits for the socket by `wait`. The
 * parent keeps the other ends. */
static void start_waiting_child(void (*wait)(int), int ends[2], int news[2]) {
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) || pipe(news));
    pid_t other = child();
    close(ends[other == 0]), close(news[other != 0]);
    if (other == 0) {
        wait(ends[0]);
        _exit(0);
    }
    ready(other);
}

static void select_one(int one) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(one, &set);
    select(one + 1, &set, 0, 0, 0);
}

/* One polls a socket and a pipe, of which the other has both other ends, and waits for an answer on the socket. */
static void poll_cycle(void) {
    int ends[2], news[2];
    start_waiting_child(receive, ends, news);
    struct pollfd both[] = { { ends[1], POLLIN, 0 }, { news[0], POLLIN, 0 } };
    poll(both, 2, -1);
}

/* The same by epoll and select. */
static void epoll_cycle(void) {
    int ends[2], news[2];
    start_waiting_child(select_one, ends, news);
    int all = epoll_create1(0);
    struct epoll_event event = { .events = EPOLLIN };
    check(epoll_ctl(all, EPOLL_CTL_ADD, ends[1], &event) || epoll_ctl(all, EPOLL_CTL_ADD, news[0], &event));
    epoll_wait(all, &event, 1, -1);
}

/* A server that waits for whoever connects: nothing is wrong with it. */
static void server(void) {
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int listener = socket(AF_INET, SOCK_STREAM, 0), own[2];
    check(bind(listener, (void *)&address, sizeof address) || listen(listener, 1) || pipe(own));
    int all = epoll_create1(0);
    struct epoll_event event = { .events = EPOLLIN };
    check(epoll_ctl(all, EPOLL_CTL_ADD, listener, &event) || epoll_ctl(all, EPOLL_CTL_ADD, own[0], &event));
    ready(0);
    epoll_wait(all, &event, 1, -1);
}

static int wake;

static void on_term(int signal) {
    (void)signal;
    if (write(wake, "x", 1) != 1) _exit(1);
}

/* A loop that only a signal wakes, by a pipe to itself: nothing is wrong with it. */
static void self_pipe(void) {
    int own[2];
    check(pipe(own));
    wake = own[1];
    signal(SIGTERM, on_term);
    ready(0);
    struct pollfd one = { own[0], POLLIN, 0 };
    poll(&one, 1, -1);
    _exit(0);
}

/* Each waits for the other to count. */
static void eventfds(void) {
    int there = eventfd(0, 0), back = eventfd(0, 0);
    pid_t other = child();
    if (other == 0) {
        read_from(there);
        _exit(0);
    }
    ready(other);
    read_from(back);
}

static void change(int set, unsigned short number, short by) {
    struct sembuf operation = { number, by, 0 };
    if (semop(set, &operation, 1)) _exit(1);
}

/* A set of two, taken in opposite orders. */
static void set_of_semaphores(void) {
    int set = semget(IPC_PRIVATE, 2, 0600), told[2], tell[2];
    check(set < 0 || pipe(told) || pipe(tell));
    change(set, 0, 1), change(set, 1, 1);
    change(set, 0, -1);
    pid_t other = child();
    if (other == 0) {
        change(set, 1, -1);
        check(write(told[1], "x", 1) != 1);
        read_from(tell[0]);
        change(set, 0, -1);
        _exit(0);
    }
    read_from(told[0]);
    check(write(tell[1], "x", 1) != 1);
    printf("SET %d\n", set);
    ready(other);
    change(set, 1, -1);
}

struct pair {
    sem_t first, second;
};

static void both_semaphores(sem_t *one, sem_t *other, int tell, int told) {
    sem_wait(one);
    check(write(tell, "x", 1) != 1);
    read_from(told);
    sem_wait(other);
    sem_post(other);
    sem_post(one);
}

/* Two semaphores in shared memory, used as locks and taken in opposite orders. */
static void semaphores(void) {
    struct pair *pair = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int there[2], back[2];
    check(sem_init(&pair->first, 1, 1) || sem_init(&pair->second, 1, 1) || pipe(there) || pipe(back));
    pid_t other = child();
    if (other == 0) {
        both_semaphores(&pair->second, &pair->first, there[1], back[0]);
        _exit(0);
    }
    ready(other);
    both_semaphores(&pair->first, &pair->second, back[1], there[0]);
}

/* The parent waits for the child's end by a descriptor of it, the child for the parent to write. */
static void process_descriptor(void) {
    int order[2];
    check(pipe(order));
    pid_t other = child();
    if (other == 0) {
        close(order[1]);
        read_from(order[0]);
        _exit(0);
    }
    close(order[0]);
    int end = (int)syscall(SYS_pidfd_open, other, 0);
    ready(other);
    struct pollfd one = { end, POLLIN, 0 };
    poll(&one, 1, -1);
}

/* Reads a socket whose other end it has itself. */
static void own_socket(void) {
    int ends[2];
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    ready(0);
    receive(ends[0]);
}

/* Two processes that talk all the time: nothing is wrong with them. */
static void talk(void) {
    int ends[2];
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    pid_t other = child();
    close(ends[other == 0]);
    int own = ends[other != 0];
    if (other) ready(other), check(send(own, "x", 1, 0) != 1);
    for (;;) {
        receive(own);
        if (send(own, "x", 1, 0) != 1) _exit(0);
    }
}

static pthread_barrier_t meeting;
static pthread_mutex_t door = PTHREAD_MUTEX_INITIALIZER;

/* A barrier for so many; two come. */
static void expect(unsigned parties, void *(*come)(void *)) {
    pthread_barrier_init(&meeting, 0, parties);
    pthread_t one, other;
    pthread_create(&one, 0, come, 0), pthread_create(&other, 0, come, 0);
    ready(0);
    pthread_join(one, 0);
}

static void *meet_inside(void *unused) {
    pthread_mutex_lock(&door);
    pthread_barrier_wait(&meeting);
    pthread_mutex_unlock(&door);
    return unused;
}

/* Both must come to the barrier, which one of them keeps the other from. */
static void barrier_inside(void) {
    expect(2, meet_inside);
}

static void *meet(void *unused) {
    pthread_barrier_wait(&meeting);
    return unused;
}

/* Three are expected, and one has gone. */
static void barrier_short(void) {
    expect(3, meet);
}

static void on_user_signal(int signal) {
    (void)signal;
    pthread_mutex_lock(&door);
}

/* A handler asks for the lock that the code has which it interrupts. */
static void handler(void) {
    signal(SIGUSR1, on_user_signal);
    pthread_mutex_lock(&door);
    ready(0);
    raise(SIGUSR1);
}

static pthread_cond_t news = PTHREAD_COND_INITIALIZER;

static void *wait_for_news(void *unused) {
    pthread_mutex_lock(&door);
    pthread_cond_wait(&news, &door);
    return unused;
}

/* The signal came before anybody waited for it; now nobody is left to give another. */
static void lost_news(void) {
    pthread_t one;
    pthread_cond_signal(&news);
    pthread_create(&one, 0, wait_for_news, 0);
    ready(0);
    pthread_join(one, 0);
}

static sem_t end;

static void post_end(int signal) {
    (void)signal;
    sem_post(&end);
}

/* A service that runs until it is told to end: nothing is wrong with it. */
static void service(void) {
    sem_init(&end, 0, 0);
    signal(SIGTERM, post_end);
    ready(0);
    while (sem_wait(&end)) continue;
}

/* The worker of a pool that fork left behind would have posted. */
static void pool_left_behind(void) {
    pthread_t worker;
    pthread_create(&worker, 0, wait_for_news, 0);
    sem_init(&end, 0, 0);
    pid_t other = child();
    if (other == 0) {
        sem_wait(&end);
        _exit(0);
    }
    printf("READY pids=%d,%d\n", other, getpid());
    fflush(stdout);
    waitpid(other, 0, 0);
}

int main(int count, char **words) {
    static const struct { const char *name; void (*run)(void); } cases[] = {
        { "both-send", both_send }, { "both-listen", both_listen }, { "poll-cycle", poll_cycle },
        { "epoll-cycle", epoll_cycle }, { "server", server }, { "self-pipe", self_pipe }, { "eventfds", eventfds },
        { "set-of-semaphores", set_of_semaphores }, { "semaphores", semaphores },
        { "process-descriptor", process_descriptor }, { "own-socket", own_socket }, { "talk", talk },
        { "barrier-inside", barrier_inside }, { "barrier-short", barrier_short }, { "handler", handler },
        { "lost-news", lost_news }, { "service", service }, { "pool-left-behind", pool_left_behind },
    };
    alarm(120);
    for (size_t i = 0; count > 1 && i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(words[1], cases[i].name)) cases[i].run();
    return 2;
}
