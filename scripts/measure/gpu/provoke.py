#!/usr/bin/env python3
"""The deadlock of 2019, GIL against the lock of CUDA's driver, predicted and made to happen on a GPU.

    scripts/measure/gpu/provoke.py LOCKSCOPE [--rounds 3] [--keep FOLDER] [--library libcuda.so.1]

It needs the driver, CPython and LOCKSCOPE, neither nvcc nor the network. Each round runs seed.py by itself (it ends), with `run --record` (the
prediction), with `run --provoke` (the deadlock), with the GIL released around the launch (nothing may happen), and makes the deadlock
happen again from the snapshot of the first. It prints one table, and exits with 1 where a round went otherwise.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
import time

SEED = pathlib.Path(__file__).resolve().with_name("provoked_seed.py")
LIMIT = 120


class Table:
    def __init__(self, keep):
        self.keep, self.rows, self.good = keep, {}, True

    def run(self, row, number, command, is_right):
        """Run a command and enter whether its status and text are right; the text."""
        begin = time.monotonic()
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  errors="replace", timeout=LIMIT)
            status, said = done.returncode, done.stdout
        except subprocess.TimeoutExpired as error:
            status, said = None, (error.stdout or b"").decode(errors="replace")
        right = is_right(status, said)
        self.good &= right
        self.rows.setdefault(row, []).append((right, time.monotonic() - begin))
        (self.keep / f"{re.sub('[^a-z]+', '-', row.lower())}.{number}.txt").write_text(f"status {status}\n{said}")
        return said

    def show(self):
        for row, results in self.rows.items():
            hits, seconds = sum(right for right, _ in results), [seconds for _, seconds in results]
            print(f"{row:44} {hits} of {len(results)}   {min(seconds):.1f} to {max(seconds):.1f} s")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockscope")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for what was said, and for snapshots")
    parser.add_argument("--library", default="libcuda.so.1")
    arguments = parser.parse_args()
    keep = arguments.keep or pathlib.Path(tempfile.mkdtemp(prefix="provoke-gpu-"))
    keep.mkdir(parents=True, exist_ok=True)
    table = Table(keep)
    seed = [sys.executable, SEED, arguments.library]

    def deadlocks(status, said):
        return status == 124 and "made to happen: predicted by" in said and "gil-vs-driver-callback" in said

    for number in range(arguments.rounds):
        folder = keep / f"round-{number}"
        run = [arguments.lockscope, "run", "--timeout", "90s"]
        table.run("by itself: ends", number, seed, lambda status, said: status == 0 and "did not hang" in said)
        table.run("run --record: predicts it", number, [*run, "--record", "--", *seed],
                  lambda status, said: status == 0 and "could deadlock" in said and "GIL" in said)
        provoke = [*run, "--provoke", "--report-dir", folder, "--", *seed]
        said = table.run("run --provoke: deadlock", number, provoke, deadlocks)
        table.run("GIL released at the launch: ends", number, [*run, "--provoke", "--", *seed, "released"],
                  lambda status, said: status == 0 and "\ndeadlock: " not in said)
        snapshots, orders = sorted(folder.glob("*.snapshot.zst")), folder / "hang.orders"
        if snapshots:
            subprocess.run([arguments.lockscope, "core", snapshots[0], "-q", "--reproducer", orders], check=False,
                           stdout=subprocess.DEVNULL)
        table.run("from its snapshot: deadlock", number, [*run, f"--provoke={orders}", "--", *seed], deadlocks)
        if number == 0:
            # The report of the deadlock, without that of the run before.
            print(said[said.rfind("lockscope: `"):])
    table.show()
    print(f"all that was said: {keep}")
    return 0 if table.good else 1


sys.exit(main())
