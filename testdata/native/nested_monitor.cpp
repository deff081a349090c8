// A consumer waits for a condition while it holds the mutex that the producer needs to signal it.
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <queue>
#include <thread>
#include <unistd.h>

std::mutex registry_mutex;
std::mutex queue_mutex;
std::condition_variable not_empty;
std::queue<int> items;
std::mutex start_mutex;
std::condition_variable started;
bool is_started = false;

void consumer() {
    std::lock_guard<std::mutex> registry(registry_mutex);
    std::unique_lock<std::mutex> guard(queue_mutex);
    {
        std::lock_guard<std::mutex> start(start_mutex);
        is_started = true;
    }
    started.notify_all();
    not_empty.wait(guard, [] { return !items.empty(); });
}

void producer() {
    {
        std::unique_lock<std::mutex> start(start_mutex);
        started.wait(start, [] { return is_started; });
    }
    std::lock_guard<std::mutex> registry(registry_mutex);
    std::lock_guard<std::mutex> guard(queue_mutex);
    items.push(1);
    not_empty.notify_one();
}

int main() {
    alarm(600);
    std::thread first(consumer);
    std::thread second(producer);
    printf("READY pids=%d\n", getpid());
    fflush(stdout);
    first.join();
    second.join();
}
