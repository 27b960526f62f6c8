"""replace_attention(): in models somebody else wrote, ours runs wherever theirs did, in training and in evaluation."""

from __future__ import annotations

import tempfile

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.utils import parametrizations
from torch.nn.utils.parametrize import remove_parametrizations
from torch.testing import assert_close

import rela
from tests.attention.attention_cases import KINDS, normal

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor", "ignore:The PyTorch API of nested tensors")

C, H = 16, 4
CLOSE = {"rtol": 1e-9, "atol": 1e-10}


def transformer(batch_first: bool = True, **options) -> nn.Transformer:
    torch.manual_seed(0)
    return nn.Transformer(C, H, 2, 2, 32, dropout=0.0, batch_first=batch_first, dtype=torch.float64, **options)


def sentences(batch_first: bool = True):
    """Source, target, and where the source is padding; the first position of each is real."""
    source, target = normal(3, 7, C), normal(3, 5, C, seed=1)
    hidden = torch.tensor([[False] * 7, [False] * 4 + [True] * 3, [False] * 6 + [True]])
    if not batch_first:
        source, target = source.transpose(0, 1), target.transpose(0, 1)
    return source, target, hidden


def run(model: nn.Transformer, batch_first: bool = True, causal: bool = True):
    source, target, hidden = sentences(batch_first)
    later = model.generate_square_subsequent_mask(5, dtype=torch.float64) if causal else None
    return model(
        source,
        target,
        tgt_mask=later,
        src_key_padding_mask=hidden,
        memory_key_padding_mask=hidden,
        tgt_is_causal=causal,
    )


class Calls:
    """Counts the forwards of our attentions inside a model."""

    def __init__(self, model: nn.Module) -> None:
        self.count = 0
        for module in model.modules():
            if isinstance(module, rela.MultiheadAttention):
                module.register_forward_pre_hook(self.called)

    def called(self, *_) -> None:
        self.count += 1


@pytest.mark.filterwarnings("ignore:Support for mismatched")
@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_softmax_changes_nothing(batch_first: bool, training: bool, gradients: bool):
    """The same answer from ours as from theirs, and ours was really asked: no fast path went around it."""
    model = transformer(batch_first).train(training)
    with torch.set_grad_enabled(gradients):
        before = run(model, batch_first)
        rela.replace_attention(model, "softmax")
        calls = Calls(model)
        after = run(model, batch_first)
    assert calls.count == 6
    # Evaluated without gradients, torch packs the encoder's padding away and fills its output there with zeros, which
    # nobody reads: the decoder's answer is the same.
    assert_close(after, before, **CLOSE)


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_runs_in_a_transformer(kind: str, training: bool, gradients: bool):
    """In training and in evaluation the same, with padding, and each attention is of the new kind."""
    model = transformer().train(training)
    replaced = rela.replace_attention(model, kind)
    calls = Calls(model)
    with torch.set_grad_enabled(gradients):
        out = run(model)
    assert calls.count == len(replaced.names) == 6
    assert out.isfinite().all()
    model.train(not training)
    assert_close(run(model), out, **CLOSE)


@pytest.mark.parametrize("training", [True, False])
def test_padding_changes_nothing_in_an_encoder(training: bool):
    """Neither its fused layer nor nested tensors: a padded sentence gives what it gives alone."""
    layer = nn.TransformerEncoderLayer(C, H, 32, dropout=0.0, batch_first=True, dtype=torch.float64)
    encoder = nn.TransformerEncoder(layer, 2).train(training)
    rela.replace_attention(encoder, "rela-g")
    calls = Calls(encoder)
    source, _, hidden = sentences()
    with torch.no_grad():
        together = encoder(source, src_key_padding_mask=hidden)
        assert calls.count == 2
        for b in range(3):
            alone = encoder(source[b : b + 1, ~hidden[b]])
            assert_close(together[b : b + 1, ~hidden[b]], alone, **CLOSE)


def test_a_layer_built_with_our_attention_takes_no_fast_path():
    """Put in by hand, before the encoder is made: torch looks at the first layer's attention and keeps off."""
    layer = nn.TransformerEncoderLayer(C, H, 32, dropout=0.0, batch_first=True, dtype=torch.float64)
    layer.self_attn = rela.MultiheadAttention(C, H, batch_first=True, kind="rela-g", dtype=torch.float64)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    calls = Calls(encoder)
    source, _, hidden = sentences()
    with torch.inference_mode():
        assert encoder(source, src_key_padding_mask=hidden).isfinite().all()
    assert calls.count == 2


