"""Values made quickly: what `@dataclass(frozen=True, slots=True)` makes, at a fifth of the cost.

A frozen dataclass sets each field through `object.__setattr__`, since its own refuses to: 2.5 us for a job of 25
fields, and a round makes tens of thousands. `quick` has the fields set while the object is of a twin class, alike but
for not refusing, and makes it frozen as the last step. Nobody sees it before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

T = TypeVar("T")


class _Made:
    """Stands for "make it yourself" where a field has a default factory."""

    def __repr__(self) -> str:
        return "<factory>"


def quick(kind: type[T]) -> type[T]:
    """`kind`, a frozen dataclass with slots and no `__post_init__`, with a quicker `__init__`. It takes no subclasses
    that leave `__init__` to it."""
    known: tuple[Field[Any], ...] = fields(kind)  # type: ignore[arg-type]
    in_order = all(f.init and not f.kw_only for f in known) and not hasattr(kind, "__post_init__")
    if not in_order or "__slots__" not in vars(kind):
        raise TypeError(f"{kind.__name__} is no frozen dataclass with slots whose fields are all given in order")
    twin = type(kind.__name__, kind.__bases__, {"__slots__": vars(kind)["__slots__"]})
    names: dict[str, Any] = {"_set": object.__setattr__, "_kind": kind, "_twin": twin, "_made": _Made()}
    arguments, body = ["self"], []
    for f in known:
        value, default = f.name, ""
        if f.default is not MISSING:
            default, names[f"_default_{f.name}"] = f"=_default_{f.name}", f.default
        elif f.default_factory is not MISSING:
            default, names[f"_make_{f.name}"] = "=_made", f.default_factory
            value = f"_make_{f.name}() if {f.name} is _made else {f.name}"
        arguments.append(f.name + default)
        body.append(f"    self.{f.name} = {value}")
    lines = [
        f"def __init__({', '.join(arguments)}):",
        "    _set(self, '__class__', _twin)",
        *body,
        "    self.__class__ = _kind",
    ]
    exec("\n".join(lines), names)  # of field names alone, as dataclasses does
    init = names["__init__"]
    init.__qualname__, init.__annotations__ = kind.__init__.__qualname__, kind.__init__.__annotations__
    kind.__init__ = init  # type: ignore[method-assign]
    return kind


def altered(value: T, **changes: Any) -> T:
    """`dataclasses.replace` for what is made by the order of its fields (at least two), at a quarter of the cost."""
    kind = type(value)
    places, values_of = _parts(kind)  # type: ignore[arg-type]
    values = list(values_of(value))
    for name, new in changes.items():
        values[places[name]] = new
    return kind(*values)


@cache
def _parts(kind: type[Any]) -> tuple[dict[str, int], Callable[[Any], tuple[Any, ...]]]:
    names = [f.name for f in fields(kind)]
    return {name: i for i, name in enumerate(names)}, attrgetter(*names)
