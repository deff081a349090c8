"""The plugin in a process that runs tests: pytest itself, or a worker of pytest-xdist."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from . import _debugger
from ._result import Result
from ._settings import REPORT_DIR_OF_WORKER, Settings, seconds
from ._warning import warn

if TYPE_CHECKING:
    from pytest import CallInfo, Collector, Config, Item, Session, TestReport

    from ._interruption import Hang
    from ._monitor import Monitor

MARKER = "lockscope"


class Watcher:
    """Tells the monitor which test runs, so that it can say which one hangs."""

    def __init__(self, config: Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._monitor: Monitor | None = None
        self._result: Result | None = None
        #: Told anew to another monitor, if a test closes the descriptors of this one.
        self._finished: list[dict[str, object]] = []
        self._watch_now = settings.watch
        self._status = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        # Before the collection, which may deadlock too, and while standard error is still the real one.
        if self._settings.watch:
            self._start()

    def pytest_report_header(self) -> str | None:
        if self._monitor is None:
            return None
        if self._monitor.refusal:
            return f"lockscope: {self._monitor.refusal}"
        return header(self._settings)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector: Collector) -> Generator[None, Any, None]:
        monitor = self._monitor
        if monitor is None:
            yield
            return
        monitor.interruption.open(None)
        outcome = yield
        monitor.interruption.shut()
        hang = monitor.ended()
        if hang is not None:
            from . import _hang_report

            _hang_report.tell(outcome.get_result(), hang)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: Session) -> None:
        if self._config.getoption("collectonly"):
            return
        if not self._settings.watch and any(item.get_closest_marker(MARKER) for item in session.items):
            self._start()
        self._plan(session)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: Item) -> Generator[None, None, None]:
        if self._monitor is not None and self._monitor.is_lost():
            self._start_again(item.session)
        monitor = self._monitor
        if monitor is None:
            yield
            return
        self._result = Result(item.nodeid)
        self._watch_now = self._settings.watch or item.get_closest_marker(MARKER) is not None
        monitor.send(event="start", test=item.nodeid, timeout=self._timeout(item))
        monitor.pause(not self._watch_now)
        yield
        self._finished.append(self._result.event())
        monitor.send(event="finish", **self._finished[-1])
        self._watch_now = self._settings.watch
        monitor.pause(not self._watch_now)
        self._result = None

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: Item) -> Generator[None, None, None]:
        self._open(item)
        yield
        self._shut()

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: Item) -> Generator[None, None, None]:
        self._open(item)
        yield
        self._shut()

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: Item) -> Generator[None, None, None]:
        self._open(item)
        yield
        self._shut()

    def _open(self, item: Item) -> None:
        if self._monitor is not None:
            self._monitor.interruption.open(item.nodeid)

    def _shut(self) -> None:
        if self._monitor is not None:
            self._monitor.interruption.shut()

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: Item, call: CallInfo[None]) -> Generator[None, Any, None]:
        outcome = yield
        hang = self._monitor.ended() if self._monitor is not None else None
        if hang is not None:
            from . import _hang_report

            _hang_report.tell(outcome.get_result(), hang)

    def pytest_runtest_logreport(self, report: TestReport) -> None:
        if self._result is not None:
            self._result.add(report)

    def pytest_enter_pdb(self) -> None:
        if self._monitor is not None:
            self._monitor.pause(True)

    def pytest_leave_pdb(self) -> None:
        if self._monitor is not None:
            self._monitor.pause(not self._watch_now)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._status = int(exitstatus)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        if self._monitor is not None:
            # Python waits for its threads at the end, and one of them may be locked.
            self._monitor.watch_the_end(self._status)
            self._monitor = None

    def _start(self) -> None:
        # Imported here: a run without lockscope shall not pay for it.
        from . import _monitor

        if _monitor.is_watched():
            return
        try:
            self._monitor = _monitor.start(self._config, self._arguments(), self._about())
        except (_monitor.MonitorError, OSError) as error:
            warn(self._config, str(error))
            return
        self._monitor.pause(not self._settings.watch)
        if self._monitor.refusal:
            warn(self._config, self._monitor.refusal)

    def _start_again(self, session: Session) -> None:
        """A test has closed all descriptors, and the monitor has ended by that."""
        from . import _program

        if self._monitor is None or _program.filters() != self._monitor.filters:
            return  # a test has set a filter, which may end a process that starts another one
        self._monitor.close()
        self._monitor = None
        self._start()
        self._plan(session)
        if self._monitor is not None:
            for event in self._finished:
                self._monitor.send(event="finish", **event)

    def _plan(self, session: Session) -> None:
        # A worker of pytest-xdist gets its tests one by one.
        if self._monitor is not None and not self._is_worker():
            self._monitor.plan(item.nodeid for item in session.items)

    def _is_worker(self) -> bool:
        return hasattr(self._config, "workerinput")

    def _arguments(self) -> list[str]:
        arguments = ["--on-hang", self._settings.on_hang]
        if self._settings.stuck_after is not None:
            arguments += ["--stuck-after", f"{self._settings.stuck_after:g}s"]
        if self._settings.gpu_core:
            arguments.append("--gpu-core")
        if self._settings.report_dir:
            arguments += ["--report-dir", self._settings.report_dir]
        # pytest writes this file at its end, which a hang may never let it reach. With xdist the controller writes it.
        junit = self._config.getoption("xmlpath", None)
        if junit and not self._is_worker():
            arguments += ["--junit", os.path.abspath(os.path.expanduser(os.path.expandvars(junit)))]
        return arguments

    def _about(self) -> dict[str, object]:
        """What the monitor does in pytest's place where it must end the process."""
        if self._is_worker():
            # The controller tells of it, by what it finds in the folder.
            return {"is_silent": REPORT_DIR_OF_WORKER in getattr(self._config, "workerinput", {})}
        cache = getattr(self._config, "cache", None)
        if cache is None or not self._config.pluginmanager.hasplugin("lfplugin"):
            return {}
        return {"last_failed": str(cache._getvaluepath("cache/lastfailed"))}

    def _timeout(self, item: Item) -> float | None:
        if _debugger.is_attached():
            return None
        marker = item.get_closest_marker(MARKER)
        if marker is None or not (marker.args or marker.kwargs):
            return self._settings.timeout
        try:
            return _lockscope(*marker.args, **marker.kwargs) or None
        except (TypeError, ValueError) as error:
            warn(self._config, f"marker of {item.nodeid}: {error}")
            return self._settings.timeout


def _lockscope(timeout: object) -> float | None:
    """The parameter of the marker, whose name appears in messages about a wrong one."""
    return None if timeout is None else seconds(timeout)


def header(settings: Settings) -> str:
    """What the head of the run says."""
    limit = f", each test has {settings.timeout:g} s" if settings.timeout else ""
    folder = f", reports in {settings.report_dir}" if settings.report_dir else ""
    return f"lockscope: watching for deadlocks{limit}{folder}"
