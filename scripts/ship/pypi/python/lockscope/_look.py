"""Looks at processes, by the program."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

from . import _program, binary
from ._decode import decode

if TYPE_CHECKING:
    from .report import Report

#: Exit statuses: nothing wrong, something wrong. Any other says that there was no look.
LOOKED = (0, 1)


class LockscopeError(Exception):
    """The program could not do it; the message says why and what to try."""


def attach(
    *processes: int | str,
    tree: bool | None = None,
    max_pause: float | None = None,
    locals: bool = False,
    timeout: float | None = None,
) -> Report:
    """Look at processes, by id or name, and say who waits for what.

    Descendants that a process waits for are looked at too; with ``tree=True`` all of them, with ``tree=False`` none. They are
    stopped for ``max_pause`` seconds at most. ``locals`` adds the variables of Python frames. This process itself is looked at
    by ``attach(os.getpid())``. After ``timeout`` seconds TimeoutError is raised.
    """
    from .report import Report

    arguments = ["attach", *map(str, processes), "--format", "json", *_options(tree, max_pause)]
    if locals:
        arguments.append("--locals")
    return decode(Report, json.loads(_run(arguments, timeout)))


def snapshot(
    process: int | str,
    path: str | os.PathLike[str],
    *,
    tree: bool | None = None,
    max_pause: float | None = None,
    redact: bool = False,
    timeout: float | None = None,
) -> None:
    """Write down what there is to know of a process, for ``read`` on any machine; compressed where ``path`` ends in .zst.

    With ``redact`` it has no variables, environment and arguments.
    """
    arguments = ["snapshot", str(process), "--quiet", "-o", os.fspath(path), *_options(tree, max_pause)]
    if redact:
        arguments.append("--redact")
    _run(arguments, timeout, prints=False)


def read(*paths: str | os.PathLike[str], timeout: float | None = None) -> Report:
    """The report of a snapshot, or of core files."""
    from .report import Report

    return decode(Report, json.loads(_run(["core", *(os.fspath(path) for path in paths), "--format", "json"], timeout)))


def _options(tree: bool | None, max_pause: float | None) -> list[str]:
    options = [] if tree is None else ["--tree" if tree else "--no-tree"]
    if max_pause is not None:
        options += ["--max-pause", f"{max_pause * 1000:f}ms"]
    return options


def _run(arguments: list[str], timeout: float | None, prints: bool = True) -> bytes:
    # The program is a child, and may look at its parent by this.
    _program.allow_look_by(os.getpid())
    try:
        done = subprocess.run(
            [binary(), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"the look has taken longer than {timeout} seconds") from None
    except OSError as error:
        raise LockscopeError(str(error)) from error
    if done.returncode not in LOOKED or prints and not done.stdout:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise LockscopeError(said or f"the program has ended with status {done.returncode}")
    return done.stdout


def run_to_files(processes: list[str], files: list[str], tree: bool | None, timeout: float | None) -> None:
    """Look at processes, and write the report into each of these files, in the format of its ending."""
    arguments = ["attach", *processes, "--quiet", *_options(tree, None)]
    for file in files:
        arguments += ["-o", file]
    _run(arguments, timeout, prints=False)
