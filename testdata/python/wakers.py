"""Hangs, and what looks like them and is none since something can still end it: wakers.py CASE

Each case says what is true of it before it is ready, in a line of JSON: the verdicts that are right, a finding that it has (or
none), how many threads sleep in a futex, and words that a report of it must have. Beside each hang there are healthy twins, and
the same hang beside others that do not matter: a heartbeat, a busy thread, a handler. It ends by itself after two minutes.
"""
import asyncio
import json
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

LAST = 120


def truth(*verdicts, finding=None, asleep=0, words=(), asks_again=False):
    said = dict(verdicts=verdicts, finding=finding, asleep=asleep, words=words, asks_again=asks_again)
    print("TRUTH " + json.dumps(said), flush=True)


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


# Ways that no name in a thread's code leads to.

def event_beside(helper):
    """Main waits for an event beside a thread that runs `helper`, which the event is not given to."""
    start(helper)
    ready()
    EVENT.wait()


EVENT = threading.Event()


def doze():
    time.sleep(LAST)


def event_that_a_hook_sets():
    truth("blocked")

    def hook(_):
        EVENT.set()

    if hasattr(threading, "excepthook"):
        threading.excepthook = hook
    event_beside(doze)


def event_that_a_log_handler_sets():
    truth("blocked")
    import logging

    class Notice(logging.Handler):
        def emit(self, _):
            EVENT.set()

    logging.getLogger().addHandler(Notice())
    event_beside(doze)


def event_that_the_output_sets():
    truth("blocked")

    class Output:
        def __init__(self, inner):
            self.inner = inner

        def write(self, text):
            self.inner.write(text)
            if "the end" in text:
                EVENT.set()

        def flush(self):
            self.inner.flush()

    sys.stdout = Output(sys.stdout)
    event_beside(lambda: (time.sleep(LAST), print("the end")))


def event_that_the_collector_sets():
    truth("blocked")
    import gc

    def watch(*_):
        if time.monotonic() > began + LAST:
            EVENT.set()

    began = time.monotonic()
    gc.callbacks.append(watch)
    event_beside(doze)


def allocate():
    while True:
        time.sleep(0.05)
        [[] for _ in range(10)]


def event_that_garbage_sets():
    truth("blocked")
    import gc
    gc.collect()
    gc.set_threshold(1 << 30)

    class Last:
        def __init__(self):
            self.event, self.own = EVENT, self

        def __del__(self):
            self.end()

        def end(self):
            self.event.set()

    Last()
    event_beside(allocate)
    del Last


class Closed:
    def __init__(self):
        self.own = self

    def __del__(self):
        self.note = "gone"


def event_that_garbage_does_not_set():
    truth("stuck", asleep=1, **STUCK)
    import gc
    gc.collect()
    gc.set_threshold(1 << 30)
    Closed()
    event_beside(allocate)


def event_that_what_is_kept_for_garbage_sets():
    truth("blocked")
    import gc
    import weakref
    gc.collect()
    gc.set_threshold(1 << 30)
    thing = Thing()
    thing.own = thing
    weakref.finalize(thing, EVENT.set)
    del thing
    event_beside(allocate)


def event_that_a_partial_with_attributes_sets():
    truth("blocked")
    import functools
    later = functools.partial(EVENT.set)
    later.note = "of C, with a dictionary"
    event_beside(lambda: (time.sleep(LAST), later()))


class Thing:
    pass


def event_that_a_weak_reference_sets():
    import weakref
    truth("blocked")
    thing = Thing()
    kept = weakref.ref(thing, lambda _: EVENT.set())
    holder = threading.Thread(target=lambda held: time.sleep(LAST), args=(thing,), daemon=True)
    holder.start()
    del thing, holder
    ready()
    EVENT.wait()
    del kept


def event_that_a_finaliser_sets():
    import weakref
    truth("blocked")
    thing = Thing()
    weakref.finalize(thing, EVENT.set)
    holder = threading.Thread(target=lambda held: time.sleep(LAST), args=(thing,), daemon=True)
    holder.start()
    del thing, holder
    ready()
    EVENT.wait()


def event_that_a_method_by_name_sets():
    import operator
    truth("blocked")
    event, act = threading.Event(), operator.methodcaller("set")

    def later():
        time.sleep(LAST)
        act(event)

    start(later)
    ready()
    event.wait()


def event_that_a_message_sets():
    truth("blocked")
    import multiprocessing
    here, there = multiprocessing.Pipe()
    if os.fork() == 0:
        signal.alarm(LAST)
        time.sleep(LAST)
        there.send(EVENT.set)
    there.close()

    def serve():
        while True:
            here.recv()()

    event_beside(serve)


def event_beside_a_module(end):
    """Main runs a module's code that has defined what sets the event, and is at its end."""
    code = """
import os, threading, time
opened, lock = threading.Event(), threading.Lock()
def give():
    opened.set()
def holds():
    with lock:
        opened.wait()
def wants():
    with lock:
        pass
def begin(function):
    threading.Thread(target=function, name=function.__name__).start()
begin(holds)
time.sleep(0.2)
begin(wants)
print("READY pids=%d" % os.getpid(), flush=True)
"""
    os.execv(sys.executable, [sys.executable, "-c", code + end])


def event_beside_a_module_that_has_defined_what_sets_it():
    truth("stuck", **STUCK)
    event_beside_a_module("while True:\n    time.sleep(0.05)")


def event_beside_a_module_that_will_set_it():
    truth("blocked")
    event_beside_a_module(f"time.sleep({LAST})\ngive()")


def event_beside_a_module_whose_loop_sets_it():
    truth("blocked")
    event_beside_a_module(f"done = False\nwhile not done:\n    if done:\n        give()\n    time.sleep({LAST})")


def event_that_an_audit_hook_sets():
    truth("blocked")

    def install(event):
        sys.addaudithook(lambda what, _: event.set() if what == "open" else None)

    install(EVENT)
    event_beside(doze)


def event_that_a_monitor_sets():
    truth("blocked")

    def install(event):
        monitoring = getattr(sys, "monitoring", None)
        if monitoring is None:
            # Before 3.12.
            sys.addaudithook(lambda what, _: event.set() if what == "open" else None)
        else:
            monitoring.use_tool_id(0, "wakers")
            monitoring.register_callback(0, monitoring.events.PY_RETURN, lambda *_: event.set())
            monitoring.set_local_events(0, doze.__code__, monitoring.events.PY_RETURN)

    install(EVENT)
    event_beside(doze)


def event_that_an_error_handler_of_codecs_sets():
    truth("blocked")
    import codecs

    def install(event):
        codecs.register_error("wakers", lambda error: (event.set() or "", error.end))

    install(EVENT)
    event_beside(doze)


def event_that_a_format_sets():
    truth("blocked")

    class Gives:
        @property
        def value(self):
            EVENT.set()

    def later(gives):
        time.sleep(LAST)
        "{0.value}".format(gives)

    start(later, "later", Gives())
    ready()
    EVENT.wait()


