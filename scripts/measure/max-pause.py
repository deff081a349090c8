#!/usr/bin/env python3
"""Whether --max-pause holds, the release counted in: scripts/measure/max-pause.py [--threads 10000] [--limits 100ms,200ms,1s] [--runs 5]

A C program of so many sleeping threads is looked at with each limit in turn. What lockscope tells stands beside what a real-time
thread of the target felt (scripts/measure/pausemeter.c; without root it is none of real time, and feels the load as well). It ends
with 1 if a stop took longer by more than a fifth than a limit that gives each thread 0.1 ms, as the manual promises. A smaller one is an
aim. --output FILE gets a line for each limit: limit, the longest reported and felt pause, and the limit that is promised. PROGRAM is target/release/lockscope, or the one that LOCKSCOPE names."""
import argparse
import json
import mmap
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# A limit has to give each thread this much, as the default does.
MILLISECONDS_A_THREAD = 0.1
TARGET = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static void *wait_for_ever(void *unused) {
    pthread_mutex_lock(&mutex);
    for (;;) pthread_cond_wait(&never, &mutex);
    return unused;
}
int main(int count, char **arguments) {
    pthread_attr_t small;
    pthread_t thread;
    alarm(900);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    for (int left = count > 1 ? atoi(arguments[1]) : 0; left > 0; left--)
        if (pthread_create(&thread, &small, wait_for_ever, 0)) return 1;
    puts("READY");
    fflush(stdout);
    for (;;) pause();
}
"""


def milliseconds(limit):
    number, unit = re.fullmatch(r"([0-9.]+)(us|ms|s)", limit).groups()
    return float(number) * {"us": 1e-3, "ms": 1, "s": 1e3}[unit]


def built(folder):
    program, library = folder / "threads", folder / "pausemeter.so"
    subprocess.run(["cc", "-O2", "-pthread", "-xc", "-", "-o", program], input=TARGET, text=True, check=True)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, ROOT / "scripts/measure/pausemeter.c", "-pthread"], check=True)
    return program, library


def look(lockscope, pid, limit, report, meter):
    meter[:16] = bytes(16)
    subprocess.run([lockscope, "attach", "--stop", str(pid), "--max-pause", limit, "-o", report], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    felt = struct.unpack("Q", meter[:8])[0] / 1e6
    with open(report) as file:
        capture = json.load(file)["capture"]
    return capture["pause_us"] / 1e3, felt, capture["threads"]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--threads", type=int, default=10000)
    arguments.add_argument("--limits", default="100ms,200ms,500ms,1s")
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--output", type=pathlib.Path)
    options = arguments.parse_args()
    lockscope = os.environ.get("LOCKSCOPE", ROOT / "target/release/lockscope")
    worst, lines = 0, []
    least = options.threads * MILLISECONDS_A_THREAD
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        program, library = built(folder)
        shared = folder / "longest"
        shared.write_bytes(bytes(4096))
        environment = dict(os.environ, PAUSEMETER_FILE=str(shared), LD_PRELOAD=str(library))
        target = subprocess.Popen([program, str(options.threads)], env=environment, stdout=subprocess.PIPE, text=True)
        try:
            target.stdout.readline()
            with open(shared, "r+b") as file, mmap.mmap(file.fileno(), 4096) as meter:
                print(f"{options.threads} threads; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
                print("limit      told        felt        told / limit")
                for limit in options.limits.split(","):
                    longest = [0, 0]
                    for _ in range(options.runs):
                        told, felt, _ = look(lockscope, target.pid, limit, folder / "report.json", meter)
                        over = told / milliseconds(limit)
                        worst = max(worst, over if milliseconds(limit) >= least else 0)
                        longest = [max(longest[0], told), max(longest[1], felt)]
                        print(f"{limit:<8} {told:8.1f} ms {felt:8.1f} ms {over:12.2f}", flush=True)
                    lines.append(f"{limit}\t{longest[0]:.0f}\t{longest[1]:.0f}\t{max(milliseconds(limit), least):.0f}")
                print(f"load at the end {os.getloadavg()[0]:.1f}; the longest of those promised was {worst:.2f} of its limit")
        finally:
            target.kill()
            target.wait()
    if options.output:
        head = "`--max-pause`\tlongest stop, ms\tlongest that a thread felt, ms\tpromised, ms"
        options.output.write_text("\n".join([head, *lines, ""]))
    return int(worst > 1.2)


sys.exit(main())
