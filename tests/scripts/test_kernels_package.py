"""The package for the kernels hub loads beside `rela` under another name, and computes the same."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

import rela
from scripts.kernels_package import VARIANT, relative, write


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("package") / "rela-attention"
    write(out)
    write(out)  # a package is replaced
    return out


@pytest.fixture(scope="module")
def loaded(folder: Path) -> Iterator[ModuleType]:
    """As `kernels` imports it: under its id, from a file."""
    name = json.loads((folder / VARIANT / "metadata.json").read_text())["id"]
    spec = importlib.util.spec_from_file_location(name, folder / VARIANT / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    yield module
    for key in [key for key in sys.modules if key.split(".")[0] == name]:
        del sys.modules[key]


def inputs() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(2, 3, 17, 16, generator=generator) for _ in range(3)]


def test_the_public_names_compute_what_rela_computes(loaded: ModuleType):
    assert sorted(loaded.__all__) == sorted(rela.attention.__all__)
    q, k, v = inputs()
    assert torch.equal(loaded.attend(q, k, v, causal=True), rela.attend(q, k, v, causal=True))
    module = loaded.MultiheadAttention(16, 2, kind="rela-g", batch_first=True)
    assert type(module).__module__.startswith(loaded.__name__)
    other = rela.MultiheadAttention(16, 2, kind="rela-g", batch_first=True)
    other.load_state_dict(module.state_dict())
    x = torch.randn(2, 5, 16)
    assert torch.equal(module(x, x, x)[0], other(x, x, x)[0])


def test_its_operators_are_its_own(loaded: ModuleType):
    """Under the interpreter: registered a second time, in another namespace, with the same answers."""
    pytest.importorskip("triton")
    from rela.kernels.attention.functional import relu_attention

    own = importlib.import_module(f"{loaded.__name__}.kernels.attention.functional").relu_attention
    q, k, v = inputs()
    torch.testing.assert_close(own(q, k, v, scale=0.25, causal=True), relu_attention(q, k, v, scale=0.25, causal=True))
    assert dir(getattr(torch.ops, loaded.__name__))


def test_kernels_loads_it(folder: Path):
    kernels = pytest.importorskip("kernels")
    q, k, v = inputs()
    assert torch.equal(kernels.get_local_kernel(folder).attend(q, k, v), rela.attend(q, k, v))


def test_imports_become_relative_at_every_depth():
    assert relative("a/b.py", "from rela.x.y import z\n") == "from ..x.y import z\n"
    assert relative("b.py", "def f():\n    from rela import x\n") == "def f():\n    from . import x\n"
    assert relative("a/b/c.py", "import rela.x.y  # why\n") == "from ...x import y as _y  # why\n"
    with pytest.raises(ValueError, match="imports several modules"):
        relative("a/b.py", "import rela.x, rela.y\n")


def test_another_folder_is_not_replaced(tmp_path: Path):
    (tmp_path / "mine").write_text("text")
    with pytest.raises(ValueError, match="is there and is no package of kernels"):
        write(tmp_path)
