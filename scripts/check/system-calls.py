#!/usr/bin/env python3
"""Writes src/arch/<machine>/system_call_numbers.rs: scripts/check/system-calls.py MACHINE HEADER VERSION

HEADER has lines `#define __NR_read 0` (asm/unistd_64.h) or `pub const __NR_read: u32 = 0;` (linux-raw-sys), VERSION is that of
the kernel it is from. What a call waits for is not in any header: calls with a constant of their own in src/arch/system_calls.rs
are written as that constant, all others by their name."""
import pathlib
import re
import sys

ARCH = pathlib.Path(__file__).resolve().parents[2] / "src/arch"


def main():
    machine, header, version = sys.argv[1:]
    described = re.findall(r'^    (\w+) = \w+\("(\w+)"', (ARCH / "system_calls.rs").read_text(), re.M)
    constants = {name: constant for constant, name in described}
    numbers = re.findall(r"\b__NR_(\w+)(?::\s*u32\s*=)?\s+(\d+)\b", pathlib.Path(header).read_text())
    rows = sorted({int(number): name for name, number in numbers}.items())
    lines = [
        "//! Numbers of all system calls, as the kernel's headers name them. Written by scripts/check/system-calls.py: edit it there.",
        "",
        "use crate::arch::system_calls::{self as calls, SystemCall, plain};",
        "",
        f"/// In order of number; asm/unistd.h of {machine}, Linux {version}.",
        "pub(in crate::arch) const NUMBERS: &[(i64, SystemCall)] = &[",
    ]
    for number, name in rows:
        value = f"calls::{constants[name]}" if name in constants else f'plain("{name}")'
        lines.append(f"    ({number}, {value}),")
    lines.append("];")
    (ARCH / machine / "system_call_numbers.rs").write_text("\n".join(lines) + "\n")


main()
