"""The driver keeps a lock while it calls a Python function; who has the GIL wants that lock."""
import ctypes
import threading
import time

KERNEL = b".version 7.0 .target sm_70 .address_size 64\n.visible .entry empty() { ret; }"
releasing, keeping = ctypes.CDLL("libcuda.so.1"), ctypes.PyDLL("libcuda.so.1")  # keeps the GIL
context, module, kernel, memory = [ctypes.c_void_p() for _ in range(4)]
releasing.cuInit(0)
releasing.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
releasing.cuCtxSetCurrent(context)
releasing.cuModuleLoadData(ctypes.byref(module), KERNEL)
releasing.cuModuleGetFunction(ctypes.byref(kernel), module, b"empty")
called, sizes = threading.Event(), (ctypes.c_int * 2)()

@ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int)
def shared_memory(block_size):
    called.set()
    time.sleep(1)  # then it needs the GIL
    return 0

def query_occupancy():
    both = ctypes.byref(sizes), ctypes.byref(sizes, 4)
    releasing.cuCtxSetCurrent(context)
    releasing.cuOccupancyMaxPotentialBlockSize(*both, kernel, shared_memory, ctypes.c_size_t(0), 0)

threading.Thread(target=query_occupancy).start()
called.wait()
keeping.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(64))
