"""`fold(ledger, event)`: what each kind of event does to the ledger. No clock, no configuration, no I/O.

Given the same events in the same order the ledger is the same, whoever folds them and whenever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from horae.journal import bidding, spending
from horae.journal.codec import restore
from horae.journal.events import TIME_LIMIT, Event, Kind, Verb
from horae.journal.ledger import (
    Alert,
    Avoid,
    Cap,
    Grant,
    HeldBack,
    JobRecord,
    Ledger,
    LeftOut,
    Obstacle,
    PoolRecord,
    Probing,
    Shrink,
    UnusedGpus,
)
from horae.port import CheckpointMark, JobId, JobState
from horae.spec import JobSpec
from policy.model import Seconds

#: How much of a list of times is kept a job; more would only be looked at by nobody.
KEPT_RESTARTS = 100
KEPT_CLAIMS = 16
KEPT_APP_COUNTS = 1000
#: A run of this length was a good one: its loss starts a new count.
RAN_WELL_S = 600.0
#: Weight of the newest restart in the smoothed cost.
NEWEST = 0.5


def fold(ledger: Ledger, event: Event) -> None:
    if event.at_s > ledger.at_s:  # noqa: PLR1730 - of a million events each asks: no call
        ledger.at_s = event.at_s
    _FOLDS[event.kind](ledger, event)


# --- the arbiter's own life -------------------------------------------------------------------------------


def _opened(ledger: Ledger, event: Event) -> None:
    ledger.opened += 1
    ledger.opened_s = event.at_s
    ledger.stood_down = None


def _claimed(ledger: Ledger, event: Event) -> None:
    ledger.claims = [*ledger.claims, event.data["token"]][-KEPT_CLAIMS:]


def _stood_down(ledger: Ledger, event: Event) -> None:
    ledger.stood_down = event.data["by"]


def _recovered(ledger: Ledger, event: Event) -> None:
    ledger.next_id = max(ledger.next_id, event.data["next_id"] or 0)


def _alert(ledger: Ledger, event: Event) -> None:
    old = ledger.alerts.get(event.data["what"])
    since = (old.since_s, old.since_wall_s) if old else (event.at_s, event.wall_s)
    ledger.alerts[event.data["what"]] = Alert(event.data["text"], event.data["remedy"], *since)


def _cleared(ledger: Ledger, event: Event) -> None:
    ledger.alerts.pop(event.data["what"], None)


def _nothing(_ledger: Ledger, _event: Event) -> None:
    """A record for people only."""


def _checkpoint(ledger: Ledger, event: Event) -> None:
    stored = restore(Ledger, event.data["ledger"])
    for name in Ledger.__slots__:
        setattr(ledger, name, getattr(stored, name))


# --- what people asked ------------------------------------------------------------------------------------


def _submitted(ledger: Ledger, event: Event) -> None:
    assert event.job is not None and event.pool is not None
    data = event.data
    record = JobRecord(
        id=event.job,
        spec=restore(JobSpec, data["spec"]),
        pool=event.pool,
        tenant=data["tenant"],
        app=data["app"],
        owner=data["owner"],
        submitted_s=data["submitted_s"],
        submitted_wall_s=event.wall_s,
        since_s=event.at_s,
        charged_s=event.at_s,
        adopted=event.kind is Kind.ADOPTED,
        guessed=bool(data.get("guessed", False)),
        priority=_first_priority(event),
    )
    old = ledger.jobs.get(event.job)
    if old is not None and old.live:
        _count_app(ledger, old, -1, event.at_s)
    ledger.jobs[event.job] = record
    ledger.submitted_s = max(ledger.submitted_s, record.submitted_s)
    if event.job.isdecimal():
        ledger.next_id = max(ledger.next_id, int(event.job) + 1)
    _count_app(ledger, record, +1, event.at_s)


def _first_priority(event: Event) -> int:
    """What was handed in was checked; of a job that the cluster showed only a step back is believed."""
    stated = int(event.data["spec"].get("priority", 0))
    return stated if event.kind is Kind.SUBMITTED else min(stated, 0)


def _respecified(ledger: Ledger, event: Event) -> None:
    record = _job(ledger, event)
    if record is None:
        return
    if record.live:
        _charge(ledger, record, event.at_s, event)  # to whom it belonged
        _count_app(ledger, record, -1, event.at_s)
    record.spec = restore(JobSpec, event.data["spec"])
    record.tenant, record.app, record.owner = event.data["tenant"], event.data["app"], event.data["owner"]
    record.guessed = False
    if record.live:
        _count_app(ledger, record, +1, event.at_s)


def _cancel_asked(ledger: Ledger, event: Event) -> None:
    if (record := _job(ledger, event)) is not None:
        record.cancel_why, record.cancel_by = event.data["text"], event.data["by"]


def _held(ledger: Ledger, event: Event) -> None:
    if (record := _job(ledger, event)) is not None:
        record.hold_by = event.data["by"]
        record.hold_why = ": ".join(filter(None, (f"held by {record.hold_by}", event.data["text"])))


def _unheld(ledger: Ledger, event: Event) -> None:
    if (record := _job(ledger, event)) is not None:
        if record.hold_by == TIME_LIMIT:
            record.limit_from_s = record.ran_s
        record.hold_why, record.hold_by = None, ""


def _priority(ledger: Ledger, event: Event) -> None:
    if (record := _job(ledger, event)) is not None:
        if event.data["across"]:
            record.precedence = event.data["to"]
        else:
            record.priority = event.data["to"]


def _mode(ledger: Ledger, event: Event) -> None:
    pool = _pool(ledger, event)
    pool.mode, pool.releasing = event.data["mode"], bool(event.data.get("releasing", False))
    pool.advised = []


def _maintenance(ledger: Ledger, event: Event) -> None:
    _pool(ledger, event).maintenance = event.data["text"] if event.data["on"] else None


# --- what the cluster showed ------------------------------------------------------------------------------


def _seen(ledger: Ledger, event: Event) -> None:
    record = _job(ledger, event)
    if record is None:
        return
    data = event.data
    state, epoch, since_s = _STATES.get(data["state"]) or JobState(data["state"]), data["epoch"], data["since_s"]
    allocation = data["allocation"]
    moved = state is not record.state or epoch != record.epoch_seen
    _charge(ledger, record, since_s if moved else event.at_s, event)
    if moved or allocation != record.allocation:
        record.unused = None
    if moved:
        _came_into(record, state, epoch, since_s)
    if record.allocation and not allocation:
        record.left_nodes, record.left_s = sorted(record.allocation), event.at_s
    if record.grant is not None and _is_over(record.grant, record, state, epoch):
        record.grant = None
    record.shown, record.missing_since_s = True, None
    record.state, record.epoch_seen = state, epoch
    record.epoch = max(record.epoch, epoch)
    record.allocation, record.holding = dict(allocation), dict(data["holding"])
    record.since_s = since_s
    record.exit_code, record.native = data.get("exit_code"), data.get("native", "")
    record.blocked = restore(Obstacle, data["blocked"]) if "blocked" in data else None
    record.cluster_left_s, record.cluster_left_at_s = data.get("time_left_s"), event.at_s
    if "checkpoint" in data:
        record.checkpoint = restore(CheckpointMark, data["checkpoint"])


def _is_over(grant: Grant, before: JobRecord, state: JobState, epoch: int) -> bool:
    """Whether it took effect, or was withdrawn."""
    return epoch >= grant.epoch or (before.state is JobState.STARTING and state.startable)


#: By value.
_STATES = {state.value: state for state in JobState}


def _came_into(record: JobRecord, state: JobState, epoch: int, since_s: Seconds) -> None:
    """The job changed its state, or was started again: note what that says about restarts and failures."""
    if record.stop_asked_s is not None and (not state.holds or epoch > record.epoch_seen):
        if state is JobState.STOPPED:
            record.stop_cost_s = max(since_s - record.stop_asked_s, 0.0)
        record.stop_asked_s = record.stop_repeated_s = None
    if state is JobState.RUNNING:
        record.started_s = since_s
        if record.stop_cost_s is not None and record.start_asked_s is not None:
            _restart_cost(record, record.stop_cost_s + max(since_s - record.start_asked_s, 0.0))
            record.stop_cost_s = None
    elif state is JobState.LOST:
        ran_s = since_s - record.started_s if record.started_s is not None else 0.0
        record.losses = record.losses + 1 if ran_s < RAN_WELL_S else 1
        record.down_s = since_s
    elif state is JobState.STOPPED:
        record.losses = 0


def _restart_cost(record: JobRecord, cost_s: Seconds) -> None:
    old = record.restart_cost_s
    record.restart_cost_s = cost_s if old is None else NEWEST * cost_s + (1 - NEWEST) * old


def _reopened(ledger: Ledger, event: Event) -> None:
    record = _job(ledger, event)
    if record is None or record.ended is None:
        return
    record.ended = record.ended_s = record.ended_wall_s = record.cancel_sent_s = None
    record.end_text, record.charged_s = "", max(record.charged_s, event.at_s)
    _count_app(ledger, record, +1, event.at_s)


def _missing(ledger: Ledger, event: Event) -> None:
    record = _job(ledger, event)
    if record is None:
        return
    _charge(ledger, record, event.at_s, event)
    record.missing_since_s = event.at_s
    record.allocation, record.holding = {}, {}


def _measured(ledger: Ledger, event: Event) -> None:
    if (record := _job(ledger, event)) is None:
        return
    record.measured = dict(event.data)
    warmup_s = record.measured.pop("warmup_s", None)
    if warmup_s is not None:
        old, record.warmed_epoch = record.warmup_s, record.epoch_seen
        record.warmup_s = warmup_s if old is None else NEWEST * warmup_s + (1 - NEWEST) * old


def _capped(ledger: Ledger, event: Event) -> None:
    data = event.data
    if event.job is not None:
        record = _job(ledger, event)
        if record is not None:
            record.cap = Cap(data["cap"], data["until_s"], data["text"])
        return
    pool = _pool(ledger, event)
    pool.caps[data["tenant"]] = Cap(data["cap"], data["until_s"], data["text"])
    for tenant in [t for t, c in pool.caps.items() if c.until_s <= event.at_s]:
        del pool.caps[tenant]


def _avoided(ledger: Ledger, event: Event) -> None:
    data = event.data
    pool = _pool(ledger, event)
    pool.avoid[data["node"]] = Avoid(data["gpus"], data["until_s"], data["text"])
    for node in [n for n, a in pool.avoid.items() if a.until_s <= event.at_s]:
        del pool.avoid[node]


# --- what was decided and done ----------------------------------------------------------------------------


def _decided(ledger: Ledger, event: Event) -> None:
    pool = _pool(ledger, event)
    data = dict(event.data)
    targets, reasons, leases = data.pop("targets", {}), data.pop("reasons", {}), data.pop("leases", {})
    if "state" in data:
        pool.policy, pool.state = data["policy"], data.pop("state")
    pool.decisions += 1
    pool.decided, pool.decided_s = data, event.at_s
    holds = _gpus_of(ledger, targets)
    totals = {job: sum(target.values()) for job, target in targets.items()}
    gained = tuple(job for job, to in totals.items() if holds.get(job, 0) < to)
    for job, target in targets.items():
        if (record := ledger.jobs.get(job)) is not None:
            record.target = dict(target)
            held, to = holds.get(job, 0), totals[job]
            if to < held:
                record.shrunk = Shrink(held, to, gained, data.get("policy", ""), event.at_s, event.wall_s)
            elif record.shrunk is not None and to >= record.shrunk.before:
                record.shrunk = None
    for job, reason in reasons.items():
        if (record := ledger.jobs.get(job)) is not None:
            record.reason = reason
    for job, lease in leases.items():
        if (record := ledger.jobs.get(job)) is not None:
            record.leases = {node: list(times) for node, times in lease.items()}


def _gpus_of(ledger: Ledger, jobs: Iterable[JobId]) -> dict[JobId, int]:
    """GPUs that those of the jobs hold that hold any."""
    out = {}
    for job in jobs:
        record = ledger.jobs.get(job)
        if record is not None and record.allocation:
            out[job] = sum(record.allocation.values())
    return out


def _guarded(ledger: Ledger, event: Event) -> None:
    record = _job(ledger, event)
    if record is None:
        return
    if event.data["guard"] is None:
        record.guard = None
    else:
        record.guard = restore(HeldBack, {**event.data, "since_s": event.at_s})


def _unused(ledger: Ledger, event: Event) -> None:
    if (record := _job(ledger, event)) is not None:
        record.unused = restore(UnusedGpus, event.data) if event.data["gpus"] else None


def _aside(ledger: Ledger, event: Event) -> None:
    record = _job(ledger, event)
    if record is not None:
        record.aside = restore(LeftOut, {**event.data, "since_s": event.at_s})


def _probed(ledger: Ledger, event: Event) -> None:
    record, pool, data = _job(ledger, event), _pool(ledger, event), event.data
    if "over" not in data:
        pool.probes = [*(t for t in pool.probes if t > event.at_s - 3600.0), event.at_s]
    if record is not None:
        record.probe = None if "over" in data else restore(Probing, {**data, "since_s": event.at_s})
        record.probed = data.get("over", "")


def _advised(ledger: Ledger, event: Event) -> None:
    _pool(ledger, event).advised = list(event.data["steps"])


def _ordered(ledger: Ledger, event: Event) -> None:
    _pool(ledger, event).order = list(event.data["jobs"])


def _intent(ledger: Ledger, event: Event) -> None:
    record = _job(ledger, event)
    if record is None:
        return
    data, at_s = event.data, event.at_s
    verb = Verb(data["verb"])
    if verb in (Verb.START, Verb.RESHAPE):
        record.epoch = max(record.epoch, data["epoch"])
        record.grant = Grant(data["epoch"], dict(data["allocation"]), dict(data["holding"]), at_s)
        record.start_asked_s = at_s
    elif verb is Verb.STOP:
        if record.stop_asked_s is None:
            record.stop_asked_s = at_s
            record.restarts = [*record.restarts, at_s][-KEPT_RESTARTS:]
        record.stop_repeated_s = at_s
    elif verb is Verb.CANCEL:
        record.cancel_sent_s = at_s
    elif verb is Verb.SUBMIT:
        record.submit_sent_s = at_s


def _outcome(ledger: Ledger, event: Event) -> None:
    record = _job(ledger, event)
    if record is None:
        return
    verb, error = Verb(event.data["verb"]), event.data["error"]
    if verb is Verb.RELEASE and error is None and record.live:
        _charge(ledger, record, event.at_s, event)
        _count_app(ledger, record, -1, event.at_s)
        record.released, record.holding, record.grant = True, {}, None
        record.ended_s, record.ended_wall_s = event.at_s, event.wall_s
    elif verb in (Verb.START, Verb.RESHAPE) and error not in (None, "TryLater"):
        record.grant = None  # it certainly did not happen


def _ended(ledger: Ledger, event: Event) -> None:
    record = _job(ledger, event)
    if record is None or not record.live:
        return
    ended_s = event.data["ended_s"]
    _charge(ledger, record, ended_s, event)
    _count_app(ledger, record, -1, event.at_s)
    record.ended, record.end_text = JobState(event.data["state"]), event.data["text"]
    record.ended_s, record.ended_wall_s = ended_s, event.wall_s
    record.allocation, record.holding, record.target, record.leases = {}, {}, None, {}
    record.grant = record.guard = record.aside = record.probe = record.unused = None
    record.stop_asked_s = record.stop_repeated_s = None


def _forgotten(ledger: Ledger, event: Event) -> None:
    for job in event.data["jobs"]:
        record = ledger.jobs.pop(job, None)
        if record is not None and record.live:
            _count_app(ledger, record, -1, event.at_s)


# --- shared -----------------------------------------------------------------------------------------------


def _job(ledger: Ledger, event: Event) -> JobRecord | None:
    """The event's job; None when it was forgotten meanwhile, which events of a late outcome may find."""
    return ledger.jobs.get(event.job or "")


