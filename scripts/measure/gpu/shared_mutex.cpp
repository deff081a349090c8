// The main thread has a shared_mutex for reading and waits for a stream, where a host function wants to write. In the healthy
// one a helper reads for a time.
// usage: shared_mutex ring | healthy
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <semaphore.h>
#include <shared_mutex>
#include <thread>
#include <unistd.h>

static std::shared_mutex table;
static sem_t entered, has_table;

static void update_table(void *) {
    sem_post(&entered);
    std::unique_lock<std::shared_mutex> writing(table);
}

template <typename... Arguments> static void call(const char *name, Arguments... arguments) {
    static void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(driver, name));
    const int error = function ? function(arguments...) : -1;
    if (error) std::printf("%s: error %d\n", name, error), std::exit(1);
}

static void read_for_long() {
    std::shared_lock<std::shared_mutex> reading(table);
    sem_post(&has_table);
    std::this_thread::sleep_for(std::chrono::seconds(250));
}

static void wait_for(void *stream) {
    call("cuLaunchHostFunc", stream, update_table, static_cast<void *>(nullptr));
    sem_wait(&entered);
    std::printf("READY pids=%d\n", getpid());
    std::fflush(stdout);
    call("cuStreamSynchronize", stream);
}

static void wait_and_read(void *stream) {
    std::shared_lock<std::shared_mutex> reading(table);
    wait_for(stream);
}

int main(int count, char **words) {
    int device;
    void *context, *stream;
    alarm(300);
    sem_init(&entered, 0, 0);
    sem_init(&has_table, 0, 0);
    call("cuInit", 0u);
    call("cuDeviceGet", &device, 0);
    call("cuDevicePrimaryCtxRetain", &context, device);
    call("cuCtxSetCurrent", context);
    call("cuStreamCreate", &stream, 1u);
    if (count > 1 && !std::strcmp(words[1], "ring")) {
        wait_and_read(stream);
        return 0;
    }
    std::thread(read_for_long).detach();
    sem_wait(&has_table);
    wait_for(stream);
}
