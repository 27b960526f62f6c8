"""Distilling attentions: nothing to learn from oneself, less distance after learning, and each by itself."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import rela
from rela.attention.distillation import AttentionDistillation, attention_names


def encoder() -> nn.TransformerEncoder:
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


X = torch.randn(3, 7, 16, generator=torch.Generator().manual_seed(2))


def run(teacher: nn.Module, distillation: AttentionDistillation) -> torch.Tensor:
    with torch.no_grad():
        teacher(X)
    return distillation.loss()


def test_a_copy_is_at_no_distance_and_an_exchanged_one_is():
    teacher = encoder()
    with AttentionDistillation(teacher, copy.deepcopy(teacher)) as distillation:
        assert run(teacher, distillation).item() == pytest.approx(0.0, abs=1e-10)
    student = copy.deepcopy(teacher)
    rela.replace_attention(student, "rela-g")
    assert attention_names(student) == ["layers.0.self_attn", "layers.1.self_attn"]
    with AttentionDistillation(teacher, student) as distillation:
        assert run(teacher, distillation) > 0.01


def test_the_loss_is_the_relative_distance_for_the_teacher_s_input():
    """Of zeros it is 1, however wrong the layers before are."""
    teacher = encoder()
    student = copy.deepcopy(teacher)
    with torch.no_grad():
        for layer in student.layers:
            layer.self_attn.out_proj.weight.zero_()
            layer.self_attn.out_proj.bias.zero_()
            layer.linear1.weight.fill_(torch.nan)
    with AttentionDistillation(teacher, student) as distillation:
        assert run(teacher, distillation).item() == pytest.approx(1.0)


def test_steps_bring_the_student_nearer():
    teacher = encoder()
    student = copy.deepcopy(teacher)
    rela.replace_attention(student, "rela-g")
    with AttentionDistillation(teacher, student) as distillation:
        optimiser = torch.optim.Adam(distillation.parameters(), 1e-2)
        losses = []
        for _ in range(20):
            optimiser.zero_grad()
            loss = run(teacher, distillation)
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]
    before = dict(teacher.named_parameters())
    moved = {name for name, p in student.named_parameters() if not torch.equal(p, before.get(name, p))}
    assert moved
    assert all("self_attn" in name for name in moved)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="wanted the same, and some"):
        AttentionDistillation(nn.Linear(2, 2), nn.Linear(2, 2))
    teacher = encoder()
    with (
        AttentionDistillation(teacher, copy.deepcopy(teacher)) as distillation,
        pytest.raises(ValueError, match="wanted a forward of the teacher first"),
    ):
        distillation.loss()
    assert not any(layer.self_attn._forward_hooks for layer in teacher.layers)


def test_a_teacher_with_a_cache_is_refused():
    """Its keys are there already: a student would look at them, and put its own behind them."""
    pytest.importorskip("transformers")
    from tests.attention.hugging_face_models import make

    teacher, tokens = make("llama"), torch.arange(2, 16).view(2, 7)
    student = copy.deepcopy(teacher)
    rela.replace_attention(student, "softmax")
    with AttentionDistillation(teacher, student) as distillation, torch.no_grad():
        with pytest.raises(ValueError, match=r"self_attn of the teacher was given a cache; wanted .* use_cache=False"):
            teacher(tokens)
        teacher(tokens, use_cache=False)
        assert distillation.loss().item() == pytest.approx(0.0, abs=1e-10)


def test_what_the_teacher_adds_in_place_is_not_learnt():
    """Neither to an attention's output nor to its input."""

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (nn.MultiheadAttention(16, 2, batch_first=True) for _ in range(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + 0
            y = self.first(x, x, x)[0]
            y += x
            y += self.second(y, y, y)[0]
            return y

    torch.manual_seed(0)
    teacher = Residual()
    with AttentionDistillation(teacher, copy.deepcopy(teacher)) as distillation:
        assert run(teacher, distillation).item() == pytest.approx(0.0, abs=1e-10)
