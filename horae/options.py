"""A cluster's options: a mapping of the site's configuration against a dataclass whose defaults say each one's type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from policy.model import BadInput

#: More than any number and any list of a site's options means: seconds, mebibytes, requests a second; words
MOST, MOST_WORDS = 1e9, 10_000


def typed_options(kind: type[Any], options: Mapping[str, Any], where: str, maps: frozenset[str]) -> dict[str, Any]:
    """The given options as arguments of `kind`. `maps`: those that are written as a mapping of names to texts.

    A tuple may be written as a list or with commas; a whole number is at least 1, another number is positive.
    Raises BadInput naming the option to mend.
    """
    known = [field.name for field in fields(kind)]
    defaults = kind()
    for key, value in options.items():
        if key not in known:
            raise BadInput("no such option", where=where, field=key, value=value, remedy=f"one of {', '.join(known)}")
    return {key: _typed(key, value, getattr(defaults, key), where, maps) for key, value in options.items()}


def _bounded(key: str, value: float, most: float, where: str, what: str = "") -> None:
    if value > most:
        raise BadInput(
            f"is above {most:.15g}{what}", where=where, field=key, value=value, remedy=f"at most {most:.15g}"
        )


def _typed(key: str, value: Any, default: Any, where: str, maps: frozenset[str]) -> Any:
    if key in maps:
        if not isinstance(value, Mapping):
            raise BadInput("is not a map of names and values", where=where, field=key, value=value)
        return tuple((str(name), str(text)) for name, text in value.items())
    if isinstance(default, tuple):
        return _words(key, value, where)
    if isinstance(default, int | float) and not isinstance(default, bool):
        return _number(key, value, type(default), where)
    kind, what = (bool, "true or false") if isinstance(default, bool) else (str, "a text")
    if not isinstance(value, kind):
        raise BadInput(f"is not {what}", where=where, field=key, value=value)
    return value


def _words(key: str, value: Any, where: str) -> tuple[str, ...]:
    """A list of them, or a text with commas between."""
    parts = value.split(",") if isinstance(value, str) else value
    if isinstance(parts, list | tuple):
        _bounded(key, len(parts), MOST_WORDS, where, " words")
        if all(isinstance(part, str) and part.strip() for part in parts):
            return tuple(part.strip() for part in parts)
    raise BadInput("is not a list of words", where=where, field=key, value=value)


def _number(key: str, value: Any, kind: type[int] | type[float], where: str) -> float:
    seconds = key.endswith("_s") and not key.endswith("_per_s")
    what, kinds = ("whole number", int) if kind is int else (f"number{' of seconds' * seconds}", int | float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not value > 0:
        raise BadInput(f"is not a positive {what}", where=where, field=key, value=value)
    _bounded(key, value, MOST, where)
    return kind(value)
