"""`horae report`: what became of a job's GPU time."""

from __future__ import annotations

from typing import Any

from horae import job_number, visible
from horae.cli import names
from horae.cli.options import JobArgument, Json, Socket, connect, example
from horae.tui import forms, screen

SETTINGS = {"epilog": example("horae report 17", "horae report 17 --json")}


def report(
    job: JobArgument,
    socket: Socket = None,
    as_json: Json = False,
) -> None:
    """Say what became of a job's GPU time, how long it waited, and what would have been better.

    Of a running job it says how it stands now. Speeds and starts are as they were measured; what was not, is `-`.
    """
    client = connect(socket)
    answer = names.meant(client, job, client.report)
    if as_json:
        screen.emit_json(answer)
        return
    for line in lines(visible.deep(answer)):
        print(line)


def lines(answer: dict[str, Any]) -> list[str]:
    held = answer["held_gpu_s"]

    def part(gpu_s: float) -> str:
        return f"{gpu_s / 3600:.4g} GPU-hours" + (f" ({gpu_s / held:.0%})" if held else "")

    scaling = "-" if answer["scaling"] is None else f"{answer['scaling']:.0%} of what single GPUs would do"
    rows = {
        "held": f"{held / 3600:.4g} GPU-hours in {answer['starts']} start{'' if answer['starts'] == 1 else 's'}",
        "trained": part(answer["trained_gpu_s"]),
        "starts, stops": part(answer["restarting_gpu_s"]),
        "waited": forms.duration(answer["waited_s"]),
        "scaling": scaling,
    }
    number = job_number(answer["id"])
    out = [f"job {number} {answer['name']}  {answer['tenant']}  {answer['state']}"]
    out += [f"{name:<14}{value}" for name, value in rows.items()]
    out += [f"better        {text}" for text in answer["advice"]]
    if not answer["whole"]:
        out.append("its first events are not on record any more: the parts are of what is")
    return out
