"""The package as users get it: built as sdist and wheel, installed elsewhere, with each extra or without.

`make package` runs all of it. `make test` leaves out what is marked campaign: a process for each extra, and mypy.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import yaml

import rela
from tests.tiny_models import tiny_translator, toy_pairs

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


def run(command: list[str | Path], **options) -> subprocess.CompletedProcess[str]:
    """Run a program without what this process inherited for finding the checkout."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    environment |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "0"}
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, env=environment, timeout=300, **options
    )


def build(kind: str, source: Path, out: Path) -> Path:
    """A built sdist or wheel of the project in `source`."""
    done = run([sys.executable, "-c", BUILD, f"build_{kind}", out], cwd=source)
    assert done.returncode == 0, done.stderr
    return out / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from what a build reads of the checkout, without leaving anything in it."""
    source, out = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("sdist")
    for name in ("rela", "LICENSE", "README.md", "pyproject.toml"):
        (source / name).symlink_to(ROOT / name)
    return build("sdist", source, out)


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist alone."""
    source, out = tmp_path_factory.mktemp("unpacked"), tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(source, filter="data")
    (folder,) = source.iterdir()
    return build("wheel", folder, out)


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment with the wheel in it; other packages are those of this environment."""
    folder = tmp_path_factory.mktemp("environment")
    done = run([sys.executable, "-m", "venv", "--without-pip", folder])
    assert done.returncode == 0, done.stderr
    found = folder / "bin" / "python"
    (site,) = (folder / "lib").glob("python3*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    install = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index", wheel]
    done = run([sys.executable, "-m", "pip", "--python", found, *install])
    assert done.returncode == 0, done.stderr
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and a few sentence pairs."""
    folder = tmp_path_factory.mktemp("work")
    tiny_translator().save(folder / "model")
    for side, name in enumerate(("test.en", "test.de")):
        (folder / name).write_text("".join(f"{pair[side]}\n" for pair in toy_pairs(3)), encoding="utf-8")
    return folder


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "rela").rglob("*.py")}
    static = {path.relative_to(ROOT).as_posix() for path in (ROOT / "rela/explorer/static").iterdir()}
    assert modules | static | {"rela/py.typed"} == {name for name in names if ".dist-info/" not in name}


def test_the_wheel_says_what_it_needs(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith("METADATA"))
    said = Parser().parsestr(archive.read(name).decode())
    assert said["Name"] == "rela-attention"
    assert set(said.get_all("Provides-Extra", [])) == set(EXTRAS)
    assert [line for line in said.get_all("Requires-Dist", []) if "extra ==" not in line] == [
        "torch<2.14,>=2.11",
        "entmax>=1.3",
    ]
    assert "MIT" in (said["License-Expression"] or "")


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == rela.__version__
    assert citation["preferred-citation"]["title"] == "Sparse Attention with Linear Units"
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()


def test_the_installed_package_is_imported(python: Path, folder: Path) -> None:
    done = run([python, "-c", "import rela; print(rela.__file__, rela.__version__)"], cwd=folder)
    assert str(python.parents[1]) in done.stdout, done.stderr
    assert run([python.parent / "rela", "--version"], cwd=folder).stdout == f"rela {rela.__version__}\n"


MISSING = [
    ("matplotlib", "plots", ["plot", "overview", "model", "test.en", "test.de", "--out", "x.png"]),
    ("fastapi", "explore", ["explore", "model"]),
    ("uvicorn", "explore", ["explore", "model"]),
    ("prometheus_client", "serve", ["serve", "model"]),
    ("transformers", "hf", ["convert", "model", "--to", "hf", "--out", "x"]),
    ("onnxruntime", "export", ["export", "model", "--to", "onnx", "--out", "x"]),
    ("ray", "ray", ["translate", "model", "test.en", "--on", "ray", "--out", "x"]),
    ("mtdata", "datasets", ["data", "get", "mtdata:a", "--out", "x"]),
    ("comet", "comet", ["evaluate", "test.de", "test.de", "--comet", "test.en"]),
    ("sentencepiece", "mt", ["translate", "model", "test.en"]),
    ("yaml", "mt", ["translate", "model", "test.en"]),
    ("safetensors", "mt", ["info", "model"]),
]
"""A module that is not there, the extra that brings it, and a command that needs it."""


@pytest.mark.parametrize(("module", "extra", "command"), MISSING)
def test_a_missing_extra_is_named_in_one_line(module, extra, command, folder, monkeypatch, fails) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, module, None)
    for name in [name for name in sys.modules if name.startswith(f"{module}.")]:
        monkeypatch.setitem(sys.modules, name, None)
    fails(*command, named=f"pip install 'rela-attention[{extra}]'")


def test_loading_a_model_without_the_toolkit_names_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(ImportError, match=r"needs sentencepiece: pip install 'rela-attention\[mt\]'"):
        rela.load(folder / "model", device="cpu")


