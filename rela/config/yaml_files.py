"""Configurations as YAML files: reading with overrides, writing."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rela.config.conversion import from_dict, shown, to_dict
from rela.config.schema import Config
from rela.files import write_text

LARGEST_FILE = 1 << 18
"""Bytes of a configuration."""
MOST_VALUES = 20_000
"""Values of a configuration, keys and aliases counted."""

PLAIN = {
    "bool": ("true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": ("[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)", "-+0123456789"),
    "float": (
        r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+0123456789.",
    ),
}
"""Values that need no quotes to be more than text: their form, and what they begin with."""


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """The experiment of a YAML file, after overrides such as "train.steps=500"."""
    values = read_yaml(path)
    values = {} if values is None else values
    if not isinstance(values, dict):
        sections = ", ".join(item.name for item in dataclasses.fields(Config))
        raise ValueError(f"{path} holds a {type(values).__name__}; wanted a mapping with sections {sections}")
    for override in overrides:
        key, separator, value = override.partition("=")
        if not separator or not key:
            raise ValueError(f"override {override!r}; wanted key=value, such as train.steps=500")
        set_nested(values, key.split("."), parse_yaml(value, f"override {override!r}"))
    config: Config = from_dict(Config, values, str(path))
    return config


def save_config(config: Any, path: str | Path) -> None:
    """Write a configuration, whole or not at all, as YAML that `load_config` reads back as an equal value."""
    write_text(path, config_text(config))


def config_text(config: Any) -> str:
    """A configuration as YAML."""
    import yaml

    text: str = yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)
    return text


def read_yaml(path: str | Path) -> Any:
    """The values of a YAML file, or a ValueError that names it."""
    with open(path, "rb") as file:
        content = file.read(LARGEST_FILE + 1)  # no more of what may never end
    if len(content) > LARGEST_FILE:
        raise ValueError(f"{path} is over {LARGEST_FILE >> 10} KiB; wanted a configuration")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not valid YAML: byte {error.start} is not UTF-8") from None
    return parse_yaml(text, str(path))


def parse_yaml(text: str, where: str) -> Any:
    """The values of YAML text. Only true and false are truth values: "off" and "no" (Norwegian) are text.

    So are 010, which YAML 1.1 takes for eight, 1:30, which it takes for ninety, and dates. A key that occurs twice in
    one mapping is an error, and so are aliases that stand for more values than any configuration has, or for
    themselves.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = {  # noqa: RUF012 (PyYAML's own table, less what is in PLAIN and dates)
            first: [(tag, form) for tag, form in resolvers if tag.rpartition(":")[2] not in (*PLAIN, "timestamp")]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    for name, (form, first) in PLAIN.items():
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(f"(?:{form})$"), list(first))
    try:
        loader = Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        count_values(node, {})
        return loader.construct_document(node)
    except RecursionError:
        raise ValueError(f"{where} is not valid YAML: it is nested too deeply") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, OverflowError) as error:
        # PyYAML's own code stumbles over tags on values that are none of theirs, such as !!int on an empty text.
        said = " ".join(str(error).split())
        raise ValueError(f"{where} is not valid YAML: {said[:300] or type(error).__name__}") from None


def count_values(node: Any, counted: dict[int, int]) -> int:
    """How many values a YAML node stands for, aliases written out; a ValueError if too many, or a key occurs twice."""
    if id(node) in counted:
        if not counted[id(node)]:
            raise ValueError(f"line {node.start_mark.line + 1}: an alias that stands for itself")
        return counted[id(node)]
    counted[id(node)] = 0  # not known while its own values are counted
    values = node.value if isinstance(node.value, list) else []
    keys = [item[0] for item in values if isinstance(item, tuple)]
    seen = set()
    for key in keys:
        if isinstance(key.value, str) and (key.tag, key.value) in seen:
            raise ValueError(f"line {key.start_mark.line + 1}: the key {key.value[:80]!r} occurs twice")
        seen.add((key.tag, key.value) if isinstance(key.value, str) else id(key))
    children = [child for item in values for child in (item if isinstance(item, tuple) else (item,))]
    counted[id(node)] = total = 1 + sum(count_values(child, counted) for child in children)
    if total > MOST_VALUES:
        raise ValueError(f"line {node.start_mark.line + 1}: aliases stand for over {MOST_VALUES:,} values")
    return total


def set_nested(values: dict[str, Any], keys: list[str], value: Any) -> None:
    """Set values[a][b]… = value for keys a, b, …, making the mappings on the way."""
    for key in keys[:-1]:
        values = values.setdefault(key, {})
        if not isinstance(values, dict):
            raise ValueError(f"override of {'.'.join(keys)}: {key} is {shown(values)}, not a section")
    values[keys[-1]] = value
