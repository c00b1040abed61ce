"""What is in one file of aggregated logs: for each container that ran on a node, its log files.

NodeManagers write TFile (`tfile.py`), or the indexed format (`indexed.py`) where a site chose that one. In a TFile
the key of a record is the container, the value is one log after another: name, length as a text, so many bytes.
Other keys (VERSION, APPLICATION_ACL, APPLICATION_OWNER) say whose it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from yarn_bridge.logs.indexed import indexed_logs
from yarn_bridge.logs.tfile import MAGIC, PIECE, Damaged, Reader, Source, TFile, utf8


@dataclass(frozen=True, slots=True)
class Entry:
    container: str
    file: str  #: stdout, stderr, ...
    length: int
    pieces: Iterator[bytes]  #: to be read before the next entry is asked for, or not at all


def entries(source: Source) -> Iterator[Entry]:
    """In the file's order. Raises Damaged (a BadInput) where it is not what it should be; what came before counts."""
    head = b"".join(source.pieces(0, len(MAGIC)))
    if head == MAGIC or not source.length:
        yield from _of_tfile(source)
        return
    for container, file, length, pieces in indexed_logs(source, head):
        yield Entry(container, file, length, pieces)


def _of_tfile(source: Source) -> Iterator[Entry]:
    for key, value in TFile(source).records():
        container = utf8(key[2:], source.name, value.offset)
        if not container.startswith("container_"):
            continue
        while first := value.some(1):
            at = value.offset - 1
            size = int.from_bytes(first + value.take(1), "big")
            file = utf8(value.take(size), source.name, at)
            said = value.java_text()
            if not (said.isascii() and said.isdigit()):
                raise Damaged(source.name, at, f"the length of {container}/{file} is no number:", said[:40])
            log = _Part(value, int(said))
            yield Entry(container, file, int(said), iter(log))
            log.skip()


class _Part:
    """So many bytes of a value, in pieces."""

    def __init__(self, value: Reader, length: int) -> None:
        self._value, self._left = value, length

    def __iter__(self) -> Iterator[bytes]:
        while self._left:
            data = self._value.some(min(self._left, PIECE))
            if not data:
                raise Damaged(self._value.name, self._value.offset, f"a log ends {self._left} bytes too early")
            self._left -= len(data)
            yield data

    def skip(self) -> None:
        for _ in self:
            pass
