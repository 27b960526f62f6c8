"""Adam with a rate that is set from step to step."""

import torch
from torch import nn
from torch.testing import assert_close

from rela.config import TrainConfig
from rela.training.optimiser import apply_gradients, make_optimiser, rate_of, set_rate

CPU = torch.device("cpu")


def test_the_rate_is_zero_until_it_is_set():
    model = nn.Linear(3, 2)
    optimiser = make_optimiser(model, TrainConfig(), CPU)
    before = model.weight.detach().clone()
    model(torch.ones(1, 3)).sum().backward()
    apply_gradients(optimiser, model, 0.0)
    assert torch.equal(model.weight, before)
    assert model.weight.grad is None
    set_rate(optimiser, 0.5)
    assert rate_of(optimiser) == 0.5


def test_the_first_step_of_adam_is_the_rate_against_the_gradients_sign():
    model = nn.Linear(3, 2, bias=False)
    settings = TrainConfig()
    optimiser = make_optimiser(model, settings, CPU)
    set_rate(optimiser, 0.01)
    before = model.weight.detach().clone()
    (model(torch.tensor([[1.0, -2.0, 3.0]]))).sum().backward()
    apply_gradients(optimiser, model, 0.0)
    assert_close(before - model.weight, 0.01 * torch.tensor([[1.0, -1.0, 1.0]]).expand(2, 3), rtol=1e-5, atol=1e-7)
    assert optimiser.defaults["betas"] == (settings.beta1, settings.beta2)


def test_long_gradients_are_clipped():
    model = nn.Linear(3, 1, bias=False)
    clipped, plain = (torch.optim.SGD(model.parameters(), lr=1.0) for _ in range(2))
    before = model.weight.detach().clone()
    (100 * model(torch.ones(1, 3))).sum().backward()
    apply_gradients(clipped, model, 2.0)
    assert_close((before - model.weight).norm(), torch.tensor(2.0), rtol=1e-4, atol=0)
    before = model.weight.detach().clone()
    model(torch.ones(1, 3)).sum().backward()
    apply_gradients(plain, model, 2.0)
    assert_close(before - model.weight, torch.ones(1, 3))  # short ones are left as they are


def test_adamw_decays_matrices_alone_and_apart_from_the_gradient():
    """Two steps at rate 0.1 with decay 0.5 and no gradient: matrices shrink by 0.95 each, vectors stay."""
    model = nn.Sequential(nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 3))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimiser = make_optimiser(model, TrainConfig(optimiser="adamw", weight_decay=0.5), CPU)
    set_rate(optimiser, 0.1)
    for _ in range(2):
        (0.0 * model(torch.tensor([1, 4])).sum()).backward()
        apply_gradients(optimiser, model, 0.0)
    for name, parameter in model.named_parameters():
        assert_close(parameter, before[name] * (0.95**2 if parameter.dim() == 2 else 1.0))


def test_the_norm_of_all_gradients_is_the_norm_of_one_long_vector():
    model = nn.Linear(3, 2)
    model(torch.tensor([[1.0, 2.0, 2.0]])).sum().backward()
    norm = torch.zeros(())
    apply_gradients(make_optimiser(model, TrainConfig(), CPU), model, 0.0, norm)
    assert_close(norm, torch.tensor((9.0 + 9.0 + 2.0) ** 0.5))  # twice [1, 2, 2], and two biases
