"""A reader's state as JSON, so that reading goes on after a restart at the byte where it stopped.

Rows are kept as the groups of numbers they were made from, and their plans as one line of the shape: a plan is a
function of a line and the rule book, so it is made again when the state is read. A state written under other rules
is refused (`Stale`): the log is then read again from its beginning.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import lru_cache
from typing import Any

from profiler.model import Failure, FailureKind, Kind, LossKind, Pause, Point, Run, Throughput, Value
from profiler.rules import tables
from profiler.rules.book import RuleBook
from profiler.rules.joined.records import Records
from profiler.rules.plan import Plan, Row
from profiler.rules.templates import ORIGIN, Columns
from profiler.runs.learner import Learner
from profiler.runs.open_run import Facts, Open, Start
from profiler.runs.reader import LogReader
from profiler.runs.run_reader import Runs
from profiler.runs.series import RECENT, SAME, Series
from profiler.text.terminal import Terminal

VERSION = 7
_ROW = tuple(s for s in Row.__slots__ if s not in ("plan", "groups", "point_made"))
_POINT_DEFAULTS = {f.name: f.default for f in fields(Point)}


class Stale(ValueError):
    """The state cannot be gone on from: other rules, another version, or damaged."""


@lru_cache(maxsize=8)
def fingerprint(book: RuleBook) -> str:
    """Equal for books that read every line alike. Worked out once a book: the state of each job's reader has it."""
    text = json.dumps([VERSION, book.generic, [repr(r) for r in book.rules]])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def dump(reader: LogReader) -> dict[str, Any]:
    """The whole state of a reader, of JSON types."""
    plans = _Plans()
    return {
        "version": VERSION,
        "book": fingerprint(reader.book),
        "bytes": reader.bytes,
        "terminal": reader.terminal.to_json(),
        "table": None if reader.table is None else reader.table.head,
        "bare": reader.bare.to_json(),
        "records": reader.records.to_json(),
        "runs": _runs(reader.runs_read, plans),
        "learner": reader.learner.to_json(),
        "learnt": _runs(reader.learner.runs, plans),
        "plans": plans.lines,
    }


def load(state: Mapping[str, Any], book: RuleBook) -> LogReader:
    """The reader that `dump` described. Raises `Stale`."""
    try:
        if state["version"] != VERSION or state["book"] != fingerprint(book):
            raise Stale("the rules changed")
        reader = LogReader(book)
        reader.bytes = state["bytes"]
        reader.terminal = Terminal.from_json(state["terminal"])
        reader.table = None if state["table"] is None else tables.head(state["table"])
        reader.bare = tables.Bare.from_json(state["bare"])
        reader.records = Records.from_json(state["records"], book)
        plans = [_plan(p, book) for p in state["plans"]]
        reader.runs_read = _load_runs(state["runs"], plans)
        reader.learner = Learner.from_json(state["learner"], _load_runs(state["learnt"], plans))
    except (KeyError, TypeError, IndexError, AttributeError) as e:
        raise Stale(f"damaged: {type(e).__name__}: {e}") from None
    return reader


class _Plans:
    """Numbers the plans that rows use."""

    def __init__(self) -> None:
        self.lines: list[list[str]] = []
        self._known: dict[int, int] = {}

    def number(self, plan: Plan) -> int:
        known = self._known.get(id(plan))
        if known is None:
            known = self._known[id(plan)] = len(self.lines)
            self.lines.append([plan.origin, plan.sample])
        return known


def _plan(saved: list[str], book: RuleBook) -> Plan:
    origin, sample = saved
    plan: Plan | None
    if origin.startswith(ORIGIN):
        plan = Columns.from_json(origin.removeprefix(ORIGIN)).plan(sample)
    elif origin == "bare":
        plan = tables.Bare.plan(sample)
    elif origin:
        table = tables.head(origin)
        plan = None if table is None else table.plan(sample)
    else:
        plan = book.plan_of(sample)
    if plan is None:
        raise Stale("a line is no longer read")
    return plan


