"""The pytest plugin: a test that deadlocks is ended, with a report, instead of holding up the suite for ever.

Inert unless `--lockscope`, `--lockscope-timeout`, their ini values or the marker ask for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from . import _provoking, _settings
from ._controller import Controller
from ._watcher import Watcher

if TYPE_CHECKING:
    from pytest import Config, Parser

MARKER_HELP = "lockscope(timeout=None): have lockscope watch this test for deadlocks, and end it after so many seconds."


def pytest_addoption(parser: Parser) -> None:
    """The options of the plugin."""
    _settings.add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: Config) -> None:
    """Begins anew with the recorder, where it is wanted: the loader takes it in only at the start of a process."""
    if _records(config):
        from . import _recording

        _recording.begin_anew(config)


def pytest_configure(config: Config) -> None:
    """Chooses the part that this process plays."""
    config.addinivalue_line("markers", MARKER_HELP)
    if _provoking.is_again():
        # The program watches this process, and ends it.
        return
    settings = _settings.read(config)
    # pytest-xdist has decided by now whether it distributes the tests; its workers never do.
    if getattr(config.option, "dist", "no") == "no":
        config.pluginmanager.register(Watcher(config, settings), "lockscope_watcher")
    else:
        config.pluginmanager.register(Controller(config, settings), "lockscope_controller")
    if _records(config):
        from . import _recording

        config.pluginmanager.register(_recording.Recording(config, settings.report_dir), "lockscope_recording")


def _records(config: Config) -> bool:
    """Whether locks are to be recorded; a test that runs again is recorded by the program."""
    is_wanted = config.getoption("lockscope_record") or config.getoption("lockscope_provoke")
    return bool(is_wanted) and not _provoking.is_again()
