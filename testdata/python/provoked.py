"""Two threads take locks in different orders at different times, and nothing else keeps them apart. By itself the program ends.

Its first line says whether it can hang at all.

provoked.py CASE [LIBRARY of CUDA's driver]
"""

import ctypes
import logging
import logging.config
import os
import select
import sys
import threading

CASE = sys.argv[1]
CAN = ["differ", "bare", "recursive", "gil", "logging", "cuda"]
print("can hang" if CASE in CAN else "cannot hang", flush=True)
kind = threading.RLock if CASE == "recursive" else threading.Lock
ledger, journal, gate = kind(), kind(), kind()
# The second begins when the first has ended, and so does not meet it, or when that takes longer than it ever does by itself.
reading, writing = os.pipe()
# One keeps the GIL, the other gives it back while it is in the call.
native, released = ctypes.PyDLL(None), ctypes.CDLL(None)
mutex = ctypes.create_string_buffer(64)
native.pthread_mutex_init(mutex, None)
if CASE == "cuda":
    driver, driver_with_gil = ctypes.CDLL(sys.argv[2]), ctypes.PyDLL(sys.argv[2])
    driver.cuInit(0)


# The driver calls it back with a lock of its own held, and it takes the GIL.
@ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int)
def shared_memory(block):
    return 0


HANDLERS = {"version": 1, "handlers": {"h": {"class": "logging.StreamHandler"}}, "root": {"handlers": ["h"]}}
if CASE == "logging":
    logging.config.dictConfig(HANDLERS)


def pay():
    with ledger:
        with journal:
            pass


def audit():
    if CASE == "bare":
        journal.acquire()
        ledger.acquire(True, -1)
        ledger.release()
        journal.release()
    elif CASE == "tried":
        with journal:
            if ledger.acquire(False):
                ledger.release()
    elif CASE == "timed":
        with journal:
            if ledger.acquire(timeout=5):
                ledger.release()
    else:
        with journal:
            with ledger:
                pass


def first():
    if CASE == "gated":
        with gate:
            pay()
    elif CASE == "gil":
        native.pthread_mutex_lock(mutex)
        native.pthread_mutex_unlock(mutex)
    elif CASE == "cuda":
        driver_with_gil.cuLaunchKernel(b"kernel", 1, 1, 1, 1, 1, 1, 0, None, None, None)
    elif CASE == "logging":
        logging.shutdown()
    else:
        pay()


def second():
    if CASE == "gated":
        with gate:
            audit()
    elif CASE == "gil":
        released.pthread_mutex_lock(mutex)
        sum(range(10))
        released.pthread_mutex_unlock(mutex)
    elif CASE == "cuda":
        grid, block = ctypes.c_int(), ctypes.c_int()
        sizes = ctypes.byref(grid), ctypes.byref(block)
        driver.cuOccupancyMaxPotentialBlockSize(*sizes, None, shared_memory, ctypes.c_size_t(0), 0)
    elif CASE == "logging":
        logging.config.dictConfig(HANDLERS)
    elif CASE == "fixed":
        pay()
    else:
        audit()


def payer():
    first()
    if CASE == "one-thread":
        second()
    os.write(writing, b"x")


def clerk():
    select.select([reading], [], [], 0.06)
    if CASE != "one-thread":
        second()


threads = [threading.Thread(target=target, name=target.__name__) for target in (payer, clerk)]
for thread in threads:
    thread.start()
    if CASE == "joined":
        thread.join()
for thread in threads:
    thread.join()
