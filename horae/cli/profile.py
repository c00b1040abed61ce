"""`horae profile`: what training logs tell, in a table, as JSON, as a picture, or live."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Annotated, Any

import typer

from horae import visible
from horae.cli import cluster_logs, exits
from horae.cli.options import Json, drawn
from horae.tui import screen
from horae.tui.screen import Cell, Column
from policy.model import BadInput
from profiler.estimates.report import explain as explain_line
from profiler.estimates.report import report, summaries
from profiler.estimates.report import why as why_of
from profiler.model import RunSummary
from profiler.rules.book import BadRules, RuleBook
from profiler.rules.book import load as load_rules
from profiler.runs import log_files
from profiler.runs.reader import LogReader

if TYPE_CHECKING:
    from rich.text import Text

SETTINGS = {
    "epilog": "Example:  `horae profile slurm-*.out`;  `horae profile --follow train.log`;  "
    "`horae profile yarn:application_1700000000000_0001 --config horae.yaml`;  "
    "`horae profile --explain 'step 10 loss 2.31'`",
}

_LONG = 32 << 20  #: bytes from which a progress bar is worth its lines
COLUMNS = (
    Column("FILE"),
    Column("RUN", right=True),
    Column("FORMAT"),
    Column("POSITION", right=True),
    Column("EPOCH", right=True),
    Column("S/ITER", right=True),
    Column("SAMPLES/S", right=True),
    Column("LOSS", right=True),
    Column("VALID", right=True),
    Column("LEFT", right=True),
    Column("GPUS", right=True),
    Column("STATE"),
)

WHY = (
    Column("FILE"),
    Column("RUN", right=True),
    Column("FIELD"),
    Column("VALUE", right=True),
    Column("SURE", right=True),
    Column("LINES"),
    Column("AGAINST"),
)


def profile(
    logs: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files, folders, patterns; - reads standard input. yarn:APPLICATION or "
            "yarn:APPLICATION/CONTAINER/FILE: logs of any YARN application, while it runs and afterwards.",
            metavar="LOG...",
        ),
    ] = None,
    points: Annotated[bool, typer.Option("--points", help="With --json: every point of the loss curve.")] = False,
    explain: Annotated[
        str | None, typer.Option("--explain", help="Say which rule reads this line, and how.", metavar="LINE")
    ] = None,
    why: Annotated[
        bool, typer.Option("--why", help="Say of each number how sure it is, which lines made it, what spoke against.")
    ] = False,
    formats: Annotated[bool, typer.Option("--formats", help="List the formats that have rules.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as the logs grow.")] = False,
    every: Annotated[float, typer.Option("--every", help="With --follow: seconds between looks.", min=0.05)] = 2.0,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw loss and iteration time into this PNG.", metavar="FILE.png")
    ] = None,
    rules: Annotated[
        list[Path] | None, typer.Option("--rules", help="A site's own rule file; asked before the built-in ones.")
    ] = None,
    target: Annotated[float | None, typer.Option("--target", help="Loss to reach, for the iterations left.")] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", help="GPUs it ran on, where the log does not tell.")] = None,
    gpu_type: Annotated[str | None, typer.Option("--gpu-type", help="Their type: copied into the answer.")] = None,
    model_key: Annotated[str | None, typer.Option("--model-key", help="Key under which jobs share profiles.")] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", envvar="HORAE_CONFIG", help="Configuration that names the cluster, for yarn:..."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Read training logs of any form: progress, iteration time, loss, failures, and what is left to do.

    Exit code 1: some logs told nothing, or could not be read.
    """
    book = _book(rules or [])
    if formats:
        _show_formats(book, as_json)
        return
    if explain is not None:
        _show_line(explain, book, as_json)
        return
    if not logs:
        raise exits.Failure(exits.USAGE, "no logs given", "name files, folders or patterns; or --formats, --explain")
    told = {"gpus": gpus, "gpu_type": gpu_type, "model_key": model_key}
    if follow:
        _follow(cluster_logs.follow(logs), book, every, target, told, as_json, points)
        return
    found = cluster_logs.find(logs, config, book)
    answers, reports = [], []
    for each in found:
        name, reader, notes = _read(each, book, alone=len(found) == 1, waits=each in logs)
        runs = summaries(reader, target)
        answers.append((name, runs))
        reports.append(_told(report(name, reader, runs, notes, points=points), told))
        if plot is not None:
            _draw(reader, name, plot if len(found) == 1 else plot.with_stem(f"{plot.stem}-{len(answers)}"))
    if as_json:
        screen.emit_json(reports[0] if len(reports) == 1 else reports)
    else:
        _show(answers, why)
        _warn(reports)
    if _partly(found) or not all(runs for _, runs in answers):
        raise typer.Exit(exits.NO)


