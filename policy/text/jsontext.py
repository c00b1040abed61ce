"""JSON text -> plain values at the cost of its size, and where in the text a value stands.

`loads` refuses what would cost more than its size says before anything is built: nesting deeper than MOST_LEVELS,
numbers of more digits than anybody means, keys that stand twice. `offset_of` walks to one value by skipping what
stands before it: nothing is composed, so that telling a line costs a pass over the text and no memory.
"""

from __future__ import annotations

import json
import re
from array import array
from itertools import accumulate
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

#: Lists and mappings within one another.
MOST_LEVELS = 200

# Possessive, and a string's end may lack: else a quote that nobody closed is tried in 2^n ways.
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
_NO_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[^\[\]{}"]++', re.DOTALL)
#: A level deeper, a level up (-1).
_STEPS = bytes({"[": 1, "{": 1, "]": 255, "}": 255}.get(chr(byte), 0) for byte in range(256))
_SPACE = re.compile(r"[ \t\n\r]*")
_SCALAR = re.compile(r"[^,\]}\s]+")


class Refused(ValueError):
    """`offset`: where in the text."""

    def __init__(self, message: str, remedy: str, offset: int | None = None) -> None:
        self.message, self.remedy, self.offset = message, remedy, offset
        super().__init__(message)


def loads(text: str) -> Any:
    """The value of `text`. Raises Refused."""
    _check_nesting(text)
    twice: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        out = dict(items)
        if len(out) != len(items) and not twice:
            seen: set[str] = set()
            twice.append(next(key for key, _ in items if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
        return out

    try:
        value = json.loads(text, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        raise Refused(f"is not JSON: {error.msg}", "mend the JSON here", error.pos) from error
    except RecursionError as error:
        raise Refused("is nested too deeply", f"at most {MOST_LEVELS} levels") from error
    except ValueError as error:  # an integer of more digits than Python reads
        raise Refused(
            "holds a number that cannot be read: it has thousands of digits", "write numbers that can be meant"
        ) from error
    if twice:
        raise Refused(f"the key {twice[0][:80]!r} stands twice", "keep one of them", _second(text))
    return value


def _check_nesting(text: str) -> None:
    if text.count("[") + text.count("{") <= MOST_LEVELS:
        return
    brackets = _NO_BRACKETS.sub("", text).encode("ascii", "replace")
    if max(accumulate(array("b", brackets.translate(_STEPS))), default=0) > MOST_LEVELS:
        raise Refused("is nested too deeply", f"at most {MOST_LEVELS} levels")


def offset_of(text: str, place: tuple[str | int, ...]) -> int:
    """Where the value at `place` begins (a member: its key), or the nearest thing around it that exists.

    `text` is JSON that `loads` took.
    """
    at = best = _skip_space(text, 0)
    for step in place:
        found = _child(text, at, step)
        if found is None:
            break
        best, at = found
    return best


def _child(text: str, at: int, step: str | int) -> tuple[int, int] | None:
    """(where it is told, where its value begins) of one member of the container at `at`."""
    if text[at] == "{":
        at = _skip_space(text, at + 1)
        while text[at] != "}":
            begin = at
            key, at = scanstring(text, at + 1, False)
            at = _skip_space(text, _skip_space(text, at) + 1)  # the colon
            if key == str(step):
                return begin, at
            at = _after(text, at)
    elif text[at] == "[" and isinstance(step, int):
        at = _skip_space(text, at + 1)
        index = 0
        while text[at] != "]":
            if index == step:
                return at, at
            index += 1
            at = _after(text, at)
    return None


def _after(text: str, at: int) -> int:
    """Where the next member begins, or the container ends, behind the value at `at`."""
    at = _skip_space(text, _skip_value(text, at))
    return _skip_space(text, at + 1) if text[at] == "," else at


def _skip_value(text: str, at: int) -> int:
    if text[at] == '"':
        return int(scanstring(text, at + 1, False)[1])
    if text[at] not in "[{":
        match = _SCALAR.match(text, at)
        return at if match is None else match.end()
    depth = 0
    for token in _TOKEN.finditer(text, at):
        first = text[token.start()]
        depth += (first in "[{") - (first in "]}")
        if not depth:
            return token.end()
    return len(text)


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


def _second(text: str) -> int | None:
    """Where the first key that its mapping has already stands."""
    open_now: list[set[str]] = []
    for token in _TOKEN.finditer(text):
        first = text[token.start()]
        if first in "[{":
            open_now.append(set())
        elif first in "]}":
            open_now.pop()
        elif text[_skip_space(text, token.end()) : _skip_space(text, token.end()) + 1] == ":":
            key = scanstring(text, token.start() + 1, False)[0]
            if key in open_now[-1]:
                return token.start()
            open_now[-1].add(key)
    return None