def test_projections_are_kept_and_what_was_replaced_is_said():
    model = transformer()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    replaced = rela.replace_attention(model, kind="rela-g", threshold="learned")
    after = model.state_dict()
    for name, value in before.items():
        assert torch.equal(after[name], value), name
    assert replaced.module is model
    assert replaced.names == (
        "encoder.layers.0.self_attn",
        "encoder.layers.1.self_attn",
        "decoder.layers.0.self_attn",
        "decoder.layers.0.multihead_attn",
        "decoder.layers.1.self_attn",
        "decoder.layers.1.multihead_attn",
    )
    assert after.keys() - before.keys() == {
        f"{name}.{extra}" for name in replaced.names for extra in ("norm.gain", "norm.gate", "threshold")
    }
    assert str(replaced).startswith("6 × torch.nn.MultiheadAttention, now rela-g: encoder.layers.0.self_attn, ")
    assert not any(isinstance(module, nn.MultiheadAttention) for module in model.modules())


class Patches(nn.Module):
    """A vision transformer in miniature: patches, a class token, pre-norm blocks, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, C, 4, stride=4)
        self.token = nn.Parameter(torch.zeros(1, 1, C))
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm": nn.LayerNorm(C),
                    "attention": nn.MultiheadAttention(C, H, dropout=0.1, batch_first=True),
                    "mix": nn.Sequential(nn.LayerNorm(C), nn.Linear(C, 32), nn.GELU(), nn.Linear(32, C)),
                }
            )
            for _ in range(2)
        )
        self.head = nn.Linear(C, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        for block in self.blocks:
            y = block["norm"](x)
            x = x + block["attention"](y, y, y, need_weights=False)[0]
            x = x + block["mix"](x)
        return self.head(x[:, 0])


@pytest.mark.parametrize("kind", ["softmax", "rela-g", "sparsemax", "topk:3"])
def test_a_vision_transformer_learns_after_the_exchange(kind: str):
    torch.manual_seed(0)
    model = Patches()
    images, labels = torch.randn(8, 3, 16, 16), torch.arange(8)
    before = model.eval()(images)
    assert rela.replace_attention(model, kind).names == ("blocks.0.attention", "blocks.1.attention")
    if kind == "softmax":
        assert_close(model(images), before, rtol=1e-4, atol=1e-5)
    optimiser = torch.optim.Adam(model.train().parameters(), lr=3e-3)
    losses = []
    for _ in range(30):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    assert all(block["attention"].in_proj_weight.grad.any() for block in model.blocks)


def test_options_of_the_old_attention_are_kept():
    old = nn.MultiheadAttention(
        C, H, dropout=0.3, bias=False, add_bias_kv=True, add_zero_attn=True, kdim=5, vdim=6, dtype=torch.float64
    ).eval()
    old.q_proj_weight.requires_grad_(False)
    holder = nn.ModuleDict({"attention": old})
    query, key, value = normal(3, 2, C), normal(4, 2, 5), normal(4, 2, 6)
    expected = old(query, key, value)
    rela.replace_attention(holder, "softmax", backend="reference")
    new = holder["attention"]
    assert_close(new(query, key, value), expected, **CLOSE)
    assert (new.dropout, new.batch_first, new.training, new.backend) == (0.3, False, False, "reference")
    assert not new.q_proj_weight.requires_grad
    assert new.k_proj_weight.requires_grad


def test_the_module_itself_and_no_module():
    old = nn.MultiheadAttention(C, H)
    replaced = rela.replace_attention(old, "rela-i")
    assert replaced.module.kind == rela.PRESETS["rela-i"]
    assert torch.equal(replaced.module.in_proj_weight, old.in_proj_weight)
    assert "(the module itself)" in str(replaced)
    with pytest.raises(TypeError, match=r"module is a str; wanted a torch\.nn\.Module"):
        rela.replace_attention("model")
    with pytest.raises(ValueError, match=r"Linear holds no torch\.nn\.MultiheadAttention to replace"):
        rela.replace_attention(nn.Linear(2, 2))


def test_one_attention_in_several_places_stays_one():
    shared = nn.MultiheadAttention(C, H)

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = shared, shared
            self.inner = nn.ModuleList([shared])

    model = Twice()
    assert rela.replace_attention(model).names == ("first", "second", "inner.0")
    assert model.first is model.second is model.inner[0]
    assert isinstance(model.first, rela.MultiheadAttention)


def test_an_error_leaves_the_model_as_it_was():
    """A second attention that cannot be exchanged keeps the first from being exchanged alone."""

    class Extended(nn.MultiheadAttention):
        def __init__(self) -> None:
            super().__init__(C, H)
            self.temperature = nn.Parameter(torch.ones(1))

    model = nn.ModuleList([nn.MultiheadAttention(C, H), Extended()])
    with pytest.raises(ValueError, match=r"1 also holds temperature; wanted a plain torch\.nn\.MultiheadAttention"):
        rela.replace_attention(model)
    with pytest.raises(ValueError, match="kind is 'rella'"):
        rela.replace_attention(model, "rella")
    with pytest.raises(ValueError, match="num_kv_heads is 2; wanted 4, to keep the projections"):
        rela.replace_attention(model, num_kv_heads=2)
    assert all(isinstance(module, nn.MultiheadAttention) for module in model)


@pytest.mark.parametrize("layers", [(0,), (1,), (0, 1)])
def test_layers_exchanged_one_by_one_take_the_padding_of_an_encoder(layers: tuple[int, ...]):
    """The encoder, which was not told, makes nested tensors of padded sentences in evaluation."""
    layer = nn.TransformerEncoderLayer(C, H, 32, dropout=0.0, batch_first=True, dtype=torch.float64)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    for index in layers:
        rela.replace_attention(encoder.layers[index], "rela-g")
    calls = Calls(encoder)
    source, _, hidden = sentences()
    with torch.no_grad():
        together = encoder(source, src_key_padding_mask=hidden)
        assert calls.count == len(layers)
        for b in range(3):
            alone = encoder(source[b : b + 1, ~hidden[b]])
            assert_close(together[b : b + 1, ~hidden[b]], alone, **CLOSE)


def test_hooks_come_along_and_can_still_be_removed():
    model = nn.ModuleDict({"attention": nn.MultiheadAttention(C, H, batch_first=True)})
    seen = []
    before = model["attention"].register_forward_pre_hook(lambda module, inputs: seen.append("before"))
    after = model["attention"].register_forward_hook(
        lambda module, inputs, options, output: seen.append(type(module)), with_kwargs=True
    )
    rela.replace_attention(model)
    x = torch.randn(2, 3, C)
    model["attention"](x, x, x)
    assert seen == ["before", rela.MultiheadAttention]
    before.remove()
    after.remove()
    model["attention"](x, x, x)
    assert len(seen) == 2


def test_parameters_stay_the_same_objects():
    """What is tied stays tied, and an optimiser made before the exchange trains on."""
    torch.manual_seed(0)
    model = nn.ModuleList([nn.MultiheadAttention(C, H, batch_first=True) for _ in range(2)])
    model[1].in_proj_weight = model[0].in_proj_weight
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    old = dict(model.named_parameters())
    replaced = rela.replace_attention(model, "rela-g", threshold="learned")
    assert model[1].in_proj_weight is model[0].in_proj_weight
    new = dict(model.named_parameters())
    assert all(new[name] is parameter for name, parameter in old.items())
    assert {id(parameter) for parameter in replaced.added} == {id(new[name]) for name in new.keys() - old.keys()}
    x = torch.randn(2, 3, C)
    before = {name: parameter.detach().clone() for name, parameter in new.items()}
    optimiser.add_param_group({"params": replaced.added})
    (model[0](x, x, x)[0] + model[1](x, x, x)[0]).square().mean().backward()
    optimiser.step()
    assert not any(torch.equal(new[name], value) for name, value in before.items())


def test_a_forward_of_its_own_is_refused():
    class Louder(nn.MultiheadAttention):
        def forward(self, *inputs, **options):
            output, weights = super().forward(*inputs, **options)
            return 2 * output, weights

    model = nn.ModuleList([nn.MultiheadAttention(C, H), Louder(C, H)])
    with pytest.raises(ValueError, match=r"1 is a Louder with its own forward; wanted a plain torch\.nn\.Multi"):
        rela.replace_attention(model)
    assert type(model[0]) is nn.MultiheadAttention
    model = nn.ModuleList([nn.MultiheadAttention(C, H)])
    model[0].forward = lambda *inputs, **options: Louder.forward(model[0], *inputs, **options)
    with pytest.raises(ValueError, match="0 is a MultiheadAttention with its own forward"):
        rela.replace_attention(model)


def test_undo_puts_everything_back():
    model = transformer().eval()
    old = {name: type(module) for name, module in model.named_modules()}
    nested = model.encoder.use_nested_tensor
    before = run(model)
    replaced = rela.replace_attention(model, "rela-g")
    assert replaced in {replaced}
    assert (run(model) - before).abs().max() > 1e-3
    assert replaced.undo() is model
    assert {name: type(module) for name, module in model.named_modules()} == old
    assert model.encoder.use_nested_tensor == nested
    assert torch.equal(run(model), before)
    assert replaced.undo() is model, "a second time changes nothing"
    alone = nn.MultiheadAttention(C, H)
    assert rela.replace_attention(alone).undo() is alone


def test_undo_keeps_parameters_that_took_the_place_of_the_old():
    """Of a state dict that is assigned, and of a model that was made on no device."""
    model = transformer(bias=False).eval()
    replaced = rela.replace_attention(model, "softmax")
    generator = torch.Generator().manual_seed(3)
    state = {
        name: 0.2 * torch.randn(value.shape, generator=generator, dtype=value.dtype)
        for name, value in model.state_dict().items()
    }
    model.load_state_dict(state, assign=True)
    wanted = run(model)
    assert_close(run(replaced.undo()), wanted, **CLOSE)
    with torch.device("meta"):
        empty = transformer(bias=False).eval()
    replaced = rela.replace_attention(empty, "softmax")
    empty.to_empty(device="cpu").load_state_dict(state)
    assert_close(run(replaced.undo()), wanted, **CLOSE)
    alone = nn.MultiheadAttention(C, H)
    replaced = rela.replace_attention(alone)
    replaced.module.eval().load_state_dict(replaced.module.state_dict(), assign=True)
    assert not replaced.undo().training
    assert alone.in_proj_weight is replaced.module.in_proj_weight


def test_undo_refuses_what_torch_would_compute_otherwise():
    model = transformer()
    replaced = rela.replace_attention(model, "softmax")
    attention = model.encoder.layers[1].self_attn
    parametrizations.weight_norm(attention, "in_proj_weight")
    with pytest.raises(ValueError, match=r"encoder\.layers\.1\.self_attn\.in_proj_weight is computed from other"):
        replaced.undo()
    assert isinstance(model.encoder.layers[0].self_attn, rela.MultiheadAttention)
    remove_parametrizations(attention, "in_proj_weight")
    attention.out_proj = nn.Sequential(attention.out_proj)
    with pytest.raises(ValueError, match=r"out_proj is a Sequential; wanted a torch\.nn\.Linear"):
        replaced.undo()
    attention.out_proj = attention.out_proj[0]
    wanted = run(model)
    assert_close(run(replaced.undo()), wanted, **CLOSE)


def test_a_model_that_averages_gradients_is_refused():
    """Its new norms would differ from process to process, without an error."""
    with tempfile.TemporaryDirectory() as folder:
        distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        try:
            model = nn.ModuleDict({"inner": nn.parallel.DistributedDataParallel(transformer())})
            with pytest.raises(ValueError, match="module holds a DistributedDataParallel, which would not average"):
                rela.replace_attention(model, "rela-g")
            assert type(model.inner.module.encoder.layers[0].self_attn) is nn.MultiheadAttention
            assert not rela.replace_attention(model, "relu").added, "nothing that could differ"
            sharded = fully_shard(transformer(), mesh=init_device_mesh("cpu", (1,)))
            for kind in ("rela-g", "softmax"):
                with pytest.raises(ValueError, match="module holds a FSDPTransformer, which would not gather"):
                    rela.replace_attention(sharded, kind)
        finally:
            distributed.destroy_process_group()


class Tripled(nn.Linear):
    """A projection that PyTorch's attention does not call: it reads the weight alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 3 * super().forward(x)


