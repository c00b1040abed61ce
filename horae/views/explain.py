"""Why a job holds what it holds, who is ahead of it, and what would change that. Pure: a view of the ledger.

Everything said here was decided, vetoed, blocked or seen, and is on record: nothing is worked out anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from horae.arbiter.decide.modes import mode_of, releasing
from horae.arbiter.decide.snapshot import backoff_until, is_aside, occupies, recorded
from horae.arbiter.execute.plan import PlanStep
from horae.arbiter.observe.measurements import Measurement
from horae.config import Config
from horae.journal.events import Verb
from horae.journal.ledger import JobRecord, Ledger
from horae.port import JobId, JobState
from horae.views import apps
from horae.views.rows import state_word
from policy.model import EMPTY, Allocation, Gpus, Seconds
from profiler.estimates.profiles import lacks


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that bears on the job, the strongest first in an explanation."""

    #: `policy`, `app`, `guard`, `blocked`, `hold`, `cancel`, `plan`, `backoff`, `mode`, `cluster`, `end`, `limit`,
    #: `probe`, `profile` or `aside`
    what: str
    text: str
    numbers: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    change: str = ""  #: what would change it


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
        first = self.causes[0].text if self.causes else "nothing was decided about it yet"
        held = f"holds {self.gpus} GPU{'s' if self.gpus != 1 else ''}" if self.gpus else "holds no GPUs"
        return f"job {self.job} is {self.state} and {held}: {first}"


def explain(
    ledger: Ledger,
    config: Config,
    record: JobRecord,
    now_s: Seconds,
    plan: Sequence[PlanStep] = (),
    measured: Mapping[JobId, Measurement] = EMPTY,
) -> Explanation:
    """`measured`: newer than what the ledger holds."""
    books = ledger.pool(record.pool)
    causes = [*_end(record), *_asked(record), *_cluster(ledger, record, config, now_s)]
    if record.live:
        causes += [
            *_mode(ledger, config, record),
            *_advised(ledger, record),
            *_planned(record, plan, now_s),
            *_decided(ledger, record, now_s),
        ]
        causes += _left(record)
    causes += _app(ledger, config, record, measured)
    if record.live:
        causes += _profiled(record, measured.get(record.id), now_s)
    return Explanation(
        job=record.id,
        state=state_word(record),
        gpus=sum(record.allocation.values()),
        allocation=dict(record.allocation),
        target=None if record.target is None else dict(record.target),
        causes=tuple(causes),
        ahead=_ahead(ledger, record, config, now_s),
        policy=str(books.decided.get("policy", "")),
        decided_ago_s=max(now_s - books.decided_s, 0.0) if books.decisions else None,
    )


def _end(record: JobRecord) -> list[Cause]:
    if record.ended is not None:
        asked = record.ended is JobState.CANCELLED and record.cancel_why is not None
        why = [Cause("cancel", f"{record.cancel_why} ({record.cancel_by})")] if asked else []
        return [*why, Cause("end", record.end_text or f"it is {record.ended}")]
    if record.released:
        return [Cause("end", "it was handed back to the cluster's own scheduler")]
    return []


def _asked(record: JobRecord) -> list[Cause]:
    if not record.live:
        return []
    causes = []
    if record.cancel_why is not None:
        causes.append(Cause("cancel", f"{record.cancel_why} ({record.cancel_by})", change="nothing: it is ending"))
    if record.hold_why is not None:
        causes.append(Cause("hold", record.hold_why, change=f"`horae unhold {record.id}`"))
    return causes


