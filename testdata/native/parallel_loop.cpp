// Who waits for a loop of TBB, and what its bodies wait for: ./parallel_loop CASE
// Prints "READY pids=P" just before the last step and ends by SIGALRM after two minutes. The truth of each case:
//   under-lock  a body wants the lock that the thread has which waits for the loop: a deadlock
//   at-work     a body takes its time: it will come to its end
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <thread>
#include <unistd.h>

static std::mutex cache_lock;

static void fill(int) {
    std::lock_guard<std::mutex> guard(cache_lock);
}

int main(int count, char **words) {
    alarm(120);
    const bool is_hang = count > 1 && !strcmp(words[1], "under-lock");
    tbb::global_control two(tbb::global_control::max_allowed_parallelism, 2);
    const std::thread::id own = std::this_thread::get_id();
    std::unique_lock<std::mutex> held(cache_lock, std::defer_lock);
    if (is_hang) held.lock();
    std::atomic<bool> begun{false};
    // The caller runs bodies as well: it waits in its own until the other thread is in one.
    tbb::parallel_for(0, 64, [&](int number) {
        if (std::this_thread::get_id() == own) {
            while (!begun) usleep(1000);
            return;
        }
        if (!begun.exchange(true)) {
            printf("READY pids=%d\n", getpid());
            fflush(stdout);
        }
        if (is_hang) fill(number);
        else sleep(100);
    });
    return 0;
}
