"""What a dry run says, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from horae import job_number, visible
from horae.tui import forms, screen
from horae.tui.screen import Column

_OTHERS = (
    Column("JOBID", right=True),
    Column("NAME"),
    Column("TENANT"),
    Column("HOLDS", right=True),
    Column("WITHOUT", right=True),
    Column("WITH", right=True),
)


def show_trial(found: Mapping[str, Any]) -> None:
    found = visible.deep(found)
    for job in found["jobs"]:
        held = sum(job["allocation"].values())
        if held:
            gpus = f"{held} GPU{'' if held == 1 else 's'}"
            print(f"{job['name']}: would run at once with {gpus} on {forms.allocation(job['allocation'])}")
            continue
        print(f"{job['name']}: would wait: {job['why']}")
        if job["change"]:
            print(f"  to change it: {job['change']}")
        print(f"  {_start(job)}")
    if found["others"]:
        print("GPUs of the others, without it and with it:")
        keys = ("name", "tenant", "gpus", "without", "with")
        rows = ([job_number(o["id"]), *(str(o[key]) for key in keys)] for o in found["others"])
        screen.table(_OTHERS, rows)
    else:
        print("nobody else would hold other GPUs for it")
    if found["mode"] not in ("enforce", "order"):
        print(f"pool {found['pool']} is in mode {found['mode']}: Horae itself starts nothing there")
    print(f"policy {found['policy']}; nothing was handed in")


def _start(job: dict[str, Any]) -> str:
    if job["code"] == "infeasible":
        return "as it is it never starts here"
    if job["code"] == "waits-cap":
        return "when it could start nobody knows: it waits for a limit, not for GPUs"
    if job["start_in_s"] is None:
        return "when it could start nobody knows: nothing that runs tells when it ends"
    if not job["start_after"]:
        return "enough GPUs are free: it waits for the policy's word alone"
    after = ", ".join(map(job_number, job["start_after"][:8]))
    return f"enough GPUs come free in about {forms.duration(job['start_in_s'])}, when these have ended: {after}"
