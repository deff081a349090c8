"""Locks of Python whose holder nothing but the recorder names: recorded.py CASE

bare: a helper that has returned took a lock by acquire(); the main thread wants it. `worker` has it, by `begin_update`.
orders: two threads take two locks so, in two orders.
signal: a thread waits for a lock that it took itself, until another gives it: no deadlock, for the other lives.
given: the main thread took a lock that another gave back and took since.
Each ends by itself after two minutes.
"""
import os
import signal
import sys
import threading
import time

signal.alarm(120)
CONFIG = threading.Lock()
JOURNAL = threading.RLock()
TURN = threading.Lock()


def ready():
    print("READY pids=%d" % os.getpid(), flush=True)


def begin_update():
    CONFIG.acquire()


def begin_entry():
    JOURNAL.acquire()


def start(function, *arguments):
    threading.Thread(target=function, args=arguments, name=function.__name__, daemon=True).start()


def worker(begun):
    begin_update()
    begun.set()
    time.sleep(1000)


def bare():
    begun = threading.Event()
    start(worker, begun)
    begun.wait()
    ready()
    with CONFIG:
        pass


def updater(both):
    begin_update()
    both.wait()
    begin_entry()


def writer(both):
    begin_entry()
    both.wait()
    begin_update()


def orders():
    both = threading.Barrier(3)
    start(updater, both)
    start(writer, both)
    both.wait()
    ready()
    time.sleep(1000)


def giver():
    time.sleep(1000)
    TURN.release()


def own_turn():
    TURN.acquire()
    start(giver)
    ready()
    TURN.acquire()


def successor(begun):
    CONFIG.release()
    begin_update()
    begun.set()
    time.sleep(1000)


def given():
    begun = threading.Event()
    begin_update()
    start(successor, begun)
    begun.wait()
    ready()
    with CONFIG:
        pass


{"bare": bare, "orders": orders, "signal": own_turn, "given": given}[sys.argv[1]]()