def event_that_a_function_for_warnings_sets():
    truth("blocked")
    import warnings

    def install(event):
        warnings.showwarning = lambda *_: event.set()

    def later():
        time.sleep(LAST)
        warnings.warn("now")

    install(EVENT)
    event_beside(later)


def child_is_joined_before_its_results_are_read():
    truth("deadlock", finding="pipe-cycle")
    import multiprocessing
    # The C library may send signals, but only to the thread that calls it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=results.put, args=(b"x" * (1 << 20),), daemon=True)
    child.start()
    ready(os.getpid(), child.pid)
    child.join()


def of_processes(wait, *more):
    import multiprocessing
    context = multiprocessing.get_context("fork")
    event = context.Event()
    worker = context.Process(target=event.wait, daemon=True)
    worker.start()
    for function in more:
        start(lambda: function(event))
    ready(os.getpid(), worker.pid)
    wait(worker)


def event_of_processes_that_nobody_sets():
    truth("stuck", **STUCK)
    of_processes(lambda worker: worker.join())


def event_of_processes_that_a_thread_sets():
    truth("blocked")

    def later(event):
        doze()
        event.set()

    of_processes(lambda worker: worker.join(), later)


def queue_of_processes_whose_consumer_ended():
    truth("stuck", **STUCK)
    import multiprocessing
    context = multiprocessing.get_context("fork")
    jobs = context.JoinableQueue()
    consumer = context.Process(target=jobs.get, daemon=True)
    consumer.start()
    jobs.put(1)
    consumer.join()
    ready()
    jobs.join()


def event_that_a_class_of_the_library_sets():
    truth("blocked")
    import socketserver

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            EVENT.set()

    server = socketserver.TCPServer(("127.0.0.1", 0), Handler)
    event_beside(server.serve_forever)


def event_beside_a_loop(prepare):
    loop = asyncio.new_event_loop()
    prepare(loop)
    event_beside(loop.run_forever)


def event_that_a_timer_of_a_loop_sets():
    truth("blocked")
    event_beside_a_loop(lambda loop: loop.call_later(LAST, EVENT.set))


def event_that_a_task_sets():
    truth("blocked")

    async def later():
        await asyncio.sleep(LAST)
        EVENT.set()

    event_beside_a_loop(lambda loop: asyncio.run_coroutine_threadsafe(later(), loop))


def event_beside_an_idle_loop():
    truth("stuck", **STUCK)
    event_beside_a_loop(lambda loop: None)


def future_of_a_loop_in_another_thread():
    truth("blocked")
    loop = asyncio.new_event_loop()
    start(loop.run_forever, "loop")

    async def later():
        await asyncio.sleep(LAST)

    future = asyncio.run_coroutine_threadsafe(later(), loop)
    ready()
    future.result()


def future_of_a_loop_that_never_comes():
    truth("stuck", **STUCK)
    loop = asyncio.new_event_loop()
    start(loop.run_forever, "loop")

    async def never():
        await loop.create_future()

    future = asyncio.run_coroutine_threadsafe(never(), loop)
    ready()
    future.result()


def futures_as_they_complete():
    from concurrent import futures
    truth("blocked")
    with futures.ThreadPoolExecutor(1) as pool:
        future = pool.submit(time.sleep, LAST)
        ready()
        for done in futures.as_completed([future]):
            print(done)


def semaphore_of_those_who_sleep():
    truth("blocked", asleep=1)
    places = threading.Semaphore(2)

    def work():
        with places:
            both.wait()
            time.sleep(LAST)

    both = threading.Barrier(3)
    start(work)
    start(work)
    both.wait()
    ready()
    places.acquire()


def semaphore_of_those_who_want_more():
    truth("stuck", asleep=3, words=["has a unit of Semaphore `places`"], **STUCK)
    places = threading.Semaphore(2)

    def work():
        with places:
            both.wait()
            with places:
                pass

    both = threading.Barrier(2)
    threads = [start(work), start(work), start(beat)]
    ready()
    threads[0].join()


def barrier_whose_third_comes_later():
    truth("blocked", asleep=2)
    meeting = threading.Barrier(3)

    def later():
        time.sleep(LAST)
        meeting.wait()

    start(meeting.wait, "first")
    start(later)
    ready()
    meeting.wait()


def barrier_whose_third_never_comes():
    truth("stuck", asleep=2, **STUCK)
    meeting = threading.Barrier(3)
    start(meeting.wait, "first")
    start(beat)
    ready()
    meeting.wait()


def lock_of_a_generator_that_another_closes():
    truth("blocked", asleep=1)
    lock = threading.Lock()

    def keep():
        with lock:
            yield

    kept = keep()
    next(kept)

    def later():
        time.sleep(LAST)
        kept.close()

    start(later)
    ready()
    lock.acquire()


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


def lock_order_of_parameters():
    """One function has the same names for both."""
    truth("deadlock", finding="lock-order-cycle", asleep=2, words=["`left` of", "`right` of"])
    barrier = threading.Barrier(2)

    def transfer(source, target):
        with source:
            barrier.wait()
            with target:
                pass

    left, right = threading.Lock(), threading.Lock()
    threads = [start(transfer, "forth", left, right), start(transfer, "back", right, left)]
    ready()
    threads[0].join()


def bare_lock_order(*others):
    """As lock_order, without blocks: one releases in a `finally`, one does not."""
    truth("deadlock", "suspected-deadlock", finding="lock-order-cycle", asleep=3)
    one, two, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def first():
        one.acquire()
        both.wait()
        two.acquire()
        two.release()
        one.release()

    def second():
        two.acquire()
        try:
            both.wait()
            one.acquire()
            one.release()
        finally:
            two.release()

    for other in others:
        start(other)
    threads = [start(first), start(second)]
    ready()
    for thread in threads:
        thread.join()


def bare_lock_order_beside_a_heartbeat():
    bare_lock_order(beat)


class Guarded:
    def __init__(self):
        self.lock = threading.Lock()


def bare_lock_order_of_attributes():
    truth("deadlock", "suspected-deadlock", finding="lock-order-cycle", asleep=3)
    one, two, both = Guarded(), Guarded(), threading.Barrier(2)

    def move(here, there):
        here.lock.acquire()
        both.wait()
        there.lock.acquire()

    threads = [start(move, "first", one, two), start(move, "second", two, one)]
    ready()
    threads[0].join()


def bare_locks_that_another_has():
    """The same shape, but the lock that the second waits for was given back by the first, and a third has it."""
    truth("blocked", asleep=3)
    one, two, given = Guarded(), Guarded(), threading.Barrier(3)

    def first():
        one.lock.acquire()
        one.lock.release()
        given.wait()
        later.wait()
        two.lock.acquire()

    def second():
        two.lock.acquire()
        given.wait()
        later.wait()
        one.lock.acquire()

    class Third:
        def take(self):
            one.lock.acquire()

        def run(self):
            given.wait()
            self.take()
            later.wait()
            time.sleep(LAST)
            one.lock.release()

    later = threading.Barrier(3)
    threads = [start(first), start(second), start(Third().run, "third")]
    ready()
    threads[0].join()


