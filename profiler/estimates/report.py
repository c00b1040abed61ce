"""The answer of `horae profile` for one log, as one JSON object; and one line in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from profiler.estimates.summary import summarise
from profiler.model import RunSummary
from profiler.rules.book import RuleBook, groups_of, read_line
from profiler.runs.reader import LogReader


def summaries(reader: LogReader, target: float | None = None) -> list[RunSummary]:
    """The runs of a log, estimated."""
    return [summarise(run, target=target) for run in reader.runs()]


def report(
    name: str, reader: LogReader, runs: Iterable[RunSummary], notes: Iterable[str] = (), *, points: bool = False
) -> dict[str, Any]:
    """The documented object of one file."""
    body: dict[str, Any] = {
        "file": name,
        "bytes": reader.bytes,
        "lines": reader.lines,
        "runs": [r.to_json(points) for r in runs],
    }
    warnings = list(notes)
    if reader.terminal.unread:
        warnings.append(f"{reader.terminal.unread} lines were too long to be read")
    if warnings:
        body["warnings"] = warnings
    return body


def why(run: RunSummary) -> list[tuple[str, str, str, str, str]]:
    """(field, value, how sure, lines, what spoke against it) of every number of a run: for `--why`."""
    body = run.to_json()
    rows = []
    for name, told in run.evidence.items():
        value: Any = body
        for key in name.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, list):  # a position and its value
            value = value[1]
        shown = "not told" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
        lines = ", ".join(map(str, told.lines)) or "-"
        rows.append((name, shown, f"{told.confidence:.0%}", lines, "; ".join(told.against) or "-"))
    return rows


def explain(line: str, book: RuleBook) -> dict[str, Any]:
    """Which rule read a line and how: for `--explain`."""
    read = read_line(book, line)
    if read is None:
        return {"line": line, "rule": None, "reads": {}, "kind": None}
    plan, values = read
    time_s = None
    if plan.clock is not None:
        stamp = plan.clock.read(groups_of(plan, line))
        time_s = None if stamp is None else stamp[0]
    return {
        "line": line,
        "rule": plan.rule,
        "kind": plan.kind,
        "scope": plan.scope,
        "unit": plan.unit,
        "bar": plan.bar,
        "reads": values,
        "time": time_s,
        "example_of": next((r.where for r in book.rules if r.full_name == plan.rule), None),
    }
