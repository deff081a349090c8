/* Jobs of three ranks that hang between ranks, and healthy ones that look like it: mpi SCENARIO under mpirun -n 3.
 *
 *   receive   0 and 1 receive from each other, 2 is in a barrier: a deadlock of 0 and 1
 *   probe     the same, and each asks for the message before it receives it, in the turned communicator: a deadlock
 *   small     0 is in a barrier of 0 and 1, and 1 waits for a persistent receive from 0: a deadlock
 *   sends     0 and 1 send synchronously to each other before they receive: a deadlock of 0 and 1
 *   wait      0 and 1 have begun to receive from each other in another communicator and wait for that, 2 is in a barrier: a deadlock
 *   waitall   each has begun to receive from both others and waits for all of it: a deadlock
 *   exchange  each sends to the next one and receives from it, which it does not send to: a deadlock
 *   mismatch  0 is in a barrier, 1 in a broadcast of another communicator from 0, 2 receives from 1: a deadlock
 *   lock      1 takes a mutex twice, the others are in a barrier: a deadlock in 1
 *   listen    0 and 1 receive from each other, and each has another thread that would send that if it were woken: nothing proves a deadlock
 *   timer     the same, and the other thread sleeps before it sends that: nothing is wrong
 *   file      0 has a lock on the file that is said behind it and receives from 1, which waits for that lock: a deadlock
 *   helper    the same, and 1 waits for a mutex that its child has, which waits for the lock: a deadlock
 *   thread    the same with another thread of 1 in the place of the child: a deadlock
 *   child     1 waits for a mutex that its child has, which reads what 1 would write: a deadlock in 1
 *   file-late, helper-late, thread-late  2 has the lock, and sleeps: nothing is wrong
 *   child-late  the child sleeps: nothing is wrong
 *   late      1 sleeps, the others are in a barrier: nothing is wrong
 *   token     a token goes round for ever: nothing is wrong
 *   large     each shifts 48 MiB, or as many as are said behind it, to its right neighbour, for ever: nothing is wrong
 *   shift     each has begun to receive from its left neighbour and to send to its right one, and waits for both, for ever: nothing is wrong
 *   reduce    all reduce together, for ever: nothing is wrong
 */
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

static int rank;

static void sends_to_the_other(void) {
    char small[8] = { 0 };
    MPI_Send(small, 8, MPI_CHAR, 1 - rank, 41 - rank, MPI_COMM_WORLD);
}

static void *sends_when_woken(void *unused) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t woken = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&mutex);
    for (;;) pthread_cond_wait(&woken, &mutex);
    sends_to_the_other();
    return unused;
}

static void *sends_later(void *unused) {
    sleep(600);
    sends_to_the_other();
    return unused;
}

/* A mutex that its helper holds while it waits: rank 1 waits for that. */
static pthread_mutex_t *held;
static const char *file;
static int ready[2], words_for_it[2];

static void wait_for_file(void) {
    int own = open(file, O_RDWR | O_CREAT, 0600);
    flock(own, LOCK_EX);
}

static void *waits_with_the_mutex(void *scenario) {
    char byte = 0;
    pthread_mutex_lock(held);
    if (write(ready[1], "r", 1) != 1) return scenario;
    if (!strcmp(scenario, "child-late")) sleep(600);
    else if (!strncmp(scenario, "child", 5)) { if (read(words_for_it[0], &byte, 1) < 0) return scenario; }
    else wait_for_file();
    return scenario;
}

