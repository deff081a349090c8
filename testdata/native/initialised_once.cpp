/* Code that runs once: ./initialised_once CASE LIBRARY
 * reentered: an initialiser wants its own control, a deadlock with itself.
 * nested: an initialiser runs another one, healthy; a thread waits for the outer one.
 * loader: an initialiser loads a library while a library's constructor, under the loader's lock, waits for the initialiser.
 * Prints "READY pids=P" when it is about to hang, and ends by SIGALRM after two minutes. */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

extern "C" {
#include "processes.h"
}

static std::once_flag settings, codecs;
static std::atomic<int> step{0};
static const char *library;

static void until(int wanted) {
    while (step < wanted) std::this_thread::yield();
}

static void read_settings() { std::call_once(settings, read_settings); }

static void park() {
    ready(0);
    for (;;) pause();
}

static void codecs_in_settings() {
    std::call_once(codecs, [] { step = 1, park(); });
}

/* The library's constructor calls this, under the loader's lock. */
extern "C" void when_loaded() {
    step = 2;
    std::call_once(settings, [] {});
}

static void load() {
    step = 1, until(2);
    ready(0);
    dlopen(library, RTLD_NOW);
}

static void named(const char *name, void (*run)()) {
    prctl(PR_SET_NAME, name);
    run();
}

int main(int, char **arguments) {
    alarm(120);
    const char *which = arguments[1];
    library = arguments[2];
    if (!strcmp(which, "reentered")) {
        ready(0);
        std::call_once(settings, read_settings);
    } else if (!strcmp(which, "nested")) {
        std::thread first(named, "first", [] { std::call_once(settings, codecs_in_settings); });
        until(1);
        std::call_once(settings, [] {});
    } else {
        std::thread first(named, "initialiser", [] { std::call_once(settings, load); });
        until(1);
        std::thread second(named, "constructor", [] { dlopen(library, RTLD_NOW); });
        first.join(), second.join();
    }
}
