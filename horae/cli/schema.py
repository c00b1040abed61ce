"""`horae schema`: what the file forms may hold, for editors and checkers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from horae.tui import screen

SETTINGS = {"epilog": "Example:  `horae schema instance > instance.schema.json`"}


class FileForm(StrEnum):
    INSTANCE = "instance"
    CONFIG = "config"
    DECISION = "decision"


def schema(form: Annotated[FileForm, typer.Argument(help="Which form.", show_default=False)]) -> None:
    """Print the JSON Schema of a file form: instance, config, or decision (what `horae decide --json` prints)."""
    if form is FileForm.CONFIG:
        from horae.config import schema as found
    elif form is FileForm.DECISION:
        from policy.text.answer import schema as found
    else:
        from policy.text.instance import schema as found
    screen.emit_json(found())