static void wait_for_helper(char *scenario) {
    char byte;
    pthread_t helper;
    pthread_mutexattr_t shared;
    held = mmap(0, sizeof *held, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(held, &shared);
    if (pipe(ready) || pipe(words_for_it)) exit(4);
    if (!strncmp(scenario, "thread", 6)) {
        pthread_create(&helper, 0, waits_with_the_mutex, scenario);
    } else if (fork() == 0) {
        alarm(150);
        close(words_for_it[1]);
        waits_with_the_mutex(scenario);
        _exit(0);
    }
    close(words_for_it[0]);
    if (read(ready[0], &byte, 1) != 1) exit(5);
    pthread_mutex_lock(held);
}

int main(int count, char **words) {
    alarm(150);
    char *scenario = count > 1 ? words[1] : "";
    int level = strcmp(scenario, "timer") && strcmp(scenario, "listen") ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE;
    MPI_Init_thread(&count, &words, level, &level);
    int size, own = getpid(), pids[3];
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != 3) MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Comm other;
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    MPI_Gather(&own, 1, MPI_INT, pids, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("READY pids=%d,%d,%d\n", pids[0], pids[1], pids[2]);
        fflush(stdout);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    char small[8] = { 0 };
    pthread_t other_thread;
    if (!strcmp(scenario, "listen") || !strcmp(scenario, "timer")) {
        if (rank < 2) pthread_create(&other_thread, 0, *scenario == 'l' ? sends_when_woken : sends_later, 0);
        scenario = "receive";
    }
    if (count > 2 && strcmp(scenario, "large")) {
        int is_late = strstr(scenario, "-late") != 0;
        file = words[2];
        if (rank == (is_late ? 2 : 0)) wait_for_file();
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 1 && !strncmp(scenario, "file", 4)) wait_for_file();
        else if (rank == 1) wait_for_helper(scenario);
        else if (rank == 2 && is_late) for (;;) sleep(600);
        if (rank == 0) MPI_Recv(small, 8, MPI_CHAR, 1, 40, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (!strcmp(scenario, "receive")) {
        if (rank < 2) MPI_Recv(small, 8, MPI_CHAR, 1 - rank, 40 + rank, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (!strcmp(scenario, "probe")) {
        MPI_Comm turned;
        MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &turned);
        if (rank == 0) MPI_Probe(1, 40, turned, MPI_STATUS_IGNORE);
        else if (rank == 1) { MPI_Message message; MPI_Mprobe(2, 41, turned, &message, MPI_STATUS_IGNORE); }
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (!strcmp(scenario, "small")) {
        MPI_Comm two;
        MPI_Request again;
        MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &two);
        if (rank == 1) {
            MPI_Recv_init(small, 8, MPI_CHAR, 0, 40, MPI_COMM_WORLD, &again);
            MPI_Start(&again);
            MPI_Wait(&again, MPI_STATUS_IGNORE);
        }
        MPI_Barrier(two);
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (!strcmp(scenario, "sends")) {
        if (rank < 2) MPI_Ssend(small, 8, MPI_CHAR, 1 - rank, 7, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (!strcmp(scenario, "wait")) {
        MPI_Request one;
        if (rank < 2) MPI_Irecv(small, 8, MPI_CHAR, 1 - rank, 40 + rank, other, &one);
        if (rank < 2) MPI_Wait(&one, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (!strcmp(scenario, "waitall")) {
        MPI_Request two[2];
        for (int way = 0; way < 2; way++)
            MPI_Irecv(small + 4 * way, 4, MPI_CHAR, (rank + 1 + way) % 3, 50 + way, MPI_COMM_WORLD, &two[way]);
        MPI_Waitall(2, two, MPI_STATUSES_IGNORE);
    } else if (!strcmp(scenario, "exchange")) {
        MPI_Sendrecv(small, 4, MPI_CHAR, (rank + 1) % 3, 70, small + 4, 4, MPI_CHAR, (rank + 1) % 3, 71, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    } else if (!strcmp(scenario, "mismatch")) {
        if (rank == 0) MPI_Barrier(MPI_COMM_WORLD);
        else if (rank == 1) MPI_Bcast(small, 8, MPI_CHAR, 0, other);
        else MPI_Recv(small, 8, MPI_CHAR, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (!strcmp(scenario, "lock")) {
        static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
        if (rank == 1) {
            pthread_mutex_lock(&mutex);
            pthread_mutex_lock(&mutex);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (!strcmp(scenario, "late")) {
        if (rank == 1) for (;;) pause();
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (!strcmp(scenario, "token")) {
        if (rank == 0) MPI_Send(small, 8, MPI_CHAR, 1, 9, MPI_COMM_WORLD);
        for (;;) {
            MPI_Recv(small, 8, MPI_CHAR, (rank + 2) % 3, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(small, 8, MPI_CHAR, (rank + 1) % 3, 9, MPI_COMM_WORLD);
        }
    } else if (!strcmp(scenario, "large")) {
        int bytes = (count > 2 ? atoi(words[2]) : 48) << 20;
        char *to = calloc(1, bytes), *from = calloc(1, bytes);
        for (;;)
            MPI_Sendrecv(to, bytes, MPI_CHAR, (rank + 1) % 3, 3, from, bytes, MPI_CHAR, (rank + 2) % 3, 3,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (!strcmp(scenario, "shift")) {
        MPI_Request two[2];
        for (;;) {
            MPI_Irecv(small, 4, MPI_CHAR, (rank + 2) % 3, 3, MPI_COMM_WORLD, &two[0]);
            MPI_Isend(small + 4, 4, MPI_CHAR, (rank + 1) % 3, 3, MPI_COMM_WORLD, &two[1]);
            MPI_Waitall(2, two, MPI_STATUSES_IGNORE);
        }
    } else if (!strcmp(scenario, "reduce")) {
        for (;;) MPI_Allreduce(MPI_IN_PLACE, &own, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
    return 3;
}
