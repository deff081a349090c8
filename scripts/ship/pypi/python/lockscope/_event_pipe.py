"""The pipe of events to the monitor: it must neither block the tests nor break them."""

from __future__ import annotations

import fcntl
import json
import os

from ._own_process import OwnProcess

#: fcntl.F_SETPIPE_SZ, which Python names since 3.10.
F_SETPIPE_SZ = 1031
#: Room for thousands of events, should the monitor be busy with a look.
PIPE_BYTES = 256 * 1024
#: What is kept for a monitor that does not read; later events are dropped.
UNSENT_BYTES = 1024 * 1024


class EventPipe:
    """Writes whole lines of JSON without ever waiting.

    This process keeps the reading end open too: thus a write to a monitor that is gone gives neither an error nor
    SIGPIPE, which would end a process that has set that signal to its default.
    """

    def __init__(self) -> None:
        self.read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        try:
            fcntl.fcntl(self._write_end, F_SETPIPE_SZ, PIPE_BYTES)
        except OSError:
            pass  # the user's limit for pipes: the default size does as well
        self._unsent = b""
        # Kept, because tests replace functions of os.
        self._write, self._fstat, self._close = os.write, os.fstat, os.close
        self._encode = json.JSONEncoder(ensure_ascii=False).encode
        self._owner = OwnProcess()
        self._identity = self._identify(self._write_end)

    def send(self, **event: object) -> None:
        """Send an event; drop it in a forked child, or where nobody has read for long."""
        if not self._owner.is_here() or not self._is_ours(self._write_end):
            return
        if len(self._unsent) < UNSENT_BYTES:
            # A lone surrogate, as in a file name that is not UTF-8, is no valid JSON.
            self._unsent += self._encode(event).encode("utf-8", "replace") + b"\n"
        try:
            # A pipe takes a part of what is longer than its free room: the rest goes first next time.
            self._unsent = self._unsent[self._write(self._write_end, self._unsent) :]
        except OSError:
            pass  # it is full, or a filter of a test's forbids it

    def is_lost(self) -> bool:
        """Whether a test has closed it."""
        return self._owner.is_here() and not self._is_ours(self._write_end)

    def close(self) -> None:
        """End of the events, which ends the monitor."""
        for descriptor in (self._write_end, self.read_end):
            if self._is_ours(descriptor):
                self._close(descriptor)

    def _identify(self, descriptor: int) -> tuple[int, int]:
        status = self._fstat(descriptor)
        return status.st_dev, status.st_ino

    def _is_ours(self, descriptor: int) -> bool:
        """False where a test has closed all descriptors: the number may be that of its own file by now."""
        try:
            return self._identify(descriptor) == self._identity
        except OSError:
            return False
