#!/usr/bin/env python3
"""What looks cost and whether they lose threads on a busy machine:
scripts/measure/loaded.py [--runs N] [--loads 0,4,12,30] [--threads 4,200,2000,10000] [--only NAME]

For each load (so many processes that do nothing but run) and each number of threads one target, and the tools on it in turn, so
that a slow moment of the machine meets all of them. The pause is felt inside the target by a real-time thread that wakes up all the
time (scripts/measure/pausemeter.c): it is the one thread that moves, and the load does not hold it up. A look is complete if it
tells of every thread's stack. Medians. It takes an hour with all its numbers, and the machine for itself; tools that are not
installed are left out and named (py-spy and pystack are installed by scripts/check/peers)."""
import argparse
import contextlib
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
FOLDER = ROOT / "target/bench"
# No tool is waited for longer.
PATIENCE = 180
TARGET = """
import sys, threading, time
threads, depth = int(sys.argv[1]), 10
threading.stack_size(256 << 10)
gate = threading.Lock(); gate.acquire()
arrived = threading.Semaphore(0)
def down(n):
    if n: return down(n - 1)
    arrived.release()
    with gate: pass
for i in range(threads - 1): threading.Thread(target=down, args=(depth,), daemon=True).start()
for i in range(threads - 1): arrived.acquire()
print('READY', flush=True)
time.sleep(3600)
"""


def stacks_of_lockscope(output):
    report = json.loads(output)
    return sum(1 for process in report["processes"] for thread in process["threads"] if len(thread["frames"]) > 1)


def stacks_by(pattern):
    return lambda output: len(re.findall(pattern, output, re.MULTILINE))


# Each tool's command, and how many threads its output tells of.
TOOLS = {
    "lockscope attach": (["{lockscope}", "attach", "--format", "json", "{pid}"], stacks_of_lockscope),
    "lockscope attach --stop": (["{lockscope}", "attach", "--stop", "--format", "json", "{pid}"], stacks_of_lockscope),
    "py-spy dump --native": (["{venv}/bin/py-spy", "dump", "--native", "-p", "{pid}"], stacks_by(r"^Thread ")),
    "pystack remote --native": (["{venv}/bin/pystack", "remote", "--native", "{pid}"], stacks_by(r"^Traceback for thread ")),
    "gdb, all backtraces": (
        ["gdb", "-q", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-p", "{pid}", "-ex", "thread apply all bt"],
        stacks_by(r"^#1 "),
    ),
}


def tools(only):
    venv = ROOT / "target/peers"
    places = {"lockscope": str(ROOT / "target/release/lockscope"), "venv": str(venv), "pid": "{pid}"}
    subprocess.run([ROOT / "scripts/check/peers", venv], check=False)
    found = {}
    for name, (command, count) in TOOLS.items():
        command = [word.format(**places) for word in command]
        if only and only not in name:
            continue
        if shutil.which(command[0]):
            found[name] = (command, count)
        else:
            print("left out, not installed:", name, file=sys.stderr)
    return found


@contextlib.contextmanager
def load(count):
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


@contextlib.contextmanager
def target(threads, library):
    with tempfile.NamedTemporaryFile() as file:
        file.truncate(4096)
        environment = dict(os.environ, PAUSEMETER_FILE=file.name, LD_PRELOAD=str(library))
        process = subprocess.Popen([sys.executable, "-c", TARGET, str(threads)], env=environment, stdout=subprocess.PIPE, text=True)
        try:
            if "READY" not in process.stdout.readline():
                raise SystemExit("the target with %s threads did not start" % threads)
            time.sleep(1)
            yield process.pid, mmap.mmap(file.fileno(), 4096)
        finally:
            process.kill()
            process.wait()


def measure(command, count, pid, meter):
    """Pause and wall time in milliseconds, and how many threads the tool told of."""
    meter[:16] = bytes(16)
    started = time.monotonic()
    words = [word.format(pid=pid) for word in command]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE)
        output = done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired:
        output = ""
    wall = time.monotonic() - started
    longest, = struct.unpack("Q", meter[:8])
    try:
        told = count(output)
    except (ValueError, KeyError):
        told = 0
    return longest / 1e6, wall * 1e3, told


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--loads", default="0,4,12,30")
    arguments.add_argument("--threads", default="4,200,2000,10000")
    arguments.add_argument("--only", help="tools whose names have this in them")
    options = arguments.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    library = FOLDER / "pausemeter.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, ROOT / "scripts/measure/pausemeter.c", "-pthread"], check=True)
    found = tools(options.only)
    print("| threads | load | tool | pause, ms | wall time, ms | complete looks |\n|---|---|---|---|---|---|")
    for threads in map(int, options.threads.split(",")):
        with target(threads, library) as (pid, meter):
            # The meter's own thread is one more.
            whole = len(os.listdir("/proc/%d/task" % pid)) - 1
            for busy in map(int, options.loads.split(",")):
                rows = {name: [] for name in found}
                with load(busy):
                    for run in range(options.runs + 1):
                        for name, (command, count) in found.items():
                            row = measure(command, count, pid, meter)
                            if run:  # the first round warms the caches
                                rows[name].append(row)
                for name, list_ in rows.items():
                    pause, wall = (statistics.median(column) for column in list(zip(*list_))[:2])
                    complete = sum(told >= whole for _, _, told in list_)
                    print("| %d | %d | %s | %.1f | %.0f | %d of %d |" % (threads, busy, name, pause, wall, complete, len(list_)), flush=True)


main()
