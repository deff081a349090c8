"""Greenlets of gevent: one has a lock and sleeps, two want it, and a server waits for connections. Healthy as far as anybody can
tell from without. With `ring`, two more have a recursive lock each and want the other's. Ends by itself after two minutes."""
from gevent import monkey

monkey.patch_all()

import os
import signal
import sys
import threading

import gevent
import gevent.lock
from gevent.server import StreamServer

signal.alarm(120)
lock = threading.Lock()
server = StreamServer(("127.0.0.1", 0), lambda connection, address: None)
server.start()


def keeps():
    with lock:
        gevent.sleep(100)


def wants():
    with lock:  # waits
        pass


def both(first, second):
    with first:
        gevent.sleep(0.01)
        with second:  # waits
            pass


for function in (keeps, wants, wants):
    threading.Thread(target=function, name=function.__name__).start()
if "ring" in sys.argv:
    ledger, journal = gevent.lock.RLock(), gevent.lock.RLock()
    gevent.spawn(both, ledger, journal)
    gevent.spawn(both, journal, ledger)
    gevent.sleep(0.1)
print("READY pids=%d" % os.getpid(), flush=True)
gevent.sleep(100)
