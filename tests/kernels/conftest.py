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
