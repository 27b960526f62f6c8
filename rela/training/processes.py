"""One process or several: what torchrun started, and the few values that its processes exchange."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from rela.device import pick_device
from rela.errors import RunFailed
from rela.files import lock


@dataclass(frozen=True)
class Processes:
    """This process among `world` of them, and the device it computes on."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and prints."""
        return self.rank == 0

    def total(self, value: float) -> float:
        """The sum of a number over all processes."""
        if self.world == 1:
            return value
        tensor = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor)
        return tensor.item()

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        return self.total(float(flag)) > 0

    def wait(self) -> None:
        """Return when all processes have come here."""
        if self.world > 1:
            dist.barrier()


@contextlib.contextmanager
def join_processes(device: str) -> Iterator[Processes]:
    """Join the group that torchrun started (gloo on CPU, nccl on GPU), or be alone."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    rank, local = int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))
    chosen = pick_device(device)
    if chosen.type == "cuda":
        chosen = torch.device("cuda", local) if chosen.index is None or world > 1 else chosen
        torch.cuda.set_device(chosen)
    if world == 1:
        yield Processes(0, 1, chosen)
        return
    dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo", rank=rank, world_size=world)
    try:
        yield Processes(rank, world, chosen)
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            reason = " ".join(str(error).split())
            raise RunFailed(f"another of the {world} processes of this run has ended ({reason[:200]})") from error
        raise
    finally:
        dist.destroy_process_group()


@contextlib.contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Keep a second run out of a directory: two would take each other's checkpoints away."""
    if os.name == "nt":  # where a folder cannot be opened, and there is no lock
        yield
        return
    directory.mkdir(parents=True, exist_ok=True)
    handle = os.open(directory, os.O_RDONLY)  # the directory itself is locked, so that no file is left
    try:
        with contextlib.suppress(OSError):  # a file system that knows no locks
            lock(handle, f"another run is training in {directory}; wait for it, or choose another train.directory")
        yield
    finally:
        os.close(handle)
