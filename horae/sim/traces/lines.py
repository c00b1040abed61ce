"""A file as its lines, one after the other: plain or gzip (told by content), bounded in memory whatever its size."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from horae.sim.traces.malformed import Malformed
from horae.sim.traces.model import BadRow
from policy.text import files

#: Bytes of one line. No trace has such lines; a file without line ends would otherwise be read whole.
LONGEST = 1 << 20
#: So many malformed rows are no oversight: the file is of another form.
MOST_MALFORMED = 100_000

#: What a gzip raises that was cut or damaged.
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)


class Line(NamedTuple):
    number: int
    #: Without its line end; a carriage return before it is kept, so that what is copied stays unchanged.
    text: str
    #: Whether the line end was there: the last line of a file that was cut has none.
    whole: bool


class TraceLines:
    """The lines of `path`. What is malformed is raised, or with `skip_bad` kept in `malformed` and passed over.
    `copied`: whoever reads them copies them, so that readers that put jobs together keep their text."""

    def __init__(self, path: Path, *, skip_bad: bool = False, copied: bool = False) -> None:
        self.path = path
        self.skip_bad, self.copied = skip_bad, copied
        self.malformed: list[BadRow] = []
        #: What is read as it stands and may be another thing than it seems.
        self.doubtful: list[BadRow] = []
        #: Names of the columns and what separates them, once a header was read: for words about raw bytes.
        self.names: Sequence[str] = ()
        self.separator: str | None = ","

    def refuse(self, bad: Malformed) -> None:
        """Raise `bad`, or note it where the caller asked to go on."""
        if not self.skip_bad:
            raise bad
        self.malformed.append(_row(bad))
        if len(self.malformed) > MOST_MALFORMED:
            raise Malformed(
                self.path,
                bad.line or 0,
                bad.column,
                f"more than {MOST_MALFORMED:,} rows are malformed, at last",
                bad.value,
            )

    def doubt(self, bad: Malformed) -> None:
        """Note what nobody can tell from the file."""
        self.doubtful.append(_row(bad))

    @property
    def remarks(self) -> tuple[BadRow, ...]:
        """What whoever reads the file is to be told."""
        return (*self.malformed, *self.doubtful)

    def __iter__(self) -> Iterator[Line]:
        """Raises Malformed for bytes that are no text, OSError where the file cannot be read."""
        number = 0
        if self.path.is_file() and beginning(self.path, 4) == b"PAR1":
            from horae.sim.traces.parquet import as_lines

            for number, text in enumerate(as_lines(self.path), 1):
                yield Line(number, text, True)
            return
        with opened(self.path) as file:
            while True:
                try:
                    raw = file.readline(LONGEST)
                except DAMAGED as error:
                    self.refuse(
                        Malformed(
                            self.path,
                            number + 1,
                            "line",
                            "the gzip is cut or damaged, and nothing after this is read",
                            error,
                        )
                    )
                    return
                if not raw:
                    return
                number += 1
                try:
                    line = self._line(number, raw, file)
                except Malformed as bad:
                    self.refuse(bad)
                    continue
                yield line

    def _line(self, number: int, raw: bytes, file: IO[bytes]) -> Line:
        whole = raw.endswith(b"\n")
        if not whole and len(raw) >= LONGEST:
            while (more := file.readline(LONGEST)) and not more.endswith(b"\n"):
                pass
            raise Malformed(self.path, number, "line", f"longer than {LONGEST:,} bytes", raw[:40])
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        if b"\0" in raw:
            raise Malformed(self.path, number, self._column_of(raw), "holds a NUL byte", raw[:60])
        try:
            return Line(number, raw.decode().removesuffix("\n"), whole)
        except UnicodeDecodeError as error:
            raise Malformed(self.path, number, "line", "is not UTF-8", raw[error.start : error.start + 8]) from None

    def _column_of(self, raw: bytes) -> str:
        """Which field holds the first NUL."""
        position = len(raw[: raw.index(b"\0")].decode(errors="replace").split(self.separator)) - 1
        position = max(position, 0)  # white space alone has no fields
        return self.names[position] if position < len(self.names) else f"field {position + 1}"


def _row(bad: Malformed) -> BadRow:
    return BadRow(bad.line or 0, bad.column, bad.what, str(bad.value))


def opened(path: Path) -> IO[bytes]:
    """The bytes of `path`, unpacked where they are gzip."""
    file = files.opened(path) if path.is_file() else io.BufferedReader(cast(io.RawIOBase, io.BytesIO(_piped(path))))
    if file.peek(2)[:2] != b"\x1f\x8b":
        return file
    packed = gzip.GzipFile(fileobj=file)
    packed.myfileobj = cast(Any, file)  # closed with it
    return cast(IO[bytes], packed)


@lru_cache(maxsize=1)
def _piped(path: Path) -> bytes:
    """What came through a pipe (`-`: standard input), which gives it once; who reads a trace looks at it twice."""
    with files.opened(path) as file:
        return file.read()


def beginning(path: Path, size: int = 4096) -> bytes:
    """At most so many first bytes; none of a gzip that cannot be unpacked, which whoever reads on will be told."""
    with opened(path) as file:
        try:
            return file.read(size)
        except DAMAGED:
            return b""
