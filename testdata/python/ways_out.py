"""Hangs, and what looks like them and is none since something can still end it: ways_out.py CASE

Each case says what is true of it before it is ready, in a line of JSON: the verdicts that are right, a finding that it has (or
none), how many threads sleep in a futex, and words that a report of it must have. Beside each hang there are healthy twins, and
the same hang beside others that do not matter: a heartbeat, a busy thread, a handler. It ends by itself after two minutes.
"""
import asyncio
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

LAST = 120


def truth(*verdicts, finding=None, asleep=0, words=()):
    print("TRUTH " + json.dumps(dict(verdicts=verdicts, finding=finding, asleep=asleep, words=words)), flush=True)


def ready(*pids):
    print("READY pids=%s" % ",".join(map(str, pids or (os.getpid(),))), flush=True)


def start(function, name=None, *arguments):
    thread = threading.Thread(target=function, args=arguments, name=name or function.__name__, daemon=True)
    thread.start()
    return thread


def beat():
    while True:
        time.sleep(0.05)


def burn():
    count = 0
    while True:
        count += 1


STUCK = dict(finding="nobody-left-to-wake")


# Waits to be woken.

def get_alone():
    truth("stuck", asleep=1, **STUCK)
    jobs = queue.Queue()
    ready()
    jobs.get()


def get_beside_a_heartbeat():
    truth("stuck", asleep=1, words=["cannot reach it"], **STUCK)
    start(beat)
    jobs = queue.Queue()
    ready()
    jobs.get()


def get_beside_a_busy_thread():
    truth("stuck", asleep=1, **STUCK)
    start(burn)
    jobs = queue.Queue()
    ready()
    jobs.get()


def get_beside_one_who_may_put():
    truth("blocked", asleep=1)
    jobs = queue.Queue()

    def feed():
        time.sleep(LAST)
        jobs.put(1)

    start(feed)
    ready()
    jobs.get()


def get_beside_one_who_may_put_by_a_method():
    truth("blocked", asleep=1)

    class Feeder:
        def __init__(self, target):
            self.target = target

        def deliver(self):
            self.target.put(1)

        def run(self):
            time.sleep(LAST)
            self.deliver()

    jobs = queue.Queue()
    start(Feeder(jobs).run, "feeder")
    ready()
    jobs.get()


def get_beside_one_who_asks_by_name():
    truth("blocked", asleep=1)
    jobs = queue.Queue()
    places = {"jobs": jobs}

    def feed(name):
        time.sleep(LAST)
        getattr(places[name], "p" + "ut")(1)

    start(feed, "feeder", "jobs")
    ready()
    jobs.get()


def get_beside_a_timer():
    truth("blocked", asleep=2)
    jobs = queue.Queue()
    timer = threading.Timer(LAST, jobs.put, (1,))
    timer.daemon = True
    timer.start()
    ready()
    jobs.get()


def get_with_readline():
    truth("stuck", asleep=1, **STUCK)
    import readline  # noqa: F401, which installs a handler for SIGWINCH
    jobs = queue.Queue()
    ready()
    jobs.get()


def get_with_a_handler_that_puts():
    truth("blocked", asleep=1, words=["on_term"])
    jobs = queue.Queue()

    def on_term(*_):
        jobs.put(1)

    signal.signal(signal.SIGTERM, on_term)
    ready()
    jobs.get()


def get_with_a_handler_that_raises():
    truth("blocked", asleep=1, words=["on_term"])

    def on_term(*_):
        raise SystemExit

    signal.signal(signal.SIGTERM, on_term)
    ready()
    queue.Queue().get()


COUNT = 0


def on_usr1(*_):
    global COUNT
    COUNT += 1


def get_with_a_handler_that_counts():
    truth("stuck", asleep=1, **STUCK)
    signal.signal(signal.SIGUSR1, on_usr1)
    jobs = queue.Queue()
    ready()
    jobs.get()


def pool_of_its_own_waiters(*others):
    truth("stuck", asleep=3, **STUCK)
    jobs = queue.Queue()
    for other in others:
        start(other)

    def work():
        while True:
            done, depth = jobs.get()
            if depth:
                inner = threading.Event()
                jobs.put((inner, depth - 1))
                both.wait()
                inner.wait()
            done.set()

    both = threading.Barrier(2)
    outer = [threading.Event(), threading.Event()]
    for event in outer:
        jobs.put((event, 1))
    workers = [start(work, "worker-%d" % number) for number in range(2)]
    ready()
    outer[0].wait()
    del workers


def pool_of_its_own_waiters_beside_a_heartbeat():
    pool_of_its_own_waiters(beat)


# A plain lock that is no lock.

def gate_released_by_a_timer():
    truth("blocked", asleep=3)
    gate = threading.Lock()
    timer = threading.Timer(LAST, gate.release)
    timer.daemon = True
    timer.start()

    def pass_through():
        with gate:
            pass

    with gate:
        waiter = start(pass_through)
        ready()
        waiter.join()


def gate_released_by_a_thread():
    truth("blocked", asleep=2)
    gate = threading.Lock()
    gate.acquire()

    def pass_through():
        with gate:
            pass

    def open_it():
        time.sleep(LAST)
        gate.release()

    start(open_it)
    waiter = start(pass_through)
    ready()
    try:
        waiter.join()
    finally:
        gate.release()