ONLY = '''
import importlib.metadata as metadata
import sys
from importlib.machinery import PathFinder
from packaging.requirements import Requirement

def closure(name, extras):
    """The distributions that pip would install."""
    seen, waiting = set(), [(name, frozenset(extras))]
    while waiting:
        name, extras = waiting.pop()
        key = name.lower().replace("_", "-").replace(".", "-")
        if (key, extras) in seen:
            continue
        seen.add((key, extras))
        try:
            lines = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            sys.exit(f"{name} is not installed")
        for line in map(Requirement, lines):
            if line.marker is None or any(line.marker.evaluate({"extra": extra}) for extra in ["", *extras]):
                waiting.append((line.name, frozenset(line.extras)))
    return {key for key, _ in seen}

wanted = closure("rela-attention", [extra for extra in sys.argv[1].split(",") if extra])
HIDDEN = {
    module
    for module, owners in metadata.packages_distributions().items()
    if not any(owner.lower().replace("_", "-").replace(".", "-") in wanted for owner in owners)
} - {"rela", "_distutils_hack"}

found_before = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name.partition(".")[0] in HIDDEN else found_before(name, *rest)
for name in [name for name in sys.modules if name.partition(".")[0] in HIDDEN]:
    del sys.modules[name]

def call(*arguments):
    from rela.cli import main
    try:
        main(list(arguments))
    except SystemExit as end:
        assert not end.code, f"{arguments} ended with {end.code}"
'''
"""Hides every package that pip would not install with the extras of the first argument."""

USES = {
    "": """
import torch, rela
x = torch.ones(2, 3, 8)
for kind in rela.PRESETS:
    rela.MultiheadAttention(8, 2, kind=kind, batch_first=True)(x, x, x)[0].sum().backward()
rela.replace_attention(torch.nn.Transformer(8, 2, 1, 1, 16), kind="rela-g")
try:
    import rela.cli
except SystemExit as end:
    assert end.code == 2
else:
    raise AssertionError("a command line without typer")
""",
    "mt": """
call("translate", "model", "test.en", "--out", "mt.de")
call("evaluate", "mt.de", "test.de")
assert "torch._dynamo" not in sys.modules, "a translation need not wait for PyTorch's compiler"
""",
    "mt,plots": 'call("plot", "overview", "model", "test.en", "test.de", "--out", "overview.png")',
    "mt,explore": "import rela.explorer.server",
    "mt,serve": "import rela.server.app",
    "mt,tensorboard": "from torch.utils.tensorboard import SummaryWriter; SummaryWriter('board').close()",
    "mt,hf": 'call("convert", "model", "--to", "hf", "--out", "hf")',
    "mt,export": 'call("export", "model", "--to", "onnx", "--out", "onnx")',
    "mt,ray": "import pyarrow.parquet; import rela.commands.ray_jobs",
    "all": 'call("translate", "model", "test.en", "--out", "all.de"); import rela.server.app',
}
"""What must work with these extras and no other package."""


@pytest.mark.campaign
@pytest.mark.parametrize("extras", USES)
def test_an_extra_is_enough_for_what_it_is_for(extras: str, python: Path, folder: Path) -> None:
    done = run([python, "-c", f"{ONLY}\n{USES[extras]}", extras], cwd=folder)
    if "is not installed" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr[-3000:]


USER = """
from pathlib import Path

import torch

import rela


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = rela.MultiheadAttention(64, 4, kind="rela-g", batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        context: torch.Tensor = self.attention(x, x, x)[0]
        return x + context


def sparsity(q: torch.Tensor, k: torch.Tensor) -> float:
    return float(rela.sparsity_rate(rela.attention_weights(q, k, kind="relu")).mean())


def translate(folder: Path, lines: list[str]) -> list[str]:
    return rela.load(folder, device="cpu").translate(lines)


def exchange(model: torch.nn.Module) -> str:
    return str(rela.replace_attention(model, kind=rela.Kind("relu", "gated-rms")))
"""
WRONG = """
rela.attend(1, 2, 3)
rela.MultiheadAttention(64, "4")
rela.no_such_name
"""


@pytest.mark.campaign
def test_type_hints_serve_a_user(python: Path, tmp_path: Path) -> None:
    """A user's file passes mypy --strict against the installed package, and mistakes in it are found."""
    (tmp_path / "user.py").write_text(USER, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(USER + WRONG, encoding="utf-8")
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "--cache-dir", tmp_path / "cache"]
    done = run([*mypy, "user.py"], cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    done = run([*mypy, "wrong.py"], cwd=tmp_path)
    assert {line.partition(" error: ")[2].rpartition("[")[2] for line in done.stdout.splitlines()[:-1]} >= {
        "arg-type]",
        "attr-defined]",
    }, done.stdout
