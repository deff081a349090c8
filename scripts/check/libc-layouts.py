#!/usr/bin/env python3
"""Checks the tables of the C library against debug information: scripts/check/libc-layouts.py [--debug-files=FOLDER] LIBRARY...

Each LIBRARY is a glibc (libc.so.6, or libpthread.so.0 up to 2.33) whose debug information is in it or below FOLDER by build id, of
x86-64 or aarch64; or a musl (libc.so), which says where it keeps things by the code of its shortest functions. Compared are
src/waits/libc/layout.rs and thread_pointer.rs of the machine. A number that differs is printed, and the exit status is 1. Needs gdb, and
gdb-multiarch for other machines."""
import pathlib
import platform
import re
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent / "src"
MACHINES = {62: "x86_64", 183: "aarch64"}
# Constants of a module of layout.rs: the members that they are.
MEMBERS = {
    "mutex": ("pthread_mutex_t", {"COUNT": "__data.__count", "OWNER": "__data.__owner", "USERS": "__data.__nusers", "KIND": "__data.__kind"}),
    "rwlock": (
        "pthread_rwlock_t",
        {
            "WRITERS": "__data.__writers",
            "PHASE_FUTEX": "__data.__wrphase_futex",
            "WRITERS_FUTEX": "__data.__writers_futex",
            "CURRENT_WRITER": "__data.__cur_writer",
            "FLAGS": "__data.__flags",
        },
    ),
}


def number(text, name):
    return int(re.search(rf"\b{name}: (?:u64 = |usize = |Some\()?(0x[0-9a-f]+|\d+)", text)[1], 0)


def debug(library, machine, debug_files, commands):
    command = ["gdb" if machine == platform.machine() else "gdb-multiarch", "-q", "-nx", "-batch", "-iex", "set debuginfod enabled off"]
    if debug_files:
        command += ["-iex", f"set debug-file-directory {debug_files}"]
    command += [library, *(word for one in commands for word in ("-ex", one))]
    return subprocess.run(command, capture_output=True, text=True).stdout


def numbers(library, machine, debug_files, expressions):
    """Expression -> its number; without those that the library cannot have."""
    scripts = [f'python\ntry: print("{at}", int(gdb.parse_and_eval("{one}")))\nexcept gdb.error: pass\nend' for at, one in enumerate(expressions)]
    found = re.findall(r"^(\d+) (\d+)$", debug(library, machine, debug_files, scripts), re.M)
    return {expressions[int(at)]: int(value) for at, value in found}


def offset(kind, member):
    return f"(long)&(({kind}*)0)->{member}"


def glibc(library, machine, debug_files):
    """What differs, and how much was compared."""
    layout = (SOURCE / "waits/libc/layout.rs").read_text()
    pointer = (SOURCE / f"arch/{machine}/thread_pointer.rs").read_text()
    expected = {"(long)sizeof(pthread_mutex_t)": [number(pointer, "GLIBC_MUTEX_SIZE")]}
    expected[offset("struct pthread", "tid")] = [number(pointer, "glibc_tid")]
    for module, (kind, members) in MEMBERS.items():
        body = re.search(rf"mod {module} \{{(.*?)\n\}}", layout, re.S)[1]
        expected |= {offset(kind, member): [number(body, name)] for name, member in members.items()}
        if "SIZE:" in body:
            expected[f"(long)sizeof({kind})"] = [number(body, "SIZE")]
    rows = [[int(one) for one in row] for row in re.findall(r"\(\[(\d+), \d+\], (\d+), \"glibc", layout)]
    signals, waiters = offset("pthread_cond_t", "__data.__g_signals"), offset("pthread_cond_t", "__data.__wrefs")
    expected[signals] = [row[0] for row in rows]
    join, size = offset("struct pthread", "joinstate"), "(long)sizeof(struct pthread)"
    low, high = (int(one, 0) for one in re.search(r"JOINSTATE_BEHIND_TID: .* = (0x\w+)\.\.(0x\w+)", layout).groups())
    own = numbers(library, machine, debug_files, [*expected, waiters, join, size])
    if size not in own:
        sys.exit(f"{library}: no debug information")
    differ = [f"{one} is {own.get(one)}, the table says {rows}" for one, rows in expected.items() if own.get(one) not in rows]
    if [own[signals], own[waiters]] not in rows:
        differ.append(f"the counts of a condition are at {own[signals]} and {own[waiters]}, together in no row")
    tid = own[offset("struct pthread", "tid")]
    if join in own and not low <= own[join] - tid < high:
        differ.append(f"joinstate is {own[join]}, {own[join] - tid:#x} behind tid")
    if sizes := re.search(r"GLIBC_SIZES: .* = (0x\w+)\.\.(0x\w+)", pointer):
        low, high = (int(one, 0) for one in sizes.groups())
        if not low <= own[size] < high or own[size] % number(pointer, "GLIBC_ALIGNMENT"):
            differ.append(f"struct pthread has {own[size]:#x} bytes")
    return differ, f"{len(expected) + 3} numbers, struct pthread has {own[size]:#x} bytes"


def musl(library, machine):
    """The same by code: gettid() reads the thread's id, and pthread_self() is its description's address."""
    pointer = (SOURCE / f"arch/{machine}/thread_pointer.rs").read_text()
    code = debug(library, machine, None, ["disassemble pthread_self", "disassemble gettid"])
    if machine == "aarch64":
        size = int(re.search(r"sub\s+x0, x0, #(0x\w+)", code)[1], 0)
        tid = size + int(re.search(r"ldur\s+w0, \[x0, #(-\d+)\]", code)[1])
        expected = (number(pointer, "MUSL_SIZE"), number(pointer, "musl_tid"))
    else:
        size, tid = 0, int(re.search(r"mov\s+(0x\w+)\(%rax\),%eax", code)[1], 0)
        expected = (0, number(pointer, "musl_tid"))
    differ = [] if (size, tid) == expected else [f"size and place of the id are {(size, tid)}, the table says {expected}"]
    return differ, f"its description has {size} bytes before the thread pointer, the id at {tid}"


def main():
    wrong = 0
    words = sys.argv[1:]
    debug_files = next((word.partition("=")[2] for word in words if word.startswith("--debug-files=")), None)
    for library in (word for word in words if not word.startswith("--")):
        content = pathlib.Path(library).read_bytes()
        machine = MACHINES[int.from_bytes(content[18:20], "little")]
        version = re.search(rb"GNU C Library [^\n]*?version (2\.\d+)", content)
        is_musl = "musl" in library
        differ, said = musl(library, machine) if is_musl else glibc(library, machine, debug_files)
        for one in differ:
            print(f"{library}: {one}")
        print(f"{library}: {'musl' if is_musl else 'glibc ' + (version[1].decode() if version else '')}: {said}; {len(differ)} differ")
        wrong += len(differ)
    sys.exit(1 if wrong else 0)


main()