def gates_that_a_third_opens():
    truth("blocked", asleep=3)
    one, two = threading.Lock(), threading.Lock()
    one.acquire()
    two.acquire()

    def pass_through(here, there):
        here.acquire()
        there.release()

    def later():
        time.sleep(LAST)
        one.release()

    threads = [start(pass_through, "first", one, two), start(pass_through, "second", two, one), start(later)]
    ready()
    threads[0].join()


def join_of_one_who_waits_for_main(*others):
    truth("stuck", **STUCK)
    event = threading.Event()
    for other in others:
        start(other)
    waiter = start(event.wait, "waiter")
    ready()
    waiter.join()
    event.set()


def join_of_one_who_waits_for_main_beside_a_heartbeat():
    join_of_one_who_waits_for_main(beat)


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


# A process that sends a descriptor through a socket, by default one that it alone has, and nobody takes it.
SENDER = """
import os, signal, socket, sys
signal.alarm(%d)
here, there = socket.socketpair()
here.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, os.pipe()[1].to_bytes(4, sys.byteorder))])
print("sent", flush=True)
sys.stdin.read()
""" % LAST


def start_sender(*shared):
    sender = subprocess.Popen([sys.executable, "-c", SENDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=shared)
    sender.stdout.readline()
    # Of what is made now it is certain that it is younger: the kernel tells when a process began in hundredths of a second.
    began = time.monotonic()
    while time.monotonic() < began + 0.1:
        pass
    return sender


def read_of_an_own_pipe_beside_a_sender():
    truth("stuck", finding="pipe-without-writer", words=["have none in common"])
    sender = start_sender()
    reader, writer = os.pipe()
    ready()
    os.read(reader, 1)
    del sender


def read_of_an_own_pipe_beside_a_sender_who_may_have_it():
    truth("blocked")
    reader, writer = os.pipe()
    sender = start_sender()
    ready()
    os.read(reader, 1)
    del sender


def read_of_an_own_pipe_beside_a_sender_who_may_get_it():
    truth("blocked")
    here, there = socket.socketpair()
    sender = start_sender(there.fileno())
    reader, writer = os.pipe()
    ready()
    os.read(reader, 1)
    del sender


CHILD = "import os, signal; signal.alarm(%d); print('up', flush=True); os.read(0, 1)" % LAST


def read_of_an_own_pipe_beside_a_heartbeat():
    truth("stuck", finding="pipe-without-writer", words=["its code uses no descriptor"])
    start(beat)
    reader, writer = os.pipe()
    ready()
    os.read(reader, 1)


def read_of_an_own_pipe_beside_one_who_may_write():
    truth("blocked")
    reader, writer = os.pipe()

    def feed():
        time.sleep(LAST)
        os.write(writer, b"x")

    start(feed)
    ready()
    os.read(reader, 1)


def read_of_an_own_pipe_beside_one_with_a_file_of_it():
    truth("blocked")
    reader, writer = os.pipe()
    out = os.fdopen(writer, "w")
    start(lambda: (time.sleep(LAST), print("x", file=out)))
    ready()
    os.read(reader, 1)


def full_pipes(*others):
    """A child and its parent write to each other, and neither reads."""
    if others:
        start(others[0])
    (mine, theirs), (other, own) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(LAST)
        os.close(mine)
        os.close(own)
        os.write(theirs, bytes(1 << 20))
        os.read(other, 1)
        os._exit(0)
    os.close(theirs)
    os.close(other)
    for run in others[1:]:
        start(run, "reader", mine)
    select.select([mine], [], [])
    ready(child, os.getpid())
    os.write(own, bytes(1 << 20))
    os.read(mine, 1)


def pipes_that_are_full():
    truth("deadlock", finding="pipe-cycle")
    full_pipes()


def pipes_that_are_full_beside_a_heartbeat():
    truth("suspected-deadlock", finding="pipe-cycle")
    full_pipes(beat)


def pipes_that_are_full_beside_a_busy_thread():
    truth("suspected-deadlock", finding="pipe-cycle")
    full_pipes(burn)


def pipes_that_are_full_beside_one_who_may_read():
    truth("blocked")

    def empty(number):
        time.sleep(LAST)
        os.read(number, 1 << 20)

    full_pipes(beat, empty)


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


def any_child_waits_for_its_end():
    truth("deadlock", finding="pipe-cycle")
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    ready()
    os.wait()


def any_child_waits_for_its_end_and_another_sleeps():
    truth("blocked")
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    other = subprocess.Popen(["sleep", str(LAST)])
    ready(os.getpid(), child.pid, other.pid)
    os.wait()


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
    truth("deadlock", finding="lock-order-cycle", words=["`left`", "`right`"])

    async def main():
        left, right = asyncio.Lock(), asyncio.Lock()
        await awaited(await ring(left, right))

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


def locks_in_a_ring_beside_a_loop_that_turns():
    truth("deadlock", finding="lock-order-cycle", asleep=2)

    def work(number):
        with locks[number]:
            both.wait()
            with locks[1 - number]:
                pass

    def gives(one):
        one.release()

    def takes(one):
        one.acquire()

    async def turn(number):
        # What it can call changes all the time: by what it reads at one instant it gives locks back and takes none.
        known = {}
        while True:
            known[number] = gives
            known[-number] = takes
            known = dict(known) if len(known) < 200 else {}
            number += 4
            await asyncio.sleep(0.0002)

    async def main():
        loop = asyncio.get_running_loop()
        # The loop reaches the threads' work, and by it the locks.
        started = [loop.run_in_executor(None, work, number) for number in (0, 1)]
        turns = [asyncio.ensure_future(turn(number)) for number in range(1, 5)]
        ready()
        await asyncio.gather(*started, *turns)

    locks, both = (threading.Lock(), threading.Lock()), threading.Barrier(2)
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


def tasks_in_a_ring_that_a_timeout_ends():
    truth("blocked")

    async def main():
        tasks = await ring(asyncio.Lock(), asyncio.Lock())
        ready()
        # From 3.11 on; the same before.
        if hasattr(asyncio, "timeout"):
            async with asyncio.timeout(LAST):
                await asyncio.gather(*tasks)
        await asyncio.wait_for(asyncio.gather(*tasks), LAST)

    asyncio.run(main())


def tasks_in_a_ring_that_a_signal_ends():
    truth("suspected-deadlock", finding="lock-order-cycle")

    async def main():
        tasks = await ring(asyncio.Lock(), asyncio.Lock())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, tasks[0].cancel)
        await awaited(tasks)

    asyncio.run(main())


