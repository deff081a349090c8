#!/usr/bin/env python3
"""What `python3.14 -m asyncio pstree` and lockscope show of ten programs of asyncio (testdata/python/tasks.py): scripts/measure/pstree.py

pstree.py --lockscope target/release/lockscope [--root FOLDER] [--python python3.14] [--runs 5]

Each task and each edge between two tasks that pstree shows must be in lockscope's report; a missing one is a line, and the exit status is 1.
FOLDER is the root file system of that Python (scripts/check/newer-pythons), entered by chroot in a mount namespace of its own. The table
has the median wall time of both, and the longest pause that a real-time thread of the target felt (scripts/measure/pausemeter.c)."""
import argparse
import json
import mmap
import os
import pathlib
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CASES = [
    "get_beside_a_heartbeat", "join_workers_are_gone", "put_nobody_gets", "event_never_set", "condition_is_never_notified",
    "semaphore_children_want_it", "wait_for_one_that_never_ends", "group_of_one_that_never_ends", "group_beside_one_that_may_raise",
    "idle_workers_beside_work",
]
INSIDE = "mount -t proc proc \"$1/proc\" && exec chroot \"$@\""


def shown_by_pstree(text):
    """Names of tasks, and pairs of who awaits whom: the indentation of a line says whose it is."""
    tasks, edges, above = set(), set(), []
    for line in text.splitlines():
        found = re.match(r"([\s│├└─]*)\(T\) (.*)$", line)
        if found:
            depth, name = len(found[1]), found[2].strip()
            above = [one for one in above if one[0] < depth]
            tasks.add(name)
            if above:
                edges.add((above[-1][1], name))
            above.append((depth, name))
    return tasks, edges


def shown_by_lockscope(report):
    task = {one["id"]: re.sub(r"^task (.*?)( \(.*)?$", r"\1", one["label"]) for one in report["resources"] if one["kind"] == "asyncio_task"}
    ends = {}
    for hold in report["holds"]:
        ends.setdefault(hold["resource"], []).append(hold.get("holder_resource"))
    edges = set()
    for wait in report["waits"]:
        for other in [wait["resource"], *ends.get(wait["resource"], [])]:
            if wait.get("waiter_resource") in task and other in task:
                edges.add((task[wait["waiter_resource"]], task[other]))
    return set(task.values()), edges


def measured(command, meter, **options):
    meter[:16] = bytes(16)
    started = time.monotonic()
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    return run, time.monotonic() - started, struct.unpack("Q", meter[:8])[0] / 1e6


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--lockscope", default=ROOT / "target/release/lockscope")
    arguments.add_argument("--root", type=pathlib.Path)
    arguments.add_argument("--python", default="python3.14")
    arguments.add_argument("--runs", type=int, default=5)
    options = arguments.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(dir=options.root / "tmp" if options.root else None))
    inside = pathlib.Path("/") / folder.relative_to(options.root) if options.root else folder
    prefix = ["unshare", "--mount", "sh", "-c", INSIDE, "sh", str(options.root)] if options.root else []
    library = folder / "pausemeter.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, ROOT / "scripts/measure/pausemeter.c", "-pthread"], check=True)
    shutil.copy(ROOT / "testdata/python/tasks.py", folder)
    (folder / "meter").write_bytes(bytes(4096))
    names = ["pstree", "lockscope"]
    took, missing, shown = {name: ([], []) for name in names}, [], [0, 0]
    preload = ["env", f"LD_PRELOAD={inside}/pausemeter.so", f"PAUSEMETER_FILE={inside}/meter"]
    with open(folder / "meter", "r+b") as file:
        meter = mmap.mmap(file.fileno(), 4096)
        # The thread that feels the pauses is at work: beside it no process is at a standstill.
        for case, felt in [(case, felt) for case in CASES for felt in ([], preload)]:
            target = subprocess.Popen([*prefix, *felt, options.python, inside / "tasks.py", case], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            try:
                while not (line := target.stdout.readline()).startswith("READY"):
                    assert line, case
                # chroot, env and the interpreter replace one another: the process is the one that was started.
                pid = str(target.pid)
                within = ["nsenter", "--mount", f"--target={pid}", "chroot", str(options.root)] if options.root else []
                for run in range(1 + bool(felt) * options.runs):
                    tree, *of_pstree = measured([*within, options.python, "-m", "asyncio", "pstree", pid], meter)
                    report, *of_own = measured([options.lockscope, "attach", pid, "-o", folder / "report.json"], meter)
                    for name, one in zip(names, [of_pstree, of_own] if run else []):
                        for column, value in zip(took[name], one):
                            column.append(value)
            finally:
                target.kill()
                target.wait()
            if felt:
                continue
            assert "(T)" in tree.stdout, tree.stdout
            theirs = shown_by_pstree(tree.stdout)
            ours = shown_by_lockscope(json.loads((folder / "report.json").read_text()))
            for which, (their, our) in enumerate(zip(theirs, ours)):
                shown[which] += len(their)
                missing += [f"{case}: {one} is not shown" for one in sorted(their - our, key=str)]
            print(f"{case}: {report.stdout.partition('; written to')[0]}")
    shutil.rmtree(folder)
    print(*missing, sep="\n")
    print(f"pstree shows {shown[0]} tasks and {shown[1]} edges of {len(CASES)} programs; lockscope shows all but {len(missing)} of them")
    print("\n| | wall time | longest pause |\n|---|---|---|")
    for name, (wall, pause) in took.items() if options.runs else ():
        print(f"| {name} | {statistics.median(wall):.2f} s | {statistics.median(pause):.1f} ms |")
    sys.exit(bool(missing))


main()
