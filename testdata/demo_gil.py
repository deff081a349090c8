"""A deadlock of the GIL and a native mutex, with nothing but ctypes.

Thread "native-lock" locks a pthread mutex and goes on in Python, so it needs the GIL. The main thread then asks for
that mutex through ctypes.PyDLL, which keeps the GIL during the call. Says READY just before that call; ends by itself
after a minute or with its parent.
"""

import ctypes
import signal
import sys
import threading

signal.alarm(60)
releases_gil = ctypes.CDLL(None)
keeps_gil = ctypes.PyDLL(None)
releases_gil.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG

ERRORCHECK = 2  # records its owner in every libc, also in musl
# Larger than any libc's mutex, and aligned for one.
mutex = (ctypes.c_ulonglong * 16)()
attributes = (ctypes.c_ulonglong * 4)()
releases_gil.pthread_mutexattr_init(attributes)
releases_gil.pthread_mutexattr_settype(attributes, ERRORCHECK)
releases_gil.pthread_mutex_init(mutex, attributes)
locked = threading.Event()


def work_with_lock():
    releases_gil.pthread_mutex_lock(mutex)
    locked.set()
    while True:
        releases_gil.sched_yield()  # each return takes the GIL


def call_without_releasing():
    keeps_gil.pthread_mutex_lock(mutex)


threading.Thread(target=work_with_lock, name="native-lock", daemon=True).start()
locked.wait()
sys.stdout.write("READY\n")
sys.stdout.flush()
call_without_releasing()
