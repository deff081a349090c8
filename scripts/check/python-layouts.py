#!/usr/bin/env python3
"""Checks the tables of src/python/layout.rs against debug information: scripts/check/python-layouts.py [--debug-files=FOLDER] FILE...

Each FILE is a libpython3.X.so (or a static python3.X) with DWARF, as a version manager builds it or a distribution has it below
FOLDER by build id; or an object that was compiled from CPython's headers, where no such build is to be had. It may be of another
machine: mutexes of the C library have another size there. A debugger tells the offsets; a row that differs is printed, and the exit
status is 1. Needs gdb, and gdb-multiarch for other machines. From 3.13 on a build describes most of itself at run time
(_Py_DebugOffsets), and the fixed rest is checked here as well."""
import pathlib
import platform
import re
import subprocess
import sys

LAYOUT = pathlib.Path(__file__).resolve().parent.parent.parent / "src/python/layout.rs"
# Field of Layout or ValueLayout: the structures and members that it may be, in the order in which they came.
FIELDS = {
    "interpreters_head": ["_PyRuntimeState interpreters.head"],
    "finalizing": ["_PyRuntimeState finalizing", "_PyRuntimeState _finalizing"],
    "runtime_gil": ["_PyRuntimeState ceval.gil"],
    "interpreter_gil": ["PyInterpreterState ceval.gil"],
    "interpreter_next": ["PyInterpreterState next"],
    "interpreter_id": ["PyInterpreterState id"],
    "interpreter_threads": ["PyInterpreterState threads.head", "PyInterpreterState tstate_head"],
    "interpreter_modules": ["PyInterpreterState imports.modules", "PyInterpreterState modules"],
    "thread_next": ["PyThreadState next"],
    "thread_interpreter": ["PyThreadState interp"],
    "thread_frame": ["PyThreadState frame"],
    "thread_cframe": ["PyThreadState cframe"],
    "cframe_frame": ["_PyCFrame current_frame"],
    "cframe_previous": ["_PyCFrame previous", "CFrame previous"],
    "thread_ident": ["PyThreadState thread_id"],
    "thread_native_id": ["PyThreadState native_thread_id"],
    "thread_exceptions": ["PyThreadState exc_info"],
    "exception_value": ["_PyErr_StackItem exc_value"],
    "exception_next": ["_PyErr_StackItem previous_item"],
    "frame_code": ["_PyInterpreterFrame f_code", "PyFrameObject f_code"],
    "frame_previous": ["_PyInterpreterFrame previous", "PyFrameObject f_back"],
    "frame_instruction": ["_PyInterpreterFrame prev_instr", "PyFrameObject f_lasti"],
    "frame_owner": ["_PyInterpreterFrame owner"],
    "frame_is_entry": ["_PyInterpreterFrame is_entry"],
    "code_file": ["PyCodeObject co_filename"],
    "code_name": ["PyCodeObject co_name"],
    "code_qualified_name": ["PyCodeObject co_qualname"],
    "code_first_line": ["PyCodeObject co_firstlineno"],
    "code_line_table": ["PyCodeObject co_linetable", "PyCodeObject co_lnotab"],
    "code_instructions": ["PyCodeObject co_code_adaptive", "PyCodeObject co_code"],
    "heap_type_keys": ["PyHeapTypeObject ht_cached_keys"],
    "frame_locals": ["_PyInterpreterFrame localsplus", "PyFrameObject f_localsplus"],
    "frame_globals": ["_PyInterpreterFrame f_globals", "PyFrameObject f_globals"],
    "code_stack_size": ["PyCodeObject co_stacksize"],
    "code_names": ["PyCodeObject co_names"],
    "function_name": ["PyFunctionObject func_name"],
}
# `struct _gil_runtime_state`: members by the names of layout.rs. A build without a GIL has a word more before them.
GIL = {"LAST_HOLDER": "last_holder", "LOCKED": "locked", "SWITCH_NUMBER": "switch_number", "COND": "cond", "MUTEX": "mutex"}
# Pauses of all threads, in builds without a GIL: members of FreeThreaded, and where they are.
STOPS = {
    "runtime_stop": "_PyRuntimeState stoptheworld",
    "interpreter_stop": "PyInterpreterState stoptheworld",
    "thread_state": "PyThreadState state",
    "thread_critical_section": "PyThreadState critical_section",
}
# What the tables of 3.13 and later take from 3.12, since no build describes it: checked in builds of these versions too.
FIXED = ["heap_type_keys", "frame_globals", "code_stack_size", "code_names", "function_name"]


def tables():
    """Constant -> {field: offset or None}, with what it inherits."""
    text = LAYOUT.read_text()
    found = {}
    for name, body in re.findall(r"^const (V3_\d+): Layout =\s+Layout \{(.*?)\};$", text, re.M | re.S):
        base = re.findall(r"\.\.(V3_\d+)\b(?!\.values)", body)
        row = dict(found[base[-1]]) if base else {}
        for field, value in re.findall(r"\b([a-z_]+): (None|Some\(\d+\)|\d+)\b", body):
            number = re.search(r"\d+", value)
            row[field] = int(number[0]) if number else None
        found[name] = row
    return found


