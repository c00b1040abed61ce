"""`horae install KIND` and `horae uninstall KIND`: nothing is written without --yes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from horae import sites
from horae.cli.options import Json, example
from horae.tui import screen
from policy.model import BadInput

SETTINGS = {
    "epilog": example("horae install slurm --set partitions=gpu", "horae install yarn --set rm=http://rm:8088 --yes")
}
RECORD = Path("/var/lib/horae/installed.json")
Kind = Annotated[str, typer.Argument(help="slurm or yarn")]
Yes = Annotated[bool, typer.Option("--yes", help="write; without it, only show")]
Purge = Annotated[bool, typer.Option("--purge", help="also remove what stays beside the files: see the dry run")]
Record = Annotated[Path, typer.Option("--record", help="where it is noted what was there before")]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="NAME=VALUE, again and again: see the kind's install guide")
]


def install(kind: Kind, set_: Set = None, yes: Yes = False, record: Record = RECORD, as_json: Json = False) -> None:
    """Show, and with --yes make, every change to this host's files; idempotent."""
    changes, commands = sites.site(kind).changes(_pairs(set_ or []))
    waiting = sites.pending(changes)
    if as_json:
        shown = [{"path": c.name, "why": c.why, "diff": sites.diff(c)} for c in waiting]
        if yes:
            sites.apply(changes, record)
        screen.emit_json({"changes": shown, "written": yes, "commands": list(commands) if waiting else []})
        return
    for change in waiting:
        print(f"# {change.name}: {change.why}")
        print(sites.diff(change), end="")
    if not waiting:
        print("nothing to change: everything is in place")
    elif yes:
        sites.apply(changes, record)
        print(f"written: {len(waiting)} files; what was there before is in {record}")
    else:
        print(f"nothing was written: {len(waiting)} files would change with --yes")
    _then(commands if waiting else [])


def uninstall(
    kind: Kind, set_: Set = None, yes: Yes = False, purge: Purge = False, record: Record = RECORD, as_json: Json = False
) -> None:
    """Put back, byte for byte, what install changed; files that were edited since are left alone and named. What stays
    beside them (accounts, folders, lines that you added) is named with the command that takes it away; with --purge
    that is done too."""
    site = sites.site(kind)
    stays = site.leaving(_pairs(set_ or [])) if isinstance(site, sites.SiteLeaving) else []
    report = _put_back(site, stays, record, purge) if yes else _Report()
    told = [stay.text for stay in stays if stay.text not in report.removed]
    if as_json:
        screen.emit_json({**asdict(report), "commands": told, "written": yes})
    elif not yes:
        _then([stay.text for stay in stays if stay.first], "before that run:")
        print(f"nothing was written: with --yes, everything noted in {record} is put back")
        _then([stay.text for stay in stays if not stay.first])
    else:
        _say("restored", report.restored)
        _say("left alone, edited since:", report.left_alone)
        _say("done:", report.removed)
        _say("could not:", report.failed)
        _then(told)
    if report.left_alone or report.failed:
        raise typer.Exit(1)


@dataclass(slots=True)
class _Report:
    restored: list[str] = field(default_factory=list)
    left_alone: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def _put_back(site: sites.Site, stays: Sequence[sites.Stay], record: Path, purge: bool) -> _Report:
    first = [stay for stay in stays if stay.first] if purge else []
    rest = [stay for stay in stays if not stay.first] if purge else []
    removed, _ = _purged(first, stop=True)
    restored, left_alone = sites.restore(record, getattr(site, "place", None))
    also, failed = _purged(rest)
    return _Report(restored, left_alone, removed + also, failed)


def _purged(stays: Sequence[sites.Stay], stop: bool = False) -> tuple[list[str], list[str]]:
    """(what is gone, what could not be done and why). `stop`: raises the first error instead."""
    gone, stuck = [], []
    for stay in stays:
        if stay.remove is None:
            continue
        try:
            stay.remove()
            gone.append(stay.text)
        except (BadInput, OSError) as error:
            if stop:
                raise
            stuck.append(f"{stay.text}: {error}")
    return gone, stuck


def _say(what: str, found: Sequence[str]) -> None:
    for each in found:
        print(f"{what} {each}")


def _then(commands: Sequence[str], when: str = "then run:") -> None:
    if commands:
        print(when)
    for command in commands:
        print(f"  {command}")


def _pairs(words: list[str]) -> dict[str, str]:
    pairs = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise BadInput(f"'{word}' is not NAME=VALUE", where="--set", value=word)
        pairs[name] = value
    return pairs
