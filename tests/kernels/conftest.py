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

    def noting(name, function):
        def noted(*arguments):
            names.append(name)
            return function(*arguments)

        return noted

    def noting_plan(name, plan):
        return lambda *arguments: noting(name, plan(*arguments))

    monkeypatch.setattr(plans, "PLANS", {})  # earlier plans call what they were made of
    monkeypatch.setattr(problem, "MEMOS", {})
    monkeypatch.setattr(hopper, "planned_forward", noting_plan("forward", hopper.planned_forward))
    monkeypatch.setattr(hopper, "planned_decode_parts", noting_plan("decode", hopper.planned_decode_parts))
    monkeypatch.setattr(hopper, "backward", noting("backward", hopper.backward))
    return names
