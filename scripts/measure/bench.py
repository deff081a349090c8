#!/usr/bin/env python3
"""How long tools stop a Python process, and how long they take: scripts/measure/bench.py [--runs N] [--threads 10,200] [--mapped GIB]

Each run starts nothing anew: one target, the tools in turn, so that a slow moment of the machine meets all of them. The
pause is measured inside the target by a thread that wakes up all the time (scripts/measure/pausemeter.c). Tools that are not
installed are left out and named; py-spy and pystack are installed by scripts/check/peers. With --mapped the target has so much
memory in pieces of 8 MiB, of each of which it uses a tenth, as a process with PyTorch has."""
import argparse
import mmap
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TARGET = """
import mmap, sys, threading, time
threads, depth, mapped = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
PIECE = 8 << 20
pieces = [mmap.mmap(-1, PIECE, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | (i % 2 and mmap.PROT_WRITE)) for i in range((mapped << 30) // PIECE)]
for piece in pieces[1::2]:
    for at in range(0, PIECE // 5, 4096): piece[at] = 1
gate = threading.Lock(); gate.acquire()
arrived = threading.Semaphore(0)
def down(n):
    if n: return down(n - 1)
    arrived.release()
    with gate: pass
for i in range(threads): threading.Thread(target=down, args=(depth,), daemon=True).start()
for i in range(threads): arrived.acquire()
print('READY', flush=True)
time.sleep(600)
"""


def tools():
    lockscope = ROOT / "target/release/lockscope"
    venv = ROOT / "target/peers"
    subprocess.run([ROOT / "scripts/check/peers", venv], check=True)
    wanted = {
        "lockscope attach": [lockscope, "attach", "{pid}"],
        "py-spy dump --native": [venv / "bin/py-spy", "dump", "--native", "-p", "{pid}"],
        "pystack remote --native": [venv / "bin/pystack", "remote", "--native", "{pid}"],
        "gdb, all backtraces": ["gdb", "-q", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-p", "{pid}", "-ex", "thread apply all bt"],
        "eu-stack": ["eu-stack", "-p", "{pid}"],
    }
    found = {}
    for name, command in wanted.items():
        if shutil.which(str(command[0])):
            found[name] = [str(word) for word in command]
        else:
            print("left out, not installed:", name, file=sys.stderr)
    return found


def measure(command, pid, meter):
    meter[:16] = bytes(16)
    started = time.monotonic()
    process = subprocess.Popen([w.format(pid=pid) for w in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    usage = os.wait4(process.pid, 0)[2]
    wall = time.monotonic() - started
    longest, = struct.unpack("Q", meter[:8])
    return longest / 1e6, wall * 1e3, usage.ru_maxrss / 1024


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--threads", default="10,200")
    arguments.add_argument("--mapped", default="0")
    options = arguments.parse_args()
    folder = ROOT / "target/bench"
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "pausemeter.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, ROOT / "scripts/measure/pausemeter.c", "-pthread"], check=True)
    commands = tools()
    for threads in options.threads.split(","):
        with tempfile.NamedTemporaryFile() as file:
            file.truncate(4096)
            environment = dict(os.environ, PAUSEMETER_FILE=file.name, LD_PRELOAD=str(library))
            target = subprocess.Popen([sys.executable, "-c", TARGET, threads, "20", options.mapped], env=environment, stdout=subprocess.PIPE, text=True)
            try:
                assert "READY" in target.stdout.readline()
                meter = mmap.mmap(file.fileno(), 4096)
                rows = {name: [] for name in commands}
                for run in range(options.runs + 1):
                    for name, command in commands.items():
                        row = measure(command, target.pid, meter)
                        if run:  # the first round warms the caches
                            rows[name].append(row)
            finally:
                target.kill()
                target.wait()
        print("\n| %s threads | longest pause, ms | wall time, ms | peak memory, MiB | pause, as a multiple |\n|---|---|---|---|---|" % threads)
        medians = {name: [statistics.median(column) for column in zip(*list_)] for name, list_ in rows.items()}
        own = medians["lockscope attach"][0]
        for name, (pause, wall, memory) in medians.items():
            print("| %s | %.1f | %.0f | %.0f | %.1f |" % (name, pause, wall, memory, pause / own))


main()
