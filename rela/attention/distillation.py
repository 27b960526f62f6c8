"""A student's attentions learn a teacher's outputs: from softmax to another kind without starting over."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rela.attention.hugging_face import attentions
from rela.attention.multihead import MultiheadAttention


def attention_names(model: nn.Module) -> list[str]:
    """The names of the attentions inside a model: those of Hugging Face, of PyTorch and of this library."""
    ours = [
        name for name, part in model.named_modules() if isinstance(part, (MultiheadAttention, nn.MultiheadAttention))
    ]
    return [*attentions(model), *ours]


class Copies:
    """Copies of tensors, which what follows an attention may change in place (`x += attention(x)`); one of each."""

    def __init__(self) -> None:
        self.made: dict[int, Tensor] = {}

    def of(self, value: Any) -> Any:
        """A copy of a tensor of numbers; a mask of booleans is the same for all layers, and nobody writes to it."""
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        if id(value) not in self.made:
            self.made[id(value)] = value.clone()
        return self.made[id(value)]


class AttentionDistillation:
    """The distance of a student's attentions from those of a teacher, each given the input that the teacher's had.

    The two models have attentions of the same names, as a model and its copy after `replace_attention`. Every layer
    learns by itself and all at once, so an error does not add up through the layers. Use:

        with AttentionDistillation(teacher, student) as distillation:
            with torch.no_grad():
                teacher(**batch)  # use_cache=False for a decoder of transformers
            distillation.loss().backward()
    """

    def __init__(self, teacher: nn.Module, student: nn.Module) -> None:
        names = attention_names(teacher)
        if not names or names != attention_names(student):
            raise ValueError(
                f"the teacher has attentions {names}, the student {attention_names(student)}; wanted the same, and some"
            )
        self.pairs = {name: (teacher.get_submodule(name), student.get_submodule(name)) for name in names}
        self.calls: dict[str, tuple[tuple, dict[str, Any], Tensor]] = {}
        self.handles = [
            attention.register_forward_hook(partial(self.keep, name), with_kwargs=True)
            for name, (attention, _) in self.pairs.items()
        ]

    def keep(self, name: str, module: nn.Module, inputs: tuple, options: dict[str, Any], outputs: Any) -> None:
        """Keep what a teacher's attention was given and gave.

        Not a cache of `transformers`: it holds the teacher's keys, behind which a student would put its own.
        """
        if any(hasattr(value, "get_seq_length") for value in (*inputs, *options.values())):
            raise ValueError(
                f"{name} of the teacher was given a cache; wanted a forward of the teacher with use_cache=False"
            )
        copy = Copies()
        given = {option: copy.of(value) for option, value in options.items()}
        self.calls[name] = tuple(map(copy.of, inputs)), given, copy.of(outputs[0].detach())

    def parameters(self) -> list[nn.Parameter]:
        """The parameters of the student's attentions, each once."""
        found = {id(p): p for _, student in self.pairs.values() for p in student.parameters() if p.requires_grad}
        return list(found.values())

    def loss(self) -> Tensor:
        """The mean over attentions of |student − teacher|² / |teacher|², for the teacher's last forward."""
        if missing := [name for name in self.pairs if name not in self.calls]:
            raise ValueError(f"the teacher has not called {', '.join(missing)}; wanted a forward of the teacher first")
        losses = []
        for name, (inputs, options, wanted) in self.calls.items():
            given = self.pairs[name][1](*inputs, **options)[0]
            losses.append((given - wanted).float().square().sum() / wanted.float().square().sum())
        self.calls.clear()
        return torch.stack([loss.to(losses[0].device) for loss in losses]).mean()

    def __enter__(self) -> AttentionDistillation:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self.handles:
            handle.remove()
        self.calls.clear()
