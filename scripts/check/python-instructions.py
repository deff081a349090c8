#!/usr/bin/env python3
"""Print the rows of src/python/instructions.rs for the Pythons of the arguments, or compare them with `--check`.

    scripts/check/python-instructions.py [--check] PYTHON...

Each PYTHON is an interpreter whose own modules `opcode` and `dis` give its numbers, what the specialising interpreter puts in
their place, and how many units of cache follow an instruction.
"""

import json
import pathlib
import subprocess
import sys

TABLE = pathlib.Path(__file__).parents[2] / "src/python/instructions.rs"

# Runs in each interpreter: number, cache and name of each instruction; a specialised one has the name of the one that it replaces.
ASK = r"""
import dis, json, opcode, sys
caches = getattr(opcode, "_inline_cache_entries", [0] * 256)
def cache(name):
    return caches.get(name, 0) if hasattr(caches, "get") else caches[opcode.opmap[name]] if caches else 0
jumps = set(getattr(dis, "hasjump", [])) | set(dis.hasjrel) | set(dis.hasjabs)
way = lambda number, name: None if number not in jumps else (
    "Absolute" if number in dis.hasjabs else "Backward" if "BACKWARD" in name or name == "END_ASYNC_FOR" else "Forward")
rows = [(number, name, cache(name), way(number, name)) for name, number in opcode.opmap.items() if number < 256]
base = {one: name for name, all in getattr(opcode, "_specializations", {}).items() for one in all}
for name, number in getattr(dis, "_all_opmap", {}).items():
    if name in base and number < 256:
        rows.append((number, base[name], cache(base[name]), way(opcode.opmap[base[name]], base[name])))
if sys.version_info >= (3, 11):
    rows.append((0, "CACHE", 0, None))
print(json.dumps([sys.version_info[:2], sorted(set(rows), key=str)]))
"""

# The instructions whose effect `python::retries` knows, what stores under a name, and what ends a function.
MEANING = {
    "NOP": "Nothing", "RESUME": "Nothing", "PRECALL": "Nothing", "NOT_TAKEN": "Nothing", "KW_NAMES": "Names",
    "PUSH_NULL": "Unused", "LOAD_SMALL_INT": "SmallNumber", "LOAD_COMMON_CONSTANT": "Unused",
    "EXTENDED_ARG": "Extended",
    "LOAD_FAST": "LoadFast", "LOAD_FAST_CHECK": "LoadFast", "LOAD_FAST_LOAD_FAST": "LoadTwoFast",
    "LOAD_FAST_BORROW": "LoadFast", "LOAD_FAST_BORROW_LOAD_FAST_BORROW": "LoadTwoFast",
    "LOAD_CONST": "LoadConst", "LOAD_GLOBAL": "LoadGlobal", "LOAD_NAME": "LoadName", "LOAD_DEREF": "LoadCell",
    "LOAD_ATTR": "LoadAttribute", "LOAD_METHOD": "LoadMethod",
    "STORE_NAME": "StoreName", "STORE_GLOBAL": "StoreName", "STORE_FAST": "StoreFast", "DELETE_FAST": "DeleteFast",
    "STORE_FAST_STORE_FAST": "StoreTwoFast", "STORE_FAST_LOAD_FAST": "StoreAndLoadFast",
    "POP_TOP": "Pop", "POP_ITER": "Pop", "DUP_TOP": "Duplicate", "COPY": "PushCopy", "SWAP": "Swap",
    "ROT_TWO": "Rotate(2)", "ROT_THREE": "Rotate(3)", "ROT_FOUR": "Rotate(4)",
    "UNARY_NOT": "Not", "TO_BOOL": "ToBool", "IS_OP": "Is", "COMPARE_OP": "Compare",
    "BUILD_TUPLE": "Make", "BUILD_LIST": "Make", "UNPACK_SEQUENCE": "Unpack",
    "BINARY_SUBSCR": "Subscript", "BINARY_OP": "Binary",
    "GET_ITER": "Iterate", "FOR_ITER": "ForIter({way})", "END_FOR": "EndFor",
    "CALL_METHOD": "Call { callee: 2, names: 0 }", "CALL": "Call { callee: 2, names: 0 }",
    "CALL_FUNCTION": "Call { callee: 1, names: 0 }", "CALL_FUNCTION_KW": "Call { callee: 1, names: 1 }",
    "CALL_KW": "Call { callee: 2, names: 1 }",
    "JUMP_FORWARD": "Jump(Forward)", "JUMP_ABSOLUTE": "Jump(Absolute)",
    "JUMP_BACKWARD": "Jump(Backward)", "JUMP_BACKWARD_NO_INTERRUPT": "Jump(Backward)",
    "SETUP_FINALLY": "SetupFinally", "POP_BLOCK": "PopBlock", "POP_EXCEPT": "PopExcept",
    "BEGIN_FINALLY": "BeginFinally", "END_FINALLY": "EndFinally", "CALL_FINALLY": "CallFinally",
    "PUSH_EXC_INFO": "PushException", "CHECK_EXC_MATCH": "MatchException",
    "JUMP_IF_NOT_EXC_MATCH": "JumpIfNoMatch",
    "ENTER_EXECUTOR": "Compiled",
    "RETURN_VALUE": "Return", "RETURN_CONST": "ReturnConstant", "RAISE_VARARGS": "End", "RERAISE": "End",
}
for when, word in {"TRUE": "True", "FALSE": "False", "NONE": "Nothing", "NOT_NONE": "Something"}.items():
    MEANING[f"POP_JUMP_IF_{when}"] = f"JumpIf(When::{word}, {{way}})"
    MEANING[f"POP_JUMP_FORWARD_IF_{when}"] = f"JumpIf(When::{word}, Forward)"
    MEANING[f"POP_JUMP_BACKWARD_IF_{when}"] = f"JumpIf(When::{word}, Backward)"
    MEANING[f"JUMP_IF_{when}_OR_POP"] = f"JumpIfOr(When::{word}, {{way}})"


def rows(python):
    version, all_rows = json.loads(subprocess.check_output([python, "-c", ASK]))
    way = "Absolute" if version < [3, 11] else "Forward"
    found = {}
    for number, name, cache, jumps in all_rows:
        known = name in MEANING
        # All jump forward, but those with an absolute target.
        of_jump = "Forward" if name == "FOR_ITER" else way
        meaning = MEANING[name].replace("{way}", of_jump) if known else None
        other = f"Branch({jumps})" if jumps else "Other"
        if known or cache or jumps:
            found.setdefault((meaning if known else other, cache), []).append(number)
    lines = [f"    ({meaning}, {cache}, &{sorted(numbers)})," for (meaning, cache), numbers in sorted(found.items())]
    name = f"V{version[0]}_{version[1]}"
    return f"const {name}: &[Row] = &[\n" + "\n".join(lines) + "\n];\n"


def plain(text):
    """The same however rustfmt breaks the lines."""
    return "".join(text.split()).replace(",)", ")").replace(",]", "]")


def main():
    arguments = sys.argv[1:]
    check = "--check" in arguments
    text = TABLE.read_text() if check else ""
    wrong = 0
    for python in (one for one in arguments if one != "--check"):
        made = rows(python)
        if not check:
            print(made)
        elif plain(made) not in plain(text):
            wrong += 1
            print(f"{TABLE}: the rows of {python} are others:\n{made}")
    sys.exit(1 if wrong else 0)


main()