def lock_order(*others):
    truth("deadlock", finding="lock-order-cycle", asleep=3)
    one, two, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def first():
        with one:
            both.wait()
            with two:
                pass

    def second():
        with two:
            both.wait()
            with one:
                pass

    for other in others:
        start(other)
    threads = [start(first), start(second)]
    ready()
    for thread in threads:
        thread.join()


def lock_order_beside_a_heartbeat():
    lock_order(beat)


def lock_order_beside_a_busy_thread():
    lock_order(burn)


def locks_with_time_limits():
    truth("blocked", "running")
    one, two = threading.Lock(), threading.Lock()

    def careful(here, there, pause):
        while True:
            with here:
                if there.acquire(timeout=0.3):
                    there.release()
            time.sleep(pause)

    start(careful, "first", one, two, 0.01)
    start(careful, "second", two, one, 0.01)
    ready()
    time.sleep(LAST)


def alarm_ends_the_wait():
    truth("blocked", asleep=2)

    class TooLong(Exception):
        pass

    def on_alarm(*_):
        raise TooLong

    signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(LAST)
    one, two, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def other():
        with two:
            both.wait()
            with one:
                pass

    start(other)
    try:
        with one:
            both.wait()
            ready()
            with two:
                pass
    except TooLong:
        pass


# Pipes.

def read_of_an_own_pipe():
    truth("stuck", finding="pipe-without-writer")
    reader, writer = os.pipe()
    ready()
    os.read(reader, 1)


def read_of_a_wakeup_pipe():
    truth("blocked")
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    ready()
    os.read(reader, 1)


def read_of_a_pipe_with_a_name():
    truth("blocked", words=["has a name"])
    path = os.path.join(tempfile.mkdtemp(), "fifo")
    os.mkfifo(path)
    both = os.open(path, os.O_RDWR)
    ready()
    os.read(both, 1)


def read_of_a_pipe_without_a_name():
    truth("stuck", finding="pipe-without-writer")
    path = os.path.join(tempfile.mkdtemp(), "fifo")
    os.mkfifo(path)
    both = os.open(path, os.O_RDWR)
    os.unlink(path)
    ready()
    os.read(both, 1)


def read_of_a_pipe_that_is_being_sent():
    truth("blocked")
    here, there = socket.socketpair()
    reader, writer = os.pipe()
    here.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, writer.to_bytes(4, sys.byteorder))])
    os.close(writer)
    ready()
    os.read(reader, 1)
    there.close()


CHILD = "import os, signal; signal.alarm(%d); print('up', flush=True); os.read(0, 1)" % LAST


def child_waits_for_its_end():
    truth("deadlock", finding="pipe-cycle")
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    ready(os.getpid(), child.pid)
    child.wait()


def child_waits_for_its_end_and_a_handler():
    truth("blocked", "suspected-deadlock")
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    signal.signal(signal.SIGTERM, lambda *_: child.stdin.close())
    ready(os.getpid(), child.pid)
    child.wait()


# Tasks of an event loop.

async def ring(one, two):
    both = asyncio.Event()
    inside = []

    async def through(first, then):
        async with first:
            inside.append(1)
            if len(inside) == 2:
                both.set()
            await both.wait()
            async with then:
                pass

    return [asyncio.ensure_future(through(one, two)), asyncio.ensure_future(through(two, one))]


async def awaited(tasks):
    ready()
    await asyncio.gather(*tasks)


def tasks_in_a_ring():
    truth("deadlock", finding="lock-order-cycle")

    async def main():
        await awaited(await ring(asyncio.Lock(), asyncio.Lock()))

    asyncio.run(main())


def tasks_in_a_ring_beside_a_heartbeat():
    truth("deadlock", finding="lock-order-cycle")

    async def pulse():
        while True:
            await asyncio.sleep(0.05)

    async def main():
        helper = asyncio.ensure_future(pulse())
        await awaited(await ring(asyncio.Lock(), asyncio.Lock()))
        helper.cancel()

    asyncio.run(main())


def tasks_in_a_ring_that_a_limit_ends():
    truth("blocked")

    async def main():
        tasks = await ring(asyncio.Lock(), asyncio.Lock())
        ready()
        await asyncio.gather(*(asyncio.wait_for(task, LAST) for task in tasks))

    asyncio.run(main())


def tasks_in_a_ring_that_a_supervisor_ends():
    truth("blocked")

    async def main():
        tasks = await ring(asyncio.Lock(), asyncio.Lock())
        ready()
        await asyncio.sleep(LAST)
        for task in tasks:
            task.cancel()

    asyncio.run(main())


def tasks_in_a_ring_that_a_thread_may_end():
    truth("blocked")

    async def main():
        tasks = await ring(asyncio.Lock(), asyncio.Lock())
        loop = asyncio.get_running_loop()

        def later():
            time.sleep(LAST)
            loop.call_soon_threadsafe(tasks[0].cancel)

        start(later)
        ready()
        await asyncio.gather(*tasks)

    asyncio.run(main())


# Forks.

def fork_beside_a_busy_parent():
    truth("orphaned-lock", finding="fork-orphaned-lock")
    lock, taken = threading.Lock(), threading.Event()

    def hold():
        with lock:
            taken.set()
            time.sleep(LAST)

    start(hold)
    taken.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(LAST)
        with lock:
            pass
        os._exit(0)
    ready(os.getpid(), child)
    burn()


CASES = {name: case for name, case in list(globals().items()) if callable(case) and getattr(case, "__module__", "") == __name__}

if __name__ == "__main__":
    signal.alarm(LAST)
    CASES[sys.argv[1]]()
