"""The attention of a hypothesis is that of its own steps, wherever its beams were and whoever left the batch."""

from __future__ import annotations

import pytest
import torch

from rela.data.batching import pack
from rela.decoding.beam import beam_search
from rela.decoding.engines.int8 import Int8Engine
from rela.decoding.engines.reference import ReferenceEngine
from rela.decoding.pipeline import SPECIAL
from rela.decoding.traced import TracedEngine


@pytest.mark.parametrize(("kind", "beam"), [("rela-g", 3), ("softmax", 1)])
def test_weights_are_those_of_teacher_forcing(make_translator, sentences, kind, beam):
    from rela.decoding.forced import observed

    translator = make_translator(kind)
    sources = [ids for ids in map(translator.subwords.encode, sentences[6:9]) if ids]
    limits = torch.tensor([len(ids) // 2 + 2 for ids in sources])
    traced = TracedEngine(ReferenceEngine(translator.model), 1)
    with torch.inference_mode():
        found = beam_search(traced, sources, limits, beam=beam, special=SPECIAL)
        for sentence, hypotheses in enumerate(found):
            for hypothesis in hypotheses:
                got = traced.with_attention(sentence, hypothesis).attention
                with observed([translator.model.decoder[1].cross]) as seen:
                    translator.model(*pack([(sources[sentence], list(hypothesis.tokens))]).inputs)
                torch.testing.assert_close(got, seen[0][0], atol=1e-4, rtol=1e-4)


def test_search_is_not_changed(make_translator, sentences):
    translator = make_translator()
    sources = [ids for ids in map(translator.subwords.encode, sentences[5:8]) if ids]
    limits = torch.tensor([len(ids) // 2 + 2 for ids in sources])
    for engine in (ReferenceEngine(translator.model), Int8Engine(translator.model)):
        with torch.inference_mode():
            plain = beam_search(engine, sources, limits, beam=4, special=SPECIAL)
            traced = beam_search(TracedEngine(engine, 0), sources, limits, beam=4, special=SPECIAL)
        assert plain == traced
