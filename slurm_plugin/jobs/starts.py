"""Starts: the fence, the note of the grant, then one write of the shape and one release, for many jobs together.

Never restart on a node of the old shape within the same second: Slurm's credentials and their revocation have
stamps of one second, and the launch would be refused and the job end FAILED. Such a start waits on a timer. Nor on a
node that has just come back: an older run of the job may still be being ended there. Such a start is asked for later,
and so is one on a node that has not registered since slurmctld began: 22.05 after `-R` gives none of its GPUs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from horae.port import BlockKind, JobId, JobState, Never, PortError, TryLater
from policy.model import Allocation
from slurm_plugin.clients.routes import Batch, Routes
from slurm_plugin.files.spool import Spool
from slurm_plugin.jobs import shapes
from slurm_plugin.jobs.observation import Known, Observer
from slurm_plugin.jobs.record import Grant, Memo, Memories
from slurm_plugin.jobs.specification import keeps_shape, stays
from slurm_plugin.jobs.waiting import held_by_others, said_since, who_holds
from slurm_plugin.records import JobRow, fold

RESTART_GAP_S = 1.0
#: what slurmd may take, beside KillWait, to end what it should no longer run, and its epilogs
_ENDS_OLD_S = 5.0
#: until a node that is up has told slurmctld of itself (some 3 s): one that has not by then is started on all the same
_REGISTERS_S = 60.0


@dataclass(frozen=True, slots=True)
class _Start:
    """A start that is to be made."""

    known: Known
    grant: Grant
    batch: Batch


@dataclass(slots=True)
class _Deferred:
    """Starts that wait for the same moment."""

    due_s: float
    starts: dict[JobId, _Start] = field(default_factory=dict)
    timer: threading.Timer | None = None


class Starts:
    """`lock` is the adapter's: what a timer does, it does under it. `stands`: whether our claim does."""

    def __init__(
        self,
        client: Routes,
        spool: Spool,
        memories: Memories,
        observer: Observer,
        lock: threading.RLock,
        stands: Callable[[], bool],
    ) -> None:
        self._client, self._spool, self._memories, self._observer = client, spool, memories, observer
        self._lock, self._stands = lock, stands
        self._waiting: dict[JobId, _Deferred] = {}
        self.late: list[str] = []  #: what deferred writes said, for the next observation's notes

    def waits(self, job: JobId) -> bool:
        """Whether a start of it waits on a timer."""
        return job in self._waiting

    def start(self, asked: Sequence[tuple[Known, Allocation, int]]) -> dict[JobId, PortError]:
        """All of them; an error of one is its own."""
        errors: dict[JobId, PortError] = {}
        starts: list[_Start] = []
        for known, allocation, epoch in asked:
            try:
                start = self._checked(known, allocation, epoch)
            except PortError as error:
                errors[known.seen.id] = error
            else:
                starts += [start] if start is not None else []
        errors |= self._spool.grant_all(
            [
                (start.known.seen.id, start.known.row.uid, start.grant.epoch, start.grant.restarts, self._fenced(start))
                for start in starts
            ]
        )
        starts = [start for start in starts if start.known.seen.id not in errors]
        try:
            with self._memories.together(durable=True):
                for start in starts:
                    self._memories.put(_granted(start))
        except PortError as error:
            return errors | {start.known.seen.id: error for start in starts}
        self._spool.note_ordered(self._memories.ordered())
        now: dict[JobId, _Start] = {}
        for start in starts:
            job = start.known.seen.id
            due_s = _due_s(start.known.memo, start.grant.nodes)
            self.forget(job)
            if due_s > self._observer.now_s():
                self._later(job, due_s, start)
            else:
                now[job] = start
        return errors | self._written(now)

    def _ended_there(self, row: JobRow, memo: Memo, nodes: Collection[str]) -> None:
        """Of one whose nodes Slurm chooses it may be any of those that it ran on. Raises TryLater."""
        ran_on = {node for grant in memo.grants if grant.started for node in grant.nodes}
        met = ran_on if keeps_shape(row) else ran_on & set(nodes)
        woke_s = self._observer.woke_s
        back = sorted(met & woke_s.keys(), key=lambda node: woke_s[node])
        after_s = (
            self._observer.facts().kill_wait_s + _ENDS_OLD_S + woke_s[back[-1]] - self._observer.now_s()
            if back
            else 0.0
        )
        if after_s > 0.0:
            raise TryLater(
                f"{row.id}: {back[-1]} has just come back, and may still be ending an older run of it", after_s
            )

    def _registered(self, row: JobRow, nodes: Collection[str]) -> None:
        """Raises TryLater."""
        since_s = self._observer.unregistered_s
        now_s = self._observer.now_s()
        fresh = [node for node in nodes if node in since_s and now_s - since_s[node] < _REGISTERS_S]
        if fresh:
            raise TryLater(f"{row.id}: {fold(fresh)} has not registered since slurmctld began", 1.0)

    def _fenced(self, start: _Start) -> bool:
        """Whether a restart that nobody granted leaves again: Slurm then holds it, and the job can be moved."""
        return self._observer.holds_exit_code() and not stays(start.known.row)

    def _checked(self, known: Known, allocation: Allocation, epoch: int) -> _Start | None:
        """None where nothing is to be done: asked for already, or never possible (which is noted)."""
        row = known.row
        seen = known.seen
        memo = known.memo
        job = seen.id
        if epoch <= seen.epoch:
            return None
        own = keeps_shape(row)
        nodes, per_node = shapes.spread(allocation) if own else shapes.shape(job, allocation)
        if held_by_others(row, memo):
            raise TryLater(f"{job}: {who_holds(row)}", 30.0)
        self._ended_there(row, memo, nodes)
        self._registered(row, nodes)
        last = memo.grant
        if seen.state.holds and not (memo.outstanding and seen.state is JobState.STARTING):
            raise TryLater(f"{job} still holds its GPUs ({seen.native})")
        if seen.state.ended:
            raise Never(f"{job} has ended: {seen.native}")
        if last and last.epoch == epoch and not last.withdrawn and (last.nodes, last.per_node) == (nodes, per_node):
            if last.restarts == row.restarts and not row.held:
                return None
        elif last and last.epoch > epoch:
            return None
        grant = Grant(epoch, row.restarts, nodes, per_node, self._observer.now_s(), before=row.reason or "")
        grant = replace(grant, let_go=row.restarts == 0 and not row.held)
        wrong = shapes.impossible(nodes, per_node, self._observer.node_gpus)
        wrong = wrong or shapes.into_maintenance(nodes, memo, self._observer.away, grant.at_s)
        if wrong and not own:
            grant = replace(grant, withdrawn=True)
            self._memories.put(replace(memo.with_grant(grant), blocked=(BlockKind.NODE.value, wrong)))
            return None
        facts = self._observer.facts()
        factor = shapes.first(self._observer.tries.get(job, 0)) if facts.multifactor else None
        lifted = replace(memo, ordered=factor) if factor else memo
        batch = Batch(shapes.start_writes(row, memo, grant, factor, facts.default_cpus), f"starting {job}")
        return _Start(replace(known, memo=lifted), grant, batch)

    def _written(self, starts: Mapping[JobId, _Start]) -> dict[JobId, PortError]:
        """Which could not be asked for. A grant is as old as its write: of many starts, or on a slow disk, the last are
        asked for seconds after they were granted, and would be taken for blocked."""
        rows = {job: start.known.row for job, start in starts.items()}
        errors = changed_since(self._client, rows, self._observer.now_s())
        for job in errors:  # certainly not asked for
            self._memories.keep(self._memories.get(job).with_last(withdrawn=True))
        left = {job: start.batch for job, start in starts.items() if job not in errors}
        failed = self._client.write_each(list(left.values()))
        for job, error in zip(left, failed, strict=True):
            self._memories.granted_at(job, self._observer.now_s())
            if error is not None:
                errors[job] = error
        return errors

    def forget(self, job: JobId) -> None:
        """A start that waits on a timer is not made."""
        deferred = self._waiting.pop(job, None)
        if deferred is not None:
            del deferred.starts[job]
            if not deferred.starts and deferred.timer is not None:
                deferred.timer.cancel()

    def close(self) -> None:
        for job in list(self._waiting):
            self.forget(job)

    def _later(self, job: JobId, due_s: float, start: _Start) -> None:
        for deferred in self._waiting.values():
            if deferred.due_s == due_s:  # seen to have left in the same observation
                break
        else:
            deferred = _Deferred(due_s)
            deferred.timer = threading.Timer(
                max(due_s - self._observer.now_s(), 0.0), self._write_deferred, (deferred,)
            )
            deferred.timer.daemon = True
            deferred.timer.start()
        deferred.starts[job] = start
        self._waiting[job] = deferred

    def _write_deferred(self, deferred: _Deferred) -> None:
        with self._lock:
            starts = deferred.starts
            deferred.starts = {}
            for job in starts:
                del self._waiting[job]
            withdrawn = [job for job in starts if self._memories.get(job).outstanding is None]
            for job in withdrawn:
                del starts[job]
            if not starts:
                return
            if not self._stands():
                self.late += [f"{job}: not started, another arbiter claimed the cluster" for job in starts]
                return
            failed = self._written(starts)
            try:
                with self._memories.together():
                    for job, error in failed.items():
                        self.late.append(f"{job}: {error.text}")
                        self._memories.put(self._memories.get(job).with_last(withdrawn=True))
            except PortError as error:
                self.late.append(error.text)


