"""Compressed text as a stream: bounded memory whatever a file expands to, and an error for one that is cut short."""

from __future__ import annotations

import io
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

XZ_PIECE, XZ_BLOCK, XZ_MEMORY = 1 << 16, 1 << 20, 1 << 29
"""Bytes read at once, given back at once, and held by the decompressor at most."""
ZST_PIECE = 1 << 10
"""Bytes read at once. Four of them may expand to a block of 128 KiB, and all blocks of a piece come together."""


class BlockReader(io.RawIOBase):
    """A binary file to read from whose bytes come in blocks of any size."""

    def __init__(self, file: IO[bytes], blocks: Iterator[bytes]) -> None:
        self.file, self.blocks = file, blocks
        self.block, self.position = memoryview(b""), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while self.position == len(self.block):
            block = next(self.blocks, None)
            if block is None:
                return 0
            self.block, self.position = memoryview(block), 0
        count = min(len(buffer), len(self.block) - self.position)
        buffer[:count] = self.block[self.position : self.position + count]
        self.position += count
        return count

    def close(self) -> None:
        self.file.close()
        super().close()


def open_xz(path: Path) -> IO[bytes]:
    """An .xz or .lzma file of one or more streams, for reading."""
    file = path.open("rb")
    return io.BufferedReader(BlockReader(file, xz_blocks(file)), buffer_size=1 << 17)


def open_zst(path: Path) -> IO[bytes]:
    """A Zstandard file of one or more frames, for reading."""
    file = path.open("rb")
    return io.BufferedReader(BlockReader(file, zst_blocks(file)), buffer_size=1 << 17)


def xz_blocks(file: IO[bytes]) -> Iterator[bytes]:
    """The expanded bytes of a file; other data after a stream is an error, which Python's own reader passes over."""
    stream = lzma.LZMADecompressor(memlimit=XZ_MEMORY)
    begun, ended = False, False
    while data := file.read(XZ_PIECE):
        while data:
            if ended:
                data = data.lstrip(b"\0")  # streams may be padded
                if not data:
                    break
                stream, begun, ended = lzma.LZMADecompressor(memlimit=XZ_MEMORY), True, False
            try:
                yield stream.decompress(data, XZ_BLOCK)
                while not stream.eof and not stream.needs_input:
                    yield stream.decompress(b"", XZ_BLOCK)
            except lzma.LZMAError as error:
                raise OSError(f"{error}, after the end of a stream" if begun else str(error)) from None
            data, ended = stream.unused_data if stream.eof else b"", stream.eof
    if not ended and (begun or file.tell()):
        raise EOFError("compressed file ended before its last stream was complete")


def zst_blocks(file: IO[bytes]) -> Iterator[bytes]:
    """The expanded bytes of a file; the stream reader of `zstandard` takes a truncated file for a complete one."""
    import zstandard

    new_frame = zstandard.ZstdDecompressor().decompressobj
    frame: Any = None
    while data := file.read(ZST_PIECE):
        while data:
            frame = frame or new_frame()
            try:
                yield frame.decompress(data)
            except zstandard.ZstdError as error:
                raise OSError(str(error)) from None
            data, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    if frame is not None:
        raise EOFError("compressed file ended before its last frame was complete")
