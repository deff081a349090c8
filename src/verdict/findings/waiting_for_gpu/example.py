"""A kernel that never ends."""
import ctypes

HEAD = b".version 7.0 .target sm_70 .address_size 64\n"
KERNEL = HEAD + b".visible .entry endless() { again: bra again; }"
cuda = ctypes.CDLL("libcuda.so.1")
context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
cuda.cuModuleLoadData(ctypes.byref(module), KERNEL)
cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"endless")
cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)
cuda.cuCtxSynchronize()
