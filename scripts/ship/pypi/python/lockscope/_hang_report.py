"""A hang as pytest shows it: what a failed test says, and what the controller says of a worker that was ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from _pytest._code.code import ReprFileLocation, TerminalRepr

if TYPE_CHECKING:
    from _pytest._io import TerminalWriter
    from pytest import CollectReport, TestReport

    from ._interruption import Hang

SECTION = "lockscope"


def plain(text: str) -> str:
    """A line of a report's JSON for a terminal: names of the program's own move no cursor and end no line."""
    return "".join(letter if letter.isprintable() else f"\\u{{{ord(letter):x}}}" for letter in text)


class LostWorker(TerminalRepr):
    """The failure of a test whose process was ended: a reason for the summary's line, and the report."""

    def __init__(self, path: str, headline: str, text: str) -> None:
        self.reprcrash = ReprFileLocation(path, 0, headline)
        self._headline, self._text = headline, text

    def toterminal(self, tw: TerminalWriter) -> None:
        tw.line(self._headline, red=True, bold=True)
        tw.line(self._text)

    # pytest asks for either, by version.
    def __str__(self) -> str:
        return f"{self._headline}\n{self._text}"


def tell(report: TestReport | CollectReport, hang: Hang) -> None:
    """Put a hang into the report of the phase that it was ended in."""
    longrepr: Any = report.longrepr
    if report.outcome == "passed":
        # The test has swallowed what was raised.
        report.outcome = "failed"
        longrepr = report.longrepr = LostWorker(report.nodeid.split("::")[0], hang.headline, hang.text)
    elif hasattr(longrepr, "addsection"):
        # Unlike a section of the report, it is a part of the failure's text, also in JUnit's files.
        longrepr.addsection(SECTION, hang.text)
    else:
        report.sections.append((SECTION, hang.text))
