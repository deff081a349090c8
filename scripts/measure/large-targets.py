#!/usr/bin/env python3
"""Memory and time of lockscope on targets and files that are large: scripts/measure/large-targets.py [--output FILE]

2,000 processes of one program, threads deep in recursion, and 60 MB of JSON. FILE gets a line each: what was read, the most memory in MiB
(maximum resident set), seconds of a processor, and the exit status. Ends with 1 if anything took more than 1 GiB. LOCKSCOPE names the
program; target/release/lockscope is meant without it."""
import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LOCKSCOPE = os.environ.pop("LOCKSCOPE", ROOT / "target/release/lockscope")
MOST = 1024


def measured(name, words):
    child = subprocess.Popen([LOCKSCOPE, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    line = [name, str(usage.ru_maxrss >> 10), f"{usage.ru_utime + usage.ru_stime:.0f}", str(child.returncode)]
    print("\t".join(line), flush=True)
    return line


def target(folder, name, *words):
    program = folder / name
    subprocess.run(["cc", "-O1", "-g", "-w", "-pthread", "-o", program, ROOT / "testdata/hostile" / f"{name}.c"], check=True)
    started = subprocess.Popen([program, *words], stdout=subprocess.PIPE, text=True)
    started.stdout.readline()
    # The last of them come to their calls.
    time.sleep(2)
    return started


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--output", type=pathlib.Path)
    options = arguments.parse_args()
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        many = target(folder, "many", "2000")
        lines.append(measured("2,000 processes: `attach --tree`", ["attach", "--tree", str(many.pid)]))
        many.send_signal(signal.SIGKILL)
        many.wait()
        deep = target(folder, "deep", "200", "30000")
        snapshot = folder / "deep.snapshot.zst"
        lines.append(measured("200 threads, 30,000 calls deep: `attach`", ["attach", str(deep.pid)]))
        lines.append(measured("the same: `snapshot`", ["snapshot", str(deep.pid), "-o", snapshot]))
        deep.send_signal(signal.SIGKILL)
        deep.wait()
        lines.append(measured("that snapshot: `core`", ["core", snapshot]))
        for name, text in [
            ("numbers", "[" + "0," * (30 << 20) + "0]"),
            ("empty lists", "[" + "[]," * (20 << 20) + "0]"),
            ("pods", '{"kind":"List","items":[' + '{"a":0},' * (7 << 20) + '{"a":0}]}'),
        ]:
            file = folder / f"{name.replace(' ', '-')}-ras.json"
            file.write_text(text)
            lines.append(measured(f"60 MB of JSON, {name}: `merge`", ["merge", file]))
            file.unlink()
    if options.output:
        head = "what is read\tmemory, MiB\tprocessor, s\texit status"
        options.output.write_text("\n".join([head, *("\t".join(line) for line in lines), ""]))
    return int(any(int(line[1]) > MOST for line in lines))


sys.exit(main())
