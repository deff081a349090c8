// Two threads that take two locks in opposite orders, each in another way: ./guards CASE
// guard: std::lock_guard in a function of both; unique: std::unique_lock, the second made before the first;
// calls: pthread_mutex_lock itself; returned: the function that took the lock has returned its guard;
// vector, map, pointers: std::lock_guard of locks in the heap, which variables of main lead to.
// The lines that take what is held, and those that wait, end with a comment: // takes, // waits.
// Prints "READY pids=P" when each has its first lock, and ends by SIGALRM after two minutes.
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <unordered_map>
#include <vector>

struct Account {
    long balance = 100;
    std::mutex door;
};

struct Family {
    std::string name = "Smith";
    std::unique_ptr<Account> first = std::make_unique<Account>();
    std::shared_ptr<Account> second = std::make_shared<Account>();
};

struct Box {
    pthread_mutex_t lid;
    int things;
};

static pthread_barrier_t both;
static Box left = {PTHREAD_MUTEX_INITIALIZER, 0}, right = {PTHREAD_MUTEX_INITIALIZER, 0};

/* Each has its first lock. */
static void met() {
    if (pthread_barrier_wait(&both) == PTHREAD_BARRIER_SERIAL_THREAD) {
        printf("READY pids=%d\n", getpid());
        fflush(stdout);
    }
}

static void guarded(Account &from, Account &to) {
    std::lock_guard<std::mutex> first(from.door); // takes
    met();
    std::lock_guard<std::mutex> second(to.door); // waits
    from.balance -= to.balance;
}

static void unlocked(Account &from, Account &to) {
    std::unique_lock<std::mutex> before(to.door, std::defer_lock);
    std::unique_lock<std::mutex> first(from.door); // takes
    met();
    before.lock(); // waits
    from.balance -= to.balance;
}

static void called(Box &from, Box &to) {
    pthread_mutex_lock(&from.lid); // takes
    met();
    pthread_mutex_lock(&to.lid); // waits
    from.things -= to.things;
    pthread_mutex_unlock(&to.lid);
    pthread_mutex_unlock(&from.lid);
}

static std::unique_lock<std::mutex> opened(Account &account) {
    return std::unique_lock<std::mutex>(account.door); // waits
}

static void returned(Account &from, Account &to) {
    auto first = opened(from); // takes
    met();
    auto second = opened(to);
    from.balance -= to.balance;
}

static void run(const char *one, Account &from, Account &to, Box &near, Box &far) {
    if (!strcmp(one, "unique")) unlocked(from, to);
    else if (!strcmp(one, "calls")) called(near, far);
    else if (!strcmp(one, "returned")) returned(from, to);
    else guarded(from, to);
}

static void together(const char *one, Account &alice, Account &bob) {
    std::thread first([&] { run(one, alice, bob, left, right); });
    std::thread second([&] { run(one, bob, alice, right, left); });
    first.join();
    second.join();
}

int main(int, char **arguments) {
    alarm(120);
    pthread_barrier_init(&both, nullptr, 2);
    Account alice, bob;
    std::vector<Account> row(2);
    std::map<std::string, Account> by_name;
    std::unordered_map<int, Account> by_number;
    auto family = std::make_unique<Family>();
    const char *one = arguments[1];
    if (!strcmp(one, "vector")) together(one, row[0], row[1]);
    if (!strcmp(one, "map")) together(one, by_name["alice"], by_number[2]);
    if (!strcmp(one, "pointers")) together(one, *family->first, *family->second);
    together(one, alice, bob);
}
