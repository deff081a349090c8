/* A process is killed while it holds a lock in shared memory. */
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    int access = PROT_READ | PROT_WRITE, shared_memory = MAP_SHARED | MAP_ANONYMOUS;
    pthread_mutex_t *lock = mmap(0, sizeof *lock, access, shared_memory, -1, 0);
    pthread_mutexattr_t shared;
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(lock, &shared);
    pid_t worker = fork();
    if (worker == 0) {
        pthread_mutex_lock(lock);
        kill(getpid(), SIGKILL); /* as the kernel does when memory is short */
    }
    waitpid(worker, 0, 0);
    pthread_mutex_lock(lock);
    return 0;
}
