"""Why a job holds what it holds, who is ahead of it, and what would change that. Pure: a view of the ledger.

Everything said here was decided, vetoed, blocked or seen, and is on record: nothing is worked out anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from horae import job_number
from horae.arbiter.admit.decision_record import CHANGES
from horae.arbiter.decide.album import recorded
from horae.arbiter.decide.queue import standing
from horae.arbiter.execute.plan import PlanStep
from horae.arbiter.modes import mode_of, releasing
from horae.arbiter.observe import unused
from horae.arbiter.observe.budgets import ALERT as BUDGET
from horae.arbiter.standing import backoff_until, is_aside, movable, occupies
from horae.config import Config, Mode
from horae.journal.events import OUT_OF_TIME, Verb
from horae.journal.ledger import JobRecord, Ledger, PoolRecord
from horae.journal.measured import Measurement
from horae.port import JobId, JobState
from horae.spec import ENDS_STAY
from horae.views import apps, larger
from horae.views.cause import Cause
from horae.views.rows import UNDECIDED, state_word
from horae.views.sentences import gpus
from horae.views.size import Seen
from horae.views.starts import StartEstimate
from policy.model import EMPTY, Allocation, Code, Gpus, Seconds
from profiler.estimates.profiles import lacks


@dataclass(frozen=True, slots=True)
class Explanation:
    job: JobId
    state: str
    gpus: Gpus
    allocation: Allocation
    target: Allocation | None
    causes: tuple[Cause, ...]
    ahead: tuple[JobId, ...]  #: waiting jobs of the pool that are to run, or were submitted, before it
    policy: str
    decided_ago_s: Seconds | None

    @property
    def headline(self) -> str:
        first = self.causes[0].text if self.causes else UNDECIDED
        held = f"holds {larger.gpus(self.gpus)}" if self.gpus else "holds no GPUs"
        return f"job {job_number(self.job)} is {self.state} and {held}: {first}"


def explain(
    ledger: Ledger,
    config: Config,
    record: JobRecord,
    now_s: Seconds,
    plan: Sequence[PlanStep] = (),
    measured: Mapping[JobId, Measurement] = EMPTY,
    seen: Seen | None = None,
    starts: Mapping[JobId, StartEstimate] = EMPTY,
    away: Sequence[Cause] = (),
) -> Explanation:
    """`measured`: newer than what the ledger holds. `seen`: the pool's nodes; None: they were not looked at yet.
    `away`: of nodes that are to be away."""
    books = ledger.pool(record.pool)
    waits = record.hold_why is not None and not record.state.holds  # no decision about it counts until it is let go
    causes = [*_end(record), *_asked(record), *_cluster(ledger, config, record, now_s)]
    if record.live:
        causes += _budget(ledger, record)
        pool = config.pool(record.pool)
        mode = Mode.OBSERVE if pool is None else mode_of(ledger, pool)
        causes += [*_mode(ledger, config, record), *_planned(record, plan if mode is Mode.ENFORCE else (), now_s)]
        causes += [] if waits else _decided(ledger, config, record, now_s, mode)
        causes += away
        capped = bool(_capped(ledger, config, record))
        causes += (
            [] if waits or seen is None else larger.causes(ledger, config, record, now_s, seen, starts, capped=capped)
        )
        causes += _left(record)
    causes += _app(ledger, config, record, measured)
    if record.live:
        causes += _profiled(record, measured.get(record.id), now_s)
    return Explanation(
        job=record.id,
        state=state_word(record),
        gpus=sum(record.allocation.values()),
        allocation=dict(record.allocation),
        target=None if record.target is None or waits else dict(record.target),
        causes=tuple(_for_people(ledger, cause) for cause in causes),
        ahead=_ahead(ledger, record, config, now_s),
        policy=str(books.decided.get("policy", "")),
        decided_ago_s=max(now_s - books.decided_s, 0.0) if books.decisions else None,
    )


def _for_people(ledger: Ledger, cause: Cause) -> Cause:
    return replace(cause, text=ledger.for_people(cause.text), change=ledger.for_people(cause.change))


def _end(record: JobRecord) -> list[Cause]:
    if record.ended is not None:
        asked = record.ended is JobState.CANCELLED and record.cancel_why is not None
        why = [Cause("cancel", _cancelled(record), change=_limit(record))] if asked else []
        bare = asked and record.end_text in ("", record.ended, record.cancel_why)  # nothing that was not just said
        end = [] if bare else [Cause("end", record.end_text or f"it is {record.ended}")]
        return [*why, *end, *_kept(record)]
    if record.released:
        return [Cause("end", "it was handed back to the cluster's own scheduler")]
    return []


def _cancelled(record: JobRecord) -> str:
    """Why it is ended, and by whom where that is not said already."""
    why, by = record.cancel_why or "", record.cancel_by
    return why if by in ("", OUT_OF_TIME) or why == f"cancelled by {by}" else f"{why} ({by})"


def _limit(record: JobRecord) -> str:
    """What would have let it run on, where it was ended by its time limit."""
    if record.cancel_by != OUT_OF_TIME:
        return ""
    checkpoints = record.spec.checkpoint is not None
    return "a longer --time-limit" + ("" if checkpoints else "; or --checkpoint FOLDER, from which a later job goes on")


def _kept(record: JobRecord) -> list[Cause]:
    """What it can go on from, where it did not complete."""
    mark = record.checkpoint
    if record.ended is JobState.COMPLETED or mark is None:
        return []
    change = f"handing it in again with --checkpoint {record.spec.checkpoint} goes on from there"
    return [Cause("checkpoint", f"its checkpoint of step {mark.step:g} is kept", {"step": mark.step}, change)]


def _asked(record: JobRecord) -> list[Cause]:
    if not record.live:
        return []
    causes = []
    if record.cancel_why is not None:
        causes.append(Cause("cancel", _cancelled(record), change="nothing: it is ending"))
    if record.hold_why is not None:
        causes.append(Cause("hold", record.hold_why, change=f"`horae unhold {job_number(record.id)}`"))
    return causes


def _cluster(ledger: Ledger, config: Config, record: JobRecord, now_s: Seconds) -> list[Cause]:
    if not record.live:
        return []
    causes = []
    pool = config.pool(record.pool)
    if not record.shown and (pool is None or mode_of(ledger, pool).acts):  # else its mode says so
        causes.append(Cause("cluster", "the cluster does not know it yet", change="the next round"))
    if record.missing_since_s is not None:
        gone_s = now_s - record.missing_since_s
        causes.append(
            Cause("cluster", f"the cluster has not shown it for {gone_s:.0f} s", {"since_s": record.missing_since_s})
        )
    if record.guessed:
        causes.append(Cause("cluster", "nobody could tell what it is, so it is left alone until it ends"))
    if trouble := record.checkpoint_trouble:
        text = f"its checkpoints cannot be written: {trouble}; it trains on, is not resized, and may lose its work"
        change = f"a folder that {record.owner or 'its owner'} may write, with room, at {record.spec.checkpoint}"
        causes.append(Cause("checkpoint", text, change=change))
    causes += _unused(record, config, now_s)
    if record.blocked is not None:
        block = record.blocked
        numbers = {"kind": block.kind, "for_s": now_s - block.since_s, "cap": block.cap}
        causes.append(Cause("blocked", f"the cluster does not let it run: {block.text}", numbers))
    until_s = backoff_until(record, config)
    if until_s > now_s:
        numbers = {"losses": record.losses, "again_in_s": until_s - now_s}
        text = f"the cluster, or a requeue, ended it {record.losses} times in a row; it is started again in "
        text += f"{until_s - now_s:.0f} s"
        causes.append(Cause("backoff", text, numbers, "time"))
    return causes


def _unused(record: JobRecord, config: Config, now_s: Seconds) -> list[Cause]:
    """That GPUs which it holds lie unused, and whether they are taken back."""
    if record.unused is None or not record.live:
        return []
    pool, found = config.pool(record.pool), record.unused
    numbers = {"gpus": found.gpus, "for_s": now_s - found.since_s, "by": found.by}
    change = f"work on them, fewer GPUs, or `horae cancel {job_number(record.id)}`"
    after_s = None if pool is None else pool.reclaim_unused_s
    if after_s is not None and movable(record) and found.gpus >= sum(record.allocation.values()):
        change += f"; unused for {after_s / 60:.3g} min it checkpoints and leaves"
    return [Cause("unused", unused.text(record, now_s), numbers, change)]


def _budget(ledger: Ledger, record: JobRecord) -> list[Cause]:
    """That its tenant's GPU-hours are used up."""
    alert = ledger.alerts.get(f"{BUDGET}{record.tenant}")
    return [] if alert is None else [Cause("budget", alert.text, {}, alert.remedy)]


