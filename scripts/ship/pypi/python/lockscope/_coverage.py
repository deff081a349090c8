"""Keeping the coverage that pytest-cov has measured, where the monitor must end the process.

A thread waits for the monitor's word. It is there only where coverage is measured, and not while the process forks: Python warns of
a fork beside threads. Where no thread can get the GIL it never answers, and the monitor says that the coverage is lost.
"""

from __future__ import annotations

import _thread
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest import Config

PLUGIN = "_cov"
SAVE = b"s"
LEAVE = b"l"


class CoverageKeeper:
    """The thread, and the pipe that it reads."""

    def __init__(self, config: Config, send: Callable[..., None]) -> None:
        self._config = config
        self._send = send
        self._owner = os.getpid()
        self._read, self._write = os.read, os.write
        self._read_end, self.write_end = os.pipe()
        self._is_gone = _thread.allocate_lock()
        self._is_closed = False
        self._begin()
        # There is no way to take this back: it asks whether it is closed.
        os.register_at_fork(before=self._leave, after_in_parent=self._begin)

    def close(self) -> None:
        """End the thread."""
        self._leave()
        self._is_closed = True
        os.close(self._read_end)
        os.close(self.write_end)

    def _begin(self) -> None:
        if self._is_closed or self._owner != os.getpid():
            return
        self._is_gone.acquire()
        # Not of `threading`, whose lists tests count.
        _thread.start_new_thread(self._wait, ())

    def _leave(self) -> None:
        if self._is_closed or self._owner != os.getpid():
            return
        try:
            self._write(self.write_end, LEAVE)
        except OSError:
            return
        with self._is_gone:
            pass

    def _wait(self) -> None:
        try:
            if self._read(self._read_end, 1) == SAVE:
                self._send(event="coverage", kept=_save(self._config.pluginmanager.getplugin(PLUGIN)))
        except Exception as error:  # noqa: BLE001  whatever another package raises is only told
            self._send(event="coverage", kept=None, why=f"{type(error).__name__}: {error}")
        finally:
            self._is_gone.release()


def is_measured(config: Config) -> bool:
    """Whether pytest-cov measures in this run."""
    return bool(config.pluginmanager.hasplugin(PLUGIN))


def _save(plugin: Any) -> str | None:
    """Save what was measured; into which file."""
    controller: Any = getattr(plugin, "cov_controller", None)
    coverage = getattr(controller, "cov", None)
    if coverage is None:
        return None
    if hasattr(controller.config, "workerinput"):
        # The controller of pytest-xdist combines the files of its workers.
        coverage.stop()
        coverage.save()
        return str(coverage.get_data().data_filename())
    controller.finish()
    return str(controller.cov.get_data().data_filename())
