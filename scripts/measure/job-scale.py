#!/usr/bin/env python3
"""What `lockscope merge` costs for large jobs, simulated from a real digest: time, memory, and the size of the files.

job-scale.py LOCKSCOPE DIGEST [RANKS] [THREADS]. Each rank of the job is a copy of one in DIGEST (testdata/jobs/gloo/lock: one rank deadlocks, the
others wait for it), in two rounds, eight ranks a node and one file a look as `lockscope job -o` writes them; then one file a rank and
round, as `lockscope run --report-dir` does. One rank in fifty has a class of threads of its own.
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


def member(rounds, rank, place):
    root = rank == ranks * 3 // 8
    source = next(one for one in rounds["members"] if (one["verdict"] == "deadlock") == root)
    one = copy.deepcopy(source)
    one["pid"] = one["identity"]["ns_pid"] = one["main"]["tid"] = 1000 + rank
    one["identity"].update(rank=rank, size=ranks, local_rank=place, local_size=8)
    for wait in one.get("waits", []):
        wait["tid"] = 1000 + rank
        if "collective" in wait:
            wait["collective"].update(rank=rank, size=ranks)
    left = threads - sum(count for _, count in one["classes"])
    one["classes"][-1][1] += max(left, 0)
    return one


def look(number, first, count, saw, partial):
    rounds = next(one for one in mould["looks"] if one["round"] == number)
    whole = {key: copy.deepcopy(value) for key, value in rounds.items() if key not in ("saw_set", "partial")}
    whole["host"] = {"name": f"node{first // 8:05}", "boot_id": f"{first // 8:08x}", "kernel": "6.18"}
    whole["saw"] = []
    whole["members"] = [member(rounds, rank, rank % 8) for rank in range(first, first + count)]
    if first % 50 == 0:
        own = copy.deepcopy(whole["classes"][0])
        own["place"] = f"step.py:{first} work"
        whole["classes"].append(own)
        whole["members"][0]["classes"].append([len(whole["classes"]) - 1, 1])
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
        size, ids, sets, files = 0, [], {}, 0
        for number in (1, 2):
            saw = None
            if number == 2:
                saw = fnv(" ".join(sorted(ids)).encode())
                sets = {saw: sorted(ids)}
                if partial:
                    data = text({**{key: mould[key] for key in ("schema", "version", "lockscope")}, "looks": [], "sets": sets})
                    Path(folder, "seen.digest.json").write_bytes(data)
                    size += len(data)
            for first in range(0, ranks, count):
                one = look(number, first, min(count, ranks - first), saw, partial)
                ids.append(one["id"])
                written = {**{key: mould[key] for key in ("schema", "version", "lockscope")}, "looks": [one]}
                if number == 2 and not partial:
                    written["sets"] = sets
                data = text(written)
                Path(folder, f"{first:06}.{number}.digest.json").write_bytes(data)
                size, files = size + len(data), files + 1
        for output in ([], ["-o", os.path.join(folder, "report.html")]):
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            before = time.perf_counter()
            run = subprocess.run([program, "merge", folder, *output], capture_output=True, text=True)
            took = time.perf_counter() - before
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            most, cpu = after.ru_maxrss / 1024, after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
            lines = (run.stdout or run.stderr).splitlines()
            what = f"HTML of {os.path.getsize(output[1]) >> 10} kB" if output else "text"
            print(f"{ranks} ranks, {files} files of {size / 1e6:.1f} MB, {what}: {took:.2f} s ({cpu:.2f} s of a processor), {most:.0f} MB, status {run.returncode}: {lines[0][:90] if lines else ''}")


measure(8, False)
measure(1, True)
