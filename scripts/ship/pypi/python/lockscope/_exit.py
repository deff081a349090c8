"""The end of the process after the tests: Python waits there for each thread, and one that is locked never ends."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._interruption import Hang


def before_threads_are_awaited(act: Callable[[], None]) -> None:
    """Have this called when Python has begun to end and is about to wait for its threads."""
    shutdown: Any = getattr(threading, "_shutdown", None)
    if shutdown is None:
        return

    def wait() -> None:
        act()
        shutdown()

    threading._shutdown = wait  # type: ignore[attr-defined]


def end(status: int, hang: Hang) -> None:
    """Name the threads that are still locked, and end with the status of the tests."""
    print(f"\nlockscope: the tests are over, and the process does not end: {hang.headline}", file=sys.stderr)
    for line in _waiting():
        print(f"lockscope: still waiting: {line}", file=sys.stderr)
    if not hang.is_known:
        print(hang.text, file=sys.stderr)
    # Up to Python 3.8 the threads of pools are awaited among what is called at the end.
    pools: Any = sys.modules.get("concurrent.futures.thread")
    if pools is not None:
        atexit.unregister(pools._python_exit)
    try:
        atexit._run_exitfuncs()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                pass
        os._exit(status)


def _waiting() -> list[str]:
    """Threads that Python waits for, each with where it is."""
    frames = sys._current_frames()
    lines = []
    # Up to Python 3.8 the threads of pools are daemons, which are awaited all the same.
    pools: Any = sys.modules.get("concurrent.futures.thread")
    of_pools = [] if pools is None else list(pools._threads_queues)
    for thread in threading.enumerate():
        if thread.daemon and thread not in of_pools or thread is threading.main_thread():
            continue
        frame = frames.get(thread.ident or 0)
        # The program's line, where there is one, and not that of the library which waits for it.
        library = os.path.dirname(threading.__file__)
        outer = frame
        while outer is not None and outer.f_code.co_filename.startswith(library):
            outer = outer.f_back
        frame = outer or frame
        place = "" if frame is None else f" in {frame.f_code.co_name} at {frame.f_code.co_filename}:{frame.f_lineno}"
        lines.append(f"{thread.name}{place}")
    return lines
