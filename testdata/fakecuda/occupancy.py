"""The deadlock of 2019, as Numba 0.45 and UCX-Py made it: occupancy.py LIBRARY CALL

One thread asks the driver for a block size and gives it a Python function to call; the driver holds its lock meanwhile.
Another one makes CALL with the GIL held (ctypes.PyDLL, as a C extension that forgets to release it)."""
import ctypes
import os
import signal
import sys
import threading

signal.alarm(120)
# A thread that has the GIL keeps it until it blocks.
sys.setswitchinterval(120)
library, call = sys.argv[1:3]
releasing, holding = ctypes.CDLL(library), ctypes.PyDLL(library)
releasing.cuInit(0)
entered, go = threading.Event(), threading.Event()


@ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int)
def shared_memory_per_block(block):
    entered.set()
    go.wait()
    return block


def query_occupancy():
    grid, block = ctypes.c_int(), ctypes.c_int()
    sizes = ctypes.byref(grid), ctypes.byref(block)
    releasing.cuOccupancyMaxPotentialBlockSize(*sizes, None, shared_memory_per_block, ctypes.c_size_t(0), 0)


def launch():
    entered.wait()
    go.set()
    getattr(holding, call)(None, None, None, None)


threads = [threading.Thread(target=query_occupancy, name="occupancy"), threading.Thread(target=launch, name="launcher")]
# The reader of the pipe is told before the threads start: afterwards nobody can print.
print("READY pids=%d" % os.getpid(), flush=True)
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
