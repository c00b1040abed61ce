"""Records folded into jobs, as sacct means them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from horae.sim.traces.lines import TraceLines
from horae.sim.traces.malformed import Malformed
from horae.sim.traces.sacct.records import SacctRecord


@dataclass(frozen=True, slots=True)
class Job:
    """One job: all its incarnations, and all the parts of a heterogeneous one."""

    #: In the dump's order.
    records: tuple[SacctRecord, ...]
    #: More than 1 only for what is left of an array: so many jobs, none of them started.
    count: int = 1

    @property
    def has_gpus(self) -> bool:
        """Whether any record holds or asks for GPUs."""
        return any(r.gpus or r.asks for r in self.records)

    @property
    def started(self) -> bool:
        return any(r.start is not None for r in self.records if not r.waiting)

    def first(self) -> SacctRecord:
        """The record that started first: of part 0 where the job has parts and that one started. It must have."""
        return self.firsts()[0]

    def firsts(self) -> list[SacctRecord]:
        """For each part, its record that started first; one for a job without parts. In order of part."""
        found: dict[int, SacctRecord] = {}
        for record in self.records:
            if record.start is None:
                continue
            part = record.part or 0
            known = found.get(part)
            if known is None or known.start is None or record.start < known.start:
                found[part] = record
        return [found[part] for part in sorted(found)]

    @property
    def gpus(self) -> int:
        """Of the incarnation that started first, all parts together."""
        return sum(r.gpus for r in self.firsts())

    @property
    def gpu_seconds(self) -> float:
        return sum(r.gpus * r.elapsed for r in self.records)

    @property
    def wait(self) -> float:
        """Seconds from eligible (submitted, where that is not known) to the first start."""
        first = self.first()
        assert first.start is not None
        return first.start - first.since


def folded(records: Iterable[SacctRecord], lines: TraceLines | None = None) -> Iterator[Job]:
    """Jobs in the order in which each first appears. Another user under the same number is another job.

    Where dumps of several times were put together, an incarnation stands in each that saw it: the row that got furthest
    counts, and `lines` are told.
    """
    found: dict[tuple[int, str, bool], list[SacctRecord]] = {}
    for record in records:
        found.setdefault((record.number, record.user, bool(record.waiting)), []).append(record)
    again = list[SacctRecord]()
    jobs = [
        Job(tuple(_once(group, again)), max(r.waiting for r in group) if waiting else 1)
        for (_, _, waiting), group in found.items()
    ]
    if again and lines is not None:
        what = f"{len(again):,} such rows tell again of a start that another row tells of; counted once"
        lines.doubt(Malformed(lines.path, again[0].line, "JobIDRaw", what, again[0].number))
    yield from jobs


def _once(group: Sequence[SacctRecord], again: list[SacctRecord]) -> Iterable[SacctRecord]:
    """The group without rows of one start but the furthest; `again` takes the others."""
    if len(group) == 1:
        return group
    kept = dict[tuple[object, ...], SacctRecord]()
    for number, record in enumerate(group):
        key = (record.part, record.submit, record.start) if record.start is not None else (number,)
        other = kept.get(key)
        if other is not None:
            again.append(min(record, other, key=_furthest))
        kept[key] = record if other is None else max(other, record, key=_furthest)
    return kept.values()


def _furthest(record: SacctRecord) -> tuple[bool, float]:
    return record.end is not None, record.elapsed
