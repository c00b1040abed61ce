"""Microsoft's Philly: the published job log (JSON), and the tables of jobs that others made of it (CSV).

Of the log, a job's duration is the sum of its attempts', and its GPUs are those of its first attempt. The tables are
those of Pollux (`timestamp,duration,num_gpus,...,cluster`) and of the eleven virtual clusters
(`vc,submit_time_local,...,duration_s,num_gpus`). The virtual cluster is the tenant.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

from horae.sim.traces.lines import TraceLines, beginning
from horae.sim.traces.malformed import Malformed
from horae.sim.traces.model import TraceJob
from horae.sim.traces.rows import Row, Rows, by_row
from horae.sim.traces.table import Cells, Table, moment
from policy.model import Gpus, Seconds

#: Characters of one job in the log.
LONGEST = 1 << 24
#: Signs that may come after the newest sign, or job, of the list.
_NEXT = {"": "[", "[": "]", ",": "", "job": ",]", "]": ""}
_BEFORE_A_JOB = ("[", ",")
_POLLUX = ("timestamp", "duration", "num_gpus", "cluster")
_CLUSTERS = ("submit_time_local", "duration_s", "num_gpus", "vc")


def rows(lines: TraceLines) -> Rows:
    log = beginning(lines.path).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")
    return _log(lines) if log else _table(lines)


def _table(lines: TraceLines) -> Rows:
    table = Table(lines)
    names = _CLUSTERS if "vc" in table.index else _POLLUX
    for name in names:
        table.need(name)
    submitted, duration, gpus, cluster = names

    def job(cells: Cells, number: int) -> TraceJob:
        at = cells.moment(submitted)
        if at is None:
            raise cells.wrong(submitted, "is no time", cells.word(submitted, ""))
        return TraceJob(str(number), at, cells.count(gpus), cells.number(duration), cells.word(cluster, "default"))

    return by_row(table, job, gpus=gpus)


def _log(lines: TraceLines) -> Rows:
    rows = Rows("[", columns={"gpus": "attempts"}, between=",\n", end="\n]\n")

    def jobs() -> Iterator[Row]:
        for number, text, value in _elements(lines):
            job = rows.job(lines, partial(_job, lines, number, value))
            if job is not None:
                yield Row(number, text, job)

    rows.jobs = jobs()
    return rows


Wrong = Callable[[str, str, object], Malformed]
#: Start, end, GPUs.
Attempt = tuple[Seconds | None, Seconds | None, Gpus]


def _job(lines: TraceLines, number: int, value: Any) -> TraceJob | str:
    def wrong(name: str, what: str, found: object) -> Malformed:
        return Malformed(lines.path, number, name, what, found)

    if not isinstance(value, dict):
        raise wrong("job", "is no object", value)
    attempts = _attempts(value, wrong)
    name, cluster, text = value.get("jobid"), value.get("vc"), value.get("submitted_time")
    if not isinstance(name, str) or not isinstance(cluster, str):
        raise wrong("jobid", "is no name, or that of vc is none", name)
    submitted = _submitted(text)
    if submitted is None:
        raise wrong("submitted_time", "is no time", text)
    ran = [(start, end, gpus) for start, end, gpus in attempts if start is not None and gpus]
    if not ran:
        return "never started"
    if any(end is None for _, end, _ in ran):
        return "no end"
    seconds = [end - start for start, end, _ in ran if end is not None]
    if min(seconds) < 0:
        raise wrong("attempts", "an attempt ends before it starts", value["attempts"])
    return TraceJob(name, submitted, ran[0][2], sum(seconds), cluster)


def _submitted(text: object) -> Seconds | None:
    """None: it is no time."""
    try:
        return moment(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _attempts(value: Mapping[str, Any], wrong: Wrong) -> list[Attempt]:
    try:
        return [
            (moment(a["start_time"] or ""), moment(a["end_time"] or ""), sum(map(_gpus, a["detail"])))
            for a in value["attempts"]
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise wrong("attempts", f"cannot be read ({error})", value.get("attempts")) from None


def _gpus(detail: Any) -> int:
    """Raises TypeError, KeyError."""
    if not isinstance(detail["gpus"], list):
        raise TypeError("gpus is no list")
    return len(detail["gpus"])


def _elements(lines: TraceLines) -> Iterator[tuple[int, str, Any]]:
    """The values of a JSON list with the line each begins on, one in memory at a time."""
    decoder, text, line, newest = json.JSONDecoder(), "", 1, ""
    source = iter(lines)

    def more(lines_of_it: int = 64) -> bool:
        nonlocal text
        taken = list(islice(source, lines_of_it))
        text += "".join(f"{one.text}\n" if one.whole else one.text for one in taken)
        return bool(taken)

    def cut(found: str) -> Malformed:
        return Malformed(
            lines.path,
            line,
            "job",
            "the list is cut or is no JSON, and nothing after this is read",
            found[:80] or "the file ends",
        )

    while True:
        bare = text.lstrip(" \t\r\n")
        line += text[: len(text) - len(bare)].count("\n")
        text = bare
        if not text:
            if more():
                continue
            if newest != "]":
                lines.refuse(cut(text))
            return
        if text[0] in _NEXT[newest]:
            newest, text = text[0], text[1:]
            continue
        if newest not in _BEFORE_A_JOB:
            lines.refuse(cut(text))
            return
        try:
            value, end = decoder.raw_decode(text)
        except RecursionError:
            lines.refuse(cut(text))
            return
        except ValueError:
            # Twice as much each time, so that the whole of a job is decoded a few times, however many lines it has.
            if len(text) > LONGEST or not more(64 + text.count("\n")):
                lines.refuse(cut(text))
                return
            continue
        yield line, text[:end], value
        line += text[:end].count("\n")
        newest, text = "job", text[end:]
