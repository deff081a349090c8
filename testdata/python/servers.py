"""Servers that hang: in their workers, behind one lock, at a silent peer, because of a process that has died.

    servers.py workers    a master that polls, with two workers in a lock-order cycle each
    servers.py services   the same, and each worker has a session of its own
    servers.py handlers   four handlers behind `price_lock`, whose holder waits for a peer that is silent
    servers.py silent     three threads wait for the same silent peer
    servers.py across     two requests of one event loop: the first awaits inside `with store_lock:`, the second wants the lock
    servers.py database   two threads of which each has what the other wants: `cache_lock`, and the write lock of SQLite
    servers.py loader     the reader of a queue whose writer has exited
    servers.py idle       a master and its workers, which wait for connections
"""
import asyncio
import multiprocessing
import os
import select
import signal
import socket
import sqlite3
import sys
import tempfile
import threading
import time

signal.alarm(600)


def ready(*pids):
    print("READY pids=" + ",".join(str(pid) for pid in (os.getpid(),) + pids), flush=True)


def wait_for(condition):
    while not condition():
        time.sleep(0.01)


def ring():
    accounts_lock, audit_lock = threading.Lock(), threading.Lock()
    both = threading.Barrier(2)

    def transfer():
        with accounts_lock:
            both.wait()
            with audit_lock:
                pass

    def report():
        with audit_lock:
            both.wait()
            with accounts_lock:
                pass

    threads = [threading.Thread(target=transfer, name="transfer"), threading.Thread(target=report, name="report")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def accept():
    server = socket.create_server(("127.0.0.1", 0))
    server.accept()


def master(work, has_session):
    pids = []
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            signal.alarm(600)
            if has_session:
                os.setsid()
            work()
            os._exit(0)
        pids.append(pid)
    ready(*pids)
    silence, _ = socket.socketpair()
    while True:
        select.select([silence], [], [], 1.0)


def silent_peer():
    """A process that accepts connections and says nothing; its id and address."""
    server = socket.create_server(("127.0.0.1", 0))
    pid = os.fork()
    if pid == 0:
        signal.alarm(600)
        taken = []
        while True:
            taken.append(server.accept())
    return pid, server.getsockname()


def handlers():
    pid, address = silent_peer()
    price_lock = threading.Lock()

    def fetch_price():
        with price_lock:
            with socket.create_connection(address) as peer:
                return peer.recv(100)

    threads = [threading.Thread(target=fetch_price, name="handler-%d" % number) for number in range(4)]
    for thread in threads:
        thread.start()
    ready(pid)
    server = socket.create_server(("127.0.0.1", 0))
    while True:
        select.select([server], [], [], 0.5)


def silent():
    pid, address = silent_peer()

    def ask():
        with socket.create_connection(address) as peer:
            return peer.recv(100)

    threads = [threading.Thread(target=ask, name="ask-%d" % number) for number in range(3)]
    for thread in threads:
        thread.start()
    ready(pid)
    for thread in threads:
        thread.join()


def across():
    store_lock = threading.Lock()

    async def save():
        with store_lock:
            await asyncio.sleep(0.2)

    async def serve():
        await asyncio.gather(asyncio.create_task(save(), name="first"), asyncio.create_task(save(), name="second"))

    ready()
    asyncio.run(serve())


def database():
    folder = tempfile.TemporaryDirectory()
    path = os.path.join(folder.name, "prices.db")
    cache_lock, both = threading.Lock(), threading.Barrier(2)
    with sqlite3.connect(path) as connection:
        connection.execute("create table prices (price)")

    def importer():
        connection = sqlite3.connect(path, timeout=500)
        connection.execute("insert into prices values (1)")
        both.wait()
        with cache_lock:
            connection.commit()

    def refresher():
        connection = sqlite3.connect(path, timeout=500)
        with cache_lock:
            both.wait()
            connection.execute("insert into prices values (2)")

    threads = [threading.Thread(target=work, name=work.__name__) for work in (importer, refresher)]
    for thread in threads:
        thread.start()
    ready()
    for thread in threads:
        thread.join()


def load(todo, done):
    for path in iter(todo.get, None):
        os._exit(3)
        done.put(path)


def loader():
    context = multiprocessing.get_context("fork")
    todo, done = context.Queue(), context.Queue()
    process = context.Process(target=load, args=(todo, done), daemon=True)
    process.start()
    todo.put("a file")
    # Left as a zombie: whoever asks for its state would reap it.
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    ready()
    done.get()


{
    "workers": lambda: master(ring, False),
    "services": lambda: master(ring, True),
    "idle": lambda: master(accept, False),
    "handlers": handlers,
    "silent": silent,
    "across": across,
    "database": database,
    "loader": loader,
}[sys.argv[1]]()
