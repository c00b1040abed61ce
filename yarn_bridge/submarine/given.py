"""What was asked for, option by option, with the place where it was asked: command line and YAML file made alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from policy.model import BadInput
from yarn_bridge.submarine.table import BY_NAME, Option, Takes


@dataclass(frozen=True, slots=True)
class Given:
    """One option with its value; `value` is "true" for an option without one."""

    option: Option
    value: str
    field: str  #: as it was written: `--num_workers`, or `roles.worker.replicas`
    where: str = ""  #: the file, or nothing for the command line
    line: int | None = None

    def bad(self, message: str, remedy: str) -> BadInput:
        return BadInput(message, where=self.where, line=self.line, field=self.field, value=self.value, remedy=remedy)


@dataclass
class Wanted:
    """All that was given. Options that take one value are here at most once."""

    items: list[Given] = field(default_factory=list)
    idle: list[tuple[str, str, str]] = field(default_factory=list)  #: keys without effect: place, value, why

    strays: list[tuple[str, BadInput]] = field(default_factory=list)  #: words that belong to no option

    def add(self, new: Given) -> None:
        """Raises BadInput for an option that is there already, from the file or from the command line."""
        old = self.get(new.option.name)
        if old is not None and new.option.takes is not Takes.VALUES:
            if old.where != new.where:
                raise new.bad(f"is also in {old.where or new.where}", "keep one of the two")
            raise new.bad("stands twice", "keep one of them")
        if old is not None and old.where != new.where:
            raise new.bad(f"is also in {old.where or new.where}", "keep all of them in one place")
        self.items.append(new)

    def get(self, name: str) -> Given | None:
        return next((item for item in self.items if item.option.name == name), None)

    def all(self, name: str) -> list[Given]:
        return [item for item in self.items if item.option.name == name]

    def text(self, name: str) -> str | None:
        item = self.get(name)
        return None if item is None else item.value

    def has(self, name: str) -> bool:
        return self.get(name) is not None

    def need(self, name: str, why: str) -> Given:
        """Raises BadInput when it was not given."""
        item = self.get(name)
        if item is None or not item.value.strip():
            option = BY_NAME[name]
            place = f", or {option.yaml} in the file" if option.yaml else ""
            raise BadInput(f"is missing: {why}", field=f"--{name}", remedy=f"add --{name}{place}")
        return item

    def whole(self, name: str, default: int, least: int = 0) -> int:
        """A whole number. Raises BadInput."""
        item = self.get(name)
        if item is None:
            return default
        if not item.value.strip().isascii() or not item.value.strip().isdigit() or int(item.value) < least:
            raise item.bad(
                "is not a whole number" + (f" of at least {least}" if least else ""), f"e.g. {max(1, least)}"
            )
        return int(item.value)

    def __iter__(self) -> Iterator[Given]:
        return iter(self.items)
