"""The plugin in the controller of pytest-xdist: a worker that lockscope has ended is a failed test with a report."""

from __future__ import annotations

import glob
import json
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from ._hang_report import LostWorker, plain
from ._settings import REPORT_DIR_OF_WORKER, Settings
from ._watcher import header

if TYPE_CHECKING:
    from pytest import Config

#: The clock of files may be behind by a tick.
TICK_SECONDS = 1.0


class Controller:
    """Hands each worker a folder of its own for its report, and looks there when the worker is gone."""

    def __init__(self, config: Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._began = time.time()
        #: By the worker's id; xdist does not tell its process id.
        self._folders: dict[str, str] = {}

    def pytest_report_header(self) -> str | None:
        return header(self._settings) if self._settings.watch else None

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        folder = self._settings.report_dir or self._temporary()
        if folder is not None:
            worker = node.gateway.id
            self._folders[worker] = node.workerinput[REPORT_DIR_OF_WORKER] = os.path.join(folder, worker)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, report: Any) -> None:
        found = self._report_on(report.node.gateway.id)
        if found is not None:
            headline, text = found
            path, _, name = report.nodeid.partition("::")
            # With a reason for the summary, and under the test's own name.
            report.longrepr = LostWorker(path, headline, f"{report.longrepr}\n{text}")
            report.location = (path, None, name.replace("::", "."))

    def pytest_unconfigure(self) -> None:
        # Most workers have had nothing to report.
        for folder in self._folders.values():
            try:
                os.rmdir(folder)
            except OSError:
                pass

    def _temporary(self) -> str | None:
        """A folder that may be made, for tests that are marked even though nothing is configured.

        Only the workers see marks. xdist itself has made pytest's temporary folder, so the name leaves no trace.
        """
        factory = getattr(self._config, "_tmp_path_factory", None)
        return None if factory is None else str(factory.getbasetemp() / "lockscope")

    def _report_on(self, worker: str) -> tuple[str, str] | None:
        """The headline and the text of the report on a worker; None where it ended for another reason."""
        if worker not in self._folders:
            return None
        # This one is written of what was ended with its process, or was only to be reported.
        reports = glob.glob(os.path.join(glob.escape(self._folders[worker]), "hang-*.xml"))
        # A worker of an earlier run may have had the same id.
        found = [path for path in reports if os.path.getmtime(path) > self._began - TICK_SECONDS]
        if not found:
            return None
        stem = os.path.splitext(max(found, key=os.path.getmtime))[0]
        try:
            with open(f"{stem}.json", encoding="utf-8") as file:
                report = json.load(file)
            with open(f"{stem}.txt", encoding="utf-8") as file:
                return self._headline(report), file.read()
        except (OSError, ValueError, KeyError):
            return None

    def _headline(self, report: dict[str, Any]) -> str:
        """One line for terminals and JUnit files."""
        # A worker that was only to be reported has ended for another reason, later.
        what = "ended" if self._settings.on_hang == "kill" else "seen"
        verdict = str(report["verdict"]).replace("-", " ")
        # What is no hang was looked at because of its time.
        why = ", over its time limit" if verdict in ("running", "blocked") else ""
        findings = report["findings"]
        said = str(findings[0]["title"] if findings else report["summary"]).split(". ")[0]
        return plain(f"{what} by lockscope{why}: {verdict}: {said}")
