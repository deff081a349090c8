#!/usr/bin/env python3
"""What `lockscope run` costs a test suite: scripts/measure/suite.py LOCKSCOPE PAIRS COMMAND...

Runs COMMAND (pytest, with any arguments) alone and under `lockscope run` in turn, as many pairs as asked for, and prints the
ratios of the wall times and of the suite's own CPU times, lockscope's CPU time as a share of these, and whether each test had
the same result. The order within a pair changes from pair to pair, since a machine warms up. For example, from an environment
with networkx:

    scripts/measure/suite.py lockscope 10 python -m pytest -q --pyargs networkx.algorithms.isomorphism networkx.classes
"""
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml

# The last thing that the shell does: CPU time of its parent, which is lockscope, and of all that it has waited for.
ACCOUNT = "{command}; status=$?; cat /proc/$PPID/stat /proc/$$/stat > {account}; exit $status"


def ticks(line):
    """User, system, and both of the children waited for, of a line of /proc/PID/stat."""
    return [int(field) for field in line.rpartition(")")[2].split()[11:15]]


def once(lockscope, command, folder):
    """Run the suite once, under lockscope if one is given: seconds, ticks of both, results."""
    account, results = os.path.join(folder, "account"), os.path.join(folder, "results.xml")
    line = ACCOUNT.format(command=shlex.join([*command, f"--junitxml={results}"]), account=shlex.quote(account))
    words = [*([lockscope, "run", "--"] if lockscope else []), "sh", "-c", line]
    environment = {name: value for name, value in os.environ.items() if name != "LOCKSCOPE"}
    begin = time.monotonic()
    status = subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, check=False).returncode
    seconds = time.monotonic() - begin
    with open(account, encoding="utf-8") as lines:
        parent, shell = (ticks(line) for line in lines)
    outcomes = {}
    for case in xml.parse(results).iter("testcase"):
        name = (case.get("classname"), case.get("name"))
        outcomes[name] = sorted(child.tag for child in case if child.tag in ("failure", "error", "skipped"))
    return seconds, sum(parent[:2]), sum(shell[2:]), (status, outcomes)


def main():
    """Measure and print."""
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    lockscope, pairs, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    ratios, of_cpu, shares, different = [], [], [], 0
    with tempfile.TemporaryDirectory() as folder:
        for pair in range(pairs):
            runs = {}
            for under in [None, lockscope] if pair % 2 == 0 else [lockscope, None]:
                runs[under] = once(under, command, folder)
            alone, under = runs[None], runs[lockscope]
            ratios.append(under[0] / alone[0])
            of_cpu.append(under[2] / max(alone[2], 1))
            shares.append(under[1] / max(under[2], 1))
            different += alone[3] != under[3]
            tests = len(under[3][1])
            print(f"pair {pair + 1}: {alone[0]:.2f} s alone, {under[0]:.2f} s under lockscope, ratio {ratios[-1]:.4f}, "
                  f"of CPU times {of_cpu[-1]:.4f}, lockscope's CPU time {100 * shares[-1]:.2f} %, {tests} tests", flush=True)
    print(f"median ratio {statistics.median(ratios):.4f}, of CPU times {statistics.median(of_cpu):.4f}, "
          f"lockscope's share of CPU time {100 * statistics.median(shares):.2f} %, pairs with a different result: {different}")


if __name__ == "__main__":
    main()
