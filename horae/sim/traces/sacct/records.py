"""Rows of sacct that are no steps, as typed records."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from sys import intern

from horae.sim.traces.lines import TraceLines
from horae.sim.traces.malformed import Malformed
from horae.sim.traces.sacct import COLUMNS, COMMAND
from horae.sim.traces.table import Cells, Table, moment
from policy.bounds import MOST_S

_WHOLE = re.compile(r"\d{1,18}", re.ASCII)
_STEP = re.compile(r"\d{1,18}\.[A-Za-z0-9+_]+", re.ASCII)
_NUMBER = re.compile(r"(\d{1,18})(?:_(\d{1,18})|_\[([^\]]*)\]|\+(\d{1,18}))?", re.ASCII)
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18})(?::(\d{1,18}))?)?", re.ASCII)
_HOSTS = re.compile(r"[A-Za-z0-9.\-_,\[\]]+", re.ASCII)
_SPAN = re.compile(r"(\d+)-(\d+)(?=[],])", re.ASCII)
#: Digits of a node's number in a range.
MOST_DIGITS = 12
MOST_NODES = 1_000_000
#: Tasks of one array: Slurm's MaxArraySize is below it.
MOST_TASKS = 4_000_001


@dataclass(frozen=True, slots=True)
class SacctRecord:
    line: int
    text: str
    #: JobIDRaw, or of a heterogeneous part the job's number.
    number: int
    user: str
    account: str
    #: Its first word: `CANCELLED by 1000` is CANCELLED.
    state: str
    #: Part of a heterogeneous job; None for any other.
    part: int | None
    #: Tasks that this row stands for, where it is what is left of an array that waits; 0 for any other row.
    waiting: int
    name: str
    #: Times in s, None where there is none.
    submit: float | None
    eligible: float | None
    start: float | None
    end: float | None
    elapsed: float
    #: GPUs allocated, and by type where sacct says it.
    gpus: int
    types: tuple[tuple[str, int], ...]
    asks: int
    nodes: tuple[str, ...]

    @property
    def since(self) -> float:
        """From when on it waited: eligible, or submitted where that is not known. It must have started."""
        since = self.eligible if self.eligible is not None else self.submit
        assert since is not None
        return since


def records(lines: TraceLines, *, keep_text: bool = False) -> tuple[str, Iterator[SacctRecord]]:
    """The header, and the rows that are no steps. Raises Malformed; a last line without its end is one: cut.

    Without `keep_text` the records' own text is empty: a year of a site then takes a third of the memory.
    """
    table = Table(lines, separator="|", fold_case=True)
    if missing := next((name for name in COLUMNS if name.lower() not in table.index), None):
        what = f"the header lacks this column; dump with `{COMMAND}`; it has"
        raise Malformed(lines.path, 1, missing, what, ", ".join(table.names))
    return table.header or "", _records(table, keep_text)


def _records(table: Table, keep_text: bool) -> Iterator[SacctRecord]:
    lines, early = table.lines, list[SacctRecord]()
    for cells in table:
        try:
            if _is_step(cells):
                continue
            record = _record(cells, keep_text)
        except Malformed as bad:
            lines.refuse(bad)
            continue
        if record.start is not None and record.start < record.since:
            early.append(record)
        yield record
    if early:
        what = f"{len(early):,} such rows start before they are eligible, as where a clock was put back; dump with"
        lines.doubt(Malformed(lines.path, early[0].line, "Start", what, "SLURM_TIME_FORMAT=%s"))


def _is_step(cells: Cells) -> bool:
    raw = cells.cell("jobidraw")
    if "." in raw and not _STEP.fullmatch(raw):
        raise cells.wrong("JobIDRaw", "is no number of a job, nor of a step", raw)
    return "." in raw or "." in cells.cell("jobid").partition("[")[0]


def _record(cells: Cells, keep_text: bool) -> SacctRecord:
    raw, name = cells.cell("jobidraw"), cells.cell("jobid")
    if not _WHOLE.fullmatch(raw):
        raise cells.wrong("JobIDRaw", "is no job number", raw)
    found = _NUMBER.fullmatch(name)
    if found is None:
        raise cells.wrong("JobID", "is none of 12, 12_3, 12_[4-6%2], 12+0", name)
    elapsed = cells.cell("elapsedraw")
    if not _WHOLE.fullmatch(elapsed) or int(elapsed) > MOST_S:
        raise cells.wrong("ElapsedRaw", "is no number of seconds", elapsed)
    part = None if found[4] is None else int(found[4])
    submit, eligible, start = _time(cells, "Submit"), _time(cells, "Eligible"), _time(cells, "Start")
    if start is not None and submit is None and eligible is None:
        raise cells.wrong("Submit", "is no time, nor is Eligible, and the job started", cells.cell("submit"))
    alloc, types = _gpus(cells, "AllocTRES")
    return SacctRecord(
        line=cells.line,
        text=cells.text if keep_text else "",
        number=int(raw) if part is None else int(found[1]),
        user=intern(cells.cell("user")),
        account=intern(cells.cell("account")),
        state=intern(cells.cell("state").partition(" ")[0].upper()),
        part=part,
        waiting=0 if found[3] is None else _tasks(cells, found[3]),
        name=found[1] if part is not None else name,
        submit=submit,
        eligible=eligible,
        start=start,
        end=_time(cells, "End"),
        elapsed=int(elapsed),
        gpus=alloc,
        types=types,
        asks=_gpus(cells, "ReqTRES")[0],
        nodes=_nodes(cells),
    )


def _time(cells: Cells, column: str) -> float | None:
    text = cells.cell(column.lower())
    try:
        return moment(text)
    except ValueError:
        raise cells.wrong(column, "is no time", text) from None


def _tasks(cells: Cells, inside: str) -> int:
    """How many tasks `4-6,9%2` names."""
    ids: set[int] = set()
    for word in inside.partition("%")[0].split(","):
        found = _RANGE.fullmatch(word)
        if found is None:
            raise cells.wrong("JobID", "names tasks that cannot be read (sacct cuts them; SLURM_BITSTR_LEN=0)", inside)
        first, last = int(found[1]), int(found[2] or found[1])
        step = int(found[3] or 1)
        if last < first or last - first >= MOST_TASKS or not step:
            raise cells.wrong("JobID", "names tasks that cannot be", inside)
        ids.update(range(first, last + 1, step))
    return len(ids)


def _nodes(cells: Cells) -> tuple[str, ...]:
    text = cells.cell("nodelist").strip()
    try:
        return nodes_of(text)
    except ValueError as error:
        raise cells.wrong("NodeList", f"is no list of hosts ({error})", text) from None


@lru_cache(maxsize=65536)
def nodes_of(text: str) -> tuple[str, ...]:
    """`gpu[01-03],big7` -> its four names; none for `None assigned`. Raises ValueError."""
    if text.lower() in ("", "none assigned", "none", "(null)", "unknown"):
        return ()
    if not _HOSTS.fullmatch(text):
        raise ValueError("letters, digits and [-._,] make one")
    if "[" not in text and "," not in text:
        return (intern(text),)
    spans = _SPAN.findall(text)
    if any(len(end) > MOST_DIGITS for span in spans for end in span):
        raise ValueError(f"a number of more than {MOST_DIGITS} digits")
    if prod(1 + abs(int(last) - int(first)) for first, last in spans) > MOST_NODES:
        raise ValueError(f"more than {MOST_NODES:,} hosts")
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    try:
        return tuple(map(intern, NodeSet(text, resolver=RESOLVER_NOGROUP)))
    except NodeSetException as error:
        raise ValueError(f"{error}") from None


def _gpus(cells: Cells, column: str) -> tuple[int, tuple[tuple[str, int], ...]]:
    text = cells.cell(column.lower())
    try:
        return gpus_of(text)
    except ValueError as error:
        raise cells.wrong(column, f"{error}", text) from None


@lru_cache(maxsize=65536)
def gpus_of(tres: str) -> tuple[int, tuple[tuple[str, int], ...]]:
    """`cpu=8,gres/gpu=4,gres/gpu:a100=4` -> 4 and ((a100, 4),). The sum is that without a type where there is one."""
    if "gres/gpu" not in tres:
        return 0, ()
    whole, types = None, []
    for word in tres.split(","):
        key, equals, value = word.strip().partition("=")
        if key != "gres/gpu" and not key.startswith("gres/gpu:"):
            continue
        if not (equals and value.isdigit() and value.isascii() and len(value) < 10):
            raise ValueError(f"{key} is no number of GPUs")
        if key == "gres/gpu":
            whole = int(value)
        else:
            types.append((key.removeprefix("gres/gpu:"), int(value)))
    return sum(n for _, n in types) if whole is None else whole, tuple(types)
