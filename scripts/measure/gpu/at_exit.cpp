// A program that ends while the GPU works for it. With -DLIBRARY: the library whose static object waits for the GPU in
// its destructor; else the program that uses it.
#ifdef LIBRARY
#include <dlfcn.h>
#include <cstddef>
#include <cstdio>

namespace {
const char *const kernels = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry endless() { again: bra again; }\n";

struct FlushesOnExit {
    int (*synchronize)();

    // The driver has registered its own end by then: this destructor runs before that.
    explicit FlushesOnExit(int (*call)()) : synchronize(call) {}
    ~FlushesOnExit() { synchronize(); }
};
}  // namespace

extern "C" void start_logger() {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    auto call = [driver](const char *name) { return reinterpret_cast<int (*)(...)>(dlsym(driver, name)); };
    void *context = nullptr, *module = nullptr, *function = nullptr;
    int device = 0;
    call("cuInit")(0);
    call("cuDeviceGet")(&device, 0);
    call("cuDevicePrimaryCtxRetain")(&context, device);
    call("cuCtxSetCurrent")(context);
    call("cuModuleLoadData")(&module, kernels);
    call("cuModuleGetFunction")(&function, module, "endless");
    call("cuLaunchKernel")(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
    static FlushesOnExit logger(reinterpret_cast<int (*)()>(dlsym(driver, "cuCtxSynchronize")));
}
#else
#include <cstdio>
#include <unistd.h>

extern "C" void start_logger();

int main() {
    alarm(300);
    start_logger();
    printf("READY pids=%d\n", getpid());
    fflush(stdout);
    return 0;
}
#endif