class Trouble(Exception):
    pass


def tasks_in_a_ring_beside_one_that_raises():
    truth("blocked")

    async def watch():
        await asyncio.sleep(LAST)
        raise Trouble

    async def main():
        tasks = await ring(asyncio.Lock(), asyncio.Lock())
        ready()
        await asyncio.gather(asyncio.ensure_future(watch()), *tasks)

    asyncio.run(main())


def tasks_in_a_ring_gathered_with_a_heartbeat():
    truth("deadlock", finding="lock-order-cycle")

    async def pulse():
        while True:
            await asyncio.sleep(1)

    async def main():
        tasks = await ring(asyncio.Lock(), asyncio.Lock())
        ready()
        await asyncio.gather(asyncio.ensure_future(pulse()), *tasks)

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


# Locks of multiprocessing.

def shared_lock_whose_taker_ended():
    truth("orphaned-lock", "blocked", finding="dead-process-holds-lock", asleep=1)
    import multiprocessing
    context = multiprocessing.get_context("fork")
    lock = context.Lock()
    child = context.Process(target=lambda: (lock.acquire(), os._exit(0)))
    child.start()
    child.join()
    ready()
    lock.acquire()


def shared_lock_whose_taker_ended_beside_a_worker(*others):
    truth("orphaned-lock", "blocked", finding="dead-process-holds-lock", asleep=1)
    import multiprocessing
    context = multiprocessing.get_context("fork")
    lock = context.Lock()
    here, there = context.Pipe()

    def work():
        signal.alarm(LAST)
        with open(os.devnull) as quiet:
            here.recv()
            with lock:
                quiet.read()

    worker = context.Process(target=work, daemon=True)
    worker.start()
    child = context.Process(target=lambda: (lock.acquire(), os._exit(0)))
    child.start()
    child.join()
    start(beat)
    ready(os.getpid(), worker.pid)
    with lock:
        there.send(1)


def shared_lock_that_a_worker_gives_back():
    truth("blocked", asleep=1)
    import multiprocessing
    context = multiprocessing.get_context("fork")
    gate = context.Lock()
    gate.acquire()

    def give_back():
        signal.alarm(LAST)
        time.sleep(LAST)
        gate.release()

    worker = context.Process(target=give_back, daemon=True)
    worker.start()
    ready()
    gate.acquire()


def shared_lock_taken_twice_beside_a_worker():
    truth("deadlock", finding="self-deadlock", asleep=1)
    import multiprocessing
    context = multiprocessing.get_context("fork")
    lock = context.Lock()

    def work():
        signal.alarm(LAST)
        time.sleep(LAST)
        with lock:
            pass

    worker = context.Process(target=work, daemon=True)
    worker.start()
    ready()
    with lock:
        with lock:
            pass


def shared_semaphore_that_nobody_posts():
    truth("blocked", "stuck", asleep=1, words=["multiprocessing semaphore"])
    import multiprocessing
    places = multiprocessing.get_context("fork").Semaphore(0)
    ready()
    places.acquire()


def shared_event_that_nobody_sets():
    truth("blocked", "stuck", asleep=1)
    import multiprocessing
    event = multiprocessing.get_context("fork").Event()
    ready()
    event.wait()


def shared_lock_whose_taker_lives():
    truth("blocked", asleep=1)
    import multiprocessing
    context = multiprocessing.get_context("fork")
    lock, taken = context.Lock(), context.Event()

    def keep():
        signal.alarm(LAST)
        with lock:
            taken.set()
            time.sleep(LAST)

    keeper = context.Process(target=keep, daemon=True)
    keeper.start()
    taken.wait()
    ready()
    lock.acquire()


def executor_of_processes(kept, *others):
    """A worker of a pool wants a lock that its parent has, or sleeps."""
    import concurrent.futures
    import contextlib
    import multiprocessing
    global WANTED, BEGUN
    context = multiprocessing.get_context("fork")
    WANTED, BEGUN = context.Lock(), os.pipe()
    pool = concurrent.futures.ProcessPoolExecutor(1, mp_context=context)
    with WANTED if kept else contextlib.nullcontext():
        future = pool.submit(want)
        worker = int(os.read(BEGUN[0], 20))
        for other in others:
            start(other)
        ready(worker, os.getpid())
        future.result()


def executor_whose_thread_wants_a_lock_of_main():
    truth("deadlock", finding="pool-work-cycle", asleep=2)
    import concurrent.futures
    lock = threading.Lock()

    def take():
        with lock:
            pass

    pool = concurrent.futures.ThreadPoolExecutor(1)
    with lock:
        future = pool.submit(take)
        ready()
        future.result()


def want():
    signal.alarm(LAST)
    os.write(BEGUN[1], b"%d" % os.getpid())
    with WANTED:
        time.sleep(LAST)


def executor_whose_worker_wants_a_lock_of_its_parent():
    truth("deadlock", "suspected-deadlock", finding="pool-work-cycle", asleep=3)
    executor_of_processes(True)


def executor_whose_worker_wants_a_lock_of_its_parent_beside_a_heartbeat():
    truth("deadlock", "suspected-deadlock", finding="pool-work-cycle", asleep=3)
    executor_of_processes(True, beat)


def executor_whose_worker_sleeps():
    truth("blocked", asleep=2)
    executor_of_processes(False)


# Locks on files.

def file_lock_of(kept):
    """A child has the lock on a file that this process wants, and sleeps or wants one that this process has."""
    import fcntl
    folder = tempfile.mkdtemp()
    own, wanted = (os.path.join(folder, name) for name in ("own", "wanted"))
    for name in own, wanted:
        open(name, "w").close()
    here, there = os.pipe()
    mine = open(own)
    if kept:
        fcntl.flock(mine, fcntl.LOCK_EX)
    if os.fork() == 0:
        signal.alarm(LAST)
        mine.close()
        theirs, other = open(wanted), open(own)
        fcntl.flock(theirs, fcntl.LOCK_EX)
        os.write(there, b"x")
        fcntl.flock(other, fcntl.LOCK_EX)
        time.sleep(LAST)
    os.read(here, 1)
    ready()
    with open(wanted) as other:
        fcntl.flock(other, fcntl.LOCK_EX)


def file_locks_in_both_orders():
    truth("deadlock", finding="file-lock-cycle")
    file_lock_of(True)


def file_lock_of_a_child_that_sleeps():
    truth("blocked")
    file_lock_of(False)


def file_lock_that_a_child_shares():
    """Each process has the open file whose lock it is, so that the child may give it back as well."""
    import fcntl
    truth("blocked")
    with tempfile.NamedTemporaryFile() as mine, open(mine.name) as again:
        fcntl.flock(mine, fcntl.LOCK_EX)
        if os.fork() == 0:
            signal.alarm(LAST)
            time.sleep(LAST)
        ready()
        fcntl.flock(again, fcntl.LOCK_EX)


