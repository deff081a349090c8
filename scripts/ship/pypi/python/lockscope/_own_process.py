"""Whether this is still the process that began the run, and no child of it by fork."""

from __future__ import annotations

import mmap
import os

#: From <linux/mman.h>, since Linux 4.14: a child by fork finds zeros.
MADV_WIPEONFORK = 18


class OwnProcess:
    """The process that made it.

    The answer takes no system call: a test may have set a filter that ends the process for one that it does not know.
    """

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._page[0] = 1
        # Kept, because tests replace functions of os.
        self._getpid = os.getpid
        #: Where the kernel wipes no pages.
        self._pid: int | None = None
        try:
            self._page.madvise(MADV_WIPEONFORK)
        except OSError:
            self._pid = os.getpid()

    def is_here(self) -> bool:
        """Whether it is this one."""
        return bool(self._page[0]) if self._pid is None else self._getpid() == self._pid
