"""Batches of the GPU engine: sources packed with their blocks of queries, and no more than the buffers hold."""

from __future__ import annotations

from rela.data.subwords import EOS
from rela.decoding.engines import gpu_batches
from rela.decoding.engines.gpu_batches import pack_sources, smallest_size


def test_packed_sources_and_their_blocks():
    packed = pack_sources([[5, 6], [7] * 40, [8]])
    assert packed.ids.tolist() == [5, 6, EOS, *[7] * 40, EOS, 8, EOS]
    assert packed.positions.tolist() == [0, 1, 2, *range(41), 0, 1]
    assert packed.blocks.tolist() == [[0, 3, 0, 3], [3, 32, 3, 41], [35, 9, 3, 41], [44, 2, 44, 2]]


def test_batches_fit_into_the_buffers(monkeypatch):
    monkeypatch.setattr(gpu_batches, "MAX_SENTENCES", 3)
    monkeypatch.setattr(gpu_batches, "MAX_CACHE_ENTRIES", 100)
    limits = [9, 9, 9, 9, 24, 9, 60, 1, 1, 1, 1]
    found = [limits[part] for part in gpu_batches.fitting_slices(limits, beam=2)]
    assert found == [[9, 9, 9], [9, 24], [9], [60], [1, 1, 1], [1]]


def test_sizes_are_few_and_close():
    assert [smallest_size(n) for n in (0, 8, 9, 12, 13, 17, 24, 25, 33, 97)] == [8, 8, 12, 12, 16, 24, 24, 32, 48, 128]
    for number in range(1, 3000):
        assert number <= smallest_size(number) <= max(8, number * 1.5)
