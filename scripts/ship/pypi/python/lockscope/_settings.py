"""What the user has set: options of the command line, ini values, the environment."""

from __future__ import annotations

import argparse
import math
import os
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from pytest import Config, Parser

HELP_WATCH = "have lockscope end a test that deadlocks, with a report of who waits for which lock"
HELP_TIMEOUT = "the same, and also end a test that takes longer than so many seconds; 0: no limit"
HELP_REPORT_DIR = "folder for the reports of lockscope"
HELP_RECORD = "have lockscope record which locks are taken in orders that could deadlock, though nothing hangs"
HELP_PROVOKE = "the same, and run tests with such orders again so that the deadlock happens; those that hang fail"
HELP_GPU_CORE = "have a core of the GPUs written where lockscope must end pytest; a kernel that fails ends pytest then, too"
HELP_STUCK_AFTER = "how long a hang must stand that no recorded owner proves, in a test without a limit (60)"
HELP_ON_HANG = "after the report of lockscope end the test (kill, the default) or only report"
ON_HANG = ("kill", "report")
#: What hands the controller's folder to a worker of pytest-xdist.
REPORT_DIR_OF_WORKER = "lockscope_report_dir"


class Settings(NamedTuple):
    """What one run of pytest has set."""

    #: Watch all tests; else only those with the marker.
    watch: bool
    timeout: float | None
    stuck_after: float | None
    report_dir: str | None
    on_hang: str
    gpu_core: bool


def add_options(parser: Parser) -> None:
    """The options and their ini values."""
    group = parser.getgroup("lockscope")
    group.addoption("--lockscope", action="store_true", default=False, help=HELP_WATCH)
    group.addoption("--lockscope-timeout", type=_seconds_option, metavar="SECONDS", help=HELP_TIMEOUT)
    group.addoption("--lockscope-stuck-after", type=_seconds_option, metavar="SECONDS", help=HELP_STUCK_AFTER)
    group.addoption("--lockscope-report-dir", metavar="DIR", help=HELP_REPORT_DIR)
    group.addoption("--lockscope-on-hang", choices=ON_HANG, help=HELP_ON_HANG)
    group.addoption("--lockscope-gpu-core", action="store_true", default=False, help=HELP_GPU_CORE)
    group.addoption("--lockscope-record", action="store_true", default=False, help=HELP_RECORD)
    group.addoption("--lockscope-provoke", action="store_true", default=False, help=HELP_PROVOKE)
    parser.addini("lockscope", HELP_WATCH, type="bool", default=False)
    parser.addini("lockscope_timeout", HELP_TIMEOUT, default="")
    parser.addini("lockscope_stuck_after", HELP_STUCK_AFTER, default="")
    parser.addini("lockscope_report_dir", HELP_REPORT_DIR, default="")
    parser.addini("lockscope_on_hang", HELP_ON_HANG, default="")


def read(config: Config) -> Settings:
    """The settings of a run. The command line goes before the environment, and that before the ini file."""
    timeout = config.getoption("lockscope_timeout")
    if timeout is None:
        timeout = _ini_seconds(config, "lockscope_timeout")
    stuck_after = config.getoption("lockscope_stuck_after")
    if stuck_after is None:
        stuck_after = _ini_seconds(config, "lockscope_stuck_after")
    on_hang = config.getoption("lockscope_on_hang") or config.getini("lockscope_on_hang") or ON_HANG[0]
    if on_hang not in ON_HANG:
        raise pytest.UsageError(f"lockscope_on_hang must be one of {', '.join(ON_HANG)}, not {on_hang!r}")
    return Settings(
        watch=bool(timeout or config.getoption("lockscope") or config.getini("lockscope")),
        timeout=timeout or None,
        stuck_after=stuck_after,
        report_dir=_report_dir(config),
        on_hang=on_hang,
        gpu_core=bool(config.getoption("lockscope_gpu_core")),
    )


def seconds(value: object) -> float:
    """A time limit; ValueError if it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"a time limit is a number of seconds, not {value!r}")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise ValueError(f"a time limit is a number of seconds, not {value!r}")
    return number


def _seconds_option(value: str) -> float:
    try:
        return seconds(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _ini_seconds(config: Config, name: str) -> float | None:
    value = config.getini(name)
    if not value:
        return None
    try:
        return seconds(value)
    except ValueError as error:
        raise pytest.UsageError(f"{name}: {error}") from error


def _report_dir(config: Config) -> str | None:
    handed = getattr(config, "workerinput", {}).get(REPORT_DIR_OF_WORKER)
    if handed:
        return str(handed)
    folder = config.getoption("lockscope_report_dir") or os.environ.get("LOCKSCOPE_REPORT_DIR")
    base = config.invocation_params.dir
    if not folder:
        folder = config.getini("lockscope_report_dir")
        base = config.inipath.parent if config.inipath else config.rootpath
    return os.path.normpath(os.path.join(base, folder)) if folder else None
