"""What stands in a journal, as words: every kind of event and every value in it, field by field.

`python -m tests.horae.journal.written` prints it: what `forms/VERSION.txt` has to be for a new version.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, get_args, get_type_hints

from horae.journal.codec import state_of
from horae.journal.form import _FORMS, Draft
from horae.journal.ledger import Ledger
from horae.journal.measured import Measurement
from profiler.estimates.stretch import Stretch

#: What stands there as plain JSON, without its class being named by an event's.
_WITHIN = (Ledger, Measurement, Stretch)


def form() -> str:
    """Each class of value with its fields, each enumeration with its words."""
    known: dict[type[Any], str] = {}
    waiting: list[Any] = [*(each.of for each in _FORMS.values()), *_WITHIN]
    while waiting:
        kind = waiting.pop()
        if kind not in known:
            known[kind] = _told(kind)
            waiting += _inside(kind)
    return "".join(sorted(known.values()))


def _told(kind: type[Any]) -> str:
    if issubclass(kind, Enum):
        return f"{kind.__name__}: {' '.join(str(member.value) for member in kind)}\n"
    name = f"{kind.__name__} ({kind.kind.value})" if issubclass(kind, Draft) else kind.__name__
    lines = sorted(f"  {each.name}: {each.type}\n" for each in _fields(kind))
    return f"{name}\n{''.join(lines)}"


def _fields(kind: type[Any]) -> Iterator[Any]:
    if is_dataclass(kind):
        yield from fields(kind) if issubclass(kind, Draft) else state_of(kind)


def _inside(kind: type[Any]) -> Iterator[type[Any]]:
    """The classes of what its fields hold."""
    if issubclass(kind, Enum):
        return
    hints = get_type_hints(kind)
    for each in _fields(kind):
        yield from _classes(hints[each.name])


def _classes(hint: Any) -> Iterator[type[Any]]:
    for inner in get_args(hint):
        yield from _classes(inner)
    if isinstance(hint, type) and (is_dataclass(hint) or issubclass(hint, Enum)):
        yield hint


if __name__ == "__main__":
    print(form(), end="")
