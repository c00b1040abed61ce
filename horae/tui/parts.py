"""The parts of the live picture, each a function of the view and a width. Words stay readable without colour."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import groupby

from rich.style import Style
from rich.text import Text

from horae import job_number
from horae.tui.forms import allocation, duration, number
from horae.tui.screen import LETTERS, STATE_STYLES
from horae.tui.view import JobView, NodeView, TenantView, TrialView, View, palette
from policy.model import Seconds

BLOCKS = " ▏▎▍▌▋▊▉█"
SPARKS = "▁▂▃▄▅▆▇█"


def title(view: View, width: int) -> Text:
    running = sum(j.state == "running" for j in view.jobs)
    waiting = sum(not j.ended and not j.held for j in view.jobs)
    ended = sum(j.ended for j in view.jobs)
    right = Text.assemble(
        (f"{view.held}/{view.gpus}", "bold"), (" GPUs  ", "dim"), (str(running), "bold green"), (" run  ", "dim"),
        (str(waiting), "bold yellow"), (" wait  ", "dim"), (str(ended), "bold"), (" ended  ", "dim"),
        duration(view.since_s) if view.since_s is not None else clock(view.wall_s), " ",
    )  # fmt: skip
    short = view.cluster.partition(" (")[0]
    for left in (_left(view, view.cluster, True), _left(view, short, True), _left(view, short, False)):
        gap = width - left.cell_len - right.cell_len
        if gap >= 1:
            break
    return Text.assemble(left, " " * max(gap, 1), right, no_wrap=True)


def _left(view: View, cluster: str, mode: bool) -> Text:
    text = Text.assemble(
        (" horae ", "bold black on #4c9be8"), " ", (cluster, "bold"), ("  policy ", "dim"), view.policy
    )
    return text.append("  mode ", "dim").append(view.mode) if mode else text


def clock(wall_s: Seconds) -> str:
    return time.strftime("%H:%M:%S", time.localtime(wall_s))


def node_map(view: View, width: int, height: int = 99) -> Text:
    """Each GPU a cell that holds the job's number on its tenant's colour; nodes of one type side by side."""
    colours = palette(j.tenant for j in view.jobs)
    on_node: dict[str, list[JobView]] = {}
    for job in view.jobs:
        for host, gpus in job.allocation.items():
            on_node.setdefault(host, []).extend([job] * gpus)
    lines: list[Text] = []
    for gpu_type, of_type in groupby(view.nodes, key=lambda n: n.gpu_type):
        nodes = list(of_type)
        label = max(len(n.name) for n in nodes)
        line = Text.assemble((f"{gpu_type:<6} ", "dim"))
        for node in nodes:
            cell = _node(node, on_node.get(node.name, []), colours, label)
            if line.cell_len + cell.cell_len > width and line.cell_len > 7:
                lines.append(line)
                line = Text(" " * 7)
            line.append_text(cell)
        lines.append(line)
    if len(lines) > height:
        lines = _dense(view, on_node, colours, width, height)
    return Text("\n", no_wrap=True).join(lines)


def _node(node: NodeView, jobs: Sequence[JobView], colours: Mapping[str, str], label: int) -> Text:
    health = {"up": "", "drain": "yellow", "down": "bold red"}.get(node.health, "")
    text = Text.assemble((f"{node.name:<{label}}", health or "bold"), " ")
    for slot in range(node.gpus):
        if slot < len(jobs):
            job = jobs[slot]
            style = Style(color="black", bgcolor=colours[job.tenant], bold=True, reverse=False)
            text.append(
                f"{job_number(job.id)[-2:]:>2} ",
                style if job.state == "running" else style + Style(dim=True, bold=False),
            )
        elif node.health == "down":
            text.append(" × ", "red")
        elif slot < len(jobs) + node.foreign:
            text.append(" ▒ ", "dim")
        else:
            text.append(" · ", "dim on #1c1c1c")
    text.append("  ")
    return text


def _dense(
    view: View, on_node: Mapping[str, Sequence[JobView]], colours: Mapping[str, str], width: int, height: int
) -> list[Text]:
    """Clusters that do not fit cell by cell: one bar a GPU type, a stretch a tenant."""
    lines = []
    for gpu_type, of_type in groupby(sorted(view.nodes, key=lambda n: n.gpu_type), key=lambda n: n.gpu_type):
        nodes = list(of_type)
        total = sum(n.gpus for n in nodes)
        held: dict[str, int] = {}
        for node in nodes:
            for job in on_node.get(node.name, ()):
                held[job.tenant] = held.get(job.tenant, 0) + 1
        tail = f" {sum(held.values())}/{total} GPUs on {len(nodes)} nodes"
        room = max(width - 7 - len(tail), 10)
        line = Text.assemble((f"{gpu_type:<6} ", "dim"))
        used = 0
        for tenant, gpus in sorted(held.items()):
            cells = round(room * gpus / total)
            line.append("█" * cells, colours[tenant])
            used += cells
        line.append("·" * max(room - used, 0), "dim")
        line.append(tail, "dim")
        lines.append(line)
    return lines[:height]


def tenant_lines(view: View, width: int) -> Text:
    """A bar a tenant: what it holds, a mark where its fair share ends, and its GPU time beside what it was owed."""
    colours = palette(t.name for t in view.tenants)
    name_width = max((len(t.name) for t in view.tenants), default=0)
    top = max([view.gpus, 1])
    bar = max(min(width - name_width - 36, 48), 8)
    lines = [_tenant(t, colours[t.name], name_width, bar, top, view) for t in view.tenants]
    return Text("\n", no_wrap=True).join(lines)


def _tenant(tenant: TenantView, colour: str, name_width: int, bar: int, top: int, view: View) -> Text:
    held, mark = round(bar * tenant.held / top), min(round(bar * tenant.fair / top), bar - 1)
    text = Text.assemble((f"{tenant.name:<{name_width}} ", f"bold {colour}"))
    for cell in range(bar):
        if cell == mark and tenant.fair > 0:
            text.append("┃", "bold white" if cell >= held else f"bold black on {colour}")
        else:
            text.append("█" if cell < held else "░", colour if cell < held else "#444444")
    text.append(f" {tenant.held:>3}", "bold")
    text.append(f"/{number(tenant.fair, 2):<4}", "dim")
    total = sum(t.gpu_s for t in view.tenants) or 1.0
    text.append(f" {tenant.gpu_s / total:>4.0%}", "bold")
    if tenant.fair_gpu_s is not None:
        owed = sum(t.fair_gpu_s or 0.0 for t in view.tenants) or 1.0
        text.append(f"/{tenant.fair_gpu_s / owed:<4.0%}", "dim")
    else:
        text.append(" of time", "dim")
    text.append(f"  rho {number(tenant.rho, 2)}", "dim" if tenant.rho is None else "")
    return text


def app_lines(view: View, width: int) -> Text:
    """A line an app with a scheduler: its phase, and its trials, the best first, as cells: number, or how it ended."""
    colours = palette(j.tenant for j in view.jobs)
    lines = []
    for app in view.apps:
        line = Text.assemble((app.name, f"bold {colours.get(app.tenant, '')}"), (f" {app.scheduler}  ", "dim"))
        if app.phase:
            line.append("phase ", "dim").append(app.phase)
            if app.places is not None:
                line.append(f", best {app.places} go on", "dim")
            line.append("  ")
        for trial in sorted(app.trials, key=lambda t: (t.rank is None, t.rank or 0, len(t.id), t.id)):
            line.append_text(_trial_cell(trial, colours.get(app.tenant, "white"))).append(" ")
        if app.best:
            line.append(" best ", "dim").append(app.best)
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    return Text("\n", no_wrap=True).join(lines)


def _trial_cell(trial: TrialView, colour: str) -> Text:
    label = f"{job_number(trial.id)[-2:]:>2}"
    if trial.state == "completed":
        return Text(f"{label}✓", "green")
    if trial.state in ("cancelled", "failed"):
        return Text(f"{label}×", "dim")
    return Text(f"{label} ", Style(color="black", bgcolor=colour, bold=True) if trial.held else "yellow")


JOB_COLUMNS = ("JOBID", "NAME", "TENANT", "ST", "GPUS", "DONE", "LOSS", "", "TIME", "NODELIST(REASON)")
_RIGHT = {"JOBID", "LOSS", "TIME"}


def job_rows(view: View, jobs: Sequence[JobView], width: int) -> tuple[list[Text], list[list[Text]]]:
    """Header and rows of the job table, cells padded to columns that fit `width`: wide ones get bars and curves."""
    colours = palette(j.tenant for j in view.jobs)
    roomy = width >= 100
    spare = max(width - 100, 0)
    bar, spark = (8 + spare // 6, 10 + spare // 4) if roomy else (0, 8)
    rows = [_job(job, colours.get(job.tenant, ""), bar, spark, long_range=roomy) for job in jobs]
    gap = 2 if roomy else 1
    header = [Text(name) for name in JOB_COLUMNS]
    used = 0
    for index, name in enumerate(JOB_COLUMNS):
        column = [header[index], *(row[index] for row in rows)]
        wide = max(cell.cell_len for cell in column)
        if index == len(JOB_COLUMNS) - 1:
            wide, gap = max(width - used, 8), 0
        for cell in column:
            _fit(cell, wide, right=name in _RIGHT)
            cell.append(" " * gap)
        used += wide + gap
    return header, rows


def _fit(cell: Text, width: int, *, right: bool) -> None:
    cell.truncate(width, overflow="ellipsis")
    missing = width - cell.cell_len
    if right:
        cell.pad_left(missing)
    else:
        cell.pad_right(missing)


def _job(job: JobView, colour: str, bar: int, spark: int, *, long_range: bool) -> list[Text]:
    where = allocation(job.allocation) if job.held else f"({job.reason})" if job.reason else ""
    asked = f" of {job.gpus}" if long_range else f"/{job.gpus.rpartition(':')[2].rpartition(',')[2] or '∞'}"
    return [
        Text(job_number(job.id)),
        Text(job.name, style="dim" if job.ended else ""),
        Text(job.tenant, style=colour),
        Text(LETTERS.get(job.state, job.state), style=STATE_STYLES.get(job.state, "")),
        Text.assemble((f"{job.held}", "bold" if job.held else "dim"), (asked, "dim")),
        progress_bar(job.progress, bar, colour),
        Text(number(job.loss, 3)),
        Text(sparkline([loss for _, loss in job.losses], spark), style=colour),
        Text(duration(job.ran_s)),
        Text.assemble((f"{job.trouble} ", "bold red"), where)
        if job.trouble
        else Text(where, "" if job.held else "dim"),
    ]


def progress_bar(part: float | None, width: int, colour: str) -> Text:
    if part is None:
        return Text("-".rjust(width + (5 if width else 4)), style="dim")
    eighths = round(part * width * 8)
    full, rest = divmod(eighths, 8)
    drawn = "█" * full + (BLOCKS[rest] if rest else "")
    gap = " " if width else ""
    return Text.assemble((drawn.ljust(width), f"{colour} on #303030"), f"{gap}{part:>4.0%}")


def sparkline(values: Sequence[float], width: int) -> str:
    """The last word in `width` cells: values averaged a cell, scaled between the least and the most of them."""
    if not values:
        return ""
    count = min(width, len(values))
    cells = []
    for cell in range(count):
        part = values[cell * len(values) // count : max((cell + 1) * len(values) // count, 1)]
        cells.append(sum(part) / len(part))
    low, high = min(cells), max(cells)
    scale = (len(SPARKS) - 1) / (high - low) if high > low else 0.0
    return "".join(SPARKS[round((value - low) * scale)] for value in cells)


def event_lines(view: View, width: int, height: int) -> Text:
    """The newest happenings, newest last, one line each."""
    colours = palette(j.tenant for j in view.jobs)
    lines = []
    for event in view.events[-height:] if height > 0 else ():
        line = Text.assemble((clock(event.wall_s), "dim"), " ")
        if event.job:
            line.append(f"{event.job:>3} {event.name} ", colours.get(event.tenant, "bold"))
        line.append(event.text)
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    return Text("\n", no_wrap=True).join(lines)


def shown_jobs(view: View) -> list[JobView]:
    """By tenant, those that hold GPUs first, ended ones last, as they came."""
    rank = {"running": 0, "starting": 0, "stopping": 0}
    return sorted(view.jobs, key=lambda j: (j.ended, j.tenant, rank.get(j.state, 1), j.submitted_s, j.id))
