"""Looks at the processes of a cluster by the program, in rounds, and the one verdict over all of them."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any

from . import binary
from ._decode import decode
from ._look import LOOKED, LockscopeError

if TYPE_CHECKING:
    from .report import Report

#: Between the rounds: what moves has moved by then.
BETWEEN_ROUNDS = 0.5
#: The most of a program's words that are told where it failed.
LONGEST_ERROR = 400


class Diagnosis:
    """What was found: `print` shows it as the command line does."""

    def __init__(
        self, files: list[bytes], not_seen: dict[str, str], witnesses: dict[str, bytes] | None = None
    ) -> None:
        self._files = files
        self._witnesses = witnesses or {}
        #: Processes that could not be looked at, each with the reason.
        self.not_seen = not_seen

    @property
    def report(self) -> Report:
        """The same as an object."""
        from .report import Report

        return decode(Report, json.loads(self._merged("json")))

    def digest(self) -> bytes:
        """All looks in one file, for `lockscope merge` on any machine."""
        with tempfile.TemporaryDirectory(prefix="lockscope-") as folder:
            path = os.path.join(folder, "all.digest.json")
            self._merge(["-o", path])
            with open(path, "rb") as file:
                return file.read()

    def __str__(self) -> str:
        text = self._merged("text").decode("utf-8", "replace").rstrip()
        lines = [f"gap: {who}: {why}" for who, why in sorted(self.not_seen.items())]
        return "\n".join([text, *lines])

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.Diagnosis of {len(self._files)} looks>"

    def _merged(self, form: str) -> bytes:
        return self._merge(["--format", form])

    def _merge(self, arguments: list[str]) -> bytes:
        """The verdict over digests."""
        with tempfile.TemporaryDirectory(prefix="lockscope-") as folder:
            paths = written(folder, self._files)
            for name, content in self._witnesses.items():
                path = os.path.join(folder, name)
                with open(path, "wb") as file:
                    file.write(content)
                paths.append(path)
            command = [binary(), "--color", "never", "merge", *arguments, *paths]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode not in LOOKED:
            raise LockscopeError(done.stderr.decode("utf-8", "replace").strip())
        return done.stdout


def look(whom: list[str], number: int, before: list[bytes]) -> dict[str, Any]:
    """Runs the program on this machine: a ``digest`` of what `whom` means, or ``why`` there is none.

    Others see in it which looks were there before.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="lockscope-") as folder:
            arguments = ["job", *whom, "--round", str(number), "-o", "-", "--quiet"]
            for path in written(folder, before):
                arguments += ["--after", path]
            done = subprocess.run(
                [binary(), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
    except OSError as error:
        return {"why": short(str(error))}
    if done.returncode == 0 and done.stdout:
        return {"digest": done.stdout}
    return {"why": short(done.stderr.decode("utf-8", "replace").strip() or f"status {done.returncode}")}


def written(folder: str, files: list[bytes]) -> list[str]:
    """The files' names in a folder."""
    paths = []
    for position, content in enumerate(files):
        path = os.path.join(folder, f"{position}.digest.json")
        with open(path, "wb") as file:
            file.write(content)
        paths.append(path)
    return paths


def short(text: str) -> str:
    """What a program said, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_ERROR else line[:LONGEST_ERROR] + "..."
