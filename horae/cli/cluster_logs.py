"""`horae profile KIND:WHAT`: logs that lie in a cluster, read as they come."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from horae import joblogs
from horae.cli import exits
from horae.port import PortError
from horae.tui import screen
from policy.model import BadInput
from profiler.rules.book import RuleBook
from profiler.runs import log_files
from profiler.runs.reader import LogReader


@dataclass(slots=True)
class Read:
    """A log that was read, and what there is to say about it."""

    name: str
    reader: LogReader
    notes: list[str] = field(default_factory=list)
    aside: bool = False
    asked: bool = False

    @property
    def tells(self) -> bool:
        return bool(self.reader.runs())


def find(names: Iterable[str], config: Path | None, book: RuleBook) -> list[str | Read]:
    """Files by name, as `profiler.runs.log_files.find` finds them; logs of a cluster read at once, since they come
    in one go."""
    found: list[str | Read] = []
    for name in names:
        kind = joblogs.named(name)
        found += log_files.find([name]) if kind is None else _read(name, *kind, config, book)
    return [each for n, each in enumerate(found) if not isinstance(each, str) or each not in found[:n]]


def follow(names: Iterable[str]) -> list[str]:
    """Raises Failure for logs that cannot be followed."""
    for name in names:
        if joblogs.named(name):
            raise exits.Failure(exits.USAGE, f"--follow needs files, and {name} is none", "read it without --follow")
    return log_files.find(names)


def _read(name: str, kind: str, what: str, config: Path | None, book: RuleBook) -> list[Read]:
    source = joblogs.source(kind, config)
    read: dict[str, Read] = {}
    try:
        for log in source.logs(what):
            one = read.setdefault(log.name, Read(log.name, LogReader(book), [], log.aside, log.asked))
            try:
                for piece in log.pieces:
                    one.reader.feed(piece)
            except (BadInput, PortError) as error:
                one.notes.append(f"reading stopped ({error}); what was read until then counts")
    finally:
        source.close()
    kept = _telling(sorted(read.values(), key=lambda one: one.name))
    if len(kept) < len(read):
        screen.note(f"{name}: {len(read) - len(kept)} more logs, which tell nothing of training or are an application "
                    "master's; name them to see them")  # fmt: skip
    for trouble in dict.fromkeys(source.troubles):
        kept[0].notes.append(trouble)
    return kept


def _telling(read: list[Read]) -> list[Read]:
    """What was asked for by name; else what tells of training, an application master's only where nothing else does."""
    if any(one.asked for one in read):
        return read
    telling = [one for one in read if one.tells]
    return [one for one in telling if not one.aside] or telling or read
