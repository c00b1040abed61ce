"""One request about each of several jobs: all are tried, and each has its own answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from horae import job_number, visible
from horae.cli import exits, names
from horae.tui import screen

if TYPE_CHECKING:
    from horae.api.client import Client


def for_each(client: Client, jobs: Sequence[str], act: Callable[[str], Mapping[str, Any]], *, as_json: bool) -> None:
    """Exit code 1 when some were refused; a single one's refusal is the command's."""
    from horae.api.errors import ApiError

    answers: dict[str, Any] = {}
    for job in jobs:
        try:
            answers[job] = names.meant(client, job, act)
        except ApiError as error:
            if len(jobs) == 1:
                raise
            answers[job] = {"error": {"code": error.code.value, "message": error.message, "remedy": error.remedy}}
    if as_json:
        screen.emit_json({"jobs": answers})
    for job, answer in answers.items():
        if "error" in answer:
            exits.say(f"{job}: {answer['error']['message']}", answer["error"]["remedy"])
        elif not as_json:
            print(f"job {job_number(answer['job'])}: {visible.neutral(answer['text'])}")
    if any("error" in answer for answer in answers.values()):
        raise typer.Exit(exits.NO)
