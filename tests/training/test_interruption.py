"""Through the command line: killed, asked to stop, out of disk, on two processes; the model is the same in the end."""

from __future__ import annotations

import resource
import signal
import time
import warnings
from pathlib import Path

import pytest
import torch

from rela.cli import main
from rela.config import Config
from rela.decoding.translate import Translator
from rela.model.folder import load_weights
from rela.training.checkpoint import CheckpointError, Checkpoints
from rela.training.trainer import train
from tests.forking import Forked
from tests.training.training_files import checkpoint, events, final_bytes, leftovers, with_train

STEPS = {"steps": 120, "save_every": 5, "log_every": 10, "validate_every": 20, "average_last": 3}


@pytest.fixture(scope="module")
def straight() -> dict[str, bytes]:
    """The bytes of a run that was never interrupted; the first test that needs them fills it."""
    return {}


def wait_for(path: Path, process: Forked) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.002)


def with_one_thread(config: Config) -> None:
    """As in the command lines beside it: another number of threads sums in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        train(config, quiet=True)
    finally:
        torch.set_num_threads(before)


def uninterrupted(straight: dict, make_config) -> dict[str, bytes]:
    if not straight:
        config = make_config("straight", **STEPS)
        with_one_thread(config)
        straight.update(final_bytes(config))
    return straight


def test_killed_twice_in_the_middle_and_resumed_gives_the_same_weights_bit_for_bit(make_config, command, run, straight):
    wanted = uninterrupted(straight, make_config)
    config = make_config("killed", **STEPS)
    for step in (15, 60):
        process = Forked(command(config)[3:])
        wait_for(checkpoint(config, step), process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert not (Path(config.train.directory) / "model").exists()
    result = run(config)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.strip() == str(Path(config.train.directory) / "model")
    assert final_bytes(config) == wanted
    assert not leftovers(config)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop_a_run_saves_says_so_and_can_be_resumed(make_config, command, run, straight, number):
    wanted = uninterrupted(straight, make_config)
    config = make_config("stopped", **{**STEPS, "save_every": 100})
    process = Forked(command(config)[3:])
    log = Path(config.train.directory) / "log.jsonl"
    wait_for(log, process)
    while len(log.read_text().splitlines()) < 2:
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    process.send_signal(number)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert (output, errors) == ("", "rela: interrupted; the same command goes on from the last checkpoint\n")
    saved = Checkpoints(Path(config.train.directory) / "checkpoints", 5).latest()
    assert saved is not None
    assert saved.name not in ("step-0000100", "step-0000120"), "it was saved where it stopped, not where it was due"
    finished = with_train(config, save_every=STEPS["save_every"])
    assert run(finished).returncode == 0
    files = final_bytes(finished)
    assert files["checkpoints/step-0000120/model.safetensors"] == wanted["checkpoints/step-0000120/model.safetensors"]
    assert (
        files["checkpoints/step-0000120/optimiser.safetensors"]
        == wanted["checkpoints/step-0000120/optimiser.safetensors"]
    )


@pytest.mark.parametrize("validate_every", [0, 6])
def test_a_full_disk_is_one_line_and_the_old_checkpoint_survives(make_config, run, validate_every):
    """No file may grow beyond 20 kB, which the log keeps to and the weights do not."""
    config = make_config(steps=4)
    train(config, quiet=True)
    before = final_bytes(config)

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    result = run(with_train(config, steps=8, validate_every=validate_every), preexec_fn=small_files)
    assert result.returncode == 2
    assert result.stderr.startswith("rela: error: ")
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert "could not be written" in result.stderr
    if not validate_every:
        assert "the last whole one is step-0000004" in result.stderr
    assert final_bytes(config) == before
    assert not leftovers(config)
    train(with_train(config, steps=8), quiet=True)
    assert events(config)[-1]["step"] == 8


def test_two_processes_are_one_with_accumulation(make_config, run):
    """Same batches, same dropout, same loss; then the one process goes on with what the two began."""
    options = {"steps": 10, "save_every": 10, "validate_every": 10, "average_last": 1, "model_dropout": 0.2}
    alone, pair = make_config("alone", accumulate=2, **options), make_config("pair", **options)
    train(alone, quiet=True)
    result = run(pair, processes=2)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str(Path(pair.train.directory) / "model"), "one process speaks"
    for event in ("train", "valid"):
        one, two = events(alone, event), events(pair, event)
        assert [row["step"] for row in one] == [row["step"] for row in two]
        for field in ("loss", "nll"):
            assert [row[field] for row in two] == pytest.approx([row[field] for row in one], abs=1e-5)
    weights = [load_weights(checkpoint(config, 10) / "model.safetensors") for config in (alone, pair)]
    for name, tensor in weights[0].items():
        torch.testing.assert_close(weights[1][name], tensor, atol=1e-5, rtol=1e-4)
    train(with_train(pair, steps=12, accumulate=2), quiet=True)
    train(with_train(alone, steps=12), quiet=True)
    assert events(pair)[-1]["loss"] == pytest.approx(events(alone)[-1]["loss"], abs=1e-5)
    with pytest.raises(CheckpointError, match="2 batches a step, and now it is 1"):
        train(with_train(pair, steps=14), quiet=True)


def test_errors_of_training_are_one_line(make_config, command, capfd, monkeypatch, tmp_path):
    config = make_config(steps=2, save_every=2)
    train(config, quiet=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # main replaces it
    for overrides, named in (
        (["train.learning_rate=3.0"], "train.learning_rate = 1.0, and now it is 3.0"),
        (["model.heads=4"], "model.heads = 2, and now it is 4"),
        (["data.vocabulary_size=500"], "was prepared with 300"),
        (["data.directory=nowhere"], "run `rela prepare` first"),
        (["train.directory=elsewhere", "train.learning_rate=1e30", "train.steps=90"], "the loss is nan"),
        (["model.encoder_attention=rela-x"], "rela-x"),
        (["train.device=tpu"], "'tpu'"),
    ):
        with pytest.raises(SystemExit) as caught:
            main(command(config, *overrides)[3:])
        errors = capfd.readouterr().err
        assert caught.value.code == 2, (overrides, errors)
        assert errors.startswith("rela: error: "), errors
        assert len(errors.splitlines()) == 1, errors
        assert named in errors
    Translator.load(Path(config.train.directory) / "model", "cpu")


def test_a_truncated_checkpoint_is_one_line(make_config, run):
    config = make_config(steps=2, save_every=2)
    train(config, quiet=True)
    weights = checkpoint(config, 2) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    result = run(with_train(config, steps=4))
    assert result.returncode == 2
    assert result.stderr.startswith(f"rela: error: {weights} is damaged or truncated")
    assert len(result.stderr.splitlines()) == 1
