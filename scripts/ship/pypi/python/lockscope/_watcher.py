"""The plugin in a process that runs tests: pytest itself, or a worker of pytest-xdist."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from . import _debugger
from ._result import Result
from ._settings import Settings, seconds
from ._warning import warn

if TYPE_CHECKING:
    from pytest import Config, Item, Session, TestReport

    from ._monitor import Monitor

MARKER = "lockscope"


class Watcher:
    """Tells the monitor which test runs, so that it can say which one hangs."""

    def __init__(self, config: Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._monitor: Monitor | None = None
        self._result: Result | None = None
        self._watch_now = settings.watch

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

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: Session) -> None:
        if self._settings.watch or self._config.getoption("collectonly"):
            return
        if any(item.get_closest_marker(MARKER) for item in session.items):
            self._start()

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: Item) -> Generator[None, None, None]:
        monitor = self._monitor
        if monitor is None:
            yield
            return
        self._result = Result(item.nodeid)
        self._watch_now = self._settings.watch or item.get_closest_marker(MARKER) is not None
        monitor.send(event="start", test=item.nodeid, timeout=self._timeout(item))
        monitor.pause(not self._watch_now)
        yield
        monitor.send(event="finish", **self._result.event())
        self._watch_now = self._settings.watch
        monitor.pause(not self._watch_now)
        self._result = None

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
    def pytest_unconfigure(self) -> None:
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None

    def _start(self) -> None:
        # Imported here: a run without lockscope shall not pay for it.
        from . import _monitor

        if _monitor.is_watched():
            return
        try:
            self._monitor = _monitor.start(self._arguments())
        except _monitor.MonitorError as error:
            warn(self._config, str(error))
            return
        self._monitor.pause(not self._settings.watch)
        if self._monitor.refusal:
            warn(self._config, self._monitor.refusal)

    def _arguments(self) -> list[str]:
        arguments = ["--on-hang", self._settings.on_hang]
        if self._settings.report_dir:
            arguments += ["--report-dir", self._settings.report_dir]
        # pytest writes this file at its end, which a hang never lets it reach. With xdist the controller writes it.
        junit = self._config.getoption("xmlpath", None)
        if junit and not hasattr(self._config, "workerinput"):
            arguments += ["--junit", os.path.abspath(os.path.expanduser(os.path.expandvars(junit)))]
        return arguments

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
