"""`horae doctor`: is everything there?"""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from horae.cli import exits
from horae.cli.options import Json, Socket, example
from horae.tui import screen
from horae.tui.screen import Cell, Column

SETTINGS = {"epilog": example("horae doctor /etc/horae/config.yaml")}

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    config: Annotated[
        Path | None, typer.Argument(help="A configuration: its cluster is looked at, too.", envvar="HORAE_CONFIG")
    ] = None,
    socket: Socket = None,
    as_json: Json = False,
) -> None:
    """Check this installation and its cluster, with remedies.

    Every probe is harmless: nothing is claimed, submitted or changed. Exit code 1 if any check failed.
    """
    from horae.api.client import Unreachable, find_socket
    from horae.config import load, socket_path
    from horae.doctor import examine

    found = None if config is None else load(config)
    configured = found.api.socket if found is not None else None
    where: Path | None
    try:
        where = find_socket(socket or configured)
    except Unreachable:  # where it would be, if we were the service
        where = socket_path(found) if found is not None else None
    checks = list(examine(found, where))
    if as_json:
        screen.emit_json({
            "ok": all(c.verdict != "fail" for c in checks),
            "checks": [asdict(c) for c in checks],
        })  # fmt: skip
    else:
        columns = (Column("CHECK"), Column("VERDICT"), Column("FOUND"))
        screen.table(columns, ([c.name, Cell(c.verdict.value, STYLES[c.verdict]), c.text] for c in checks))
        for check in checks:
            if check.remedy:
                print(f"{os.linesep}{check.name}: {check.text}{os.linesep}  remedy: {check.remedy}")
    if any(c.verdict == "fail" for c in checks):
        raise typer.Exit(exits.NO)
