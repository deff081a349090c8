"""Greenlets of gevent: one has a lock and sleeps, two want it, and a server waits for connections. Healthy as far as anybody can
tell from without. Ends by itself after two minutes."""
from gevent import monkey

monkey.patch_all()

import os
import signal
import threading

import gevent
from gevent.server import StreamServer

signal.alarm(120)
lock = threading.Lock()
server = StreamServer(("127.0.0.1", 0), lambda connection, address: None)
server.start()


def keeps():
    with lock:
        gevent.sleep(100)


def wants():
    with lock:
        pass


for function in (keeps, wants, wants):
    threading.Thread(target=function, name=function.__name__).start()
print("READY pids=%d" % os.getpid(), flush=True)
gevent.sleep(100)
