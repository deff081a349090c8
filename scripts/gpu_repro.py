"""Hangs on a real GPU: gpu_repro.py cuLaunchKernel|cuMemAlloc_v2|hostfunc|spin

cuLaunchKernel, cuMemAlloc_v2: the deadlock of 2019. A thread asks the driver for a block size with a Python callback
(ctypes.CDLL, as Numba 0.45 did); the driver holds a lock of the context for writing while it calls back. The main thread
makes a driver call with the GIL held (ctypes.PyDLL).
hostfunc: the main thread synchronises a stream with the GIL held; the stream waits for a host function in Python.
spin: no deadlock: a kernel that never ends, one thread waits for its stream, one for an event behind it."""
import ctypes
import os
import signal
import sys
import threading
import time

signal.alarm(300)
call = sys.argv[1] if len(sys.argv) > 1 else "cuLaunchKernel"
releasing, holding = ctypes.CDLL("libcuda.so.1"), ctypes.PyDLL("libcuda.so.1")
PTX = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry empty() { ret; }
.visible .entry endless() { again: bra again; }
"""


def check(result, what):
    if result:
        raise RuntimeError("%s: error %d" % (what, result))


check(releasing.cuInit(0), "cuInit")
device, context, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
check(releasing.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
check(releasing.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
check(releasing.cuCtxSetCurrent(context), "cuCtxSetCurrent")
check(releasing.cuModuleLoadData(ctypes.byref(module), PTX), "cuModuleLoadData")
check(releasing.cuModuleGetFunction(ctypes.byref(function), module, b"empty"), "cuModuleGetFunction")

in_callback = threading.Event()
BlockToShared = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int)


@BlockToShared
def shared_memory_per_block(block):
    in_callback.set()
    # The GIL is given up here, and is asked for again while the driver's lock is still held.
    time.sleep(0.5)
    return 0


def query_occupancy():
    check(releasing.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    grid, block = ctypes.c_int(), ctypes.c_int()
    releasing.cuOccupancyMaxPotentialBlockSize(
        ctypes.byref(grid), ctypes.byref(block), function, shared_memory_per_block, ctypes.c_size_t(0), 0)


def step():
    if call == "cuLaunchKernel":
        holding.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None)
    else:
        holding.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(1 << 20))


def host_function_case():
    stream = ctypes.c_void_p()
    check(releasing.cuStreamCreate(ctypes.byref(stream), 1), "cuStreamCreate")
    HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    gate = HostFunction(lambda _: time.sleep(0.5))
    report_progress = HostFunction(lambda _: print("the host function ran", flush=True))
    for one in (gate, report_progress):
        check(releasing.cuLaunchHostFunc(stream, one, None), "cuLaunchHostFunc")
    print("READY pids=%d" % os.getpid(), flush=True)
    check(holding.cuStreamSynchronize(stream), "cuStreamSynchronize")


def endless_kernel_case():
    stream, event, endless = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    check(releasing.cuModuleGetFunction(ctypes.byref(endless), module, b"endless"), "cuModuleGetFunction")
    check(releasing.cuStreamCreate(ctypes.byref(stream), 1), "cuStreamCreate")
    # CU_EVENT_BLOCKING_SYNC: the waiter sleeps.
    check(releasing.cuEventCreate(ctypes.byref(event), 1), "cuEventCreate")
    check(releasing.cuLaunchKernel(endless, 1, 1, 1, 1, 1, 1, 0, stream, None, None), "cuLaunchKernel")
    check(releasing.cuEventRecord(event, stream), "cuEventRecord")

    def wait(call, handle):
        check(releasing.cuCtxSetCurrent(context), "cuCtxSetCurrent")
        call(handle)

    for name, wait_for, handle in (
        ("waits-for-stream", releasing.cuStreamSynchronize, stream),
        ("waits-for-event", releasing.cuEventSynchronize, event),
    ):
        threading.Thread(target=wait, args=(wait_for, handle), name=name, daemon=True).start()
    print("READY pids=%d" % os.getpid(), flush=True)
    time.sleep(200)


if call == "hostfunc":
    host_function_case()
elif call == "spin":
    endless_kernel_case()
else:
    threading.Thread(target=query_occupancy, name="occupancy").start()
    in_callback.wait()
    print("READY pids=%d" % os.getpid(), flush=True)
    step()
