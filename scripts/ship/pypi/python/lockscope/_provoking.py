"""Tests that take part in a predicted deadlock run again in a process of their own, in which lockscope makes it happen."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from . import binary

if TYPE_CHECKING:
    from pytest import Config, Item

#: Set for the test that runs again: it neither records by itself nor runs a third time.
PROVOKED = "LOCKSCOPE_PROVOKED"
#: The exit status of a hang.
HUNG = 124
#: Variables that the recorder, the watcher and pytest set for this process alone.
OWN = (
    "LD_PRELOAD",
    "LOCKSCOPE_RECORD",
    "LOCKSCOPE_RECORD_FILTERS",
    "LOCKSCOPE_RECORD_OWNER",
    "LOCKSCOPE",
    "LOCKSCOPE_REPORT_DIR",
    "PYTEST_ADDOPTS",
)
BEFORE = "lockscope: "


def is_again() -> bool:
    """Whether this process runs one test once more."""
    return PROVOKED in os.environ


class Provoked:
    """The result of running a test again with its predictions."""

    def __init__(self, has_hung: bool, text: str) -> None:
        self.has_hung = has_hung
        self.text = text


def provoke(item: Item, orders: str) -> Provoked:
    """Run a test again with the predictions of a file of the recorder."""
    environment = {name: value for name, value in os.environ.items() if name not in OWN}
    preloads = os.environ.get("LD_PRELOAD", "").split(":")
    others = [one for one in preloads if one and "liblockscope_recorder" not in one]
    if others:
        environment["LD_PRELOAD"] = ":".join(others)
    environment[PROVOKED] = "1"
    command = [binary(), "run", f"--provoke={orders}", "--", sys.executable, "-m", "pytest"]
    command += [*_arguments(item.config), item.nodeid]
    root = str(getattr(item.config, "rootpath", None) or item.config.rootdir)  # type: ignore[attr-defined]
    ran = subprocess.run(
        command,
        cwd=root,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    lines = ran.stderr.splitlines()
    begin = next((number for number, line in enumerate(lines) if line.startswith(BEFORE)), 0)
    if ran.returncode == HUNG:
        return Provoked(True, "\n".join(lines[begin:]))
    return Provoked(False, "\n".join(line[len(BEFORE) :] for line in lines if line.startswith(BEFORE)))


def _arguments(config: Config) -> list[str]:
    """The options that the test needs to be found and to be run alone."""
    arguments = ["-q", "-p", "no:cacheprovider"]
    inifile = getattr(config, "inipath", None) or getattr(config, "inifile", None)
    if inifile:
        arguments += ["-c", str(inifile)]
    if config.pluginmanager.hasplugin("xdist"):
        arguments.append("-n0")
    return arguments
