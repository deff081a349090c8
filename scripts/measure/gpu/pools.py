"""Pools of libraries around a GPU that wait for their own users, and beside each a program that goes on: cases of workloads.py.

A thread or process of DataLoader, autograd, JAX, CuPy or a pool of the program waits for what only whoever waits for it
would give. In the twin somebody else gives it later, or may."""
import concurrent.futures
import multiprocessing
import os
import signal
import threading
import time

from rings import HEALTHY, STUCK, held_up, later
from workloads import case, ready


def soon():
    """Ready after the waits that follow have begun: the process looks are taken of may wait seconds in between."""
    timer = threading.Timer(5, ready)
    timer.daemon = True
    timer.start()


def kept_by_a_helper(lock):
    """A thread has the lock, and gives it back later."""
    has_it = threading.Event()

    def keep():
        with lock:
            has_it.set()
            later(lambda: None)()

    threading.Thread(target=keep, name="keeper", daemon=True).start()
    has_it.wait()


def taker(lock):
    """A function that takes the lock and gives it back."""
    def wants():
        with lock:
            pass
    return wants


class Batch:
    """What a worker returns: the pinning thread calls its pin_memory()."""
    lock = threading.Lock()

    def __init__(self, numbers):
        self.numbers = numbers

    def pin_memory(self):
        with Batch.lock:
            return self


class Numbers:
    """A data set."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return index


class Strange(Numbers):
    """A data set of what cannot be pickled, or takes long."""

    def __init__(self, slow):
        self.slow = slow

    def __getitem__(self, index):
        if self.slow:
            time.sleep(250)
        return threading.Lock()


def loader(pin_memory=True):
    import torch.utils.data

    return torch.utils.data.DataLoader(Numbers(), batch_size=2, num_workers=1, pin_memory=pin_memory, collate_fn=Batch)


@case("loader-lock", STUCK, needs=["torch"], words=["pin_memory"])
def loader_lock():
    """The main thread has a lock that the pinning thread wants for the batch that the main thread waits for."""
    with Batch.lock:
        batches = iter(loader())
        soon()
        next(batches)


@case("healthy-loader-lock", HEALTHY, needs=["torch"])
def healthy_loader_lock():
    kept_by_a_helper(Batch.lock)
    batches = iter(loader())
    soon()
    next(batches)


def strange(slow):
    import torch.utils.data

    batches = iter(torch.utils.data.DataLoader(Strange(slow), batch_size=None, num_workers=1))
    soon()
    next(batches)


@case("loader-unpicklable", STUCK, needs=["torch"])
def loader_unpicklable():
    """The batch of a worker cannot be pickled: its feeder thread says so, and the worker waits for the next index."""
    strange(slow=False)


@case("healthy-loader-slow", HEALTHY, needs=["torch"])
def healthy_loader_slow():
    strange(slow=True)


def produce(results):
    results.put(b"x" * (1 << 20))


@case("join-before-get", STUCK)
def join_before_get():
    """The child's feeder thread fills the pipe that the parent reads only once the child has ended."""
    results = multiprocessing.get_context("fork").Queue()
    child = multiprocessing.get_context("fork").Process(target=produce, args=(results,))
    child.start()
    threading.Timer(3, ready, (os.getpid(), child.pid)).start()
    child.join()
    results.get()


@case("healthy-join-before-get", HEALTHY)
def healthy_join_before_get():
    results = multiprocessing.get_context("fork").Queue()
    child = multiprocessing.get_context("fork").Process(target=produce, args=(results,))
    child.start()
    threading.Thread(target=later(results.get), name="reader", daemon=True).start()
    threading.Timer(3, ready, (os.getpid(), child.pid)).start()
    child.join()


def through_autograd(act):
    """The sum of numbers of the device, whose backward calls `act` in autograd's thread for it."""
    import torch

    class Hook(torch.autograd.Function):
        @staticmethod
        def forward(context, numbers):
            return numbers.clone()

        @staticmethod
        def backward(context, gradient):
            act()
            return gradient

    return Hook.apply(torch.ones(4, device="cuda", requires_grad=True)).sum()


@case("autograd-lock", STUCK, needs=["torch", "device"])
def autograd_lock():
    """The main thread has a lock that the backward of its own loss wants."""
    lock = threading.Lock()
    loss = through_autograd(taker(lock))
    with lock:
        soon()
        loss.backward()


@case("healthy-autograd-lock", HEALTHY, needs=["torch", "device"])
def healthy_autograd_lock():
    lock = threading.Lock()
    loss = through_autograd(taker(lock))
    kept_by_a_helper(lock)
    soon()
    loss.backward()


def called_back(act):
    """A computation of JAX that calls `act` on the host."""
    import jax
    import jax.numpy
    import numpy

    def on_the_host(numbers):
        act()
        return numpy.asarray(numbers)

    compute = jax.jit(lambda numbers: jax.pure_callback(on_the_host, jax.ShapeDtypeStruct((4,), numpy.float32), numbers))
    return lambda: compute(jax.numpy.ones(4)).block_until_ready()


@case("jax-callback-event", STUCK + HEALTHY, words=["goes on and could give it"], needs=["jax"])
def jax_callback_event():
    """The callback waits for an event that the main thread sets once the computation is done. No hang is proven: threads of XLA
    that have never called Python may do so."""
    event = threading.Event()
    compute = called_back(event.wait)
    soon()
    compute()
    event.set()


@case("healthy-jax-callback-event", HEALTHY, needs=["jax"])
def healthy_jax_callback_event():
    event = threading.Event()
    compute = called_back(event.wait)
    threading.Thread(target=later(event.set), name="setter", daemon=True).start()
    soon()
    compute()


@case("jax-callback-lock", STUCK, needs=["jax"])
def jax_callback_lock():
    lock = threading.Lock()
    compute = called_back(taker(lock))
    with lock:
        soon()
        compute()


def of_cupy(wants):
    """A host function by CuPy, behind which the main thread waits for its stream."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    stream.launch_host_func(lambda _: wants(), None)
    soon()
    stream.synchronize()


@case("cupy-host-function", STUCK, needs=["cupy"])
def cupy_host_function():
    lock = threading.Lock()
    with lock:
        of_cupy(taker(lock))


@case("healthy-cupy-host-function", HEALTHY, needs=["cupy"])
def healthy_cupy_host_function():
    lock = threading.Lock()
    kept_by_a_helper(lock)
    of_cupy(taker(lock))


@case("executor-behind-a-stream", STUCK)
def executor_behind_a_stream():
    """The host function waits for work that stands in the queue of the pool whose one thread waits for the stream."""
    pool = concurrent.futures.ThreadPoolExecutor(1)
    pool.submit(lambda: held_up(lambda: pool.submit(int).result())).result()


@case("event-that-nobody-sets", STUCK)
def event_that_nobody_sets():
    never = threading.Event()
    held_up(never.wait)


@case("stopped-worker", HEALTHY + STUCK, words=["stopped"], needs=["torch"])
def stopped_worker():
    """A DataLoader's worker is stopped by a signal."""
    batches = iter(loader(pin_memory=False))
    next(batches)
    worker = multiprocessing.active_children()[0]
    os.kill(worker.pid, signal.SIGSTOP)
    threading.Timer(5, ready, (os.getpid(), worker.pid)).start()
    for _ in batches:
        pass
