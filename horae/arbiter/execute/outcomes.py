"""What the cluster's answers mean: events, and when to ask again. Errors say what the caller does next.

`TryLater`: the same again, later each time. `Never`: drop it and tell the user. `FixConfiguration`: tell the
operator, and try now and then. What was asked again too early would only load a cluster that is busy already.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from horae.arbiter.execute.executor import Beat, Claim, Do, Done, ReleaseRest, SetOrder, SetReason
from horae.arbiter.standing import held_by_people
from horae.config import Rounds
from horae.journal import Draft, Ledger, events
from horae.journal.events import Verb
from horae.port import FixConfiguration, JobId, JobState, Never, PortError, TryLater, backoff_s
from policy.model import Seconds

LONGEST_RETRY_S = 300.0
#: A job in the middle of a move holds GPUs that nobody uses: what it needs is tried again sooner than a new request.
LONGEST_FOLLOW_UP_S = 5.0
#: A start that the cluster refuses for good this often in a row is not tried again until somebody says so.
REFUSALS = 3
#: By which the alerts about calls go.
CALLS = frozenset(
    [*(verb.value for verb in Verb), *(op.__name__.lower() for op in (Beat, Claim, ReleaseRest, SetOrder, SetReason))]
)


@dataclass(slots=True)
class Retries:
    """When a call that failed may be made again. Forgotten at a restart: then it is simply tried."""

    not_before: dict[tuple[JobId, Verb], Seconds] = field(default_factory=dict)
    failed: dict[tuple[JobId, Verb], int] = field(default_factory=dict)
    refused: dict[JobId, int] = field(default_factory=dict)
    alerted_s: dict[str, Seconds] = field(default_factory=dict)  #: when an operator's kind of failure was last met

    def may(self, job: JobId, verb: Verb, now_s: Seconds) -> bool:
        return self.not_before.get((job, verb), 0.0) <= now_s

    def later(self, job: JobId, verb: Verb, now_s: Seconds, at_least_s: Seconds) -> Seconds:
        times = self.failed[job, verb] = self.failed.get((job, verb), 0) + 1
        longest_s = LONGEST_FOLLOW_UP_S if verb is Verb.FOLLOW_UP else LONGEST_RETRY_S
        wait_s = max(at_least_s, backoff_s(times, 0.5, longest_s))
        self.not_before[job, verb] = now_s + wait_s
        return wait_s

    def clear(self, job: JobId, verb: Verb) -> None:
        self.failed.pop((job, verb), None)
        self.not_before.pop((job, verb), None)

    def forget(self, jobs: Iterable[JobId]) -> None:
        for job in jobs:
            self.refused.pop(job, None)
            for verb in Verb:
                self.clear(job, verb)


def outcomes(ledger: Ledger, done: Iterable[Done], retries: Retries, rounds: Rounds, now_s: Seconds) -> list[Draft]:
    """Events for what came of each call. `retries` is brought up to date."""
    drafts: list[Draft] = []
    for each in done:
        if isinstance(each.op, Do):
            drafts += _of_action(ledger, each, each.op, retries, rounds, now_s)
        elif isinstance(each.op, Claim | SetOrder) or (
            isinstance(each.op, Beat | SetReason | ReleaseRest) and not isinstance(each.error, TryLater | Never)
        ):
            drafts += _notice_operator(ledger, type(each.op).__name__.lower(), each.error, retries, now_s)
    return drafts


def over(ledger: Ledger, retries: Retries, now_s: Seconds) -> list[Draft]:
    """Alerts about calls that were not met again for so long that nobody can say whether they would still fail; of
    those that the arbiter before told of, the time begins with ours."""
    for what in ledger.alerts.keys() & CALLS:
        retries.alerted_s.setdefault(what, now_s)
    long_ago = [what for what, at_s in retries.alerted_s.items() if now_s - at_s > 2 * LONGEST_RETRY_S]
    for what in long_ago:
        del retries.alerted_s[what]
    return [events.Cleared(what) for what in long_ago if what in ledger.alerts]


def _of_action(ledger: Ledger, each: Done, op: Do, retries: Retries, rounds: Rounds, now_s: Seconds) -> list[Draft]:
    if not each.tried:
        return [events.Answered(op.job, op.verb, error="NotTried")]
    error = each.error
    if error is None:
        retries.clear(op.job, op.verb)
        if op.verb is Verb.START:
            retries.refused.pop(op.job, None)
        return [events.Answered(op.job, op.verb), *_notice_operator(ledger, op.verb.value, None, retries, now_s)]
    if isinstance(error, TryLater):
        wait_s = retries.later(op.job, op.verb, now_s, error.retry_after_s)
        return [events.Answered(op.job, op.verb, error="TryLater", text=error.text, retry_s=wait_s)]
    if isinstance(error, Never):
        told = events.Answered(op.job, op.verb, error="Never", text=error.text)
        return [told, *_never(ledger, op, error, retries, rounds, now_s)]
    wait_s = retries.later(op.job, op.verb, now_s, 60.0)
    drafts: list[Draft] = [events.Answered(op.job, op.verb, error="FixConfiguration", text=error.text, retry_s=wait_s)]
    if op.verb is Verb.START:  # until it is tried again, what it was to get is for others
        drafts.append(events.PutAside(op.job, error.text[:500], now_s + wait_s))
    return drafts + _notice_operator(ledger, op.verb.value, error, retries, now_s)


def _never(ledger: Ledger, op: Do, error: Never, retries: Retries, rounds: Rounds, now_s: Seconds) -> list[Draft]:
    record = ledger.jobs.get(op.job)
    if record is None or not record.live:
        return []
    if op.verb is Verb.SUBMIT:
        return [events.Ended(op.job, JobState.FAILED, now_s, f"the cluster refuses it: {error.text}")]
    if op.verb is Verb.CANCEL and not record.shown:
        return [events.Ended(op.job, JobState.CANCELLED, now_s, record.cancel_why or "")]
    if op.verb is Verb.START:
        # It may be the GPUs (a node that says more than it has) or the job: other GPUs first.
        times = retries.refused[op.job] = retries.refused.get(op.job, 0) + 1
        retries.later(op.job, op.verb, now_s, 1.0)
        if times >= REFUSALS:
            retries.refused.pop(op.job)
            by = record.hold_by if held_by_people(record) else events.HORAE
            return [events.JobHeld(op.job, by, f"the cluster refuses to start it: {error.text}")]
        known = {n: a.gpus for n, a in ledger.pool(record.pool).avoid.items() if a.until_s > now_s}
        return [
            events.Avoided(record.pool, node, known.get(node, 0) + gpus, now_s + rounds.avoid_s, error.text)
            for node, gpus in op.allocation.items()
        ]
    retries.later(op.job, op.verb, now_s, rounds.repeat_s)
    return []


def _notice_operator(
    ledger: Ledger, what: str, error: PortError | None, retries: Retries, now_s: Seconds
) -> list[Draft]:
    """An alert an operator sees until the same kind of call succeeds again."""
    if error is None:
        retries.alerted_s.pop(what, None)
        return [events.Cleared(what)] if what in ledger.alerts else []
    retries.alerted_s[what] = now_s
    old = ledger.alerts.get(what)
    remedy = error.remedy if isinstance(error, FixConfiguration) else ""
    return [] if old is not None and old.text == error.text else [events.Alerted(what, error.text, remedy)]