def _capped(ledger: Ledger, config: Config, record: JobRecord) -> list[Cause]:
    """What its tenant may hold at once by the configuration, where that keeps it from growing."""
    cap = config.cap(record.tenant)
    has = sum(record.allocation.values())
    if cap is None or has == record.spec.gpus.max:
        return []
    held = 0
    for other in ledger.live(record.pool):
        if other.tenant == record.tenant:
            held += sum(other.allocation.values())
    needs = 1 if has else record.spec.gpus.min
    if cap - held >= needs:
        return []
    text = f"its tenant {record.tenant} may hold {cap} GPUs at once (its cap) and holds {held}"
    change = "a higher cap, by an operator"
    if 0 < cap < needs:
        change += ", or a smaller minimum"
    elif held > has:
        change += ", or other jobs of the tenant that end or shrink"
    return [Cause("limit", text, {"cap": cap, "held": held}, change)]


def _left(record: JobRecord) -> list[Cause]:
    """What the cluster says of a job whose last start has ended."""
    if record.state not in (JobState.LOST, JobState.STOPPED) or record.native.lower() in ("", record.state.value):
        return []
    return [Cause("cluster", f"its last start ended, the cluster says: {record.native}")]


def _mode(ledger: Ledger, config: Config, record: JobRecord) -> list[Cause]:
    pool, books = config.pool(record.pool), ledger.pool(record.pool)
    causes = []
    if pool is None:
        return [Cause("mode", f"its pool {record.pool} is not in the configuration any more")]
    mode = mode_of(ledger, pool)
    if releasing(ledger, pool.name):
        causes.append(
            Cause("mode", f"pool {pool.name} is being handed back", change=f"`horae config mode {pool.name} enforce`")
        )
    elif mode.value != "enforce":
        by_us = "nothing is started or stopped by us"
        if not record.shown and not mode.acts:
            by_us = "nothing is started by us, and the cluster was not told of it: it waits until the mode is another"
        text = f"pool {pool.name} is in mode {mode}: {by_us}"
        causes.append(Cause("mode", text, change=f"`horae config mode {pool.name} enforce`, by an operator"))
        causes += _advice(books, record) if mode.decides else []
    if books.maintenance is not None:
        causes.append(Cause("mode", f"maintenance: {books.maintenance}", change="the end of the maintenance"))
    return causes