def _cluster(ledger: Ledger, record: JobRecord, config: Config, now_s: Seconds) -> list[Cause]:
    if not record.live:
        return []
    causes = []
    pool = config.pool(record.pool)
    if not record.shown and pool is not None and not mode_of(ledger, pool).acts:
        text = f"the cluster does not know it: pool {pool.name} is in mode {mode_of(ledger, pool)}"
        causes.append(Cause("cluster", text, change=f"`horae config mode {pool.name} enforce`"))
    elif not record.shown:
        causes.append(Cause("cluster", "the cluster does not know it yet", change="the next round"))
    if record.missing_since_s is not None:
        gone_s = now_s - record.missing_since_s
        causes.append(
            Cause("cluster", f"the cluster has not shown it for {gone_s:.0f} s", {"since_s": record.missing_since_s})
        )
    if record.guessed:
        causes.append(Cause("cluster", "nobody could tell what it is, so it is left alone until it ends"))
    if record.blocked is not None:
        block = record.blocked
        numbers = {"kind": block["kind"], "for_s": now_s - block["since_s"], "cap": block.get("cap")}
        causes.append(Cause("blocked", f"the cluster does not let it run: {block['text']}", numbers))
    until_s = backoff_until(record, config)
    if until_s > now_s:
        numbers = {"losses": record.losses, "again_in_s": until_s - now_s}
        text = f"the cluster ended it {record.losses} times in a row; it is started again in {until_s - now_s:.0f} s"
        causes.append(Cause("backoff", text, numbers, "time"))
    return causes


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
        text = f"pool {pool.name} is in mode {mode}: nothing is started or stopped by us"
        causes.append(Cause("mode", text, change=f"`horae config mode {pool.name} enforce`"))
    if books.maintenance is not None:
        causes.append(Cause("mode", f"maintenance: {books.maintenance}", change="the end of the maintenance"))
    return causes


_DONE = {"start": "started", "reshape": "resized", "stop": "stopped", "cancel": "cancelled"}


def _advised(ledger: Ledger, record: JobRecord) -> list[Cause]:
    """What would be done with it, in a pool that only advises."""
    causes = []
    for step in ledger.pool(record.pool).advised:
        if step["job"] == record.id:
            places = ", ".join(f"{gpus} on {node}" for node, gpus in step.get("allocation", {}).items())
            text = f"it would be {_DONE.get(step['verb'], step['verb'])}{places and f' with {places}'}"
            waits = "" if step["ready"] else ", once others have left"
            causes.append(Cause("plan", text + waits, {"allocation": step.get("allocation", {})}))
    return causes


def _planned(record: JobRecord, plan: Sequence[PlanStep], now_s: Seconds) -> list[Cause]:
    """What is under way for it."""
    causes = []
    if record.stop_asked_s is not None:
        asked_s = now_s - record.stop_asked_s
        left_s = max(record.spec.grace_s - asked_s, 0.0)
        text = f"it was asked {asked_s:.0f} s ago to checkpoint and leave, and has {left_s:.0f} s left"
        causes.append(Cause("plan", text, {"asked_s": asked_s, "left_s": left_s}))
    elif record.grant is not None:
        gpus = sum(record.grant.allocation.values())
        causes.append(Cause("plan", f"it was given {gpus} GPUs; the cluster does not show its gang yet"))
    for step in plan:
        if step.job != record.id or step.verb not in (Verb.START, Verb.RESHAPE) or step.ready:
            continue
        others = [job for job in step.waits_for if job != record.id]
        if others:
            text = f"its GPUs are still held by {', '.join(others)}, which must leave first"
            causes.append(Cause("plan", text, {"waits_for": others}, "their leaving"))
        elif step.waits_until_s is not None:
            wait_s = max(step.waits_until_s - now_s, 0.0)
            causes.append(Cause("plan", f"it has just left these nodes and may return in {wait_s:.1f} s"))
    return causes


