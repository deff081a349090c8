"""Hangs of many alike, whose pictures have to be readable: shapes.py CASE

pool: 32 threads of a pool that each wait for a task behind them in its queue.
processes: eight processes in a ring, each of which waits for the next one to write.
Prints "READY pids=P,..." when all are about to wait, and ends by SIGALRM after two minutes.
"""

import concurrent.futures
import os
import signal
import sys
import threading

THREADS = 32
PROCESSES = 8


def ready(*pids):
    print("READY pids=" + ",".join(map(str, pids)), flush=True)


def pool():
    executor = concurrent.futures.ThreadPoolExecutor(THREADS)
    gate = threading.Barrier(THREADS, action=lambda: ready(os.getpid()))

    def parse(document):
        return document

    def handle(document):
        gate.wait()
        return executor.submit(parse, document).result()

    list(executor.map(handle, range(THREADS)))


def processes():
    pipes = [os.pipe() for _ in range(PROCESSES)]
    children = []
    for number in range(PROCESSES):
        child = os.fork()
        if child == 0:
            signal.alarm(120)
            for other, (end, start) in enumerate(pipes):
                if other != number:
                    os.close(end)
                if other != (number + 1) % PROCESSES:
                    os.close(start)
            os.read(pipes[number][0], 1)
            os._exit(0)
        children.append(child)
    for end, start in pipes:
        os.close(end)
        os.close(start)
    ready(os.getpid(), *children)
    os.wait()


signal.alarm(120)
{"pool": pool, "processes": processes}[sys.argv[1]]()
