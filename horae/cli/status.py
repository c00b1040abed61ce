"""`horae status`: jobs, nodes and tenants in columns that people who know squeue and sinfo can read at once."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from horae import job_number, visible
from horae.cli import exits, names
from horae.cli.options import Json, Socket, connect, example, job_names
from horae.tui import formats, forms, screen
from horae.tui.screen import Cell, Column

if TYPE_CHECKING:
    from horae.arbiter.requests import answers

SETTINGS = {
    "epilog": example(
        "horae status --tenant vision --long", "horae status --nodes", "horae status -u ann -o '%i %.12j %T %R'"
    ),
}


_NOTES = 20  #: lines of notes below a table


def status(
    jobs: Annotated[
        list[str] | None,
        typer.Argument(help="Only these jobs, by number or name.", metavar="[JOB]...", autocompletion=job_names),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", "-a", help="Also jobs that ended.")] = False,
    nodes: Annotated[bool, typer.Option("--nodes", "-N", help="The nodes, as sinfo shows them.")] = False,
    tenants: Annotated[bool, typer.Option("--tenants", "-T", help="The tenants and their shares.")] = False,
    tenant: Annotated[str | None, typer.Option("--tenant", "-t", help="Only this tenant's jobs.")] = None,
    state: Annotated[
        str | None, typer.Option("--state", "-s", help="Only jobs in this state (name or letters).")
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", "-u", help="Only jobs of these users: names or numbers, with commas.")
    ] = None,
    start: Annotated[bool, typer.Option("--start", help="When waiting jobs might start, as far as it shows.")] = False,
    form: Annotated[
        str | None, typer.Option("--format", "-o", help="As squeue's: '%i %.10j %T'; see below for the letters.")
    ] = None,
    long: Annotated[bool, typer.Option("--long", "-l", help="More columns.")] = False,
    no_header: Annotated[bool, typer.Option("--noheader", help="No header line.")] = False,
    socket: Socket = None,
    as_json: Json = False,
) -> None:
    """Show jobs, nodes and tenants, as squeue and sinfo do.

    States: PD waits, CF starts, R runs, SG stopping, S stopped, SU suspended, CD completed, F failed, CA cancelled, NF
    lost.

    Letters of --format: %i number, %j name, %a tenant, %u user, %P pool, %t state, %T state in full, %b GPUs held,
    %G GPUs that it can use, %D nodes, %N nodes by name, %R nodes or reason, %r reason, %M time it ran, %L time left of
    its limit, %V submitted, %S start (with --start), %p part done, %Q priority, %e exit code; with a width %10i, right
    %.10i.

    Below --nodes stands, for operators, what could not be read or believed; below --tenants what the certificate of the
    newest decision notes.

    --start tells when enough GPUs come free by the limits and the progress of those that run: an estimate, which jobs
    that come later, or a policy that shrinks others, change. N/A: nothing that runs tells when it ends.
    """
    pattern = None if form is None else formats.read(form)
    client = connect(socket)
    brief = not (as_json or long or pattern is not None)
    answer = client.status(ended=all_ or bool(jobs), starts=start, brief=brief)
    chosen = _chosen(answer, jobs or [], tenant, state, user)
    if start and not jobs:
        chosen = _by_start(chosen)
    if as_json:
        screen.emit_json({**answer, "jobs": chosen, **({"notes": client.about()["notes"]} if nodes else {})})
    else:
        _alerts(answer["alerts"], chosen)
        if nodes:
            screen.table(NODE_COLUMNS, _node_rows(answer["nodes"], answer["now_s"]), header=not no_header)
            _notes(client.about()["notes"])
        elif tenants:
            screen.table(TENANT_COLUMNS, _tenant_rows(answer["tenants"]), header=not no_header)
            _notes(_judged(answer["pools"]))
        else:
            _show_jobs(chosen, pattern, start=start, long=long, header=not no_header)
    if missing := [word for word in jobs or () if not any(names.called(job, word) for job in chosen)]:
        near = names.likely(missing[0], answer["jobs"])
        raise exits.Failure(exits.NO_SUCH_JOB, f"no such job: {', '.join(missing)}", near)


def _show_jobs(
    jobs: Iterable[answers.JobAnswer], pattern: formats.Pattern | None, *, start: bool, long: bool, header: bool
) -> None:
    if pattern is not None:
        _by_pattern(pattern, jobs, header=header)
    elif start:
        screen.table(START_COLUMNS, (_start_row(j) for j in jobs), header=header)
    else:
        columns = JOB_COLUMNS + (LONG_COLUMNS if long else ()) + PLACE_COLUMNS
        screen.table(columns, (_job_row(j, long) for j in jobs), header=header)


def _by_pattern(pattern: formats.Pattern, jobs: Iterable[answers.JobAnswer], *, header: bool) -> None:
    if header:
        print(pattern.header())
    for job in jobs:
        print(pattern.line(job))


def _notes(found: Sequence[str]) -> None:
    """What is to be known beside a table; those who may not know it were told none."""
    for note in found[:_NOTES]:
        screen.note(f"note: {visible.neutral(note)}")
    if len(found) > _NOTES:
        screen.note(f"note: and {len(found) - _NOTES} more, which --json shows")


def _judged(pools: Iterable[answers.PoolAnswer]) -> list[str]:
    """What the certificates of the newest decisions say about who is owed more."""
    certificates = ((pool["name"], pool["decided"].get("certificate", {})) for pool in pools)
    return [f"pool {name}: {note}" for name, found in certificates for note in found.get("notes", ())]


def _alerts(alerts: Iterable[answers.AlertAnswer], jobs: Iterable[answers.JobAnswer]) -> None:
    """What is wrong with the arbiter, and of the jobs what their owners and operators are to know."""
    for alert in alerts:
        exits.say(f"alert: {alert['text']}", alert.get("remedy", ""))
    for job in jobs:
        if trouble := job.get("checkpoint_trouble"):
            _job_alert(job, f" cannot write checkpoints: {trouble}", "; it trains on and is not resized")
        if idle := job.get("unused"):
            _job_alert(job, f": {idle}")


def _job_alert(job: answers.JobAnswer, text: str, more: str = "") -> None:
    number = job_number(job["id"])
    exits.say(f"alert: job {number} {visible.neutral(job['name'] + text)}", f"`horae explain {number}`{more}")


def _chosen(
    answer: answers.StatusAnswer, jobs: Sequence[str], tenant: str | None, state: str | None, user: str | None
) -> list[answers.JobAnswer]:
    """The jobs that were asked for. Raises Failure for a state, a user or a tenant that there is not."""
    state = None if state is None else _state(state)
    users = None if user is None else names.users(user, answer)
    if tenant is not None:
        names.check_tenant(tenant, answer)
    return [job for job in answer["jobs"] if _wanted(job, jobs, tenant, state, users)]


def _state(said: str) -> str:
    """A state's letters as they are, its name in small letters. Raises Failure for what is neither."""
    if said in screen.LETTERS.values():
        return said
    if said.lower() not in screen.LETTERS:
        raise exits.Failure(exits.USAGE, f"there is no state {said.lower()!r}", f"states: {', '.join(screen.LETTERS)}")
    return said.lower()


