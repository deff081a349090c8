"""What runs inside the emulated machine: aarch64_machine.py TASKS RESULTS

TASKS is an object in JSON: commands that compile; cases, of each its name, its command, how many threads sleep when it hangs, and
whether cores are taken of it and gdb is asked for its frames, or how often its calls are looked at; and commands whose output is
kept. RESULTS is a folder: what each look said, snapshots, cores, and below `root` the files that cores need to be read elsewhere.
Nothing is judged here. Times are multiples of LOCKSCOPE_PATIENCE.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import time

PATIENCE = 60 * float(os.environ.get("LOCKSCOPE_PATIENCE", "1"))
HERE = os.path.dirname(os.path.abspath(__file__))
LOCKSCOPE = [os.path.join(HERE, "lockscope")]
# An emulated machine is slow, and what it takes to stop a thread there says nothing.
AMPLE = ["--max-pause", "10s"]
FUTEX, EPOLL_PWAIT = "98", "22"
# Files that were read whole once.
LOADED = set()


def text(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def threads(pid):
    try:
        return [f"/proc/{pid}/task/{tid}" for tid in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def calls(pids):
    return [(text(f"{task}/syscall").split() or [""])[0] for pid in pids for task in threads(pid)]


def wait_until(what, done):
    deadline = time.monotonic() + PATIENCE
    seen = 0
    while seen < 3:
        seen = seen + 1 if done() else 0
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.02)


def start(command, folder):
    """The program, what it said before it was ready, and its processes."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, cwd=folder)
    said = []
    for line in child.stdout:
        if "READY pids=" in line:
            return child, said, [int(pid) for pid in line.rsplit("=", 1)[1].split(",")]
        said.append(line)
    raise EOFError(f"{command} ended before it was ready: {said}")


def settle(pids, asleep):
    if asleep:
        wait_until("its waits", lambda: calls(pids).count(FUTEX) >= asleep)
    else:
        wait_until("its wait for events", lambda: calls(pids[:1]).count(EPOLL_PWAIT) >= 1)


def all_sleep(pid):
    states = [text(f"{task}/status") for task in threads(pid)]
    return states and all("State:\tS" in state for state in states) and "running" not in calls([pid])


def run(words, **more):
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE * 2, **more)


def mapped_files(pids):
    lines = [line.split(None, 5) for pid in pids for line in text(f"/proc/{pid}/maps").splitlines()]
    return {words[5] for words in lines if len(words) > 5 and os.path.isfile(words[5])}


def load_files(pids):
    """Whatever is read of them later is in memory then: the disk of a busy host takes longer than lockscope waits for a file system."""
    for name in mapped_files(pids) - LOADED:
        with open(name, "rb") as file:
            while file.read(1 << 20):
                pass
        LOADED.add(name)


def keep_files(pids, root):
    """What is mapped of files, where it would be found below `root`."""
    for name in mapped_files(pids):
        copy = root + name
        if not os.path.exists(copy):
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            shutil.copyfile(name, copy)


def look(case, results):
    """Every way to look at one program that hangs."""
    folder = os.path.join(results, case["name"])
    os.makedirs(folder)
    scratch = os.path.join("/tmp", case["name"])
    os.makedirs(scratch)
    child, said, pids = start(case["command"], scratch)
    errors = []
    try:
        truth = next((json.loads(line.removeprefix("TRUTH ")) for line in said if line.startswith("TRUTH ")), {})
        if truth or case["asleep"]:
            settle(pids, truth.get("asleep", case["asleep"]))
        load_files(pids)
        names = [str(pid) for pid in pids]
        for kind, more in (("live", []), ("stopped", ["--stop", *AMPLE])):
            files = [word for end in ("json", "txt") for word in ("-o", f"{folder}/{kind}.{end}")]
            errors.append(run([*LOCKSCOPE, "attach", *names, *more, *files]).stderr)
        errors.append(run([*LOCKSCOPE, "snapshot", *names, *AMPLE, "-o", f"{folder}/snapshot"]).stderr)
        if case.get("frames"):
            words = ["-iex", "set debuginfod enabled off", "-p", names[0], "-x", f"{HERE}/frames.gdb"]
            with open(f"{folder}/frames.txt", "w") as file:
                file.write(run(["gdb", "-q", "-nx", "-batch", *words]).stdout)
        if case.get("cores"):
            keep_files(pids, os.path.join(results, "root"))
            run(["gdb", "-q", "-nx", "-batch", "-p", names[0], "-ex", f"gcore {folder}/gdb.core"])
            os.kill(pids[0], signal.SIGABRT)
            child.wait(PATIENCE)
            core = next(name for name in os.listdir(scratch) if name.startswith("core"))
            shutil.move(os.path.join(scratch, core), f"{folder}/kernel.core")
    finally:
        for pid in {child.pid, *pids}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        child.wait()
    return dict(truth=truth, pids=pids, errors=errors)


def zoo(case):
    """Many looks at calls that a careless stop ends early, each second one without a stop; what the program has counted."""
    child, _, pids = start(case["command"], "/tmp")
    wait_until("its calls", lambda: all_sleep(pids[0]))
    count = len(threads(pids[0]))
    gaps, statuses, frames = {}, set(), []
    for number in range(case["looks"]):
        how = [] if number % 2 else ["--stop"]
        statuses.add(run([*LOCKSCOPE, "attach", str(pids[0]), *how, *AMPLE, "-o", "/tmp/zoo.json"]).returncode)
        report = json.loads(text("/tmp/zoo.json"))
        frames.append(sum(thread["frames"] != [] for thread in report["processes"][0]["threads"]))
        for gap in report["gaps"]:
            gaps[gap["what"]] = gap["why"]
    child.terminate()
    said = child.communicate(timeout=PATIENCE)[0]
    return dict(said=said.splitlines(), threads=count, gaps=gaps, statuses=sorted(statuses), frames=frames)


def main():
    tasks, results = sys.argv[1:]
    with open(tasks) as file:
        tasks = json.load(file)
    for command in tasks["compile"]:
        began = time.monotonic()
        done = run(command)
        print("compile", command[-1], round(time.monotonic() - began, 1), flush=True)
        if done.returncode:
            sys.exit(done.stderr)
    told = {}
    for name, command in tasks["commands"].items():
        began = time.monotonic()
        done = run(command)
        print("command", name, round(time.monotonic() - began, 1), flush=True)
        told[name] = dict(status=done.returncode, output=done.stdout, errors=done.stderr)
    for case in tasks["cases"]:
        began = time.monotonic()
        try:
            told[case["name"]] = zoo(case) if "looks" in case else look(case, results)
        except Exception as error:
            told[case["name"]] = dict(failed=f"{type(error).__name__}: {error}")
        told[case["name"]]["seconds"] = round(time.monotonic() - began, 1)
        print(case["name"], told[case["name"]]["seconds"], flush=True)
    with open(os.path.join(results, "told.json"), "w") as file:
        json.dump(told, file)


main()
