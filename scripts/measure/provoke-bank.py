#!/usr/bin/env python3
"""How many predicted deadlocks `lockscope run --provoke` makes happen, and whether it makes one happen that cannot.

    scripts/measure/provoke-bank.py LOCKSCOPE [--rounds N] [--jobs N] [--only WORD] [--pythons PATH,...] [--packages PATH,...]

PATH of --pythons is a program of CPython, of which the last one runs the shapes and all run the shape `order` and CPython's logging.
PATH of --packages is one that has the packages of testdata/provoke-bank/packages.py, as far as they run there. The C compiler is
${CC:-cc}. A program that cannot hang runs by itself with --provoke, and once more with the orders of its twin that can. The programs whose names
begin with `rare` are made to happen once, and then again from the snapshot of that time.
"""

import argparse
import concurrent.futures
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

BANK = pathlib.Path(__file__).resolve().parents[2] / "testdata" / "provoke-bank"
LIMIT = 60

NATIVE = (
    [("order", kind) for kind in
     ("mutex", "recursive", "checking", "adaptive", "writer", "reader", "mixed", "spinlock", "semaphore")]
    + [(shape, "mutex") for shape in
       ("ring3", "ring4", "ring8", "helper", "callback", "destructor", "within", "often", "late", "pool", "forked",
        "replaced", "condition", "join", "wake-up")]
    + [("ring5", "mixed"), ("helper", "writer"), ("join", "writer")]
)
NATIVE_SAFE = (
    [("order", "mutex", guard) for guard in
     ("gated", "gated-by-writers", "gated-by-one-writer", "joined", "joined-between", "one-thread", "tried", "timed", "told",
      "sorted")]
    + [("order", kind, guard) for kind in ("writer", "reader") for guard in ("gated", "joined", "tried")]
    + [("order", "reader", "read"), ("ring4", "mutex", "sorted"), ("ring3", "mutex", "one-thread"),
       ("order", "spinlock", "tried"), ("helper", "mutex", "gated"), ("join", "mutex", "before"), ("wake-up", "mutex", "flag")]
)
PYTHON = (
    [("order", kind) for kind in ("lock", "rlock", "condition", "plain-condition")]
    + [(shape, "lock") for shape in
       ("bare", "helper", "one-line", "managed", "stacked", "decorated", "generated", "finalised", "observed", "lazily", "often",
        "late", "executor", "timer", "forked", "ring4", "logged", "join")]
    + [("ring3", "rlock"), ("wake-up", "condition"), ("wake-up", "event")]
    + [("gil", kind) for kind in ("mutex", "writer", "reader", "spinlock")]
    + [("cuda", "launch"), ("cuda", "malloc")]
)
PYTHON_SAFE = (
    [("order", kind, guard) for kind in ("lock", "rlock") for guard in ("gated", "joined", "one-thread", "tried", "timed", "told",
                                                                     "sorted")]
    + [("ring3", "lock", "sorted"), ("gil", "mutex", "released"), ("cuda", "launch", "released"), ("join", "lock", "before"),
       ("wake-up", "condition", "flag")]
)
# Hangs that come rarely by themselves: each is caught once, and made to happen again from its snapshot.
RARE_NATIVE = [("order", "mutex"), ("order", "writer"), ("order", "spinlock"), ("ring4", "mutex"), ("helper", "mutex"),
               ("late", "mutex"), ("join", "mutex")]
RARE_PYTHON = [("order", "lock"), ("order", "rlock"), ("ring4", "lock"), ("managed", "lock"), ("late", "lock"), ("gil", "mutex"),
               ("cuda", "launch"), ("join", "lock")]
PACKAGES = ("paho", "kafka", "opentelemetry", "apscheduler")


