"""A stream comes to a Python function, which needs the GIL; who has it waits for the stream."""
import ctypes
import time

cuda = ctypes.PyDLL("libcuda.so.1")  # keeps the GIL during a call, as ctypes.CDLL does not
context = ctypes.c_void_p()
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def report_progress(data):
    time.sleep(1)  # then it needs the GIL
    print("half done")


cuda.cuLaunchHostFunc(None, report_progress, None)
cuda.cuStreamSynchronize(None)
