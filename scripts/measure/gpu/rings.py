"""Rings through the GPU that close on the processor, and beside each a program that goes on: cases of workloads.py.

Somebody waits for a stream, the stream for a host function, and the host function for something that the first would
give. In the twin somebody else gives it later, or may."""
import ctypes
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time

from workloads import Driver, HostFunction, HERE, case, ready

STUCK = ["stuck", "suspected-deadlock", "deadlock"]
HEALTHY = ["no-deadlock", "blocked", "running"]


def held_up(wants, meanwhile=None, synchronise="cuStreamSynchronize"):
    """A host function that wants something, behind which the main thread waits for its stream."""
    driver = Driver()
    entered = threading.Event()

    @HostFunction
    def report_progress(_):
        entered.set()
        wants()

    driver("cuLaunchHostFunc", driver.stream, report_progress, None)
    entered.wait()
    if meanwhile:
        threading.Thread(target=meanwhile, name="helper", daemon=True).start()
    ready()
    if synchronise == "cuCtxSynchronize":
        driver(synchronise)
    else:
        driver(synchronise, driver.stream)


def later(give):
    """What a helper does after a time that no look can wait for."""
    def run():
        time.sleep(250)
        give()
    return run


def full_queue():
    work = queue.Queue(maxsize=1)
    work.put("first")
    return work


@case("ring-queue-put", STUCK)
def ring_queue_put():
    """The only consumer synchronises before it takes anything."""
    results = full_queue()
    held_up(lambda: results.put("second"))
    results.get()


@case("healthy-queue-put", HEALTHY)
def healthy_queue_put():
    results = full_queue()
    held_up(lambda: results.put("second"), later(results.get))


@case("ring-event", STUCK)
def ring_event():
    taken = threading.Event()
    held_up(taken.wait, synchronise="cuCtxSynchronize")
    taken.set()


@case("healthy-event", HEALTHY)
def healthy_event():
    taken = threading.Event()
    held_up(taken.wait, later(taken.set))


@case("healthy-timer", HEALTHY)
def healthy_timer():
    taken = threading.Event()
    timer = threading.Timer(250, taken.set)
    timer.daemon = True
    timer.start()
    held_up(taken.wait)


@case("ring-condition", STUCK)
def ring_condition():
    condition, buffers = threading.Condition(), []

    def wants():
        with condition:
            condition.wait_for(lambda: buffers)

    held_up(wants)
    with condition:
        buffers.append(1)
        condition.notify()


@case("ring-semaphore", STUCK)
def ring_semaphore():
    buffers = threading.Semaphore(0)
    held_up(buffers.acquire)
    buffers.release()


@case("ring-join", STUCK)
def ring_join():
    """The host function waits for a thread, and that for the stream."""
    driver = Driver()
    begun = threading.Event()

    def follow():
        driver.enter()
        begun.wait()
        driver("cuStreamSynchronize", driver.stream)

    follower = threading.Thread(target=follow, name="follower")
    follower.start()

    @HostFunction
    def wait_for_the_follower(_):
        begun.set()
        follower.join()

    driver("cuLaunchHostFunc", driver.stream, wait_for_the_follower, None)
    begun.wait()
    ready()
    follower.join()


@case("ring-pipe", STUCK)
def ring_pipe():
    reads, writes = os.pipe()
    held_up(lambda: os.read(reads, 1))
    os.write(writes, b"x")


@case("healthy-other-stream", HEALTHY, needs=["device"])
def healthy_other_stream():
    """A kernel runs in the stream that is waited for; the host function, in another stream, waits for what comes after it."""
    driver = Driver()
    other, done, entered = ctypes.c_void_p(), threading.Event(), threading.Event()
    driver("cuStreamCreate", ctypes.byref(other), 1)
    driver.launch(driver.function(b"endless"))

    @HostFunction
    def wait_for_the_results(_):
        entered.set()
        done.wait()

    driver("cuLaunchHostFunc", other, wait_for_the_results, None)
    entered.wait()
    time.sleep(2)  # nvidia-smi reports the second before
    ready()
    driver("cuStreamSynchronize", driver.stream)
    done.set()


@case("healthy-rounds", HEALTHY)
def healthy_rounds():
    """It spins for the GPU nearly all the time, and comes out again and again."""
    driver = Driver()
    steps = HostFunction(lambda _: time.sleep(0.3))
    ready()
    for _ in range(40):
        driver("cuLaunchHostFunc", driver.stream, steps, None)
        driver("cuStreamSynchronize", driver.stream)


@case("healthy-slow", HEALTHY)
def healthy_slow():
    """A host function that takes its time."""
    held_up(lambda: time.sleep(250))


@case("ring-two-functions", STUCK)
def ring_two_functions():
    """The driver calls host functions of all streams on one thread: the second never begins."""
    driver = Driver()
    other, done, entered = ctypes.c_void_p(), threading.Event(), threading.Event()
    driver("cuStreamCreate", ctypes.byref(other), 1)

    @HostFunction
    def first(_):
        entered.set()
        done.wait()

    @HostFunction
    def second(_):
        done.set()

    driver("cuLaunchHostFunc", driver.stream, first, None)
    entered.wait()
    driver("cuLaunchHostFunc", other, second, None)
    ready()
    driver("cuCtxSynchronize")


@case("ring-two-locks", STUCK)
def ring_two_locks():
    """A third thread stands between: the host function wants its lock, and it wants the main thread's."""
    first, second, has_first = threading.Lock(), threading.Lock(), threading.Event()

    def between():
        with first:
            has_first.set()
            with second:
                pass

    def wants():
        with first:
            pass

    with second:
        threading.Thread(target=between, name="between", daemon=True).start()
        has_first.wait()
        held_up(wants)


@case("ring-autograd", STUCK, needs=["torch"])
def ring_autograd():
    """The backward of one thread waits for an event that the backward of another sets; the device has one thread for both."""
    import torch

    done, entered = threading.Event(), threading.Event()

    class Hook(torch.autograd.Function):
        @staticmethod
        def forward(context, numbers, act):
            context.act = act
            return numbers.clone()

        @staticmethod
        def backward(context, gradient):
            context.act()
            return gradient, None

    def backward(act):
        Hook.apply(torch.ones(4, device="cuda", requires_grad=True), act).sum().backward()

    def waits():
        entered.set()
        done.wait()

    loss = Hook.apply(torch.ones(4, device="cuda", requires_grad=True), done.set).sum()
    threading.Thread(target=backward, args=(waits,), name="first").start()
    entered.wait()
    # nvidia-smi reports the second before.
    threading.Timer(3, ready).start()
    loss.backward()


@case("ring-shared-mutex", STUCK)
def ring_shared_mutex():
    """C++: the main thread has a shared_mutex for reading, and the host function wants to write."""
    native("ring")


@case("healthy-shared-mutex", HEALTHY)
def healthy_shared_mutex():
    native("healthy")


def native(how):
    program = os.path.join(tempfile.mkdtemp(), "shared_mutex")
    source = os.path.join(HERE, "shared_mutex.cpp")
    subprocess.check_call(["g++", "-std=c++17", "-g", "-O1", "-pthread", source, "-o", program, "-ldl"])
    os.execv(program, [program, how])
