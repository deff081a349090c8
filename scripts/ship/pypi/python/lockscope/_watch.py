"""Watching this process, by a program of its own: it reports a hang in which no Python runs any more."""

from __future__ import annotations

import copy
import functools
import inspect
import os
import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from . import _program
from ._event_pipe import EventPipe

if TYPE_CHECKING:
    from typing_extensions import Self


#: What to do about a hang.
ON_HANG = ("report", "kill")


#: A function that is decorated stays what it was for type checkers.
Function = TypeVar("Function", bound="Callable[..., Any]")


class Watching:
    """A block that is watched, or a decorator of functions that are. Made by `watch` and `expect`."""

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
        self._is_named = name is not None
        self._name = name or f"the block at {caller.f_code.co_filename}:{caller.f_lineno}"
        self._arguments = ["--on-hang", on_hang]
        if report_dir is not None:
            self._arguments += ["--report-dir", os.fspath(report_dir)]
        self._events: EventPipe | None = None
        #: Why the program may not look at this process; it still tells that the time is over.
        self.refusal: str | None = None

    def __call__(self, function: Function) -> Function:
        """The same around each call of a function, which may be a coroutine function."""
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def watched(*args: Any, **kwargs: Any) -> Any:
                with self._of_call(function):
                    return await function(*args, **kwargs)
        else:

            @functools.wraps(function)
            def watched(*args: Any, **kwargs: Any) -> Any:
                with self._of_call(function):
                    return function(*args, **kwargs)

        return cast("Function", watched)

    def _of_call(self, function: Callable[..., Any]) -> Watching:
        """A block of its own, since calls may overlap."""
        watching = copy.copy(self)
        watching._events = None
        if not self._is_named:
            code = getattr(function, "__code__", None)
            place = f" at {code.co_filename}:{code.co_firstlineno}" if code is not None else ""
            watching._name = f"{getattr(function, '__qualname__', repr(function))}(){place}"
        return watching

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

    ``renew()`` of what ``with`` gives begins the time anew: a loop that comes round again is alive. As a decorator it is around
    each call of a function, or of a coroutine function: ``@lockscope.expect(seconds=30)``.
    """
    return Watching(seconds=seconds, name=name, report_dir=report_dir, on_hang=on_hang, caller=sys._getframe(1))
