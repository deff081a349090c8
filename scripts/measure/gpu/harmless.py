"""Looks at a healthy training loop a hundred times: harmless.py LOCKSCOPE [PAIRS] [STEPS]

Parts of the training with ten looks each alternate with parts without any; all must give the same weights. Prints the
ratio of the medians, pause and wall time of the looks, and the wall time of `cuda-gdb -p` on the same process."""
import collections
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LOOKS_A_PART = 10


def main():
    lockscope = sys.argv[1]
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    steps = sys.argv[3] if len(sys.argv) > 3 else "6000"
    command = [sys.executable, os.path.join(HERE, "training.py"), steps]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, universal_newlines=True) as target:
        try:
            measure(lockscope, pairs, target)
        finally:
            target.kill()


def measure(lockscope, pairs, target):
    pid = int(target.stdout.readline().split("=")[1])
    alone, looked_at, pauses, walls, verdicts, results = [], [], [], [], collections.Counter(), set()
    expected = part(target, lambda: None, alone, results)
    before = len(os.listdir("/proc/%d/task" % pid))
    report = os.path.join(tempfile.mkdtemp(), "report.json")

    def look():
        start = time.perf_counter()
        subprocess.run([lockscope, "attach", str(pid), "-o", report], stdout=subprocess.DEVNULL, check=False)
        walls.append(time.perf_counter() - start)
        found = json.load(open(report))
        pauses.append(found["capture"]["pause_us"] / 1e3)
        verdicts[found["verdict"]] += 1
        if found["verdict"] != "running":
            shutil.copy(report, "last-%s.json" % found["verdict"])

    def looks():
        start = time.perf_counter()
        for number in range(LOOKS_A_PART):
            # All within the part: it ends a little later than one without looks.
            time.sleep(max(0, start + expected * (0.1 + 0.08 * number) - time.perf_counter()))
            look()

    alone.clear()
    for _ in range(pairs):
        part(target, lambda: None, alone, results)
        part(target, looks, looked_at, results)
    threads = len(os.listdir("/proc/%d/task" % pid))
    libraries = {line.split()[-1] for line in open("/proc/%d/maps" % pid) if ".so" in line}
    size = sum(os.path.getsize(path) for path in libraries if os.path.exists(path))
    print("%d threads (%d before), %d libraries of %d MB" % (threads, before, len(libraries), size >> 20))
    print("%d looks, verdicts %s" % (len(walls), dict(verdicts)))
    print("pause ms: median %.1f, most %.1f" % (statistics.median(pauses), max(pauses)))
    print("wall s: first %.2f, median %.2f, most %.2f" % (walls[0], statistics.median(walls), max(walls)))
    print("results: %s" % ("all the same" if len(results) == 1 else results))
    ratio = statistics.median(looked_at) / statistics.median(alone)
    print("medians: alone %.3f s, looked at %.3f s, ratio %.4f" % (
        statistics.median(alone), statistics.median(looked_at), ratio))
    if shutil.which("cuda-gdb"):
        start = time.perf_counter()
        subprocess.run(["cuda-gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt"], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=False, timeout=120)
        print("cuda-gdb -p, all stacks: %.2f s" % (time.perf_counter() - start))


def part(target, meanwhile, times, results):
    target.stdin.write("go\n")
    target.stdin.flush()
    meanwhile()
    _, elapsed, result = target.stdout.readline().split()
    times.append(float(elapsed))
    results.add(result)
    return float(elapsed)


if __name__ == "__main__":
    main()
