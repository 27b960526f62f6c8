"""A vocabulary for each language, from preparation to links; and what needs a joint one says so."""

from __future__ import annotations

import dataclasses

import pytest

import rela
from rela.alignment.online import OnlineLinks
from rela.analysis.capture import capture
from rela.config import Config, ModelConfig, TrainConfig
from rela.data.prepare import prepare
from rela.data.shards import PreparedCorpus
from rela.data.subwords import Subwords
from rela.filtering.detector import view_both
from rela.toy import split
from rela.training.trainer import train
from tests.tiny_models import toy_corpus


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Config:
    """A trained model, of 20 steps."""
    folder = tmp_path_factory.mktemp("separate")
    data = toy_corpus(folder, 300, 10, vocabulary_size=250, vocabularies="separate")
    prepare(data, threads=1)
    shape = ModelConfig(
        width=16, heads=2, encoder_layers=1, decoder_layers=1, feed_forward=24, max_length=128, tied_embeddings="target"
    )
    settings = TrainConfig(
        directory=str(folder / "run"),
        steps=20,
        tokens=300,
        warmup=10,
        bleu_every=20,
        subword_sampling=0.1,
        tensorboard=False,
        device="cpu",
        keep_last=1,
        average_last=1,
    )
    made = Config(data, shape, settings)
    train(made, quiet=True)
    return made


def test_ids_of_each_side_are_of_its_own_vocabulary(config):
    corpus = PreparedCorpus.open(config.data.directory, "valid")
    subwords = Subwords.load(corpus.vocabulary)
    assert not subwords.is_joint
    assert (subwords.size, subwords.source.size) == (250, 250)
    assert subwords.source.model != subwords.model
    _, valid, _ = split(300, 10, 0, seed=5)
    for number, pair in enumerate(valid):
        source, target = corpus.pair(number)
        assert subwords.source.decode(source) == pair.source
        assert subwords.decode(target) == pair.target


def test_the_model_translates_scores_and_aligns_with_both(config):
    model = rela.load(f"{config.train.directory}/model", "cpu")
    _, valid, _ = split(300, 10, 0, seed=5)
    pair = (valid[0].source, valid[0].target)
    ((best,),) = model.translate_nbest([pair[0]], 1, OnlineLinks(model), beam=2)
    assert best.text == model.subwords.decode(best.tokens)
    (scored,) = model.score([pair[0]], [pair[1]])
    assert list(scored.pieces[:-1]) == model.subwords.pieces(model.subwords.encode(pair[1]))
    (record,) = capture(model, [pair], ("cross",))
    assert list(record["cross"].keys[:-1]) == model.subwords.source.pieces(model.subwords.source.encode(pair[0]))
    other = rela.load([f"{config.train.directory}/model", f"{config.train.directory}/best"], "cpu")
    assert len(other.translate([pair[0]], beam=1)) == 1


def test_what_needs_a_joint_vocabulary_says_so(config, tmp_path):
    folder = f"{config.train.directory}/model"
    with pytest.raises(ValueError, match="has separate vocabularies; wanted a joint one"):
        view_both(rela.load(folder, "cpu"), None, [("a", "b")], ["a", "b"])
    tied = dataclasses.replace(config, model=dataclasses.replace(config.model, tied_embeddings="all"))
    with pytest.raises(ValueError, match='tied_embeddings is "all"; wanted "target" or "none"'):
        train(tied, quiet=True)
    joint = dataclasses.replace(config.data, vocabularies="joint")
    with pytest.raises(ValueError, match="vocabularies was separate, now joint"):
        prepare(joint)
    given = dataclasses.replace(joint, directory=str(tmp_path), subwords=f"{config.data.directory}/subwords.model")
    with pytest.raises(ValueError, match="vocabularies is joint, but the given vocabulary is separate"):
        prepare(given)
