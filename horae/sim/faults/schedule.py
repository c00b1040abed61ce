"""Which faults happen when: read from a file, or drawn by a seed. What a fault needs and does not say is drawn from the
seed and the fault alone, so that it stays what it is when others are left out of the schedule."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from math import inf, isfinite
from pathlib import Path
from random import Random
from typing import Any

from policy.model import BadInput, NodeName, Seconds
from policy.text.textform import load


class FaultKind(StrEnum):
    KILL = "kill"  #: the arbiter ends at a boundary, and is started anew from what its disk kept
    LOST_ANSWER = "lost-answer"  #: a call is carried out, and its answer is lost
    LATE_ANSWER = "late-answer"  #: a call is carried out later
    REPEATED_ANSWER = "repeated-answer"  #: a call is carried out, and once more later
    NODE_LOSS = "node-loss"
    NODE_RETURN = "node-return"
    CLOCK_STEP = "clock-step"  #: of the arbiter's host
    REFUSED_START = "refused-start"
    LIE = "lie"  #: a job tells nonsense of its progress
    FULL_DISK = "full-disk"  #: the journal takes nothing for a while
    SECOND_ARBITER = "second-arbiter"  #: another host takes over with a copy of the journal; the first lives on
    JOB_DIES = "job-dies"  #: in the middle of a resize: just started, or asked to leave
    BAD_CHECKPOINT = "bad-checkpoint"  #: the next checkpoint of a job that runs turns out to be none
    LOST_JOURNAL = "lost-journal"  #: the arbiter ends, and its journal is gone or an older one
    CLUSTER_AWAY = "cluster-away"  #: its daemon does not answer
    BAD_LOOK = "bad-look"  #: the cluster shows what was, or part of what is
    BAD_POLICY = "bad-policy"  #: the policy's answers are none
    USER_ORDER = "user-order"  #: an owner cancels, holds or puts back a job of theirs


#: Words for what a fault may be.
HOWS: Mapping[FaultKind, tuple[str, ...]] = {
    FaultKind.KILL: ("before-write", "after-write", "before-call", "after-call"),
    FaultKind.REFUSED_START: ("later", "never", "fix-configuration"),
    FaultKind.JOB_DIES: ("failed", "cancelled", "lost", "deaf"),
    FaultKind.LOST_JOURNAL: ("gone", "unreadable", "old", "cut"),
    FaultKind.CLUSTER_AWAY: ("whole", "looks", "calls"),
    FaultKind.BAD_LOOK: ("old", "part"),
    FaultKind.BAD_POLICY: ("raises", "poisoned", "nonsense", "silent"),
    FaultKind.USER_ORDER: ("cancel", "hold", "back"),
}
#: Later than this a cluster does not carry a call out any more: it is less than the arbiter's `settle_s`.
LATEST_S = 25.0
#: Nor does it show for longer what is not so.
MISLEADS_S = 20.0
#: Most that `by_s` may be.
MOST_S = {FaultKind.LATE_ANSWER: LATEST_S, FaultKind.BAD_LOOK: MISLEADS_S}


@dataclass(frozen=True, slots=True)
class PlannedFault:
    at: Seconds  #: of the trace
    kind: FaultKind
    node: NodeName | None = None
    by_s: Seconds | None = None  #: how late, how long, how far
    port_call: int | None = None  #: which call (for `kill`: boundary) from then on, from 1
    how: str | None = None  #: of `HOWS`

    def plain(self) -> dict[str, Any]:
        return {k: v for k, v in asdict(self).items() if v is not None}


def drawn(fault: PlannedFault, seed: int, nodes: Sequence[NodeName]) -> PlannedFault:
    """With everything that it needs."""
    chance = Random(zlib.crc32(f"{seed}/{fault.at!r}/{fault.kind}".encode()))
    by_s, node, call, how = chance.random(), chance.choice(nodes), chance.randint(1, 3), chance.random()
    kind, found = fault.kind, fault
    if kind in _BY and fault.by_s is None:
        low, high = _BY[kind]
        sign = -1.0 if kind is FaultKind.CLOCK_STEP and how < 0.5 else 1.0
        found = replace(found, by_s=round(sign * (low + (high - low) * by_s), 3))
    if kind in (FaultKind.NODE_LOSS, FaultKind.NODE_RETURN) and fault.node is None:
        found = replace(found, node=node)
    if kind in (*CALLS, FaultKind.JOB_DIES) and fault.port_call is None:
        found = replace(found, port_call=call)
    words = HOWS.get(kind)
    if words is not None and fault.how is None:
        found = replace(found, how=words[int(how * len(words))])
    return found


#: Seconds between which `by_s` is drawn.
_BY = {
    FaultKind.NODE_RETURN: (1.0, 120.0),
    FaultKind.LATE_ANSWER: (1.0, LATEST_S),
    FaultKind.REPEATED_ANSWER: (1.0, 600.0),
    FaultKind.CLOCK_STEP: (2.0, 7200.0),
    FaultKind.LIE: (60.0, 1800.0),
    FaultKind.FULL_DISK: (5.0, 300.0),
    FaultKind.CLUSTER_AWAY: (2.0, 600.0),
    FaultKind.BAD_LOOK: (1.0, MISLEADS_S),
    FaultKind.BAD_POLICY: (1.0, 900.0),
    FaultKind.USER_ORDER: (60.0, 1800.0),
}
#: What befalls calls.
CALLS = (FaultKind.KILL, FaultKind.LOST_ANSWER, FaultKind.LATE_ANSWER, FaultKind.REPEATED_ANSWER)


#: Of `all`: nothing that ends a job for good.
_HARMLESS = {FaultKind.JOB_DIES: "lost", FaultKind.USER_ORDER: "hold"}


def every_kind(
    seed: int, times_s: Sequence[Seconds], horizon_s: Seconds, nodes: Sequence[NodeName]
) -> tuple[PlannedFault, ...]:
    """`all`: each kind once at the time of one of the first jobs, and again and again until `horizon_s`. A node is
    lost while no other is, and returns. `times_s`: submissions, ascending."""
    chance = Random(zlib.crc32(f"{seed}/faults".encode()))
    rounds = max(1, min(len(times_s) // 20, 50))
    first, most = times_s[0], max(len(times_s) // 2, 1)
    out: list[PlannedFault] = []
    whole = [kind for kind in FaultKind if kind not in (FaultKind.NODE_LOSS, FaultKind.NODE_RETURN)]
    for turn in range(rounds + 1):
        for kind in whole:
            at = times_s[chance.randrange(most)] if turn == 0 else chance.uniform(first, horizon_s)
            out.append(PlannedFault(round(at, 3), kind, how=_HARMLESS.get(kind)))
    span_s = max(horizon_s - first, 60.0) / (rounds + 1)
    for turn in range(rounds + 1):
        lost_s = first + span_s * (turn + chance.uniform(0.1, 0.5))
        back_s = lost_s + chance.uniform(0.05, 0.4) * min(span_s, 3600.0)
        node = chance.choice(nodes)
        out.append(PlannedFault(round(lost_s, 3), FaultKind.NODE_LOSS, node))
        out.append(PlannedFault(round(back_s, 3), FaultKind.NODE_RETURN, node))
    return tuple(drawn(f, seed, nodes) for f in sorted(out, key=lambda f: f.at))


def read_schedule(file: Path, seed: int, nodes: Sequence[NodeName]) -> tuple[PlannedFault, ...]:
    """A JSON list of faults. Raises BadInput, OSError."""
    data = load(file.read_bytes(), str(file), json_only=True).value
    if not isinstance(data, list):
        raise BadInput("is no list of faults", where=str(file), remedy='[{"at": 60.0, "kind": "kill"}, ...]')
    found = [_fault(row, f"{file}: fault {number}", nodes) for number, row in enumerate(data, 1)]
    return tuple(drawn(f, seed, nodes) for f in sorted(found, key=lambda f: f.at))


def _fault(row: Any, where: str, nodes: Sequence[NodeName]) -> PlannedFault:
    if not isinstance(row, dict):
        raise BadInput("is no fault", where=where, remedy='{"at": 60.0, "kind": "kill"}')
    for name in row:
        if name not in PlannedFault.__slots__:
            raise BadInput(f"there is no {name}", where=where, remedy=f"one of {', '.join(PlannedFault.__slots__)}")
    kinds = [kind.value for kind in FaultKind]
    kind: Any = row.get("kind")
    call = row.get("port_call")
    _one_of(kind, kinds, where, "kind")
    at, by_s = _seconds(row.get("at"), where, "at"), None
    if row.get("by_s") is not None:
        by_s = _by(_seconds(row["by_s"], where, "by_s"), kind, where)
    if row.get("node") is not None:
        _one_of(row["node"], nodes, where, "node")
    if row.get("how") is not None:
        _one_of(row["how"], HOWS.get(kind, ()), where, "how")
    if call is not None and (isinstance(call, bool) or not isinstance(call, int) or call < 1):
        raise BadInput(f"is no number of a call: {call!r}", where=where, field="port_call", remedy="1 or more")
    return PlannedFault(at, FaultKind(kind), row.get("node"), by_s, call, row.get("how"))


def _one_of(word: Any, words: Sequence[str], where: str, field: str) -> None:
    if word not in words:
        remedy = f"one of {', '.join(words)[:300]}" if words else "leave it out"
        raise BadInput(f"cannot be {word!r}", where=where, field=field, remedy=remedy)


def _seconds(value: Any, where: str, field: str) -> Seconds:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise BadInput(f"is no number of seconds: {value!r}", where=where, field=field)
    return float(value)


def _by(by_s: Seconds, kind: str, where: str) -> Seconds:
    if by_s <= 0 and kind != FaultKind.CLOCK_STEP:
        raise BadInput(f"is not above 0: {by_s!r}", where=where, field="by_s")
    most_s = MOST_S.get(FaultKind(kind), inf)
    if by_s > most_s:
        raise BadInput(f"is longer than clusters take: {by_s!r}", where=where, field="by_s", remedy=f"{most_s:g}")
    return by_s
