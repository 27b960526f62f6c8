"""What tests of batches share: the pairs of a batch, and whether two batches are equal."""

import torch

from rela.data.batch import Batch
from rela.data.subwords import BOS, EOS


def unpack(batch: Batch):
    """The pairs of a batch again, by its boundaries."""
    pairs = []
    for i in range(batch.sentences):
        own = slice(*batch.source_packing.cu_seqlens[i : i + 2])
        source = batch.source[own].tolist()
        own = slice(*batch.target_packing.cu_seqlens[i : i + 2])
        target_in, target_out = batch.target_in[own].tolist(), batch.target_out[own].tolist()
        assert source[-1] == target_out[-1] == EOS
        assert target_in == [BOS, *target_out[:-1]]
        pairs.append((source[:-1], target_out[:-1]))
    return pairs


def equal(left: Batch, right: Batch):
    return all(map(torch.equal, left.tensors(), right.tensors())) and left.shape == right.shape
