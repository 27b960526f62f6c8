"""The search that stays on the device gives the reference's translations; here in Triton's interpreter."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from rela.config import Config, DecodeConfig, ModelConfig
from rela.data.subwords import EOS, PAD
from rela.decoding.beam import Hypothesis, beam_search
from rela.decoding.engines import gpu_batches, gpu_search
from rela.decoding.engines.choose import why_not_graphs
from rela.decoding.engines.gpu_batches import split_batch
from rela.decoding.engines.gpu_network import GpuNetwork
from rela.decoding.engines.gpu_search import GpuEngine, Watch
from rela.decoding.engines.reference import ReferenceEngine
from rela.decoding.forced import forced_attention
from rela.decoding.pipeline import SPECIAL
from rela.decoding.translate import Translator
from rela.model.transformer import Transformer

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of the values in padding rows


def make_model(kind: str, seed: int = 0, **options) -> Transformer:
    """Random weights, sure of their words, that end now and then; no parameter is left at one or zero."""
    torch.manual_seed(seed)
    shape = {
        "vocabulary_size": 67,
        "width": 24,
        "heads": 2,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "feed_forward": 40,
        "max_length": 50,
        "tied_embeddings": "none",
        **options,
    }
    model = Transformer(
        ModelConfig(encoder_attention=kind, decoder_attention=kind, cross_attention=kind, **shape)
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.1 * torch.randn_like(parameter)
        model.output.weight *= 3
        model.output.weight[EOS] *= 1.5
    return model


def make_sources(count: int, seed: int = 0, longest: int = 40) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest, (count,), generator=generator).tolist()
    return [torch.randint(4, 67, (length,), generator=generator).tolist() for length in lengths]


@torch.inference_mode()
def reference(
    model: Transformer, sources: list[list[int]], limits: list[int], beam: int, alpha: float
) -> list[list[Hypothesis]]:
    max_lengths = torch.tensor(limits, device=model.output.weight.device)
    return beam_search(ReferenceEngine(model), sources, max_lengths, beam=beam, special=SPECIAL, alpha=alpha)


def assert_same(found: list[list[Hypothesis]], wanted: list[list[Hypothesis]], tolerance: float = 1e-4) -> None:
    assert len(found) == len(wanted)
    for mine, theirs in zip(found, wanted, strict=True):
        assert [item.tokens for item in mine] == [item.tokens for item in theirs]
        for one, two in zip(mine, theirs, strict=True):
            assert one.log_prob == pytest.approx(two.log_prob, abs=tolerance)
            assert one.score == pytest.approx(two.score, abs=tolerance)


@pytest.mark.parametrize(
    ("kind", "beam", "alpha", "chain_rows", "thin_rows", "options"),
    [
        ("rela-g", 3, 0.6, 16, 16, {}),
        ("softmax", 4, 0.6, 0, 0, {"norm_first": True}),
        ("relu-rms", 2, 0.0, 16, 16, {"norm_first": True, "threshold": "learned", "tied_embeddings": "all"}),
        ("rela-i", 1, 0.6, 16, 0, {"heads": 3, "decoder_layers": 1}),
        ("relu2-g", 3, 1.0, 0, 0, {"threshold": 0.05, "tied_embeddings": "target", "decoder_layers": 1}),
        ("leaky_relu", 2, 0.6, 16, 16, {"width": 16, "decoder_layers": 1}),
    ],
)
def test_it_finds_what_the_reference_finds(kind, beam, alpha, chain_rows, thin_rows, options):
    """Sentences of different lengths and limits, whole n-best lists, all ways a layer is put together."""
    model = make_model(kind, **options)
    sources, limits = make_sources(4, longest=23), [4, 1, 3, 2]
    network = GpuNetwork(model, torch.float32)
    network.chain_rows, network.thin_rows = chain_rows, thin_rows
    found = GpuEngine(network, beam, alpha).search(sources, limits)
    assert_same(found, reference(model, sources, limits, beam, alpha))


def test_the_three_attentions_of_a_model_may_differ():
    torch.manual_seed(1)
    config = make_model("softmax").config
    config = dataclasses.replace(
        config, encoder_attention="rela-i", decoder_attention="softmax", cross_attention="rela-g"
    )
    model, sources = Transformer(config).eval(), make_sources(2, seed=3)
    found = GpuEngine(GpuNetwork(model, torch.float32), 2, 0.6).search(sources, [4, 3])
    assert_same(found, reference(model, sources, [4, 3], 2, 0.6))


def test_one_search_serves_batches_of_any_size(monkeypatch):
    """More sentences than a batch may have, then fewer, then longer ones, for which the buffers grow."""
    monkeypatch.setattr(gpu_batches, "MAX_SENTENCES", 3)
    model = make_model("rela-g", width=16, decoder_layers=1)
    search = GpuEngine(GpuNetwork(model, torch.float32), 2, 0.6)
    for batch, limits in enumerate(([1, 4, 2, 3], [2], [1, 9, 2])):
        sources = make_sources(len(limits), seed=batch, longest=20)
        assert_same(search.search(sources, limits), reference(model, sources, limits, 2, 0.6))


def test_only_as_many_hypotheses_are_made_as_are_asked_for():
    model = make_model("rela-g", width=16, decoder_layers=1)
    search, sources, limits = GpuEngine(GpuNetwork(model, torch.float32), 3, 0.6), make_sources(2, longest=23), [3, 2]
    found = search.search(sources, limits)
    assert [len(hypotheses) for hypotheses in found] == [3, 3]
    for nbest in (1, 2):
        assert list(search.launch(split_batch(sources, limits, 3), nbest)()) == [
            hypotheses[:nbest] for hypotheses in found
        ]


def test_sentences_that_are_done_leave(monkeypatch):
    continued = []
    monkeypatch.setattr(gpu_search, "STEPS_PER_CHECK", 1)
    reorder = GpuEngine.reorder
    monkeypatch.setattr(GpuEngine, "reorder", lambda self, active: (continued.append(active), reorder(self, active))[1])
    model, sources, limits = (
        make_model("rela-g", width=16, decoder_layers=1),
        make_sources(5, longest=9),
        [1, 1, 6, 1, 1],
    )
    assert_same(
        GpuEngine(GpuNetwork(model, torch.float32), 2, 0.6).search(sources, limits),
        reference(model, sources, limits, 2, 0.6),
    )
    assert continued == [[2]], "all are active at first, and the others leave"


@pytest.fixture(scope="module")
def translator(subwords) -> Translator:
    model = make_model("rela-g", vocabulary_size=subwords.size, width=16, decoder_layers=1)
    decode = DecodeConfig(beam=2, max_length_ratio=0.3, max_length_extra=2)
    return Translator(model, subwords, Config(model=model.config, decode=decode), "cpu")


def test_a_translator_gives_the_same_text_by_both(translator):
    lines = ["The dog sleeps .", "", "A cook is reading a book .", "  "]
    fast = translator.translate_nbest(lines, nbest=2, engine="graphs", batch_tokens=1000)
    plain = translator.translate_nbest(lines, nbest=2, engine="reference")
    for mine, theirs in zip(fast, plain, strict=True):
        assert [item.text for item in mine] == [item.text for item in theirs]
        assert [item.score for item in mine] == pytest.approx([item.score for item in theirs], abs=1e-4)
    assert fast[0][0].text


def test_changed_weights_are_seen(translator):
    line, options = ["The dog sleeps ."], {"engine": "graphs", "max_length_ratio": 0.1}
    before = translator.translate(line, **options)
    made = translator.pipeline.engines.gpu
    assert translator.translate(line, **options) == before
    assert translator.pipeline.engines.gpu is made, "the same search served again"
    kept = translator.model.output.weight.detach().clone()
    with torch.no_grad():
        translator.model.output.weight.neg_()
    after = translator.translate(line, **options)
    assert translator.pipeline.engines.gpu is not made
    assert after != before
    assert after == translator.translate(line, **{**options, "engine": "reference"})
    with torch.no_grad():
        translator.model.output.weight.copy_(kept)


def test_weights_that_are_no_numbers_end_with_an_error(translator):
    with torch.no_grad():
        kept = translator.model.output.weight[EOS].clone()
        translator.model.output.weight[EOS] = torch.nan
    try:
        with pytest.raises(RuntimeError, match="weights"):
            translator.translate(["The dog sleeps ."], engine="graphs")
    finally:
        with torch.no_grad():
            translator.model.output.weight[EOS] = kept


def test_it_says_why_it_cannot_serve(translator, monkeypatch):
    graphs = DecodeConfig(engine="graphs")
    assert why_not_graphs(translator.model, graphs) is None
    assert translator.pipeline.engines.uses_graphs(graphs)
    assert not translator.pipeline.engines.uses_graphs(DecodeConfig(engine="reference"))
    assert "random" in str(why_not_graphs(translator.model, dataclasses.replace(graphs, sampling=True)))
    assert "forbids no tokens" in str(why_not_graphs(translator.model, dataclasses.replace(graphs, min_length=2)))
    assert "forbids no tokens" in str(why_not_graphs(translator.model, dataclasses.replace(graphs, no_repeat_ngram=2)))
    assert "sparsemax" in str(why_not_graphs(make_model("sparsemax"), graphs))
    assert "gated-layer" in str(why_not_graphs(make_model("rela-g-layernorm"), graphs))
    assert "on cpu" in str(why_not_graphs(translator.model, DecodeConfig())), "auto never takes the interpreter"
    with pytest.raises(ValueError, match='engine is "graphs", which cannot serve here: sampling'):
        translator.translate(["dog"], engine="graphs", sampling=True)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ValueError, match="runs on a CUDA device, and the model is on cpu"):
        translator.translate(["dog"], engine="graphs")
    for name in ("engine", "precision"):
        with pytest.raises(ValueError, match=f"{name} is 'fast'"):
            DecodeConfig(**{name: "fast"})


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["rela-g", "softmax", "rela-i"])
@pytest.mark.parametrize("beam", [1, 4])
def test_captured_graphs_find_what_the_reference_finds(kind, beam):
    """In float32, at the size the kernels are for; the second round replays what the first captured."""
    model = make_model(kind, vocabulary_size=3000, width=512, heads=8, feed_forward=1024, max_length=200).cuda()
    search = GpuEngine(GpuNetwork(model, torch.float32), beam, 0.6)
    for seed in range(3):
        sources = make_sources(40, seed=seed)
        limits = [min(2 * len(source) + 4, 60) for source in sources]
        with torch.inference_mode():
            assert_same(search.search(sources, limits), reference(model, sources, limits, beam, 0.6), 1e-3)
    assert search.buffers is not None
    assert any(graph is not None for graph in search.buffers.graphs.graphs.values())


@pytest.mark.gpu
def test_the_host_does_other_work_while_it_waits():
    model = make_model("rela-g", vocabulary_size=3000, width=512, heads=8, feed_forward=1024, max_length=200).cuda()
    search, sources, pieces = GpuEngine(GpuNetwork(model, torch.float32), 4, 0.6), make_sources(40), iter(range(10**9))
    with torch.inference_mode():
        found = list(search.launch(split_batch(sources, [20] * 40, 4), work=pieces)())
        assert next(pieces) > 0
        assert found == search.search(sources, [20] * 40)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["rela-g", "softmax"])
def test_kernels_that_start_early_find_what_the_reference_finds(kind):
    """One sentence at a time, in float32: a kernel that read before the one in front had written would show."""
    model = make_model(kind, vocabulary_size=3000, width=512, heads=8, feed_forward=2048, max_length=200).cuda()
    network = GpuNetwork(model, torch.float32)
    network.chain_rows = network.thin_rows = 16
    search = GpuEngine(network, 4, 0.6)
    with torch.inference_mode():
        for source in make_sources(6, seed=7, longest=20):
            limits = [2 * len(source) + 4]
            wanted = reference(model, [source], limits, 4, 0.6)
            for _ in range(8):
                assert_same(search.search([source], limits), wanted, 1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize(("chain_rows", "thin_rows"), [(0, 0), (64, 0), (64, 64)])
def test_bfloat16_scores_are_those_of_float32_to_its_rounding(chain_rows, thin_rows):
    """Forced to one word, so that no tie of rounding decides: every step's arithmetic is compared, not the search."""
    model = make_model("rela-g", vocabulary_size=3000, width=512, heads=8, feed_forward=1024, max_length=200).cuda()
    sources, scores = make_sources(40, seed=1), []
    for dtype in (torch.float32, torch.bfloat16):
        network = GpuNetwork(model, dtype)
        if dtype == torch.bfloat16:
            network.chain_rows, network.thin_rows = chain_rows, thin_rows
        with torch.inference_mode():
            search = GpuEngine(network, 1, 0.0)
            alone = [search.search([source], [1])[0][0].log_prob for source in sources[:4]]
            together = [found[0].log_prob for found in search.search(sources, [1] * 40)]
        scores.append([*alone, *together])
    torch.testing.assert_close(torch.tensor(scores[1]), torch.tensor(scores[0]), rtol=0.05, atol=0.2)


