"""lockscope says why a process hangs: who waits for which lock, and who holds it.

The work is done by a native program, which this package carries: the hung process may be unable to run any Python.

    report = lockscope.attach(pid)
    print(report.verdict, report.summary)

    with lockscope.expect(seconds=300):
        train()

    @lockscope.expect(seconds=30)
    def handle(request): ...
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Iterator
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._look import LockscopeError, attach, read, snapshot
    from ._notebook import show
    from ._watch import expect, watch
    from .report import Report

    __version__: str

__all__ = ["LockscopeError", "Report", "__version__", "attach", "binary", "expect", "read", "show", "snapshot", "watch"]

#: In which module what is.
_PLACES = {
    "LockscopeError": "_look",
    "Report": "report",
    "attach": "_look",
    "expect": "_watch",
    "load_ipython_extension": "_notebook",
    "read": "_look",
    "show": "_notebook",
    "snapshot": "_look",
    "watch": "_watch",
}


def __getattr__(name: str) -> Any:
    # Looked up on demand: pytest imports this package at each start, and that takes time.
    if name == "__version__":
        return metadata.version("lockscope")
    if name in _PLACES:
        return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def binary() -> str:
    """The path of the lockscope program; FileNotFoundError where there is none."""
    for path in _candidates():
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise FileNotFoundError("the program `lockscope` is neither beside this Python package nor on the PATH")


def _candidates() -> Iterator[str]:
    """The program of this very package first: another one on the PATH may be of another version."""
    try:
        files = metadata.files("lockscope") or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "lockscope":
            yield str(file.locate())
    yield os.path.join(sysconfig.get_path("scripts"), "lockscope")
    # `pip install --target` puts the programs into a folder beside the packages.
    yield os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin", "lockscope")
    found = shutil.which("lockscope")
    if found:
        yield found
