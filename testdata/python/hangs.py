"""Hangs of the standard library's own making: hangs.py CASE [FOLDER]

Each case says what it is before it is ready, in a line of JSON: verdict, finding, the threads of the cycle (or the one that
waits), words that a report of it must have, and how many threads sleep in a futex. It ends by itself after two minutes.
"""
import json
import os
import signal
import sys
import threading
import time

signal.alarm(120)


def truth(verdict, finding, threads, asleep, *words):
    said = dict(verdict=verdict, finding=finding, threads=sorted(threads), asleep=asleep, words=words)
    print("TRUTH " + json.dumps(said), flush=True)


def ready(*pids):
    print("READY pids=%s" % ",".join(map(str, pids or (os.getpid(),))), flush=True)


def start(function, name, *arguments):
    thread = threading.Thread(target=function, args=arguments, name=name)
    thread.start()
    return thread


def start_and_join(*functions):
    threads = [start(function, function.__name__) for function in functions]
    ready()
    for thread in threads:
        thread.join()


# Locks.

def lock_order():
    truth("deadlock", "lock-order-cycle", ["orders", "users"], 3, "Lock `lock_users`", "Lock `lock_orders`")
    lock_users, lock_orders, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def orders():
        with lock_orders:
            both.wait()
            with lock_users:
                pass

    def users():
        with lock_users:
            both.wait()
            with lock_orders:
                pass

    start_and_join(orders, users)


def both_in_order(one, other, both):
    with one:
        both.wait()
        with other:
            pass


def names_of_parameters():
    truth("deadlock", "lock-order-cycle", ["there", "back"], 3, "holds Lock `locks[0]`", "holds Lock `locks[1]`")
    locks, both = [threading.Lock(), threading.Lock()], threading.Barrier(2)

    def there():
        both_in_order(*locks, both)

    def back():
        both_in_order(*reversed(locks), both)

    start_and_join(there, back)


LEDGER, JOURNAL = threading.Lock(), threading.Lock()


def names_of_globals():
    truth("deadlock", "lock-order-cycle", ["there", "back"], 3, "took Lock `LEDGER`", "waits for Lock `JOURNAL`")
    both = threading.Barrier(2)

    def there():
        both_in_order(LEDGER, JOURNAL, both)

    def back():
        both_in_order(JOURNAL, LEDGER, both)

    start_and_join(there, back)


def recursive_order():
    truth("deadlock", "lock-order-cycle", ["first", "second"], 3, "RLock `one`", "RLock `two`", "owner field")
    one, two, both = threading.RLock(), threading.RLock(), threading.Barrier(2)

    def first():
        with one, one:
            both.wait()
            two.acquire()

    def second():
        two.acquire()
        both.wait()
        with one:
            pass

    start_and_join(first, second)


def bare_order():
    truth("suspected-deadlock", "lock-order-cycle", ["first", "second"], 3, "calls acquire and release")
    one, two, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def first():
        one.acquire()
        try:
            both.wait()
            two.acquire()
            two.release()
        finally:
            one.release()

    def second():
        two.acquire()
        try:
            both.wait()
            one.acquire()
            one.release()
        finally:
            two.release()

    start_and_join(first, second)


class Cache:
    def __init__(self):
        self._lock = threading.Lock()

    def evict(self):
        with self._lock:
            pass

    def put(self):
        with self._lock:
            self.evict()


def own_lock():
    truth("deadlock", "self-deadlock", ["put"], 2, "Lock `Cache._lock`", "Cache.evict" if sys.version_info >= (3, 11) else "evict")
    start_and_join(Cache().put)


def condition_lock():
    """Who waits for a condition has given its lock back; who has it now is another."""
    truth("deadlock", "lock-order-cycle", ["holder", "other"], 4, "Condition `condition`")
    condition, lock, both = threading.Condition(threading.Lock()), threading.Lock(), threading.Barrier(2)
    waits = threading.Event()

    def waiter():
        with condition:
            waits.set()
            condition.wait()

    def holder():
        waits.wait()
        with condition:
            both.wait()
            with lock:
                pass

    def other():
        with lock:
            both.wait()
            with condition:
                pass

    start_and_join(waiter, holder, other)


def behind_contextlib():
    truth("deadlock", "lock-order-cycle", ["by_generator", "by_stack"], 3, "ExitStack", "a generator")
    import contextlib
    one, two, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    @contextlib.contextmanager
    def managed(lock):
        with lock:
            yield

    def by_generator():
        with managed(one):
            both.wait()
            with two:
                pass

    def by_stack():
        with contextlib.ExitStack() as stack:
            stack.enter_context(two)
            both.wait()
            with one:
                pass

    start_and_join(by_generator, by_stack)


def in_a_generator():
    """Nobody asks the generator to go on."""
    truth("stuck", "nobody-left-to-wake", ["waits"], 2, "Lock `lock`")
    lock = threading.Lock()

    def steps():
        with lock:
            yield 1

    started = steps()
    next(started)

    def waits():
        with lock:
            pass

    start_and_join(waits)
    started.close()


