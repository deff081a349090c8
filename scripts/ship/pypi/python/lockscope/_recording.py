"""Tests whose locks are taken in orders that could deadlock: what the recorder wrote stands in the test's report."""

from __future__ import annotations

import ctypes
import glob
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from . import _program, _provoking, binary
from ._hang_report import plain

if TYPE_CHECKING:
    from pytest import CallInfo, Config, Item

#: Where the recorder writes, and what makes the loader take it in.
FOLDER = "LOCKSCOPE_RECORD"
PRELOAD = "LD_PRELOAD"
#: The number of seccomp filters that pytest runs under: the recorder makes no calls in a process with more.
FILTERS = "LOCKSCOPE_RECORD_FILTERS"
LIBRARY = "liblockscope_recorder"
#: The folder is this run's own, and is removed at its end by this process.
OWNER = "LOCKSCOPE_RECORD_OWNER"
SECTION = "lockscope"
PROPERTY = "lockscope.lock-order-inversion"
#: Of a file (src/recorder/orders.rs): where its head has the end, where records begin, what a record begins with.
END, RECORDS, MARK = 24, 128, 0x4C4B


def _is_recorded() -> bool:
    return bool(os.environ.get(FOLDER)) and LIBRARY in os.environ.get(PRELOAD, "")


def begin_anew(config: Config) -> None:
    """Replace this process by the same command with the recorder in it."""
    if _is_recorded() or hasattr(config, "workerinput"):
        return
    name = sys.argv[0] if sys.argv else ""
    if os.path.basename(name) not in ("pytest", "py.test") and not name.endswith(os.path.join("pytest", "__main__.py")):
        raise pytest.UsageError("--lockscope-record: not where a program calls pytest: use `lockscope run --record --`")
    try:
        told = subprocess.run([binary(), "record", "--preload"], capture_output=True, text=True, check=False)
        with open("/proc/self/cmdline", "rb") as file:
            words = file.read().split(b"\0")[:-1]
    except OSError as error:
        raise pytest.UsageError(f"--lockscope-record: {error}") from error
    if told.returncode != 0:
        raise pytest.UsageError(f"--lockscope-record: {told.stderr.strip()}")
    environment = dict(os.environ)
    environment[PRELOAD] = told.stdout.strip()
    environment[FOLDER] = tempfile.mkdtemp(prefix="lockscope-orders-")
    filters = _program.filters()
    if filters is not None:
        environment[FILTERS] = filters
    environment[OWNER] = str(os.getpid())
    # Standard output is the real one again.
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        capture.stop_global_capturing()
    sys.stdout.flush()
    sys.stderr.flush()
    # Python finds its packages by the name that it was started with.
    os.execve(sys.executable, [os.fsencode(sys.executable), *words[1:]], environment)


