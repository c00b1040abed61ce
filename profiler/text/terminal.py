"""Bytes to logical lines, as a terminal would have shown them.

A line may have been redrawn (carriage return, backspaces, cursor movement): its states come out in order, all but
the last marked as redrawn. Colours and other escapes vanish. UTF-16 is turned into UTF-8; NUL bytes (holes that
copytruncate leaves) vanish; bytes that are no text are left for the decoder to replace.

Incremental: `feed` takes any piece of the file; what it returns over all pieces does not depend on how they were
cut. The unfinished end of the text is kept back and shown by `rest`. Memory is bounded: of a line longer than
`LONGEST` without any redrawing only its number is kept.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from itertools import repeat
from typing import Any

LONGEST = 256 * 1024  #: bytes of one state of a line that are held
_COMPACT = 64 * 1024  #: an unfinished line longer than this gives up its finished states
_SNIFF = 256  #: bytes looked at to tell the encoding

#: One state of a line: (number of the line, text, whether a later state on the same line replaced it).
State = tuple[int, bytes, bool]

_REDRAW = re.compile(rb"\x1b\[\d*[AFG]|\x1b\[\d*;?\d*H|\x1b\[[12]K|\x1b\[1?G")
_COLOURS = re.compile(rb"\x1b\[[0-9;]*m")
_ESCAPE = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)"
    rb"|[PX^_][^\x1b]{0,4096}\x1b\\|[@-Z\\-~]|[ -/][0-~])"
)
_LONG_BACK = re.compile(rb"\x08{24,}")


class Terminal:
    """The state of one log's text between two pieces of it."""

    def __init__(self) -> None:
        self.line = 1  #: number of the line that `rest` belongs to
        self.unread = 0  #: lines too long to be read
        self.block: bytes | None = None  #: the bytes that the states put out last are parts of; None: not known
        self._carry = b""
        self._overflow = False
        self._encoding = ""  #: "" until known, then "utf-8", "utf-16-le", "utf-16-be"
        self._sniffed = b""
        self._decoder: Any = None

    # --- state that survives a restart --------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        pending = self._decoder.getstate()[0] if self._decoder else b""
        return {
            "line": self.line,
            "unread": self.unread,
            "carry": self._carry.decode("latin-1"),
            "overflow": self._overflow,
            "encoding": self._encoding,
            "sniffed": self._sniffed.decode("latin-1"),
            "pending": pending.decode("latin-1"),
        }

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Terminal:
        self = cls()
        self.line, self.unread = state["line"], state["unread"]
        self._carry = state["carry"].encode("latin-1")
        self._overflow = state["overflow"]
        self._encoding = state["encoding"]
        self._sniffed = state["sniffed"].encode("latin-1")
        if self._encoding.startswith("utf-16"):
            self._decoder = codecs.getincrementaldecoder(self._encoding)("replace")
            self._decoder.setstate((state["pending"].encode("latin-1"), 0))
        return self

    # --- bytes in, states out -----------------------------------------------------------------------------

    def feed(self, data: bytes) -> list[State]:
        """The states of all lines that `data` completes."""
        data = self._text(data)
        if not data:
            return []
        return self._lines(data)

    def rest(self) -> list[State]:
        """The states of the unfinished line, without taking them: what a terminal would show there now."""
        if not self._encoding and self._sniffed:
            probe = Terminal.from_json(self.to_json())
            probe._encoding = _sniff(probe._sniffed)
            if probe._encoding.startswith("utf-16"):
                probe._decoder = codecs.getincrementaldecoder(probe._encoding)("replace")
            sniffed, probe._sniffed = probe._sniffed, b""
            return probe.feed(_without_mark(sniffed, probe._encoding)) + probe.rest()
        if not self._carry or self._overflow:
            return []
        return self._states(self._carry, self.line)

    def _text(self, data: bytes) -> bytes:
        if not self._encoding:
            self._sniffed += data
            if len(self._sniffed) < _SNIFF:
                return b""
            self._encoding = _sniff(self._sniffed)
            data, self._sniffed = _without_mark(self._sniffed, self._encoding), b""
            if self._encoding.startswith("utf-16"):
                self._decoder = codecs.getincrementaldecoder(self._encoding)("replace")
        if self._decoder is not None:
            text: str = self._decoder.decode(data)
            data = text.encode("utf-8", "replace")
        if b"\0" in data:
            data = data.replace(b"\0", b"")
        return data

    def _lines(self, data: bytes) -> list[State]:
        if self._overflow:
            newline = data.find(b"\n")
            if newline < 0:
                return []
            self._overflow = False
            self.line += 1
            data = data[newline + 1 :]
        if self._carry:
            data = self._carry + data
        if b"\x1b" in data:
            data = _COLOURS.sub(b"", data)
        self.block = None if b"\b" in data or b"\x1b" in data else data
        lines = data.split(b"\n")
        self._carry = lines.pop()
        number = self.line
        self.line = number + len(lines)
        out: list[State]
        if b"\r" in data or b"\b" in data or b"\x1b" in data:
            out = []
            for number, line in enumerate(lines, number):  # noqa: B020 - the count goes on from the first number
                if b"\r" in line or b"\b" in line or b"\x1b" in line:
                    out.extend(self._states(line, number))
                else:
                    out.append((number, line, False))
        else:
            out = list(zip(range(number, self.line), lines, repeat(False)))
        if len(self._carry) > _COMPACT:
            out.extend(self._compact())
        return out

    def _compact(self) -> list[State]:
        """Give up the finished states of a long unfinished line; forget the line when it has none."""
        carry = self._carry
        if b"\r" in carry or b"\b" in carry:
            *states, rest = _LONG_BACK.sub(b"\r", carry).split(b"\r")
            last = next((i for i in range(len(states) - 1, -1, -1) if states[i].strip()), -1)
            if last >= 0:
                self._carry = states[last] + b"\r" + rest
                done = self._states(b"\r".join(states[:last]), self.line)
                if len(self._carry) <= LONGEST:
                    return [(n, text, True) for n, text, _ in done]
                carry = self._carry
        if len(carry) > LONGEST:
            self._carry = b""
            self._overflow = True
            self.unread += 1
        return []

    def _states(self, line: bytes, number: int) -> list[State]:
        if b"\x1b" in line:
            line = _ESCAPE.sub(b"", _REDRAW.sub(b"\r", line))
        if b"\b" in line:
            line = b"\r".join(_backspaced(part) if b"\b" in part else part for part in line.split(b"\r"))
        states = [s for s in line.split(b"\r") if s and not s.isspace()]
        if not states:
            return [(number, b"", False)]
        out = [(number, s, True) for s in states]
        out[-1] = (number, states[-1], False)
        return out


