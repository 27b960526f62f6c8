"""Beam search that stays on the device: the host launches one graph a step and looks, late, at who is done.

`rela.decoding.beam.Search` is the specification. Sentences of a batch live at places of static buffers; a step serves the
sentences in its seats, and when enough of them are done the others are seated in a smaller step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rela.data.subwords import BOS, EOS, PAD, UNK
from rela.decoding.beam import Hypothesis, length_penalty
from rela.decoding.engines.cuda_graphs import Graphs
from rela.decoding.engines.gpu_network import ENCODER_QUERIES, Network

Answers = Callable[[], Iterator[list[Hypothesis]]]
"""Waits for a search that has been launched, and gives the hypotheses of each source, made one source at a time."""
Meanwhile = Iterator[object]
"""Short pieces of work, one at each `next`. A thread would not do: while it makes text, it keeps Python to itself."""
NOTHING: Meanwhile = iter(())

# Sentences of a batch at most, and the sizes of steps.
PLACES = 256
SEATS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
# Slots of a batch at most, unless one sentence needs more: 3 GiB of cache for Transformer base in bfloat16.
SLOTS = 1 << 18
# The host looks at who is done after so many steps, and reads each look when the steps after it are already queued.
LOOK_EVERY = 2
# Bytes of pageable memory of which CUDA takes its own copy at once; beyond, it waits for the device.
PAGEABLE = 1 << 16
# Encoders of up to so many tokens are graphs; larger ones keep the device busy without.
ENCODER_GRAPH_TOKENS = 1 << 14


@dataclass(frozen=True)
class Sizes:
    """What the static buffers hold: packed source tokens, and slots (positions of places) of the cache."""

    tokens: int
    slots: int

    def holds(self, other: Sizes) -> bool:
        return self.tokens >= other.tokens and self.slots >= other.slots


class DeviceSearch:
    """Beam search with one network, beam and length penalty; buffers grow to the largest batch seen."""

    def __init__(self, network: Network, beam: int, alpha: float) -> None:
        self.network, self.beam, self.device = network, beam, network.device
        self.count = 2 * beam if beam > 1 else 1
        longest = network.config.max_length + 2
        penalties = [1.0, *(length_penalty(n, alpha) for n in range(1, longest))]
        self.penalties = torch.tensor(penalties, dtype=torch.float32, device=self.device)
        self.banned = torch.tensor([PAD, BOS, UNK], dtype=torch.int32, device=self.device)
        self.buffers: Buffers | None = None

    def search(self, sources: Sequence[Sequence[int]], limits: Sequence[int]) -> list[list[Hypothesis]]:
        """Hypotheses of each source, best first; limits are those of `beam_search`."""
        return list(self.search_later(lay_out(sources, limits, self.beam))())

    def search_later(
        self, chunks: Iterable[Chunk], nbest: int | None = None, meanwhile: Meanwhile = NOTHING
    ) -> Answers:
        """`search` whose last steps may still be under way; the call that gives its answers waits for them.

        The next search may begin before: the device copies the answers out first. Of all hypotheses, or of the
        `nbest` best of each source alone, which are fewer to make. Where the host would wait for the device, it does
        pieces of what there is to do `meanwhile`.
        """
        nbest = self.beam if nbest is None else min(nbest, self.beam)
        found = [self.search_chunk(chunk, nbest, meanwhile) for chunk in chunks]
        return lambda: chain.from_iterable(answers() for answers in found)

    def search_chunk(self, chunk: Chunk, nbest: int, meanwhile: Meanwhile) -> Answers:
        buffers, limits = self.begin(chunk), chunk.limits
        living = list(range(len(limits)))
        seats = smallest_above(len(living), SEATS)
        looks = deque[Look]()
        steps = max(limits) + 1
        while steps > 0:
            if (enough := smallest_above(len(living), SEATS)) != seats:
                seats = enough
                buffers.seat(living)
            for _ in range(min(steps, LOOK_EVERY)):
                buffers.graphs(("step", seats), lambda seats=seats: self.step(seats))  # type: ignore[misc]
            steps -= LOOK_EVERY
            looks.append(buffers.look())
            if len(looks) > 1:
                done = looks.popleft().read(meanwhile)
                living = [place for place in living if not done[place]]
                if not living:
                    break
        return self.collect(len(limits), max(limits), nbest)

    def begin(self, chunk: Chunk) -> Buffers:
        """Encode the sources into the buffers and put an empty hypothesis at each place."""
        from rela.kernels.search import beam_step

        layout, limits = chunk.layout, chunk.limits
        room = max(limits) + 1
        needed = Sizes(layout.padded_tokens, len(limits) * room * self.beam)
        if self.buffers is None or not self.buffers.sizes.holds(needed):
            old = Sizes(0, 0) if self.buffers is None else self.buffers.sizes
            self.buffers = None  # its memory is free before the new ones are made
            self.buffers = Buffers(self, Sizes(grown(old.tokens, needed.tokens), grown(old.slots, needed.slots)))
        buffers = self.buffers
        buffers.fill(layout, limits, room)
        tokens, blocks = layout.padded_tokens, layout.padded_blocks

        def encode() -> None:
            self.network.encode(
                buffers.ids[:tokens], buffers.positions[:tokens], buffers.blocks, blocks, buffers.memory[:tokens]
            )

        if tokens <= ENCODER_GRAPH_TOKENS:
            buffers.graphs(("encode", tokens, blocks), encode)
        else:
            encode()
        beam_step.begin(buffers.state, len(limits), BOS)
        return buffers

    def step(self, seats: int) -> None:
        """One token of every sentence in the first seats: the network, the candidates, the search."""
        from rela.kernels.search import beam_step, top_candidates

        buffers, network = self.buffers, self.network
        assert buffers is not None
        state = buffers.state
        rows, vocabulary = seats * self.beam, network.output.size(0)
        in_chain = rows <= network.chain_rows
        hidden = network.step(
            state, buffers.places, buffers.room, buffers.cache, buffers.memory, buffers.seated, sentences=seats,
            beam=self.beam, in_chain=in_chain,
        )  # fmt: skip
        logits = torch.empty(rows, vocabulary, device=self.device)
        tiles = torch.empty(3, rows, top_candidates.tiles_of(vocabulary), device=self.device)
        top_candidates.tile_logits(hidden, network.output, self.banned, logits, tiles, in_chain=in_chain)
        log_probs = torch.empty(rows, self.count, device=self.device)
        tokens = torch.empty(rows, self.count, dtype=torch.int32, device=self.device)
        top_candidates.best_tokens(
            logits, tiles, buffers.places, state.lengths, buffers.limits, self.banned, log_probs, tokens, beam=self.beam,
            eos=EOS, in_chain=in_chain,
        )  # fmt: skip
        beam_step.advance(
            state, log_probs, tokens, buffers.places, buffers.limits, buffers.room, self.penalties, sentences=seats,
            vocabulary=vocabulary, eos=EOS, in_chain=in_chain,
        )  # fmt: skip

    def collect(self, count: int, longest: int, nbest: int) -> Answers:
        """The best finished hypotheses of each place, once they have come to the host."""
        from rela.kernels.search import beam_step

        buffers = self.buffers
        assert buffers is not None
        found = torch.empty(count, nbest, 3 + longest, dtype=torch.int32, device=self.device)
        beam_step.read_back(buffers.state, buffers.room, found, places=count)
        copy, event = copy_to_host(found)

        def answers() -> Iterator[list[Hypothesis]]:
            if event is not None:
                event.synchronize()
            for rows in copy.numpy():
                scores = rows[:, :2].copy().view(np.float32).tolist()
                yield [
                    Hypothesis(tuple(row[3 : 3 + row[2]]), log_prob, score)
                    for row, (score, log_prob) in zip(rows.tolist(), scores, strict=True)
                    if score > float("-inf")
                ]

        return answers


class Buffers:
    """Static tensors of one size, and the graphs that were captured over them."""

    def __init__(self, search: DeviceSearch, sizes: Sizes) -> None:
        from rela.kernels.search.beam_step import Hypotheses

        network, beam, device = search.network, search.beam, search.device
        self.sizes, self.beam, self.device = sizes, beam, device
        self.graphs = Graphs(device)
        width, layers = network.config.width, network.config.decoder_layers
        self.cache = torch.empty(layers, 2, sizes.slots, width, dtype=network.dtype, device=device)
        self.memory = torch.empty(sizes.tokens, layers * 2 * width, dtype=network.dtype, device=device)

        def table(dtype: torch.dtype, *size: int) -> Tensor:
            return torch.zeros(*size, dtype=dtype, device=device)

        self.state = Hypotheses(
            alive=table(torch.float32, PLACES, beam), finished=table(torch.float32, PLACES, beam),
            finished_log_probs=table(torch.float32, PLACES, beam), finished_lengths=table(torch.int32, PLACES, beam),
            finished_rows=table(torch.int32, PLACES, beam), last=table(torch.int32, PLACES, beam),
            lengths=table(torch.int32, PLACES), done=table(torch.int32, PLACES), heirs=table(torch.int32, sizes.slots),
            tokens=table(torch.int32, sizes.slots), parents=table(torch.int8, sizes.slots),
        )  # fmt: skip
        # All that a batch brings, in one tensor and so in one copy.
        most_blocks = sizes.tokens // ENCODER_QUERIES + PLACES + 1
        lengths = [sizes.tokens, sizes.tokens, 4 * smallest_above(most_blocks), PLACES, 5 * PLACES, 1]
        self.inputs, self.starts = table(torch.int32, sum(lengths)), np.cumsum([0, *lengths[:-1]])
        self.ids, self.positions, blocks, self.limits, self.seating, self.room = self.inputs.split(lengths)
        self.blocks = blocks.view(-1, 4)
        self.places, self.seated = self.seating[:PLACES], self.seating[PLACES:].view(PLACES, 4)
        self.pages = [Page.on(device) for _ in range(3)]

    def fill(self, layout: Layout, limits: Sequence[int], room: int) -> None:
        """Bring a batch, every sentence of it in a seat."""
        self.layout = layout
        seating = self.seats_of(range(len(limits)))
        parts = [layout.ids, layout.positions, layout.blocks.ravel(), np.array(limits), seating, np.array([room])]
        inputs = np.zeros(self.inputs.numel(), dtype=np.int32)
        for start, part in zip(self.starts, parts, strict=True):
            inputs[start : start + len(part)] = part
        upload(inputs, self.inputs)

    def seat(self, living: list[int]) -> None:
        """Let the next steps serve these places; the other seats stay empty."""
        upload(self.seats_of(living), self.seating)

    def seats_of(self, living: Sequence[int]) -> NDArray[np.int32]:
        """The places in the first seats, [PLACES], and their rows and keys as a table [PLACES, 4]."""
        count = len(living)
        places = np.full(PLACES, -1, dtype=np.int32)
        places[:count] = living
        table = np.zeros((PLACES, 4), dtype=np.int32)
        table[:count, 0] = np.arange(count) * self.beam
        table[:count, 1] = self.beam
        table[:count, 2] = self.layout.starts[places[:count]]
        table[:count, 3] = self.layout.lengths[places[:count]]
        return np.concatenate([places, table.ravel()])

    def look(self) -> Look:
        """Ask who is done, to be read later."""
        page = self.pages[0]
        self.pages = [*self.pages[1:], page]
        page.done.copy_(self.state.done, non_blocking=True)
        if page.event is not None:
            page.event.record()
        return Look(page)


@dataclass(frozen=True)
class Page:
    """Host memory for one look, and the event that says it has come."""

    done: Tensor
    event: torch.cuda.Event | None

    @staticmethod
    def on(device: torch.device) -> Page:
        cuda = device.type == "cuda"
        done = torch.zeros(PLACES, dtype=torch.int32, pin_memory=cuda)
        return Page(done, torch.cuda.Event() if cuda else None)


@dataclass(frozen=True)
class Look:
    """Who is done, as it was when the look was asked for."""

    page: Page

    def read(self, meanwhile: Meanwhile) -> list[int]:
        event = self.page.event
        if event is not None:
            while not event.query() and next(meanwhile, NOTHING) is not NOTHING:
                pass
            event.synchronize()
        return self.page.done.tolist()


@dataclass(frozen=True)
class Layout:
    """Sources packed one after another, each with its </s>, and cut into blocks of queries for the encoder."""

    ids: NDArray[np.int32]
    positions: NDArray[np.int32]
    starts: NDArray[np.int32]
    lengths: NDArray[np.int32]
    blocks: NDArray[np.int32]
    """[blocks, 4]: first query, queries, first key, keys."""

    @staticmethod
    def of(sources: Sequence[Sequence[int]]) -> Layout:
        lengths = np.fromiter((len(source) + 1 for source in sources), np.int32, len(sources))
        starts = np.cumsum(lengths, dtype=np.int32) - lengths
        tokens = chain.from_iterable((*source, EOS) for source in sources)
        ids = np.fromiter(tokens, np.int32, int(lengths.sum()))
        positions = np.arange(len(ids), dtype=np.int32) - np.repeat(starts, lengths)
        per_sentence = -(-lengths // ENCODER_QUERIES)
        sentence = np.repeat(np.arange(len(sources)), per_sentence)
        offset = (
            np.arange(len(sentence)) - np.repeat(np.cumsum(per_sentence) - per_sentence, per_sentence)
        ) * ENCODER_QUERIES
        queries = np.minimum(ENCODER_QUERIES, lengths[sentence] - offset)
        blocks = np.stack([starts[sentence] + offset, queries, starts[sentence], lengths[sentence]], 1).astype(np.int32)
        return Layout(ids, positions, starts, lengths, blocks)

    @property
    def padded_tokens(self) -> int:
        """Rounded up, so that few graphs serve all batches."""
        return smallest_above(len(self.ids))

    @property
    def padded_blocks(self) -> int:
        return smallest_above(len(self.blocks))


@dataclass(frozen=True)
class Chunk:
    """Sentences that fit into the buffers together, laid out, and how long each translation may be."""

    layout: Layout
    limits: Sequence[int]


def lay_out(sources: Sequence[Sequence[int]], limits: Sequence[int], beam: int) -> list[Chunk]:
    """What `search_later` takes: all of a search that can be done before the device is free for it."""
    return [Chunk(Layout.of(sources[part]), limits[part]) for part in chunks_of(limits, beam)]


def chunks_of(limits: Sequence[int], beam: int) -> Iterator[slice]:
    """Consecutive sentences that fit into the buffers together."""
    start = 0
    while start < len(limits):
        end, longest = start + 1, limits[start]
        while end < len(limits) and end - start < PLACES:
            longest = max(longest, limits[end])
            if (end + 1 - start) * (longest + 1) * beam > SLOTS:
                break
            end += 1
        yield slice(start, end)
        start = end


def smallest_above(number: int, sizes: Iterable[int] | None = None) -> int:
    """The smallest of the sizes that is not below the number; without sizes, of 8, 12, 16, 24, 32, 48, ...."""
    if sizes is not None:
        return min(size for size in sizes if size >= number)
    power = max(8, 1 << (max(number, 1) - 1).bit_length())
    return power * 3 // 4 if power > 8 and number <= power * 3 // 4 else power


def grown(old: int, needed: int) -> int:
    """Room for what is needed and, where it grows, some more, so that it seldom grows."""
    return old if old >= needed else smallest_above(needed)


def upload(array: NDArray[np.int32], out: Tensor) -> None:
    """Copy to the device, and wait for nothing."""
    source = torch.from_numpy(array)
    out.copy_(source.pin_memory() if out.is_cuda and array.nbytes > PAGEABLE else source, non_blocking=True)


def copy_to_host(tensor: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
    """A copy on the host, and the event that says it has come."""
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
    copy.copy_(tensor, non_blocking=True)
    event = torch.cuda.Event() if tensor.is_cuda else None
    if event is not None:
        event.record()
    return copy, event
