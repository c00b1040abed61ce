"""From steps to calls: which of them are due, what is journaled before each, and what the cluster is told besides.

The intent of every action on a job is on the disk before the call (`Core.write(durable=True)`), its outcome after
it. A crash in between leaves an intent without outcome: the next look shows whether it happened, and it is asked
again with the same epoch until it did or its time is over. Calls are idempotent, so asking again costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from horae.arbiter.decide.album import SnapshotSources
from horae.arbiter.decide.queue import standing
from horae.arbiter.execute import positions
from horae.arbiter.execute.executor import Do, Op, ReleaseRest, SetOrder, SetReason
from horae.arbiter.execute.outcomes import LONGEST_RETRY_S, Retries
from horae.arbiter.execute.plan import PlanStep
from horae.arbiter.execute.positions import repeatable
from horae.arbiter.modes import mode_of, releasing
from horae.config import Config, Mode, Pool
from horae.journal import Draft, JobRecord, Ledger, events
from horae.journal.codec import plain
from horae.journal.events import Verb
from horae.port import Capabilities, JobId, backoff_s
from policy.model import Gpus, GpuType, Seconds

#: Reasons written into the cluster in one round; the others wait for the next.
REASONS_A_ROUND = 50


class Actions:
    """Keeps only what it told the cluster already, so as not to repeat it."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._reasons: dict[JobId, str] = {}
        self._all_told: dict[str, int] = {}  #: by pool, the ledger's `changes` when every reason was told
        self._types: dict[str, GpuType] = {}
        self._reordered: dict[str, tuple[int, Seconds]] = {}  #: by pool, times that a lost order was repeated, and when

    def submissions(self, ledger: Ledger, retries: Retries, now_s: Seconds) -> list[Do]:
        """Jobs that the cluster must be told of, in the pools where we act."""
        acting = {p.name for p in self._config.pools if mode_of(ledger, p).acts and not releasing(ledger, p.name)}
        return [
            Do(Verb.SUBMIT, r.id, spec=r.spec)
            for r in ledger.in_motion()
            if (not r.shown or r.missing_since_s is not None)
            and not r.adopted
            and r.pool in acting
            and r.wanted
            and repeatable(r.submit_sent_s, now_s, self._config.rounds.repeat_s, ledger.opened_s)
            and retries.may(r.id, Verb.SUBMIT, now_s)
        ]

    def follow_ups(self, ledger: Ledger, view: SnapshotSources, retries: Retries) -> list[Do]:
        """What earlier requests still need, for jobs of pools where starts and stops are ours to make."""
        enforcing = {
            pool.name
            for pool in self._config.pools
            if mode_of(ledger, pool) is Mode.ENFORCE and not releasing(ledger, pool.name)
        }
        due = []
        for each in view.observation.due:
            record = ledger.jobs.get(each.job)
            allowed = bool(enforcing) if each.stray else record is not None and record.pool in enforcing
            if allowed and retries.may(each.job, Verb.FOLLOW_UP, view.now_s):
                due.append(Do(Verb.FOLLOW_UP, each.job, what=each.what))
        return due

    def of_pool(
        self, ledger: Ledger, pool: Pool, view: SnapshotSources, capabilities: Capabilities, retries: Retries
    ) -> tuple[tuple[PlanStep, ...], list[Op]]:
        """(the whole way to the targets, what of it is done now)."""
        self._types = {n.name: n.gpu_type for n in view.observation.nodes}
        mode, now_s = mode_of(ledger, pool), view.now_s
        if releasing(ledger, pool.name):
            return (), _handed_back(ledger, pool.name, retries, now_s)
        if mode is Mode.OBSERVE:
            return (), []
        _, steps = positions.steps(
            ledger,
            pool.name,
            view,
            restart_gap_s=capabilities.restart_gap_s,
            reshape_in_place=capabilities.reshape_in_place,
        )
        if not mode.acts:
            return steps, []
        allowed = (step for step in steps if mode is Mode.ENFORCE or step.verb is Verb.CANCEL)
        ops: list[Op] = [
            _do(ledger.jobs[step.job], step)
            for step in allowed
            if step.ready and retries.may(step.job, step.verb, now_s)
        ]
        if mode is Mode.ORDER and capabilities.order_lever is not None:
            ops += self._in_order(ledger, pool.name, view)
        return steps, [*ops, *self._tell(ledger, pool.name)]

    def _in_order(self, ledger: Ledger, pool: str, view: SnapshotSources) -> list[Op]:
        """The order of the waiting jobs, where it is another than was set, or was lost."""
        order = self._order(ledger, pool)
        again = self._again(pool, view.observation.order_lost, view.now_s)
        return [SetOrder(pool, order)] if again or order != tuple(ledger.pool(pool).order) else []

    def _again(self, pool: str, lost: bool, now_s: Seconds) -> bool:
        """Whether an order that does not show is to be asked for again: later each time."""
        if not lost:
            self._reordered.pop(pool, None)
            return False
        times, last_s = self._reordered.get(pool, (0, -inf))
        if now_s < last_s + backoff_s(times, self._config.rounds.repeat_s, LONGEST_RETRY_S):
            return False
        self._reordered[pool] = times + 1, now_s
        return True

    def _order(self, ledger: Ledger, pool: str) -> tuple[JobId, ...]:
        """Waiting jobs, those first that the policy would run now, then as they stand in line."""
        waiting = [r for r in ledger.live(pool) if r.shown and not r.state.holds and r.state.startable]
        waiting.sort(key=standing(waiting))
        return tuple(r.id for r in waiting)

    def _tell(self, ledger: Ledger, pool: str) -> list[Op]:
        ops: list[Op] = []
        if self._all_told.get(pool) == ledger.changes:
            return ops
        for record in ledger.live(pool):
            if len(ops) == REASONS_A_ROUND:
                break
            if record.shown and record.reason is not None and self._reasons.get(record.id) != record.reason["code"]:
                self._reasons[record.id] = record.reason["code"]
                ops.append(SetReason(record.id, ledger.for_people(record.reason["text"])))
        else:
            self._all_told[pool] = ledger.changes
        for job in [job for job in self._reasons if job not in ledger.jobs]:
            del self._reasons[job]
        return ops

    def intents(self, ledger: Ledger, ops: Sequence[Op]) -> list[Draft]:
        drafts: list[Draft] = []
        for op in ops:
            if isinstance(op, Do):
                given = op.verb in (Verb.START, Verb.RESHAPE)
                drafts.append(
                    events.Intent(
                        op.job,
                        op.verb,
                        epoch=op.epoch if given else None,
                        allocation=op.allocation if given else None,
                        holding=self._by_type(op) if given else None,
                        grace_s=op.grace_s if op.verb is Verb.STOP else None,
                        text=op.what or _why(ledger.jobs[op.job], op.verb),
                    )
                )
            elif isinstance(op, SetOrder):
                drafts.append(events.Ordered(op.pool, op.jobs))
        return drafts

    def _by_type(self, op: Do) -> dict[GpuType, Gpus]:
        out: dict[GpuType, Gpus] = {}
        for node, gpus in op.allocation.items():
            gpu_type = self._types.get(node, "?")
            out[gpu_type] = out.get(gpu_type, 0) + gpus
        return out

    def advice(self, ledger: Ledger, plans: Mapping[str, Sequence[PlanStep]]) -> list[Draft]:
        """What would be done, on record when it changed, in the pools that do not do it."""
        drafts: list[Draft] = []
        for pool in self._config.pools:
            if mode_of(ledger, pool) in (Mode.ADVISE, Mode.ORDER):
                steps = [advised(step) for step in plans.get(pool.name, ())]
                if steps != ledger.pool(pool.name).advised:
                    drafts.append(events.Advised(pool.name, steps))
        return drafts


