"""Lock orders of Python that differ, in many shapes, at times at which they do not meet: by itself the program ends.

shapes.py SHAPE [KIND [GUARD [LIBRARY of CUDA's driver]]]

SHAPE says how locks are taken, KIND which locks they are, and GUARD what keeps the threads apart so that nothing can hang.
"""

import concurrent.futures
import contextlib
import ctypes
import functools
import logging
import os
import select
import sys
import threading
import time
import weakref

SHAPE, KIND, GUARD = (sys.argv[1:] + ["order", "lock", "none"][len(sys.argv) - 1:])[:3]
print("can hang" if GUARD == "none" else "cannot hang", flush=True)
COUNT = int(SHAPE[4:]) if SHAPE.startswith("ring") else 2
PAUSE = 0.7 if SHAPE == "late" else 0.06
KINDS = {"lock": threading.Lock, "rlock": threading.RLock, "condition": threading.Condition,
         "plain-condition": lambda: threading.Condition(threading.Lock())}
locks = [KINDS.get(KIND, threading.Lock)() for _ in range(COUNT)]
gate = threading.RLock()
# A pipe, which is no lock, shows a thread its turn.
ends = [os.pipe() for _ in range(COUNT)]


def both(one, other):
    with one:
        with other:
            pass


def even(one, other):
    with one:
        with other:
            pass


def odd(one, other):
    if GUARD in ("tried", "timed"):
        with one:
            if other.acquire(False) if GUARD == "tried" else other.acquire(timeout=3):
                other.release()
    else:
        with one:
            with other:
                pass


def bare(one, other):
    one.acquire()
    try:
        other.acquire(True, -1)
        other.release()
    finally:
        one.release()


def one_line(one, other):
    with one, other:
        pass


@contextlib.contextmanager
def held(lock):
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def managed(one, other):
    with held(one):
        with held(other):
            pass


def stacked(one, other):
    with contextlib.ExitStack() as stack:
        for lock in (one, other):
            stack.enter_context(lock)


def synchronized(method):
    @functools.wraps(method)
    def inner(self, *arguments):
        with self.lock:
            return method(self, *arguments)
    return inner


class Account:
    def __init__(self, lock):
        self.lock = lock

    @synchronized
    def transfer(self, other):
        other.receive()

    @synchronized
    def receive(self):
        pass


def decorated(one, other):
    Account(one).transfer(Account(other))


def generated(one, other):
    def steps():
        with one:
            yield
            with other:
                yield
    for _ in steps():
        pass


class Tracked:
    pass


def finalised(one, other):
    """The last reference goes away under a lock, and its finaliser takes the other."""
    def end():
        with other:
            pass
    tracked = Tracked()
    weakref.finalize(tracked, end)
    with one:
        del tracked


class Handler(logging.Handler):
    """Its own lock is taken by `handle`, and the application's lock within."""

    def emit(self, record):
        with locks[0]:
            pass


handler = Handler()


def logged(number):
    if number:
        handler.handle(logging.LogRecord("bank", 20, "", 0, "text", None, None))
    else:
        with locks[0]:
            handler.acquire()
            handler.release()


class Source:
    """Observers are called under the lock of what they observe."""

    def __init__(self, lock):
        self.lock, self.observers = lock, []

    def publish(self):
        with self.lock:
            for observer in self.observers:
                observer()


def observed(one, other):
    source = Source(one)
    source.observers.append(lambda: Source(other).publish())
    source.publish()


native, released = ctypes.PyDLL(None), ctypes.CDLL(None)
own = ctypes.create_string_buffer(128)
KIND_OF_NATIVE = {"mutex": ("pthread_mutex_lock", "pthread_mutex_unlock"),
                  "writer": ("pthread_rwlock_wrlock", "pthread_rwlock_unlock"),
                  "reader": ("pthread_rwlock_rdlock", "pthread_rwlock_unlock"),
                  "spinlock": ("pthread_spin_lock", "pthread_spin_unlock")}
if SHAPE == "gil":
    native["pthread_%s_init" % {"writer": "rwlock", "reader": "rwlock"}.get(KIND, KIND.replace("lock", ""))](own, None)


def gil(number):
    """The GIL is held while the native lock is taken; or the native lock while the GIL is."""
    take, give = KIND_OF_NATIVE[KIND]
    if number:
        released[take](own)
        sum(range(10))
        released[give](own)
    elif GUARD == "released":
        released[take](own)
        released[give](own)
    else:
        write = "pthread_rwlock_wrlock" if KIND == "reader" else take
        native[write](own)
        native[give](own)


