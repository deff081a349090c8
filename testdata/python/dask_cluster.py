#!/usr/bin/env python3
"""Clusters of Dask that hang, and healthy ones that look like it: dask_cluster.py CASE [diagnose|watch FOLDER], on loopback, two workers
under nannies.

Says READY with the process ids of the client (scheduler and nannies are in it) and of the workers once the scheduler itself says that
the hang is there; with `diagnose` says before what lockscope.dask.diagnose(client) says, as one line of JSON. Each line `diagnose` on
standard input asks for that again. With `watch` each worker is watched by its nanny from the beginning on; of a hang it is said before
READY what the cluster was told, as one line of JSON. An alarm ends it, and the workers end with it.

  locks      deadlock: two tasks take two distributed.Locks in opposite orders
  result     deadlock: a task holds a Lock and waits for the result of one that wants the Lock
  inside     deadlock of two threading.Locks in one worker; the client waits for a task behind it
  starved    each thread waits for an Event that a task would set which has no thread; the client waits for them
  gil        a task keeps the GIL in a call of C; the client waits for a task behind it
  ordered    healthy: the same Locks in one order, handed on all the time
  gated      healthy: Locks in opposite orders behind a third one
  slow       healthy: a task that takes long, with a Lock that others wait for, and that it releases
  transfer   healthy: large results go from worker to worker
  event      healthy: tasks wait for an Event that the client sets now and then
"""

import json
import os
import queue
import signal
import sys
import tempfile
import threading
import time

from distributed import Client, Event, Lock, LocalCluster, get_client

SECONDS = 600
PAIR = (threading.Lock(), threading.Lock())
TAKEN = threading.Barrier(2)


def both(order):
    names = ("table_a", "table_b")
    first, second = names if order == 0 else names[::-1]
    with Lock(first):
        Event(f"taken-{order}").set()
        Event(f"taken-{1 - order}").wait()
        with Lock(second):
            return order


def wants_table():
    with Lock("table"):
        return 1


def has_table(worker):
    with Lock("table"):
        return get_client().submit(wants_table, key="wants-table", workers=worker, pure=False).result()


def inside(order):
    # Tasks are sent as functions of this module: each worker has its own locks.
    import dask_cluster as module

    first, second = module.PAIR if order == 0 else module.PAIR[::-1]
    with first:
        module.TAKEN.wait()
        with second:
            return order


def after(value):
    return value


def sets(name):
    Event(name).set()


def waits_for_setter(number):
    name = f"done-{number}"
    # Each thread of both workers has one of these by then.
    Event(f"begun-{number}").set()
    for other in range(4):
        Event(f"begun-{other}").wait()
    # A task that nobody has the future of is given up.
    setter = get_client().submit(sets, name, key=f"setter-{number}", pure=False)
    Event(name).wait()
    return setter.result()


def keeps_gil(ready):
    import ctypes

    open(ready, "w").close()
    ctypes.PyDLL(None).sleep(SECONDS)


def ordered(turns):
    for _ in range(turns):
        with Lock("table_a"), Lock("table_b"):
            time.sleep(0.02)


def gated(order, turns):
    names = ("table_a", "table_b") if order == 0 else ("table_b", "table_a")
    for _ in range(turns):
        with Lock("gate"), Lock(names[0]), Lock(names[1]):
            time.sleep(0.02)


def slow(turns):
    for _ in range(turns):
        with Lock("table_a"):
            time.sleep(1.5)


def large(_):
    return os.urandom(1 << 20) * 64


def size(data):
    return len(data)


def waits_for(name):
    Event(name).wait()


def pending(dask_scheduler):
    """How many wait for each Lock, by the scheduler's own count."""
    return {name: count for name, count in dask_scheduler.extensions["semaphores"].metrics["pending"].items() if count}


def states(dask_scheduler):
    return {str(key): (task.state, task.processing_on and task.processing_on.address) for key, task in dask_scheduler.tasks.items()}


def waiting(dask_scheduler):
    return {str(name): count for name, count in dask_scheduler.extensions["events"]._waiter_count.items() if count}


def until(what):
    while not what():
        threading.Event().wait(0.05)


