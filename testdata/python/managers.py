"""Locks that live in a manager of multiprocessing: managers.py CASE

gone: a client took one and died; another waits, and their parent waits for that.
gone_alone: a client took one and died; the only other one is the parent, which waits.
order: two clients take two in both orders.
twice: the parent, the only client, takes one twice.
held: a client is in a block of one and sleeps, another waits: healthy.
returned: a client took one in a function that has returned, and sleeps; another waits: healthy.
It says who is ready when each client is about to wait, and ends by itself after two minutes.
"""
import multiprocessing
import os
import signal
import sys
import time

CONTEXT = multiprocessing.get_context("fork")


def take_and_die(lock):
    lock.acquire()
    os._exit(1)


def wait_for(lock, ready):
    ready.set()
    with lock:
        pass


def take_both(first, second, both):
    with first:
        both.wait()
        with second:
            pass


def keep(lock, taken):
    with lock:
        taken.set()
        time.sleep(100)


def take(lock):
    lock.acquire()


def keep_without_a_block(lock, taken):
    take(lock)
    taken.set()
    time.sleep(100)


def start(function, *arguments):
    process = CONTEXT.Process(target=function, args=arguments)
    process.start()
    return process


def main(case):
    signal.alarm(120)
    manager = CONTEXT.Manager()
    lock, other = manager.Lock(), manager.Lock()
    taken, also = CONTEXT.Event(), CONTEXT.Event()
    clients = []
    if case in ("gone", "gone_alone"):
        start(take_and_die, lock).join()
    elif case == "twice":
        take(lock)
    elif case == "order":
        both = CONTEXT.Barrier(2)
        clients = [start(take_both, lock, other, both), start(take_both, other, lock, both)]
    else:
        holder = {"held": keep, "returned": keep_without_a_block}[case]
        clients = [start(holder, lock, taken)]
        taken.wait()
    if case in ("gone", "held", "returned"):
        clients.append(start(wait_for, lock, also))
        also.wait()
    pids = [os.getpid(), *(client.pid for client in clients), manager._process.pid]
    print("READY pids=" + ",".join(map(str, pids)), flush=True)
    if case in ("gone_alone", "twice"):
        lock.acquire()
    for client in clients:
        client.join()


main(sys.argv[1])
