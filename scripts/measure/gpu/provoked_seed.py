"""The locks of the deadlock of 2019, taken at different times, so that it does not happen: provoked_seed.py LIBRARY [released]

One thread asks CUDA's driver for a block size and gives it a Python function to call, under the driver's lock. Another one launches a
kernel with the GIL held (ctypes.PyDLL); with `released` it gives the GIL back. On the stand-in of testdata/fakecuda kernels are names.
"""

import ctypes
import sys
import threading
import time

library, is_released = sys.argv[1], "released" in sys.argv
cuda, with_gil = ctypes.CDLL(library), ctypes.CDLL(library) if is_released else ctypes.PyDLL(library)
is_real = hasattr(cuda, "cuDevicePrimaryCtxRetain")


def check(result, call):
    if result:
        sys.exit(f"{call}: error {result}")


context, module, function, stream = (ctypes.c_void_p() for _ in range(4))
check(cuda.cuInit(0), "cuInit")
if is_real:
    device = ctypes.c_int()
    ptx = b".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k(){ ret; }\n"
    check(cuda.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    check(cuda.cuModuleLoadData(ctypes.byref(module), ptx), "cuModuleLoadData")
    check(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"k"), "cuModuleGetFunction")
    check(cuda.cuStreamCreate(ctypes.byref(stream), 1), "cuStreamCreate")
else:
    function = b"k"


@ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int)
def shared_memory(block):
    return 0


def occupancy():
    time.sleep(0.3)
    if is_real:
        check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    grid, block = ctypes.c_int(), ctypes.c_int()
    check(cuda.cuOccupancyMaxPotentialBlockSize(ctypes.byref(grid), ctypes.byref(block), function, shared_memory,
                                                ctypes.c_size_t(0), 1024 if is_real else 0), "cuOccupancyMaxPotentialBlockSize")


def launch():
    if is_real:
        check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    check(with_gil.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream if is_real else None, None, None), "cuLaunchKernel")
    time.sleep(0.6)


threads = [threading.Thread(target=target, name=target.__name__) for target in (occupancy, launch)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("did not hang")
