"""FSDP2: parameters, gradients and optimiser spread over the processes, for models that do not fit one GPU.

A checkpoint's weights are gathered, one tensor at a time, into the host memory of the first process, so that every
checkpoint is a model folder. The optimiser, twice as large, is never gathered: each process writes its own part by
`torch.distributed.checkpoint`, as safetensors. Any number of processes can read the parts again, one too.
"""

from __future__ import annotations

import contextlib
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from rela.errors import RunFailed
from rela.model.folder import unique_weights
from rela.model.transformer import Transformer
from rela.training.loss import Objective
from rela.training.processes import Processes


def shard(objective: Objective, processes: Processes) -> None:
    """Spread an objective's parameters over the processes, each layer by itself; its modules gather them when called.

    Parameters go to the processes' device here, layer by layer, so that it never holds the whole model.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(processes.device.type, (processes.world,))
    for layer in [*objective.model.encoder, *objective.model.decoder]:
        fully_shard(layer, mesh=mesh)
    fully_shard(objective, mesh=mesh)


def whole_weights(model: Transformer, processes: Processes) -> dict[str, Tensor]:
    """Copies of the weights of a model, gathered into the host memory of the first process; empty elsewhere."""
    weights = {}
    for name, tensor in unique_weights(model).items():
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if processes.first:
            weights[name] = whole.detach().to("cpu", copy=True)
    return weights


def like(tensor: Tensor, wanted: Tensor) -> Tensor:
    """A whole tensor spread as `wanted` is, or as it is where `wanted` is whole too."""
    if not isinstance(wanted, DTensor) or isinstance(tensor, DTensor):
        return tensor
    whole = tensor.to(wanted.device_mesh.device_type)
    return distribute_tensor(whole, wanted.device_mesh, wanted.placements, src_data_rank=None)


def is_finite(tensor: Tensor) -> bool:
    """Whether all numbers of a tensor are finite; of a tensor that is spread, those of this process."""
    return bool((tensor.to_local() if isinstance(tensor, DTensor) else tensor).isfinite().all())


def write_parts(folder: Path, tensors: dict[str, Tensor], processes: Processes) -> None:
    """Write named tensors as safetensors, each process those parts that it holds; called by all processes."""
    import torch.distributed.checkpoint as dcp

    if processes.first:
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
    processes.wait()
    writer = dcp.HuggingFaceStorageWriter(str(folder), save_distributed=True)
    try:
        dcp.save(at_least_1d(tensors), storage_writer=writer)
    except dcp.CheckpointException as error:
        reason = next(iter(error.failures.values()))[0]
        raise RunFailed(f"the optimiser's part could not be written to {folder}: {reason}") from None


def read_parts(folder: Path, wanted: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of the names, sizes and spread of `wanted`, read from parts that any number of processes wrote."""
    import torch.distributed.checkpoint as dcp

    tensors = at_least_1d({name: torch.empty_like(tensor) for name, tensor in wanted.items()})
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # one process reads all parts
            dcp.load(tensors, storage_reader=dcp.HuggingFaceStorageReader(str(folder)))
    except dcp.CheckpointException as error:
        reason = next(iter(error.failures.values()))[0]
        raise RunFailed(f"{folder} is damaged or of another model: {reason}") from None
    return {name: tensor.reshape(wanted[name].shape) for name, tensor in tensors.items()}


@contextlib.contextmanager
def gradients_shared(objective: nn.Module, last: bool) -> Iterator[None]:
    """Within this, a backward pass adds up gradients over the processes, or leaves that to the `last` one of a step."""
    if isinstance(objective, FSDPModule):
        objective.set_requires_gradient_sync(last)
    if isinstance(objective, DistributedDataParallel) and not last:
        with objective.no_sync():
            yield
    else:
        yield


def at_least_1d(tensors: dict[str, Tensor]) -> dict[str, Any]:
    """The same tensors, single numbers as vectors of one: the reader slices what it reads."""
    return {name: tensor if tensor.dim() else tensor[None] for name, tensor in tensors.items()}
