"""What people are shown of apps: their schedulers, phases, trials and bids. Pure views of the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from horae.arbiter.decide.snapshot import options_of
from horae.arbiter.requests import answers
from horae.config import Config
from horae.journal import JobRecord, Ledger
from horae.journal.measured import Measurement
from horae.port import JobId, JobState
from horae.sweeps.variable import VARIABLES
from horae.views.rows import state_word, why
from policy.model import App
from policy.parts.sweeps import CURVES, HALVING, loss_by, phase_ends

Measured = Mapping[JobId, Measurement]


@dataclass(frozen=True, slots=True)
class Trial:
    """One job of an app."""

    record: JobRecord
    done: float
    loss: float  #: the newest; inf: none
    rank: int | None  #: among the jobs that can still win, 1 is best; None: it cannot


@dataclass(frozen=True, slots=True)
class AppPhase:
    """The phase that an app's scheduler is in."""

    number: int  #: from 1
    of: int
    end: float  #: iterations
    places: int | None  #: how many jobs go on after it; None: it is the last


def scheduler(records: Iterable[JobRecord]) -> App | None:
    """The scheduler that the app's jobs carry; None: it has none of its own."""
    for record in records:
        said = VARIABLES.of(record)
        if said is not None and said.app is not None:
            return replace(said.app, name=record.app_key)
    return None


def by_app(ledger: Ledger) -> dict[str, list[JobRecord]]:
    """Jobs by app, ended ones included, all in the order of their submission."""
    out: dict[str, list[JobRecord]] = {}
    for record in sorted(ledger.jobs.values(), key=lambda r: (r.submitted_s, r.id)):
        out.setdefault(record.app_key, []).append(record)
    return out


def trials(records: Iterable[JobRecord], measured: Measured, app: App | None = None) -> list[Trial]:
    """In the order of submission. Ranks are those of early stopping: by the loss at the end of the phase, where the
    job has been there, else by the newest; then by submission."""
    found = [(r, *_progress(r, measured)) for r in records]
    ends = phase_ends(app) if app is not None and app.scheduler in HALVING else []
    done = min((d for r, d, _ in found if r.live), default=inf)
    end = next((e for e in ends if done < e), inf)
    able = [t for t in found if t[0].live or t[0].ended is JobState.COMPLETED]
    ranked = sorted(able, key=lambda t: (loss_by(t[2], end), t[0].submitted_s, t[0].id))
    rank = {t[0].id: i for i, t in enumerate(ranked, 1) if loss_by(t[2], end) < inf}
    return [Trial(record, done, loss_by(curve, inf), rank.get(record.id)) for record, done, curve in found]


def _progress(record: JobRecord, measured: Measured) -> tuple[float, Sequence[Sequence[float]]]:
    fresh = measured.get(record.id)
    curve = fresh.loss if fresh is not None else record.measured.get("loss", [])
    done = fresh.done if fresh is not None else record.measured.get("done", 0.0)
    if record.checkpoint is not None:
        done = max(done, record.checkpoint.step)
    return done, curve


def phase(app: App, found: Iterable[Trial]) -> AppPhase | None:
    """None: it has no phases, or none of its jobs is left."""
    ends, live = phase_ends(app), [t for t in found if t.record.live]
    if not ends or not live:
        return None
    done = min(t.done for t in live)
    at = next((i for i, end in enumerate(ends) if done < end), len(ends) - 1)
    return AppPhase(at + 1, len(ends), ends[at], app.phases[at + 1].jobs if at + 1 < len(ends) else None)


def weight(ledger: Ledger, config: Config, record: JobRecord) -> tuple[float, int] | None:
    """(what the app weighs, its tenant's active apps), where the policy counts apps by weight."""
    pool = config.pool(record.pool)
    if pool is None or not record.live or options_of(pool).get("weigh") != "tenants":
        return None
    active = sum(1 for key in ledger.pool(record.pool).apps if key.startswith(f"{record.tenant}/"))
    return config.weight(record.tenant) / max(active, 1), max(active, 1)


def rows(ledger: Ledger, config: Config, measured: Measured) -> list[answers.App]:
    """Every app that has a scheduler, an agent or several jobs, in the order of submission; plain data."""
    shown = []
    for key, records in by_app(ledger).items():
        app = scheduler(records)
        if app is not None or len(records) > 1 or key in ledger.pool(records[0].pool).agents:
            shown.append(_row(ledger, config, key, records, app, trials(records, measured, app)))
    return shown


def _row(
    ledger: Ledger, config: Config, key: str, records: Sequence[JobRecord], app: App | None, found: Sequence[Trial]
) -> answers.App:
    first, live = records[0], [r for r in records if r.live]
    best = min((t for t in found if t.rank is not None), key=lambda t: t.rank or 0, default=None)
    return {
        "name": key,
        "app": first.app,
        "tenant": first.tenant,
        "pool": first.pool,
        "owners": sorted({r.owner for r in records}),
        "scheduler": None if app is None else app.scheduler,
        "phase": None if app is None or (now := phase(app, found)) is None else _phase(now),
        **_counts(records, live),
        "best": None if best is None else best.record.id,
        **_standing(ledger, config, key, live[0] if live else None, first.pool),
        "trials": [_trial(t) for t in found],
    }


def _phase(now: AppPhase) -> answers.Phase:
    return {"number": now.number, "of": now.of, "end": now.end, "places": now.places}


