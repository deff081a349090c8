"""Starting the monitor's program: it runs outside of this process, since a hung one can run no Python."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Iterable
from typing import Any

from . import binary
from ._event_pipe import EventPipe

#: A program that says nothing for so long is given up.
ANSWER_SECONDS = 10.0
#: From <linux/prctl.h>.
PR_SET_PTRACER = 0x59616D61


class MonitorError(Exception):
    """There is no monitor; the message says why."""


def start(events: EventPipe, arguments: list[str], inherited: Iterable[int], about: dict[str, object]) -> str | None:
    """Start the program, which reads `events`, and tell it what it may do; why it may not look, where it may not."""
    answers, answers_of_monitor = os.pipe()
    try:
        try:
            launcher = subprocess.Popen(
                [binary(), "monitor", "--of", str(os.getpid()), *arguments],
                stdin=events.read_end,
                stdout=answers_of_monitor,
                pass_fds=list(inherited),
            )
        finally:
            os.close(answers_of_monitor)
        lines = _Lines(answers)
        try:
            answer = lines.next()
            allow_look_by(int(answer["pid"]))
        finally:
            _reap(launcher)
        # NVIDIA's driver reads them when CUDA is initialised.
        os.environ.update(answer.get("variables", {}))
        events.send(event="ready", **about)
        answer = lines.next()
        return None if answer["may_look"] else str(answer["why"])
    except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        raise MonitorError(f"the monitor did not start: {error}") from error
    finally:
        os.close(answers)


def _reap(launcher: subprocess.Popen[bytes]) -> None:
    """The launcher ends by itself as soon as the monitor runs on its own."""
    try:
        launcher.wait(ANSWER_SECONDS)
    except subprocess.TimeoutExpired:
        launcher.kill()
        launcher.wait()
        raise


def allow_look_by(monitor: int) -> None:
    """Yama's ptrace_scope 1 lets a process be looked at by its ancestors, and by the one that it names here."""
    try:
        import ctypes
    except ImportError:
        return  # a Python without ctypes: the monitor says what it may not do
    number = ctypes.c_ulong
    # Without Yama the kernel does not know this call, which does no harm.
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, number(monitor), number(0), number(0), number(0))


def filters() -> str | None:
    """The number of seccomp filters that this thread runs under, where the kernel says it."""
    try:
        with open("/proc/thread-self/status", encoding="utf-8") as file:
            return next((line.split()[1] for line in file if line.startswith("Seccomp_filters:")), None)
    except OSError:
        return None


class _Lines:
    """The monitor's answers, one object of JSON a line."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._read = b""

    def next(self) -> dict[str, Any]:
        deadline = time.monotonic() + ANSWER_SECONDS
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        while b"\n" not in self._read:
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise ValueError(f"it said nothing for {ANSWER_SECONDS:.0f} seconds")
            more = os.read(self._descriptor, 4096)
            if not more:
                raise ValueError("it ended at once")
            self._read += more
        line, self._read = self._read.split(b"\n", 1)
        answer = json.loads(line.decode("utf-8"))
        if not isinstance(answer, dict):
            raise ValueError(f"it said {line!r}")
        return answer
