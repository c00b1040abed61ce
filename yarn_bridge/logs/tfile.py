"""Hadoop's TFile, read: blocks of keys and values, as NodeManagers aggregate container logs in (their default format).

    magic (16 bytes)
    block, block, ...            each packed by itself (none, gz); read in order, one after the other
    metadata blocks              named; `BCFile.index` lists the blocks above
    meta index                   name, packing and place of each metadata block
    8 bytes: where the meta index is; 2 + 2: version; magic again

A block is a sequence of records: length and bytes of the key, then the value in chunks, each after its length. A
negative length says that another chunk follows. Integers are in a variable encoding of TFile's own (`Stream.vint`).
Strings are a length and UTF-8.

Nothing is kept but the piece at hand: a value of any size passes through in pieces. Only the index is held whole.
Format: the Javadoc of org.apache.hadoop.io.file.tfile (TFile, BCFile, Utils), and files that NodeManagers of Hadoop
3.3 and 3.4 wrote.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from policy.model import BadInput

MAGIC = bytes.fromhex("d111d36891b5d7b639df414092bae150")
_TAIL = 8 + 4 + len(MAGIC)
_DATA_INDEX = "data:BCFile.index"
PIECE = 1 << 16
_LARGEST_INDEX = 64 << 20  #: bytes; ten times that of a terabyte of logs
_LARGEST_KEY = 64 << 10  #: as TFile itself says

NEXT = "read it with Hadoop's own client: yarn logs -applicationId APPLICATION | horae profile -"
#: the packings of a TFile that Python can undo
_ZLIB = "gz"
_PLAIN = "none"


class Source(Protocol):
    """A file of known length that can be read from anywhere."""

    @property
    def name(self) -> str: ...

    @property
    def length(self) -> int: ...

    def pieces(self, offset: int, length: int) -> Iterator[bytes]:
        """Fewer bytes where the file ends."""
        ...


class Damaged(BadInput):
    """A file that is not what it should be: says where in it, and what stands there."""

    def __init__(self, name: str, offset: int, message: str, value: object = None) -> None:
        self.offset = offset
        shown = "" if value is None else f" {value!r}"
        super().__init__(message + shown, where=name, field=f"byte {offset}", value=value, remedy=NEXT)


@dataclass(frozen=True, slots=True)
class Block:
    offset: int  #: in the file
    packed: int  #: bytes there
    size: int  #: bytes once unpacked


class Reader(ABC):
    """What can be read from bytes in their order. `name`: of the file, for errors."""

    name: str

    @property
    @abstractmethod
    def offset(self) -> int:
        """Where in the file; in a packed block, where it would be were it not packed."""

    @abstractmethod
    def some(self, most: int) -> bytes:
        """At least one byte and at most `most`; none at the end."""

    def take(self, count: int) -> bytes:
        """Exactly so many. Raises Damaged where there are fewer."""
        data = self.some(count) if count else b""
        while len(data) < count:
            more = self.some(count - len(data))
            if not more:
                raise Damaged(self.name, self.offset, f"it ends {count - len(data)} bytes too early")
            data += more
        return data

    def number(self, size: int) -> int:
        """Of so many bytes, big-endian, with a sign."""
        return int.from_bytes(self.take(size), "big", signed=True)

    def vint(self) -> int:
        first = self.number(1)
        if first >= -32:
            return first
        if first >= -72:
            return (first + 52 << 8) | self.take(1)[0]
        if first >= -104:
            return (first + 88 << 16) | int.from_bytes(self.take(2), "big")
        if first >= -120:
            return (first + 112 << 24) | int.from_bytes(self.take(3), "big")
        if first >= -125:
            return self.number(first + 129)
        raise Damaged(self.name, self.offset - 1, "no integer begins with", first & 0xFF)

    def count(self, most: int, what: str) -> int:
        """A `vint` that must be in range. Raises Damaged."""
        at = self.offset
        found = self.vint()
        if not 0 <= found <= most:
            raise Damaged(self.name, at, f"{what} is not between 0 and {most}:", found)
        return found

    def text(self) -> str:
        at = self.offset
        return utf8(self.take(self.count(_LARGEST_KEY, "the length of a text")), self.name, at)

    def java_text(self) -> str:
        """As Java's writeUTF: two bytes of length."""
        at = self.offset
        return utf8(self.take(int.from_bytes(self.take(2), "big")), self.name, at)


class Stream(Reader):
    """Of a file, or of a block of it, which begins at `base`."""

    def __init__(self, pieces: Iterator[bytes], name: str, base: int) -> None:
        self._pieces, self.name, self._base = pieces, name, base
        self._piece, self._at, self.position = b"", 0, 0

    @property
    def offset(self) -> int:
        return self._base + self.position

    def peek(self) -> int | None:
        """The next byte, which stays; None at the end."""
        while self._at == len(self._piece):
            found = next(self._pieces, None)
            if found is None:
                return None
            self._piece, self._at = found, 0
        return self._piece[self._at]

    def some(self, most: int) -> bytes:
        if self.peek() is None:
            return b""
        data = self._piece[self._at : self._at + most]
        self._at += len(data)
        self.position += len(data)
        return data


