"""How a test ended, from the reports of its phases: for the JUnit file that pytest cannot write after a hang."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest import TestReport

#: The worse one wins.
ORDER = ("passed", "skipped", "failed", "error")
TEXT_BYTES = 16 * 1024
LINE_LENGTH = 1000


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
        self._reason: str | None = None

    def add(self, report: TestReport) -> None:
        """One more phase."""
        if report.nodeid != self._test:
            return
        if report.when == "setup":
            self._begin()  # again, where a plugin repeats a test that failed
        self._complete = report.when == "teardown"
        self._seconds += report.duration
        if report.failed:
            captured = "".join(f"\n{f' {name} ':-^80}\n{text}" for name, text in report.sections)
            self._got("failed" if report.when == "call" else "error", report.longreprtext + captured)
            self._reason = self._reason or _in_one_line(report)
        elif report.skipped:
            self._got("skipped", _reason(report))

    def event(self) -> dict[str, object]:
        """What the monitor is told at the end of the test."""
        if self._outcome == ORDER[0] and not self._complete:
            self._got("error", "the test was interrupted")
        text = "\n\n".join(self._texts).encode("utf-8", "replace")[:TEXT_BYTES].decode("utf-8", "ignore")
        result = {"test": self._test, "outcome": self._outcome, "seconds": self._seconds, "text": text}
        return {**result, "reason": self._reason} if self._reason else result

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


def _in_one_line(report: TestReport) -> str | None:
    """As pytest's summary says it."""
    message = getattr(getattr(report.longrepr, "reprcrash", None), "message", None)
    return str(message).split("\n", 1)[0][:LINE_LENGTH] if message else None
