#!/usr/bin/env python3
"""Ends lockscope by SIGKILL at random moments, and checks that the target is unharmed: scripts/check/kills.py [--kills 1000] [--output FILE]

A third each: `attach`, `attach --stop`, and `run`, of which any process is ended but the one that the command's status comes from. What a
look is taken of has threads in calls that a careless stop ends early (testdata/native/zoo.c, harmless.c). FILE gets a line each: what was
ended, how often, how many targets were lost, how many threads stayed stopped or traced, the longest time until all ran, in ms, and how
many calls returned early. Ends with 1 if a target was lost or a thread stayed stopped. LOCKSCOPE names the program."""
import argparse
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# The programs end themselves after 900 s.
AT_A_TARGET = 100
PATIENCE = 10


def built(folder, name):
    program = folder / name
    subprocess.run(["cc", "-O1", "-g", "-w", "-pthread", "-o", program, ROOT / "testdata/native" / f"{name}.c"], check=True)
    return program


def begun(words):
    """A process and its target, which has said that it is ready."""
    started = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    line = started.stdout.readline()
    return started, int(line.split("=")[1])


def held(pid):
    """Threads that stand stopped or traced."""
    found = []
    try:
        for tid in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{tid}/status") as file:
                fields = dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)
            if fields["TracerPid"] != "0" or fields["State"][0] in "tT":
                found.append(tid)
    except FileNotFoundError:
        pass
    return found


def until_free(pid):
    """Threads that are held for longer than all patience, and how long the last one was."""
    start = time.monotonic()
    while (found := held(pid)) and time.monotonic() - start < PATIENCE:
        pass
    return len(found), (time.monotonic() - start) * 1000


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []


def early_returns(said):
    """Calls of zoo.c and harmless.c that returned."""
    counts = [line.split("=")[1].split()[0] for line in said.splitlines() if "=" in line]
    return sum(int(count) for count in counts)


class Count:
    def __init__(self, name):
        self.name, self.kills, self.lost, self.stuck, self.longest, self.early = name, 0, 0, 0, 0.0, 0

    def add(self, pid):
        self.kills += 1
        if not lives(pid):
            self.lost += 1
        stuck, longest = until_free(pid)
        self.stuck += stuck
        self.longest = max(self.longest, longest)

    def line(self):
        return "\t".join([self.name, *(str(value) for value in [self.kills, self.lost, self.stuck, round(self.longest), self.early])])


def attached(lockscope, program, words, kills):
    count = Count(" ".join(["attach", *words]))
    while count.kills < kills:
        target, pid = begun([program])
        start = time.monotonic()
        subprocess.run([lockscope, "attach", *words, str(pid)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        usual = time.monotonic() - start
        of_this = min(AT_A_TARGET, kills - count.kills)
        until = time.monotonic() + 700
        while of_this and time.monotonic() < until:
            look = subprocess.Popen([lockscope, "attach", *words, str(pid)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(random.uniform(0, usual))
            is_in_time = look.poll() is None
            look.kill()
            look.wait()
            # Those that were over already say nothing.
            if is_in_time:
                count.add(pid)
                of_this -= 1
        target.send_signal(signal.SIGTERM)
        count.early += early_returns(target.communicate()[0])
        count.lost += target.returncode != 0
    return count


def watched(lockscope, program, kills):
    count = Count("run")
    while count.kills < kills:
        run, pid = begun([lockscope, "run", "--", program])
        # Looks begin after half a second in which nothing moves.
        time.sleep(random.uniform(0, 1.2))
        helpers = [child for child in children(run.pid) if child != pid]
        helpers += [child for helper in helpers for child in children(helper) if child != pid]
        if helpers:
            os.kill(random.choice(helpers), signal.SIGKILL)
            time.sleep(random.uniform(0, 0.1))
            count.add(pid)
        if lives(pid):
            os.kill(pid, signal.SIGTERM)
        count.early += early_returns(run.communicate()[0])
        count.lost += run.returncode != 0
    return count


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--kills", type=int, default=1000)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--output", type=pathlib.Path)
    options = arguments.parse_args()
    random.seed(options.seed)
    lockscope = os.environ.get("LOCKSCOPE", ROOT / "target/release/lockscope")
    os.environ.pop("LOCKSCOPE", None)
    third = options.kills // 3
    with tempfile.TemporaryDirectory() as folder:
        zoo, harmless = (built(pathlib.Path(folder), name) for name in ("zoo", "harmless"))
        counts = []
        for make in (
            lambda: attached(lockscope, zoo, [], third),
            lambda: attached(lockscope, zoo, ["--stop"], options.kills - 2 * third),
            lambda: watched(lockscope, harmless, third),
        ):
            counts.append(make())
            print(counts[-1].line(), flush=True)
    load = f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} processors"
    print(load)
    if options.output:
        head = "what was ended\ttimes\ttargets lost\tthreads left stopped\tlongest until all ran, ms\tcalls returned early"
        options.output.write_text("\n".join([head, *(count.line() for count in counts), ""]))
    return int(any(count.lost or count.stuck for count in counts))


sys.exit(main())