def constants(module):
    """Numbers of a module of layout.rs."""
    body = re.search(rf"mod {module} \{{(.*?)\n\}}", LAYOUT.read_text(), re.S)[1]
    return {name: int(value) for name, value in re.findall(r"const ([A-Z_]+): u64 = (\d+);", body)}


def stops(minor):
    """The row of FreeThreaded: of each member the offsets that it may have."""
    body = re.search(rf"\b(?:{minor}|_) => FreeThreaded \{{(.*?)\}}", LAYOUT.read_text(), re.S)[1]
    rows = re.findall(r"(\w+): (?:&\[([\d, ]+)\]|(\d+))", body)
    return {name: [int(value) for value in (several or one).split(",")] for name, several, one in rows}


def ask(library, expressions, debug_files):
    """Expression -> its number in this build; without those that it cannot have."""
    with open(library, "rb") as file:
        machine = int.from_bytes(file.read(20)[18:], "little")
    is_native = machine == {"x86_64": 62, "aarch64": 183}[platform.machine()]
    command = ["gdb" if is_native else "gdb-multiarch", "-q", "-nx", "-batch", "-iex", "set debuginfod enabled off"]
    if debug_files:
        command += ["-iex", f"set debug-file-directory {debug_files}"]
    command.append(library)
    for number, expression in enumerate(expressions):
        command += ["-ex", f'python\ntry: print("{number}", int(gdb.parse_and_eval("{expression}")))\nexcept gdb.error: pass\nend']
    found = {}
    for line in subprocess.run(command, capture_output=True, text=True).stdout.splitlines():
        number, _, value = line.partition(" ")
        if number.isdigit() and value.lstrip("-").isdigit():
            found[expressions[int(number)]] = int(value)
    return found


def offset(place):
    structure, member = place.rsplit(" ", 1)
    return f"(long)&(({structure}*)0)->{member}"


def size(kind):
    return f"(long)sizeof({kind})"


def offsets(library, debug_files):
    """Field -> offset in this build, the members of the GIL and of pauses among them; None where it has no such member."""
    gil = {name: f"struct _gil_runtime_state {member}" for name, member in [*GIL.items(), ("switch_cond", "switch_cond")]}
    places = {field: [offset(place) for place in places] for field, places in FIELDS.items()}
    places |= {field: [offset(place)] for field, place in (gil | STOPS).items()}
    places |= {"mutex": [size("pthread_mutex_t")], "object": [size("PyObject")], "gil": [size("struct _gil_runtime_state")]}
    told = ask(library, [one for several in places.values() for one in several], debug_files)
    found = {field: next((told[one] for one in several if one in told), None) for field, several in places.items()}
    return {field: value for field, value in found.items() if value is not None}


def expected(minor, own):
    """Field -> the offsets that the tables allow for this version, on the machine whose mutexes have this size."""
    known = tables()
    has_gil = own.get("object", 16) == 16
    more = own.get("object", 16) - 16
    table = known.get(f"V3_{minor}", known["V3_12"] if minor > 12 else None)
    if table is None:
        sys.exit(f"no table for 3.{minor}")
    rows = {field: [table[field]] for field in (FIXED if minor > 12 else FIELDS) if table.get(field) is not None}
    if minor > 12:
        newer = re.search(r"heap_type_keys: if version.1 >= 15 \{ (\d+) \} else \{ (\d+) \} \+ more", LAYOUT.read_text())
        rows["heap_type_keys"] = [int(newer[1] if minor >= 15 else newer[2])]
        for field in rows.keys() - {"frame_globals"}:
            rows[field] = [value + more for value in rows[field]]
    gil, stop = constants("gil"), constants("stop")
    after = 0 if has_gil else gil["AFTER_ENABLED"]
    rows |= {name: [gil[name] + after] for name in GIL}
    rows["switch_cond"] = [gil["MUTEX"] + own["mutex"] + after]
    # Both of `switch_cond` and `switch_mutex`, as src/waits/cpython/gil.rs counts them.
    rows["gil"] = [gil["MUTEX"] + 2 * own["mutex"] + 48 + after]
    if not has_gil:
        rows |= stops(minor)
        longer = stop["MUTEXES_BEFORE"] * (own["mutex"] - stop["MUTEX"])
        rows["interpreter_stop"] = [value + longer for value in rows["interpreter_stop"]]
    return rows


def main():
    wrong = 0
    words = sys.argv[1:]
    debug_files = next((word.partition("=")[2] for word in words if word.startswith("--debug-files=")), None)
    for library in (word for word in words if not word.startswith("--")):
        minor = int(re.search(r"python3\.(\d+)", library)[1])
        own = offsets(library, debug_files)
        if "mutex" not in own:
            sys.exit(f"{library}: no debug information")
        rows = expected(minor, own)
        differ = [field for field in rows if field in own and own[field] not in rows[field]]
        missing = [field for field in rows if field not in own]
        for field in differ:
            print(f"{library}: {field} is {own[field]}, the table says {' or '.join(map(str, rows[field]))}")
        # Members of structures that this version no longer reaches its frames through.
        print(f"{library}: {len(rows) - len(differ) - len(missing)} fields checked, {len(differ)} differ, not in it: {missing}")
        wrong += len(differ)
    sys.exit(1 if wrong else 0)


main()