def hang(case, client, workers):
    """Begin, and say what the client waits for once the scheduler agrees."""

    def on_scheduler(function):
        return client.run_on_scheduler(function)

    def submit(function, *arguments, **options):
        return client.submit(function, *arguments, pure=False, **options)

    if case == "locks":
        futures = [submit(both, order, key=f"both-{order}", workers=workers[order]) for order in (0, 1)]
        until(lambda: on_scheduler(pending) == {"table_a": 1, "table_b": 1})
    elif case == "result":
        futures = [submit(has_table, workers[1], key="has-table", workers=workers[0])]
        until(lambda: on_scheduler(pending) == {"table": 1})
    elif case == "inside":
        client.run(sys.path.insert, 0, os.path.dirname(os.path.abspath(__file__)))
        pair = [submit(inside, order, key=f"inside-{order}", workers=workers[0]) for order in (0, 1)]
        futures = [submit(after, pair[0], key="after", workers=workers[1])]
        until(lambda: client.run(held, workers=[workers[0]])[workers[0]])
    elif case == "starved":
        futures = [submit(waits_for_setter, number, key=f"outer-{number}", workers=workers[number % 2]) for number in range(4)]
        until(lambda: sum(name.startswith("done") for name in on_scheduler(waiting)) == 4)
        until(lambda: sum(name.startswith("setter") for name in on_scheduler(states)) == 4)
    elif case == "gil":
        ready = os.path.join(tempfile.mkdtemp(), "gil")
        futures = [submit(after, submit(keeps_gil, ready, key="keeps-gil", workers=workers[0]), key="after", workers=workers[1])]
        until(lambda: os.path.exists(ready))
    else:
        raise SystemExit(f"no case {case}")
    return futures


def held():
    """Whether both locks of this worker's module are taken."""
    import dask_cluster as module

    return all(lock.locked() for lock in module.PAIR)


def live(case, client, workers):
    """Go on until the alarm."""
    number = 0
    while True:
        number += 1
        if case == "ordered":
            futures = client.map(ordered, [10] * 4, pure=False)
        elif case == "gated":
            futures = [client.submit(gated, order, 10, pure=False, workers=workers[order]) for order in (0, 1)]
        elif case == "slow":
            futures = client.map(slow, [3] * 3, pure=False)
        elif case == "transfer":
            made = [client.submit(large, number, pure=False, workers=workers[0])]
            futures = [client.submit(size, one, pure=False, workers=workers[1]) for one in made]
        elif case == "event":
            futures = client.map(waits_for, [f"go-{number}"] * 8, pure=False)
            threading.Event().wait(1.0)
            Event(f"go-{number}").set()
        client.gather(futures)


def diagnosis(client):
    import lockscope.dask

    found = lockscope.dask.diagnose(client, timeout=240)
    print(json.dumps({"text": str(found), "verdict": found.report.verdict, "not_seen": found.not_seen}), flush=True)


def watched(client, folder):
    """A queue of what the nannies tell."""
    import lockscope.dask

    told = queue.Queue()
    client.subscribe_topic("lockscope", lambda event: told.put(event[1]))
    client.register_plugin(lockscope.dask.Watch(report_dir=folder))
    return told


def main_waits():
    """Whether the main thread waits for what it gathers."""
    frame, names = sys._current_frames()[threading.main_thread().ident], []
    while frame:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names[0] == "wait" and "gather" in names


def ready(client, pids, is_asked, told):
    if is_asked:
        until(main_waits)
        diagnosis(client)
    if told:
        print(json.dumps(told.get()), flush=True)
    print("READY pids=" + ",".join(map(str, pids)), flush=True)
    for line in sys.stdin:
        if line.strip() == "diagnose":
            diagnosis(client)


def main():
    case = sys.argv[1]
    signal.alarm(SECONDS)
    cluster = LocalCluster(
        n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None, memory_limit=0, host="127.0.0.1"
    )
    client = Client(cluster)
    workers = sorted(client.scheduler_info()["workers"])
    is_healthy = case in ("ordered", "gated", "slow", "transfer", "event")
    told = watched(client, sys.argv[3]) if "watch" in sys.argv else None
    futures = [] if is_healthy else hang(case, client, workers)
    by_address = {nanny.worker_address: nanny.pid for nanny in cluster.workers.values()}
    pids = [os.getpid(), *(by_address[address] for address in workers)]
    to_tell = None if is_healthy else told
    threading.Thread(target=ready, args=[client, pids, "diagnose" in sys.argv, to_tell], daemon=True).start()
    if is_healthy:
        live(case, client, workers)
    client.gather(futures)


if __name__ == "__main__":
    main()
