"""Threads that nobody is left to wake, by what they wait for: causes.py CASE."""
import asyncio
import concurrent.futures
import os
import queue
import signal
import sys
import threading
import time

signal.alarm(600)


def start(*functions):
    threads = [threading.Thread(target=function, name=function.__name__) for function in functions]
    for thread in threads:
        thread.start()
    return threads


def ready():
    print("READY pids=%d" % os.getpid(), flush=True)


def join(threads):
    ready()
    for thread in threads:
        thread.join()


def of_queue():
    jobs = queue.Queue()

    def producer():
        jobs.put(1)

    def consumer():
        while True:
            jobs.get()

    join(start(producer, consumer))


def of_full_queue():
    jobs = queue.Queue(maxsize=1)

    def producer():
        while True:
            jobs.put(1)

    join(start(producer))


def of_event():
    loaded = threading.Event()

    def server():
        loaded.wait()

    join(start(server))


def of_barrier():
    meeting = threading.Barrier(3)

    def early():
        meeting.wait()

    join(start(early, early))


def of_condition():
    changed = threading.Condition()

    def listener():
        with changed:
            changed.wait()

    join(start(listener))


def of_condition_under_a_lock():
    registry_lock, not_empty = threading.Lock(), threading.Condition()
    has_begun = threading.Event()
    items = []

    def consumer():
        with registry_lock:
            with not_empty:
                has_begun.set()
                while not items:
                    not_empty.wait()

    def producer():
        has_begun.wait()
        with registry_lock:
            with not_empty:
                items.append(1)
                not_empty.notify()

    join(start(consumer, producer))


def of_pool_of_units():
    slots = threading.Semaphore(2)
    both = threading.Barrier(2)

    def fetch():
        with slots:
            both.wait()
            with slots:
                pass

    join(start(fetch, fetch))


def of_units_behind_helpers():
    slots = threading.Semaphore(1)

    def details():
        with slots:
            pass

    def fetch():
        with slots:
            helper = threading.Thread(target=details, name="details", daemon=True)
            helper.start()
            helper.join()

    join(start(fetch))


def of_future():
    result = concurrent.futures.Future()

    def reader():
        result.result()

    join(start(reader))


def of_root():
    """The writer waits for an event of the loader, which waits at a queue whose producer has ended."""
    jobs, loaded = queue.Queue(), threading.Event()

    def loader():
        jobs.get()
        loaded.set()

    def writer():
        loaded.wait()

    threads = start(loader)
    time.sleep(0.05)
    threads += start(writer)
    ready()
    # The main thread waits for what the loader would do, too.
    loaded.wait()


def run(main):
    ready()
    asyncio.run(main())


def of_task_lock():
    """The first task has taken the lock, and ends without having released it."""

    async def writer(lock):
        await lock.acquire()

    async def reader(lock):
        async with lock:
            pass

    async def main():
        lock = asyncio.Lock()
        await asyncio.create_task(writer(lock), name="writer")
        await asyncio.create_task(reader(lock), name="reader")

    run(main)


def of_task_root():
    """Nobody sets the event that the consumer awaits; the group (3.11) waits for the consumer alone."""

    async def consumer(loaded):
        await loaded.wait()

    async def main():
        loaded = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(consumer(loaded), name="consumer")

    run(main)


def of_loop_and_thread():
    """The thread waits for the loop and holds the lock that the loop's thread wants."""
    state_lock, has_begun = threading.Lock(), threading.Event()

    async def save():
        pass

    def worker(loop):
        with state_lock:
            saved = asyncio.run_coroutine_threadsafe(save(), loop)
            has_begun.set()
            saved.result()

    async def main():
        threading.Thread(target=worker, args=(asyncio.get_running_loop(),), name="worker").start()
        has_begun.wait()
        with state_lock:
            pass

    run(main)


globals()["of_" + sys.argv[1]]()