@pytest.mark.parametrize("out_proj", [Tripled(32, 32), nn.Sequential(nn.Linear(32, 32))])
def test_an_output_projection_of_another_kind_is_refused(out_proj: nn.Module):
    model = nn.TransformerEncoderLayer(32, 4, 64)
    model.self_attn.out_proj = out_proj
    with pytest.raises(ValueError, match=r"self_attn.out_proj is a \w+ with its own forward; wanted a plain torch"):
        rela.replace_attention(model, "softmax")


@pytest.mark.parametrize("whole", [False, True])
def test_an_attention_that_was_compiled_by_itself_is_refused(whole: bool):
    """What torch.compile made of it would go on calling it, so softmax would go under the name of ReLA."""
    compiled = torch.compile(nn.MultiheadAttention(16, 2), backend="eager")
    model = compiled if whole else nn.Sequential(nn.Linear(16, 16), compiled)
    before = [id(part) for part in model.modules()]
    with pytest.raises(ValueError, match=r"_orig_mod is a MultiheadAttention that torch.compile was given"):
        rela.replace_attention(model)
    assert [id(part) for part in model.modules()] == before


def test_a_model_around_an_attention_may_be_compiled_before():
    model = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    compiled = torch.compile(model, backend="eager")
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        before = compiled(x)
        replaced = rela.replace_attention(compiled, "relu")
        assert (compiled(x) - before).abs().max() > 1e-3
        assert torch.equal(compiled(x), model(x))
        replaced.undo()
        torch.testing.assert_close(compiled(x), before)
