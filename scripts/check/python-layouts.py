#!/usr/bin/env python3
"""Checks the tables of src/python/layout.rs against the debug information of builds: scripts/check/python-layouts.py LIBPYTHON...

Each LIBPYTHON is a libpython3.X.so (or a static python3.X) with DWARF, as a version manager builds it. gdb tells the offsets;
a row that differs is printed, and the exit status is 1. Needs gdb. From 3.13 on a build describes most of itself at run time
(_Py_DebugOffsets), and the fixed rest is checked here as well."""
import pathlib
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


def offsets(library):
    """Field -> offset in this build; None where its structures have no such member."""
    script = []
    for field, places in FIELDS.items():
        for structure, member in (place.split() for place in places):
            expression = f"(long)&(({structure}*)0)->{member}"
            script += ["-ex", f'python\ntry: print("{field}", int(gdb.parse_and_eval("{expression}")))\nexcept gdb.error: pass\nend']
    output = subprocess.run(["gdb", "-q", "-nx", "-batch", library, *script], capture_output=True, text=True).stdout
    found = {}
    for line in output.splitlines():
        words = line.split()
        if len(words) == 2 and words[0] in FIELDS and words[0] not in found:
            found[words[0]] = int(words[1])
    return found


def main():
    wrong = 0
    known = tables()
    for library in sys.argv[1:]:
        minor = int(re.search(r"python3\.(\d+)", library)[1])
        table = known.get(f"V3_{minor}", known["V3_12"] if minor > 12 else None)
        own = offsets(library)
        if table is None or not own:
            sys.exit(f"{library}: no table for 3.{minor}" if own else f"{library}: no debug information")
        fields = FIXED if minor > 12 else FIELDS
        differ = [field for field in fields if field in own and table.get(field) is not None and table[field] != own[field]]
        missing = [field for field in fields if field not in own and table.get(field) is not None]
        for field in differ:
            print(f"{library}: {field} is {own[field]}, the table says {table[field]}")
        # Members of structures that this version no longer reaches its frames through.
        print(f"{library}: {len(fields) - len(differ) - len(missing)} fields checked, {len(differ)} differ, not in it: {missing}")
        wrong += len(differ)
    sys.exit(1 if wrong else 0)


main()
