/* A test that wants a deadlock and is right to: it ends it itself after some seconds, and says success.
 * usage: wanted_hang alarm | itimer | timer | jump | dog | cpu | child | wait | alarmwait | third | timeoutcmd */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SECONDS = 9 };
static pthread_mutex_t ledger = PTHREAD_MUTEX_INITIALIZER, journal = PTHREAD_MUTEX_INITIALIZER;
static sigjmp_buf out;

static void *other(void *unused) {
    pthread_mutex_lock(&journal);
    usleep(200000);
    pthread_mutex_lock(&ledger);
    return unused;
}

static void hang(void) {
    pthread_t thread;
    pthread_create(&thread, 0, other, 0);
    pthread_mutex_lock(&ledger);
    usleep(200000);
    pthread_mutex_lock(&journal);
}

static void succeed(int signal) {
    (void)signal;
    _exit(0);
}

static void jump(int signal) { siglongjmp(out, signal); }

static void *watch_dog(void *unused) {
    sleep(SECONDS);
    succeed(0);
    return unused;
}

static void *kills(void *child) {
    sleep(SECONDS);
    kill((pid_t)(long)child, SIGKILL);
    return 0;
}

static pid_t hanging_child(void) {
    pid_t child = fork();
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        hang();
    }
    return child;
}

int main(int count, char **words) {
    const char *how = count > 1 ? words[1] : "alarm";
    struct itimerval once = {{0, 0}, {SECONDS, 0}};
    struct itimerspec later = {{0, 0}, {SECONDS, 0}};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1};
    pthread_t thread;
    timer_t timer;
    pid_t child;
    int is = 0;
#define IS(name) (is = !strcmp(how, name))
    if (IS("dead")) hang();
    signal(SIGALRM, IS("jump") ? jump : succeed);
    if (IS("alarm") || IS("jump") || IS("cpu")) alarm(SECONDS);
    if (IS("alarm")) hang();
    if (IS("jump")) {
        if (!sigsetjmp(out, 1)) hang();
        return 0;
    }
    if (IS("cpu")) {
        pthread_mutex_lock(&ledger);
        pthread_mutex_lock(&ledger);
    }
    if (IS("itimer")) {
        setitimer(ITIMER_REAL, &once, 0);
        hang();
    }
    if (IS("timer")) {
        signal(SIGRTMIN + 1, succeed);
        timer_create(CLOCK_MONOTONIC, &event, &timer);
        timer_settime(timer, 0, &later, 0);
        hang();
    }
    if (IS("dog")) {
        pthread_create(&thread, 0, watch_dog, 0);
        hang();
    }
    if (IS("child")) {
        child = hanging_child();
        sleep(SECONDS);
        kill(child, SIGKILL);
        return waitpid(child, 0, 0) != child;
    }
    if (IS("wait")) {
        child = hanging_child();
        pthread_create(&thread, 0, kills, (void *)(long)child);
        return waitpid(child, 0, 0) != child;
    }
    if (IS("alarmwait")) {
        child = hanging_child();
        alarm(SECONDS);
        waitpid(child, 0, 0);
        return 1;
    }
    if (IS("third")) {
        child = hanging_child();
        pid_t third = fork();
        if (!third) {
            kills((void *)(long)child);
            _exit(0);
        }
        return waitpid(child, 0, 0) != child || waitpid(third, 0, 0) != third;
    }
    if (IS("timeoutcmd")) {
        child = fork();
        if (!child) execlp("timeout", "timeout", "-s", "KILL", "9", words[0], "dead", (char *)0);
        return waitpid(child, 0, 0) != child;
    }
    (void)is;
    return 5;
}
