"""Dataclasses from JSON: each field by its type; what a newer program says beside these is passed over."""

from __future__ import annotations

import dataclasses
import keyword
import typing
from typing import Any, TypeVar

T = TypeVar("T")


def decode(kind: type[T], value: dict[str, Any]) -> T:
    """An object of a dataclass."""
    types = _types(kind)
    # A word of Python's own has an underscore as a name.
    parts = {f"{name}_" if keyword.iskeyword(name) else name: part for name, part in value.items()}
    return kind(**{name: _decoded(types[name], part) for name, part in parts.items() if name in types})


_KNOWN: dict[type, dict[str, Any]] = {}


def _types(kind: type) -> dict[str, Any]:
    if kind not in _KNOWN:
        _KNOWN[kind] = typing.get_type_hints(kind)
    return _KNOWN[kind]


def _decoded(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    arguments = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if origin is typing.Union:
        return _decoded(next(one for one in arguments if one is not type(None)), value)
    if origin is list:
        return [_decoded(arguments[0], one) for one in value]
    if dataclasses.is_dataclass(kind):
        return decode(typing.cast(type, kind), value)
    return value
