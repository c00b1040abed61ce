"""The last page of the demo: the summary for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from horae.tui.forms import number
from horae.tui.parts import sparkline
from horae.tui.view import palette


def show(summary: Mapping[str, Any], console: Console) -> None:
    width = min(console.width, 120)
    colours = palette(t["name"] for t in summary["tenants"])
    console.print(
        Group(
            Rule(
                Text(f" {summary['policy']} on {summary['cluster']}, {summary['seconds']:.0f} s ", "bold"), style="dim"
            ),
            _tenants(summary, colours, width),
            Text(),
            _curves(summary, colours, width),
            *([Text(), _apps(summary, colours)] if summary["apps"] else []),
            Text(),
            _sentences(summary),
        ),
        width=width,
    )


def _tenants(summary: Mapping[str, Any], colours: Mapping[str, str], width: int) -> RenderableType:
    bar = max(min(width - 62, 40), 10)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("tenant")
    for title in ("weight", "jobs", "GPU-s", "owed"):
        table.add_column(title, justify="right")
    table.add_column("part of the GPU time, ┃ part owed", no_wrap=True)
    table.add_column("mean JCT", justify="right")
    for tenant in summary["tenants"]:
        name, colour = tenant["name"], colours[tenant["name"]]
        table.add_row(
            Text(name, f"bold {colour}"),
            number(tenant["weight"]),
            f"{tenant['completed']}/{tenant['jobs']}",
            f"{tenant['gpu_s']:.0f}",
            f"{tenant['fair_gpu_s']:.0f}",
            _bar(tenant["part"] or 0.0, tenant["fair_part"] or 0.0, bar, colour),
            "-" if tenant["jct_s"] is None else f"{tenant['jct_s']:.0f} s",
        )
    return table


def _bar(part: float, owed: float, width: int, colour: str) -> Text:
    text, mark = Text(), min(round(owed * width), width - 1)
    for cell in range(width):
        filled = cell < round(part * width)
        if cell == mark:
            text.append("┃", f"bold black on {colour}" if filled else "bold")
        else:
            text.append("█" if filled else "░", colour if filled else "dim")
    return text.append(f" {part:.0%} of {owed:.0%}")


def _curves(summary: Mapping[str, Any], colours: Mapping[str, str], width: int) -> RenderableType:
    """A loss curve a job over its steps, and under it the GPUs it had there: resizes stand where they happened."""
    room = max(width - 52, 16)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("job", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("loss over steps, GPUs below", no_wrap=True, width=room)
    table.add_column("loss", justify="right")
    table.add_column("starts", justify="right")
    table.add_column("JCT", justify="right")
    for job in summary["jobs"]:
        colour, losses = colours[job["tenant"]], [p[1] for p in job["losses"]]
        curve = Text(sparkline(losses, room), colour) + Text("\n") + Text(_sizes(job["losses"], room), "dim")
        table.add_row(
            Text.assemble((job["name"], "bold"), "\n", (job["tenant"], colour)),
            Text(f"{job['steps']}/{number(job['total'])}\n{job['state']}", "dim"),
            curve,
            Text(f"{number(losses[0], 3)}\n{number(losses[-1], 3)}" if losses else "-"),
            str(job["starts"]),
            "-" if job["jct_s"] is None else f"{job['jct_s']:.0f} s",
        )
    return table


def _apps(summary: Mapping[str, Any], colours: Mapping[str, str]) -> Text:
    """A line an app: what its scheduler did with its trials."""
    lines = []
    for app in summary["apps"]:
        best = next((t for t in app["trials"] if t["id"] == app["best"]), None)
        line = Text.assemble(
            (app["name"].rpartition("/")[2], f"bold {colours[app['tenant']]}"), f" {app['scheduler']}: "
        )
        line.append(
            f"of {len(app['trials'])} trials {app['ended_early']} ended early, {app['completed']} ran to the end"
        )
        if best is not None:
            setting = ", ".join(f"{k} {number(v, 3)}" for k, v in best["parameters"].items())
            line.append(f"; best {best['name']} ({setting}), loss {number(best['loss'], 3)}")
        lines.append(line)
    return Text("\n").join(lines)


def _sizes(points: list[list[float]], width: int) -> str:
    """The number of GPUs where it changes, a line where it stays: `1───4──8───`."""
    count = min(width, len(points))
    out, last = "", None
    for cell in range(count):
        world = int(points[cell * len(points) // count][2])
        out += "─" if world == last else str(world)[-1]
        last = world
    return out


def _sentences(summary: Mapping[str, Any]) -> Text:
    resizes, jobs = summary["resizes"], summary["jobs"]
    pause = resizes["pause_s"]
    steps = sum(j["steps"] for j in jobs)
    out = Text()
    out.append(f"{sum(j['state'] == 'completed' for j in jobs)} of {len(jobs)} jobs completed", "bold")
    if summary["jct_s"]["mean"] is not None:
        out.append(f", on average {summary['jct_s']['mean']:.0f} s after they were handed in")
    out.append(".\n")
    if summary["utilisation"] is not None:
        out.append(f"GPUs were held {summary['utilisation']:.0%} of the time")
        if summary["utilisation_of_wanted"] is not None:
            out.append(f" ({summary['utilisation_of_wanted']:.0%} of what jobs could use)")
        out.append(".\n")
    if resizes["count"]:
        out.append(f"{resizes['count']} resizes", "bold")
        if pause["mean"] is not None:
            out.append(f", a pause of {pause['mean']:.1f} s each (at most {pause['max']:.1f} s)")
        out.append(f"; {resizes['repeated_steps']} of {steps} steps done twice")
        if resizes["worst_loss_jump"] is not None:
            out.append(f"; the loss moved over a resize {resizes['worst_loss_jump']:.1f} times its usual step at most")
        out.append(".\n")
    if summary["lost"]:
        out.append("LOST: " + "\n      ".join(summary["lost"]), "bold red")
    else:
        out.append("Nothing was lost: every start took up at the last complete checkpoint.", "bold green")
    return out
