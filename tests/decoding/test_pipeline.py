"""Ids to hypotheses: what is done while the device computes, in order, and nothing lost or held back."""

from __future__ import annotations

import dataclasses
import threading

import pytest
import torch
from torch import Tensor

from rela.config import DecodeConfig
from rela.data.subwords import PAD
from rela.decoding.background import Background
from rela.decoding.beam import Hypothesis
from rela.decoding.engines.gpu_search import Watch
from rela.decoding.pipeline import Request


def test_ids_give_the_hypotheses_of_each_line_in_order(make_translator, sentences):
    """The pipeline knows no text: ids come from a reader, and a function makes the results."""
    translator = make_translator()
    lines = [translator.subwords.encode(line) for line in sentences]
    request = Request(dataclasses.replace(translator.config.decode, beam=3), nbest=2, window=5)
    found = list(
        translator.pipeline.translate(
            lambda number: lines[number : number + 5], lambda number, ids, item: item, request
        )
    )
    wanted = translator.translate_nbest(sentences, nbest=2, beam=3)
    assert [[item.tokens for item in group] for group in found] == [[item.tokens for item in group] for group in wanted]
    assert [[item.score for item in group] for group in found] == [[item.score for item in group] for group in wanted]


def test_scores_come_in_the_order_of_the_pairs(make_translator):
    pipeline, pairs = make_translator().pipeline, [([5, 6], [7]), ([8] * 20, [9] * 7), ([4], []), ([5, 6], [7])]
    together = pipeline.score(pairs, DecodeConfig(batch_tokens=30))
    assert [len(values) for values in together] == [2, 8, 1, 2]
    assert together == [pipeline.score([pair], DecodeConfig())[0] for pair in pairs]


def test_links_are_read_from_the_ids_of_both_sides_and_the_weights_between_them(make_translator):
    """Sources longer and shorter than their translations; a reader that writes down what it is given."""
    pipeline, seen = make_translator().pipeline, dict[tuple[int, ...], tuple[int, ...]]()
    sources = [[5, 6, 7, 8, 9], [10], [11, 12, 13]]
    found = [[Hypothesis((20,), 0.0, 0.0), Hypothesis((21, 22), 0.0, 0.0)], [Hypothesis((23,) * 6, 0.0, 0.0)], []]

    def read(source: Tensor, target: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        for row in range(len(source)):
            ids = [tuple(id for id in side[row].tolist() if id != PAD) for side in (source, target)]
            seen[ids[1]] = ids[0]
            assert weights[row].shape == (4, target.size(1) + 1, source.size(1) + 1)  # H, and </s> on both sides
            assert weights[row, :, : len(ids[1]) + 1, : len(ids[0]) + 1].any()
            assert not weights[row, :, :, len(ids[0]) + 1 :].any()
        return torch.zeros_like(target), torch.arange(len(source)) >= 0

    linked = pipeline.with_links(sources, found, Watch(1, read))
    assert seen == {(20,): (5, 6, 7, 8, 9), (21, 22): (5, 6, 7, 8, 9), (23,) * 6: (10,)}
    assert [[one.tokens for one in group] for group in linked] == [[one.tokens for one in group] for group in found]


@pytest.mark.parametrize("gpu_batches", [None, []])  # as by the reference; as by the GPU engine, with work left over
def test_results_are_not_lost_with_a_search_that_fails_after_them(make_translator, sentences, monkeypatch, gpu_batches):
    translator = make_translator()
    pipeline = translator.pipeline
    whole = translator.translate(sentences[:2], beam=1)
    prepare, launch = pipeline.prepare, pipeline.launch

    class Arrived(Background):
        """The next lines have always arrived."""

        def __init__(self, *call):
            super().__init__(*call)
            self.thread.join()

    def failing(batch, *others):
        if 2 in batch.lines.numbers:
            raise RuntimeError("out of memory")
        return launch(dataclasses.replace(batch, gpu_batches=None), *others)

    monkeypatch.setattr("rela.decoding.windows.WINDOW", 2)
    monkeypatch.setattr("rela.decoding.windows.Background", Arrived)
    monkeypatch.setattr(
        pipeline, "prepare", lambda *given: dataclasses.replace(prepare(*given), gpu_batches=gpu_batches)
    )
    monkeypatch.setattr(pipeline, "launch", failing)
    answers = translator.translate_stream(sentences[:4], window=2, beam=1)
    assert [next(answers)[0].text for _ in range(2)] == whole
    with pytest.raises(RuntimeError, match="out of memory"):
        next(answers)


def test_results_do_not_wait_for_lines_that_have_not_arrived(make_translator, sentences, monkeypatch):
    """A large window's results are given when the next one is slow; here it is held back until they are."""
    monkeypatch.setattr("rela.decoding.windows.WINDOW", 2)
    translator, given = make_translator(), threading.Event()
    whole = translator.translate(sentences[:4], beam=1)

    def stream():
        yield from sentences[:2]
        assert given.wait(60)
        yield from sentences[2:4]

    answers = translator.translate_stream(stream(), window=2, beam=1)
    first = [next(answers)[0].text for _ in range(2)]
    given.set()
    assert first + [group[0].text for group in answers] == whole


def test_large_windows_are_read_while_the_one_before_is_translated(make_translator, sentences, monkeypatch):
    """In order, each line once, and what goes wrong in a later window comes after the earlier one's answers."""
    monkeypatch.setattr("rela.decoding.windows.WINDOW", 3)
    translator, lines = make_translator(), sentences[:8]
    whole = translator.translate(lines, beam=1)
    read = []

    def stream(stop: int):
        for number, line in enumerate(lines):
            if number == stop:
                raise ValueError("line 5 is no text")
            read.append(number)
            yield line

    assert [group[0].text for group in translator.translate_stream(stream(99), window=3, beam=1)] == whole
    assert read == list(range(len(lines)))
    answers = translator.translate_stream(stream(5), window=3, beam=1)
    assert [next(answers)[0].text for _ in range(3)] == whole[:3]
    with pytest.raises(ValueError, match="line 5 is no text"):
        next(answers)
