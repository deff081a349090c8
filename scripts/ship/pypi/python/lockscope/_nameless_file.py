"""A file without a name, which this process and the monitor share: tests that remove files do not meet it."""

from __future__ import annotations

import os


class NamelessFile:
    """A file in memory, where the system has such."""

    def __init__(self) -> None:
        self.descriptor = _create()
        # Kept, because tests replace functions of os.
        self._read, self._lseek, self._write, self._fstat, self._close = os.read, os.lseek, os.write, os.fstat, os.close
        self._identity = self._identify()

    def write(self, text: str) -> None:
        """Add text, as much as the limit on files allows."""
        left = text.encode("utf-8", "replace")
        try:
            while left and not self.is_lost():
                left = left[self._write(self.descriptor, left) :]
        except OSError:
            pass

    def read(self) -> str:
        """All that it has; nothing where it was closed."""
        if self.is_lost():
            return ""
        # Calls that pytest makes itself: a filter of a test's may know no others.
        self._lseek(self.descriptor, 0, os.SEEK_SET)
        return self._read(self.descriptor, self._fstat(self.descriptor).st_size).decode("utf-8", "replace")

    def close(self) -> None:
        """Forget it."""
        if not self.is_lost():
            self._close(self.descriptor)

    def _identify(self) -> tuple[int, int]:
        status = self._fstat(self.descriptor)
        return status.st_dev, status.st_ino

    def is_lost(self) -> bool:
        """Whether a test has closed all descriptors: the number may be that of its own file by now."""
        try:
            return self._identify() != self._identity
        except OSError:
            return True


def _create() -> int:
    if hasattr(os, "memfd_create"):
        try:
            return os.memfd_create("lockscope")
        except OSError:
            pass  # a sandbox may forbid it
    import tempfile

    with tempfile.TemporaryFile(buffering=0) as file:
        return os.dup(file.fileno())
