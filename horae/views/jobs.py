"""The arbiter's state as the API's plain data. Pure functions of the ledger, made where it does not change.

Wall times everywhere: the ledger's own clock (`at_s`) never jumps and differs from the wall's after a step, so its
times are shifted by the caller's `now_s` against `wall_s`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from horae.arbiter.observe import unused
from horae.arbiter.observe.budgets import BudgetStanding
from horae.arbiter.requests import answers
from horae.config import Config, Mode
from horae.journal import JobRecord, Ledger
from horae.journal.measured import Measurement
from horae.journal.quiet import quiet
from horae.port import JobId, JobState
from horae.views import rows
from policy.model import EMPTY, Away, GpuRange, Gpus, GpuType, Node, NodeName, Seconds
from policy.parts.fair_shares import fair_shares

#: Newest points of a loss curve that a status carries.
LOSS_POINTS = 60


#: Newer than what is on record, by job.
Measured = Mapping[JobId, Measurement]


def job(
    record: JobRecord,
    ledger: Ledger,
    now_s: Seconds,
    wall_s: Seconds,
    measured: Measured,
    modes: Mapping[str, Mode] = EMPTY,
) -> answers.JobAnswer:
    """Everything about one job; `horae.api.privacy.access` takes out what is private. `modes`: of pools, by name."""
    spec, fresh = record.spec, measured.get(record.id)
    losses = [list(p) for p in fresh.loss] if fresh is not None else record.measured.get("loss", [])
    done, total = rows.progress(record)
    return {
        **line(record, ledger, now_s, modes),
        "app": record.app,
        "pool": record.pool,
        "native": record.native,
        "gpus": _gpus(spec.gpus),
        "target": None if record.target is None else dict(record.target),
        "since_s": record.since_s + wall_s - now_s,
        "ended_s": record.ended_wall_s,
        "time_left_s": record.time_left_at(now_s) if record.live else None,
        "waited_s": rows.waited_s(record, now_s),
        "attained": dict(record.attained_at(now_s) if record.live else record.attained),
        "step": done if fresh is None or record.ended_wall_s is not None else max(done, fresh.done),
        "total": total if fresh is None or total is not None else fresh.total,
        "rate": rows.rate(record),
        "loss": losses[-1][1] if losses else None,
        "losses": losses[-LOSS_POINTS:],
        "starts": record.epoch_seen,
        "resizes": len(record.restarts),
        "restart_cost_s": record.whole_restart_cost_s,
        "exit_code": record.exit_code,
        "rho": _rho(record, ledger),
        "elastic": spec.elastic,
        "model": spec.model,
        "command": list(spec.command),
        "cwd": spec.cwd,
        "env": dict(spec.env),
        "checkpoint": spec.checkpoint,
        "unused_gpus": 0 if record.unused is None else record.unused.gpus,
        "unused_s": None if record.unused is None else now_s - record.unused.since_s,
        "extra": dict(spec.extra),
        "priority": record.priority,
        "precedence": record.precedence,
    }


def line(record: JobRecord, ledger: Ledger, now_s: Seconds, modes: Mapping[str, Mode] = EMPTY) -> answers.JobLine:
    """What a line of a table shows of a job."""
    mode, allocation = modes.get(record.pool, Mode.ENFORCE), dict(record.allocation)
    return {
        "id": record.id,
        "name": record.spec.name,
        "owner": record.owner,
        "tenant": record.tenant,
        "state": rows.state_word(record),
        "range": gpu_range(record.spec.gpus),
        "allocation": allocation,
        "submitted_s": record.submitted_wall_s,
        "ran_s": record.ran_at(now_s) if record.live else record.ran_s,
        "ended": not record.live,
        "why": ledger.for_people(rows.why(record, mode)),
        "code": record.reason["code"] if record.reason is not None and (mode.decides or allocation) else None,
        "checkpoint_trouble": record.checkpoint_trouble,
        "unused": unused.text(record, now_s),
    }


def _gpus(gpus: GpuRange) -> answers.GpusAsked:
    found: answers.GpusAsked = {"requested": gpus.requested, "min": gpus.min, "max": gpus.max}
    return found if gpus.allowed is None else {**found, "allowed": list(gpus.allowed)}


def gpu_range(gpus: GpuRange) -> str:
    """As `horae submit --gpus` reads it."""
    if gpus.allowed is not None:
        return ",".join(map(str, gpus.allowed))
    return str(gpus.min) if gpus.rigid else f"{gpus.min}:{'' if gpus.max is None else gpus.max}"


def _rho(record: JobRecord, ledger: Ledger) -> float | None:
    found = ledger.pool(record.pool).decided.get("certificate", {}).get("rho", {}).get(record.app_key)
    return None if found is None or not record.live else float(found)


def jobs(
    ledger: Ledger,
    now_s: Seconds,
    wall_s: Seconds,
    measured: Measured,
    *,
    ended: bool,
    losses: bool,
    modes: Mapping[str, Mode] = EMPTY,
) -> list[answers.JobAnswer]:
    """By submission. Without `losses` the curves, the bulk of it, are left out."""
    with quiet():
        out = [job(record, ledger, now_s, wall_s, measured, modes) for record in _by_submission(ledger, ended=ended)]
    if not losses:
        for data in out:
            del data["losses"]
    return out


def lines(ledger: Ledger, now_s: Seconds, *, ended: bool, modes: Mapping[str, Mode] = EMPTY) -> list[answers.JobLine]:
    """By submission."""
    with quiet():
        return [line(record, ledger, now_s, modes) for record in _by_submission(ledger, ended=ended)]


def _by_submission(ledger: Ledger, *, ended: bool) -> list[JobRecord]:
    return sorted((r for r in ledger.jobs.values() if ended or r.live), key=lambda r: (r.submitted_s, r.id))


def nodes(
    found: Iterable[Node],
    pool_of: Mapping[str, str],
    ledger: Ledger,
    away: Mapping[NodeName, tuple[Away, ...]] = EMPTY,
    ahead_s: Seconds = 0.0,
) -> list[answers.Node]:
    """`away`: when nodes are to be away; `ahead_s`: the wall's clock before ours."""
    held: dict[str, int] = {}
    for record in ledger.jobs.values():
        for node, gpus in record.allocation.items():
            held[node] = held.get(node, 0) + gpus
    return [
        {
            "name": node.name,
            "gpu_type": node.gpu_type,
            "gpus": node.gpus,
            "held": held.get(node.name, 0),
            "foreign": node.foreign,
            "health": node.health.value,
            "rack": node.rack,
            "pool": pool_of.get(node.name),
            "away": [
                {
                    "name": time.name,
                    "from_s": time.from_s + ahead_s,
                    "to_s": time.to_s + ahead_s,
                    "leave_s": time.leave_s + ahead_s,
                    "reason": time.reason,
                }
                for time in away.get(node.name, ())
            ],
        }
        for node in found
    ]


