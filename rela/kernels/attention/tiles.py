"""Tile sizes by a small rule: head size, type and length decide, nothing is tuned at run time.

The numbers are the best of benchmarks/attention_tiles.py on an H200.
"""

from dataclasses import dataclass

import torch

from rela.kernels.attention.problem import Problem


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


@dataclass(frozen=True)
class HopperTiles:
    """Queries of each of two warpgroups, keys of a tile; parts of a head, and numbers of a part with their zeros.

    Parts under way, tiles of queries under way, and whether scores are computed while the product with the values of
    the tile before runs.
    """

    rows: int
    keys: int
    columns: int
    stages: int
    query_stages: int
    parts: int = 1
    ahead: bool = True


@dataclass(frozen=True)
class HopperGradientTiles:
    """Queries of a tile, numbers of a part of a head, tiles under way, and whether scores are computed one tile ahead.

    Parts of a head: if there are several, a program owns the keys of one warpgroup, else those of two.
    """

    queries: int
    columns: int
    stages: int
    prefetch: bool
    parts: int = 1


SHORT = 128  # sequences up to this length leave large tiles half empty


def skips(problem: Problem) -> bool:
    """Whether looking for empty tiles is likely to pay.

    The branch stops V from being loaded ahead, which cost more than it saved wherever it was measured without a mask,
    even with 94 % of the tiles empty. Under a mask little is loaded ahead anyway, and whole tiles are often hidden.
    A bias hides few of them. Only a rectifier has no slope where its weight is zero.
    """
    return problem.mask is not None and problem.record.rectifies and not problem.biased


def one_pass(problem: Problem) -> bool:
    """Whether dQ by atomic additions beats a second pass over the keys: while few programs add to one row."""
    return problem.typical_keys <= SHORT


def exact_tiles(problem: Problem) -> Tiles:
    """Three products for one take many registers, so float32 tiles are small."""
    D = problem.q.shape[-1]
    edge = 32 if D <= 128 else 16
    return Tiles(edge, edge, 4 if D <= 64 else 8, 2, skips(problem))


def forward_tiles(problem: Problem, statistics: bool = False) -> Tiles:
    D, skip = problem.q.shape[-1], skips(problem)
    if problem.q.dtype == torch.float32:
        return exact_tiles(problem)
    if problem.typical_queries <= SHORT:
        return Tiles(32, 32 if D <= 128 else 16, 4, 2, skip)
    if D > 128 or problem.mask is not None:
        return Tiles(64, 64 if D <= 128 else 32, 4, 2, skip)
    return Tiles(128, 64, 4 if D <= 64 and not statistics else 8, 3, skip)


def query_gradient_tiles(problem: Problem) -> Tiles:
    D, skip = problem.q.shape[-1], skips(problem)
    if problem.q.dtype == torch.float32:
        return exact_tiles(problem)
    if problem.typical_queries <= SHORT:
        return Tiles(32, 32 if D <= 128 else 16, 4, 2, skip)
    if D > 128:
        return Tiles(64, 32, 8, 2, skip)
    return Tiles(128, 64, 8, 3, skip)


def key_gradient_tiles(problem: Problem, atomic: bool) -> Tiles:
    D, skip = problem.q.shape[-1], skips(problem)
    if problem.q.dtype == torch.float32:
        return exact_tiles(problem)
    if problem.typical_keys <= SHORT:
        return Tiles(32 if D <= 128 else 16, 32 if atomic or D > 64 else 64, 4, 2, skip)
    if D > 128:
        return Tiles(32, 64, 8, 2, skip)
    return Tiles(64, 128, 8, 3, skip)


def simplex_tiles(problem: Problem) -> Tiles:
    """For the kernels of simplex.py with a program for each tile of queries, forward and backward.

    The search runs in registers where the keys of a tile of queries fit one tile of keys.
    """
    D = problem.q.shape[-1]
    if problem.q.dtype == torch.float32:
        return Tiles(16, 64 if D <= 64 else 32 if D <= 128 else 16, 4 if D <= 128 else 8, 1)
    if D > 64:
        return Tiles(32, 64, 4, 2) if D <= 128 else Tiles(32, 32, 8, 2)
    if problem.typical_keys <= SHORT:
        return Tiles(32, 128, 4, 1)
    return Tiles(64, 64, 4, 2)


def simplex_key_tiles(problem: Problem) -> Tiles:
    """For the kernel with a program for each tile of keys."""
    D = problem.q.shape[-1]
    if problem.q.dtype == torch.float32:
        return Tiles(16, 32, 4, 1) if D <= 64 else Tiles(16, 16, 8, 1)
    if D > 64:
        return Tiles(32, 64 if D <= 128 else 32, 8, 2)
    return Tiles(32 if problem.typical_keys <= SHORT else 64, 64, 4, 2)
