"""A kernel fails, and the handler of the error waits for a thread that waits for the result."""
import ctypes
import queue
import threading

KERNEL = b""".version 7.0 .target sm_70 .address_size 64
.visible .entry wrong_address() { .reg .u64 %a; mov.u64 %a, 16; st.global.u32 [%a], 1; ret; }"""

class CudaError(RuntimeError):
    pass

cuda = ctypes.CDLL("libcuda.so.1")
context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
cuda.cuModuleLoadData(ctypes.byref(module), KERNEL)
cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"wrong_address")
results = queue.Queue()
consumer = threading.Thread(target=results.get)
consumer.start()
try:
    cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)
    error = cuda.cuCtxSynchronize()
    if error:
        raise CudaError("cuCtxSynchronize: error %d" % error)
    results.put("done")
except CudaError:
    consumer.join()