class Bank:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.rows, self.programs = [], concurrent.futures.ThreadPoolExecutor(arguments.jobs)
        self.begun = []

    def run(self, options, command):
        """Whether it was made to happen, the status, the seconds and the text."""
        begin = time.monotonic()
        line = [self.arguments.lockscope, "run", *options, "--provoke-for", f"{LIMIT}s", "--timeout", "30s", "--", *command]
        try:
            done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                  timeout=3 * LIMIT, stdin=subprocess.DEVNULL)
            status, said = done.returncode, done.stdout
        except subprocess.TimeoutExpired as error:
            status, said = None, (error.stdout or b"").decode(errors="replace")
        return "made to happen: predicted by" in said, status, time.monotonic() - begin, said

    def show(self, name, wanted, hits, rounds, seconds):
        self.rows.append((name, wanted, hits, rounds))
        print(f"{name:48} {hits:3} of {rounds:3}  {statistics.median(seconds):6.1f} s  {'' if wanted == (hits > 0) else 'WRONG'}",
              flush=True)

    def keep(self, name, round_number, said):
        path = pathlib.Path(self.arguments.keep) if self.arguments.keep else None
        if path:
            path.mkdir(parents=True, exist_ok=True)
            (path / f"{name.replace(' ', '_').replace('/', '_')}.{round_number}").write_text(said)

    def begin(self, kind, name, *more):
        """Measure a program, beside as many others as --jobs allows."""
        if self.arguments.only in name:
            self.begun.append(self.programs.submit(kind, name, *more))

    def can(self, name, command):
        """It happens, in each round."""
        results = []
        for number in range(self.arguments.rounds):
            happened, status, seconds, said = self.run(["--provoke"], command)
            # A deadlock that happens in the first run needs no help.
            results.append((happened and status == 124 and seconds <= LIMIT, seconds))
            if not results[-1][0]:
                self.keep(name, number, said)
        self.show(name, True, sum(hit for hit, _ in results), len(results), [seconds for _, seconds in results])

    def cannot(self, name, command, twin):
        """It never happens, neither by its own predictions nor by those of the program that can hang."""
        orders = self.folder / name.replace(" ", "-")
        subprocess.run([self.arguments.lockscope, "run", "--record", "--report-dir", orders, "--", *twin], check=False,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=LIMIT)
        results = []
        for number in range(self.arguments.rounds):
            for options in (["--provoke"], [f"--provoke={orders / 'orders'}"]):
                happened, status, seconds, said = self.run(options, command)
                # Without predictions in the orders of the twin the command is not run; a shape that is not predicted says so.
                is_bad = happened or status not in (0, 125)
                results.append((is_bad, seconds))
                if is_bad or status == 125:
                    self.keep(name, number, said)
        self.show(name, False, sum(hit for hit, _ in results), len(results), [seconds for _, seconds in results])


    def again(self, name, command):
        """It happens again, in each round, from a snapshot of one time that it did."""
        folder = self.folder / name.replace(" ", "-")
        _, _, seconds, said = self.run(["--provoke", "--report-dir", folder], command)
        snapshots, orders = sorted(folder.glob("*.snapshot.zst")), folder / "hang.orders"
        if snapshots:
            done = subprocess.run([self.arguments.lockscope, "core", snapshots[0], "-q", "--reproducer", orders], check=False, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            said += done.stdout
        results = []
        for number in range(self.arguments.rounds if orders.exists() else 0):
            happened, status, seconds, said = self.run([f"--provoke={orders}"], command)
            results.append((happened and status == 124, seconds))
            if not results[-1][0]:
                self.keep(name, number, said + orders.read_text())
        if not results:
            self.keep(name, "none", said)
            results = [(False, seconds)]
        self.show(name, True, sum(hit for hit, _ in results), len(results), [seconds for _, seconds in results])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockscope", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="programs side by side: each sleeps for most of its time")
    parser.add_argument("--only", default="", help="part of a name, such as `native` or `python gil`")
    parser.add_argument("--pythons", default=sys.executable)
    parser.add_argument("--packages", default="")
    parser.add_argument("--keep", help="a folder for the output of runs that went wrong")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="provoke-bank-") as name:
        folder = pathlib.Path(name)
        bank = Bank(arguments, folder)
        compiler = os.environ.get("CC", "cc")
        native, driver = folder / "shapes", folder / "libcuda.so.1"
        subprocess.run([compiler, "-g", "-O1", "-pthread", "-o", native, BANK / "shapes.c"], check=True)
        subprocess.run([compiler, "-w", "-g", "-shared", "-fPIC", "-pthread", "-o", driver, BANK.parent / "fakecuda/libcuda.c"],
                       check=True)
        pythons = arguments.pythons.split(",")
        shapes = [pythons[-1], BANK / "shapes.py"]
        for shape in NATIVE:
            bank.begin(bank.can, f"native {' '.join(shape)}", [native, *shape])
        for shape in PYTHON:
            bank.begin(bank.can, f"python {' '.join(shape)}", [*shapes, *shape, "none", driver])
        for python in pythons:
            version = subprocess.run([python, "-c", "import platform; print(platform.python_version())"], text=True,
                                     stdout=subprocess.PIPE, check=True).stdout.strip()
            bank.begin(bank.can, f"package logging {version}", [python, BANK / "packages.py", "logging"])
            bank.begin(bank.can, f"version order {version}", [python, BANK / "shapes.py", "order", "lock", "none"])
        for python in filter(None, arguments.packages.split(",")):
            for package in PACKAGES:
                command = [python, BANK / "packages.py", package]
                alone = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
                                       stdin=subprocess.DEVNULL)
                if alone.returncode == 0:
                    bank.begin(bank.can, f"package {package}", command)
        for shape in NATIVE_SAFE:
            bank.begin(bank.cannot, f"safe native {' '.join(shape)}", [native, *shape], [native, *shape[:2]])
        for shape in PYTHON_SAFE:
            bank.begin(bank.cannot, f"safe python {' '.join(shape)}", [*shapes, *shape, driver], [*shapes, *shape[:2], "none", driver])
        for shape in RARE_NATIVE:
            bank.begin(bank.again, f"rare native {' '.join(shape)}", [native, *shape])
        for shape in RARE_PYTHON:
            bank.begin(bank.again, f"rare python {' '.join(shape)}", [*shapes, *shape, "none", driver])
        for begun in bank.begun:
            begun.result()
        for wanted, title in ((True, "can hang"), (False, "cannot hang")):
            rows = [row for row in bank.rows if row[1] == wanted]
            hits, rounds = sum(row[2] for row in rows), sum(row[3] for row in rows)
            if rounds:
                print(f"{len(rows)} programs that {title}: {hits} of {rounds} runs hung ({100 * hits / rounds:.1f} %)")


main()