class Deferred:
    def __init__(self, lock):
        self.me, self.lock = self, lock

    def __del__(self):
        with self.lock:
            pass


def finaliser():
    truth("deadlock", "lock-taken-again-in-finaliser", ["worker"], 2, "__del__", "Lock `Deferred.lock`")
    import gc
    lock = threading.Lock()

    def worker():
        Deferred(lock)
        with lock:
            gc.collect()

    start_and_join(worker)


def signal_handler():
    truth("deadlock", "lock-taken-again-in-signal-handler", ["MainThread"], 1, "on_usr1", "work")
    lock = threading.Lock()

    def on_usr1(number, frame):
        with lock:
            pass

    def work():
        with lock:
            ready()
            os.kill(os.getpid(), signal.SIGUSR1)
            for _ in range(1000000):
                pass

    signal.signal(signal.SIGUSR1, on_usr1)
    work()


# Threads, imports, pools.

def join_under_lock():
    truth("deadlock", "join-cycle", ["MainThread", "refresh"], 2, "RLock `lock`", "thread `refresh`")
    lock, taken = threading.RLock(), threading.Event()

    def refresh():
        taken.wait()
        with lock:
            pass

    thread = start(refresh, "refresh")
    with lock:
        taken.set()
        ready()
        thread.join()


def joined_import():
    truth("deadlock", "import-cycle", ["MainThread", "importer"], 2, "import lock of module `half_imported`")
    with open(os.path.join(sys.argv[2], "half_imported.py"), "w") as module:
        module.write("import __main__\n__main__.start(__main__.imports, 'importer').join()\n")
    sys.path.insert(0, sys.argv[2])
    ready()
    import half_imported


def imports():
    import half_imported


def own_pool():
    truth("deadlock", "executor-self-wait", ["pool_0"], 2, "of inner (queued)", "Future.result" if sys.version_info >= (3, 11) else "result")
    from concurrent.futures import ThreadPoolExecutor
    pool = ThreadPoolExecutor(1, thread_name_prefix="pool")

    def inner():
        pass

    def outer():
        return pool.submit(inner).result()

    task = pool.submit(outer)
    ready()
    task.result()


# Nobody left to wake.

def event():
    truth("stuck", "nobody-left-to-wake", ["server"], 2, "Event `loaded`")
    loaded = threading.Event()

    def server():
        loaded.wait()

    start_and_join(server)


def full_queue():
    truth("stuck", "nobody-left-to-wake", ["producer"], 2, "Queue `jobs` (maxsize 1, full)")
    import queue
    jobs = queue.Queue(1)

    def producer():
        while True:
            jobs.put(1)

    start_and_join(producer)


def empty_queue():
    truth("stuck", "nobody-left-to-wake", ["consumer"], 2, "SimpleQueue `jobs`")
    import queue
    jobs = queue.SimpleQueue()

    def consumer():
        jobs.get()

    start_and_join(consumer)


def unfinished_queue():
    truth("stuck", "nobody-left-to-wake", ["MainThread"], 1, "Queue `jobs` (1 unfinished)")
    import queue
    jobs = queue.Queue()
    jobs.put(1)
    jobs.get()
    ready()
    jobs.join()


def semaphore():
    truth("stuck", "nobody-left-to-wake", ["taker"], 2, "Semaphore `places` (value 0)")
    places = threading.Semaphore(1)

    def taker():
        places.acquire()
        places.acquire()

    start_and_join(taker)


def barrier():
    truth("stuck", "nobody-left-to-wake", ["early"], 2, "Barrier `meeting` (1 of 2 parties here)")
    meeting = threading.Barrier(2)

    def early():
        meeting.wait()

    start_and_join(early)


# asyncio.

def lock_across_await():
    truth("deadlock", "self-deadlock", ["MainThread"], 1, "Lock `token`", "event-loop-blocked")
    import asyncio
    token = threading.Lock()

    async def refresh():
        with token:
            await asyncio.sleep(0.05)

    async def request():
        await asyncio.sleep(0)
        with token:
            pass

    async def both():
        await asyncio.gather(refresh(), request())

    ready()
    asyncio.run(both())


def order_of_tasks():
    truth("deadlock", "lock-order-cycle", [], 0, "asyncio.Lock `one`", "asyncio.Lock `two`", "async with", "holds asyncio.Lock")
    import asyncio

    async def take(first, second, taken, other):
        async with first:
            taken.set()
            await other.wait()
            async with second:
                pass

    async def both():
        one, two, a, b = asyncio.Lock(), asyncio.Lock(), asyncio.Event(), asyncio.Event()
        await asyncio.gather(take(one, two, a, b), take(two, one, b, a))

    ready()
    asyncio.run(both())


# Processes.

def left_by_fork():
    truth("orphaned-lock", "fork-orphaned-lock", ["MainThread"], 2, "Lock `lock`", "fork copied the lock")
    lock, taken, never = threading.Lock(), threading.Event(), threading.Event()

    def holder():
        with lock:
            taken.set()
            never.wait()

    start(holder, "holder")
    taken.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(120)
        with lock:
            pass
    ready(child, os.getpid())
    os.waitpid(child, 0)