# Waits with a time-out that are made again and again: for ever, or with another way out.

PERIOD = 30
AGAIN = dict(asleep=1, words=["after each time-out"], asks_again=True)


def event_waited_for_again():
    truth("stuck", **STUCK, **AGAIN)
    done = threading.Event()
    ready()
    while not done.wait(PERIOD):
        pass


def event_waited_for_again_unless_a_limit_is_given(limit=None):
    truth("stuck", **STUCK, **AGAIN)
    done = threading.Event()
    ready()
    while True:
        if done.wait(PERIOD):
            break
        if limit is not None:
            limit -= 1
            if limit < 0:
                raise TimeoutError


def item_asked_for_again():
    truth("stuck", **STUCK, **AGAIN)
    jobs = queue.Queue()
    ready()
    while True:
        try:
            return jobs.get(timeout=PERIOD)
        except queue.Empty:
            continue


def locks_asked_for_again():
    truth("suspected-deadlock", asleep=2, words=["after each time-out"], asks_again=True)
    ledger, journal, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def take(first, then):
        with first:
            both.wait()
            while not then.acquire(timeout=PERIOD):
                pass

    start(take, "other", journal, ledger)
    ready()
    take(ledger, journal)


def event_waited_for_again_and_counted():
    truth("blocked", asleep=1)
    done, count = threading.Event(), 0
    ready()
    while not done.wait(0.5):
        count += 1
        if count == 240:
            return


def event_waited_for_again_until_a_time():
    truth("blocked", asleep=1)
    done, end = threading.Event(), time.monotonic() + LAST
    ready()
    while not done.wait(0.5):
        if time.monotonic() > end:
            return


def event_waited_for_again_by_a_computed_limit():
    truth("blocked", asleep=1)

    class Limit:
        end = time.monotonic() + LAST

        @property
        def left(self):
            if time.monotonic() > self.end:
                raise TimeoutError
            return 0.5

    done, limit = threading.Event(), Limit()
    ready()
    while not done.wait(limit.left):
        pass


def event_waited_for_again_that_another_sets():
    truth("blocked", asleep=2)
    done = threading.Event()
    timer = threading.Timer(LAST, done.set)
    timer.daemon = True
    timer.start()
    ready()
    while not done.wait(0.5):
        pass


def item_asked_for_again_until_told_otherwise():
    truth("blocked", asleep=1)
    jobs, worker = queue.Queue(), threading.current_thread()
    worker.goes_on = True

    def end():
        time.sleep(LAST)
        worker.goes_on = False

    start(end)
    ready()
    while worker.goes_on:
        try:
            jobs.get(timeout=0.5)
        except queue.Empty:
            pass


def lock_asked_for_again_that_gives_up_its_own():
    truth("blocked", asleep=2)
    ledger, journal, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def take():
        with journal:
            both.wait()
            with ledger:
                pass

    start(take)
    ledger.acquire()
    both.wait()
    ready()
    count = 0
    while not journal.acquire(timeout=0.5):
        count += 1
        if count == 240:
            ledger.release()


UNTIL = dict(asleep=2, words=["as long as nothing changes"], asks_again=True)


def jobs_of_a_worker_who_died():
    """A worker took the only job and ended without task_done()."""
    jobs = queue.Queue()
    jobs.put(1)
    thread = threading.Thread(target=jobs.get)
    thread.start()
    thread.join()
    return jobs


def asks_until_stopped(jobs, stopped):
    while not stopped.is_set():
        try:
            jobs.get(timeout=PERIOD)
        except queue.Empty:
            continue
        jobs.task_done()


def stops_when_all_jobs_are_done(*others):
    jobs, stopped = jobs_of_a_worker_who_died(), threading.Event()
    start(asks_until_stopped, "worker", jobs, stopped)
    for other in others:
        start(other)
    ready()
    jobs.join()
    stopped.set()


def jobs_asked_for_again_until_an_event():
    truth("stuck", **STUCK, **UNTIL)
    stops_when_all_jobs_are_done()


def jobs_asked_for_again_until_an_event_beside_a_heartbeat():
    truth("stuck", **STUCK, **UNTIL)
    stops_when_all_jobs_are_done(beat)


def jobs_asked_for_again_until_an_event_that_another_sets():
    truth("blocked", asleep=1)
    jobs, stopped = queue.Queue(), threading.Event()

    def stop():
        time.sleep(LAST)
        stopped.set()

    start(stop)
    ready()
    asks_until_stopped(jobs, stopped)


