"""Frozen dataclasses of plain values as JSON, and back, by their annotations."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import types
import typing
from functools import cache
from typing import Any, TypeVar

_Spec = TypeVar("_Spec")


def to_json(spec: Any) -> str:
    """The dataclass as text that `from_json` reads."""
    return json.dumps(dataclasses.asdict(spec), sort_keys=True, separators=(",", ":"))


def from_json(kind: type[_Spec], text: str) -> _Spec:
    """The dataclass of that kind that `to_json` wrote."""
    return read(kind, json.loads(text))


def read(kind: type[_Spec], raw: Any) -> _Spec:
    """The dataclass of that kind whose JSON was read already."""
    found: _Spec = _read(kind, raw)
    return found


def digest(value: object) -> str:
    """A short text that differs where the value differs."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def _fields(kind: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {item.name: hints[item.name] for item in dataclasses.fields(kind)}


def _read(kind: Any, raw: Any) -> Any:
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        wanted = _fields(kind)
        return kind(**{name: _read(wanted[name], value) for name, value in raw.items()})
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(raw)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType or origin is typing.Union:
        if raw is None:
            return None
        chosen = [one for one in inner if one is not type(None)]
        return _read(chosen[0], raw) if len(chosen) == 1 else raw
    if origin is tuple:
        if len(inner) == 2 and inner[1] is Ellipsis:
            return tuple(_read(inner[0], item) for item in raw)
        return tuple(_read(one, item) for one, item in zip(inner, raw, strict=True))
    return raw
