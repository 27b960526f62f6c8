"""The Dockerfile copies what is there, installs what the package asks for, and starts a command that is understood."""

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import typer

from rela.cli import app

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def instructions():
    """(name, rest) of each instruction, continued lines joined, comments left out."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]


def of(instructions, name):
    return [rest for found, rest in instructions if found == name]


def test_every_source_of_a_copy_exists_and_reaches_the_builder(instructions):
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [word for rest in of(instructions, "COPY") for word in rest.split()[:-1] if not word.startswith("--")]
    assert copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert source in allowed, f"{source} is left out by .dockerignore"
    assert allowed == set(copied)


def test_what_is_needed_to_build_the_package_is_copied(instructions):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    copied = " ".join(of(instructions, "COPY"))
    assert all(name in copied for name in (project["readme"], *project["license-files"], "pyproject.toml", "rela"))
    run = " ".join(of(instructions, "RUN"))
    extras = re.search(r'pip install "\.\[([\w,]+)\]"', run)[1].split(",")
    assert set(extras) <= project["optional-dependencies"].keys()
    assert {"mt", "serve"} <= set(extras)
    assert next(need for need in project["dependencies"] if need.startswith("torch")) in run


def test_the_commands_that_are_run_are_in_the_image(instructions):
    """Its base is Debian with Python: pip, and what Debian always has."""
    commands = [part for rest in of(instructions, "RUN") for part in rest.split("&&")]
    assert {shlex.split(command)[0] for command in commands} <= {"pip", "rm", "useradd"}


def test_the_entry_point_is_a_command_with_known_options(instructions):
    program, name, *options = json.loads(of(instructions, "ENTRYPOINT")[0])
    assert program == "rela"
    known = {opt for parameter in typer.main.get_command(app).commands[name].params for opt in parameter.opts}
    assert {option for option in options if option.startswith("--")} <= known
    assert of(instructions, "EXPOSE") == [options[options.index("--port") + 1]]


def test_the_health_check_is_valid_python(instructions):
    _, command = of(instructions, "HEALTHCHECK")[0].split("CMD", 1)
    python, flag, code = json.loads(command)
    assert (python, flag) == ("python", "-c")
    compile(code, "health", "exec")
    assert "/health" in code


def test_the_server_does_not_run_as_root(instructions):
    names = [name for name, _ in instructions]
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert of(instructions, "USER") != ["root"]
    assert shlex.split(of(instructions, "FROM")[0])[0].startswith("python:3.")
