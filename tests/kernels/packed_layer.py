"""A small self-attention layer over packed rows, as a model has it, for tests that compile or capture."""

import torch

from rela.kernels.attention.functional import relu_attention_packed
from rela.kernels.layers.rms_norm import rms_norm
from rela.packing import Packing
from tests.kernels.exactness import DEVICE, draw


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project, self.merge = torch.nn.Linear(128, 384), torch.nn.Linear(128, 128)
        self.gain, self.gate = (torch.nn.Parameter(torch.ones(128)) for _ in range(2))
        self.threshold = torch.nn.Parameter(torch.zeros(4))

    def forward(self, x, cu, seed):
        q, k, v = self.project(x).view(-1, 3, 4, 32).unbind(1)
        packing = Packing(cu, 100)
        z = relu_attention_packed(
            q, k, v, packing, packing, scale=0.2, causal=True, threshold=self.threshold, dropout=0.1, seed=seed
        )
        return x + self.merge(rms_norm(z.flatten(1), self.gain, self.gate, 1e-6))


def layer_and_inputs():
    torch.manual_seed(0)
    cu = torch.tensor([0, 100, 130, 200], dtype=torch.int32, device=DEVICE)
    return Layer().to(DEVICE), draw(210, 128, seed=1), cu, torch.tensor(7, device=DEVICE)
