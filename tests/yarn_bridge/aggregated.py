"""Files of aggregated logs as NodeManagers wrote them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

FIXTURES = Path(__file__).parent / "fixtures" / "aggregated"


FILES = ("3.3.6-tfile-none", "3.4.2-tfile-none", "3.4.2-tfile-gz", "3.4.2-ifile-none", "3.4.2-ifile-gz")


LOG = "".join(f"step {step}/20 loss {2.0 / step**0.3:.4f} 0.5 s/it\n" for step in range(1, 21)).encode()


class Memory:
    """A file in memory, given out in pieces of any size; counts what was asked for."""

    def __init__(self, data: bytes, piece: int = 4096, name: str = "/tmp/logs/alice/n1_8041") -> None:
        self.data, self.piece, self.name = data, piece, name
        self.largest = 0

    @property
    def length(self) -> int:
        return len(self.data)

    def pieces(self, offset: int, length: int) -> Iterator[bytes]:
        for at in range(offset, min(offset + length, len(self.data)), self.piece):
            yield self.data[at : min(at + self.piece, offset + length)]


def recorded(name: str) -> bytes:
    return (FIXTURES / name).read_bytes()