class Value(Reader):
    """The value of one record, without the lengths of its chunks; good until the next record is asked for."""

    def __init__(self, stream: Stream, most: int) -> None:
        self.name, self._stream, self._most = stream.name, stream, most
        self._left, self._last = 0, False

    @property
    def offset(self) -> int:
        return self._stream.offset

    def some(self, most: int) -> bytes:
        while not self._left:
            if self._last:
                return b""
            at = self.offset
            found = self._stream.vint()
            self._left, self._last = abs(found), found >= 0
            if self._left > self._most:
                raise Damaged(self.name, at, "a chunk is longer than its block:", self._left)
        data = self._stream.some(min(most, self._left))
        if not data:
            raise Damaged(self.name, self.offset, f"a block ends {self._left} bytes too early")
        self._left -= len(data)
        return data

    def skip(self) -> None:
        while self.some(PIECE):
            pass


class TFile:
    """One file. Raises Damaged for what is no TFile, BadInput for packings that cannot be undone here."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.blocks = self._index()

    def records(self) -> Iterator[tuple[bytes, Value]]:
        """Keys and values in their order. A value that was not read whole is passed over."""
        for block in self.blocks:
            stream = self._unpacked(block, self._packing)
            while stream.position < block.size:
                key = stream.take(stream.count(_LARGEST_KEY, "the length of a key"))
                value = Value(stream, block.size)
                yield key, value
                value.skip()

    def _index(self) -> tuple[Block, ...]:
        length, name = self._source.length, self._source.name
        if length < len(MAGIC) + _TAIL:
            raise Damaged(name, 0, f"is no whole TFile: it has only {length} bytes")
        head = self._raw(0, len(MAGIC)).take(len(MAGIC))
        if head != MAGIC:
            raise Damaged(name, 0, "is no TFile: it begins with", head.hex())
        tail = self._raw(length - _TAIL, _TAIL)
        at = tail.number(8)
        version = tail.number(2)
        tail.take(2)
        end = tail.take(len(MAGIC))
        if end != MAGIC:
            raise Damaged(name, length - len(MAGIC), "the end is missing: the file was cut off, or is being written")
        if version != 1:
            raise Damaged(name, length - len(MAGIC) - 4, "this version of TFile is not known:", version)
        if not len(MAGIC) <= at < length - _TAIL:
            raise Damaged(name, length - _TAIL, "the meta index cannot be at", at)
        if length - _TAIL - at > _LARGEST_INDEX:
            raise Damaged(name, length - _TAIL, "the meta index would be too large, at", at)
        stream = self._raw(at, length - _TAIL - at)
        for _ in range(stream.count(1 << 16, "the number of metadata blocks")):
            found, packing, block = stream.text(), stream.text(), self._block(stream)
            if found == _DATA_INDEX:
                return self._blocks(self._unpacked(block, packing))
        raise Damaged(name, at, f"there is no {_DATA_INDEX}")

    def _blocks(self, stream: Stream) -> tuple[Block, ...]:
        self._packing = stream.text()
        return tuple(self._block(stream) for _ in range(stream.count(self._source.length, "the number of blocks")))

    def _block(self, stream: Stream) -> Block:
        at = stream.offset
        found = Block(stream.vint(), stream.vint(), stream.vint())
        if found.offset < len(MAGIC) or found.packed < 0 or found.offset + found.packed > self._source.length:
            raise Damaged(stream.name, at, "a block is not inside the file:", (found.offset, found.packed))
        if found.size < 0:
            raise Damaged(stream.name, at, "a block has a size of", found.size)
        return found

    def _raw(self, offset: int, length: int) -> Stream:
        return Stream(self._source.pieces(offset, length), self._source.name, offset)

    def _unpacked(self, block: Block, packing: str) -> Stream:
        pieces = unpacked(self._source, block, packing)
        return Stream(pieces, self._source.name, block.offset)


def unpacked(source: Source, block: Block, packing: str) -> Iterator[bytes]:
    """The bytes of a block, in pieces of bounded size. Raises Damaged, and BadInput for an unknown packing."""
    if packing not in {_PLAIN, _ZLIB}:
        raise BadInput(
            f"is packed with {packing}, which is not read here", where=source.name, field="compression",
            value=packing, remedy=f"{NEXT}; for the future yarn.nodemanager.log-aggregation.compression-type=gz",
        )  # fmt: skip
    return _plain(source, block) if packing == _PLAIN else _inflated(source, block)


def _plain(source: Source, block: Block) -> Iterator[bytes]:
    if block.packed != block.size:
        raise Damaged(
            source.name, block.offset, "a block that is not packed has two sizes:", (block.packed, block.size)
        )
    yield from source.pieces(block.offset, block.packed)


def _inflated(source: Source, block: Block) -> Iterator[bytes]:
    """Damaged as well where it is longer than it should be: a small block must not fill the memory."""
    inflate = zlib.decompressobj(47)  # both headers: with Hadoop's native library, and without
    done = 0
    for piece in source.pieces(block.offset, block.packed):
        rest = piece
        while rest and not inflate.eof:
            try:
                data = inflate.decompress(rest, PIECE)
            except zlib.error as error:
                raise Damaged(source.name, block.offset, f"a block cannot be unpacked ({error})") from None
            rest = inflate.unconsumed_tail
            done += len(data)
            if done > block.size:
                raise Damaged(source.name, block.offset, "a block is longer than its index says:", block.size)
            if data:
                yield data
    if done < block.size and (data := inflate.flush()):
        yield data


def utf8(data: bytes, name: str, at: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Damaged(name, at, "is no text:", data[:40]) from None
