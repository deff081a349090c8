"""Watching this process, by a program of its own: it reports a hang in which no Python runs any more."""

from __future__ import annotations

import os
import sys
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from . import _program
from ._event_pipe import EventPipe

if TYPE_CHECKING:
    from typing_extensions import Self


#: What to do about a hang.
ON_HANG = ("report", "kill")


class Watching:
    """A block that is watched. Made by `watch` and `expect`."""

    def __init__(
        self,
        *,
        seconds: float | None,
        name: str | None,
        report_dir: str | os.PathLike[str] | None,
        on_hang: str,
        caller: FrameType,
    ) -> None:
        if on_hang not in ON_HANG:
            raise ValueError(f"on_hang is one of {', '.join(ON_HANG)}, not {on_hang!r}")
        if seconds is not None and not 0 < seconds < float("inf"):
            raise ValueError(f"a time limit is a number of seconds above 0, not {seconds!r}")
        self._seconds = seconds
        self._name = name or f"the block at {caller.f_code.co_filename}:{caller.f_lineno}"
        self._arguments = ["--on-hang", on_hang]
        if report_dir is not None:
            self._arguments += ["--report-dir", os.fspath(report_dir)]
        self._events: EventPipe | None = None
        #: Why the program may not look at this process; it still tells that the time is over.
        self.refusal: str | None = None

    def __enter__(self) -> Self:
        events = EventPipe()
        try:
            self.refusal = _program.start(events, self._arguments, (), {})
        except BaseException:
            events.close()
            raise
        self._events = events
        self.renew()
        return self

    def renew(self) -> None:
        """All is well: the time begins anew."""
        if self._events is not None:
            self._events.send(event="start", test=self._name, timeout=self._seconds)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        events, self._events = self._events, None
        if events is not None:
            events.send(event="pause")
            events.close()


def watch(
    *, name: str | None = None, report_dir: str | os.PathLike[str] | None = None, on_hang: str = "report"
) -> Watching:
    """Watch this process while a ``with`` block runs.

    A deadlock is reported on standard error, and into ``report_dir``; the process goes on, or with ``on_hang="kill"`` it is
    ended by SIGTERM.
    """
    return Watching(seconds=None, name=name, report_dir=report_dir, on_hang=on_hang, caller=sys._getframe(1))


def expect(
    seconds: float,
    *,
    name: str | None = None,
    report_dir: str | os.PathLike[str] | None = None,
    on_hang: str = "report",
) -> Watching:
    """The same, and a ``with`` block that has not ended after so many seconds is reported too, whatever it does.

    ``renew()`` of what ``with`` gives begins the time anew: a loop that comes round again is alive.
    """
    return Watching(seconds=seconds, name=name, report_dir=report_dir, on_hang=on_hang, caller=sys._getframe(1))
