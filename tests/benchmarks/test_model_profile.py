"""The profile of a Hugging Face model rehearsed on the CPU: both sides are timed and listed."""

from __future__ import annotations

import sys

import pytest

from benchmarks import model_profile


def test_a_profile_lists_the_operators_of_both_sides(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["model_profile", "--models", "vit", "--rehearse", "--calls", "1", "--turns", "2", "--lines", "40"]
    monkeypatch.setattr(sys, "argv", command)
    model_profile.main()
    printed = capsys.readouterr().out
    timed, ours, theirs = printed.partition("our attention: host")[0], *printed.split(": host, µs")[1:]
    assert "# vit, training step" in timed
    assert [line.split()[0] for line in timed.splitlines() if line.endswith("µs")] == ["host", "eager", "kernels"]
    assert "scaled_dot_product" not in ours
    assert "scaled_dot_product" in theirs


def test_an_unknown_model_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["model_profile", "--models", "lama", "--rehearse"])
    with pytest.raises(SystemExit):
        model_profile.main()
    assert "no model is called lama; there are llama, bert" in capsys.readouterr().err