_ADVICE = {Verb.START: "start it", Verb.RESHAPE: "resize it", Verb.STOP: "let it checkpoint and leave"}


def _advice(books: PoolRecord, record: JobRecord) -> list[Cause]:
    """What the arbiter would do with it, were the pool in mode `enforce`."""
    steps = [step for step in books.advised if step["job"] == record.id]
    if steps:
        told = [f"{_ADVICE.get(step['verb'], step['verb'])}{_where(step.get('allocation'))}" for step in steps]
        return [Cause("advice", f"the advice is to {', then to '.join(told)}")]
    if record.target is not None and record.target == record.allocation and record.allocation:
        return [Cause("advice", "the advice is to leave it as it is")]
    return []


def _where(allocation: Mapping[str, int] | None) -> str:
    return f" on {gpus(allocation)}" if allocation else ""


def _planned(record: JobRecord, plan: Sequence[PlanStep], now_s: Seconds) -> list[Cause]:
    """What is under way for it."""
    causes = []
    if record.stop_asked_s is not None:
        asked_s = now_s - record.stop_asked_s
        left_s = max(record.spec.grace_s - asked_s, 0.0)
        text = f"it was asked {asked_s:.0f} s ago to checkpoint and leave, and has {left_s:.0f} s left"
        causes.append(Cause("plan", text, {"asked_s": asked_s, "left_s": left_s}))
    elif record.grant is not None:
        given = sum(record.grant.allocation.values())
        causes.append(Cause("plan", f"it was given {given} GPUs; the cluster does not show its gang yet"))
    for step in plan:
        if step.job != record.id or step.verb not in (Verb.START, Verb.RESHAPE) or step.ready:
            continue
        others = [job for job in step.waits_for if job != record.id]
        if others:
            text = f"its GPUs are still held by {larger.jobs(others)}, which must leave first"
            causes.append(Cause("plan", text, {"waits_for": others}, "their leaving"))
        elif step.waits_until_s is not None:
            wait_s = max(step.waits_until_s - now_s, 0.0)
            causes.append(Cause("plan", f"it has just left these nodes and may return in {wait_s:.1f} s"))
    return causes


