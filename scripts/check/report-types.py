#!/usr/bin/env python3
"""Writes the Python package's types of the report from the program's own schema.

lockscope schema | scripts/check/report-types.py > scripts/ship/pypi/python/lockscope/report.py

A test compares the file with what this writes. Each type of the schema becomes a dataclass, or names for its words; no field of one
release is lost in the next, so what a newer program says beside these is passed over.
"""

from __future__ import annotations

import json
import keyword
import sys
import textwrap
from typing import Any

WIDTH = 120
HEAD = '''"""The report of lockscope as Python objects: version {version} of its JSON.

Written by scripts/check/report-types.py from `lockscope schema`; not by hand.
"""

from dataclasses import dataclass, field
from typing import Any, Dict, List, Literal, Optional

__all__ = [{names}]
'''
PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}


def main() -> None:
    schema = json.load(sys.stdin)
    types = dict(schema["$defs"])
    types["Report"] = {key: schema[key] for key in ("type", "properties", "required")}
    types["Report"]["description"] = "What lockscope says of processes."
    order: list[str] = []
    for name in types:
        visit(name, types, order)
    names = "".join(f'\n    "{name}",' for name in sorted(types)) + "\n"
    parts = [HEAD.format(version=schema["version"], names=names)]
    parts += [words(name, types[name]) if is_words(types[name]) else record(name, types[name], types) for name in order]
    print("\n".join(parts), end="")


def visit(name: str, types: dict[str, Any], order: list[str]) -> None:
    """Types before those that are made of them."""
    if name in order:
        return
    for other in references(types[name]):
        if other != name:
            visit(other, types, order)
    if name not in order:
        order.append(name)


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"].rsplit("/", 1)[1]] if "$ref" in value else []
        return own + [name for part in value.values() for name in references(part)]
    if isinstance(value, list):
        return [name for part in value for name in references(part)]
    return []


def is_words(schema: dict[str, Any]) -> bool:
    return all("const" in one for one in schema.get("oneOf", [{}])) or "enum" in schema


def sentence(text: str, prefix: str) -> list[str]:
    joined = " ".join(text.split()).replace("\\", "")
    lines = textwrap.wrap(joined, WIDTH - len(prefix), break_long_words=False)
    return [f"{prefix}{line}" for line in lines]


def words(name: str, schema: dict[str, Any]) -> str:
    consts = schema.get("enum") or [one["const"] for one in schema["oneOf"]]
    lines = [""] + sentence(schema.get("description", ""), "#: ")
    listed = ", ".join(f'"{one}"' for one in consts)
    line = f"{name} = Literal[{listed}]"
    if len(line) > WIDTH:
        line = f"{name} = Literal[\n" + "".join(f'    "{one}",\n' for one in consts) + "]"
    return "\n".join([*lines, line]) + "\n"


def record(name: str, schema: dict[str, Any], types: dict[str, Any]) -> str:
    properties, required = dict(schema.get("properties", {})), set(schema.get("required", []))
    variants = schema.get("oneOf", [])
    if variants:
        # One of several shapes, which `kind` tells apart.
        kinds = [one["properties"]["kind"]["const"] for one in variants]
        properties["kind"] = {"enum": kinds, "description": "Which one it is."}
        required = {"kind"}
        for one in variants:
            for key, value in one["properties"].items():
                if key != "kind":
                    properties.setdefault(key, {"type": [value["type"], "null"], "description": "What or whose."})
    lines = ["", "@dataclass(frozen=True)", f"class {name}:"]
    text = " ".join(schema.get("description", name).split())
    lines += textwrap.wrap(f'"""{text}"""', WIDTH, initial_indent="    ", subsequent_indent="    ")
    fields = sorted(properties.items(), key=lambda item: item[0] not in required)
    for key, value in fields:
        lines += [""] + sentence(value.get("description", ""), "    #: ")
        kind, value = annotation(value), default(value, key in required)
        if value == " = None" and not kind.startswith(("Optional", "Any")):
            kind = f"Optional[{kind}]"
        # A word of Python's own gets an underscore, which the reader takes off.
        name = f"{key}_" if keyword.iskeyword(key) else key
        lines.append(f"    {name}: {kind}{value}")
    return "\n".join(lines) + "\n"


def annotation(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rsplit("/", 1)[1])
    if "enum" in schema:
        return "Literal[" + ", ".join(f'"{one}"' for one in schema["enum"]) + "]"
    if "anyOf" in schema:
        parts = [one for one in schema["anyOf"] if one.get("type") != "null"]
        return f"Optional[{annotation(parts[0])}]" if len(parts) == 1 else "Any"
    kind = schema.get("type")
    if isinstance(kind, list):
        rest = [one for one in kind if one != "null"]
        return f"Optional[{annotation({**schema, 'type': rest[0]})}]"
    if kind == "array":
        if "prefixItems" in schema:
            return f"List[{annotation(schema['prefixItems'][0])}]"
        return f"List[{annotation(schema.get('items', {}))}]"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"Dict[str, {annotation(values if isinstance(values, dict) else {})}]"
    return PLAIN.get(str(kind), "Any")


def default(schema: dict[str, Any], is_required: bool) -> str:
    if is_required:
        return ""
    kind = annotation(schema)
    if kind.startswith("List["):
        return " = field(default_factory=list)"
    if kind.startswith("Dict["):
        return " = field(default_factory=dict)"
    value = schema.get("default")
    if "$ref" in schema and isinstance(value, dict):
        return f" = field(default_factory=lambda: {kind}(**{value!r}))"
    return f" = {json.dumps(value) if isinstance(value, str) else repr(value)}"


if __name__ == "__main__":
    main()
