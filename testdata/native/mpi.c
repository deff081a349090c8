/* Jobs of three ranks that hang between ranks, and healthy ones that look like it: mpi SCENARIO under mpirun -n 3.
 *
 *   receive   0 and 1 receive from each other, 2 is in a barrier: a deadlock of 0 and 1
 *   sends     0 and 1 send synchronously to each other before they receive: a deadlock of 0 and 1
 *   wait      0 and 1 have begun to receive from each other in another communicator and wait for that, 2 is in a barrier: a deadlock
 *   waitall   each has begun to receive from both others and waits for all of it: a deadlock
 *   exchange  each sends to the next one and receives from it, which it does not send to: a deadlock
 *   mismatch  0 is in a barrier, 1 in a broadcast of another communicator from 0, 2 receives from 1: a deadlock
 *   lock      1 takes a mutex twice, the others are in a barrier: a deadlock in 1
 *   listen    0 and 1 receive from each other, and each has another thread that may send that later: nothing proves a deadlock
 *   late      1 sleeps, the others are in a barrier: nothing is wrong
 *   token     a token goes round for ever: nothing is wrong
 *   large     each shifts 48 MiB, or as many as are said behind it, to its right neighbour, for ever: nothing is wrong
 *   shift     each has begun to receive from its left neighbour and to send to its right one, and waits for both, for ever: nothing is wrong
 *   reduce    all reduce together, for ever: nothing is wrong
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *sends_later(void *unused) {
    for (;;) pause();
    return unused;
}

int main(int count, char **words) {
    alarm(150);
    MPI_Init(&count, &words);
    const char *scenario = count > 1 ? words[1] : "";
    int rank, size, own = getpid(), pids[3];
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
    if (!strcmp(scenario, "listen")) {
        if (rank < 2) pthread_create(&other_thread, 0, sends_later, 0);
        scenario = "receive";
    }
    if (!strcmp(scenario, "receive")) {
        if (rank < 2) MPI_Recv(small, 8, MPI_CHAR, 1 - rank, 40 + rank, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
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
