"""A function that runs in a stream waits for that stream."""
import ctypes

cuda = ctypes.CDLL("libcuda.so.1")
context, stream = ctypes.c_void_p(), ctypes.c_void_p()
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
cuda.cuStreamCreate(ctypes.byref(stream), 0)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def finish(data):
    cuda.cuStreamSynchronize(stream)  # the stream goes on when this function has returned


cuda.cuLaunchHostFunc(stream, finish, None)
cuda.cuStreamSynchronize(stream)
