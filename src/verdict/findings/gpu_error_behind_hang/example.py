"""A kernel fails, the worker that learns of it stops, and the main thread waits for its result."""
import ctypes
import os
import queue
import threading

os.environ.update(CUDA_ENABLE_COREDUMP_ON_EXCEPTION="1", CUDA_COREDUMP_FILE="gpu.core",
                  CUDA_COREDUMP_GENERATION_FLAGS="skip_abort,skip_global_memory")
KERNEL = b""".version 7.0 .target sm_70 .address_size 64
.visible .entry wrong() { .reg .u64 %a; mov.u64 %a, 16; st.global.u32 [%a], 1; ret; }"""
cuda, results = ctypes.CDLL("libcuda.so.1"), queue.Queue()


def work():
    context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    cuda.cuInit(0)
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    cuda.cuCtxSetCurrent(context)
    cuda.cuModuleLoadData(ctypes.byref(module), KERNEL)
    cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"wrong")
    cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)
    cuda.cuCtxSynchronize()


threading.Thread(target=work).start()
results.get()
