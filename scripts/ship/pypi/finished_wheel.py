"""What maturin leaves out of a wheel: the manual as a page, and addresses that hold where there is no checkout.

The program in the wheel writes the manual; where it is for another machine, one of the same sources that runs here, which
LOCKSCOPE_BESIDE names. README's links and pictures are relative, so that they work in the sources; an index shows
README without these, so that its copy in the metadata gets the address of the repository before each. That address is Cargo.toml's,
which maturin has written as Home-Page.
"""

from __future__ import annotations

import base64
import hashlib
import os
import pathlib
import re
import subprocess
import tempfile
import zipfile

__all__ = ["complete_metadata", "finish"]

PROGRAM = re.compile(r"[^/]+\.data/scripts/lockscope")
METADATA = re.compile(r"[^/]+\.dist-info/METADATA")
RECORD = re.compile(r"[^/]+\.dist-info/RECORD")
MANUAL = "lockscope/manual.html"
#: Pages of the project below its address: the name that an index shows, and where it is.
PAGES = {"Source": "", "Changelog": "/blob/main/CHANGELOG.md", "Documentation": "/tree/main/src/manual", "Issues": "/issues"}
#: `](path)` of a link or picture, with what stands before it; no address and no place in the same page.
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")


def complete_metadata(metadata: str) -> str:
    """The same with the addresses of the project; unchanged where they are there already, or nobody says where it is."""
    header, separator, readme = metadata.partition("\n\n")
    found = re.search(r"^Home-Page: (\S+?)/?$", header, re.MULTILINE)
    if not found or "\nProject-URL: Changelog," in header:
        return metadata
    home = found.group(1)
    lines = [f"Project-URL: {name}, {home}{page}" for name, page in PAGES.items()]

    def absolute(link: re.Match[str]) -> str:
        mark, words, path = link.groups()
        return f"{mark}[{words}]({home}/{'raw' if mark else 'blob'}/main/{path})"

    return "\n".join([header, *lines]) + separator + LINK.sub(absolute, readme)


def finish(wheel: str) -> None:
    """Write the wheel anew with the manual, and with complete metadata. The same wheel gives the same bytes."""
    with zipfile.ZipFile(wheel) as old:
        entries = [(entry, old.read(entry)) for entry in old.infolist()]
    program = next(data for entry, data in entries if PROGRAM.fullmatch(entry.filename))
    first = entries[0][0]
    page = zipfile.ZipInfo(MANUAL, first.date_time)
    page.external_attr, page.compress_type = 0o100644 << 16, zipfile.ZIP_DEFLATED
    beside = os.environ.get("LOCKSCOPE_BESIDE")
    entries.insert(0, (page, _manual(pathlib.Path(beside).read_bytes() if beside else program)))
    entries = [
        (entry, complete_metadata(data.decode()).encode() if METADATA.fullmatch(entry.filename) else data)
        for entry, data in entries
        if not RECORD.fullmatch(entry.filename)
    ]
    name = next(entry.filename for entry, _ in entries if METADATA.fullmatch(entry.filename))
    record = name.replace("METADATA", "RECORD")
    lines = [f"{entry.filename},sha256={_digest(data)},{len(data)}\n" for entry, data in entries if not entry.is_dir()]
    about = zipfile.ZipInfo(record, first.date_time)
    about.external_attr, about.compress_type = 0o100644 << 16, zipfile.ZIP_DEFLATED
    fresh = wheel + ".fresh"
    with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as new:
        for entry, data in [*entries, (about, "".join([*lines, f"{record},,\n"]).encode())]:
            new.writestr(entry, data)
    os.replace(fresh, wheel)


def _manual(program: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "lockscope")
        path.write_bytes(program)
        path.chmod(0o755)
        return subprocess.run([path, "generate", "html"], stdout=subprocess.PIPE, check=True).stdout


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
