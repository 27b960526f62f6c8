"""Tile sizes by a small rule: head size, type and length decide, nothing is tuned at run time."""

from dataclasses import dataclass

import torch

from rela.kernels.problem import Problem


@dataclass(frozen=True)
class Tiles:
    """Queries and keys of a tile, warps, pipeline stages, and whether empty tiles are skipped by a branch."""

    queries: int
    keys: int
    warps: int
    stages: int
    skip: bool = False

    def constants(self) -> dict[str, object]:
        return {
            "BT": self.queries,
            "BS": self.keys,
            "SKIP": self.skip,
            "num_warps": self.warps,
            "num_stages": self.stages,
        }


def skips(problem: Problem) -> bool:
    """Whether looking for empty tiles is likely to pay.

    The branch stops V from being loaded ahead, which costs more than it saves while most tiles hold a positive score,
    as they do with θ = 0. A mask or a threshold is a promise of emptier tiles. A leaky weight is never zero, and has a
    slope where it is.
    """
    return problem.activation != "leaky_relu" and (problem.mask is not None or problem.threshold is not None)


def exact_tiles(problem: Problem) -> Tiles:
    """float32 products run on the plain units, where large tiles only cost registers."""
    D = problem.q.shape[-1]
    edge = 32 if D <= 128 else 16
    return Tiles(edge, edge, 4 if D <= 64 else 8, 2, skips(problem))


def forward_tiles(problem: Problem) -> Tiles:
    D, skip = problem.q.shape[-1], skips(problem)
    if problem.q.dtype == torch.float32:
        return exact_tiles(problem)
    if problem.longest_q <= 32:
        return Tiles(32, 32 if D <= 128 else 16, 2 if D <= 64 else 4, 2, skip)
    if problem.longest_q <= 128 or D > 128 or problem.mask is not None:
        return Tiles(64, 64 if D <= 128 else 32, 4, 2, skip)
    return Tiles(128, 128 if D <= 64 else 64, 8 if D > 64 else 4, 3, skip)


def query_gradient_tiles(problem: Problem) -> Tiles:
    D, skip = problem.q.shape[-1], skips(problem)
    if problem.q.dtype == torch.float32:
        return exact_tiles(problem)
    if problem.longest_q <= 32:
        return Tiles(32, 32 if D <= 128 else 16, 4, 2, skip)
    if problem.longest_q <= 128 or D > 128:
        return Tiles(64, 64 if D <= 128 else 32, 4 if D <= 64 else 8, 2, skip)
    return Tiles(128, 64, 8, 2, skip)


def key_gradient_tiles(problem: Problem) -> Tiles:
    D, skip = problem.q.shape[-1], skips(problem)
    if problem.q.dtype == torch.float32:
        return exact_tiles(problem)
    if problem.longest_k <= 32:
        return Tiles(32 if D <= 128 else 16, 32, 4, 2, skip)
    if problem.longest_k <= 128 or D > 128:
        return Tiles(64 if D <= 128 else 32, 64, 4 if D <= 64 else 8, 2, skip)
    return Tiles(64, 128, 8, 2, skip)


def one_pass(problem: Problem) -> bool:
    """Whether dQ by atomic additions beats a second pass over the keys."""
    return True
