"""Tests mirror the package: rela/x/y.py is tested by tests/x/test_y.py, or by a neighbour that is named here."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
PACKAGES = ("rela", "benchmarks", "examples", "experiments", "scripts")

SUITES = {
    "documents": "the pages under docs/ and CONTRIBUTING.md",
    "system": "whole programs",
    "test_layers.py": "who may import whom",
    "test_stems.py": "this file",
    "test_annotations.py": "annotations of every function",
    "test_formatting.py": "the layout of every file",
    "test_init.py": "rela/__init__.py",
    "attention/test_compile_export.py": "torch.compile, torch.export and autocast of every kind",
    "attention/test_extremes.py": "extreme scores and sizes, of every kind",
    "attention/test_copies.py": "copies and pickles of every kind",
    "attention/test_hugging_face_architectures.py": "ten Hugging Face architectures, with all that is done to a model",
    "attention/test_hugging_face_families.py": "causality and softmax of every family of Hugging Face models",
    "attention/test_hugging_face_training.py": "Trainer, LoRA, torch.compile and offloading of exchanged models",
    "attention/test_null_attention.py": "rows without a key, of every kind",
    "commands/test_explore.py": "rela explore, which serves until it is interrupted",
    "server/test_dockerfile.py": "Dockerfile and .dockerignore",
    "server/test_load.py": "the server under load, with clients that disconnect; benchmarks/server.py measures it",
    "server/test_openapi.py": "requests made from the server's own description",
    "explorer/test_browser.py": "the scripts under rela/explorer/static",
    "kernels/attention/test_gpu.py": "kernels on a GPU",
    "kernels/attention/test_packed.py": "packed sequences through every kernel of the folder",
    "kernels/attention/test_saved_tensors.py": "saved tensors that a hook lays out anew, in every backward pass",
    "kernels/hopper/test_compile_ahead.py": "the Hopper kernels compiled without a GPU",
    "kernels/hopper/test_emulation.py": "the Hopper kernels' code run in plain Python",
    "kernels/hopper/test_gpu.py": "the Hopper kernels on a GPU",
    "kernels/test_repeats.py": "the same call of each fused operation a hundred times",
    "training/test_elastic.py": "training on two nodes, one of them killed",
    "training/test_fused_path.py": "training on a GPU",
    "training/test_interruption.py": "training through the command line, killed and resumed",
}
"""Folders and files of tests that go across modules, and of what."""

COVERED = {
    "tests/toy/test_constructions.py": [
        "rela/toy/complex_sentences.py",
        "rela/toy/coordination.py",
        "rela/toy/moments.py",
        "rela/toy/particles.py",
        "rela/toy/questions.py",
        "rela/toy/relative_clauses.py",
        "rela/toy/selection.py",
        "rela/toy/simple_sentences.py",
        "rela/toy/verb_groups.py",
    ],
    "tests/hugging_face/test_pipeline.py": ["rela/hugging_face/registration.py", "rela/hugging_face/auto.py"],
    "tests/hugging_face/test_model.py": ["rela/hugging_face/layers.py", "rela/hugging_face/configuration.py"],
    "tests/attention/test_checks.py": ["rela/attention/module_checks.py"],
    "tests/test_cli.py": ["rela/errors.py", "rela/commands/options.py"],
    "tests/kernels/hopper/test_gpu.py": [
        "rela/kernels/hopper/backward.py",
        "rela/kernels/hopper/backward_kernel.py",
        "rela/kernels/hopper/backward_loads.py",
        "rela/kernels/hopper/backward_products.py",
        "rela/kernels/hopper/decode.py",
        "rela/kernels/hopper/dispatch.py",
        "rela/kernels/hopper/dropout.py",
        "rela/kernels/hopper/forward.py",
        "rela/kernels/hopper/forward_kernel.py",
        "rela/kernels/hopper/forward_loads.py",
        "rela/kernels/hopper/forward_products.py",
        "rela/kernels/hopper/mask.py",
        "rela/kernels/hopper/memory.py",
        "rela/kernels/hopper/statistics.py",
        "rela/kernels/hopper/tile_operations.py",
        "rela/kernels/hopper/wide_backward_kernel.py",
        "rela/kernels/hopper/wide_backward_products.py",
    ],
    "tests/report/test_write.py": [
        "rela/report/head_pictures.py",
        "rela/report/page.py",
        "rela/report/pictures.py",
        "rela/report/results.py",
        "rela/report/rows.py",
    ],
    "tests/web/test_request_limiter.py": ["rela/web/refused.py"],
    "tests/server/test_app.py": ["rela/server/api.py", "rela/server/limits.py", "rela/server/schemas.py"],
    "tests/server/test_libretranslate.py": ["rela/server/texts.py"],
    "tests/server/test_openapi.py": ["rela/server/refusals.py"],
    "tests/server/test_models.py": ["rela/server/languages.py"],
    "tests/explorer/test_server.py": ["rela/web/replies.py"],
    "tests/export/test_write.py": [
        "rela/commands/export.py",
        "rela/export/graphs.py",
        "rela/export/onnx_translator.py",
    ],
    "tests/cluster/test_ray_data.py": ["rela/commands/ray_jobs.py"],
    "tests/filtering/test_filter.py": ["rela/filtering/outputs.py"],
    "tests/commands/test_check.py": ["rela/commands/filtering.py"],
    "tests/commands/test_look.py": ["rela/commands/pictures.py"],
    "tests/commands/test_translate.py": ["rela/commands/search_options.py", "rela/commands/translated_lines.py"],
    "tests/training/test_trainer.py": [
        "rela/training/checks.py",
        "rela/training/resume.py",
        "rela/training/validation.py",
    ],
    "tests/markup/test_documents.py": [
        "rela/markup/entities.py",
        "rela/markup/gettext_files.py",
        "rela/markup/html_files.py",
        "rela/markup/markdown_files.py",
        "rela/markup/markdown_inline.py",
        "rela/markup/plain_files.py",
        "rela/markup/subtitles.py",
        "rela/markup/tokens.py",
        "rela/markup/translate.py",
        "rela/markup/xml_files.py",
    ],
    "tests/markup/test_place.py": ["rela/markup/passages.py"],
    "tests/markup/test_glossary.py": ["rela/markup/rebuild.py"],
    "tests/decoding/engines/test_choose.py": ["rela/decoding/engines/engine.py"],
    "tests/decoding/engines/test_gpu_search.py": [
        "rela/decoding/engines/cuda_graphs.py",
        "rela/decoding/engines/gpu_buffers.py",
        "rela/decoding/engines/gpu_network.py",
        "rela/kernels/early_launch.py",
    ],
}
"""Modules without a test file of their own, by the file that tests them through what they are part of."""


def has_code(path: Path) -> bool:
    """Whether a module defines a function or a class of its own; by its text, as parsing them all takes seconds."""
    return re.search(r"^(def|async def|class) ", path.read_text(encoding="utf-8"), re.MULTILINE) is not None


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


MODULES = sorted(
    relative(path)
    for path in (ROOT / "rela").rglob("*.py")
    if path.stem not in ("__init__", "__main__") and has_code(path)
)
TEST_FILES = sorted(relative(path) for path in TESTS.rglob("test_*.py"))


def own_test(module: str) -> str:
    path = Path(module)
    return f"tests/{path.parent.relative_to('rela')}/test_{path.name}".replace("/./", "/")


def is_suite(test: str) -> bool:
    inside = test.removeprefix("tests/")
    return any(inside == suite or inside.startswith(f"{suite}/") for suite in SUITES)


def modules_of(test: str) -> list[str]:
    """The modules, in any package of the checkout, whose stem the test file has."""
    inside = Path(test.removeprefix("tests/"))
    name = inside.name.removeprefix("test_")
    of_rela = ROOT / "rela" / inside.parent / name
    of_checkout = ROOT / inside.parent / name if inside.parts[0] in PACKAGES else of_rela
    return [relative(path) for path in {of_rela, of_checkout} if path.is_file()]


@cache
def imported_by(path: Path) -> set[str]:
    """The modules of `rela` and the test helpers that a file names in an import, at any depth of it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            if name.split(".")[0] in ("rela", "tests"):
                file = ROOT / f"{name.replace('.', '/')}.py"
                package = ROOT / name.replace(".", "/") / "__init__.py"
                found |= {relative(target) for target in (file, package) if target.is_file()}
    return found


def reached_from(test: str) -> set[str]:
    """All that a test file imports, and what that imports."""
    reached, waiting = set(), [test]
    while waiting:
        new = imported_by(ROOT / waiting.pop()) - reached
        reached |= new
        waiting.extend(new)
    return reached


@pytest.mark.parametrize("test", TEST_FILES)
def test_every_test_file_has_its_module(test: str):
    assert is_suite(test) or modules_of(test), f"{test}: no module of this stem, and not among SUITES"


@pytest.mark.parametrize("module", MODULES)
def test_every_module_has_its_tests(module: str):
    neighbours = [test for test, modules in COVERED.items() if module in modules]
    assert (ROOT / own_test(module)).is_file() or neighbours, f"{module}: wanted {own_test(module)}"


@pytest.mark.parametrize("test", COVERED)
def test_a_neighbour_reaches_what_it_is_said_to_cover(test: str):
    assert (ROOT / test).is_file()
    reached = reached_from(test)
    for module in COVERED[test]:
        assert (ROOT / module).is_file(), f"{module} is gone; take it out of COVERED"
        assert module in reached, f"{test} does not reach {module}"


def test_suites_are_there():
    assert all((TESTS / suite).exists() for suite in SUITES)
