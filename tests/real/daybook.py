"""What an arbiter's journal says of a day: what was decided for whom, what was received, and what lay between.

The journal's events are folded one by one; between two of them nothing changes, so every account is a sum of
(GPUs) x (time to the next event).
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from horae.journal.events import Verb
from horae.journal.fold import fold
from horae.journal.form import Event, Kind
from horae.journal.ledger import Ledger
from horae.port import JobState
from policy.model import EMPTY, Allocation, Gpus, GpuSeconds, GpuType, Seconds
from tests.real.policy_day import speed

#: What changes the picture that a policy decides on, beside time and service.
NEWS = {Kind.SUBMITTED, Kind.ADOPTED, Kind.RESPECIFIED, Kind.ENDED, Kind.MISSING, Kind.CAPPED, Kind.AVOIDED}
NEWS |= {Kind.CANCEL_ASKED, Kind.REOPENED}
#: So does a speed that is measured for the first time, or as another by more than this part.
ANOTHER_SPEED = 0.01


@dataclass(slots=True)
class Tenant:
    decided: GpuSeconds = 0.0  #: by the targets on record
    received: GpuSeconds = 0.0  #: by the ledger's account of what its jobs held
    handover: GpuSeconds = 0.0  #: decided less received while jobs were being stopped or started
    other: GpuSeconds = 0.0  #: decided less received while nothing was under way


@dataclass(frozen=True, slots=True)
class Swing:
    """A job was given back within half a quantum what was taken from it: a round, or a lease, may have begun before
    what it gave was on record."""

    job: str
    #: something was new: of another picture another answer; or nothing was done about it meanwhile; or a lease ended,
    #: anybody's: GPUs won at several times come up at several times too
    excused: bool
    after_s: Seconds
    shapes: tuple[Allocation, Allocation, Allocation]


@dataclass(slots=True)
class Daybook:
    length_s: Seconds
    tenants: Mapping[str, Tenant]
    swings: Sequence[Swing]
    turned_back: int  #: as swings, but something was new (a measurement, an arrival, an end), or nothing was done
    resizes: int  #: jobs that were asked to leave what they held, or to take another shape
    gained: GpuSeconds  #: work, in GPU-seconds of the slower type, beyond what staying would have done
    held: GpuSeconds  #: by all
    completion_s: Mapping[str, Seconds]  #: by job
    postponed: Counter[str]  #: changes that a guard put off, by the guard
    failed: Counter[str]  #: questions that the policy did not answer


def read(
    events: Sequence[Event], types: Mapping[str, GpuType], capacity: Mapping[str, Gpus], quantum_s: Seconds
) -> Daybook:
    """`types`, `capacity`: of the pool's nodes. `quantum_s`: the policy's, within which nothing may swing."""
    ledger, tenants = Ledger(), dict[str, Tenant]()
    shapes: dict[str, list[_Target]] = {}  #: by job
    leases = set[Seconds]()  #: when each one ends
    deeds = Counter[str]()  #: starts and stops that were asked for, by job
    postponed, failed = Counter[str](), Counter[str]()
    resizes, news, gained, better = 0, 0, 0.0, 0.0
    last_s: Seconds | None = None
    for event in events:
        if last_s is not None and event.at_s > last_s:
            _account(ledger, tenants, event.at_s - last_s)
            gained += better * (event.at_s - last_s)
        last_s = event.at_s if last_s is None else max(last_s, event.at_s)
        news += event.kind in NEWS or (event.kind is Kind.SEEN and event.data["state"] in ("lost", "failed"))
        news += event.kind is Kind.MEASURED and _other_speeds(ledger, event)
        if event.kind is Kind.DECIDED:
            better = _better(ledger, event.data.get("targets", {}), types, capacity)
            if "fallback" in event.data:
                failed[str(event.data["fallback"])] += 1
            for nodes in event.data.get("leases", {}).values():
                leases.update(end_s for ends in nodes.values() for end_s in ends)
            for job, target in event.data.get("targets", {}).items():
                shapes.setdefault(job, []).append(_Target(event.at_s, news, deeds[job], target))
        elif event.kind is Kind.GUARDED and event.data["guard"] is not None:
            postponed[event.data["guard"]] += 1
        elif event.kind is Kind.INTENT:
            resizes += _is_resize(ledger, event)
            deeds[event.job or ""] += Verb(event.data["verb"]) in (Verb.START, Verb.STOP, Verb.RESHAPE)
        if event.kind is not Kind.CHECKPOINT:  # which changes nothing, and is told without its ledger
            fold(ledger, event)
    for record in ledger.jobs.values():
        tenants.setdefault(record.tenant, Tenant()).received += sum(record.attained.values())
    jobs = ledger.jobs.values()
    first_s = min(r.submitted_s for r in jobs)
    returned = [swing for job, known in sorted(shapes.items()) for swing in _swings(job, known, leases, quantum_s)]
    return Daybook(
        length_s=max(r.ended_s or r.submitted_s for r in jobs) - first_s,
        tenants=tenants,
        swings=[swing for swing in returned if not swing.excused],
        turned_back=sum(swing.excused for swing in returned),
        resizes=resizes,
        gained=gained,
        held=sum(sum(r.attained.values()) for r in jobs),
        completion_s={r.spec.name: r.ended_s - r.submitted_s for r in jobs if r.ended_s is not None},
        postponed=postponed,
        failed=failed,
    )


def _account(ledger: Ledger, tenants: dict[str, Tenant], for_s: Seconds) -> None:
    """What is decided and held now, for so long. A job may wait for the stop of another: one that moves excuses all.
    A gang that does not stand yet moves: where shapes change in place, it is asked for another one when it stands."""
    moving = any(
        r.grant is not None or r.stop_asked_s is not None or r.state is JobState.STARTING for r in ledger.live()
    )
    for record in ledger.live():
        tenant = tenants.setdefault(record.tenant, Tenant())
        wanted, held = sum((record.target or EMPTY).values()), sum(record.holding.values())
        tenant.decided += wanted * for_s
        if moving:
            tenant.handover += (wanted - held) * for_s
        else:
            tenant.other += (wanted - held) * for_s


def _is_resize(ledger: Ledger, event: Event) -> bool:
    record = ledger.jobs.get(event.job or "")
    if record is None:
        return False
    verb = Verb(event.data["verb"])
    return (verb is Verb.STOP and record.stop_asked_s is None) or verb is Verb.RESHAPE


def _other_speeds(ledger: Ledger, event: Event) -> bool:
    """Whether a policy sees another speed of this job than before."""
    record = ledger.jobs.get(event.job or "")
    old = (record.measured.get("rates") if record is not None else None) or {}
    for gpu_type, curve in (event.data.get("rates") or {}).items():
        for gpus, rate in curve.items():
            before = old.get(gpu_type, {}).get(gpus)
            if before is None or abs(rate - before) > ANOTHER_SPEED * before:
                return True
    return False


def _better(
    ledger: Ledger, changed: Mapping[str, Any], types: Mapping[str, GpuType], capacity: Mapping[str, Gpus]
) -> float:
    """By how much all jobs together are faster with the new targets than if those that run had stayed as they were,
    and those that wait had what fits beside them."""
    live = list(ledger.live())
    new = {r.id: changed.get(r.id, r.target or EMPTY) for r in live}
    stays = {r.id: r.target or EMPTY for r in live}
    free = Counter(capacity)
    for shape in stays.values():
        free.subtract(shape)
    for record in live:
        wanted = new[record.id]
        if not stays[record.id] and all(free[node] >= gpus for node, gpus in wanted.items()):
            stays[record.id] = wanted
            free.subtract(wanted)
    return sum(_speed(new[r.id], types) - _speed(stays[r.id], types) for r in live)


def _speed(shape: Allocation, types: Mapping[str, GpuType]) -> float:
    return min((speed(types[node], sum(shape.values())) for node in shape), default=0.0)


@dataclass(frozen=True, slots=True)
class _Target:
    at_s: Seconds
    news: int  #: so far
    deeds: int  #: so far, of this job
    shape: Allocation


def _swings(job: str, known: Sequence[_Target], leases: Set[Seconds], quantum_s: Seconds) -> list[Swing]:
    found = []
    for first, left, back in zip(known, known[1:], known[2:], strict=False):
        if first.shape == back.shape and back.at_s - left.at_s < quantum_s / 2:
            excused = left.news != back.news or left.deeds == back.deeds
            excused |= any(left.at_s < end_s <= back.at_s for end_s in leases)
            found.append(Swing(job, excused, back.at_s - left.at_s, (first.shape, left.shape, back.shape)))
    return found


def tell(policy: str, cluster: str, book: Daybook) -> None:
    """One line of JSON, printed, and kept where HORAE_DAYS names a file.

    `python -m tests.real.daybook FILE` makes a table of it.
    """
    row = {
        "policy": policy,
        "cluster": cluster,
        "day_s": round(book.length_s, 1),
        "completion_s": round(sum(book.completion_s.values()) / len(book.completion_s), 1),
        "held": round(book.held, 1),
        "resizes": book.resizes,
        "gained": round(book.gained, 1),
        "tenants": {
            name: {key: round(getattr(tenant, key), 1) for key in ("decided", "received", "handover", "other")}
            for name, tenant in sorted(book.tenants.items())
        },
        "turned_back": book.turned_back + len(book.swings),
        "swings": [[s.job, round(s.after_s, 1), *map(dict, s.shapes)] for s in book.swings],
        "postponed": dict(book.postponed),
    }
    print(json.dumps(row))
    if kept := os.environ.get("HORAE_DAYS"):
        with Path(kept).open("a") as file:
            file.write(json.dumps(row) + "\n")


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown, a line a policy and cluster, of what `tell` kept."""
    lines = [
        "| policy | cluster | GPU-s received / decided, by tenant | on the way | left over | mean completion "
        "| resizes | an hour | turned back | work gained |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda r: (r["cluster"], r["policy"])):
        tenants = row["tenants"].values()
        told = ", ".join(f"{t['received']:.0f} / {t['decided']:.0f}" for t in tenants)
        way = sum(t["handover"] for t in tenants)
        over = max(abs(t["decided"] - t["received"] - t["handover"]) for t in tenants)
        hourly = row["resizes"] / row["day_s"] * 3600
        lines.append(
            f"| `{row['policy']}` | {row['cluster']} | {told} | {way:.0f} | {over:.1f} | {row['completion_s']:.0f} s "
            f"| {row['resizes']} | {hourly:.0f} | {row['turned_back']} | {row['gained']:+.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    told = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    print(table(list({(row["cluster"], row["policy"]): row for row in told}.values())))
