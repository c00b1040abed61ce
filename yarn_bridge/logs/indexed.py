"""Hadoop's indexed log file (`IFile`), the other format that NodeManagers aggregate container logs in.

    32 bytes that name the file
    a log, a log, ...            each packed by itself (none, gz)
    index                        a serialized Java object: of each upload, of each container, its logs and their places
    4 bytes: the index's length; the 32 bytes again

Facts from files that NodeManagers of Hadoop 3.4 wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from yarn_bridge.logs.javastream import Thing, load
from yarn_bridge.logs.tfile import Block, Damaged, Source, unpacked

_MARK = 32
_LARGEST_INDEX = 64 << 20

Log = tuple[str, str, int, Iterator[bytes]]


def indexed_logs(source: Source, head: bytes) -> Iterator[Log]:
    """Container, file, length and pieces of each log. `head`: how the file begins. Raises Damaged."""
    length, name = source.length, source.name
    if length < 2 * _MARK + 4:
        raise Damaged(name, 0, "is neither a TFile nor an indexed log file: it begins with", head.hex())
    tail = b"".join(source.pieces(length - _MARK - 4, _MARK + 4))
    mark = b"".join(source.pieces(0, _MARK))
    if tail[4:] != mark:
        raise Damaged(
            name, length - _MARK, "the end is not that of a TFile or an indexed log file: it was cut off, is being "
            "written, or is something else; it begins with", head.hex(),
        )  # fmt: skip
    size = int.from_bytes(tail[:4], "big")
    at = length - _MARK - 4 - size
    if at < _MARK or size > _LARGEST_INDEX:
        raise Damaged(name, length - _MARK - 4, "the index cannot be so long:", size)
    index = load(b"".join(source.pieces(at, size)), name, at)
    packing = _field(index, "compressName", str, name, at)
    for upload in _field(index, "logMetas", Thing, name, at).written:
        for container, logs in _field(upload, "logMetas", Thing, name, at).items():
            for log in logs.written if isinstance(logs, Thing) else ():
                start, packed, whole = (
                    _field(log, each, int, name, at) for each in ("startIndex", "fileCompressedSize", "fileSize")
                )
                block = Block(start, packed, whole)
                if start < _MARK or packed < 0 or whole < 0 or start + packed > at:
                    raise Damaged(name, at, "a log is not inside the file:", (start, packed))
                file = _field(log, "fileName", str, name, at)
                yield str(container), file, whole, _exactly(unpacked(source, block, packing), block, name)


def _exactly(pieces: Iterator[bytes], block: Block, name: str) -> Iterator[bytes]:
    left = block.size
    for piece in pieces:
        left -= len(piece)
        yield piece
    if left > 0:
        raise Damaged(name, block.offset, f"a log ends {left} bytes too early")


def _field(thing: Any, field: str, kind: type[Any], name: str, at: int) -> Any:
    found = thing.fields.get(field) if isinstance(thing, Thing) else None
    if not isinstance(found, kind):
        raise Damaged(name, at, f"the index has no {field}")
    return found
