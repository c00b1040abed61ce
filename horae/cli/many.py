"""One request about each of several jobs: all are tried, and each has its own answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import typer

from horae import visible
from horae.cli import exits
from horae.tui import screen


def for_each(jobs: Sequence[str], act: Callable[[str], Mapping[str, Any]], *, as_json: bool) -> None:
    """Exit code 1 when some were refused; a single one's refusal is the command's."""
    from horae.api.errors import ApiError

    answers: dict[str, Any] = {}
    for job in jobs:
        try:
            answers[job] = act(job)
        except ApiError as error:
            if len(jobs) == 1:
                raise
            answers[job] = {"error": {"code": error.code.value, "message": error.message}}
    if as_json:
        screen.emit_json({"jobs": answers})
    for job, answer in answers.items():
        if "error" in answer:
            exits.say(f"{job}: {answer['error']['message']}")
        elif not as_json:
            print(f"job {job}: {visible.neutral(answer['text'])}")
    if any("error" in answer for answer in answers.values()):
        raise typer.Exit(exits.NO)
