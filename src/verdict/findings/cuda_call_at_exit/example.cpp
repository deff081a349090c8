// A static object waits for the GPU when the program ends, and a kernel there does not end.
#include <cuda.h>

static const char *const kernels =
    ".version 7.0 .target sm_70 .address_size 64 .visible .entry endless() { again: bra again; }";

struct Logger {
    ~Logger() { cuCtxSynchronize(); }
};

int main() {
    CUcontext context;
    CUmodule module;
    CUfunction endless;
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    cuModuleLoadData(&module, kernels);
    cuModuleGetFunction(&endless, module, "endless");
    static Logger logger;
    cuLaunchKernel(endless, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
    return 0;
}
