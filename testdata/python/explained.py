"""Hangs whose report must name more than the wait: explained.py CASE

As in wakers.py each case says what is true of it before it is ready. The words are the names, lines and advice that explain
the hang. Beside the hangs stand healthy twins, and it ends by itself after two minutes.
"""
import collections
import contextlib
import functools
import os
import signal
import socket
import sys
import threading
import time

from wakers import ready, start, truth

signal.alarm(120)
# Workers of a pool inherit no alarm, and wait for ever once their parent is gone.
os.register_at_fork(after_in_child=lambda: signal.alarm(120))


# A server that calls itself.

def call_itself(serve):
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    client.sendall(b"GET /\n")
    serve(server)
    ready()
    client.recv(100)


def server_calls_itself():
    truth("stuck", finding="pipe-without-writer", words=["backlog", "accept the connection", "call the function"])
    call_itself(lambda server: None)


def server_with_a_thread_that_accepts_later():
    truth("blocked")
    never = threading.Event()

    def serve(server):
        def later():
            never.wait(100)
            server.accept()[0].sendall(b"200")
        start(later)
    call_itself(serve)


# Locks that are kept.

def rows(lock):
    with lock:
        yield 1
        yield 2


def generator_keeps_a_lock():
    truth("stuck", "deadlock", finding="nobody-left-to-wake", asleep=1,
          words=["suspended generator", "close the generator", "explained.py:%d" % (rows.__code__.co_firstlineno + 1)])
    lock = threading.Lock()
    kept = rows(lock)
    next(kept)
    ready()
    with lock:
        pass


def generator_of_another_thread_that_goes_on():
    truth("blocked", asleep=2)
    lock, never = threading.Lock(), threading.Event()
    kept = rows(lock)
    next(kept)

    def finish():
        never.wait(100)
        kept.close()
    start(finish)
    ready()
    with lock:
        pass


def condition_under_a_lock(notify):
    guard, filled = threading.Lock(), threading.Condition()
    waiting = threading.Event()

    def read():
        with guard:
            with filled:
                waiting.set()
                filled.wait()

    def deliver():
        with guard:
            with filled:
                filled.notify()

    reader = start(read)
    waiting.wait()
    start(deliver)
    notify(filled)
    ready()
    reader.join()


def nested_monitor():
    truth("stuck", "deadlock", finding="nobody-left-to-wake", asleep=3, words=["keeps", "`guard`", "`filled`", "deliver"])
    condition_under_a_lock(lambda filled: None)


def nested_monitor_beside_one_that_notifies():
    truth("blocked", asleep=4)

    def notify(filled):
        def later():
            threading.Event().wait(100)
            with filled:
                filled.notify()
        start(later)
    condition_under_a_lock(notify)


# Names.

ORDER = dict(finding="lock-order-cycle", asleep=3)


def both(one, other, enter):
    met = threading.Barrier(2)
    threads = [start(enter, None, *order, met) for order in ((one, other), (other, one))]
    ready()
    for thread in threads:
        thread.join()


class Busy:
    """In the place of the barrier: who is inside has work to do."""
    wait = staticmethod(lambda: time.sleep(110))


def in_one_order(one, other, enter):
    """The healthy twin: both take them in one order, and the first goes on."""
    for _ in range(2):
        start(enter, None, one, other, Busy)
    ready()
    time.sleep(110)


class Store:
    def __init__(self):
        self._locks = collections.defaultdict(threading.Lock)
        self.users_lock, self.orders_lock = threading.Lock(), threading.Lock()

    def transfer(self, source, target, met):
        with self._locks[source]:
            met.wait()
            with self._locks[target]:
                pass

    def in_a_stack(self, one, other, met):
        with contextlib.ExitStack() as stack:
            stack.enter_context(one)
            met.wait()
            stack.enter_context(other)


def locks_by_text():
    truth("deadlock", words=["Store._locks['alice']", "Store._locks['bob']", "in the order of its arguments"], **ORDER)
    both("alice", "bob", Store().transfer)


def locks_by_text_in_one_order():
    truth("blocked", asleep=1, words=["Store._locks['alice']"])
    in_one_order("alice", "bob", Store().transfer)


def locks_by_number():
    truth("deadlock", words=["Store._locks[7]", "Store._locks[12]"], **ORDER)
    both(7, 12, Store().transfer)


def locks_by_number_in_one_order():
    truth("blocked", asleep=1, words=["Store._locks[7]"])
    in_one_order(7, 12, Store().transfer)


def locks_in_an_exit_stack():
    truth("deadlock", words=["Store.users_lock", "Store.orders_lock"], **ORDER)
    store = Store()
    both(store.users_lock, store.orders_lock, store.in_a_stack)


def locks_in_an_exit_stack_in_one_order():
    truth("blocked", asleep=1, words=["Store.users_lock"])
    store = Store()
    in_one_order(store.users_lock, store.orders_lock, store.in_a_stack)


def three_locks_in_one_order():
    truth("blocked", asleep=1, words=["`a_lock`"])
    a_lock, b_lock, c_lock = threading.Lock(), threading.Lock(), threading.Lock()

    def work(*_):
        with a_lock, b_lock, c_lock:
            Busy.wait()
    in_one_order(None, None, work)


