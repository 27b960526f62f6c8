"""Configurations as YAML files: reading with overrides, writing."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rela.config.conversion import from_dict, to_dict
from rela.config.schema import Config
from rela.files import write_text


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
    import yaml

    write_text(path, yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True))


def read_yaml(path: str | Path) -> Any:
    """The values of a YAML file, or a ValueError that names it."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not valid YAML: byte {error.start} is not UTF-8") from None
    return parse_yaml(text, str(path))


def parse_yaml(text: str, where: str) -> Any:
    """The values of YAML text, of which only true and false are truth values: "off" and "no" (Norwegian) are text."""
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = {  # noqa: RUF012 (PyYAML's own table, less its booleans)
            first: [(tag, form) for tag, form in resolvers if not tag.endswith(":bool")]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:bool", re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
    )
    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{where} is not valid YAML: {' '.join(str(error).split())}") from None


def set_nested(values: dict[str, Any], keys: list[str], value: Any) -> None:
    """Set values[a][b]… = value for keys a, b, …, making the mappings on the way."""
    for key in keys[:-1]:
        values = values.setdefault(key, {})
        if not isinstance(values, dict):
            raise ValueError(f"override of {'.'.join(keys)}: {key} is {values!r}, not a section")
    values[keys[-1]] = value
