#!/usr/bin/env python3
"""Compare what lockscope says of random worlds (testdata/python/worlds.py) with their truth.

random-worlds.py --lockscope target/release/lockscope [--worlds python/worlds_of_tasks.py] [--python python3] [--first 0]
                 [--count 200] [--at-once 4] [--verbose] [--programs FOLDER]

A world that goes on must not be called stuck, deadlock or orphaned-lock, nor may a finding have a thread that goes on among
its members; of the worlds that never go on at least 85 % must be called one of these. Exit status 1 if either does not hold.
Each wrong or missed world is a line: `python3 worlds.py SEED` is it. python/worlds_of_tasks.py has worlds of asyncio,
native/worlds.py those of C++ locks and native/worlds_of_rust.py those of Rust's, which are compiled here, 20 to a program, in one of
several ways each; --programs keeps these, and uses those that are there.
"""
import argparse, collections, concurrent.futures, json, os, subprocess, sys, tempfile, time

TESTDATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../testdata")
RUST_FLAGS = ["-g", "", "-O -g", "-O", "-O -C strip=symbols", "-C opt-level=1 -g", "-C opt-level=s -g", "-g -C panic=abort"]
FLAGS = ["-O0 -g", "-O0", "-O1 -g", "-O2 -g", "-O2", "-O2 -s", "-O3", "-Os -g", "-O2 -g -fno-omit-frame-pointer", "-O2 -static-libstdc++ -s"]
GXX = (["g++", "-std=c++17"], FLAGS, ["-x", "c++", "-", "-pthread"])
RUSTC = (["rustc", "--edition", "2021"], RUST_FLAGS, ["-"])
A_PROGRAM = 20
HUNG = {"stuck", "deadlock", "suspected-deadlock", "orphaned-lock"}


def programs(options, folder):
    """The native worlds, compiled: seed -> command."""
    firsts = range(options.first, options.first + options.count, A_PROGRAM)

    def program(first):
        path = os.path.join(folder, f"worlds{first}")
        if os.path.exists(path):
            return path
        source = subprocess.run([sys.executable, os.path.join(TESTDATA, options.worlds), str(first), str(A_PROGRAM)], stdout=subprocess.PIPE, check=True)
        compiler, all_flags, more = GXX if options.worlds == "native/worlds.py" else RUSTC
        flags = all_flags[first // A_PROGRAM % len(all_flags)].split()
        subprocess.run([*compiler, *flags, "-o", path, *more], input=source.stdout, check=True)
        return path

    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        paths = pool.map(program, firsts)
        return {seed: [path, str(seed)] for first, path in zip(firsts, paths) for seed in range(first, first + A_PROGRAM)}


def look(options, commands, seed):
    command = commands.get(seed) or [options.python, os.path.join(TESTDATA, options.worlds), str(seed)]
    target = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        line = ""
        while not line.startswith("TRUTH"):
            line = target.stdout.readline()
            if not line:
                return seed, "failed", "", "", "", []
        _, truth, way, *hung = line.split()
        time.sleep(options.settle)
        try:
            report = subprocess.run([options.lockscope, "attach", str(target.pid), "--format", "json"], stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, text=True, timeout=120)
        except subprocess.TimeoutExpired:
            return seed, "failed", "", "", "", []
        if not report.stdout:
            print(report.stderr, end="", flush=True)
            return seed, "failed", "", "", "", []
        report = json.loads(report.stdout)
        verdict = report.get("verdict", "none")
        said = ""
        if options.verbose:
            said = subprocess.run([options.lockscope, "attach", str(target.pid), "-v"], stdout=subprocess.PIPE, text=True).stdout
        return seed, truth, way, verdict, said, bystanders(report, hung) if hung else []
    finally:
        target.kill()
        target.wait()


def bystanders(report, hung):
    """Names of the threads in findings of a hang that the world does not call hung."""
    names = {thread["tid"]: thread.get("name") for process in report["processes"] for thread in process["threads"]}
    members = {names[member["tid"]] for finding in report["findings"] if finding["severity"] == "error" for member in finding.get("threads", [])}
    return sorted(str(name) for name in members if str(name).startswith("t") and name not in hung)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lockscope", required=True)
    parser.add_argument("--worlds", default="python/worlds.py")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--settle", type=float, default=0.3)
    parser.add_argument("--programs")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    tally, wrong = collections.Counter(), 0
    folder = tempfile.TemporaryDirectory()
    commands = programs(options, options.programs or folder.name) if options.worlds.startswith("native/") else {}
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        seeds = range(options.first, options.first + options.count)
        for seed, truth, way, verdict, said, beside in pool.map(lambda seed: look(options, commands, seed), seeds):
            is_hung = verdict in HUNG
            tally[truth, is_hung] += 1
            if truth == "on" and is_hung:
                wrong += 1
                print("WRONG ", seed, way, verdict, flush=True)
            if truth == "never" and beside:
                wrong += 1
                print("MEMBER", seed, way, verdict, *beside, flush=True)
            if truth == "never" and not is_hung:
                print("MISSED", seed, way, verdict, flush=True)
            if truth == "failed":
                print("FAILED", seed, flush=True)
            if said and ((truth == "on") == is_hung or beside):
                print(said, flush=True)
    never = tally["never", True] + tally["never", False]
    named = tally["never", True] / max(never, 1)
    on = tally["on", True] + tally["on", False]
    print(f"{on} worlds go on, {wrong} of them called hung; {never} never go on, {named:.1%} of them named")
    sys.exit(wrong > 0 or never > 0 and named < 0.85)


main()
