"""A parent that waits for workers of its own, each of which waits for a lock that was copied by fork: followed.py CASE

pool: multiprocessing.Pool. executor: ProcessPoolExecutor. loader: as PyTorch's DataLoader does it: a queue of indices for each worker,
and one of results that the parent asks with a time limit, again and again.
Prints "READY pids=P,W,W" when the work is handed out, and ends by SIGALRM after two minutes.
"""

import concurrent.futures
import multiprocessing
import os
import queue
import signal
import sys
import threading

fork = multiprocessing.get_context("fork")
lock, held = threading.Lock(), threading.Event()


def refresh():
    with lock:
        held.set()
        threading.Event().wait()


def work(number):
    with lock:
        return number


def ready(workers):
    print("READY pids=" + ",".join(str(pid) for pid in [os.getpid(), *workers]), flush=True)


def pool():
    pool = fork.Pool(2)
    result = pool.map_async(work, range(4))
    ready(worker.pid for worker in pool._pool)
    result.get()


def executor():
    options = {} if sys.version_info < (3, 7) else {"mp_context": fork}
    executor = concurrent.futures.ProcessPoolExecutor(2, **options)
    futures = [executor.submit(work, number) for number in range(4)]
    ready(list(executor._processes))
    futures[0].result()


def load(indices, results):
    while True:
        results.put(work(indices.get()))


def loader():
    results, indices = fork.Queue(), [fork.Queue() for _ in range(2)]
    workers = [fork.Process(target=load, args=(each, results), daemon=True) for each in indices]
    for worker in workers:
        worker.start()
    for each in indices:
        each.put(0)
    ready(worker.pid for worker in workers)
    while True:
        try:
            results.get(timeout=5)
        except queue.Empty:
            assert all(worker.is_alive() for worker in workers)


signal.alarm(120)
threading.Thread(target=refresh, name="refresher", daemon=True).start()
held.wait()
globals()[sys.argv[1]]()
