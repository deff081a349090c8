"""Ending a test inside of its process: a handler of a signal raises in the main thread.

The monitor sends the signal. Where the main thread cannot run Python any more, the handler never runs, and the monitor ends the
process instead. lockscope knows this file: its handler is no hope for a process that hangs.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ._nameless_file import NamelessFile

if TYPE_CHECKING:
    from types import FrameType

#: SIGSTKFLT, which no processor of today raises; Python has its name since 3.11.
INTERRUPTS = 16
#: libc's _exit gets the signal's number for a status, and this one's is that of failed tests.
ENDS = int(signal.SIGHUP)


class Hang(NamedTuple):
    """What the monitor says of a hang."""

    #: Counts the hangs of this process.
    number: int
    #: The test that runs, for the monitor.
    test: str | None
    #: One line.
    headline: str
    #: The report, and where it was written to.
    text: str
    #: A test that was ended has left it, and it was told then.
    is_known: bool


class Interruption:
    """The handler, and what it has ended."""

    def __init__(self) -> None:
        #: The monitor writes into it what it has found.
        self.file = NamelessFile()
        #: May be raised into; which test.
        self._test: str | None = None
        self._is_open = False
        self._at_exit: Callable[[Hang], None] | None = None
        self._seen = 0
        self._hang: Hang | None = None
        self._installed = False
        # Kept, because tests replace functions of json.
        self._decode = json.JSONDecoder().decode

    def install(self) -> dict[str, int]:
        """Take the signals that nobody uses; which they are, for the monitor."""
        taken = {}
        try:
            if signal.getsignal(INTERRUPTS) == signal.SIG_DFL:
                signal.signal(INTERRUPTS, self._handle)
                self._installed = True
                taken["interrupts"] = INTERRUPTS
            # A process that was started by nohup, or has a handler, keeps what it has.
            if signal.getsignal(ENDS) == signal.SIG_DFL and _end_by(ENDS):
                taken["ends"] = ENDS
        except ValueError:
            pass  # tests run in another thread than the main one, which alone gets signals
        return taken

    def remove(self) -> None:
        """Give the signals back."""
        self.file.close()
        if not self._installed:
            return
        try:
            if signal.getsignal(INTERRUPTS) == self._handle:
                signal.signal(INTERRUPTS, signal.SIG_DFL)
            if signal.getsignal(ENDS) == signal.SIG_DFL:
                signal.signal(ENDS, signal.SIG_DFL)
        except ValueError:
            pass
        self._installed = False

    def open(self, test: str | None) -> None:
        """From now on the main thread may be raised into."""
        self._test, self._is_open = test, True

    def shut(self) -> None:
        """No more."""
        self._is_open = False

    def taken(self) -> Hang | None:
        """What was ended since the last time."""
        hang, self._hang = self._hang, None
        return hang

    def at_exit(self, act: Callable[[Hang], None] | None) -> None:
        """Have this called instead, at the end of the process."""
        self._at_exit = act

    def _handle(self, _signal: int, _frame: FrameType | None) -> None:
        __tracebackhide__ = True
        hang = self._read()
        if hang is None or hang.number < self._seen:
            return
        self._seen = hang.number
        if self._at_exit is not None:
            self._at_exit(hang)
        # The next test may have begun meanwhile.
        elif self._is_open and hang.test == self._test:
            self._hang = hang
            pytest.fail(hang.headline)

    def _read(self) -> Hang | None:
        try:
            told: dict[str, Any] = self._decode(self.file.read())
            return Hang(int(told["number"]), told["test"], str(told["headline"]), str(told["text"]), bool(told["is_known"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None


def _end_by(number: int) -> bool:
    """Have a signal end this process with its number for a status, without a line of Python, as in a deadlock of the GIL."""
    try:
        import ctypes
    except ImportError:
        return False
    library = ctypes.CDLL(None)
    library.signal.restype = ctypes.c_void_p
    library.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    before = library.signal(number, ctypes.cast(library._exit, ctypes.c_void_p))
    if before:  # not SIG_DFL: somebody else's handler, which Python does not know
        library.signal(number, before)
        return False
    return True

