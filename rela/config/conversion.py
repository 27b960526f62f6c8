"""Dataclasses from plain values and back: dicts, lists, numbers and text, as YAML and JSON hold them."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

TYPE_NAMES: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    types.NoneType: "nothing",
}

LONGEST_SHOWN = 200


def to_dict(config: Any) -> dict[str, Any]:
    """A dataclass as plain dicts, lists and numbers, as YAML and JSON take them."""
    values: dict[str, Any] = plain(dataclasses.asdict(config))
    return values


def key_of(name: str) -> str:
    """The key of a field: its name, less the underscore that tells `from_` from a word of Python."""
    return name.removesuffix("_")


def plain(value: Any) -> Any:
    """The value with lists for tuples, and keys for names of fields, at every depth."""
    if isinstance(value, dict):
        return {key_of(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def from_dict(cls: type, values: Any, where: str) -> Any:
    """The dataclass `cls` with the given plain values; `where` names the place in every error."""
    if not isinstance(values, dict):
        raise ValueError(f"{where} is {shown(values)}; wanted a mapping with keys of {cls.__name__}")
    fields = dataclasses.fields(cls)
    known = {key_of(item.name): item.name for item in fields}
    if unknown := sorted(str(key) for key in values.keys() - known.keys()):
        names = ", ".join(sorted(known))
        named = ", ".join(unknown)[:LONGEST_SHOWN]
        raise ValueError(f"{where}: {cls.__name__} has no field {named}; it has {names}")
    required = [item.name for item in fields if item.default is item.default_factory is dataclasses.MISSING]
    if missing := [name for name in required if name not in values]:
        raise ValueError(f"{where}: {cls.__name__} needs {', '.join(missing)}")
    hints = typing.get_type_hints(cls)
    built = {known[key]: convert(hints[known[key]], value, f"{where}: {key}") for key, value in values.items()}
    try:
        return cls(**built)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def convert(wanted: Any, value: Any, where: str) -> Any:
    """The value as the annotated type, or a ValueError; numbers widen, nothing else is guessed."""
    origin = typing.get_origin(wanted)
    if origin in (typing.Union, types.UnionType):
        return convert_union(typing.get_args(wanted), value, where)
    if dataclasses.is_dataclass(wanted):
        return from_dict(typing.cast(type, wanted), value, where)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"{where} is {shown(value)}; wanted a list")
        of = typing.get_args(wanted)[0]
        return tuple(convert(of, item, f"{where}[{index}]") for index, item in enumerate(value))
    if wanted is float:
        value = widen(value, where)
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        raise ValueError(f"{where} is {shown(value)}; wanted {type_in_words(wanted)}")
    if wanted is int and not -(2**63) <= value < 2**63:  # what PyTorch, NumPy and SentencePiece can be given
        raise ValueError(f"{where} is {shown(value)}; wanted a whole number of 64 bits")
    return value


def convert_union(options: tuple[Any, ...], value: Any, where: str) -> Any:
    """The value as the first of several types that takes it."""
    for option in options:
        if dataclasses.is_dataclass(option) and isinstance(value, dict):
            return convert(option, value, where)  # its own error names the field that is wrong
    for option in options:
        try:
            return convert(option, value, where)
        except ValueError:
            continue
    names = " or ".join(type_in_words(option) for option in options)
    raise ValueError(f"{where} is {shown(value)}; wanted {names}")


def widen(value: Any, where: str) -> Any:
    """A whole number as a float, and text as the float it spells, because YAML reads 1e-9 as text."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            raise ValueError(f"{where} is {shown(value)}; wanted a number") from None
    try:
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
    except OverflowError:
        raise ValueError(f"{where} is {shown(value)}; wanted a number below 1e308") from None


def shown(value: Any) -> str:
    """A value as an error message shows it, in a line."""
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def type_in_words(wanted: Any) -> str:
    """A type in words for an error message."""
    if dataclasses.is_dataclass(wanted):
        return f"a mapping of {', '.join(key_of(field.name) for field in dataclasses.fields(wanted))}"
    name: str = getattr(wanted, "__name__", str(wanted))
    return TYPE_NAMES.get(wanted, name)
