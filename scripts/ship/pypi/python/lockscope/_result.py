"""How a test ended, from the reports of its phases: for the JUnit file that pytest cannot write after a hang."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest import TestReport

#: The worse one wins.
ORDER = ("passed", "skipped", "failed", "error")
TEXT_BYTES = 16 * 1024


class Result:
    """Gathers the phases of one test."""

    def __init__(self, test: str) -> None:
        self._test = test
        self._begin()

    def _begin(self) -> None:
        self._outcome = ORDER[0]
        self._seconds = 0.0
        self._complete = False
        self._texts: list[str] = []

    def add(self, report: TestReport) -> None:
        """One more phase."""
        if report.nodeid != self._test:
            return
        if report.when == "setup":
            self._begin()  # again, where a plugin repeats a test that failed
        self._complete = report.when == "teardown"
        self._seconds += report.duration
        if report.failed:
            self._got("failed" if report.when == "call" else "error", report.longreprtext)
        elif report.skipped:
            self._got("skipped", _reason(report))

    def event(self) -> dict[str, object]:
        """What the monitor is told at the end of the test."""
        if self._outcome == ORDER[0] and not self._complete:
            self._got("error", "the test was interrupted")
        text = "\n\n".join(self._texts).encode("utf-8", "replace")[:TEXT_BYTES].decode("utf-8", "ignore")
        return {"test": self._test, "outcome": self._outcome, "seconds": self._seconds, "text": text}

    def _got(self, outcome: str, text: str) -> None:
        self._outcome = max(self._outcome, outcome, key=ORDER.index)
        self._texts.append(text)


def _reason(report: TestReport) -> str:
    """Why it was skipped, or expected to fail."""
    expected = getattr(report, "wasxfail", None)
    if expected is not None:
        return str(expected)
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    return report.longreprtext
