"""`horae snapshot`: what the policy sees, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from horae.cli.options import Json, Socket, connect, example
from horae.elastic.files import saved
from horae.tui import screen

SETTINGS = {"epilog": example("horae snapshot -o now.yaml && horae decide now.yaml --policy afs-l --explain 17")}


def snapshot(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write it there instead.")] = None,
    pool: Annotated[str | None, typer.Option(help="Of which pool; needed only where there are several.")] = None,
    socket: Socket = None,
    as_json: Json = False,
) -> None:
    """Save what the policy sees now, as an instance file.

    `horae decide` replays it to the same decision, byte for byte: the ideal bug report and what-if calculator.
    """
    text = connect(socket).snapshot(pool)
    if as_json:
        import json

        from policy.text.textform import load

        text = json.dumps(load(text, "snapshot.yaml").value, indent=2, ensure_ascii=False) + "\n"
    if output is None:
        print(text, end="")
        return
    with saved(output) as beside:
        Path(beside).write_text(text)
    screen.note(f"saved {output}")