def changed_since(client: Routes, rows: Mapping[JobId, JobRow], now_s: float) -> dict[JobId, PortError]:
    """Those of whom somebody has said something since they were read: Slurm compares nothing before it writes, and a
    release ends whatever hold it meets. So all are read again right before, and where that cannot be, none is written.
    """
    if not rows:
        return {}
    try:
        told = client.those([row.id for row in rows.values()])
    except PortError as error:
        return dict.fromkeys(rows, error)
    said = {job: said_since(row, told.get(row.id), now_s) for job, row in rows.items()}
    return {job: TryLater(f"{job} {what}") for job, what in said.items() if what}


def _granted(start: _Start) -> Memo:
    """What is to be remembered of its job before the start is sent."""
    row = start.known.row
    memo = start.known.memo
    stop = memo.stop if memo.stop and memo.stop.restarts != row.restarts else None
    left_min = shapes.left_min(memo)
    if left_min is not None and not keeps_shape(row):
        memo = replace(memo, limits=(row.limit_s, left_min * 60.0))
    return replace(memo.with_grant(start.grant), stop=stop, blocked=None, cancelled=False)


def _due_s(memo: Memo, nodes: tuple[str, ...]) -> float:
    """When a start on these nodes may be written: at once, unless it left one of them within the last second."""
    if memo.left is None or not set(memo.left[0]) & set(nodes):
        return 0.0
    return memo.left[1] + RESTART_GAP_S