def _pool(ledger: Ledger, event: Event) -> PoolRecord:
    assert event.pool is not None
    return ledger.pools.setdefault(event.pool, PoolRecord())


def _charge(ledger: Ledger, record: JobRecord, until_s: Seconds, event: Event) -> None:
    """Charge what it held since the last charge, never twice and never backwards."""
    elapsed_s = until_s - record.charged_s
    if elapsed_s <= 0:
        return
    until_wall_s = event.wall_s - (event.at_s - until_s)
    if record.holding:
        spending.charge(ledger.spent, record.tenant, record.holding, until_wall_s - elapsed_s, until_wall_s)
        for gpu_type, gpus in record.holding.items():
            record.attained[gpu_type] = record.attained.get(gpu_type, 0.0) + gpus * elapsed_s
    if record.state is JobState.RUNNING:
        record.ran_s += elapsed_s
    record.charged_s = until_s


def _count_app(ledger: Ledger, record: JobRecord, by: int, at_s: Seconds) -> None:
    pool = ledger.pools.setdefault(record.pool, PoolRecord())
    before = len(pool.apps)
    count = pool.apps.get(record.app_key, 0) + by
    if count > 0:
        pool.apps[record.app_key] = count
    else:
        pool.apps.pop(record.app_key, None)
        pool.agents.pop(record.app_key, None)
    if len(pool.apps) == before:
        return
    if pool.active_apps and pool.active_apps[-1][0] == at_s:
        pool.active_apps.pop()
    pool.active_apps.append((at_s, len(pool.apps)))
    if len(pool.active_apps) > KEPT_APP_COUNTS:
        _prune_app_counts(ledger, record.pool, pool)


