"""Looks at every program of workloads.py and prints a table of the verdicts: table.py [--record] [--rings | --pools] LOCKSCOPE FOLDER [CASE...]

Needs a machine with an NVIDIA GPU. Leaves report, JSON and snapshot of each case in FOLDER. A row is right when verdict
and findings are those of the case, the snapshot gives the same, and the target has the threads that it had. With --record all of
them have lockscope's recorder in them, which changes no row. With --rings the programs are those of rings.py, with --pools those of pools.py. Exits with 1 if a row is wrong. testdata/gpu holds what this gave on a real GPU."""
import argparse
import contextlib
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import time

import workloads

WORKLOADS = list(workloads.CASES)
import rings  # registers more

RINGS = [name for name in workloads.CASES if name not in WORKLOADS]
import pools  # and more

HERE = os.path.dirname(os.path.abspath(__file__))
READY_WITHIN, SETTLED_WITHIN = 120, 20


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("lockscope")
    arguments.add_argument("folder")
    arguments.add_argument("cases", nargs="*")
    arguments.add_argument("--repeat", type=int, default=1)
    arguments.add_argument("--record", action="store_true")
    arguments.add_argument("--rings", action="store_true")
    arguments.add_argument("--pools", action="store_true")
    options = arguments.parse_intermixed_args()
    pooled = [name for name in workloads.CASES if name not in WORKLOADS + RINGS]
    chosen = options.cases or (RINGS if options.rings else pooled if options.pools else WORKLOADS)
    os.makedirs(options.folder, exist_ok=True)
    devices, wrong = count_devices(), 0
    for number in range(options.repeat):
        print("%-34s %-6s %-20s %-9s %-9s %s" % ("case", "row", "verdict", "pause ms", "wall ms", "findings"))
        for name in chosen:
            case = workloads.CASES[name]
            lacks = missing(case, devices)
            if lacks:
                print("%-34s skip: needs %s" % (name, lacks))
                continue
            complaints = row(name, case, options, number)
            wrong += bool(complaints)
            for complaint in complaints:
                print("    " + complaint)
    print("%d rows wrong" % wrong)
    sys.exit(wrong != 0)


def count_devices():
    """How many GPUs there are; a stand-in for the driver has one."""
    try:
        return len(subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE).stdout.splitlines())
    except FileNotFoundError:
        return 1


def missing(case, devices):
    """What this machine lacks for a case."""
    lacks = ["%d devices" % case.devices] if devices < case.devices else []
    for need in case.needs:
        if need == "runtime":
            there = os.path.exists(workloads.runtime_library())
        elif need == "device":
            there = os.path.exists("/dev/nvidiactl")
        else:
            there = importlib.util.find_spec(need)
        lacks += [] if there else [need]
    return ", ".join(lacks)


def row(name, case, options, number):
    """Run a case, look at it, print its row. What is wrong with it."""
    environment = dict(os.environ, PYTHONUNBUFFERED="1", **case.environment)
    if options.record or case.recorded:
        preload = subprocess.check_output([options.lockscope, "record", "--preload"], universal_newlines=True)
        environment["LD_PRELOAD"] = preload.strip()
    errors = open(os.path.join(options.folder, name + ".stderr"), "w")
    command = [sys.executable, os.path.join(HERE, "workloads.py"), name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment, universal_newlines=True) as target:
        try:
            pids = ready(target)
            if not pids:
                print("%-34s WRONG  did not become ready, see %s" % (name, errors.name))
                return ["it said " + repr(target.poll())]
            settle(pids)
            return look(name, case, pids, options, number)
        finally:
            for pid in children(target.pid) + [target.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def look(name, case, pids, options, number):
    path = os.path.join(options.folder, name)
    before = threads(pids)
    tree = ["attach"] + [str(pid) for pid in pids]
    outputs = ["-o", path + ".json", "-o", path + ".txt", "-o", path + ".snapshot.zst"]
    done = subprocess.run([options.lockscope] + tree + outputs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    after = threads(pids)
    subprocess.run([options.lockscope, "core", path + ".snapshot.zst", "-o", path + ".replayed.json"],
                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        report, replayed = [json.load(open(path + end)) for end in (".json", ".replayed.json")]
    except (OSError, ValueError) as error:
        print("%-34s WRONG" % name)
        return [str(error), done.stderr]
    findings = [finding["code"] for finding in report["findings"]]
    complaints = []
    if report["verdict"] not in case.verdicts:
        complaints.append("verdict should be one of %s" % case.verdicts)
    complaints += ["no finding %s" % code for code in case.findings if code not in findings]
    if case.cycle and case.cycle not in cycles(report):
        complaints.append("cycles are %s, not %s" % (cycles(report), case.cycle))
    text = open(path + ".txt").read() + open(path + ".json").read()
    complaints += ["the report does not say %r" % word for word in case.words if word not in text]
    if (replayed["verdict"], cycles(replayed)) != (report["verdict"], cycles(report)):
        complaints.append("the snapshot says %s %s" % (replayed["verdict"], cycles(replayed)))
    if before != after:
        complaints.append("threads before %s, after %s" % (before, after))
    capture = report["capture"]
    print("%-34s %-6s %-20s %-9.1f %-9.1f %s" % (
        name, "WRONG" if complaints else "right", report["verdict"], capture["pause_us"] / 1e3, capture["total_us"] / 1e3,
        " ".join(findings)))
    return complaints


def cycles(report):
    names = {(process["id"], thread["tid"]): thread["name"] for process in report["processes"] for thread in process["threads"]}
    return [sorted({names.get((edge["process"], edge["waiter"]), "") for edge in cycle["edges"]} - {""})
            for cycle in report["cycles"]]


def ready(target):
    """The processes to look at, once the target says that it will hang."""
    end = time.monotonic() + READY_WITHIN
    while time.monotonic() < end:
        if not select.select([target.stdout], [], [], end - time.monotonic())[0]:
            return []
        line = target.stdout.readline()
        if not line:
            return []
        if line.startswith("READY pids="):
            return [int(pid) for pid in line[len("READY pids="):].split(",")]
    return []


def settle(pids):
    """Wait until the threads are where they were in ten samples before."""
    end, same, last = time.monotonic() + SETTLED_WITHIN, 0, None
    while same < 10 and time.monotonic() < end:
        now = [(task, calls(pid, task)) for pid in pids for task in tasks(pid)]
        same = same + 1 if now == last else 0
        last = now
        time.sleep(0.05)


def calls(pid, task):
    """Which call a thread is in, and with which first argument."""
    try:
        return open("/proc/%d/task/%s/syscall" % (pid, task)).read().split()[:2]
    except OSError:
        return []


def tasks(pid):
    try:
        return sorted(os.listdir("/proc/%d/task" % pid))
    except OSError:
        return []


def threads(pids):
    return [(pid, tasks(pid)) for pid in pids]


def children(pid):
    """All descendants that this target started."""
    found = []
    for task in tasks(pid):
        try:
            own = open("/proc/%d/task/%s/children" % (pid, task)).read().split()
        except OSError:
            continue
        for child in own:
            found += children(int(child)) + [int(child)]
    return found


if __name__ == "__main__":
    main()