def _decided(ledger: Ledger, config: Config, record: JobRecord, now_s: Seconds, mode: Mode) -> list[Cause]:
    causes = []
    if record.probe is not None:
        probe = record.probe
        left_s = max(probe.until_s - now_s, 0.0)
        where = f"{probe.gpus} {probe.gpu_type}"
        numbers = {"gpu_type": probe.gpu_type, "gpus": probe.gpus, "at_most_s": left_s}
        text = f"its speed on {where} is being measured, for {left_s:.0f} s at most: {probe.text}"
        causes.append(Cause("probe", text, numbers, "the measurement, or another job that needs these GPUs"))
    if record.aside is not None and is_aside(record, now_s):
        left_s = record.aside.until_s - now_s
        policy = record.aside.policy
        text = f"it is left out of decisions: {policy and f'policy {policy} cannot take it: '}{record.aside.text}"
        causes.append(Cause("aside", text, {"again_in_s": left_s}, "time, or handing it in anew with other numbers"))
    if record.guard is not None:
        guard = record.guard
        wanted, held = sum(guard.wanted.values()), sum(record.allocation.values())
        said, change = _held_back(record, config, now_s)
        would = "move its" if wanted == held > 0 else "give it" if wanted else "take its"
        text = f"the policy would {would} {larger.gpus(wanted or held)}, but {said}"
        numbers = {"guard": guard.guard, "wanted": wanted, "for_s": now_s - guard.since_s}
        causes.append(Cause("guard", text, numbers, change))
    caps = {f"tenant {record.tenant}": ledger.pool(record.pool).caps.get(record.tenant), "it": record.cap}
    for whom, cap in caps.items():
        if cap is not None and cap.until_s > now_s:
            text = f"the site lets {whom} hold {cap.cap} GPUs: {cap.text}"
            causes.append(Cause("limit", text, {"cap": cap.cap, "believed_for_s": cap.until_s - now_s}))
    causes += _capped(ledger, config, record)
    fallback = ledger.pool(record.pool).decided.get("fallback")
    if fallback:
        causes.append(
            Cause(
                "policy",
                f"the previous allocation stands: {fallback}",
                change="an operator: `horae status` shows the alert with its remedy",
            )
        )
    if record.reason is not None and mode.decides:
        causes.append(_word(record, mode))
    return causes


def _word(record: JobRecord, mode: Mode) -> Cause:
    """The policy's reason; where a guard or the mode keeps the change from being made, that it is its word alone."""
    assert record.reason is not None
    reason = record.reason
    text, change = reason["text"], reason.get("change", "")
    if reason["code"] in CHANGES and (record.guard is not None or mode is not Mode.ENFORCE):
        text, change = f"its word, which is not carried out: {text}", ""
    return Cause("policy", text, {"code": reason["code"], **reason.get("numbers", {})}, change)


