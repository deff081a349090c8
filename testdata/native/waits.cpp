// Every wait of the C++ library's own locks, one sleeping thread each: ./waits-cpp
// Lines as of waits.c: WAIT TID KIND ADDRESS OWNER what it is. Ends by SIGALRM after two minutes.
#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <shared_mutex>
#include <thread>
#if __cplusplus >= 202002L
#include <barrier>
#include <latch>
#include <semaphore>
#endif
#include "waiting.h"

using namespace std::chrono_literals;

static constexpr int NOBODY = 0;

/* Start a thread and wait until it sleeps: in pause() for one that has taken something, in a lock for one that waits. */
template <class Work> static int asleep(const char *calls, Work work) {
    std::atomic<int> tid{0};
    std::thread([&tid, work] {
        tid = own_tid();
        work();
        park();
    }).detach();
    while (!tid) moment();
    until_asleep(tid, calls);
    return tid;
}

template <class Work> static int holder(Work take) { return asleep(" 34 ", take); }

template <class Work> static void waiter(const char *what, const char *kind, const void *address, int owner, Work wait) {
    int tid = asleep(" 202 219 ", wait);
    say("WAIT %d %s %p %d %s\n", tid, kind, address, owner, what);
}

struct Slow {
    Slow() { park(); }
    int value = 1;
};

static int the_only_one() {
    static Slow slow;
    return slow.value;
}

int main() {
    begin();
    holder([] { the_only_one(); });
    waiter("static variable", "static_guard", nullptr, NOBODY, [] { the_only_one(); });
    auto *flag = new std::once_flag;
    holder([=] { std::call_once(*flag, [] { park(); }); });
    waiter("call_once", "pthread_once", flag, NOBODY, [=] { std::call_once(*flag, [] {}); });
    auto *plain = new std::mutex;
    int owner = holder([=] { plain->lock(); });
    waiter("mutex", "pthread_mutex", plain, owner, [=] { plain->lock(); });
    auto *timed = new std::timed_mutex;
    owner = holder([=] { timed->lock(); });
    waiter("timed_mutex, timed", "pthread_mutex", timed, owner, [=] { (void)timed->try_lock_for(300s); });
    auto *recursive = new std::recursive_mutex;
    owner = holder([=] { recursive->lock(), recursive->lock(); });
    waiter("recursive_mutex", "pthread_mutex", recursive, owner, [=] { recursive->lock(); });
    auto *shared = new std::shared_mutex;
    owner = holder([=] { shared->lock(); });
    waiter("shared_mutex, to write", "pthread_rwlock", shared, owner, [=] { shared->lock(); });
    waiter("shared_mutex, to read", "pthread_rwlock", shared, owner, [=] { shared->lock_shared(); });
    auto *read = new std::shared_mutex;
    holder([=] { read->lock_shared(); });
    waiter("read shared_mutex, to write", "pthread_rwlock", read, NOBODY, [=] { read->lock(); });
    auto *signal = new std::condition_variable;
    auto *other = new std::mutex;
    waiter("condition_variable", "pthread_cond", signal, NOBODY, [=] {
        std::unique_lock<std::mutex> lock(*other);
        signal->wait(lock, [] { return false; });
    });
    waiter("condition_variable, timed", "pthread_cond", signal, NOBODY, [=] {
        std::unique_lock<std::mutex> lock(*other);
        signal->wait_for(lock, 300s, [] { return false; });
    });
    auto *promise = new std::promise<int>;
    auto *future = new std::future<int>(promise->get_future());
    waiter("future", "futex", nullptr, NOBODY, [=] { future->wait(); });
    std::atomic<int> target{0};
    auto *thread = new std::thread([&target] {
        target = own_tid();
        park();
    });
    while (!target) moment();
    waiter("thread::join", "thread", nullptr, target, [=] { thread->join(); });
#if __cplusplus >= 202002L
    auto *latch = new std::latch(2);
    waiter("latch", "futex", latch, NOBODY, [=] { latch->wait(); });
    auto *number = new std::atomic<int>(7);
    waiter("atomic<int>::wait", "futex", number, NOBODY, [=] { number->wait(7); });
    auto *large = new std::atomic<long>(7);
    waiter("atomic<long>::wait", "futex", nullptr, NOBODY, [=] { large->wait(7); });
    auto *permits = new std::counting_semaphore<8>(0);
    waiter("counting_semaphore", "semaphore", permits, NOBODY, [=] { permits->acquire(); });
    auto *meeting = new std::barrier<>(2);
    waiter("barrier", "pthread_barrier", nullptr, NOBODY, [=] { meeting->arrive_and_wait(); });
#endif
    say("READY pids=%d\n", getpid());
    park();
}
