// An endless kernel has a multiprocessor, and a cooperative one wants all (run it with --gpu-core).
#include <cuda.h>

static const char *const kernels = ".version 7.0 .target sm_70 .address_size 64\n"
                                   ".visible .entry endless() { again: bra again; }\n"
                                   ".visible .entry together() { ret; }";

int main(void) {
    CUcontext context;
    CUmodule module;
    CUfunction endless, together;
    CUstream one, other;
    int most, processors;
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    cuModuleLoadData(&module, kernels);
    cuModuleGetFunction(&endless, module, "endless");
    cuModuleGetFunction(&together, module, "together");
    cuStreamCreate(&one, 1);
    cuStreamCreate(&other, 1);
    cuDeviceGetAttribute(&processors, 16, 0);
    cuOccupancyMaxActiveBlocksPerMultiprocessor(&most, together, 1024, 0);
    cuLaunchKernel(endless, 1, 1, 1, 1, 1, 1, 0, one, 0, 0);
    cuLaunchCooperativeKernel(together, most * processors, 1, 1, 1024, 1, 1, 0, other, 0);
    cuStreamSynchronize(other);
    return 0;
}