def _held_back(record: JobRecord, config: Config, now_s: Seconds) -> tuple[str, str]:
    """What its guard says now, and what would change that."""
    assert record.guard is not None
    guard, text, rules = record.guard.guard, record.guard.text, config.guards
    if guard == "minimum-run-time" and record.started_s is not None and record.state is JobState.RUNNING:
        ran_s = now_s - record.started_s
        left_s = max(rules.min_run_s - ran_s, 0.0)
        return (
            f"it has run {ran_s:.0f} s of the {rules.min_run_s:g} s between two resizes",
            f"time: {left_s:.0f} s more",
        )
    if guard == "restarts-per-hour":
        recent = sorted(at_s for at_s in record.restarts if at_s > now_s - 3600.0)
        until_s = recent[-rules.restarts_per_hour] + 3600.0 if len(recent) >= rules.restarts_per_hour else now_s
        return text, f"time: {max(until_s - now_s, 0.0) / 60:.0f} min more"
    if guard == "not-resumable" and record.checkpoint_trouble:
        return text, f"a checkpoint folder that can be written: {record.spec.checkpoint}"
    if guard == "not-resumable":
        if record.spec.checkpoint is None:
            return text, "`horae submit --checkpoint FOLDER` the next time; as it is it keeps its GPUs until it ends"
        change = record.spec.extra.get(ENDS_STAY, "handing it in without --rigid")
        return text, f"{change}; as it is it keeps its GPUs until it ends"
    if guard == "maintenance":
        return text, "the end of the maintenance"
    if guard == "room":
        return text, "those leaving, or becoming smaller"
    if guard == "not-worth-a-restart":
        return text, "more GPUs for it, or a restart that costs less"
    return text, "time"


#: A job that has run this long without a word of its log being understood is told so.
SILENT_S = 60.0
_KEY_FROM = {
    "given": "as its owner gave it",
    "derived": "derived from its command",
    "corrected": "corrected after it had another",
}


def _begins(record: JobRecord, now_s: Seconds) -> bool:
    """Whether it runs for the first time, and not for long."""
    return record.live and record.epoch_seen <= 1 and now_s - (record.started_s or now_s) < SILENT_S


def _profiled(record: JobRecord, fresh: Measurement | None, now_s: Seconds) -> list[Cause]:
    """Under which key its measurements are shared, what they leave open, and how its last probe ended."""
    if fresh is None and not record.measured:
        if record.state is not JobState.RUNNING or _begins(record, now_s):
            return []
        return [Cause("profile", f"nothing was measured of it yet: {lacks(progress=False)[0]}")]
    known = fresh or recorded(record)
    causes = []
    if known.key:
        text = f"its measurements are shared under the model key {known.key}, {_KEY_FROM[known.key_from]}"
        numbers = {"key": known.key, "from": known.key_from}
        causes.append(Cause("profile", text, numbers, "`horae submit --key NAME` for later jobs"))
    if not _begins(record, now_s):  # of a log that has hardly begun nobody can say what it lacks
        causes += [Cause("profile", note) for note in known.notes]
    if record.probed and record.probe is None:
        causes.append(Cause("profile", f"its last probe is over: {record.probed}"))
    return causes


def _app(ledger: Ledger, config: Config, record: JobRecord, measured: Mapping[JobId, Measurement]) -> list[Cause]:
    """How it stands in its app, where the app is more than this job."""
    found = apps.standing(ledger, config, record, measured)
    return [] if found is None else [Cause("app", found.text, found.numbers, found.change)]


def _ahead(ledger: Ledger, record: JobRecord, config: Config, now_s: Seconds) -> tuple[JobId, ...]:
    """Others of its pool that wait, and that the policy lets run first or that stand before it in line; none that
    nothing could hold, which is in nobody's way."""
    if not record.live or occupies(record, now_s, config.rounds.settle_s):
        return ()
    waiting = [
        r
        for r in ledger.live(record.pool)
        if r.id != record.id and not r.state.holds and r.wanted and (r.reason or {}).get("code") != Code.INFEASIBLE
    ]
    key = standing([record, *waiting])
    return tuple(r.id for r in sorted(waiting, key=key) if key(r) < key(record))
