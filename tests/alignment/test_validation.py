"""The choice of heads at the end of training: on the validation text, once, and never a reason to fail."""

import pytest

from rela.alignment.agreement import choose_alone
from rela.alignment.choose import AlignmentChoice, load_choice, save_choice
from rela.alignment.validation import choose_on_validation
from rela.config import Config, CorpusConfig, DataConfig, TrainConfig
from tests.tiny_models import tiny_folder, tiny_translator, toy_pairs

PAIRS = toy_pairs(5)


@pytest.fixture
def config(tmp_path):
    for side, name in enumerate(("valid.en", "valid.de")):
        (tmp_path / name).write_text("".join(pair[side] + "\n" for pair in PAIRS) + "\n", encoding="utf-8")
    data = DataConfig(root=str(tmp_path), valid=CorpusConfig("valid.en", "valid.de"))
    return Config(data=data, train=TrainConfig(device="cpu"))


def test_the_choice_is_made_on_the_validation_text_and_kept(tmp_path, config):
    tiny_folder(tmp_path / "model")
    choice = choose_on_validation(tmp_path / "model", config)
    assert choice == choose_alone(tiny_translator(), PAIRS) == load_choice(tmp_path / "model")
    save_choice(tmp_path / "model", AlignmentChoice(0, (1,), True))
    assert choose_on_validation(tmp_path / "model", config) is None
    assert load_choice(tmp_path / "model") == AlignmentChoice(0, (1,), True), "a choice that is there stays"


def test_a_finished_model_does_not_depend_on_it(tmp_path, config):
    tiny_folder(tmp_path / "model")
    assert choose_on_validation(tmp_path / "model", Config()) is None
    (tmp_path / "valid.de").unlink()
    with pytest.warns(UserWarning, match=r"no heads are chosen .*valid\.de"):
        assert choose_on_validation(tmp_path / "model", config) is None
