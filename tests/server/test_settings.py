"""Settings that could not work are refused, and the command's defaults are those of the settings."""

import inspect

import pytest

from rela.commands.serve import serve
from rela.server.settings import ServerSettings


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch": 0},
        {"latency_ms": -1},
        {"latency_ms": float("nan")},
        {"queue": 10},
        {"concurrency": 0},
        {"max_body": 0},
        {"timeout": 0},
        {"read_timeout": float("inf")},
        {"grace": -1},
        {"precision": "int4"},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is .*; wanted"):
        ServerSettings(**wrong)


def test_the_explorer_and_keys_exclude_each_other():
    with pytest.raises(ValueError, match="--no-explorer"):
        ServerSettings(api_keys=frozenset({"one"}))


def test_the_command_s_defaults_are_those_of_the_settings():
    options, settings = inspect.signature(serve).parameters, ServerSettings()
    for name in ("batch", "latency_ms", "queue", "concurrency", "max_body", "max_texts", "max_characters", "max_beam"):
        assert options[name].default == getattr(settings, name), name
    for name in ("timeout", "read_timeout", "grace", "precision"):
        assert options[name].default == getattr(settings, name), name