class Recording:
    """Looks after each test whether it took locks in an order that differs from an earlier one."""

    def __init__(self, config: Config, report_dir: str | None) -> None:
        self._folder = os.environ.get(FOLDER, "")
        self._report_dir = report_dir
        self._is_worker = hasattr(config, "workerinput")
        self._provokes = bool(config.getoption("lockscope_provoke"))
        self._known: set[str] = set()
        self._edges = {path: Edges(path) for path in self._own_files()}
        #: Joins order the threads of one test alone: in the program these may run beside those of other tests.
        self._part_ended = getattr(ctypes.CDLL(None), "lockscope_part_ended", None)

    def pytest_report_header(self) -> str | None:
        return None if self._is_worker else f"lockscope: locks are recorded, in {self._folder}"

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: Item, call: CallInfo[None]) -> Generator[None, Any, None]:
        outcome = yield
        if call.when == "setup":
            return
        if call.when == "teardown" and self._part_ended is not None:
            self._part_ended()
        files = self._own_files()
        edges = [self._edges.setdefault(path, Edges(path)) for path in files]
        # All of them read on, whatever the first says.
        if not any([one.have_new_circle() for one in edges]):
            return
        report = outcome.get_result()
        findings = self._new(files)
        for finding in findings:
            report.sections.append((SECTION, f"could deadlock: {finding['title']}\n{finding['message']}"))
            # Of the test, for JUnit's file, and of this report.
            for properties in (item.user_properties, report.user_properties):
                properties.append((PROPERTY, finding["title"]))
        if findings and self._provokes:
            self._provoke(item, report, files[0])

    def _provoke(self, item: Item, report: Any, orders: str) -> None:
        """Have the deadlock happen in a process of its own; the test fails by it."""
        provoked = _provoking.provoke(item, orders)
        if provoked.has_hung and report.passed:
            report.outcome = "failed"
            report.longrepr = f"The test deadlocks when threads are held back at the locks of its orders.\n{provoked.text}"
        elif provoked.text:
            report.sections.append((SECTION, provoked.text))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """All of it, of all processes: what children and other workers did belongs to no test."""
        if self._is_worker:
            return
        arguments = [self._folder]
        if self._report_dir is not None:
            os.makedirs(self._report_dir, exist_ok=True)
            for ending in ("txt", "html", "json"):
                arguments += ["-o", os.path.join(self._report_dir, f"orders-{os.getpid()}.{ending}")]
        report = self._read([self._folder])
        if self._report_dir is not None:
            subprocess.run([binary(), "record", "--quiet", *arguments], check=False)
        if report is None:
            return
        # The last one stands in each report.
        gaps = [f"{gap['what']}: {gap['why']}" for gap in report["gaps"][:-1]]
        if not report["findings"]:
            if gaps:
                terminalreporter.section("lockscope: no locks in orders that could deadlock, of those that it saw")
            self._tell_gaps(terminalreporter, gaps)
            return
        tests: dict[str, list[str]] = {}
        for reports in terminalreporter.stats.values():
            for one in reports:
                for name, title in getattr(one, "user_properties", ()):
                    if name == PROPERTY and one.nodeid not in tests.setdefault(title, []):
                        tests[title].append(one.nodeid)
        terminalreporter.section("lockscope: locks in orders that could deadlock")
        for finding in report["findings"]:
            mark = "note: " if finding["severity"] == "note" else ""
            terminalreporter.write_line(f"{mark}{plain(finding['title'])}")
            for test in tests.get(finding["title"], ()):
                terminalreporter.write_line(f"  in {test}")
            terminalreporter.write_line(f"  {plain(finding['message'])}")
        self._tell_gaps(terminalreporter, gaps)

    def _tell_gaps(self, terminalreporter: Any, gaps: list[str]) -> None:
        for gap in gaps:
            terminalreporter.write_line(f"not all was recorded: {plain(gap)}")

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        if os.environ.get(OWNER) == str(os.getpid()):
            for path in glob.glob(os.path.join(glob.escape(self._folder), "*.orders")):
                os.unlink(path)
            try:
                os.rmdir(self._folder)
            except OSError:
                pass

    def _own_files(self) -> list[str]:
        return glob.glob(os.path.join(glob.escape(self._folder), f"{os.getpid()}-*.orders"))

    def _new(self, files: list[str]) -> list[dict[str, Any]]:
        """Findings that were not there after the test before."""
        report = self._read(files)
        found = []
        for finding in report["findings"] if report is not None else ():
            # Threads and addresses are others each time; the places are not.
            places = " ".join(sorted(re.findall(r"(?<= at )[^ ,;]+", finding["message"])))
            if places not in self._known:
                self._known.add(places)
                found.append(finding)
        return found

    def _read(self, files: list[str]) -> dict[str, Any] | None:
        if not files:
            return None
        environment = {name: value for name, value in os.environ.items() if name not in (PRELOAD, FOLDER, FILTERS)}
        told = subprocess.run(
            [binary(), "record", "--format", "json", *files], capture_output=True, check=False, env=environment
        )
        try:
            report: dict[str, Any] = json.loads(told.stdout)
        except ValueError:
            return None
        return report


class Edges:
    """Which lock was taken under which, as far as a file was read: the program is asked where one closes a circle."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._at = RECORDS
        self._next: dict[tuple[int, int], set[tuple[int, int]]] = {}

    def have_new_circle(self) -> bool:
        """Read what was written since; whether two or three locks have come to stand in a circle, or do once more."""
        try:
            with open(self._path, "rb") as file:
                file.seek(END)
                (end,) = struct.unpack("<Q", file.read(8))
                file.seek(self._at)
                data = file.read(max(0, end - self._at))
        except (OSError, struct.error):
            return False
        self._at += len(data)
        words = struct.unpack(f"<{len(data) // 8}Q", data[: len(data) // 8 * 8])
        at, is_new = 0, False
        while at < len(words):
            head, size = words[at], words[at] & 0xFFFF
            if head >> 48 != MARK or size == 0:
                at += 1
                continue
            if head >> 40 & 0xFF == ord("D"):
                places = range(at + 3, min(at + size, len(words)) - 3, 4)
                locks = [(words[place], words[place + 1] & 0xFFFFFFFF) for place in places]
                for held in locks[1:]:
                    is_new |= self._closes(held, locks[0])
            at += size
        return is_new

    def _closes(self, held: tuple[int, int], wanted: tuple[int, int]) -> bool:
        behind = self._next.get(wanted, set())
        self._next.setdefault(held, set()).add(wanted)
        return held in behind or any(held in self._next.get(one, ()) for one in behind)
