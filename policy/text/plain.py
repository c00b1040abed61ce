"""Plain values: dicts with text keys, lists, text, finite numbers and None, which every text form gives back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Place = tuple[str | int, ...]


def plain(value: Any) -> Any:
    """Mappings and tuples of any kind as dicts and lists, so that the printers take them."""
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(v) for v in value]
    return value


def surely_plain(value: Any) -> bool:
    """True for what is made of dicts with text keys, lists, tuples, text, finite numbers and None, and no other kind.

    The quick answer for nearly everything; of the rest, `plain` and `not_plain` tell.
    """
    kind = type(value)
    if kind in _LEAVES:
        return True
    if kind is float:
        return math.isfinite(value)
    if kind is dict:
        if not _TEXT.issuperset(map(type, value)):
            return False
        value = value.values()
    elif kind is not list and kind is not tuple:
        return False
    return _LEAVES.issuperset(map(type, value)) or all(map(surely_plain, value))


_LEAVES = frozenset((str, bool, int, type(None)))
_TEXT = frozenset((str,))


def not_plain(value: Any, at: Place = ()) -> Iterator[tuple[Place, str]]:
    """Every part of `value` that the text forms could not give back: (place, why)."""
    if isinstance(value, Mapping):
        for k, v in value.items():
            if not isinstance(k, str):
                yield (*at, str(k)), f"the key {k!r} is not text"
            yield from not_plain(v, (*at, str(k)))
    elif isinstance(value, str | bool | int) or value is None:
        return
    elif isinstance(value, float):
        if not math.isfinite(value):
            yield at, "is not a finite number"
    elif isinstance(value, list | tuple):
        for i, v in enumerate(value):
            yield from not_plain(v, (*at, i))
    else:
        yield at, f"is {type(value).__name__}, which has no text form"
