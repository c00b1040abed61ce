"""Text of strangers on a screen: what a terminal would obey, or a reader would not see, becomes its own name.

Escapes (C0, DEL, C1), bidirectional marks, zero-width and other format characters, line and paragraph separators,
private-use characters and halves of characters are written `\\x1b`, `\\u202e`. `neutral` is for everything that is
printed, `hidden` finds what a new name may not hold. Commands neutralise what they show as data (`deep`); under
them, `Guarded` is the one place through which all of standard output and of standard error goes. Standard library only.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from typing import IO, Any

#: Control, format, surrogate, private use, unassigned; line and paragraph separators.
_KINDS = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
#: Seen as nothing, though Unicode calls them letters, marks or symbols.
_BLANK = frozenset({0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, *range(0xFE00, 0xFE10)})


def _hides(number: int) -> bool:
    return number in _BLANK or _tag(number) or unicodedata.category(chr(number)) in _KINDS


def _tag(number: int) -> bool:
    """Variation selectors of the supplement."""
    return 0xE0100 <= number <= 0xE01EF


class _Table(dict[int, int | str]):
    """What each character becomes, for `str.translate`. Looked up as they are met: there are a million."""

    #: A text of all characters there are must not fill the memory.
    MOST = 10_000

    def __init__(self, keep: str) -> None:
        super().__init__((ord(character), ord(character)) for character in keep)

    def __missing__(self, number: int) -> int | str:
        becomes = written(chr(number)) if _hides(number) else number
        if len(self) < self.MOST:
            self[number] = becomes
        return becomes


_table = cache(_Table)


def _plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def hidden(text: str) -> str | None:
    """The first character of `text` that no screen should get, None: all may be shown."""
    return None if _plain(text) else next((character for character in text if _hides(ord(character))), None)


def neutral(text: str, keep: str = "") -> str:
    """`text` with every hidden character written out, but those in `keep`. A line break forges a row in a table."""
    if _plain(text):
        return text
    return text.translate(_table(keep))


def written(character: str) -> str:
    """`\\x1b`, `\\u202e`, `\\U000e0001`."""
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def lines(text: str) -> str:
    """The same for text of several lines: its line breaks and tabs stay."""
    return neutral(text, keep="\n\t")


def below(text: str, margin: int = 7) -> str:
    """Text of several lines as one entry of a page: what follows its first line is set in, and looks like no other."""
    return lines(text).replace("\n", "\n" + " " * margin)


def deep(value: Any) -> Any:
    """Plain data with every text in it neutral, keys too: what a command is about to show."""
    if isinstance(value, str):
        return neutral(value)
    if isinstance(value, dict):
        return {neutral(key) if isinstance(key, str) else key: deep(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [deep(inner) for inner in value]
    return value


#: The only escapes that our own output has on a terminal: colours, weights.
_STYLE = re.compile(r"(\x1b\[[0-9;]*m)")


class Unwritten(Exception):
    """A stream takes no more: its reader has left, or its disk is full. No OSError, which others would answer."""

    def __init__(self, error: OSError) -> None:
        self.error = error
        super().__init__(error.strerror)


class Guarded:
    """A text stream that lets styles pass on a terminal, and of all else only what may be shown. Raises Unwritten."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream, self._styled = stream, stream.isatty()
        self.written = False  #: anything that shows

    def write(self, text: str) -> int:
        self.written = self.written or not text.isspace()
        if self._styled and "\x1b" in text:
            parts = _STYLE.split(text)
            parts[::2] = [neutral(part, keep="\n\t\r") for part in parts[::2]]
            shown = "".join(parts)
        else:
            shown = neutral(text, keep="\n\t\r" if self._styled else "\n\t")
        try:
            self._stream.write(shown)
        except OSError as error:
            raise Unwritten(error) from error
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            raise Unwritten(error) from error

    @property
    def plain(self) -> IO[str]:
        """The stream itself, for what moves the cursor and shows nothing of strangers."""
        return self._stream

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