# --- runs ---------------------------------------------------------------------------------------------------


def _runs(runs: Runs, plans: _Plans) -> dict[str, Any]:
    rows: dict[int, int] = {}
    saved: list[list[Any]] = []

    def number(row: Row | None) -> int | None:
        if row is None:
            return None
        known = rows.get(id(row))
        if known is None:
            known = rows[id(row)] = len(saved)
            saved.append(
                [
                    plans.number(row.plan),
                    *(getattr(row, slot) for slot in _ROW),
                    list(row.groups),
                ]
            )
        return known

    run = runs.bounds.open
    return {
        "limit": runs.bounds.most,
        "order": runs.order,
        "tags": [runs.tags, runs.in_turns],
        "days": [runs.days.day, runs.days.last],
        "closed": [_closed(r) for r in runs.bounds.closed],
        "starts": [_start(s) for s in runs.bounds.starts],
        "open": {
            "first_line": run.first_line,
            "last_line": run.last_line,
            "series": {name: _series(s, number, plans) for name, s in run.series.items()},
            "facts": _facts(run.facts),
            "failure": _failure(run.failure),
            "context": run.context,
            "header_line": run.header_line,
            "header_time": run.header_time,
            "header_rule": run.header_rule,
            "done_epoch": run.done_epoch,
            "position": list(run.position),
            "position_line": run.position_line,
            "announced": run.announced,
            "early": run.early,
            "below": run.below,
            "evaluating": run.evaluating,
            "over": run.over,
        },
        "rows": saved,
    }


def _load_runs(state: Mapping[str, Any], plans: list[Plan]) -> Runs:
    runs = Runs(state["limit"])
    runs.order = state["order"]
    runs.tags, runs.in_turns = state.get("tags", ([], False))
    runs.days.day, runs.days.last = state["days"]
    bounds = runs.bounds
    bounds.closed = [_load_closed(r) for r in state["closed"]]
    bounds.starts = [_load_start(s) for s in state["starts"]]
    rows = [_row(r, plans) for r in state["rows"]]
    saved = state["open"]
    run = bounds.open = Open(saved["first_line"])
    run.last_line = saved["last_line"]
    run.series = {name: _load_series(name, s, rows, plans) for name, s in saved["series"].items()}
    bounds.share()
    run.facts = _load_facts(saved["facts"])
    run.failure = _load_failure(saved["failure"])
    run.context = None if saved["context"] is None else (saved["context"][0], saved["context"][1])
    run.header_line, run.done_epoch = saved["header_line"], saved["done_epoch"]
    run.header_time, run.header_rule = saved["header_time"], saved["header_rule"]
    run.position = (saved["position"][0], saved["position"][1])
    run.position_line = saved["position_line"]
    early = saved.get("early")
    run.early = None if early is None else (early[0], early[1])
    run.below = saved.get("below", 0)
    run.evaluating = saved.get("evaluating", False)
    run.over = saved["over"]
    announced = saved["announced"]
    run.announced = None if announced is None else (announced[0], announced[1], announced[2])
    return runs


def _row(saved: list[Any], plans: list[Plan]) -> Row:
    plan, *values, groups = saved
    row = Row(plans[plan], groups, 0, None, None, False)
    for slot, value in zip(_ROW, values, strict=True):
        setattr(row, slot, value)
    return row


_NOT_PLAIN = "name plan rows states tail first_row recent positions_of_rank pending steady whole top"
_PLAIN = [s for s in Series.__slots__ if s not in _NOT_PLAIN.split()]


