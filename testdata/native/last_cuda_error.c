/* A thread whose call of CUDA failed, which nobody noticed, and one that waits for what the call was to bring. `last_cuda_error NUMBER
 * [asked]`: with the error of that number; asked: and somebody asks for it, as one should. */
#include <pthread.h>
#include <stdlib.h>
#include "../fakecuda/libcudart.h"
#include "processes.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;
static int results;

static void *launches(void *argument) {
    char **arguments = argument;
    cudaFailWith(atoi(arguments[0]));
    if (arguments[1]) cudaGetLastError();
    pthread_mutex_lock(&lock);
    while (!results) pthread_cond_wait(&arrived, &lock);
    pthread_mutex_unlock(&lock);
    return 0;
}

int main(int count, char **arguments) {
    alarm(120);
    (void)count;
    pthread_t thread;
    pthread_create(&thread, 0, launches, arguments + 1);
    /* An error that was there and has been asked for. */
    cudaFailWith(719);
    if (cudaGetLastError() != 719 || cudaPeekAtLastError()) return 1;
    ready(0);
    pthread_join(thread, 0);
    return 0;
}
