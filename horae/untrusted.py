"""Files that a user may write: reached by descriptors, read within bounds, believed as facts about one job at most.

Everything that runs beside the arbiter and touches a folder that somebody else may change goes through here. The
rules, in one place:

* **By descriptors.** `Folder` holds an open directory; what is in it is reached by `openat` and `O_NOFOLLOW`, so that
  a link planted in between leads nowhere and a folder that is swapped stays the one that was opened. Ownership and
  mode are set on descriptors of files that nobody else could reach yet, the folder last (`give`).
* **On one mount.** With `one_mount` nothing is entered that was mounted in between: a user's own file system (FUSE) may
  never answer, and whoever opens it waits for it.
* **Within bounds.** Only regular files, opened without waiting, up to a size; listings up to a number of names; JSON
  up to a depth, with integers of a few digits and finite numbers (`parse`); facts by their type and range (`Facts`).
* **One exception for the other side's doing.** `Unbelievable` says which file of a job cannot be believed and why. It
  costs that job. What is ours (no descriptors left, no memory, no room on the disk) stays an `OSError`.

    with Folder.open(root, "jobs", job) as folder:
        data = folder.read("state.json", 65536)      # None: there is no such file
        facts = Facts(parse(data, "state.json"), "state.json")
        step = facts.number("step", 0, 1e15)

The first folder of a chain is the site's own and opened as the site names it, links and all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from typing import NewType, NoReturn

from horae.descriptors import MOST_BYTES, MOST_NAMES, Folder, Unbelievable

__all__ = [
    "LARGEST",
    "MOST_BYTES",
    "MOST_DEEP",
    "MOST_NAMES",
    "Facts",
    "Folder",
    "FromUser",
    "Unbelievable",
    "parse",
    "printable",
]

#: Text that a user wrote: shown to people, never an identity, a path of ours or a word that we act upon.
FromUser = NewType("FromUser", str)

#: Arrays and objects within each other.
MOST_DEEP = 32
#: Digits of an integer: more than any counter of ours.
MOST_DIGITS = 18
#: Whole numbers that survive a double, and anything that counts.
LARGEST = 10**15


def parse(data: bytes, where: str, *, deep: int = MOST_DEEP, digits: int = MOST_DIGITS) -> object:
    """JSON of bounded depth with numbers of bounded length, all finite. Raises Unbelievable."""

    def whole(text: str) -> int:
        if len(text) > digits + 1:
            raise Unbelievable(where, f"holds a number of {len(text)} digits")
        return int(text)

    def real(text: str) -> float:
        value = float(text) if len(text) <= 400 else math.inf
        if not math.isfinite(value):
            raise Unbelievable(where, "holds a number without bounds")
        return value

    def no_number(text: str) -> NoReturn:
        raise Unbelievable(where, f"holds {text}, which is no number")

    try:
        value: object = json.loads(data.decode(), parse_int=whole, parse_float=real, parse_constant=no_number)
    except RecursionError:
        raise Unbelievable(where, f"is nested deeper than {deep}") from None
    except ValueError as error:
        raise Unbelievable(where, f"is not JSON: {error}") from None
    if _deeper(value, deep):
        raise Unbelievable(where, f"is nested deeper than {deep}")
    return value


def _deeper(value: object, most: int) -> bool:
    level = [value]
    for _ in range(most + 1):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True


class Facts:
    """A JSON object of a user's, asked for one typed and bounded fact after the other. All raise Unbelievable."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, Mapping):
            raise Unbelievable(where, "is not a JSON object")
        self._value: Mapping[str, object] = value
        self.where = where

    def has(self, name: str) -> bool:
        """Whether it says anything but null."""
        return self._value.get(name) is not None

    def whole(self, name: str, least: int = 0, most: int = LARGEST) -> int | None:
        """A whole number in the range; None where it says nothing."""
        value = self._value.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            self._wrong(name, value, f"a whole number from {least} to {most}")
        return value

    def number(self, name: str, least: float = 0.0, most: float = float(LARGEST)) -> float | None:
        value = self._value.get(name)
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
            self._wrong(name, value, f"a number from {least:g} to {most:g}")
        return float(value)

    def word(self, name: str, known: Collection[str]) -> str | None:
        """One of `known` words: a word of ours, then."""
        value = self._value.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or value not in known:
            self._wrong(name, value, f"one of {', '.join(sorted(known))}")
        return value

    def text(self, name: str, most: int = 200) -> FromUser | None:
        """At most `most` characters of it, all printable: what else it held becomes a question mark."""
        value = self._value.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            self._wrong(name, value, "text")
        return printable(value, most)

    def inner(self, name: str) -> Facts | None:
        """An object in it."""
        value = self._value.get(name)
        if value is None:
            return None
        return Facts(value, f"{self.where}: {name}")

    def each(self, name: str, most: int = MOST_NAMES) -> list[object] | None:
        """A list in it."""
        value = self._value.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) > most:
            self._wrong(name, value, f"a list of at most {most}")
        return value

    def keys(self, most: int = MOST_NAMES) -> list[FromUser]:
        if len(self._value) > most:
            raise Unbelievable(self.where, f"has more than {most} fields")
        return [FromUser(key) for key in self._value]

    def _wrong(self, name: str, value: object, wanted: str) -> NoReturn:
        shown = printable(repr(value), 60)
        raise Unbelievable(self.where, f"says {name}: {shown}, which is not {wanted}")


def printable(text: str, most: int = 200) -> FromUser:
    """Text for a screen: no control characters, no marks of direction, nothing that is not a character."""
    return FromUser("".join(c if c.isprintable() else "?" for c in text[:most]))
