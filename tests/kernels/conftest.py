"""Unwritten memory shows: torch.empty gives NaN in every test of this folder."""

import pytest
import torch


@pytest.fixture(autouse=True)
def poisoned_memory(monkeypatch):
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True, warn_only=True)
    # poison alone: whether a kernel is deterministic stays with the argument of each test
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: False)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def memory_as_it_is(poisoned_memory, monkeypatch):
    """Undoes the poison, for tests that trace or capture and so may not touch global state."""
    monkeypatch.undo()
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def calls(monkeypatch):
    """The names of the Hopper kernels that ran."""
    pytest.importorskip("triton")
    from rela.attention import plans
    from rela.kernels.attention import problem
    from rela.kernels.hopper import dispatch as hopper

    names = []
    plan_forward = hopper.planned_forward

    def planned_forward(*arguments):
        run = plan_forward(*arguments)

        def noted(*tensors):
            names.append("forward")
            return run(*tensors)

        return noted

    monkeypatch.setattr(hopper, "planned_forward", planned_forward)
    monkeypatch.setattr(plans, "PLANS", {})  # earlier plans call what they were made of
    monkeypatch.setattr(problem, "MEMOS", {})
    for name in ("backward", "decode_parts"):
        original = getattr(hopper, name)

        def noted(*arguments, name=name, original=original):
            names.append(name)
            return original(*arguments)

        monkeypatch.setattr(hopper, name, noted)
    return names
