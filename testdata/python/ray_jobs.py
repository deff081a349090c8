#!/usr/bin/env python3
"""Clusters of Ray that hang, and healthy ones that look like it: ray_jobs.py CASE FILE [ROUNDS], on this machine alone.

Once the hang is there, lockscope.ray.diagnose() is asked in the driver until it says what is true of the case, or for PATIENCE seconds; the
looks and Ray's list of tasks are written to FILE, and one line of JSON is printed: verdict, finding, first sentence, seconds. Of a healthy
case each of ROUNDS double rounds is counted by its verdict. An alarm ends it, and the cluster ends with it.

  mutual    deadlock, rank-cycle: two actors, each in a method that waits for a method of the other
  nodes     the same on two nodes, an actor on each: scripts/check/ray-nodes makes them, and begins the cluster
  starved   deadlock, executor-self-wait: both threads of an actor wait for a third call of the same
  inside    deadlock of two threading.Locks in a producer; a consumer and the driver wait for it
  slow      healthy: an actor that computes for long, and others that wait for it
  load      healthy: actors that wait for short calls of one another all the time, in both directions, from threads that are free
"""

import _thread
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import lockscope.ray

SECONDS = 900
PATIENCE = 120
EXPECTED = {
    "mutual": ("deadlock", "rank-cycle"),
    "nodes": ("deadlock", "rank-cycle"),
    "starved": ("deadlock", "executor-self-wait"),
    "inside": ("deadlock", "lock-order-cycle"),
}
HEALTHY = ("running", "blocked")


def arrive(folder, name, count):
    """Until so many have come."""
    (Path(folder) / name).touch()
    while len(list(Path(folder).iterdir())) < count:
        threading.Event().wait(0.05)


@ray.remote(num_cpus=0)
class Clerk:
    def __init__(self, folder, name):
        self.folder, self.name, self.colleague = folder, name, None

    def introduce(self, colleague):
        self.colleague = colleague

    def ask(self):
        arrive(self.folder, self.name, 2)
        return ray.get(self.colleague.reply.remote())

    def reply(self):
        return self.name


@ray.remote(num_cpus=0, max_concurrency=2)
class Office:
    def __init__(self, folder):
        self.folder, self.me = folder, None

    def introduce(self, me):
        self.me = me

    def delegate(self, number):
        arrive(self.folder, str(number), 2)
        return ray.get(self.me.do.remote())

    def do(self):
        return 1


@ray.remote(num_cpus=0)
class Producer:
    def produce(self, folder):
        first, second = threading.Lock(), threading.Lock()
        taken = threading.Barrier(2)

        def feed():
            with first:
                taken.wait()
                with second:
                    pass

        feeder = threading.Thread(target=feed, name="feeder", daemon=True)
        with second:
            feeder.start()
            taken.wait()
            (Path(folder) / "taken").touch()
            with first:
                return 1


@ray.remote(num_cpus=0)
class Consumer:
    def consume(self, boxed):
        return ray.get(boxed[0])


@ray.remote(num_cpus=0)
class Machine:
    def compute(self, folder, seconds):
        (Path(folder) / "computes").touch()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            sum(range(10_000))
        return 1


@ray.remote(num_cpus=0, max_concurrency=4)
class Busy:
    def introduce(self, other):
        self.other = other

    def loop(self, folder, name, seconds):
        (Path(folder) / name).touch()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            ray.get(self.other.short.remote())

    def short(self):
        return 1


def two_nodes():
    """Where actors go that are to be on two nodes, once both are there."""
    while len(nodes := [node["NodeID"] for node in ray.nodes() if node["Alive"]]) < 2:
        threading.Event().wait(0.2)
    return [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]


def begin(case, folder):
    """The results that the driver waits for, and how many files say that it has come so far."""
    if case in ("mutual", "nodes"):
        where = two_nodes() if case == "nodes" else [None, None]
        clerks = [
            Clerk.options(scheduling_strategy=at).remote(folder, name) for at, name in zip(where, ("one", "other"))
        ]
        ray.get([clerk.introduce.remote(other) for clerk, other in zip(clerks, reversed(clerks))])
        return [clerk.ask.remote() for clerk in clerks], 2
    if case == "starved":
        office = Office.remote(folder)
        ray.get(office.introduce.remote(office))
        return [office.delegate.remote(number) for number in range(2)], 2
    if case == "inside":
        producer, consumer = Producer.remote(), Consumer.remote()
        return [consumer.consume.remote([producer.produce.remote(folder)])], 1
    if case == "slow":
        machine, consumers = Machine.remote(), [Consumer.remote() for _ in range(2)]
        long = machine.compute.remote(folder, SECONDS)
        return [consumer.consume.remote([long]) for consumer in consumers], 1
    if case == "load":
        pair = [Busy.remote() for _ in range(2)]
        ray.get([one.introduce.remote(other) for one, other in zip(pair, reversed(pair))])
        return [one.loop.remote(folder, f"{place}-{number}", SECONDS) for place, one in enumerate(pair) for number in range(2)], 4
    raise SystemExit(__doc__)


ended = []


def watch(case, folder, count, file, rounds):
    while len(list(Path(folder).iterdir())) < count:
        threading.Event().wait(0.05)
    began, verdicts = time.monotonic(), Counter()
    while True:
        asked = time.monotonic()
        # The names of nodes say that both were seen.
        diagnosis = lockscope.ray.diagnose(redact=case != "nodes")
        report = diagnosis.report
        code = report.findings[0].code if report.findings else None
        verdicts[report.verdict] += 1
        if case in EXPECTED:
            over = (report.verdict, code) == EXPECTED[case] or time.monotonic() - began > PATIENCE
        else:
            over = sum(verdicts.values()) >= rounds
        if over:
            break
    Path(file).write_bytes(diagnosis.digest())
    wrong = (report.verdict, code) != EXPECTED[case] if case in EXPECTED else any(one not in HEALTHY for one in verdicts)
    said = {
        "case": case,
        "verdicts": verdicts,
        "finding": code,
        "summary": report.summary,
        "seconds": round(time.monotonic() - asked, 1),
        "not_seen": diagnosis.not_seen,
    }
    print(json.dumps(said), flush=True)
    # The main thread waits in ray.get, where nobody else may shut Ray down.
    ended.append(int(wrong))
    _thread.interrupt_main()


def main():
    case, file, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 20
    signal.alarm(SECONDS)
    folder = tempfile.mkdtemp(prefix="ray-jobs-")
    if case == "nodes":
        ray.init(address="auto", log_to_driver=False)
    else:
        ray.init(num_cpus=2, object_store_memory=100 << 20, log_to_driver=False, dashboard_port=0)
    wanted, count = begin(case, folder)
    threading.Thread(target=watch, args=(case, folder, count, file, rounds), name="watch", daemon=True).start()
    try:
        ray.get(wanted)
    except KeyboardInterrupt:
        pass
    ray.shutdown()
    os._exit(ended[0] if ended else 1)


if __name__ == "__main__":
    main()
