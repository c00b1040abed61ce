"""`horae serve`: the arbiter."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from horae.cli import exits
from horae.cli.options import example
from horae.tui import screen

SETTINGS = {"epilog": example("horae serve /etc/horae/config.yaml", "horae config check", "horae doctor")}


def serve(
    config: Annotated[
        Path, typer.Argument(help="Its configuration; `horae config init` writes one.", envvar="HORAE_CONFIG")
    ],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Log warnings and errors only.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Log JSON lines; the default where standard error is no terminal.")
    ] = False,
) -> None:
    """Run the arbiter of one cluster.

    Until SIGTERM or Ctrl-C, which stop the arbiter and no job: running jobs run on, and the next arbiter takes up
    where this one was. Tells systemd when it is ready, and feeds its watchdog.
    """
    from horae.cli import logs
    from horae.config import load
    from horae.local.confine import confine

    in_lines = as_json or not sys.stderr.isatty()
    logs.configure(in_lines, quiet=quiet)
    settings = confine(load(config), config)  # before what reads anything of users is even loaded

    from horae.api.server import SocketInUse
    from horae.api.service import Service

    try:
        service = Service(settings)
    except SocketInUse as error:
        raise exits.Failure(
            exits.NO, f"another arbiter answers on {error}", "stop it first, or set api.socket to another path"
        ) from error
    raise typer.Exit(service.run(lambda: _say(service.socket, in_lines)))


def _say(socket: Path, in_lines: bool) -> None:
    if in_lines:
        screen.note(json.dumps({"event": "horae serves", "level": "info", "socket": str(socket)}))
    else:
        screen.note(f"horae serves on {socket}")