def cuda(number):
    """As Numba and UCX-Py did in 2019: the driver calls Python back with its lock held; a launch holds the GIL."""
    library = sys.argv[4]
    driver, with_gil = ctypes.CDLL(library), ctypes.PyDLL(library)
    if GUARD == "released":
        with_gil = driver
    driver.cuInit(0)
    if number:
        grid, block = ctypes.c_int(), ctypes.c_int()
        sizes = ctypes.byref(grid), ctypes.byref(block)
        driver.cuOccupancyMaxPotentialBlockSize(*sizes, None, shared_memory, ctypes.c_size_t(0), 0)
    elif KIND == "launch":
        with_gil.cuLaunchKernel(b"kernel", 1, 1, 1, 1, 1, 1, 0, None, None, None)
    else:
        memory = ctypes.c_void_p()
        with_gil.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(16))


@ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int)
def shared_memory(block):
    return 0


def lazily(number):
    """A value that is made once, under a lock of its own; to make it takes the other."""
    if number:
        with locks[1]:
            make_once()
    else:
        with locks[0]:
            both(locks[1], gate)


def make_once():
    with locks[0]:
        pass


def joins():
    """A thread is joined under the lock that it takes."""
    def take():
        with locks[0]:
            pass

    thread = threading.Thread(target=take)
    thread.start()
    if GUARD == "before":
        thread.join()
    time.sleep(PAUSE)
    with locks[0]:
        if GUARD != "before":
            thread.join()


def wake_up():
    """A notification that nobody waits for is lost: the wait has to come first, and does, by itself."""
    condition, event = threading.Condition(), threading.Event()
    is_ready = []

    def wait():
        if KIND == "event":
            # It is cleared too late: a set before that is lost.
            event.clear()
            event.wait()
        else:
            with condition:
                if GUARD == "flag":
                    condition.wait_for(lambda: is_ready)
                else:
                    condition.wait()

    def notify():
        time.sleep(PAUSE)
        is_ready.append(1)
        if KIND == "event":
            event.set()
        else:
            with condition:
                condition.notify()

    pair = [threading.Thread(target=target) for target in (wait, notify)]
    for thread in pair:
        thread.start()
    for thread in pair:
        thread.join()


WAYS = {"order": odd, "bare": bare, "helper": both, "one-line": one_line, "managed": managed, "stacked": stacked,
        "decorated": decorated, "generated": generated, "finalised": finalised, "observed": observed}
NUMBERED = {"logged": logged, "gil": gil, "cuda": cuda, "lazily": lazily}


def turn(number):
    one, other = locks[number], locks[(number + 1) % COUNT]
    if GUARD == "sorted" and number == COUNT - 1:
        one, other = other, one
    with gate if GUARD == "gated" else contextlib.nullcontext():
        for _ in range(500 if SHAPE == "often" else 1):
            if SHAPE in NUMBERED:
                NUMBERED[SHAPE](number)
            elif SHAPE in WAYS and (SHAPE != "order" or number % 2):
                WAYS[SHAPE](one, other)
            elif number % 2:
                odd(one, other)
            else:
                even(one, other)


def member(number):
    if number and GUARD != "joined":
        select.select([ends[number - 1][0]], [], [], None if GUARD == "told" else PAUSE)
        if SHAPE == "late":
            time.sleep(PAUSE)
    for one in range(COUNT if GUARD == "one-thread" and not number else 0):
        turn(one)
    if GUARD != "one-thread":
        turn(number)
    os.write(ends[number][1], b"x")
    if SHAPE == "executor":
        # Each has a thread of its own.
        time.sleep(0.2)


def all_members():
    if SHAPE == "executor":
        with concurrent.futures.ThreadPoolExecutor(COUNT) as executor:
            list(executor.map(member, range(COUNT)))
        return
    if SHAPE == "timer":
        threads = [threading.Timer(0.01 + 0.05 * number, member, [number]) for number in range(COUNT)]
    else:
        threads = [threading.Thread(target=member, args=[number], name="member-%d" % number) for number in range(COUNT)]
    for thread in threads:
        thread.start()
        if GUARD == "joined":
            thread.join()
    for thread in threads:
        thread.join()


if SHAPE == "join":
    joins()
elif SHAPE == "wake-up":
    wake_up()
elif SHAPE == "forked":
    import multiprocessing
    process = multiprocessing.get_context("fork").Process(target=all_members)
    process.start()
    process.join()
    sys.exit(process.exitcode)
else:
    all_members()
