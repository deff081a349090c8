"""Builds the wheel with maturin, always around a static program, and finishes it (finished_wheel.py).

maturin alone links the C library of the machine that builds: such a wheel runs on machines as new as that one only. A
static program runs everywhere, also in a container without any library.
"""

from __future__ import annotations

import os
import pathlib
import platform
import subprocess
from collections.abc import Mapping
from typing import Any

import finished_wheel
import maturin
from maturin import build_sdist, get_requires_for_build_sdist, get_requires_for_build_wheel

__all__ = [
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_wheel",
]

#: Nothing is taken from the machine's libraries, so the oldest tag that maturin knows is true.
COMPATIBILITY = "manylinux2014"
ARGUMENTS = "build-args"


def build_wheel(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """The hook of PEP 517."""
    wheel = maturin.build_wheel(wheel_directory, _static(config_settings), metadata_directory)
    finished_wheel.finish(os.path.join(wheel_directory, wheel))
    return wheel


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Mapping[str, Any] | None = None) -> str:
    """The hook of PEP 517: the same arguments, as the tag of the wheel is part of the metadata."""
    folder = maturin.prepare_metadata_for_build_wheel(metadata_directory, _static(config_settings))
    metadata = pathlib.Path(metadata_directory, folder, "METADATA")
    metadata.write_bytes(finished_wheel.complete_metadata(metadata.read_bytes().decode()).encode())
    return folder


def _static(config_settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """The user's settings with the arguments for a static program, unless the user has given arguments."""
    settings = dict(config_settings or {})
    if ARGUMENTS in settings or f"maturin.{ARGUMENTS}" in settings or "MATURIN_PEP517_ARGS" in os.environ:
        return settings
    settings[ARGUMENTS] = ["--compatibility", COMPATIBILITY, "--target", _target()]
    return settings


def _target() -> str:
    """What Cargo is told to build for; else musl where Rust has it, and the GNU C library, whose static variant needs a flag of rustc."""
    told = os.environ.get("CARGO_BUILD_TARGET", "")
    if "-musl" in told:
        return told
    machine = platform.machine()
    musl = f"{machine}-unknown-linux-musl"
    if _is_installed(musl):
        return musl
    # Named, so that the flag does not apply to build scripts and macros, which cannot be static.
    gnu = f"{machine}-unknown-linux-gnu"
    variable = f"CARGO_TARGET_{gnu.upper().replace('-', '_')}_RUSTFLAGS"
    flags: list[str] = [os.environ.get(variable, ""), "-Ctarget-feature=+crt-static"]
    os.environ[variable] = " ".join(flags).strip()
    return gnu


def _is_installed(target: str) -> bool:
    command = ["rustc", "--print", "target-libdir", "--target", target]
    try:
        found = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    return os.path.isdir(os.fsdecode(found.stdout.strip()))
