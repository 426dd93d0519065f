"""Annotations: which values become dataclasses, and the signature that both sides compare.

A dataclass travels as a dictionary of its fields. The receiver makes an object of it where its own
annotations say so: no name of a class travels, and none is looked up.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional, Union

from . import _native
from .errors import BadArguments

Converter = Callable[[Any], Any]
_UNIONS: tuple[Any, ...] = (Union,)
if sys.version_info >= (3, 10):
    import types

    _UNIONS = (Union, types.UnionType)


_UNKNOWN = object()


def hints(function: Callable[..., Any], owner: type) -> dict[str, Any]:
    """The annotations of a function, evaluated. What cannot be evaluated is left out."""
    space = {**vars(typing), **vars(sys.modules.get(owner.__module__, typing))}
    space[owner.__name__] = owner
    space.update(getattr(function, "__globals__", {}))
    raw = getattr(function, "__annotations__", {})
    found = {name: _evaluated(hint, space) for name, hint in raw.items()}
    return {name: hint for name, hint in found.items() if hint is not _UNKNOWN}


def _evaluated(hint: Any, space: dict[str, Any]) -> Any:
    if not isinstance(hint, str):
        return type(None) if hint is None else hint
    # `X | None` in Python 3.9, which has no such operator for types.
    parts = _top_level(hint)
    if len(parts) > 1:
        kinds = tuple(_evaluated(part.strip(), space) for part in parts)
        return _UNKNOWN if _UNKNOWN in kinds else Union[kinds]
    try:
        value = eval(hint, space)  # The program's own text, as `typing.get_type_hints` does.
    except Exception:
        return _UNKNOWN
    return type(None) if value is None else value


def _top_level(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in "[(") - (char in "])")
        if char == "|" and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def describe(hint: Any, seen: tuple[type, ...] = ()) -> str:
    """A type in words that do not depend on the version of Python, for the signature."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated if hasattr(typing, "Annotated") else False:
        return describe(arguments[0], seen)
    if origin in _UNIONS:
        return "|".join(sorted({describe(argument, seen) for argument in arguments}))
    if hint in (None, type(None)):
        return "None"
    if hint in (Any, typing.TypeVar, object):
        return "any"
    base = origin or hint
    if not isinstance(base, type):
        return "any"
    if base in (bytes, bytearray):
        return "bytes"
    if base in (_native.Bulk, _native.Remote) or hasattr(base, "__petasos_lent__"):
        return "bulk"
    if base in (_native.Array, _native.Loan) or hasattr(base, "__petasos_array__"):
        return "loan"
    if base is memoryview or base.__module__.split(".")[0] in ("numpy", "torch", "array"):
        return "array"
    if issubclass(base, enum.Enum) and issubclass(base, (int, str)):
        return "int" if issubclass(base, int) else "str"
    if dataclasses.is_dataclass(base):
        if base in seen:
            return base.__name__
        fields = _fields(base)
        named = ",".join(f"{name}:{describe(h, (*seen, base))}" for name, h in fields.items())
        return f"{base.__name__}{{{named}}}"
    inner = [describe(argument, seen) for argument in arguments if argument is not Ellipsis]
    if issubclass(base, Mapping):
        return f"dict[{','.join(inner)}]" if inner else "dict"
    if base not in (str, bytes) and issubclass(base, Sequence):
        return f"list[{','.join(inner)}]" if inner else "list"
    return base.__name__


def _fields(kind: type) -> dict[str, Any]:
    space = {**vars(typing), **vars(sys.modules.get(kind.__module__, typing))}
    space[kind.__name__] = kind
    return {field.name: _evaluated(field.type, space) for field in dataclasses.fields(kind)}


def converter(hint: Any, seen: Optional[dict[type, Converter]] = None) -> Optional[Converter]:
    """What makes the annotated type of what was decoded; ``None`` if nothing has to be done."""
    seen = {} if seen is None else seen
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in _UNIONS:
        kinds = [argument for argument in arguments if argument is not type(None)]
        if len(kinds) != 1:
            return None  # Which of them it is, the value does not say.
        one = converter(kinds[0], seen)
        return one and (lambda value: None if value is None else one(value))
    base = origin or hint
    if not isinstance(base, type):
        return None
    if dataclasses.is_dataclass(base):
        return _dataclass(base, seen)
    if issubclass(base, enum.Enum):
        return base
    if base is tuple:
        inners = [None if a is Ellipsis else converter(a, seen) for a in arguments]
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            first = inners[0]
            return tuple if first is None else (lambda value: tuple(map(first, value)))
        if not any(inners):
            return tuple
        return lambda value: tuple(c(v) if c else v for c, v in zip(inners, value))
    if base in (set, frozenset, bytearray):
        return base
    if issubclass(base, Mapping) and len(arguments) == 2:
        of = converter(arguments[1], seen)
        return of and (lambda value: {key: of(item) for key, item in value.items()})
    if base is not str and issubclass(base, Sequence) and len(arguments) == 1:
        each = converter(arguments[0], seen)
        return each and (lambda value: [each(item) for item in value])
    return None


def _dataclass(kind: type, seen: dict[type, Converter]) -> Converter:
    if kind in seen:
        return seen[kind]
    inner: dict[str, Optional[Converter]] = {}

    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            raise BadArguments(f"{kind.__name__} is made of its fields, not of {type(value)}")
        unknown = value.keys() - inner.keys()
        if unknown:
            raise BadArguments(f"{kind.__name__} has no field {sorted(map(str, unknown))}")
        made = {k: c(v) if (c := inner[k]) else v for k, v in value.items()}
        try:
            return kind(**made)
        except TypeError as error:
            raise BadArguments(str(error)) from None

    seen[kind] = convert
    fields = {field.name: field.init for field in dataclasses.fields(kind)}
    hinted = _fields(kind)
    inner.update({name: converter(hinted[name], seen) for name, init in fields.items() if init})
    return convert
