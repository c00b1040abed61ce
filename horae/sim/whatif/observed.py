"""What an arbiter saw, out of its journal: the site's jobs as records of sacct, and the nodes that they were on.

Times are the arbiter's own (they never jump), GPUs count from the first moment that a job held any to the last.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from horae.journal.form import Event, Kind
from horae.journal.ledger import JobRecord, Ledger
from horae.journal.reading import folded_by, journal_in, newest_s
from horae.port import JobId, JobState
from horae.sim.traces.sacct.jobs import Job
from horae.sim.traces.sacct.records import SacctRecord
from policy.model import BadInput, Cluster, Gpus, GpuType, Node, NodeName, Seconds

#: What tells of jobs and of what they held.
KINDS = (
    Kind.CHECKPOINT, Kind.SUBMITTED, Kind.ADOPTED, Kind.RESPECIFIED, Kind.SEEN, Kind.REOPENED, Kind.MISSING,
    Kind.OUTCOME, Kind.ENDED, Kind.FORGOTTEN,
)  # fmt: skip


@dataclass(slots=True)
class HeldSpan:
    """So many GPUs from `since_s` to `until_s`; None: still."""

    since_s: Seconds
    gpus: Gpus
    until_s: Seconds | None = None
    #: How it ended, in capitals as sacct has them.
    state: str = "RUNNING"


@dataclass(slots=True)
class ObservedHistory:
    """`cluster` has for each node the most GPUs that its jobs held at one look; None: none held any."""

    jobs: list[Job]
    cluster: Cluster | None


def observed(folder: Path, since_s: Seconds | None = None) -> ObservedHistory:
    """The jobs that had not ended `since_s` before the journal's newest event, whole; None: all that are in it.

    Raises BadInput: no journal there, none that can be read, no jobs in it.
    """
    path = journal_in(folder)
    until_s, watch = newest_s(path), _Watch()
    for event, ledger in folded_by(path, KINDS):
        watch.look(event, ledger)
        until_s = max(until_s, event.at_s)
    watch.settle()
    first_s = float("-inf") if since_s is None else until_s - since_s
    jobs = [job for job in watch.jobs if job.record.live or (job.record.ended_s or 0.0) >= first_s]
    if not jobs:
        raise BadInput(
            "the arbiter saw no job" + ("" if since_s is None else " in that time"),
            where=str(path),
            remedy="let it observe for a while" + ("" if since_s is None else ", or ask for longer with --since"),
        )
    return ObservedHistory([job.as_sacct(number, until_s) for number, job in enumerate(jobs, 1)], watch.cluster())


@dataclass(slots=True)
class _Watched:
    record: JobRecord
    spans: list[HeldSpan] = field(default_factory=list)
    held: dict[NodeName, Gpus] = field(default_factory=dict)
    state: JobState = JobState.QUEUED
    epoch: int = 0

    @property
    def open(self) -> HeldSpan | None:
        return self.spans[-1] if self.spans and self.spans[-1].until_s is None else None

    def change(self, record: JobRecord, event: Event) -> None:
        """Take what the ledger knows after the event; when it became so is what the ledger charges from."""
        moved = record.state is not self.state or record.epoch_seen != self.epoch
        if event.kind is Kind.SEEN and moved:
            at_s = record.since_s
        else:
            at_s = event.data["ended_s"] if event.kind is Kind.ENDED else event.at_s
        # A gang that forms is taken for whole from its first GPU on.
        forming = self.state is JobState.STARTING and record.epoch_seen == self.epoch
        restarted = record.epoch_seen != self.epoch
        self.record, self.state, self.epoch = record, record.state, record.epoch_seen
        self.held = dict(record.allocation) if record.live and record.state.holds else {}
        gpus = sum(self.held.values())
        if (span := self.open) is not None:
            if gpus and forming:
                span.gpus = gpus
            elif gpus != span.gpus or restarted:
                span.until_s, span.state = max(at_s, span.since_s), _how(record, event, gpus, restarted)
        if gpus and self.open is None:
            self.spans.append(HeldSpan(at_s, gpus))

    def began_before(self) -> None:
        """Its first events are not in the file any more: one span as long as its GPU-seconds say."""
        record = self.record
        self.state, self.epoch = record.state, record.epoch_seen
        self.held = dict(record.allocation) if record.live and record.state.holds else {}
        attained = sum(record.attained.values())
        if self.held:
            gpus = sum(self.held.values())
            self.spans.append(HeldSpan(record.charged_s - attained / gpus, gpus))
        elif attained:
            gpus = max(round(attained / record.ran_s), 1) if record.ran_s else record.spec.gpus.requested
            until_s = record.ended_s if record.ended_s is not None else record.left_s or record.charged_s
            ended = record.ended or record.state
            self.spans.append(HeldSpan(until_s - attained / gpus, gpus, until_s, ended.value.upper()))

    def as_sacct(self, number: int, until_s: Seconds) -> Job:
        record = self.record
        waits = HeldSpan(0.0, 0, 0.0, (record.ended or record.state).value.upper())
        submitted_s = min([record.submitted_s, *(span.since_s for span in self.spans)])
        return Job(
            tuple(
                SacctRecord(
                    line=0,
                    text="",
                    number=number,
                    user=record.owner,
                    account=record.tenant,
                    state=span.state,
                    part=None,
                    waiting=0,
                    name=record.id,
                    submit=submitted_s,
                    eligible=None,
                    start=span.since_s if span.gpus else None,
                    end=span.until_s if span.gpus else None,
                    elapsed=(until_s if span.until_s is None else span.until_s) - span.since_s,
                    gpus=span.gpus,
                    types=(),
                    asks=0 if record.guessed else record.spec.gpus.requested,
                    nodes=(),
                )
                for span in self.spans or [waits]
            )
        )


def _how(record: JobRecord, event: Event, gpus: Gpus, restarted: bool) -> str:
    if record.released:
        return "RELEASED"
    if record.ended is not None:
        return record.ended.value.upper()
    if event.kind is Kind.MISSING:
        return "MISSING"
    if restarted:
        return "STOPPED"
    if gpus:
        return "RESIZED"
    return "REQUEUED" if record.state is JobState.QUEUED else record.state.value.upper()


class _Watch:
    """Looks at each event in turn; what one look at the cluster showed has one time, and is taken together."""

    def __init__(self) -> None:
        self.jobs: list[_Watched] = []
        self._known: dict[JobId, _Watched] = {}
        self._held: Counter[NodeName] = Counter()
        self._most: dict[NodeName, Gpus] = {}
        self._types: dict[NodeName, Counter[GpuType]] = defaultdict(Counter)
        self._moved: set[NodeName] = set()
        self._at_s = 0.0

    def look(self, event: Event, ledger: Ledger) -> None:
        if event.at_s != self._at_s:
            self.settle()
            self._at_s = event.at_s
        if event.kind is Kind.CHECKPOINT:
            for record in ledger.jobs.values():
                if (known := self._known.get(record.id)) is not None:
                    known.record = record
                else:
                    new = self._begin(record)
                    new.began_before()
                    self._moves({}, new)
        elif event.kind is Kind.FORGOTTEN:
            for job in event.data["jobs"]:
                self._known.pop(job, None)
        elif (found := ledger.jobs.get(event.job or "")) is not None:
            if event.kind in (Kind.SUBMITTED, Kind.ADOPTED):
                self._begin(found)
            elif (job := self._known.get(found.id)) is not None:
                before = job.held
                job.change(found, event)
                self._moves(before, job)

    def settle(self) -> None:
        for node in self._moved:
            self._most[node] = max(self._most.get(node, 0), self._held[node])
        self._moved.clear()

    def cluster(self) -> Cluster | None:
        nodes = tuple(Node(name, self._type_of(name), gpus) for name, gpus in sorted(self._most.items()) if gpus)
        return Cluster(nodes, gpu_types=tuple(sorted({n.gpu_type for n in nodes}))) if nodes else None

    def _begin(self, record: JobRecord) -> _Watched:
        new = self._known[record.id] = _Watched(record)
        self.jobs.append(new)
        return new

    def _moves(self, before: Mapping[NodeName, Gpus], job: _Watched) -> None:
        self._held.subtract(before)
        self._held.update(job.held)
        self._moved.update(job.held)
        if len(job.record.holding) == 1:
            for node in job.held:
                self._types[node].update(job.record.holding.keys())

    def _type_of(self, node: NodeName) -> GpuType:
        """`gpu` where only jobs on several types were there."""
        found = self._types.get(node)
        return max(sorted(found), key=found.__getitem__) if found else "gpu"
