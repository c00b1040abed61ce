"""`horae trace`: look at a trace of jobs, make another one out of it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from horae import visible
from horae.cli.options import Json, example
from horae.tui import screen
from policy.model import BadInput

if TYPE_CHECKING:
    from horae.sim.traces.lines import TraceLines

app = typer.Typer(
    help="Look at a trace of jobs, or make another one out of it.",
    epilog=example("horae trace describe jobs.csv", "horae trace scale jobs.csv 1.5 --seed 1 --out more.csv"),
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

File = Annotated[
    Path, typer.Argument(metavar="TRACE", help="The trace, `-`: standard input; gzip is told by its content.")
]
Form = Annotated[
    str,
    typer.Option("--format", help="ours, philly, helios, alibaba, gavel, pollux, swf, sacct. Guide: docs, traces."),
]
Out = Annotated[Path | None, typer.Option(help="Write here (a name in .gz: packed); default: standard output.")]
Seed = Annotated[int, typer.Option(help="Seed of what is drawn: the same seed gives the same bytes.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave malformed rows out, list and count them.")]


@app.command(epilog=example("horae trace describe philly.csv.gz --format philly --json"))
def describe(
    trace: File, form: Form = "ours", out: Out = None, skip_bad: SkipBad = False, as_json: Json = False
) -> None:
    """How many jobs over which time, how many GPUs they ask for, how long they run, how they arrive, whose they are.

    `load_gpus` is what they ask for over the span: on fewer GPUs than that the queue only grows.
    """
    from horae.sim.traces import describing

    _said_where(False, out, trace)
    columns, lines, aside = _columns(trace, form, skip_bad)
    skipped = {**aside, **({"malformed": len(lines.malformed)} if lines.malformed else {})}
    found = describing.describe(columns, skipped)
    _show(found, as_json, out)


@app.command(epilog=example("horae trace sample jobs.csv 1000 --seed 3 --out some.csv"))
def sample(
    trace: File,
    rows: Annotated[int, typer.Argument(metavar="N", min=0, help="How many rows.")],
    form: Form = "ours",
    seed: Seed = 0,
    out: Out = None,
    skip_bad: SkipBad = False,
    as_json: Json = False,
) -> None:
    """Draw N rows without replacement: unchanged, in their order, under the same header."""
    from horae.sim.traces.drawing import sample as draw

    _said_where(as_json, out, trace)
    text, lines = draw(trace, form, rows, seed, skip_bad=skip_bad)
    _tell(lines)
    _write([text], out)
    _done(lines, as_json, out)


@app.command(epilog=example("horae trace scale jobs.csv 2 --seed 1 --out twice.csv"))
def scale(
    trace: File,
    factor: Annotated[float, typer.Argument(metavar="F", help="1.5: half as many jobs again.")],
    form: Form = "ours",
    seed: Seed = 0,
    out: Out = None,
    skip_bad: SkipBad = False,
    as_json: Json = False,
) -> None:
    """Make a trace of F times as many jobs over the same time: F times the load, in the trace's own daily shape.

    Each job is one of the trace, drawn whole. A trace of another form comes out as ours.
    """
    from horae.sim.traces.drawing import scale as draw

    _said_where(as_json, out, trace)
    text, lines = draw(trace, form, factor, seed, skip_bad=skip_bad)
    _tell(lines)
    _write(text, out)
    _done(lines, as_json, out)


@app.command(epilog=example("horae trace fit jobs.csv", "horae trace fit jobs.csv --jobs 100000 --out large.csv"))
def fit(
    trace: File,
    form: Form = "ours",
    jobs: Annotated[int | None, typer.Option(min=1, help="Draw so many jobs, at the trace's rate.")] = None,
    seed: Seed = 0,
    out: Out = None,
    skip_bad: SkipBad = False,
    as_json: Json = False,
) -> None:
    """Fit models of arrivals, of GPUs and of durations by GPUs, say how far each is from the trace, draw from them.

    `ks` is the Kolmogorov-Smirnov distance: the largest difference of two distribution functions, 0 to 1. With --jobs
    the jobs go to --out and the models are printed; without --out the jobs are printed.
    """
    from horae.sim.traces import fitting, writing

    _said_where(as_json and jobs is not None, out, trace)
    columns, _, _ = _columns(trace, form, skip_bad)
    if len(columns.submitted) < 2:
        raise BadInput("a trace of fewer than two jobs has no rate", where=str(trace), remedy="give a longer one")
    found = fitting.fit(columns)
    if jobs is None or out is not None:
        _show(found.to_plain(), as_json, None if jobs is not None else out)
    if jobs is not None:
        _write(writing.as_text(["submitted", "duration", "gpus"], found.draw(jobs, seed)), out)


def _columns(trace: Path, form: str, skip_bad: bool) -> tuple[Any, TraceLines, dict[str, int]]:
    from horae.sim.traces import describing
    from horae.sim.traces.lines import TraceLines
    from horae.sim.traces.reading import rows

    lines = TraceLines(trace, skip_bad=skip_bad)
    found = rows(lines, form)
    columns = describing.columns(lines, found)
    _tell(lines)
    return columns, lines, dict(found.left_aside)


def _said_where(needed: bool, out: Path | None, trace: Path) -> None:
    """Before the work. `needed`: standard output is for JSON."""
    from horae.sim.traces.writing import writable

    writable(out, "--out", [trace])
    if needed and out is None:
        raise typer.BadParameter("the rows go to standard output: say --out FILE", param_hint="--json")


def _done(lines: TraceLines, as_json: bool, out: Path | None) -> None:
    if as_json:
        screen.emit_json({"out": str(out), "skipped": {"malformed": len(lines.malformed)} if lines.malformed else {}})


def _tell(lines: TraceLines) -> None:
    for bad in lines.remarks:
        screen.note(f"{lines.path}:{bad.line}: {bad.column}: {bad.what}: {bad.value}")


def _show(found: dict[str, Any], as_json: bool, out: Path | None) -> None:
    if out is not None:
        from horae.sim.traces.writing import json_text

        _write([json_text(found)], out)
        if as_json:
            screen.emit_json({"out": str(out)})
    elif as_json:
        screen.emit_json(found)
    else:
        screen.print_pairs(_pairs(found))


def _pairs(found: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, value in found.items():
        if isinstance(value, dict):
            yield from _pairs(value, f"{prefix}{key} ")
        elif isinstance(value, list):
            first, last = value[0], value[-1]
            yield f"{prefix}{key}", f"{len(value)} from {first:g} to {last:g}"
        else:
            yield f"{prefix}{key}", value if isinstance(value, str) else f"{value:,.6g}"


def _write(text: Iterable[str], out: Path | None) -> None:
    """As it is: what was copied stays unchanged. A terminal gets it without what it would obey."""
    if out is None:
        for part in text:
            if sys.stdout.isatty():
                sys.stdout.write(visible.lines(part.replace("\r\n", "\n")))
            else:
                sys.stdout.buffer.write(part.encode())
        return
    from horae.sim.traces.writing import to_file

    to_file(out, text)