def _sniff(head: bytes) -> str:
    if head.startswith(b"\xff\xfe"):
        return "utf-16-le"
    if head.startswith(b"\xfe\xff"):
        return "utf-16-be"
    sample = head[:_SNIFF]
    if len(sample) >= 4:
        even, odd = sample[0::2].count(0), sample[1::2].count(0)
        if odd > len(sample) * 0.2 and even < len(sample) * 0.05:
            return "utf-16-le"
        if even > len(sample) * 0.2 and odd < len(sample) * 0.05:
            return "utf-16-be"
    return "utf-8"


def _without_mark(head: bytes, encoding: str) -> bytes:
    mark = (
        codecs.BOM_UTF8
        if encoding == "utf-8"
        else codecs.BOM_UTF16_LE
        if encoding.endswith("le")
        else codecs.BOM_UTF16_BE
    )
    return head.removeprefix(mark)


def _width(c: str) -> int:
    if ord(c) < 0x300:
        return 1
    if unicodedata.combining(c):
        return 0
    return 2 if unicodedata.east_asian_width(c) in "WF" else 1


def _backspaced(line: bytes) -> bytes:
    """Play backspaces on a row of cells; each time enough was rewritten the state before becomes one of its own.

    Linear: a state is put out only after as many characters were written as it is long.
    """
    text = line.decode("utf-8", "replace")
    cells: list[str] = []
    cursor = 0
    written = 0
    states: list[str] = []
    going_back = False
    for c in text:
        if c == "\b":
            if not going_back and written >= max(len(cells) // 2, 1) and cells:
                states.append("".join(cells))
                written = 0
            going_back = True
            cursor = max(cursor - 1, 0)
            continue
        if going_back and cursor == 0:
            cells.clear()
        going_back = False
        width = _width(c)
        if width == 0:
            if cursor:
                cells[cursor - 1] += c
            continue
        for cell in (c, "")[:width]:
            if cursor < len(cells):
                cells[cursor] = cell
            else:
                cells.append(cell)
            cursor += 1
            written += 1
    states.append("".join(cells))
    return "\r".join(states).encode("utf-8", "replace")
