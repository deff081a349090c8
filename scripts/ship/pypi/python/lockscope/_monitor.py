"""The monitor of a run of tests, and what this process shares with it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from . import _coverage, _exit, _program
from ._event_pipe import EventPipe
from ._interruption import Hang, Interruption
from ._nameless_file import NamelessFile
from ._program import MonitorError

if TYPE_CHECKING:
    from pytest import Config

__all__ = ["Monitor", "MonitorError", "is_watched", "start"]

#: The process that a monitor watches. A test may run pytest inside of its own process: one monitor is enough.
_watched_process: int | None = None
#: The monitor of a run that is over, which waits for the end of the process.
_waiting: Monitor | None = None


class Monitor:
    """A running monitor of this process."""

    def __init__(self, config: Config) -> None:
        self._events = EventPipe()
        #: What ends a test.
        self.interruption = Interruption()
        self._coverage = (
            _coverage.CoverageKeeper(config, self._events.send) if _coverage.is_measured(config) else None
        )
        #: Why it may not look at this process; it still ends a test at its time limit.
        self.refusal: str | None = None
        #: How many filters of seccomp this process began with.
        self.filters = _program.filters()
        self._paused = False
        self._plan = NamelessFile()
        self.send = self._events.send

    def pause(self, paused: bool) -> None:
        """Have it stop watching, or go on."""
        if paused != self._paused:
            self._paused = paused
            self.send(event="pause" if paused else "resume")

    def is_lost(self) -> bool:
        """Whether a test has closed what this process shares with it."""
        return self._events.is_lost()

    def ended(self) -> Hang | None:
        """The hang whose phase of a test has just ended, of which the monitor is told."""
        hang = self.interruption.taken()
        if hang is not None:
            self.send(event="ended", number=hang.number)
        return hang

    def plan(self, tests: Iterable[str]) -> None:
        """Say which tests will run."""
        self._plan.write("".join(f"{test}\n" for test in tests))

    def watch_the_end(self, status: int) -> None:
        """Watch on while Python waits for its threads, once it does; the process ends with `status` then."""
        global _watched_process, _waiting
        self.pause(True)
        if self._coverage is not None:
            self._coverage.close()
            self._coverage = None
        _watched_process, _waiting = None, self

        def end(hang: Hang) -> None:
            _exit.end(status, hang)

        def watch() -> None:
            if _waiting is not self:
                return  # pytest ran once more in this process
            self.interruption.at_exit(end)
            self.send(event="over")
            self.pause(False)

        # Where pytest is a part of a program, that goes on, and nobody watches it.
        _exit.before_threads_are_awaited(watch)

    def begin(self, arguments: list[str], about: dict[str, object]) -> None:
        """Start the program, and tell it what it may do."""
        shared = {"told": self.interruption.file.descriptor, "plan": self._plan.descriptor}
        if self._coverage is not None:
            shared["coverage"] = self._coverage.write_end
        about = {**self.interruption.install(), **shared, **about}
        self.refusal = _program.start(self._events, arguments, shared.values(), about)

    def close(self) -> None:
        """End it."""
        global _watched_process
        # A forked child may hold the pipe open, and with it the monitor.
        self.pause(True)
        self.interruption.remove()
        self._plan.close()
        if self._coverage is not None:
            self._coverage.close()
        self._events.close()
        _watched_process = None


def is_watched() -> bool:
    """Whether a monitor watches this process already."""
    return _watched_process == os.getpid()


def start(config: Config, arguments: list[str], about: dict[str, object]) -> Monitor:
    """Start a monitor of this process. It is no child of it: tests may wait for and count their children."""
    global _watched_process, _waiting
    if _waiting is not None:
        _waiting.close()
        _waiting = None
    monitor = Monitor(config)
    try:
        monitor.begin(arguments, about)
    except BaseException:
        monitor.close()
        raise
    _watched_process = os.getpid()
    return monitor
