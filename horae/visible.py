"""Text of strangers on a screen: what a terminal would obey, or a reader would not see, becomes its own name.

Escapes (C0, DEL, C1), bidirectional marks, zero-width and other format characters, line and paragraph separators,
private-use characters and halves of characters are written `\\x1b`, `\\u202e`. `neutral` is for everything that is
printed, `hidden` finds what a new name may not hold. Standard library only.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import cache
from typing import IO

#: Control, format, surrogate, private use, unassigned; line and paragraph separators.
_KINDS = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
#: Seen as nothing, though Unicode calls them letters, marks or symbols.
_BLANK = frozenset({0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, *range(0xFE00, 0xFE10)})


@cache
def _pattern() -> re.Pattern[str]:
    """Everything hidden, as ranges. Made once: looking up a million characters takes a moment."""
    ranges: list[list[int]] = []
    for number in range(sys.maxunicode + 1):
        if number not in _BLANK and unicodedata.category(chr(number)) not in _KINDS and not _tag(number):
            continue
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return re.compile("[" + "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges) + "]")


def _tag(number: int) -> bool:
    """Variation selectors of the supplement."""
    return 0xE0100 <= number <= 0xE01EF


def _plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def hidden(text: str) -> str | None:
    """The first character of `text` that no screen should get, None: all may be shown."""
    found = None if _plain(text) else _pattern().search(text)
    return None if found is None else found[0]


def neutral(text: str, keep: str = "") -> str:
    """`text` with every hidden character written out, but those in `keep`."""
    if _plain(text):
        return text
    return _pattern().sub(lambda found: found[0] if found[0] in keep else written(found[0]), text)


def written(character: str) -> str:
    """`\\x1b`, `\\u202e`, `\\U000e0001`."""
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def lines(text: str) -> str:
    """The same for text of several lines: its line breaks and tabs stay."""
    return neutral(text, keep="\n\t")


def show(text: str, *, file: IO[str] | None = None, end: str = "\n") -> None:
    """Print text that may hold a stranger's words."""
    print(lines(text), file=file, end=end)