def process_lock():
    truth("deadlock", "lock-order-cycle", ["MainThread", "MainThread"], 2, "multiprocessing lock `second`", "count = 1")
    import multiprocessing
    context = multiprocessing.get_context("fork")
    one, two, both = context.Lock(), context.Lock(), context.Barrier(2)

    def take(first, second):
        signal.alarm(120)
        with first:
            both.wait()
            with second:
                pass

    child = context.Process(target=take, args=(one, two))
    child.start()
    ready(os.getpid(), child.pid)
    take(two, one)


class AtTheEnd:
    def __init__(self, lock):
        self.lock = lock
        self.write, self.line = os.write, b"READY pids=%d\n" % os.getpid()

    def __del__(self):
        self.write(1, self.line)
        with self.lock:
            pass


def lost_task():
    truth("stuck", "pool-worker-died", ["MainThread"], 2, "MapResult", "1 part of the work", "hands out no task twice")
    import multiprocessing
    context = multiprocessing.get_context("fork")
    pool = context.Pool(2)
    result = pool.map_async(end_at_five, range(20), chunksize=1)
    # All answers but the one are there, and the dead worker's place is taken.
    while result._number_left > 1 or len(multiprocessing.active_children()) < 2 or not all_read(pool._pool):
        time.sleep(0.01)
    ready(os.getpid(), *(worker.pid for worker in pool._pool))
    result.get()


def busy_pool():
    """The healthy twin: workers with one task each are replaced, and one has a long task."""
    truth("blocked", "", ["MainThread"], 1)
    import multiprocessing
    context = multiprocessing.get_context("fork")
    pool = context.Pool(2, maxtasksperchild=3)
    result = pool.map_async(sleep_at_five, range(20), chunksize=1)
    while result._number_left > 1 or len(multiprocessing.active_children()) < 2:
        time.sleep(0.01)
    ready(os.getpid(), *(worker.pid for worker in pool._pool))
    result.get()


def sleep_at_five(number):
    if number == 5:
        time.sleep(100)


def end_at_five(number):
    if number == 5:
        os._exit(1)
    return number


def all_read(workers):
    """Whether each worker sleeps: reading a pipe, or behind the one that does. In a root without /proc nobody can tell."""
    if not os.path.exists("/proc/self"):
        return True
    calls = []
    for worker in list(workers):
        try:
            calls.append(open("/proc/%d/syscall" % worker.pid).read().split()[0])
        except (OSError, IndexError):
            return False
    return len(calls) == 2 and all(call in ("0", "202") for call in calls)


def native_calls():
    """Calls that keep the thread attached to the interpreter, and a native mutex."""
    import ctypes
    library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
    library.pthread_mutex_init(mutex, None)
    return library, lambda: library.pthread_mutex_lock(mutex)


def critical_section():
    """list.sort() is in the critical section of the list, and its key function wants a native mutex without detaching."""
    truth("deadlock", "lock-order-cycle", ["appender", "sorter"], 3, "list `shared`", "is in the critical section", "mutex")
    _, take = native_calls()
    shared, in_sort, taken, attached = [3, 1, 2], threading.Event(), threading.Event(), []

    def key(number):
        in_sort.set()
        # Detached: the section is given back until this thread has come back.
        taken.wait()
        attached.append(True)
        take()
        return number

    def sorter():
        shared.sort(key=key)

    def appender():
        take()
        in_sort.wait()
        taken.set()
        while not attached:
            time.sleep(0.001)
        shared.append(4)

    start_and_join(sorter, appender)


def busy_section():
    """The healthy twins: a section of a call that ends, and one that is given back while its thread is detached."""
    truth("blocked", "", ["appender"], 3)
    library, _ = native_calls()
    shared, given_back, in_sort, never = [3, 1, 2], [3, 1, 2], threading.Semaphore(0), threading.Event()

    def key(number):
        in_sort.release()
        library.sleep(100)
        return number

    def detached(number):
        in_sort.release()
        never.wait(100)
        return number

    start(lambda: shared.sort(key=key), "sorter")
    start(lambda: given_back.sort(key=detached), "detached")
    in_sort.acquire()
    in_sort.acquire()
    given_back.append(4)
    start(lambda: shared.append(4), "appender")
    ready()
    threading.Event().wait(100)


def end_of_the_program():
    """The end stops the daemon thread inside of its block."""
    # None: the main thread sleeps. Without a GIL the daemon thread sleeps, too, or has ended.
    truth("orphaned-lock", "finalizing-interpreter", [], None, "Lock `AtTheEnd.lock`", "is being finalised")
    import builtins
    lock, taken = threading.Lock(), threading.Event()

    def daemon():
        with lock:
            taken.set()
            while True:
                pass

    threading.Thread(target=daemon, daemon=True).start()
    taken.wait()
    builtins.kept_to_the_end = AtTheEnd(lock)


globals()[sys.argv[1]]()
