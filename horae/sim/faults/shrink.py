"""The shortest schedule that still shows a violation, by delta debugging (Zeller and Hildebrandt 2002: ddmin)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def shortest(items: Sequence[T], shows: Callable[[Sequence[T]], bool]) -> tuple[T, ...]:
    """A part of `items`, in their order, that shows it and from which nothing can be left out; `items` shows it."""
    if shows(()):
        return ()
    found, parts = tuple(items), 2
    while len(found) >= 2:
        size = -(-len(found) // parts)
        for start in range(0, len(found), size):
            rest = found[:start] + found[start + size :]
            if rest and shows(rest):
                found, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                return found
            parts = min(2 * parts, len(found))
    return found
