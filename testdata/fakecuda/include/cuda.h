/* What examples use of NVIDIA's cuda.h: enough to compile them against the stand-in beside it. */
#ifndef CUDA_H
#define CUDA_H
#ifdef __cplusplus
extern "C" {
#endif
typedef int CUresult, CUdevice;
typedef struct context *CUcontext;
typedef struct module *CUmodule;
typedef struct function *CUfunction;
typedef struct stream *CUstream;
typedef unsigned long long CUdeviceptr;

CUresult cuInit(unsigned flags);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuCtxSynchronize(void);
CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int block, unsigned long dynamic);
CUresult cuMemHostAlloc(void **pointer, unsigned long size, unsigned flags);
CUresult cuStreamCreate(CUstream *stream, unsigned flags);
CUresult cuStreamSynchronize(CUstream stream);
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, unsigned value, unsigned flags);
CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                                   unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **arguments);
CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **arguments,
                        void **more);
#ifdef __cplusplus
}
#endif
#endif