def _by_start(jobs: Iterable[answers.JobAnswer]) -> list[answers.JobAnswer]:
    """Those that wait, the next to start first; those of which nobody knows last."""
    waiting = [j for j in jobs if not j["ended"] and not j["allocation"]]
    return sorted(waiting, key=lambda j: (j["start_s"] is None, j["start_s"] or 0.0))


def _wanted(
    job: answers.JobAnswer, jobs: Sequence[str], tenant: str | None, state: str | None, users: Container[str] | None
) -> bool:
    return (
        (not jobs or any(names.called(job, word) for word in jobs))
        and (users is None or job["owner"] in users)
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


def _job_row(job: answers.JobAnswer, long: bool) -> list[str | Cell]:
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
    row.append(formats.place(job))
    return row


START_COLUMNS = (
    *JOB_COLUMNS[:5],
    Column("RANGE"),
    Column("START_TIME"),
    *PLACE_COLUMNS,
)


def _start_row(job: answers.JobAnswer) -> list[str | Cell]:
    row = _job_row(job, long=False)
    return [*row[:5], row[6], formats.stamp(job.get("start_s")), row[-1]]


NODE_COLUMNS = (
    Column("POOL"),
    Column("STATE"),
    Column("NODES", right=True),
    Column("TYPE"),
    Column("GPUS(A/I/O/T)"),
    Column("NODELIST"),
)


def _node_rows(nodes: Iterable[answers.Node], now_s: float) -> Iterable[list[str | Cell]]:
    """Nodes alike in pool, state and GPUs share a line, as in sinfo. A/I/O/T: allocated, idle, other, total.
    maint: it is being emptied before a time in which it is away, or is away."""

    def key(node: answers.Node) -> tuple[str, str, str, int]:
        return (node["pool"] or "-", _node_state(node, now_s), node["gpu_type"], node["gpus"])

    for (pool, shown, gpu_type, _), group in groupby(sorted(nodes, key=key), key=key):
        alike = list(group)
        total = sum(n["gpus"] for n in alike)
        held = sum(n["held"] for n in alike)
        up = [n for n in alike if n["health"] == "up"]
        idle = sum(max(n["gpus"] - n["held"] - n["foreign"], 0) for n in up)
        yield [
            pool,
            screen.state(shown if shown in screen.STATE_STYLES else "up", shown),
            str(len(alike)),
            gpu_type,
            f"{held}/{idle}/{total - held - idle}/{total}",
            forms.fold(n["name"] for n in alike),
        ]


def _node_state(node: answers.Node, now_s: float) -> str:
    if node["health"] != "up":
        return str(node["health"])
    if any(time["leave_s"] <= now_s for time in node.get("away", ())):
        return "maint"
    used = node["held"] + node["foreign"]
    return "idle" if used == 0 else "alloc" if used >= node["gpus"] else "mix"


TENANT_COLUMNS = (
    Column("TENANT"),
    Column("WEIGHT", right=True),
    Column("GPUS", right=True),
    Column("FAIR", right=True),
    Column("CAP", right=True),
    Column("BUDGET", right=True),
    Column("RUN", right=True),
    Column("WAIT", right=True),
    Column("GPU_TIME", right=True),
    Column("RHO", right=True),
)


def _of_budget(budget: answers.Budget | None) -> str:
    """GPU-hours used of those of the period; a `!` where they are used up."""
    if budget is None:
        return "-"
    over = "!" if budget["over"] else ""
    return f"{budget['used']:.4g}/{budget['gpu_hours']:g}h a {budget['period']}{over}"


def _tenant_rows(tenants: Iterable[answers.Tenant]) -> Iterable[list[str | Cell]]:
    for tenant in tenants:
        yield [
            tenant["name"],
            forms.number(tenant["weight"]),
            str(tenant["held"]),
            forms.number(tenant["fair"], 3),
            "-" if tenant["cap"] is None else str(tenant["cap"]),
            _of_budget(tenant.get("budget")),
            str(tenant["running"]),
            str(tenant["waiting"]),
            forms.duration(tenant["gpu_s"]),
            forms.number(tenant["rho"], 3),
        ]
