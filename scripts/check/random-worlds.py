#!/usr/bin/env python3
"""Compare what lockscope says of random worlds of Python (testdata/python/worlds.py) with their truth.

random-worlds.py --lockscope target/release/lockscope [--worlds worlds_of_tasks.py] [--python python3] [--first 0]
                 [--count 200] [--at-once 4] [--verbose]

A world that goes on must not be called stuck, deadlock or orphaned-lock; of those that never go on at least 85 % must be
called stuck. Exit status 1 if either does not hold. Each wrong or missed world is a line: `python3 worlds.py SEED` is it.
worlds_of_tasks.py has worlds of asyncio.
"""
import argparse, collections, concurrent.futures, json, os, subprocess, sys, time

WORLDS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../testdata/python")
HUNG = {"stuck", "deadlock", "suspected-deadlock", "orphaned-lock"}


def look(options, seed):
    target = subprocess.Popen([options.python, os.path.join(WORLDS, options.worlds), str(seed)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        line = ""
        while not line.startswith("READY"):
            line = target.stdout.readline()
            if not line:
                return seed, "failed", "", "", ""
        _, truth, way = line.split()
        time.sleep(options.settle)
        try:
            report = subprocess.run([options.lockscope, "attach", str(target.pid), "--format", "json"], stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, text=True, timeout=120)
        except subprocess.TimeoutExpired:
            return seed, "failed", "", "", ""
        verdict = json.loads(report.stdout)["verdict"] if report.stdout else "none"
        said = ""
        if options.verbose:
            said = subprocess.run([options.lockscope, "attach", str(target.pid), "-v"], stdout=subprocess.PIPE, text=True).stdout
        return seed, truth, way, verdict, said
    finally:
        target.kill()
        target.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lockscope", required=True)
    parser.add_argument("--worlds", default="worlds.py")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--settle", type=float, default=0.3)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    tally, wrong = collections.Counter(), 0
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        seeds = range(options.first, options.first + options.count)
        for seed, truth, way, verdict, said in pool.map(lambda seed: look(options, seed), seeds):
            is_hung = verdict in HUNG
            tally[truth, is_hung] += 1
            if truth == "on" and is_hung:
                wrong += 1
                print("WRONG ", seed, way, verdict, flush=True)
            if truth == "never" and not is_hung:
                print("MISSED", seed, way, verdict, flush=True)
            if truth == "failed":
                print("FAILED", seed, flush=True)
            if said and (truth == "on") == is_hung:
                print(said, flush=True)
    never = tally["never", True] + tally["never", False]
    named = tally["never", True] / max(never, 1)
    on = tally["on", True] + tally["on", False]
    print(f"{on} worlds go on, {wrong} of them called hung; {never} never go on, {named:.1%} of them named")
    sys.exit(wrong > 0 or never > 0 and named < 0.85)


main()
