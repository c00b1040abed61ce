"""`horae status`: jobs, nodes and tenants in columns that people who know squeue and sinfo can read at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Annotated, Any

import typer

from horae.cli import exits
from horae.cli.options import Json, Socket, connect, example, job_names
from horae.port import job_number
from horae.tui import forms, screen
from horae.tui.screen import Cell, Column

SETTINGS = {
    "epilog": example("horae status --tenant vision --long", "horae status --nodes"),
}


def status(
    jobs: Annotated[
        list[str] | None, typer.Argument(help="Only these jobs.", metavar="[JOBID]...", autocompletion=job_names)
    ] = None,
    all_: Annotated[bool, typer.Option("--all", "-a", help="Also jobs that ended.")] = False,
    nodes: Annotated[bool, typer.Option("--nodes", "-N", help="The nodes, as sinfo shows them.")] = False,
    tenants: Annotated[bool, typer.Option("--tenants", "-T", help="The tenants and their shares.")] = False,
    tenant: Annotated[str | None, typer.Option("--tenant", "-t", help="Only this tenant's jobs.")] = None,
    state: Annotated[
        str | None, typer.Option("--state", "-s", help="Only jobs in this state (name or letters).")
    ] = None,
    long: Annotated[bool, typer.Option("--long", "-l", help="More columns.")] = False,
    no_header: Annotated[bool, typer.Option("--noheader", help="No header line.")] = False,
    socket: Socket = None,
    as_json: Json = False,
) -> None:
    """Show jobs, nodes and tenants, as squeue and sinfo do.

    States: PD waits, CF starts, R runs, SG stopping, S stopped, SU suspended, CD completed, F failed, CA cancelled, NF
    lost.
    """
    answer = connect(socket).status(ended=all_ or bool(jobs))
    if state is not None and state not in _state_names():
        raise exits.Failure(exits.USAGE, f"there is no state {state!r}", f"states: {', '.join(screen.LETTERS)}")
    chosen = [j for j in answer["jobs"] if _wanted(j, jobs or [], tenant, state)]
    missing = set(jobs or ()) - {name for j in chosen for name in (j["id"], job_number(j["id"]))}
    if as_json:
        screen.emit_json({**answer, "jobs": chosen})
    else:
        for alert in answer["alerts"]:
            exits.say(f"alert: {alert['text']}", alert.get("remedy", ""))
        if nodes:
            screen.table(NODE_COLUMNS, _node_rows(answer["nodes"]), header=not no_header)
        elif tenants:
            screen.table(TENANT_COLUMNS, _tenant_rows(answer["tenants"]), header=not no_header)
        else:
            columns = JOB_COLUMNS + (LONG_COLUMNS if long else ()) + PLACE_COLUMNS
            screen.table(columns, (_job_row(j, long) for j in chosen), header=not no_header)
    if missing:
        raise exits.Failure(exits.NO_SUCH_JOB, f"no such job: {', '.join(sorted(missing))}")


def _state_names() -> set[str]:
    return {*screen.LETTERS, *screen.LETTERS.values()}


def _wanted(job: dict[str, Any], jobs: Sequence[str], tenant: str | None, state: str | None) -> bool:
    return (
        (not jobs or job["id"] in jobs or job_number(job["id"]) in jobs)
        and (tenant is None or job["tenant"] == tenant)
        and (state is None or state in (job["state"], screen.LETTERS.get(job["state"])))
    )


JOB_COLUMNS = (
    Column("JOBID", right=True),
    Column("NAME"),
    Column("TENANT"),
    Column("USER"),
    Column("ST"),
    Column("GPUS", right=True),
    Column("RANGE"),
    Column("TIME", right=True),
)
LONG_COLUMNS = (
    Column("APP"),
    Column("DONE", right=True),
    Column("LOSS", right=True),
    Column("STARTS", right=True),
    Column("GPU_TIME", right=True),
    Column("RHO", right=True),
)
PLACE_COLUMNS = (Column("NODELIST(REASON)"),)


def _job_row(job: dict[str, Any], long: bool) -> list[str | Cell]:
    held = sum(job["allocation"].values())
    row: list[str | Cell] = [
        job_number(job["id"]),
        job["name"],
        job["tenant"],
        job["owner"],
        screen.state(job["state"], screen.LETTERS.get(job["state"], job["state"])),
        str(held),
        job["range"],
        forms.duration(job["ran_s"]),
    ]
    if long:
        done = job["step"] / job["total"] if job["step"] is not None and job["total"] else None
        row += [
            job["app"],
            "-" if done is None else f"{min(done, 1.0):.0%}",
            forms.number(job.get("loss"), 3),
            str(job["starts"]),
            forms.duration(sum(job["attained"].values())),
            forms.number(job["rho"], 3),
        ]
    row.append(forms.allocation(job["allocation"]) if held else f"({reason(job)})" if reason(job) else "")
    return row


def reason(job: dict[str, Any]) -> str:
    """Why it does not run: the decision's code where that is what keeps it, and a sentence."""
    code = f"{job['code']}: " if job["code"] and not job["ended"] and job["state"] == "queued" else ""
    return f"{code}{job['why']}" if job["why"] else ""


NODE_COLUMNS = (
    Column("POOL"),
    Column("STATE"),
    Column("NODES", right=True),
    Column("TYPE"),
    Column("GPUS(A/I/O/T)"),
    Column("NODELIST"),
)


def _node_rows(nodes: Iterable[dict[str, Any]]) -> Iterable[list[str | Cell]]:
    """Nodes alike in pool, state and GPUs share a line, as in sinfo. A/I/O/T: allocated, idle, other, total."""

    def key(node: dict[str, Any]) -> tuple[str, str, str, int]:
        return (node["pool"] or "-", _node_state(node), node["gpu_type"], node["gpus"])

    for (pool, shown, gpu_type, _), group in groupby(sorted(nodes, key=key), key=key):
        alike = list(group)
        total = sum(n["gpus"] for n in alike)
        held = sum(n["held"] for n in alike)
        idle = sum(max(n["gpus"] - n["held"] - n["foreign"], 0) for n in alike if n["health"] == "up")
        yield [
            pool,
            screen.state(shown if shown in screen.STATE_STYLES else "up", shown),
            str(len(alike)),
            gpu_type,
            f"{held}/{idle}/{total - held - idle}/{total}",
            forms.fold(n["name"] for n in alike),
        ]


def _node_state(node: dict[str, Any]) -> str:
    if node["health"] != "up":
        return str(node["health"])
    used = node["held"] + node["foreign"]
    return "idle" if used == 0 else "alloc" if used >= node["gpus"] else "mix"


TENANT_COLUMNS = (
    Column("TENANT"),
    Column("WEIGHT", right=True),
    Column("GPUS", right=True),
    Column("FAIR", right=True),
    Column("CAP", right=True),
    Column("RUN", right=True),
    Column("WAIT", right=True),
    Column("GPU_TIME", right=True),
    Column("RHO", right=True),
)


def _tenant_rows(tenants: Iterable[dict[str, Any]]) -> Iterable[list[str | Cell]]:
    for tenant in tenants:
        yield [
            tenant["name"],
            forms.number(tenant["weight"]),
            str(tenant["held"]),
            forms.number(tenant["fair"], 3),
            "-" if tenant["cap"] is None else str(tenant["cap"]),
            str(tenant["running"]),
            str(tenant["waiting"]),
            forms.duration(tenant["gpu_s"]),
            forms.number(tenant["rho"], 3),
        ]
