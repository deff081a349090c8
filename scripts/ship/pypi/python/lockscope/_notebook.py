"""Reports in a notebook: `lockscope.show(pid)`, and the magic `%lockscope` after `%load_ext lockscope`.

Nothing of IPython or Jupyter is imported: a notebook asks what it shows for its HTML.
"""

from __future__ import annotations

import html
import os
import shlex
import tempfile
from typing import Any

from ._look import run_to_files

#: Pixels; the page scrolls.
HEIGHT = 640


class Shown:
    """A report: HTML in a notebook, text elsewhere."""

    def __init__(self, text: str, page: str) -> None:
        self.text = text
        self.html = page

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        # A page of its own: its style changes nothing of the notebook, and it runs no script.
        page = html.escape(self.html, quote=True)
        return f'<iframe sandbox srcdoc="{page}" style="width:100%;height:{HEIGHT}px;border:0" title="lockscope"></iframe>'


def show(*processes: int | str, tree: bool | None = None, timeout: float | None = None) -> Shown:
    """Look at processes, by id or name, and show the report in the cell; without any, at this very process.

    With ``tree=True`` all descendants are looked at too. After ``timeout`` seconds TimeoutError is raised.
    """
    names = [str(one) for one in processes] or [str(os.getpid())]
    with tempfile.TemporaryDirectory(prefix="lockscope-") as folder:
        page, text = os.path.join(folder, "report.html"), os.path.join(folder, "report.txt")
        run_to_files(names, [page, text], tree, timeout)
        return Shown(_read(text), _read(page))


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def magic(line: str) -> Shown:
    """`%lockscope [PID|NAME ...]`: look at these processes; without any, at the notebook's kernel."""
    words = shlex.split(line)
    tree = True if "--tree" in words else None
    return show(*[word for word in words if word != "--tree"], tree=tree)


def load_ipython_extension(ipython: Any) -> None:
    """`%load_ext lockscope`."""
    ipython.register_magic_function(magic, "line", "lockscope")
