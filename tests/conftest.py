"""What holds for every test: Triton's interpreter where there is no GPU, and no test that depends on the clock."""

import os
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch

from tests.interpreter import make_interpreter_fast

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton
    make_interpreter_fast()

try:
    from hypothesis import settings
except ImportError:  # a machine for the GPU tests alone
    pass
else:
    # The same cases in every run; `--hypothesis-profile=explore` draws new ones. A busy machine is no error.
    settings.register_profile("rela", deadline=None, derandomize=True)
    settings.register_profile("explore", deadline=None)
    settings.load_profile("rela")


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple]]:
    """Run a command of `rela` in this process: (exit code, stdout, stderr)."""
    from rela.cli import main

    monkeypatch.delenv("RELA_TRACEBACK", raising=False)

    def run(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        warnings.simplefilter("default")
        with pytest.raises(SystemExit) as caught:
            main([str(argument) for argument in arguments])
        output, errors = capfd.readouterr()
        return int(caught.value.code or 0), output, errors

    with warnings.catch_warnings():  # main has its own way to show them
        yield run


@pytest.fixture
def fails(call: Callable[..., tuple]) -> Callable[..., None]:
    """Run a command of `rela` that must fail: exit code 2, one line on stderr that names what was wrong."""

    def run(*arguments: object, named: str) -> None:
        code, _, errors = call(*arguments)
        assert code == 2, errors
        assert errors.startswith("rela: error: "), errors
        assert len(errors.splitlines()) == 1, errors
        assert named in errors

    return run


LONGEST = (
    "tests/system/",
    "tests/decoding/engines/test_gpu_search.py",
    "tests/test_demo.py",
    "tests/training/",
)


def pytest_configure(config: pytest.Config) -> None:
    """On a GPU a warning is no error: other versions of torch and its compiler are used there."""
    if torch.cuda.is_available():
        config.addinivalue_line("filterwarnings", "default")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that no process is left alone with one of them at the end."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))
