"""A checkpoint is written beside training: of what there was at its step, one at a time, and no error is lost."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
import torch

from rela.model.folder import save_folder
from rela.training import trainer as trainer_module
from rela.training.checkpoint import CheckpointError, Checkpoints
from rela.training.trainer import train
from rela.training.watchdog import Watchdog
from rela.training.writer import BackgroundWriter, host_copy
from tests.training.training_files import checkpoint, events, final_bytes, leftovers, with_train

LONG = 60.0
"""Seconds after which a test that waits has failed."""


@pytest.fixture
def held_back(monkeypatch):
    """Checkpoints are written only after the step that follows theirs; the steps at which one was begun."""
    begun, gone_on = [], threading.Event()
    save, check = Checkpoints.save, Watchdog.check

    def late_save(self, progress, *rest):
        begun.append(progress["step"])
        if progress["step"] < 12:
            assert gone_on.wait(LONG), "training waited for its checkpoint"
            gone_on.clear()
        return save(self, progress, *rest)

    def note(self, step, nll):  # after each step, for log_every is 1
        if begun and step > begun[-1]:
            gone_on.set()
        check(self, step, nll)

    monkeypatch.setattr(Checkpoints, "save", late_save)
    monkeypatch.setattr(Watchdog, "check", note)
    return begun


def test_training_goes_on_while_a_checkpoint_is_written_and_changes_nothing_in_it(make_config, request):
    straight = make_config("straight", keep_last=5)
    train(straight, quiet=True)
    begun = request.getfixturevalue("held_back")
    late = make_config("late", keep_last=5)
    train(late, quiet=True)
    assert begun == [4, 8, 12]
    assert final_bytes(late) == final_bytes(straight)
    for step in begun:
        weights = [(checkpoint(config, step) / "model.safetensors").read_bytes() for config in (straight, late)]
        assert weights[0] == weights[1], step
    optimisers = [(checkpoint(config, 8) / "optimiser.safetensors").read_bytes() for config in (straight, late)]
    assert optimisers[0] == optimisers[1]


@pytest.mark.parametrize("failing", [8, 12])
def test_what_could_not_be_written_ends_the_run_at_the_next_checkpoint_or_at_its_end(make_config, monkeypatch, failing):
    save = Checkpoints.save

    def full(self, progress, *rest):
        if progress["step"] == failing:
            raise CheckpointError(f"step {failing} could not be written")
        return save(self, progress, *rest)

    config = make_config(keep_last=5)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", full)
        with pytest.raises(CheckpointError, match=f"step {failing} could not be written"):
            train(config, quiet=True)
    assert events(config)[-1]["step"] == 12  # where 12 was to be saved
    assert Checkpoints(Path(config.train.directory) / "checkpoints", 5).latest() == checkpoint(config, failing - 4)
    assert not (Path(config.train.directory) / "model").exists()
    assert not leftovers(config)
    train(config, quiet=True)
    straight = make_config("straight", keep_last=5)
    train(straight, quiet=True)
    assert final_bytes(config) == final_bytes(straight)


def test_the_best_model_that_could_not_be_written_ends_the_run(make_config, monkeypatch):
    def full(path, *rest):
        if Path(path).name == "best":
            raise OSError("no room for the best model")
        save_folder(path, *rest)

    monkeypatch.setattr(trainer_module, "save_folder", full)
    with pytest.raises(OSError, match="no room for the best model"):
        train(make_config(validate_every=4), quiet=True)


def test_a_run_that_fails_leaves_the_checkpoint_whole_that_it_was_writing(make_config, held_back, monkeypatch):
    check = Watchdog.check

    def fail(self, step, nll):
        check(self, step, nll)
        if step == 6:
            raise RuntimeError("training has failed")

    monkeypatch.setattr(Watchdog, "check", fail)
    config = make_config()
    with pytest.raises(RuntimeError, match="training has failed"):
        train(config, quiet=True)
    assert Checkpoints(Path(config.train.directory) / "checkpoints", 5).latest() == checkpoint(config, 4)
    assert not leftovers(config)
    assert train(with_train(config, steps=4), quiet=True).is_dir()


def test_a_run_that_fails_says_also_what_could_not_be_written(make_config, monkeypatch):
    def full(self, progress, *rest):
        raise CheckpointError("no room for a checkpoint")

    def fail(self, step, nll):
        if step == 6:
            raise RuntimeError("training has failed")

    monkeypatch.setattr(Checkpoints, "save", full)
    monkeypatch.setattr(Watchdog, "check", fail)
    with (
        pytest.warns(UserWarning, match="no room for a checkpoint"),
        pytest.raises(RuntimeError, match="training has failed"),
    ):
        train(make_config(), quiet=True)


def test_two_signals_while_the_last_checkpoint_is_written_leave_it_whole(make_config, monkeypatch):
    save = Checkpoints.save

    def interrupted(self, progress, *rest):
        for _ in range(2 if progress["step"] == 12 else 0):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)  # until the first has been seen, and a run that does not wait has ended
        return save(self, progress, *rest)

    config = make_config()
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(config, quiet=True)
    assert checkpoint(config, 12).is_dir()
    assert not leftovers(config)
    assert train(config, quiet=True).is_dir()


@pytest.mark.parametrize("kind", [ZeroDivisionError, BaseException])  # extensions in Rust panic with the second
def test_an_error_is_told_once_and_the_writer_works_again(kind):
    def fail():
        raise kind

    writer, written = BackgroundWriter(), []
    assert writer.wait() is None
    writer.start(fail)
    assert isinstance(writer.wait(), kind)
    assert writer.wait() is None
    writer.start(lambda: written.append(1))
    with pytest.raises(RuntimeError, match="was not waited for"):
        writer.start(lambda: written.append(2))
    assert writer.wait() is None
    assert written == [1]


def test_ctrl_c_while_waiting_leaves_the_writing_to_be_waited_for():
    """Any number of times, as fast as it can come."""
    writer, written, interrupted, over = BackgroundWriter(), [], 0, threading.Event()

    def write():
        for _ in range(5000):
            if not over.is_set():
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.00001)
        written.append(1)

    def interrupt(number, frame):
        while frame is not None:
            if frame.f_code is BackgroundWriter.wait.__code__:
                raise KeyboardInterrupt
            frame = frame.f_back

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        writer.start(write)
        while not written:
            try:
                assert writer.wait() is None
                assert written == [1]
            except KeyboardInterrupt:
                interrupted += 1
    finally:
        over.set()
        signal.signal(signal.SIGINT, before)
    assert interrupted > 10


def test_a_host_copy_shares_no_memory():
    tensors = {"a": torch.arange(5.0, requires_grad=True), "b": torch.zeros(())}
    copies = host_copy(tensors)
    with torch.no_grad():
        tensors["a"] += 1
        tensors["b"] += 1
    assert copies["a"].tolist() == [0, 1, 2, 3, 4]
    assert copies["b"].item() == 0
    assert not copies["a"].requires_grad