def _prune_app_counts(ledger: Ledger, name: str, pool: PoolRecord) -> None:
    """Nobody needs the counts from before the oldest live job, nor more than the newest thousand or so."""
    oldest = min((r.submitted_s for r in ledger.live(name)), default=pool.active_apps[-1][0])
    first = next((i for i, (t, _) in enumerate(pool.active_apps) if t > oldest), len(pool.active_apps))
    keep = max(first - 1, len(pool.active_apps) - KEPT_APP_COUNTS // 2)
    pool.active_apps = pool.active_apps[keep:]


_FOLDS: dict[Kind, Callable[[Ledger, Event], None]] = {
    Kind.OPENED: _opened,
    Kind.CLAIMED: _claimed,
    Kind.STOOD_DOWN: _stood_down,
    Kind.RECOVERED: _recovered,
    Kind.ALERT: _alert,
    Kind.CLEARED: _cleared,
    Kind.CLOCK_STEPPED: _nothing,
    Kind.CHECKPOINT: _checkpoint,
    Kind.SUBMITTED: _submitted,
    Kind.AGENT: bidding.agent,
    Kind.OFFERED: bidding.offered,
    Kind.BID: bidding.bid,
    Kind.BID_REFUSED: bidding.bid_refused,
    Kind.SETTLED: bidding.settled,
    Kind.ADOPTED: _submitted,
    Kind.RESPECIFIED: _respecified,
    Kind.CANCEL_ASKED: _cancel_asked,
    Kind.HELD: _held,
    Kind.UNHELD: _unheld,
    Kind.PRIORITY: _priority,
    Kind.MODE: _mode,
    Kind.MAINTENANCE: _maintenance,
    Kind.SEEN: _seen,
    Kind.REOPENED: _reopened,
    Kind.MISSING: _missing,
    Kind.MEASURED: _measured,
    Kind.CAPPED: _capped,
    Kind.AVOIDED: _avoided,
    Kind.DECIDED: _decided,
    Kind.GUARDED: _guarded,
    Kind.UNUSED: _unused,
    Kind.ASIDE: _aside,
    Kind.PROBED: _probed,
    Kind.ADVISED: _advised,
    Kind.ORDERED: _ordered,
    Kind.INTENT: _intent,
    Kind.OUTCOME: _outcome,
    Kind.ENDED: _ended,
    Kind.FORGOTTEN: _forgotten,
}
