"""Why a cluster of Dask hangs: one verdict over its workers, its scheduler and the client.

    import lockscope.dask
    print(lockscope.dask.diagnose(client))

Each worker is looked at by the program, started by its nanny, which answers also while the worker's event loop cannot run any
Python; twice, since only what is the same in two rounds stood still. The answers come back over Dask itself: no port is opened
and no file stays. lockscope has to be installed where the workers run (`pip install lockscope[dask]`).

    client.register_plugin(lockscope.dask.Watch())

has each worker watched from then on: one whose own threads hang is told of in its nanny's log, and as an event of the cluster.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from . import _program, _rounds
from ._look import LockscopeError

__all__ = ["Diagnosis", "LetLook", "LockscopeError", "Watch", "diagnose"]

#: A worker that can run Python answers at once; the others are looked at all the same.
ANSWER_SECONDS = 2.0


class Diagnosis(_rounds.Diagnosis):
    """What was found: `print` shows it as the command line does."""


def diagnose(client: Any, timeout: float = 60.0) -> Diagnosis:
    """Look at all processes of the cluster of a `distributed.Client` twice, and say what it waits for.

    ``timeout`` is the most seconds that one round may take: who has not answered by then is told in ``not_seen``.
    """
    if getattr(client, "asynchronous", False):
        raise LockscopeError("this client is asynchronous: call diagnose with one that is not, in another thread")
    # Yama's ptrace_scope 1 lets only those look whom a process names: workers name their nannies.
    _asked(lambda: client.run(allow_parent, on_error="ignore"), ANSWER_SECONDS)
    first, not_seen = _round(client, 1, [], timeout)
    if not first:
        raise LockscopeError("no process could be looked at: " + "; ".join(f"{who}: {why}" for who, why in not_seen.items()))
    time.sleep(_rounds.BETWEEN_ROUNDS)
    second, still_not_seen = _round(client, 2, first, timeout)
    not_seen.update(still_not_seen)
    return Diagnosis(first + second, not_seen)


def allow_parent() -> None:
    """Let the process that started this one look at it, and what that one starts."""
    _program.allow_look_by(os.getppid())


def _let_look() -> Any:
    from distributed import WorkerPlugin

    class LetLook(WorkerPlugin):  # type: ignore[misc]
        """Lets nannies look at their workers where Yama's ptrace_scope is 1, also when a worker cannot run Python any more.

        ``client.register_plugin(lockscope.dask.LetLook())``, before it hangs.
        """

        name = "lockscope-let-look"

        def setup(self, worker: Any) -> None:
            allow_parent()

    return LetLook


def _watch() -> Any:
    from distributed import NannyPlugin

    class Watch(NannyPlugin):  # type: ignore[misc]
        """Has each worker watched by its nanny, and says when one hangs by itself: threads that wait for each other, and what
        `hang_after` says. A wait for another worker is none of that: `diagnose` tells it.

        ``client.register_plugin(lockscope.dask.Watch(report_dir="hangs"))``; it is said in the nanny's log, in files of
        ``report_dir`` on the nanny's machine, and as an event: ``client.subscribe_topic("lockscope", print)``, whose message has
        ``worker``, ``pid`` and ``text``. The worker goes on. Where Yama's ptrace_scope is 1, register `LetLook` before.

        ``hang_after``: also when nothing has made progress for so many seconds.
        """

        name = "lockscope-watch"

        def __init__(self, report_dir: str | os.PathLike[str] | None = None, hang_after: float | None = None) -> None:
            self._arguments: list[str] = []
            if report_dir is not None:
                self._arguments += ["--report-dir", os.fspath(report_dir)]
            if hang_after is not None:
                self._arguments += ["--hang-after", f"{float(hang_after):g}s"]
            self._watcher: Any = None

        def setup(self, nanny: Any) -> None:
            from lockscope._dask_watch import Watcher

            self._watcher = Watcher(nanny, self._arguments)
            self._watcher.start()

        def teardown(self, nanny: Any) -> None:
            if self._watcher is not None:
                self._watcher.stop()

        def __getstate__(self) -> dict[str, Any]:
            return {**self.__dict__, "_watcher": None}

    return Watch


#: Plugins, whose bases are Dask's: it is imported by those only who ask for one.
_PLUGINS = {"LetLook": _let_look, "Watch": _watch}


def __getattr__(name: str) -> Any:
    if name in _PLUGINS:
        globals()[name] = _PLUGINS[name]()
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _round(client: Any, number: int, before: list[bytes], timeout: float) -> tuple[list[bytes], dict[str, str]]:
    """The digests of one round, and who could not be looked at."""
    workers = list(client.scheduler_info(n_workers=-1)["workers"]) if _knows_count(client) else list(client.scheduler_info()["workers"])
    not_seen: dict[str, str] = {}
    # All at once: what waits for each other should be seen at one time.
    asked = {
        "workers": lambda: client.run(by_nanny, number, before, nanny=True, on_error="return"),
        "the scheduler": lambda: client.run_on_scheduler(by_itself, number, before),
    }
    threads = {who: _Question(question) for who, question in asked.items()}
    own = (socket.gethostname(), os.getpid())
    answers: list[dict[str, Any]] = []
    deadline = time.monotonic() + timeout
    for who, question in threads.items():
        try:
            answer = question.wait(max(0.0, deadline - time.monotonic()))
        except Exception as error:
            not_seen[who] = _rounds.short(f"{type(error).__name__}: {error}")
            continue
        if who == "workers":
            for address in workers:
                of_worker = answer.get(address, "it has no nanny: run `lockscope job --engine dask` on its node")
                if isinstance(of_worker, dict):
                    answers.append(of_worker)
                else:
                    not_seen[f"worker {address}"] = _rounds.short(str(of_worker))
        else:
            answers.append(answer)
    # In a LocalCluster the scheduler is a part of this process.
    if not any(answer.get("process") == own for answer in answers):
        answers.append(_look(os.getpid(), number, before))
    files: list[bytes] = []
    for answer in answers:
        if answer.get("digest"):
            files.append(answer["digest"])
        else:
            not_seen[answer["who"]] = answer["why"]
    return files, not_seen


def _knows_count(client: Any) -> bool:
    """Since 2025 a client keeps a few workers only, unless it is asked for all."""
    import inspect

    return "n_workers" in inspect.signature(client.scheduler_info).parameters


async def by_nanny(number: int, before: list[bytes], dask_worker: Any) -> dict[str, Any]:
    """Runs in a nanny: looks at its worker."""
    pid = dask_worker.pid
    if not pid:
        return {"who": f"worker of {dask_worker.address}", "why": "its nanny has no process of it"}
    return await asyncio.get_running_loop().run_in_executor(None, _look, pid, number, before)


async def by_itself(number: int, before: list[bytes]) -> dict[str, Any]:
    """Runs in a scheduler: looks at that."""
    return await asyncio.get_running_loop().run_in_executor(None, _look, os.getpid(), number, before)


def _look(pid: int, number: int, before: list[bytes]) -> dict[str, Any]:
    """A digest of one process, in which others see which looks were there before."""
    if pid == os.getpid():
        # The program is a child, and may look at its parent by this.
        _program.allow_look_by(pid)
    own = (socket.gethostname(), pid)
    answer = _rounds.look(["--engine", "dask", "--pid", str(pid), "--alone"], number, before)
    return {"who": f"process {pid} of {own[0]}", "process": own, **answer}


class _Question:
    """A call in a thread of its own: a cluster that hangs may never answer."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._answer: Any = None
        self._error: Exception | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run, name="lockscope.dask", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answer = self._call()
        except Exception as error:
            self._error = error

    def wait(self, seconds: float) -> Any:
        self._thread.join(seconds)
        if self._thread.is_alive():
            raise TimeoutError(f"no answer in {seconds:.0f} seconds")
        if self._error is not None:
            raise self._error
        return self._answer


def _asked(call: Callable[[], Any], seconds: float) -> None:
    try:
        _Question(call).wait(seconds)
    except Exception:
        return