def _decided(ledger: Ledger, record: JobRecord, now_s: Seconds) -> list[Cause]:
    causes = []
    if record.probe is not None:
        probe = record.probe
        left_s = max(probe["until_s"] - now_s, 0.0)
        where = f"{probe['gpus']} {probe['gpu_type']}"
        numbers = {"gpu_type": probe["gpu_type"], "gpus": probe["gpus"], "at_most_s": left_s}
        text = f"its speed on {where} is being measured, for {left_s:.0f} s at most: {probe['text']}"
        causes.append(Cause("probe", text, numbers, "the measurement, or another job that needs these GPUs"))
    if record.aside is not None and is_aside(record, now_s):
        left_s = record.aside["until_s"] - now_s
        policy = record.aside["policy"]
        text = f"it is left out of decisions: {policy and f'policy {policy} cannot take it: '}{record.aside['text']}"
        causes.append(Cause("aside", text, {"again_in_s": left_s}, "time, or handing it in anew with other numbers"))
    if record.guard is not None:
        guard = record.guard
        wanted = sum(guard.get("wanted", {}).values())
        text = f"the policy would give it {wanted} GPUs, but {guard['text']}"
        numbers = {"guard": guard["guard"], "wanted": wanted, "for_s": now_s - guard["since_s"]}
        causes.append(Cause("guard", text, numbers, "time"))
    cap = ledger.pool(record.pool).caps.get(record.tenant)
    if cap is not None and cap.until_s > now_s:
        text = f"the site lets tenant {record.tenant} hold {cap.cap} GPUs: {cap.text}"
        causes.append(Cause("limit", text, {"cap": cap.cap, "believed_for_s": cap.until_s - now_s}))
    fallback = ledger.pool(record.pool).decided.get("fallback")
    if fallback:
        causes.append(Cause("policy", f"the previous allocation stands: {fallback}", change="the policy's next answer"))
    if record.reason is not None:
        reason = record.reason
        causes.append(
            Cause(
                "policy",
                reason["text"],
                {"code": reason["code"], **reason.get("numbers", {})},
                reason.get("change", ""),
            )
        )
    return causes


#: A job that has run this long without a word of its log being understood is told so.
SILENT_S = 60.0
_KEY_FROM = {
    "given": "as its owner gave it",
    "derived": "derived from its command",
    "corrected": "corrected after it had another",
}


def _profiled(record: JobRecord, fresh: Measurement | None, now_s: Seconds) -> list[Cause]:
    """Under which key its measurements are shared, what they leave open, and how its last probe ended."""
    if fresh is None and not record.measured:
        if record.state is not JobState.RUNNING or now_s - (record.started_s or now_s) < SILENT_S:
            return []
        return [Cause("profile", f"nothing was measured of it yet: {lacks(progress=False)[0]}")]
    known = fresh or recorded(record)
    causes = []
    if known.key:
        text = f"its measurements are shared under the model key {known.key}, {_KEY_FROM[known.key_from]}"
        numbers = {"key": known.key, "from": known.key_from}
        causes.append(Cause("profile", text, numbers, "`horae submit --key NAME` for later jobs"))
    causes += [Cause("profile", note) for note in known.notes]
    if record.probed and record.probe is None:
        causes.append(Cause("profile", f"its last probe is over: {record.probed}"))
    return causes


def _app(ledger: Ledger, config: Config, record: JobRecord, measured: Mapping[JobId, Measurement]) -> list[Cause]:
    """How it stands in its app, where the app is more than this job."""
    found = apps.standing(ledger, config, record, measured)
    return [] if found is None else [Cause("app", found.text, found.numbers, found.change)]


def _ahead(ledger: Ledger, record: JobRecord, config: Config, now_s: Seconds) -> tuple[JobId, ...]:
    """Others of its pool that wait, and that the policy lets run first or that came first."""
    if not record.live or occupies(record, now_s, config.rounds.settle_s):
        return ()
    waiting = [
        r
        for r in ledger.live(record.pool)
        if r.id != record.id and not r.state.holds and r.hold_why is None and r.cancel_why is None
    ]
    mine = (not record.target, record.submitted_s, record.id)
    ahead = sorted((not r.target, r.submitted_s, r.id) for r in waiting if (not r.target, r.submitted_s, r.id) < mine)
    return tuple(job for _, _, job in ahead)