def jobs_asked_for_again_until_an_event_that_a_handler_sets():
    truth("blocked", asleep=1)
    jobs, stopped = queue.Queue(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    ready()
    asks_until_stopped(jobs, stopped)


def jobs_asked_for_again_while_another_lives():
    """As a loader of batches does; the other wants a lock that the loader has."""
    truth("stuck", "suspected-deadlock", **UNTIL)
    batches, ledger = queue.Queue(), threading.Lock()

    def pin():
        with ledger:
            batches.put(1)

    with ledger:
        other = start(pin)
        ready()
        while other.is_alive():
            try:
                return batches.get(timeout=PERIOD)
            except queue.Empty:
                pass


def jobs_asked_for_again_while_another_lives_who_ends():
    truth("blocked", asleep=1)
    batches = queue.Queue()
    other = start(time.sleep, "other", LAST)
    ready()
    while other.is_alive():
        try:
            return batches.get(timeout=PERIOD)
        except queue.Empty:
            pass


def jobs_asked_for_again_while_another_lives_whose_lock_comes():
    truth("blocked", asleep=2)
    batches, ledger, taken = queue.Queue(), threading.Lock(), threading.Event()

    def keep():
        with ledger:
            taken.set()
            time.sleep(LAST)

    start(keep)
    taken.wait()
    other = start(lambda: ledger.acquire(), "other")
    ready()
    while other.is_alive():
        try:
            return batches.get(timeout=PERIOD)
        except queue.Empty:
            pass


def jobs_asked_for_again_until_an_event_that_comes_after_a_lock():
    truth("blocked", asleep=2)
    jobs, stopped, ledger, taken = queue.Queue(), threading.Event(), threading.Lock(), threading.Event()

    def keep():
        with ledger:
            taken.set()
            time.sleep(LAST)

    def stop():
        with ledger:
            stopped.set()

    start(keep)
    taken.wait()
    start(stop)
    ready()
    asks_until_stopped(jobs, stopped)


class Job:
    """What tells somebody when it ends."""

    def __init__(self, tell):
        self.tell = tell

    def __del__(self):
        self.tell()


def jobs_asked_for_again_until_the_last_job_ends():
    truth("blocked", asleep=1)
    jobs, stopped = queue.Queue(), threading.Event()
    job = Job(stopped.set)
    ready()
    while not stopped.is_set():
        try:
            job = jobs.get(timeout=PERIOD)
        except queue.Empty:
            job = None
    del job


STOPPED = threading.Event()


def jobs_asked_for_again_until_an_event_that_another_replaces():
    truth("blocked", asleep=1)

    def replace():
        global STOPPED
        time.sleep(LAST)
        STOPPED = ended

    jobs, ended = queue.Queue(), threading.Event()
    ended.set()
    start(replace)
    ready()
    while not STOPPED.is_set():
        try:
            jobs.get(timeout=PERIOD)
        except queue.Empty:
            pass


def jobs_asked_for_again_that_another_adds_without_a_word():
    truth("blocked", asleep=1)
    jobs = queue.Queue()

    def add(items):
        time.sleep(LAST)
        items.append(1)

    start(add, "add", jobs.queue)
    ready()
    while True:
        try:
            return jobs.get(timeout=PERIOD)
        except queue.Empty:
            pass


class Loader:
    """Asks for jobs as torch's DataLoader does: the loop and the wait are in two functions."""
    phase = "running"

    def __init__(self, *helpers):
        self.jobs, self.helpers, self.used = queue.Queue(), list(helpers), [True] * len(helpers)
        self.ended, self.parts = [], {"loader": "running"}

    def ask(self, timeout=PERIOD):
        try:
            job = self.jobs.get(timeout=timeout)
            return True, job
        except Exception as error:
            failed = []
            for number, helper in enumerate(self.helpers):
                if self.used[number] and not helper.is_alive():
                    failed.append(helper)
            if len(failed) > 0:
                raise RuntimeError("a helper has ended")
            if isinstance(error, queue.Empty):
                return False, None
            raise

    def next(self):
        while True:
            success, job = self.ask()
            if success:
                return job

    def next_while_running(self):
        while self.phase == "running" and self.parts["loader"] != "ended" and len(self.ended) < 1:
            success, job = self.ask(1)
            if success:
                return job

    def ask_or_none(self):
        return self.jobs.get(timeout=PERIOD)

    def next_by_exceptions(self):
        while True:
            try:
                return self.ask_or_none()
            except queue.Empty:
                pass


def job_asked_for_again_by_two_functions():
    truth("stuck", "suspected-deadlock", **UNTIL)
    ledger = threading.Lock()

    def pin():
        with ledger:
            loader.jobs.put(1)

    with ledger:
        loader = Loader()
        loader.helpers, loader.used = [start(pin)], [True]
        ready()
        loader.next()


def job_asked_for_again_by_two_functions_while_nothing_is_said():
    truth("stuck", **STUCK, asleep=1, words=["as long as nothing changes"], asks_again=True)
    loader = Loader()
    ready()
    loader.next_while_running()


def job_asked_for_again_by_two_functions_and_an_exception():
    truth("stuck", **STUCK, asleep=1, words=["after each time-out"], asks_again=True)
    loader = Loader()
    ready()
    loader.next_by_exceptions()


def asked_for_again_beside(act, begin, *helpers):
    """Another thread acts on the loader after some time."""
    loader = Loader(*helpers)

    def later():
        time.sleep(LAST)
        act(loader)

    start(later)
    ready()
    begin(loader)


def job_asked_for_again_by_two_functions_while_a_helper_lives_that_ends():
    truth("blocked", asleep=1)
    loader = Loader(start(time.sleep, "helper", LAST))
    ready()
    loader.next()


def job_asked_for_again_by_two_functions_while_another_says_a_word():
    truth("blocked", asleep=1)
    asked_for_again_beside(lambda loader: setattr(loader, "phase", "ended"), Loader.next_while_running)


def job_asked_for_again_by_two_functions_while_another_changes_a_dictionary():
    truth("blocked", asleep=1)
    asked_for_again_beside(lambda loader: loader.parts.update(loader="ended"), Loader.next_while_running)


def job_asked_for_again_by_two_functions_while_another_fills_a_list():
    truth("blocked", asleep=1)
    asked_for_again_beside(lambda loader: loader.ended.append(1), Loader.next_while_running)


def job_asked_for_again_by_two_functions_while_another_adds_a_helper():
    truth("blocked", asleep=1)
    asked_for_again_beside(lambda loader: (loader.used.append(True), loader.helpers.append(ENDED)), Loader.next)


def job_asked_for_again_by_two_functions_until_another_replaces_one():
    truth("blocked", asleep=1)
    asked_for_again_beside(lambda loader: setattr(loader, "ask", lambda: (True, 1)), Loader.next)


ENDED = threading.Thread()


def ask_one(jobs, seconds=0.5):
    try:
        return jobs.get(timeout=seconds)
    except queue.Empty:
        return None


def job_asked_for_again_a_few_times_by_code_in_c():
    truth("blocked", asleep=1)
    jobs = queue.Queue()
    ready()
    list(map(ask_one, [jobs] * 240))


def job_asked_for_again_by_a_function_that_counts():
    import itertools
    truth("blocked", asleep=1)
    jobs, numbers = queue.Queue(), itertools.count()

    def ask():
        ask_one(jobs)
        return next(numbers)

    ready()
    while ask() < 240:
        pass


def job_asked_for_again_in_each_round_of_a_limit():
    truth("blocked", asleep=1)
    jobs = queue.Queue()
    ready()
    for _ in [0.5] * 240:
        if ask_one(jobs) is not None:
            break


def job_asked_for_again_by_the_one_who_has_what_ends_it():
    """The first round drops the last reference to a thing that tells at its end."""
    truth("blocked", asleep=1)
    jobs, stopped = queue.Queue(), threading.Event()

    def first(job):
        return ask_one(jobs, PERIOD)

    ready()
    first(Job(stopped.set))
    while not stopped.is_set():
        ask_one(jobs, PERIOD)


def job_asked_for_again_with_a_thing_that_ends_after_a_round():
    truth("blocked", asleep=1)
    jobs, stopped = queue.Queue(), threading.Event()

    def ask(job):
        return ask_one(jobs, PERIOD)

    ready()
    while not stopped.is_set():
        ask(Job(stopped.set))


def job_asked_for_again_while_the_main_thread_lives_which_has_ended():
    truth("blocked", asleep=1)
    jobs = queue.Queue()

    def work():
        while threading.main_thread().is_alive():
            try:
                jobs.get(timeout=PERIOD)
            except queue.Empty:
                pass

    threading.Thread(target=work).start()
    ready()


class Empty(Exception):
    pass


def job_asked_for_again_until_an_exception_of_another_class_with_the_name():
    truth("blocked", asleep=1)
    jobs = queue.Queue()
    ready()
    while True:
        try:
            jobs.get(timeout=PERIOD)
        except Empty:
            pass


class Ends(threading.Event):
    end = time.monotonic() + LAST

    def is_set(self):
        return time.monotonic() > self.end


def job_asked_for_again_until_an_event_that_knows_a_time():
    truth("blocked", asleep=1)
    jobs, ends = queue.Queue(), Ends()
    ready()
    while not ends.is_set():
        try:
            jobs.get(timeout=PERIOD)
        except queue.Empty:
            pass


class Queue(queue.Queue):
    """Has an item after some time."""
    end = time.monotonic() + LAST

    def _qsize(self):
        return int(time.monotonic() > self.end)

    def _get(self):
        return 1


def job_asked_for_again_of_a_queue_that_fills_by_itself():
    truth("blocked", asleep=1)
    jobs = Queue()
    ready()
    while True:
        try:
            return jobs.get(timeout=PERIOD)
        except queue.Empty:
            pass


def job_asked_for_again_by_a_function_that_another_patches():
    truth("blocked", asleep=1)
    loader = Loader()

    def patch():
        time.sleep(LAST)
        Loader.ask = lambda self: (True, 1)

    start(patch)
    ready()
    loader.next()


def job_asked_for_again_until_another_puts_a_module_in_place_of_one():
    import types
    truth("blocked", asleep=1)
    loader, before, after = Loader(), types.ModuleType("before"), types.ModuleType("after")
    before.goes_on, after.goes_on = True, False
    loader.config = before

    def change(module):
        time.sleep(LAST)
        loader.config = module

    def loop(loader):
        while loader.config.goes_on:
            try:
                loader.jobs.get(timeout=PERIOD)
            except queue.Empty:
                pass

    start(change, "change", after)
    ready()
    loop(loader)


def item_that_comes_when_a_thing_dies_that_another_has():
    import weakref
    truth("blocked", asleep=1)
    jobs, thing = queue.Queue(), Thing()
    watch = weakref.ref(thing, jobs.put)
    start(lambda thing: time.sleep(LAST), "later", thing)
    del thing
    ready()
    jobs.get()
    del watch


def job_asked_for_again_until_things_have_died_that_a_list_watches():
    import weakref
    truth("blocked", asleep=1)
    jobs, thing, alive = queue.Queue(), Thing(), []
    alive.append(weakref.ref(thing, alive.remove))
    start(lambda thing: time.sleep(LAST), "later", thing)
    del thing
    ready()
    while alive:
        try:
            jobs.get(timeout=PERIOD)
        except queue.Empty:
            pass


def handle(*_):
    pass


def job_asked_for_again_beside_a_thing_that_ends_with_the_first_round():
    truth("blocked", asleep=1)
    jobs, stopped, first = queue.Queue(), threading.Event(), True
    ready()
    while not stopped.is_set():
        try:
            handle(Job(stopped.set) if first else None, jobs.get(timeout=PERIOD))
        except queue.Empty:
            first = False


def room_asked_for_again_for_a_thing_that_ends_with_the_first_round():
    truth("blocked", asleep=1)
    jobs, stopped, first = queue.Queue(1), threading.Event(), True
    jobs.put(0)
    ready()
    while not stopped.is_set():
        try:
            jobs.put(Job(stopped.set) if first else 1, timeout=PERIOD)
        except queue.Full:
            first = False


def job_asked_for_again_with_a_limit_that_another_changes():
    truth("blocked", asleep=1)
    loader = Loader()
    loader.limit = PERIOD

    def change():
        time.sleep(LAST)
        loader.limit = -1

    def loop(loader):
        while True:
            try:
                loader.jobs.get(timeout=loader.limit)
            except queue.Empty:
                pass

    start(change)
    ready()
    loop(loader)


def event_asked_for_again_by_code_in_c_first():
    truth("blocked", asleep=1)
    done = threading.Event()
    ready()
    if list(map(done.wait, [PERIOD, 1])):
        return
    while not done.wait(PERIOD):
        pass


class Computed:
    def __init__(self, compute):
        self.compute = compute

    def __get__(self, instance, owner):
        return self.compute()


class Config:
    end = time.monotonic() + LAST
    value = Computed(lambda: None if time.monotonic() > Config.end else 1)


def job_asked_for_again_while_a_class_computes_that():
    truth("blocked", asleep=1)
    jobs = queue.Queue()
    ready()
    while Config.value is not None:
        try:
            jobs.get(timeout=PERIOD)
        except queue.Empty:
            pass


def job_asked_for_again_by_a_loop_in_which_the_collector_runs():
    import gc
    truth("blocked", asleep=1)
    jobs, stopped = queue.Queue(), threading.Event()
    job = Job(stopped.set)
    job.own = job
    del job
    gc.set_threshold(1 << 20)
    ready()
    while not stopped.is_set():
        try:
            jobs.get(timeout=PERIOD)
        except queue.Empty:
            pass


def event_set_when_a_cycle_dies_that_a_weak_reference_watches():
    import gc
    import weakref
    truth("blocked", asleep=1)
    done = threading.Event()

    class Watched:
        pass

    def collect():
        time.sleep(LAST)
        gc.collect()

    gc.disable()
    watched = Watched()
    watched.own = watched
    watch = weakref.ref(watched, lambda _: done.set())
    del watched
    start(collect)
    ready()
    done.wait()
    del watch


# Items of queues that are written in C are within reach of the code that takes them out.

def event_set_by_the_next_work_of_a_pool():
    truth("blocked", asleep=1)
    from concurrent.futures import ThreadPoolExecutor
    pool, done = ThreadPoolExecutor(1), threading.Event()
    pool.submit(time.sleep, LAST)
    pool.submit(done.set)
    ready()
    done.wait()


def event_in_a_simple_queue():
    truth("blocked", asleep=1)
    carrier, done = queue.SimpleQueue(), threading.Event()
    carrier.put(done)

    def take(queue):
        time.sleep(LAST)
        queue.get().set()

    start(take, "take", carrier)
    ready()
    done.wait()


def event_set_by_a_wrapper_of_a_method():
    truth("blocked", asleep=1)
    done = threading.Event()

    def call(what):
        time.sleep(LAST)
        what()

    start(call, "call", done.set.__call__)
    ready()
    done.wait()


# A semaphore of multiprocessing with one unit is not always a lock of who has taken it.

def takes_late(jobs):
    time.sleep(LAST)
    jobs.get()


def full_queue_of_processes():
    truth("blocked", asleep=1)
    import multiprocessing
    context = multiprocessing.get_context("fork")
    jobs = context.Queue(1)
    consumer = context.Process(target=takes_late, args=(jobs,), daemon=True)
    consumer.start()
    jobs.put(1)
    ready()
    jobs.put(2)


def releases_late(lock):
    time.sleep(LAST)
    lock.release()


def lock_of_processes_that_another_releases():
    truth("blocked", asleep=1)
    import multiprocessing
    context = multiprocessing.get_context("fork")
    lock = context.Lock()
    lock.acquire()
    context.Process(target=releases_late, args=(lock,), daemon=True).start()
    ready()
    lock.acquire()


class Waiting:
    """Who waits until there are items, or it is closed."""

    def __init__(self):
        self.items, self.closed, self.changed = [], False, threading.Condition()

    def take(self):
        with self.changed:
            while not self.items and not self.closed:
                self.changed.wait(PERIOD)


def items_waited_for_again():
    truth("stuck", **STUCK, **dict(UNTIL, asleep=1))
    waiting = Waiting()
    ready()
    waiting.take()


def items_waited_for_again_that_another_adds_without_a_word():
    truth("blocked", asleep=1)
    waiting = Waiting()

    def add(items):
        time.sleep(LAST)
        items.append(1)

    start(add, "add", waiting.items)
    ready()
    waiting.take()


def items_waited_for_again_by_one_whom_another_closes():
    truth("blocked", asleep=1)
    waiting = Waiting()

    def close():
        time.sleep(LAST)
        waiting.closed = True

    start(close)
    ready()
    waiting.take()


GOES_ON = True


def waits_while_it_goes_on(done):
    while GOES_ON:
        if done.wait(PERIOD):
            return


def event_waited_for_again_while_a_global_says_so():
    truth("stuck", **STUCK, **dict(UNTIL, asleep=1))
    start(beat)
    ready()
    waits_while_it_goes_on(threading.Event())


def event_waited_for_again_while_a_global_says_so_that_another_changes():
    truth("blocked", asleep=1)

    def end():
        global GOES_ON
        time.sleep(LAST)
        GOES_ON = False

    start(end)
    ready()
    waits_while_it_goes_on(threading.Event())


def event_waited_for_again_while_a_module_says_so_that_another_changes():
    truth("blocked", asleep=1)

    def end(module):
        time.sleep(LAST)
        module.GOES_ON = False

    start(end, "end", sys.modules[__name__])
    ready()
    waits_while_it_goes_on(threading.Event())


def event_waited_for_again_while_an_attribute_is_computed():
    truth("blocked", asleep=1)
    end = time.monotonic() + LAST

    class Limited:
        goes_on = True

        def __getattribute__(self, name):
            return time.monotonic() < end

    limited, done = Limited(), threading.Event()
    ready()
    while limited.goes_on:
        done.wait(PERIOD)


def event_waited_for_again_while_another_module_says_so_that_changes_itself():
    truth("blocked", asleep=1)
    module, done = type(sys)("switch"), threading.Event()
    exec("import time\ngoes_on = True\ndef end(last):\n    global goes_on\n    time.sleep(last)\n    goes_on = False", vars(module))
    start(module.end, "end", LAST)
    ready()
    while module.goes_on:
        done.wait(PERIOD)


def waits_while_a_closure_says_so(changes=False):
    goes_on, done = True, threading.Event()

    def end():
        nonlocal goes_on
        time.sleep(LAST)
        goes_on = False

    def wait():
        while goes_on:
            done.wait(PERIOD)

    if changes:
        start(end)
    ready()
    wait()


def event_waited_for_again_while_a_closure_says_so():
    truth("stuck", **STUCK, **dict(UNTIL, asleep=1))
    waits_while_a_closure_says_so()


def event_waited_for_again_while_a_closure_says_so_that_another_changes():
    truth("blocked", asleep=1)
    waits_while_a_closure_says_so(changes=True)


# Locks that somebody asks for again and again.

def asks_again(file):
    import fcntl
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(LAST)


def file_lock_that_is_asked_for_again(is_locked=True):
    truth("blocked", words=["flock on", "jobs.lock", "asks again"] if is_locked else [])
    import fcntl
    name = os.path.join(tempfile.mkdtemp(), "jobs.lock")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(LAST)
        with open(name, "w") as file:
            if is_locked:
                fcntl.flock(file, fcntl.LOCK_EX)
            os.write(writer, b"x")
            time.sleep(LAST)
    os.read(reader, 1)
    ready(child, os.getpid())
    with open(name, "w") as file:
        asks_again(file)
        time.sleep(LAST)


def file_lock_that_nobody_has():
    file_lock_that_is_asked_for_again(is_locked=False)

def database(name):
    import sqlite3
    connection = sqlite3.connect(name, timeout=LAST, isolation_level=None)
    # No test waits for a disk that others write to.
    connection.execute("pragma synchronous=off")
    return connection


def database_that_another_process_writes(journal="delete", is_locked=True):
    truth("blocked", words=["lock on", "orders.db", "SQLite's busy handler"] if is_locked else [], asks_again=is_locked)
    name = os.path.join(tempfile.mkdtemp(), "orders.db")
    own = database(name)
    own.execute("pragma journal_mode=" + journal)
    own.execute("create table orders(number)")
    own.close()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(LAST)
        other = database(name)
        if is_locked:
            other.execute("begin immediate")
        os.write(writer, b"x")
        time.sleep(LAST)
    os.read(reader, 1)
    own = database(name)
    ready(os.getpid(), child)
    if is_locked:
        own.execute("begin immediate")
    time.sleep(LAST)


def database_with_a_log_that_another_process_writes():
    database_that_another_process_writes("wal")


def database_wanted_by_a_process_that_writes_another(does_other_wait=True):
    """Each has a transaction in one database; the own one is in nobody's way here."""
    verdicts = ["blocked", "suspected-deadlock"] if does_other_wait else ["blocked"]
    truth(*verdicts, words=["lock on", "stock.db", "SQLite's busy handler", "held by python"], asks_again=True)
    folder = tempfile.mkdtemp()
    names = [os.path.join(folder, name) for name in ("orders.db", "stock.db")]
    for name in names:
        made = database(name)
        made.execute("create table things(number)")
        made.close()
    pipes = [os.pipe(), os.pipe()]
    child = os.fork()
    if child == 0:
        signal.alarm(LAST)
        names.reverse()
        pipes.reverse()
    first, second = map(database, names)
    first.execute("begin immediate")
    # Each has its own before it wants the other's.
    (reader, _), (_, writer) = pipes
    os.write(writer, b"x")
    os.read(reader, 1)
    if child:
        ready(os.getpid(), child)
    if child or does_other_wait:
        second.execute("begin immediate")
    time.sleep(LAST)


def database_wanted_by_a_process_that_writes_another_beside_one_that_goes_on():
    database_wanted_by_a_process_that_writes_another(does_other_wait=False)


def database_that_nobody_writes():
    database_that_another_process_writes(is_locked=False)


def database_that_another_thread_writes():
    words = [", which waits for fcntl lock on", "orders.db", "another part of the process itself"]
    truth("blocked", words=words, asks_again=True)
    name = os.path.join(tempfile.mkdtemp(), "orders.db")
    own = database(name)
    own.execute("begin immediate")
    own.execute("create table orders(number)")
    waiter = start(lambda: database(name).execute("begin immediate"))
    ready()
    waiter.join()


CASES = {name: case for name, case in list(globals().items()) if callable(case) and getattr(case, "__module__", "") == __name__}

if __name__ == "__main__":
    signal.alarm(LAST)
    CASES[sys.argv[1]]()
