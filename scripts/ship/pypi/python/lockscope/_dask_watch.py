"""The thread in a nanny of Dask that has its worker watched by the program, one after the other as the worker is started again."""

from __future__ import annotations

import logging
import os
import subprocess
import threading
from typing import Any

from . import binary

#: The topic of the events that the cluster gets.
TOPIC = "lockscope"
#: Between two questions whether the worker is another one by now.
NAP = 0.5
#: The program's own exit statuses, as of `lockscope watch`.
ENDED, HANGS = 0, 1

logger = logging.getLogger("lockscope.dask")


class Watcher(threading.Thread):
    """Watches the workers of one nanny until it is stopped."""

    def __init__(self, nanny: Any, arguments: list[str]) -> None:
        super().__init__(name="lockscope.dask.Watch", daemon=True)
        self._nanny = nanny
        self._arguments = arguments
        self._stopped = threading.Event()
        self._program: subprocess.Popen[bytes] | None = None
        self._starts = threading.Lock()

    def stop(self) -> None:
        """End the program; the worker goes on."""
        self._stopped.set()
        with self._starts:
            program = self._program
        if program is not None:
            program.terminate()

    def run(self) -> None:
        told: int | None = None
        while not self._stopped.is_set():
            pid = self._nanny.pid
            # A worker that hangs is told of once.
            if not pid or pid == told:
                self._stopped.wait(NAP)
                continue
            try:
                status, said = self._watch(pid)
            except OSError as error:
                status, said = None, str(error)
            if self._stopped.is_set():
                return
            if status == ENDED:
                # Its nanny is about to notice.
                self._stopped.wait(NAP)
                continue
            told = pid
            if status == HANGS:
                self._tell(pid, said)
            else:
                logger.error("worker %s is not watched: %s", self._nanny.worker_address, said.strip())

    def _watch(self, pid: int) -> tuple[int, str]:
        command = [binary(), "--color", "never", "watch", str(pid), *self._arguments]
        with self._starts:
            if self._stopped.is_set():
                return ENDED, ""
            program = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=_environment()
            )
            self._program = program
        said, _ = program.communicate()
        with self._starts:
            self._program = None
        return program.returncode, said.decode("utf-8", "replace")

    def _tell(self, pid: int, text: str) -> None:
        worker = self._nanny.worker_address
        logger.warning("worker %s (process %d) hangs\n%s", worker, pid, text.rstrip())
        event = {"worker": worker, "pid": pid, "text": text}
        try:
            self._nanny.loop.add_callback(self._nanny.log_event, TOPIC, event)
        except Exception as error:
            # A nanny that is closing tells nobody any more; it is in the log.
            logger.info("the cluster was not told: %s", error)


def _environment() -> dict[str, str]:
    """Without what would make each watching of a worker an annotation of the whole run."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
