// Locks of Abseil: ./abseil CASE
// Each case names its threads, prints "READY pids=P" before they come to their waits, and ends by SIGALRM after two minutes.
// What is true of each stands in tests/integration/abseil.rs.
#include <absl/synchronization/mutex.h>
#include <absl/synchronization/notification.h>
#include <cstdio>
#include <cstring>
#include <pthread.h>
#include <thread>
#include <unistd.h>

absl::Mutex orders, stock, prices;
absl::CondVar refilled;
static absl::Notification first, second;
static int count;

static void name(const char *text) { pthread_setname_np(pthread_self(), text); }

static void ready() {
    std::printf("READY pids=%d\n", getpid());
    std::fflush(stdout);
}

static void sell() {
    name("seller");
    absl::MutexLock lock(&orders);
    first.Notify(), second.WaitForNotification();
    absl::MutexLock inner(&stock);
    count++;
}

static void refill() {
    name("refiller");
    absl::MutexLock lock(&stock);
    second.Notify(), first.WaitForNotification();
    absl::MutexLock inner(&orders);
    count--;
}

// Lock and Unlock by hand, with a lock that is given back before.
static void sell_by_hand() {
    name("seller");
    prices.Lock();
    prices.Unlock();
    orders.Lock();
    first.Notify(), second.WaitForNotification();
    stock.Lock();
    count++;
    stock.Unlock();
    orders.Unlock();
}

static void twice() {
    name("twice");
    absl::MutexLock lock(&orders);
    ready();
    absl::MutexLock again(&orders);
    count++;
}

// A reader of one and the writer of the other want each other's.
static void read_and_write() {
    name("reader");
    absl::ReaderMutexLock lock(&orders);
    first.Notify(), second.WaitForNotification();
    absl::MutexLock inner(&stock);
    count++;
}

static bool is_full(int *stored) { return *stored > 1000000; }

// Nobody ever fills it; the mutex is given back meanwhile.
static void wait_until_full() {
    name("waiter");
    absl::MutexLock lock(&orders);
    orders.Await(absl::Condition(is_full, &count));
}

static void wait_for_refill() {
    name("sleeper");
    absl::MutexLock lock(&stock);
    while (!is_full(&count)) refilled.Wait(&stock);
}

// Whoever is woken at a condition takes its mutex again, which it does not have meanwhile: the clerk keeps it and sleeps.
static void keep_after_a_signal() {
    name("clerk");
    absl::MutexLock lock(&stock);
    refilled.Signal();
    sleep(120);
}

static void start_the_clerk_once_it_sleeps() {
    name("sleeper");
    absl::MutexLock lock(&stock);
    std::thread(keep_after_a_signal).detach();
    ready();
    while (!is_full(&count)) refilled.Wait(&stock);
}

// Both take their locks in one order, for two minutes.
static void work(const char *own) {
    name(own);
    for (;;) {
        absl::MutexLock lock(&orders);
        absl::MutexLock inner(&stock);
        count = (count + 1) % 1000;
        refilled.Signal();
    }
}

static void read_on() {
    name("auditor");
    for (;;) {
        absl::ReaderMutexLock lock(&prices);
        absl::ReaderMutexLock inner(&orders);
        usleep(100);
    }
}

int main(int argc, char **argv) {
    alarm(120);
    const char *way = argc > 1 ? argv[1] : "";
    bool detects = argc > 2 && !std::strcmp(argv[2], "detect");
    absl::SetMutexDeadlockDetectionMode(detects ? absl::OnDeadlockCycle::kReport : absl::OnDeadlockCycle::kIgnore);
    auto is = [way](const char *wanted) { return !std::strcmp(way, wanted); };
    if (is("self")) return std::thread(twice).join(), 0;
    if (is("retakes")) return std::thread(start_the_clerk_once_it_sleeps).join(), 0;
    if (is("healthy")) {
        std::thread(wait_until_full).detach(), std::thread(wait_for_refill).detach(), std::thread(read_on).detach();
        std::thread worker(work, "worker"), other(work, "other");
        return ready(), worker.join(), 0;
    }
    std::thread a(is("abba") ? sell : is("by-hand") ? sell_by_hand : read_and_write), b(refill);
    ready();
    a.join(), b.join();
}
