#!/usr/bin/env python3
"""Test suites with lockscope's recorder and without: scripts/measure/recorded-suites.py LOCKSCOPE FOLDER [PAIRS [NAME...]]

Runs the tests of real packages and of CPython itself PAIRS times each way, in turns, under the Python that runs this script,
and prints a row of a Markdown table for each suite: tests, whether each had the same result, processes that wrote a file of
orders, user time alone and with the recorder (medians), in how many ways a lock was taken under another, and how many orders
could deadlock. What differs is run once more without the recorder: what differs then too is the suite's own. FOLDER gets an
environment with the packages, their sources, and in FOLDER/reports what `lockscope record` says of each suite: that is to be
read, since each report is true or false.
"""
import importlib.util
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import xml.etree.ElementTree as xml

LIMIT = 500
# Name, what else is installed, whether the tests are in the sources alone, what pytest is given; of CPython what its runner is.
SUITES = [
    ("networkx", [], False, ["--pyargs", "networkx.classes", "networkx.algorithms.isomorphism"]),
    ("joblib", [], False, ["--pyargs", "joblib.test.test_memory", "joblib.test.test_hashing", "joblib.test.test_disk",
                           "joblib.test.test_memmapping", "joblib.test.test_store_backends"]),
    ("dask", ["numpy"], False, ["--pyargs", "dask.tests.test_threaded", "dask.tests.test_local", "dask.tests.test_cache",
                                "dask.tests.test_callbacks", "dask.tests.test_delayed", "dask.tests.test_multiprocessing"]),
    ("toolz", [], False, ["--pyargs", "toolz"]),
    ("zict", ["pytest-asyncio", "pytest-timeout", "pytest-repeat"], False, ["--pyargs", "zict"]),
    ("tornado", [], False, ["--pyargs", "tornado.test.ioloop_test", "tornado.test.concurrent_test", "tornado.test.gen_test",
                            "tornado.test.locks_test", "tornado.test.queues_test", "tornado.test.process_test",
                            "tornado.test.web_test", "tornado.test.iostream_test", "tornado.test.log_test"]),
    ("trio", ["trustme", "pyopenssl", "astor", "jedi", "pytest-timeout"], False,
     ["-p", "trio._tests.pytest_plugin", "--pyargs", "trio._core._tests", "trio._tests.test_threads",
      "trio._tests.test_sync", "trio._tests.test_channel", "trio._tests.test_subprocess"]),
    ("twisted", ["pytest-timeout"], False, ["--pyargs", "twisted.test.test_threadpool", "twisted.test.test_threads",
                                            "twisted._threads.test", "twisted.test.test_log", "twisted.internet.test.test_core",
                                            "twisted.internet.test.test_threads"]),
    ("anyio", ["trio", "psutil", "trustme", "pytest-mock", "exceptiongroup"], True,
     ["tests/test_from_thread.py", "tests/test_to_thread.py", "tests/test_synchronization.py", "tests/test_taskgroups.py"]),
    ("apscheduler", ["pytz", "anyio", "pytest-asyncio"], True, ["tests"]),
    ("attrs", ["hypothesis", "cloudpickle"], True, ["tests"]),
    ("cachetools", [], True, ["tests"]),
    ("cheroot", ["jaraco.functools", "requests", "requests_unixsocket", "trustme", "pyopenssl", "pypytools", "jaraco.text",
                 "pytest-mock"], False, ["--pyargs", "cheroot"]),
    ("click", [], True, ["-m", "not stress", "tests"]),
    ("diskcache", ["django", "pytest-env"], True, ["tests/test_core.py", "tests/test_fanout.py", "tests/test_recipes.py",
                                                  "tests/test_deque.py"]),
    ("fasteners", ["diskcache", "more_itertools"], True, ["tests"]),
    ("janus", ["pytest-asyncio"], True, ["tests"]),
    ("jinja2", ["trio"], True, ["tests"]),
    ("more-itertools", [], True, ["tests/test_more.py"]),
    ("pebble", [], True, ["test/test_thread_pool.py", "test/test_concurrent_thread.py", "test/test_pebble.py",
                          "test/test_process_pool_fork.py"]),
    ("pluggy", [], True, ["testing"]),
    ("pykka", ["pytest-mock"], True, ["tests"]),
    ("requests", ["pytest-httpbin", "pytest-mock", "trustme", "pysocks"], True, ["tests"]),
    ("tqdm", ["pytest-asyncio", "pytest-timeout", "numpy"], True, ["tests"]),
    ("urllib3", ["trustme", "pytest-timeout", "pysocks", "tornado", "quart", "quart-trio", "hypercorn", "httpx"], True,
     ["test/test_poolmanager.py", "test/test_connectionpool.py", "test/test_collections.py", "test/test_queue_monkeypatch.py",
      "test/test_retry.py", "test/test_response.py", "test/with_dummyserver/test_poolmanager.py"]),
    ("watchdog", ["flaky", "pytest-timeout", "eventlet"], True, ["tests"]),
    ("werkzeug", ["ephemeral-port-reserve", "pytest-timeout", "pytest-xprocess", "cryptography"], True, ["tests"]),
]
CPYTHON = [["test_logging"], ["test_threading", "test_threading_local", "test_thread", "test_sched"], ["test_queue", "test_weakref"],
           ["test_socketserver", "test_httpservers", "test_xmlrpc"], ["test_asyncio"],
           ["test_concurrent_futures"], ["test_multiprocessing_fork"], ["test_threaded_import", "test_import", "test_functools"]]


