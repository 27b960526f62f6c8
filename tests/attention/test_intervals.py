"""Masks of transformers as intervals: the same keys are seen, and models give what they gave with the dense mask."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

import rela
from rela.attention import hugging_face, intervals
from rela.attention.masks import combine_masks

masking = pytest.importorskip("transformers.masking_utils")
from tests.attention.hugging_face_models import make  # noqa: E402

FUNCTIONS = {
    "causal": masking.causal_mask_function,
    "all to all": masking.bidirectional_mask_function,
    "window": masking.sliding_window_causal_mask_function(3),
    "window to both sides": masking.sliding_window_bidirectional_mask_function(2),
}
PADDINGS = {
    "none": None,
    "left": torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1] * 7]),
    "right": torch.tensor([[1, 1, 1, 0, 0, 0, 0], [1] * 7]),
    "nothing": torch.tensor([[0] * 7, [0, 1, 1, 1, 1, 1, 0]]),
    "all": torch.ones(2, 7, dtype=torch.long),
}
SIZES = {"whole": (7, 7, 0), "one step": (1, 7, 6), "static cache": (3, 9, 2), "prefill of a static cache": (7, 9, 0)}
SIZES |= {"step of a static cache": (1, 9, torch.tensor(4)), "last step of a static cache": (1, 7, torch.tensor(6))}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("size", SIZES)
def test_the_same_keys_are_seen(function: str, padding: str, size: str):
    queries, keys, offset = SIZES[size]
    given = {
        "batch_size": 2,
        "q_length": queries,
        "kv_length": keys,
        "q_offset": offset,
        "mask_function": FUNCTIONS[function],
        "attention_mask": PADDINGS[padding],
    }
    if PADDINGS[padding] is not None:
        given["attention_mask"] = PADDINGS[padding].bool()
    dense = masking.sdpa_mask(**given, allow_is_causal_skip=False)
    found = intervals.intervals_of(**given)
    if found is None:
        assert function == "window to both sides"
        assert size in ("static cache", "prefill of a static cache", "step of a static cache")
        return
    device = torch.device("cpu")
    limits = found.key_lengths, found.causal, queries, found.keys, device, found.key_starts, found.window
    allowed, _ = combine_masks(None, *limits)
    seen = torch.zeros(2, 1, queries, keys, dtype=torch.bool)
    seen[..., : found.keys] = True if allowed is None else allowed
    assert torch.equal(seen, dense)


@pytest.mark.parametrize("masks", ["implied", "boolean"])
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("size", SIZES)
def test_a_mask_of_intervals_is_that_of_transformers(
    masks: str, function: str, padding: str, size: str, monkeypatch: pytest.MonkeyPatch
):
    """Also None where that of transformers is."""
    queries, keys, offset = SIZES[size]
    given = {"batch_size": 2, "q_length": queries, "kv_length": keys, "q_offset": offset, "kv_offset": 0}
    given |= {"mask_function": FUNCTIONS[function], "attention_mask": PADDINGS[padding]}
    given |= {"allow_is_causal_skip": function == "causal", "allow_is_bidirectional_skip": function == "all to all"}
    if "window" in function:
        given["local_size"] = 3
    if PADDINGS[padding] is not None:
        given["attention_mask"] = PADDINGS[padding].bool()
    config = SimpleNamespace(rela={"masks": masks})
    got = hugging_face.mask_of(config=config, **given)
    monkeypatch.setattr(intervals, "DEVICES", ())
    wanted = hugging_face.mask_of(config=config, **given)
    if wanted is None or got is None:
        assert got is wanted
    else:
        assert got.shape == wanted.shape
        assert torch.equal(got, wanted)


def test_what_is_no_interval_stays_dense():
    sizes = {"batch_size": 2, "q_length": 7, "kv_length": 7}
    holes = torch.tensor([[1, 0, 1, 1, 1, 1, 1], [1] * 7]).bool()
    assert intervals.intervals_of(**sizes, mask_function=FUNCTIONS["causal"], attention_mask=holes) is None
    chunks = masking.chunked_causal_mask_function(3, torch.zeros(2, dtype=torch.long))
    packed = masking.packed_sequence_mask_function(torch.zeros(2, 7))
    for function in (chunks, packed, masking.or_masks(FUNCTIONS["causal"], packed), lambda *index: index[2] >= 0):
        assert intervals.intervals_of(**sizes, mask_function=function) is None


def test_a_changed_mask_is_not_taken_for_its_intervals():
    sizes = {"batch_size": 2, "q_length": 7, "kv_length": 7, "mask_function": FUNCTIONS["causal"]}
    found = intervals.intervals_of(**sizes)
    mask = intervals.mask_with_intervals(found)
    query = key = torch.zeros(2, 1, 7, 4)
    assert intervals.intervals_on(mask, query, key) is not None
    assert intervals.intervals_on(mask, query[:, :, :6], key) is None
    for changed in (mask.clone(), mask[:, :, 1:], ~mask, mask & True, mask.detach()):
        assert intervals.intervals_on(changed, query, key) is None
    written = mask.clone()
    setattr(written, intervals.ATTRIBUTE, getattr(mask, intervals.ATTRIBUTE)._replace(version=written._version))
    assert intervals.intervals_on(written, query, key) is not None
    written[:, :, :, 3] = False
    assert intervals.intervals_on(written, query, key) is None


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_a_mask_changed_in_place_is_read_as_it_is_now(context: type):
    """Tensors of inference mode do not count their changes; a mask is none of them."""
    model = make("llama")
    rela.replace_attention(model, "relu")
    tokens = torch.arange(2, 16).view(2, 7)
    with context():
        given = {"config": model.config, "inputs_embeds": model.get_input_embeddings()(tokens)}
        given |= {"attention_mask": PADDINGS["left"], "past_key_values": None}
        mask = masking.create_causal_mask(**given)
        assert hasattr(mask, intervals.ATTRIBUTE)
        before = model(tokens, attention_mask=mask)[0]
        mask[:, :, :, :4] = True  # a prefix that all tokens see
        after = model(tokens, attention_mask=mask)[0]
        assert (after - before).abs().max() > 1e-4
        torch.testing.assert_close(after, model(tokens, attention_mask=mask.clone())[0])


@pytest.mark.parametrize("family", ["llama", "mistral", "bert", "marian", "t5", "gemma3"])
def test_models_give_what_they_gave_with_a_dense_mask(family: str, monkeypatch: pytest.MonkeyPatch):
    """Padded on either side, at once: the logits of real tokens, and that the intervals were used."""
    model = make(family).double()
    rela.replace_attention(model, "rela-g")
    tokens = torch.arange(2, 14).view(2, 6)
    real = torch.tensor([[0, 0, 1, 1, 1, 1], [1] * 6])
    real = real if family in ("llama", "mistral", "gemma3") else real.flip(-1)
    given = {"input_ids": tokens, "attention_mask": real}
    if family in ("marian", "t5"):
        given["decoder_input_ids"] = tokens.flip(-1)
    used: list[bool] = []

    def outcome() -> torch.Tensor:
        with torch.no_grad():
            return model(**given)[0]

    true = hugging_face.intervals_on
    monkeypatch.setattr(hugging_face, "intervals_on", lambda *args: used.append(true(*args) is not None) or true(*args))
    by_intervals = outcome()
    assert any(used)
    used.clear()
    monkeypatch.setattr(intervals, "DEVICES", ())
    dense = outcome()
    assert not any(used)
    rows = slice(None) if family in ("marian", "t5") else real.bool()
    torch.testing.assert_close(by_intervals[rows], dense[rows], rtol=1e-10, atol=1e-10)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("family", ["llama", "bert"])
@pytest.mark.parametrize("padding", ["all", "left", "right"])
def test_a_traced_model_looks_at_the_mask_of_each_call(family: str, padding: str):
    """Intervals are numbers of one call, of which torch.jit.trace would make constants."""

    class Outputs(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = make(family, use_cache=False).double()
            rela.replace_attention(self.model, "rela-g")

        def forward(self, tokens: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
            return self.model(tokens, attention_mask=real)[0]

    model = Outputs()
    tokens = torch.arange(2, 16).view(2, 7)
    with torch.no_grad():
        traced = torch.jit.trace(model, (tokens, PADDINGS[padding]))
        for name in ("all", "left", "right"):
            seen, real = PADDINGS[name].bool(), PADDINGS[name]
            found, wanted = (run(tokens, real)[seen] for run in (traced, model))
            torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("cache", [None, "static"])
def test_padded_generation_is_that_of_each_sentence_alone(cache: str | None):
    model = make("llama").double()
    rela.replace_attention(model, "rela-g")
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    if cache is not None:
        options["cache_implementation"] = cache
    tokens = torch.tensor([[0, 0, 5, 9, 7], [3, 8, 4, 2, 6]])
    real = (torch.arange(5) >= torch.tensor([[2], [0]])).long()
    both = model.generate(tokens, attention_mask=real, **options)[:, 5:]
    for row, first in ((0, 2), (1, 0)):
        one = tokens[row : row + 1, first:]
        alone = model.generate(one, attention_mask=torch.ones_like(one), **options)[:, one.size(1) :]
        assert torch.equal(both[row], alone[0])


@pytest.mark.parametrize("padded", [False, True])
def test_all_steps_over_a_static_cache_are_one_compiled_graph(padded: bool):
    """Also where the cache is full: a number that changes would be a new CUDA graph for every token."""
    from transformers.generation.configuration_utils import CompileConfig

    graphs = []

    def counted(graph: torch.fx.GraphModule, _: list) -> Callable:
        graphs.append(graph)
        return graph.forward

    model = make("llama").eval()
    rela.replace_attention(model, "rela-g")
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    real = torch.ones(2, 5, dtype=torch.long)
    real[0, : 2 * padded] = 0
    options["attention_mask"] = real
    tokens = torch.arange(2, 12).view(2, 5)
    compiled = CompileConfig(backend=counted, mode=None)
    compiled._compile_all_devices = True
    torch._dynamo.reset()
    got = model.generate(tokens, cache_implementation="static", compile_config=compiled, **options)
    assert torch.equal(got, model.generate(tokens, **options))
    assert len(graphs) == 1
    assert "rela_intervals_key_lengths" in graphs[0].code


@pytest.mark.gpu
@pytest.mark.parametrize("family", ["llama", "mistral", "bert", "t5"])
def test_padded_models_on_a_gpu(family: str):
    """Kernels by intervals against the equation, loss and gradients, with padded rows left out of the loss."""
    tokens = torch.randint(2, 60, (3, 40), generator=torch.Generator().manual_seed(0)).cuda()
    lengths = torch.tensor([[40], [23], [7]]).cuda()
    position = torch.arange(40).cuda()
    real = position >= 40 - lengths if family in ("llama", "mistral") else position < lengths
    outcomes = []
    for backend in ("auto", "reference"):
        model = make(family, max_position_embeddings=64).cuda()
        rela.replace_attention(model, "rela-g", backend=backend)
        given = {"input_ids": tokens, "attention_mask": real.long()}
        if family == "t5":
            given["decoder_input_ids"] = tokens
        out = model(**given)[0]
        loss = out[slice(None) if family == "t5" else real].float().square().mean()
        loss.backward()
        outcomes.append([loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
    for one, other in zip(*outcomes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4 * other.abs().max().item() + 1e-7)