def tenants(
    ledger: Ledger,
    config: Config,
    found: Iterable[Node],
    now_s: Seconds,
    site_caps: Mapping[str, Gpus] = EMPTY,
    budgets: Mapping[str, BudgetStanding] = EMPTY,
) -> list[answers.Tenant]:
    """Every tenant that is configured or has jobs on record; `fair`: the GPUs it is owed now; `site_caps`: the most
    that the cluster says it may hold."""
    found = tuple(found)
    capacity = sum(max(n.gpus - n.foreign, 0) for n in found if n.health.value != "down")
    present = {n.gpu_type for n in found}
    mine = _by_tenant(ledger, config)
    uses = {name: sum(usable(r, capacity, present) for r in rs if r.live) for name, rs in mine.items()}
    demand = {name: demanded(config, name, gpus) for name, gpus in uses.items()}
    weights = {name: config.weight(name) for name in mine}
    fair = fair_shares(weights, demand, float(capacity))
    caps = dict(site_caps)
    for known in ledger.pools.values():
        caps |= {t: c.cap for t, c in known.caps.items() if c.until_s > now_s}
    for name in mine:
        if (cap := config.cap(name)) is not None:
            caps[name] = min(cap, caps.get(name, cap))
    return [
        {
            "name": name,
            "weight": weights[name],
            "fair": fair[name],
            "cap": caps.get(name),
            "budget": _of_budget(budgets.get(name)),
            **_used(records, ledger, now_s),
        }
        for name, records in mine.items()
    ]


def _of_budget(standing: BudgetStanding | None) -> answers.Budget | None:
    if standing is None:
        return None
    return {
        "gpu_hours": standing.gpu_hours,
        "period": standing.period.value,
        "then": standing.then.value,
        "used": standing.used,
        "until_s": standing.until_s,
        "over": standing.over,
    }


def _by_tenant(ledger: Ledger, config: Config) -> dict[str, list[JobRecord]]:
    """All jobs on record of everybody who is configured or has some, by name."""
    names = {t.name for t in config.tenants} | {r.tenant for r in ledger.jobs.values()}
    mine: dict[str, list[JobRecord]] = {name: [] for name in sorted(names)}
    for record in ledger.jobs.values():
        mine[record.tenant].append(record)
    return mine


def _used(records: Sequence[JobRecord], ledger: Ledger, now_s: Seconds) -> answers.Used:
    live = [r for r in records if r.live]
    holding = sum(r.state.holds for r in live)
    return {
        "held": sum(sum(r.allocation.values()) for r in live),
        "running": holding,
        "waiting": len(live) - holding,
        "gpu_s": sum(sum((r.attained_at(now_s) if r.live else r.attained).values()) for r in records),
        "rho": max((x for r in records if (x := _rho(r, ledger)) is not None), default=None),
    }


def usable(record: JobRecord, capacity: int, present: Collection[GpuType]) -> int:
    """The most GPUs this job could use now. One that cannot be resized and runs can use what it has."""
    if not record.wanted:
        return sum(record.allocation.values())
    if record.state is JobState.RUNNING and not record.spec.elastic:
        return sum(record.allocation.values())
    if record.spec.type_choice is not None and not any(record.spec.runs_on(t) for t in present):
        return 0
    return record.spec.gpus.at_most(capacity)


def demanded(config: Config, tenant: str, gpus: Gpus) -> float:
    """What it counts for in shares: nobody is owed more than its cap lets it hold."""
    cap = config.cap(tenant)
    return float(gpus if cap is None else min(gpus, cap))