def _series(s: Series, number: Any, plans: _Plans) -> dict[str, Any]:
    s.settle()
    return {
        **{slot: getattr(s, slot) for slot in _PLAIN},
        "plan": plans.number(s.plan),
        "rows": [number(r) for r in s.rows],
        "states": [number(r) for r in s.states],
        "tail": [number(r) for r in s.tail],
        "first_row": number(s.first_row),
        "recent": [list(k) for k in s.recent],
        "top": None if s.top is None else list(s.top),
        "positions_of_rank": [[k, *v] for k, v in s.positions_of_rank.items()],
    }


def _load_series(name: str, saved: Mapping[str, Any], rows: list[Row], plans: list[Plan]) -> Series:
    s = Series(name, plans[saved["plan"]])
    for slot in _PLAIN:
        setattr(s, slot, saved[slot])
    s.rows = [rows[i] for i in saved["rows"]]
    s.states = [rows[i] for i in saved["states"]]
    s.tail = deque((rows[i] for i in saved["tail"]), maxlen=SAME)
    s.first_row = None if saved["first_row"] is None else rows[saved["first_row"]]
    s.recent = deque(((a, b) for a, b in saved["recent"]), maxlen=RECENT)
    s.top = None if saved["top"] is None else (saved["top"][0], saved["top"][1])
    s.positions_of_rank = {k: (a, b) for k, a, b in saved["positions_of_rank"]}
    return s


# --- small values -------------------------------------------------------------------------------------------


def _facts(facts: Facts) -> dict[str, Any]:
    return {"numbers": facts.numbers, "ranks": sorted(facts.ranks), "banners": sorted(facts.banners)}


def _load_facts(saved: Mapping[str, Any]) -> Facts:
    return Facts(dict(saved["numbers"]), set(saved["ranks"]), set(saved["banners"]))


def _failure(failure: Failure | None) -> dict[str, Any] | None:
    return None if failure is None else failure.to_json()


def _load_failure(saved: Mapping[str, Any] | None) -> Failure | None:
    return None if saved is None else Failure(FailureKind(saved["kind"]), saved["line"], saved["text"])


def _start(s: Start) -> dict[str, Any]:
    return {
        "line": s.line,
        "hard": s.hard,
        "banner": s.banner,
        "resumed": s.resumed,
        "trial": s.trial,
        "facts": _facts(s.facts),
        "failure": _failure(s.failure),
        "epoch": s.epoch,
        "epoch_time": s.epoch_time,
        "epoch_rule": s.epoch_rule,
    }


def _load_start(saved: Mapping[str, Any]) -> Start:
    epoch = saved["epoch"]
    return Start(
        saved["line"],
        saved["hard"],
        saved["banner"],
        saved["resumed"],
        saved.get("trial", False),
        _load_facts(saved["facts"]),
        _load_failure(saved["failure"]),
        None if epoch is None else (epoch[0], epoch[1], epoch[2]),
        saved["epoch_time"],
        saved["epoch_rule"],
    )


def _closed(run: Run) -> dict[str, Any]:
    body = asdict(run)
    body["points"] = [
        {k: v for k, v in asdict(p).items() if v != _POINT_DEFAULTS[k] or k in ("line", "kind", "rule")}
        for p in run.points
    ]
    return body


def _load_closed(saved: Mapping[str, Any]) -> Run:
    body = dict(saved)
    body["points"] = tuple(_point(p) for p in body["points"])
    body["pauses"] = tuple(Pause(**p) for p in body["pauses"])
    body["warnings"] = tuple(body["warnings"])
    body["failure"] = _load_failure(body["failure"])
    return Run(**body)


def _point(saved: Mapping[str, Any]) -> Point:
    body = dict(saved)
    body["kind"] = Kind(body["kind"])
    for name in (
        "losses",
        "accuracies",
        "validation_losses",
        "validation_accuracies",
    ):
        if name in body:
            body[name] = tuple(Value(v["name"], v["value"], LossKind(v["kind"])) for v in body[name])
    if "throughput" in body:
        body["throughput"] = Throughput(**body["throughput"])
    return Point(**body)