def _partly(found: Sequence[object]) -> bool:
    return any(isinstance(each, cluster_logs.Read) and each.notes for each in found)


def _draw(reader: LogReader, name: str, path: Path) -> None:
    from profiler.estimates.plot import draw

    with drawn(path) as beside:
        draw(reader.runs(), beside, title=name)


def _show(answers: Sequence[tuple[str, Sequence[RunSummary]]], why: bool) -> None:
    columns, rows_of = (WHY, _why) if why else (COLUMNS, _rows)
    screen.table(columns, [row for name, runs in answers for row in rows_of(name, runs)])


def _warn(reports: Iterable[Mapping[str, Any]]) -> None:
    for body in reports:
        for warning in (*body.get("warnings", ()), *(w for run in body["runs"] for w in run["warnings"])):
            screen.note(f"{body['file']}: {warning}")


def _read(
    log: str | cluster_logs.Read, book: RuleBook, *, alone: bool, waits: bool
) -> tuple[str, LogReader, list[str]]:
    """Name, reader, notes. A file that cannot be read is a note, unless it is the only one. `waits`: a pipe is waited
    for, since its very name was asked for; what was found in a folder is a stranger's to replace."""
    if isinstance(log, cluster_logs.Read):
        return log.name, log.reader, log.notes
    try:
        with _progress(log) as advance, _patience(log):
            return log, *log_files.read(log, book, advance, waits=waits)
    except OSError as error:
        if alone:
            raise
        return log, LogReader(book), [f"it cannot be read: {error.strerror or error}"]


@contextmanager
def _patience(name: str) -> Iterator[None]:
    """A pipe is waited for, and after a second that is said."""
    if name == log_files.STDIN or not Path(name).is_fifo():
        yield
        return
    word = Timer(
        1.0, screen.note, (f"horae: {name} is a pipe: it is read until its writers have ended (Ctrl-C ends it)",)
    )
    word.daemon = True
    word.start()
    try:
        yield
    finally:
        word.cancel()


def _book(paths: Sequence[Path]) -> RuleBook:
    try:
        return load_rules(paths)
    except BadRules as e:
        raise BadInput(e.message, where=e.where, line=e.line, field=e.field, remedy=e.remedy) from None


def _told(body: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    """Add what the user told: GPUs where the log is silent, type and key as given."""
    for run in body["runs"]:
        if run["gpus"] is None:
            run["gpus"] = told["gpus"]
        run.update({k: told[k] for k in ("gpu_type", "model_key") if told[k] is not None})
    return body


# --- words on the screen ------------------------------------------------------------------------------------


def _rows(name: str, runs: Sequence[RunSummary]) -> Iterator[list[str | Cell]]:
    if not runs:
        yield [name, "-", *["-"] * (len(COLUMNS) - 3), "no training found"]
    for n, run in enumerate(runs, 1):
        yield [name, str(n), *_cells(run)]


def _why(name: str, runs: Sequence[RunSummary]) -> Iterator[list[str | Cell]]:
    for n, run in enumerate(runs, 1):
        for row in why_of(run):
            yield [name, str(n), *row]


def _cells(run: RunSummary) -> list[str | Cell]:
    held = run.validation_loss or run.validation_accuracy
    left = None if run.fit is None else run.fit.iterations_left
    return [
        run.format or "-",
        "-" if run.iterations is None else _of(run.iterations.last, run.iterations.total),
        "-" if run.epochs is None else _of(run.epochs.last, run.epochs.total),
        "-" if run.iteration_time is None else f"{run.iteration_time.median:.4g}",
        "-" if run.throughput is None else f"{run.throughput.median:.5g}",
        "-" if run.loss is None else f"{run.loss.last[1]:.4g}",
        "-" if held is None else f"{held.last[1]:.4g}",
        "-" if left is None else _number(round(left)),
        "-" if run.gpus is None else str(run.gpus),
        Cell("ok" if run.failure is None else run.failure.kind.value, "green" if run.failure is None else "bold red"),
    ]


def _of(last: float, total: float | None) -> str:
    return _number(last) if total is None else f"{_number(last)}/{_number(total)}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"


def _show_formats(book: RuleBook, as_json: bool) -> None:
    found: dict[str, list[str]] = {}
    titles: dict[str, str] = {}
    for rule in book.rules:
        found.setdefault(rule.format, []).append(rule.name)
        titles[rule.format] = rule.title
    if as_json:
        screen.emit_json([{"format": f, "title": titles[f], "rules": names} for f, names in found.items()])
        return
    rows = [[f, str(len(names)), titles[f]] for f, names in found.items()]
    rows.append(["generic", "-", "anything with words beside its numbers, tables, CSV, JSON lines"])
    screen.table((Column("FORMAT"), Column("RULES", right=True), Column("WHAT PRINTS IT")), rows)


def _show_line(line: str, book: RuleBook, as_json: bool) -> None:
    found = explain_line(line, book)
    if as_json:
        screen.emit_json(found)
    elif found["rule"] is None:
        screen.note("no rule reads this line, and the generic reader finds nothing in it")
    else:
        screen.print_pairs(
            [
                ("rule", f"{found['rule']} ({found['example_of'] or 'built in'})"),
                ("kind", found["kind"]),
                ("counts in", found["scope"] or "told by how the counter behaves"),
                *((name, f"{value:g}") for name, value in found["reads"].items()),
                ("stamp", "" if found["time"] is None else f"{found['time']:.3f} s"),
            ]
        )
    if found["rule"] is None:
        raise typer.Exit(exits.NO)


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int], None] | None]:
    """A bar for a long file on a terminal; nothing else."""
    size = 0 if name == log_files.STDIN else Path(name).stat().st_size
    if size < _LONG or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    stream = sys.stderr.plain if isinstance(sys.stderr, visible.Guarded) else sys.stderr
    with Progress(*columns, console=Console(file=stream), transient=True) as bar:
        task = bar.add_task(visible.neutral(Path(name).name), total=size)
        yield lambda n: bar.update(task, advance=n)