def _counts(records: Sequence[JobRecord], live: Sequence[JobRecord]) -> answers.AppCounts:
    holding = sum(r.state.holds for r in live)
    return {
        "jobs": len(records),
        "running": holding,
        "waiting": len(live) - holding,
        "completed": sum(r.ended is JobState.COMPLETED for r in records),
        "ended_early": sum(r.ended is JobState.CANCELLED for r in records),
        "held": sum(sum(r.allocation.values()) for r in live),
        "gpu_s": sum(sum(r.attained.values()) for r in records),
    }


def _standing(ledger: Ledger, config: Config, key: str, one: JobRecord | None, pool: str) -> answers.AppStandingWhole:
    """What the pool's policy makes of the app; `one`: any of its jobs that lives."""
    books = ledger.pool(pool)
    agent = books.agents.get(key)
    told: answers.AgentAnswer | None = None if agent is None else {"by": agent.by, "missed": agent.missed}
    if one is None:
        return {"weight": None, "rho": None, "bid": None, "agent": told}
    weighs = weight(ledger, config, one)
    return {
        "weight": None if weighs is None else weighs[0],
        "rho": books.decided.get("certificate", {}).get("rho", {}).get(key),
        "bid": books.settled.get("apps", {}).get(key),
        "agent": told,
    }


def _trial(trial: Trial) -> answers.TrialAnswer:
    record = trial.record
    return {
        "id": record.id,
        "name": record.spec.name,
        "state": state_word(record),
        "held": sum(record.allocation.values()),
        "step": trial.done,
        "rank": trial.rank,
        "loss": trial.loss if trial.loss < inf else None,
        "parameters": parameters(record),
        "why": why(record) if not record.live else "",
    }


def parameters(record: JobRecord) -> dict[str, Any]:
    """The setting that a sweep gave this job."""
    said = VARIABLES.of(record)
    return {} if said is None else dict(said.parameters)


# --- why -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AppStanding:
    """How a job stands in its app: a sentence, the numbers behind it, what would change it."""

    text: str
    numbers: Mapping[str, Any]
    change: str


def standing(ledger: Ledger, config: Config, record: JobRecord, measured: Measured) -> AppStanding | None:
    """None: its app is this one job, and nobody schedules or bids for it."""
    records = [r for r in ledger.jobs.values() if r.app_key == record.app_key]
    app = scheduler(records)
    books = ledger.pool(record.pool)
    agent, settled = books.agents.get(record.app_key), books.settled.get("apps", {}).get(record.app_key)
    if app is None and len(records) == 1 and agent is None:
        return None
    found = trials(records, measured, app)
    mine = next(t for t in found if t.record.id == record.id)
    able = sum(t.rank is not None for t in found)
    kind = f" ({app.scheduler})" if app is not None else ""
    parts = [f"one of {len(records)} jobs of app {record.app}{kind}, {sum(r.live for r in records)} of which are left"]
    numbers: dict[str, Any] = {"app": record.app_key, "jobs": len(records), "rank": mine.rank, "ranked": able}
    if mine.rank is not None:
        parts.append(f"number {mine.rank} of {able} by its loss")
        numbers["loss"] = mine.loss
    if not record.live:
        return AppStanding("; ".join(parts), numbers, "")
    more, change = _outlook(app, mine, found, numbers) if app is not None else ([], "")
    parts += [*more, *_bidding(app, agent, settled, books.settled.get("number"), numbers)]
    if (weighs := weight(ledger, config, record)) is not None:
        numbers |= {"weight": weighs[0], "tenant_apps": weighs[1]}
        tenant = config.weight(record.tenant)
        parts.append(f"it weighs {weighs[0]:.3g}: weight {tenant:g} of {record.tenant} over {weighs[1]} active apps")
    return AppStanding("; ".join(parts), numbers, change)


def _outlook(app: App, mine: Trial, found: list[Trial], numbers: dict[str, Any]) -> tuple[list[str], str]:
    """What its scheduler will do with it."""
    now = phase(app, found) if app.scheduler in HALVING else None
    if now is not None:
        numbers |= {"phase": now.number, "phases": now.of, "phase_end": now.end, "places": now.places}
        parts = [f"phase {now.number} of {now.of} ends at {now.end:g} iterations, it has done {mine.done:g}"]
        if now.places is None:
            return [*parts, "whoever is left runs to the end"], ""
        parts.append(f"the best {now.places} go on")
        left = sum(t.record.live for t in found)
        if left <= now.places or (mine.rank is not None and mine.rank <= now.places):
            return parts, f"falling behind the best {now.places} before the phase ends"
        return parts, f"a loss among the best {now.places} before the phase ends; else it is ended then"
    if app.scheduler in CURVES:
        text = "it is ended when its fitted curve can no longer reach what the best has reached"
        return [text], "a curve that falls further"
    return [], ""


def _bidding(
    app: App | None, agent: Any, settled: Mapping[str, Any] | None, number: int | None, numbers: dict[str, Any]
) -> list[str]:
    if agent is not None:
        numbers |= {"agent": agent.by, "missed": agent.missed}
    parts = []
    if settled is not None:
        numbers |= {"offer": number, **{f"bid_{k}" if k == "rho" else k: v for k, v in settled["numbers"].items()}}
        parts.append(f"offer {number}: {settled['text']}")
    elif agent is not None:
        parts.append(f"an agent of {agent.by} bids for it")
    elif app is not None and app.scheduler == "external":
        parts.append("no agent of its own is registered, the built-in one bids for it")
    return parts
