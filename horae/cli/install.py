"""`horae install KIND` and `horae uninstall KIND`: nothing is written without --yes."""

from __future__ import annotations

from collections.abc import Sequence
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
    if not yes and not as_json:
        _then([stay.text for stay in stays if stay.first], "before that run:")
        print(f"nothing was written: with --yes, everything noted in {record} is put back")
        _then([stay.text for stay in stays if not stay.first])
        return
    gone, stuck = _purged([stay for stay in stays if stay.first], stop=True) if yes and purge else ([], [])
    done, left = sites.restore(record, getattr(site, "place", None)) if yes else ([], [])
    if yes and purge:
        also, stuck = _purged([stay for stay in stays if not stay.first])
        gone += also
    told = [stay.text for stay in stays if stay.text not in gone]
    if as_json:
        paths = {"restored": [str(p) for p in done], "left_alone": [str(p) for p in left]}
        screen.emit_json({**paths, "removed": gone, "failed": stuck, "commands": told, "written": yes})
    else:
        for path in done:
            print(f"restored {path}")
        for path in left:
            print(f"left alone, edited since: {path}")
        for text in gone:
            print(f"done: {text}")
        for text in stuck:
            print(f"could not: {text}")
        _then(told)
    if left or stuck:
        raise typer.Exit(1)


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
