/* Message queues and watched files: ./message_queues CASE
 * both-receive: two processes each wait for a message of the other in POSIX queues, which others could open by name.
 * at-work: one waits for a message of the other, which does something else: healthy.
 * system-v: one waits for a message in a System V queue, to which the other has sent one before.
 * watches: waits for a change of a folder by inotify.
 * Prints "READY pids=P[,P2]" just before the last step and ends by SIGALRM after two minutes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include "processes.h"

struct note {
    long kind;
    char text[8];
};

static mqd_t queue(const char *side, int flags) {
    char name[64];
    snprintf(name, sizeof name, "/lockscope-%s-%d", side, getpid());
    struct mq_attr small = { .mq_maxmsg = 2, .mq_msgsize = 8 };
    mqd_t made = mq_open(name, O_CREAT | flags, 0600, &small);
    if (made == (mqd_t)-1) printf("READY pids=0\n"), exit(0);
    mq_unlink(name);
    return made;
}

static void receive(mqd_t from) {
    char text[8];
    if (mq_receive(from, text, sizeof text, 0) < 0) abort();
}

static void two(int answers) {
    mqd_t questions = queue("questions", O_RDWR), answer = queue("answers", O_RDWR);
    pid_t other = child();
    if (other == 0) {
        if (answers) receive(questions);
        for (;;) pause();
    }
    ready(other);
    receive(answer);
}

static int used;

static void remove_used(int unused) {
    (void)unused;
    msgctl(used, IPC_RMID, 0);
    _exit(1);
}

static void system_v(void) {
    int id = used = msgget(IPC_PRIVATE, 0600);
    signal(SIGALRM, remove_used), signal(SIGTERM, remove_used);
    struct note note = { 1, "hello" };
    pid_t other = child();
    if (other == 0) {
        if (msgsnd(id, &note, sizeof note.text, 0)) abort();
        for (;;) pause();
    }
    if (msgrcv(id, &note, sizeof note.text, 0, 0) < 0) abort();
    ready(other);
    msgrcv(id, &note, sizeof note.text, 0, 0);
}

static void watches(void) {
    int changes = inotify_init();
    char event[256];
    if (inotify_add_watch(changes, "/", IN_DELETE_SELF) < 0) abort();
    ready(0);
    if (read(changes, event, sizeof event) < 0) abort();
}

int main(int count, char **arguments) {
    alarm(120);
    const char *which = count > 1 ? arguments[1] : "";
    if (!strcmp(which, "both-receive")) two(1);
    else if (!strcmp(which, "at-work")) two(0);
    else if (!strcmp(which, "system-v")) system_v();
    else watches();
    return 0;
}