# --- live ---------------------------------------------------------------------------------------------------


def _follow(
    names: Sequence[str],
    book: RuleBook,
    every: float,
    target: float | None,
    told: dict[str, Any],
    as_json: bool,
    points: bool,
) -> None:
    """Look again every few seconds until interrupted; a log that is gone is waited for."""
    if log_files.STDIN in names:
        raise exits.Failure(exits.USAGE, "--follow needs files", "pipe into `horae profile -` without --follow")
    for name in names:
        if not Path(name).is_file():
            raise exits.Failure(exits.USAGE, f"--follow needs files, and {name} is none", "read it without --follow")
    tails = [log_files.Tail(name, book) for name in names]
    view = _json_view(told, points) if as_json else _table_view()
    with view as show:
        while True:
            changed = [tail for tail in tails if _poll(tail)]
            if changed:
                show([(t.path, t, summaries(t.reader, target)) for t in (changed if as_json else tails)])
            time.sleep(every)


def _poll(tail: log_files.Tail) -> bool:
    try:
        return tail.poll() > 0
    except FileNotFoundError:
        return False
    except OSError as error:  # a file server that is away for a while
        why = f"it could not be read for a time: {error.strerror or error}"
        if why not in tail.notes:
            tail.notes.append(why)
            screen.note(f"{tail.path}: {why}")
        return False


Shown = Sequence[tuple[str, log_files.Tail, list[RunSummary]]]


@contextmanager
def _json_view(told: dict[str, Any], points: bool) -> Iterator[Callable[[Shown], None]]:
    def show(answers: Shown) -> None:
        for name, tail, runs in answers:
            screen.emit_json_line(_told(report(name, tail.reader, runs, tail.notes, points=points), told))

    yield show


@contextmanager
def _table_view() -> Iterator[Callable[[Shown], None]]:
    if not sys.stdout.isatty():

        def plain(answers: Shown) -> None:
            screen.table(COLUMNS, [row for name, _, runs in answers for row in _rows(name, runs)])
            sys.stdout.flush()

        yield plain
        return
    from rich.live import Live
    from rich.table import Table

    with Live(refresh_per_second=4) as live:

        def redraw(answers: Shown) -> None:
            grid = Table(*(c.title for c in COLUMNS), box=None, header_style="bold")
            for name, _, runs in answers:
                for row in _rows(name, runs):
                    cells = [_cell_text(cell) for cell in row]
                    grid.add_row(*cells)
            live.update(grid)

        yield redraw


def _cell_text(cell: Cell | str) -> Text:
    """What is in it, and not what it would mean as markup: who wrote a log has named it."""
    from rich.text import Text

    if isinstance(cell, Cell):
        return Text(cell.text)
    return Text(cell)
