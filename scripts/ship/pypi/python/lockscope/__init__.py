"""lockscope says why a process hangs: who waits for which lock, and who holds it.

The work is done by a native program, which this package carries: the hung process may be unable to run any Python.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Iterator
from importlib import metadata

__all__ = ["__version__", "binary"]


def __getattr__(name: str) -> str:
    # Looked up on demand: pytest imports this package at each start, and reading metadata takes time.
    if name == "__version__":
        return metadata.version("lockscope")
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
