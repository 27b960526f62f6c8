"""Processes of one run, and one run for each directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from rela.training.processes import alone_in
from rela.training.trainer import train


def test_two_runs_do_not_share_a_directory(make_config):
    config = make_config()
    with alone_in(Path(config.train.directory)), pytest.raises(ValueError, match="another run is training in"):
        train(config, quiet=True)
    assert list(Path(config.train.directory).iterdir()) == []
    train(config, quiet=True)