def three_locks_in_one_statement():
    truth("deadlock", finding="lock-order-cycle", asleep=4, words=["`a_lock`", "`b_lock`", "`c_lock`"])
    a_lock, b_lock, c_lock = threading.Lock(), threading.Lock(), threading.Lock()
    met = threading.Barrier(3)

    class Meeting:
        def __enter__(self):
            met.wait()

        def __exit__(self, *error):
            pass

    def first():
        with a_lock, Meeting(), b_lock:
            pass

    def second():
        with b_lock, Meeting(), c_lock:
            pass

    def third():
        with c_lock, Meeting(), a_lock:
            pass

    threads = [start(function) for function in (first, second, third)]
    ready()
    for thread in threads:
        thread.join()


def cached_properties():
    if sys.version_info >= (3, 12):
        # It has no lock there: each thread computes the value.
        truth("blocked", asleep=1)
        ready()
        return threading.Event().wait(110)
    truth("deadlock", words=["Table.rows", "Index.keys"], **ORDER)
    met = threading.Barrier(2)

    class Table:
        @functools.cached_property
        def rows(self):
            met.wait()
            return index.keys

    class Index:
        @functools.cached_property
        def keys(self):
            met.wait()
            return table.rows

    table, index = Table(), Index()
    threads = [start(lambda: table.rows, "one"), start(lambda: index.keys, "other")]
    ready()
    for thread in threads:
        thread.join()


def cached_property_that_is_computed():
    truth("blocked", asleep=0 if sys.version_info >= (3, 12) else 1)

    class Table:
        @functools.cached_property
        def rows(self):
            Busy.wait()

    table = Table()
    in_one_order(None, None, lambda *_: table.rows)


# Work that waits for its own workers.

def thread_pool(workers, inner, *arguments):
    """A pool of `multiprocessing` of which two threads wait for work of the pool's own."""
    from multiprocessing.pool import ThreadPool
    pool, both = ThreadPool(workers), threading.Barrier(2)

    def outer(_):
        both.wait()
        return pool.apply(inner, arguments)
    result = pool.map_async(outer, range(2))
    ready()
    result.get()


def thread_pool_full_of_waiters():
    words = ["for which this thread itself must run abs()", "of outer (running)"]
    truth("deadlock", finding="executor-self-wait", asleep=5, words=words)
    thread_pool(2, abs, 1)


def thread_pool_with_room():
    truth("blocked", asleep=5, words=["of sleep (running)"])
    thread_pool(4, time.sleep, 110)


def pool_that_takes_no_more_answers():
    words = ["the thread that takes the pool's answers has ended"]
    truth("stuck", finding="pool-worker-died", asleep=2, words=words)
    import multiprocessing
    if hasattr(threading, "excepthook"):
        threading.excepthook = lambda _: None
    pool = multiprocessing.get_context("fork").Pool(1)
    result = pool.apply_async(Unreadable)
    pool._result_handler.join()
    ready()
    result.get()


class Unreadable:
    def __reduce__(self):
        return int, ("no number",)


def pool_whose_initialiser_fails():
    truth("running", "blocked", asleep=2, words=["its pool of 2 has come to worker"], asks_again=True)
    import multiprocessing
    pool = multiprocessing.get_context("fork").Pool(2, os._exit, (1,))
    result = pool.apply_async(abs, (1,))
    while max((worker._identity[0] for worker in list(pool._pool)), default=0) < 25:
        time.sleep(0.01)
    ready()
    result.get()


def pool_of_processes_in_whose_callback(work, *pools):
    """The callback of a future runs in the thread that manages the pool, and waits for work of the last of the pools."""
    done = threading.Event()

    def callback(_):
        ready()
        pools[-1].submit(*work).result()
        done.set()
    pools[0].submit(time.sleep, 0.2).add_done_callback(callback)
    done.wait()


def a_pool():
    import concurrent.futures
    import multiprocessing
    return concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork"))


def callback_of_a_pool_waits_for_the_same_pool():
    truth("stuck", finding="nobody-left-to-wake", asleep=2, words=["callback"])
    pool_of_processes_in_whose_callback([abs, 1], a_pool())


def callback_of_a_pool_waits_for_another():
    truth("blocked", asleep=2)
    pool_of_processes_in_whose_callback([time.sleep, 110], a_pool(), a_pool())


def takes(lock):
    lock.acquire()


def initialiser_of_a_pool(*initialiser):
    import concurrent.futures
    import multiprocessing
    context = multiprocessing.get_context("fork")
    pool = concurrent.futures.ProcessPoolExecutor(1, context, *initialiser)
    future = pool.submit(abs, 1)
    ready()
    future.result()


def initialiser_of_a_pool_takes_a_lock_of_the_parent():
    truth("suspected-deadlock", "deadlock", finding="pool-work-cycle", asleep=2, words=["takes"])
    import multiprocessing
    lock = multiprocessing.get_context("fork").Lock()
    with lock:
        initialiser_of_a_pool(takes, (lock,))


def initialiser_of_a_pool_is_slow():
    truth("blocked", asleep=1)
    initialiser_of_a_pool(time.sleep, (110,))


# Units of semaphores.

def semaphore_acquired_again():
    truth("stuck", asleep=1, words=["has a unit of `places` and waits for another one", "has a unit of BoundedSemaphore `places`"])
    places = threading.BoundedSemaphore(1)

    def visit(depth):
        places.acquire()
        try:
            if depth:
                visit(depth - 1)
        finally:
            places.release()
    ready()
    visit(1)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
