"""Plain values: dicts with text keys, lists, text, finite numbers and None, which every text form gives back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

Place = tuple[str | int, ...]


def plain(value: Any) -> Any:
    """Mappings and tuples of any kind as dicts and lists, so that the printers take them."""
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(v) for v in value]
    return value


def surely_plain(value: Any, lists: frozenset[type] = frozenset((list, tuple))) -> bool:
    """True for what is made of dicts with text keys, `lists`, text, finite numbers and None, and no other kind.

    The quick answer for nearly everything; of the rest, `plain` and `not_plain` tell. It goes level by level, each in
    one sweep of the interpreter's own loops: what a policy says of ten thousand jobs is four or five levels.
    """
    level: Iterable[Any] = [value]
    for _ in range(MOST_LEVELS):
        rest = [v for v in level if type(v) not in _AS_IT_IS]
        kinds = set(map(type, rest))
        if not (kinds <= lists | _NUMBERS_AND_DICTS and (float not in kinds or _finite(rest))):
            return False
        dicts = rest if kinds == _DICTS else [v for v in rest if type(v) is dict]
        if kinds.isdisjoint(lists | _DICTS):
            return True
        if not _TEXT.issuperset(map(type, chain.from_iterable(dicts))):
            return False
        inside = [] if kinds.isdisjoint(lists) else [v for v in rest if type(v) in lists]
        level = chain(chain.from_iterable(map(dict.values, dicts)), chain.from_iterable(inside))
    return False


def _finite(values: Iterable[Any]) -> bool:
    return all(map(math.isfinite, [v for v in values if type(v) is float]))


#: Deeper, and where a value holds itself, nobody is sure.
MOST_LEVELS = 100
#: What is plain whatever it says, and holds nothing more.
_AS_IT_IS = frozenset((str, bool, int, type(None)))
_NUMBERS_AND_DICTS: frozenset[type] = frozenset((float, dict))
_TEXT = frozenset((str,))
_DICTS = frozenset((dict,))


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
