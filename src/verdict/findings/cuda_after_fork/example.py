"""CUDA is used before a fork and in the child, whose handler of the error waits for the parent."""
import ctypes
import multiprocessing

class CudaError(RuntimeError):
    pass

cuda = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
fork = multiprocessing.get_context("fork")
advice, adviser = fork.Pipe()

def work():
    try:
        error = cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(64))
        if error:
            raise CudaError("cuMemAlloc: error %d" % error)  # 3, CUDA_ERROR_NOT_INITIALIZED
    except CudaError:
        advice.recv()

child = fork.Process(target=work)
child.start()
child.join()