def advised(step: PlanStep) -> dict[str, Any]:
    out: dict[str, Any] = {"verb": step.verb.value, "job": step.job, "ready": step.ready}
    if step.allocation:
        out["allocation"] = plain(step.allocation)
    if step.waits_for:
        out["waits_for"] = list(step.waits_for)
    return out


def _handed_back(ledger: Ledger, pool: str, retries: Retries, now_s: Seconds) -> list[Op]:
    due = (r for r in ledger.live(pool) if r.shown and retries.may(r.id, Verb.RELEASE, now_s))
    return [*(Do(Verb.RELEASE, record.id) for record in due), ReleaseRest()]


def _do(record: JobRecord, step: PlanStep) -> Do:
    epoch = step.epoch if step.epoch is not None else max(record.epoch, record.epoch_seen) + 1
    return Do(step.verb, step.job, step.allocation, epoch, step.grace_s, record.spec)


def _why(record: JobRecord, verb: Verb) -> str:
    """The one line that history shows beside the action."""
    if verb is Verb.CANCEL:
        return record.cancel_why or ""
    if record.hold_why is not None:
        return record.hold_why
    if record.blocked is not None and verb is Verb.STOP:
        return f"withdrawn: {record.blocked.text}"
    return str(record.reason["text"]) if record.reason is not None else ""