@pytest.mark.parametrize("heads", [None, (1,)])
def test_watched_weights_are_those_of_forced_decoding(heads, monkeypatch):
    """Of all hypotheses of a beam, of sentences that are done at different steps; read in more than one part."""
    monkeypatch.setattr(gpu_search, "WATCHED_WEIGHTS", 1)
    model, beam, layer, seen = make_model("rela-g", seed=1), 2, 1, []
    sources, limits = make_sources(2, longest=5), [1, 3]

    def read(source: Tensor, target: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        seen.extend(zip(source.tolist(), target.tolist(), weights, strict=True))
        best = torch.arange(target.size(1)).expand_as(target) - 1
        return best.where(target != PAD, -1), source[:, 0] != sources[1][0]

    engine = GpuEngine(GpuNetwork(model, torch.float32), beam, 0.6)
    found = list(engine.launch(split_batch(sources, limits, beam), beam, watch=Watch(layer, read, heads))())
    assert_same(found, reference(model, sources, limits, beam, 0.6))
    assert [one.links is None for group in found for one in group] == [False, False, True, True]
    assert all(one.links == {(i - 1, i) for i in range(1, len(one.tokens))} for one in found[0])
    pairs = [(source, list(one.tokens)) for source, group in zip(sources, found, strict=True) for one in group]
    assert [tuple([id for id in ids if id != PAD] for ids in item[:2]) for item in seen] == pairs
    for batch, forced in forced_attention(model, engine.device, pairs, layer):
        for i, wanted in zip(batch, forced, strict=True):
            S, T = (len(side) + 1 for side in pairs[i])
            wanted = wanted[:, :T, :S] if heads is None else wanted[list(heads), :T, :S]
            torch.testing.assert_close(seen[i][2][:, :T, :S], wanted, rtol=1e-4, atol=1e-5)
            assert not seen[i][2][:, :, S:].any(), "no key is beyond </s>"
