#!/usr/bin/env python3
"""What `lockscope merge` costs for large jobs, simulated from a real digest: time, memory, and the size of the files.

job-scale.py LOCKSCOPE DIGEST [RANKS] [THREADS] [SHAPE]. Each rank of the job is a copy of one in DIGEST, in two rounds, eight ranks a node
and one file a look as `lockscope job -o` writes them; then one file a rank and round, as `lockscope run --report-dir` does. Which
digest it is made of says what hangs:

    testdata/jobs/gloo/lock/all.digest.json      one rank deadlocks, the others wait for it in one operation
    testdata/jobs/gloo/receive/all.digest.json   each rank receives from the next one, in a ring of all
    testdata/jobs/ray/mutual.digest.json         each actor waits for the next one: in a ring of all, or with SHAPE `chain` up to one that works
"""

import copy
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

program, mould = sys.argv[1], json.load(open(sys.argv[2]))
ranks = int(sys.argv[3]) if len(sys.argv) > 3 else 10_000
threads = int(sys.argv[4]) if len(sys.argv) > 4 else 200
is_chain = sys.argv[5:] == ["chain"]


def fnv(data):
    value = 0x6C62272E07BB014262B821756295C58D
    for byte in data:
        value = (value ^ byte) * 0x0000000001000000000000000000013B & (1 << 128) - 1
    return f"{value:032x}"


def text(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def named(look):
    look["id"] = ""
    look["id"] = fnv(text(look))
    return look


def task(actor):
    return f"{actor:016x}{actor:08x}{0:016x}01000000"


def actor_like(rounds, number):
    """An actor that waits for the next one; the last of a chain for nobody."""
    one = copy.deepcopy(next(one for one in rounds["members"] if one["cluster"].get("running")))
    one["pid"] = one["identity"]["ns_pid"] = one["main"]["tid"] = 1000 + number
    of, wanted = one["cluster"], task((number + 1) % ranks)
    of["roles"][0].update(id=f"{number:056x}", actor=task(number)[16:])
    of["running"][0]["tid"] = 1000 + number
    of["requests"][0].update(tid=1000 + number, names=[wanted], request=wanted)
    if is_chain and number == ranks - 1:
        del of["requests"]
    return one


def rank_like(rounds, rank, place):
    root = rank == ranks * 3 // 8
    # The same one in both rounds.
    members = sorted(rounds["members"], key=lambda one: one["identity"]["rank"])
    fits = lambda one: (one["verdict"] == "deadlock") == root or not any(one["verdict"] == "deadlock" for one in members)
    one = copy.deepcopy(next(one for one in members if fits(one)))
    one["pid"] = one["identity"]["ns_pid"] = one["main"]["tid"] = 1000 + rank
    one["identity"].update(start_ticks=1000, rank=rank, size=ranks, local_rank=place, local_size=8)
    for wait in one.get("waits", []):
        wait["tid"] = 1000 + rank
        if "collective" in wait:
            # Words that were not there would stand at another place, and change the name of the look.
            wait["collective"].update({word: value for word, value in (("rank", rank), ("size", ranks)) if word in wait["collective"]})
            if wait["collective"]["op"] == "recv":
                wait["collective"]["peers"] = [(rank + 1) % ranks]
                wait["label"] = f"recv from rank {(rank + 1) % ranks}"
    return one


def member(rounds, rank, place):
    is_cluster = "cluster" in rounds["members"][0]
    one = actor_like(rounds, rank) if is_cluster else rank_like(rounds, rank, place)
    # What 1.4 says once, where DIGEST is older: how many threads there are, and what the main thread is in; and since 1.5 how many bytes
    # each connection has carried, the same in both rounds.
    one.pop("classes", None)
    of_main = [wait["collective"] for wait in one.get("waits", []) if wait["holds_up_main"] and "collective" in wait]
    if one.get("waits"):
        one["waits"] = [wait for wait in one["waits"] if wait["holds_up_main"] or wait.get("collective") not in of_main]
    ordered = {}
    for key, value in one.items():
        if key in ("enqueued", "witnessed"):
            ordered.setdefault("threads", threads)
        if key != "threads":
            ordered[key] = value
        if key == "connections" and "carried" not in one:
            ordered["carried"] = [1_000_000 + 1000 * rank + place for place in range(len(value))]
    ordered.setdefault("threads", threads)
    return ordered


def look(number, first, count, saw, partial):
    of_round = lambda number: next(one for one in mould["looks"] if one["round"] == number)
    # A hang that stands: what the second round saw was there in the first.
    rounds, times = of_round(2), of_round(number)
    rounds = {key: times[key] if key in ("round", "began", "ended") else value for key, value in rounds.items()}
    whole = {key: copy.deepcopy(value) for key, value in rounds.items() if key not in ("saw_set", "partial", "classes")}
    whole["host"] = {"name": f"node{first // 8:05}", "boot_id": f"{first // 8:08x}", "kernel": "6.18"}
    whole["saw"], whole["gaps"] = [], []
    whole["members"] = [member(rounds, rank, rank % 8) for rank in range(first, first + count)]
    ordered = {}
    for key, value in whole.items():
        ordered[key] = value
        if key == "saw":
            if saw:
                ordered["saw_set"] = saw
            if partial:
                ordered["partial"] = True
    return named(ordered)


def measure(count, partial):
    with tempfile.TemporaryDirectory() as folder:
        size, ids, files = 0, [], 1
        head = {**{key: mould[key] for key in ("schema", "version", "lockscope")}, "version": "1.6"}
        for number in (1, 2):
            saw = None
            if number == 2:
                saw = fnv(" ".join(sorted(ids)).encode())
                data = text({**head, "looks": [], "sets": {saw: sorted(ids)}})
                Path(folder, f"seen-{saw}.digest.json").write_bytes(data)
                size += len(data)
            for first in range(0, ranks, count):
                one = look(number, first, min(count, ranks - first), saw, partial)
                ids.append(one["id"])
                data = text({**head, "looks": [one]})
                Path(folder, f"{first:06}.{number}.digest.json").write_bytes(data)
                size, files = size + len(data), files + 1
        print(f"{ranks} ranks of {threads} threads, {files} files of {size / 1e6:.1f} MB: {size / 2 / ranks:.0f} bytes a rank and round")
        for output in ([], ["-o", os.path.join(folder, "report.html")]):
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            before = time.perf_counter()
            run = subprocess.run([program, "merge", folder, *output], capture_output=True, text=True)
            took = time.perf_counter() - before
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            most, cpu = after.ru_maxrss / 1024, after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
            lines = (run.stdout or run.stderr).splitlines()
            what = f"HTML of {os.path.getsize(output[1]) >> 10} kB" if output else f"text of {len(lines)} lines"
            print(f"  {what}: {took:.2f} s ({cpu:.2f} s of a processor), {most:.0f} MB, status {run.returncode}: {lines[0][:90] if lines else ''}")


measure(8, False)
measure(1, True)