def prepare(name, others, from_sources, python, folder):
    """Install a package and what its tests need; its version, and where to run them."""
    subprocess.run([python, "-m", "pip", "install", "-q", "pytest", name, *others], check=True, stdout=subprocess.DEVNULL)
    show = subprocess.run([python, "-m", "pip", "show", name], check=True, stdout=subprocess.PIPE, text=True).stdout
    version = next(line.split()[1] for line in show.splitlines() if line.startswith("Version:"))
    if not from_sources:
        return version, None
    sources = folder / "sources" / name
    if not sources.exists():
        with tempfile.TemporaryDirectory() as temporary:
            subprocess.run([python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", temporary,
                            f"{name}=={version}"], check=True)
            with tarfile.open(next(pathlib.Path(temporary).glob("*.tar.gz"))) as packed:
                packed.extractall(sources, filter="data")
    return version, next(path for path in sources.iterdir() if path.is_dir())


def once(command, sources, environment, results):
    """Run a suite once: its user time, how it ended, and the result of each test."""
    with tempfile.TemporaryDirectory() as place:
        if sources is not None:
            shutil.copytree(sources, pathlib.Path(place) / "tests", symlinks=True)
            place = pathlib.Path(place) / "tests"
        child = subprocess.Popen(command, cwd=place, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        deadline = time.monotonic() + LIMIT
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                os.killpg(child.pid, 9)
                deadline += LIMIT
            time.sleep(0.05)
        child.returncode = status
    outcomes = {}
    if results.exists():
        for case in xml.parse(results).iter("testcase"):
            key = (case.get("classname"), re.sub(r"/tmp/[^/\]]*", "/tmp/*", case.get("name") or ""))
            outcomes[key] = sorted(part.tag for part in case if part.tag in ("failure", "error", "skipped"))
        results.unlink()
    return usage.ru_utime, os.waitstatus_to_exitcode(status), outcomes


def differences(one, other):
    """Tests with another result, and whether the suites ended in another way."""
    names = {name for name in one[2].keys() | other[2].keys() if one[2].get(name) != other[2].get(name)}
    return names | ({("status", "")} if one[1] != other[1] else set())


def measure(name, version, command, sources, lockscope, folder, pairs):
    """Run a suite in turns and print its row."""
    results = folder / "results.xml"
    orders = folder / "orders" / name
    shutil.rmtree(orders, ignore_errors=True)
    orders.mkdir(parents=True)
    preload = subprocess.run([lockscope, "record", "--preload"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    recorder = {"LD_PRELOAD": preload, "LOCKSCOPE_RECORD": str(orders)}
    runs = {False: [], True: []}
    for pair in range(pairs):
        for recorded in [False, True] if pair % 2 == 0 else [True, False]:
            runs[recorded].append(once(command, sources, recorder if recorded else {}, results))
    different = set().union(*(differences(*pair) for pair in zip(runs[False], runs[True])))
    note = "equal"
    if not any(run[2] for run in runs[False]):
        note = "NO TEST RAN"
    elif different:
        again = once(command, sources, {}, results)
        left = different - set().union(*(differences(run, again) for run in runs[False]))
        note = f"{len(different)} differ, without it as well" if not left else f"{len(left)} DIFFER: {sorted(left)[:3]}"
    of_record = [lockscope, "record", str(orders), "--format"]
    report = json.loads(subprocess.run([*of_record, "json"], check=False, stdout=subprocess.PIPE).stdout or b"{}")
    text = subprocess.run([*of_record, "text"], check=False, stdout=subprocess.PIPE, text=True).stdout
    (folder / "reports").mkdir(exist_ok=True)
    (folder / "reports" / f"{name}.txt").write_text(text, encoding="utf-8")
    lost = [gap["what"] for gap in report.get("gaps", []) if "lost" in gap["why"] or "room" in gap["why"]]
    alone, recorded = (statistics.median(run[0] for run in runs[which]) for which in (False, True))
    ways = re.search(r"([\d,]+) ways?\b", " ".join(text.split()))
    count = ways[1] if ways else "?"
    print(f"| {name} {version} | {len(runs[False][0][2])} | {note} | {len(list(orders.glob('*.orders')))} "
          f"| {alone:.2f} | {recorded:.2f} | {recorded / max(alone, 0.001):.3f} | {count} "
          f"| {len(report.get('findings', []))} | {lost or 'none'} |", flush=True)
    return alone, recorded


def main():
    """Run the suites that were asked for, or all."""
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    lockscope, folder = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    pairs, names = int(sys.argv[3]) if len(sys.argv) > 3 else 1, sys.argv[4:]
    environment = folder / "environment"
    python = str(environment / "bin" / "python")
    if not environment.exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    results = str(folder / "results.xml")
    print("| suite | tests | results | files | user s | with it | ratio | ways | could deadlock | lost |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    times = []
    for modules in CPYTHON:
        if names and modules[0] not in names:
            continue
        installed = [module for module in modules if importlib.util.find_spec(f"test.{module}")]
        if installed != modules:
            missing = " ".join(module for module in modules if module not in installed)
            print(f"| CPython {missing} | not run: this Python has not these tests |", flush=True)
        if installed:
            command = [sys.executable, "-m", "test", "--junit-xml", results, *installed]
            version = sys.version.split(" ", maxsplit=1)[0]
            times.append(measure("CPython " + modules[0], version, command, None, lockscope, folder, pairs))
    for name, others, from_sources, arguments in SUITES:
        if names and name not in names:
            continue
        try:
            version, sources = prepare(name, others, from_sources, python, folder)
        except (subprocess.CalledProcessError, StopIteration) as error:
            print(f"| {name} | not run: {error} |", flush=True)
            continue
        # Suites that take warnings for errors take one of a plugin that others need for an error of pytest itself.
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", "-W",
                   "ignore::pytest.PytestDeprecationWarning", f"--junitxml={results}", *arguments]
        times.append(measure(name, version, command, sources, lockscope, folder, pairs))
    alone, recorded = (sum(time[which] for time in times) for which in (0, 1))
    print(f"\nUser time of all: {alone:.1f} s alone, {recorded:.1f} s with it, ratio {recorded / max(alone, 0.001):.3f}")


if __name__ == "__main__":
    main()
