"""Locks of Python that are taken in orders which do or do not differ, at different times: nothing hangs. What is said first is the truth.

orders.py CASE
"""

import ctypes
import os
import signal
import sys
import threading

CASE = sys.argv[1]
signal.alarm(60)
BAD = ["differ", "bare", "named", "named-timeout", "recursive", "named-recursive", "gil"]
TRUTH = "orders differ" if CASE in BAD else "orders do not differ"
print("orders differ, one after the other" if CASE == "joined" else TRUTH, flush=True)
kind = threading.RLock if CASE.endswith("recursive") else threading.Lock
ledger, journal, gate = kind(), kind(), kind()
# What tells a thread that it is its turn is no lock.
reading, writing = os.pipe()


class Account:
    def __init__(self):
        self.lock = threading.Lock()


def transfer(source, target):
    with source.lock:
        with target.lock:
            pass


accounts = [Account() for _ in range(4)]


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
    elif CASE in ("named", "named-recursive"):
        with journal:
            if ledger.acquire(timeout=-1, blocking=True):
                ledger.release()
    elif CASE == "named-timeout":
        with journal:
            if ledger.acquire(True, timeout=-1):
                ledger.release()
    elif CASE == "named-tried":
        with journal:
            if ledger.acquire(blocking=False):
                ledger.release()
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
    elif CASE == "instances":
        transfer(accounts[0], accounts[1])
    elif CASE == "gil":
        native.pthread_mutex_lock(mutex)
        native.pthread_mutex_unlock(mutex)
    elif CASE == "signals":
        with ledger:
            with changed:
                changed.wait(0.01)
    else:
        pay()


def second():
    if CASE == "gated":
        with gate:
            audit()
    elif CASE == "instances":
        transfer(accounts[3], accounts[2])
    elif CASE == "gil":
        released.pthread_mutex_lock(mutex)
        sum(range(10))
        released.pthread_mutex_unlock(mutex)
    elif CASE == "signals":
        with changed:
            changed.notify()
            with journal:
                pass
    else:
        audit()


changed = threading.Condition()
# One keeps the GIL, the other gives it back while it is in the call.
native, released = ctypes.PyDLL(None), ctypes.CDLL(None)
mutex = ctypes.create_string_buffer(64)
native.pthread_mutex_init(mutex, None)


def payer():
    first()
    if CASE == "one-thread":
        second()
    os.write(writing, b"x")


def auditor():
    os.read(reading, 1)
    if CASE != "one-thread":
        second()


threads = [threading.Thread(target=target, name=target.__name__) for target in (payer, auditor)]
for thread in threads:
    thread.start()
    if CASE == "joined":
        thread.join()
for thread in threads:
    thread.join()
