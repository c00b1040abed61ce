"""The one picture a policy gets: observation + ledger + configuration -> `policy.model.Snapshot`. Pure.

What a policy may not move is not in it as a job but as foreign use of a node: jobs that are being cancelled or
held, jobs nobody could describe, those that stand on nodes of no pool and cannot leave them, and GPUs that a blocked
start showed to be unusable. So every answer to this picture can be carried out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from horae.arbiter.decide.album import Album, SnapshotSources
from horae.arbiter.standing import decidable, keeps_to_itself, occupies, stands_elsewhere
from horae.config import Pool
from horae.journal import JobRecord, Ledger, PoolRecord
from horae.journal.ledger import LINE
from horae.port import JobId
from policy import catalogue
from policy.model import (
    EMPTY,
    App,
    Away,
    Cluster,
    Gpus,
    Health,
    Job,
    Node,
    NodeName,
    PolicyChoice,
    Quota,
    Snapshot,
    Tenant,
)
from policy.records import altered

Apps = Callable[[Ledger, str], tuple[App, ...]]


def options_of(pool: Pool) -> Mapping[str, Any]:
    """The pool's options, and those that mean something else in a living cluster unless the site says otherwise.

    An app weighs its tenant's weight over the tenant's active apps, so that splitting one sweep into ten buys nothing;
    `weigh: apps` is the papers' plain count.
    """
    entry = catalogue.known(pool.policy)
    if entry is not None and any(option.name == "weigh" for option in entry.options):
        return {"weigh": "tenants", **pool.options}
    return pool.options


def picture(
    ledger: Ledger, pool: Pool, view: SnapshotSources, *, apps: Iterable[App] = (), album: Album | None = None
) -> Snapshot:
    """The snapshot of one pool. Deterministic: equal inputs give equal snapshots, with or without an `album`."""
    return picture_of_the_fit(ledger, pool, view, apps=apps, album=album)[0]


def picture_of_the_fit(
    ledger: Ledger, pool: Pool, view: SnapshotSources, *, apps: Iterable[App] = (), album: Album | None = None
) -> tuple[Snapshot, dict[JobId, str]]:
    """The same, and the jobs that are not in it because no policy could take them, with what is wrong."""
    config, now_s = view.config, view.now_s
    books = ledger.pool(pool.name)
    mine = [node for node in view.observation.nodes if view.pools.get(node.name) == pool.name]
    types = tuple(dict.fromkeys(n.gpu_type for n in mine))
    if config.gpu_types:
        types = tuple(sorted(types, key=lambda t: config.gpu_types.get(t, 1.0)))
    known = frozenset(node.name for node in mine)
    unseen = keeps_to_itself(ledger, config, pool.name)
    records = sorted(
        (
            record
            for record in ledger.live(pool.name)
            if decidable(record, config, now_s, unseen=unseen) and not stands_elsewhere(record, known)
        ),
        key=LINE,
    )
    album = album if album is not None else Album()
    album.open(view, types, known)
    fit, unfit = _fit(records, view, album)
    decided = {job.name for job in fit}
    album.close(decided)
    nodes = _nodes(ledger, books, mine, decided, view)
    tenants = sorted({job.tenant for job in fit})
    caps = _caps(ledger, pool.name, tenants, decided, view)
    choice = PolicyChoice(pool.policy, options_of(pool))
    snapshot = Snapshot(
        cluster=Cluster(nodes, view.limits, types),
        jobs=fit,
        tenants=tuple(Tenant(t, config.weight(t), caps.get(t), view.beyond.get(t)) for t in tenants),
        now_s=now_s,
        apps=tuple(apps),
        active_apps=tuple((s, n) for s, n in books.active_apps),
        state=books.state if books.policy == pool.policy else EMPTY,
        policy=choice,
        quotas=_quotas(ledger, records, decided, view),
    )
    return snapshot, unfit


def _caps(
    ledger: Ledger, pool: str, tenants: Iterable[str], decided: Collection[JobId], view: SnapshotSources
) -> dict[str, Gpus]:
    """The tightest of the cluster's limits, what blocked starts told, and the configuration's, by tenant."""
    found: dict[str, list[Gpus]] = {tenant: [cap] for tenant, cap in view.observation.caps.items()}
    for tenant, learnt in ledger.pool(pool).caps.items():
        if learnt.until_s > view.now_s:
            found.setdefault(tenant, []).append(learnt.cap)
    stated = {tenant: cap for tenant in tenants if (cap := view.config.cap(tenant)) is not None}
    settle_s = view.config.rounds.settle_s
    for record in ledger.astir(pool) if stated else ():
        if record.tenant in stated and record.id not in decided:
            stated[record.tenant] -= sum(occupies(record, view.now_s, settle_s).values())
    for tenant, cap in stated.items():
        found.setdefault(tenant, []).append(max(cap, 0))
    return {tenant: min(caps) for tenant, caps in found.items()}


def _quotas(
    ledger: Ledger, records: Iterable[JobRecord], decided: Collection[JobId], view: SnapshotSources
) -> tuple[Quota, ...]:
    """The site's limits, less what jobs that are not decided about hold of them; and what blocked starts told."""
    found = []
    for quota in view.observation.quotas:
        others = [ledger.jobs[name] for name in quota.whom if name not in decided and name in ledger.jobs]
        held = [sum(occupies(record, view.now_s, view.config.rounds.settle_s).values()) for record in others]
        gpus = None if quota.gpus is None else max(quota.gpus - sum(held), 0)
        jobs = None if quota.jobs is None else max(quota.jobs - sum(map(bool, held)), 0)
        whom = tuple(name for name in quota.whom if name in decided)
        if whom:
            found.append(replace(quota, whom=whom, gpus=gpus, jobs=jobs))
    for record in records:
        cap = record.cap
        if cap is not None and cap.until_s > view.now_s and record.id in decided:
            found.append(Quota(f"{cap.text}, for {record.id}", (record.id,), cap.cap))
    return tuple(found)


def _fit(records: Iterable[JobRecord], view: SnapshotSources, album: Album) -> tuple[tuple[Job, ...], dict[JobId, str]]:
    """The jobs that a policy may be asked about, and why the others cannot be."""
    fit, unfit = [], {}
    for record in records:
        try:
            job, wrong = album.job(record, view)
        except (ArithmeticError, ValueError, TypeError, LookupError) as error:
            # Its own numbers, wherever they came from: it is one job's trouble, and is told as that.
            unfit[record.id] = f"no picture can be made of it: {type(error).__name__}: {error}"
            continue
        if wrong is None:
            fit.append(job)
        else:
            unfit[record.id] = f"no policy can take it: its {wrong}"
    return tuple(fit), unfit


def _nodes(
    ledger: Ledger, books: PoolRecord, mine: Iterable[Node], decided: Collection[JobId], view: SnapshotSources
) -> tuple[Node, ...]:
    """The pool's nodes, with what those hold there that are not decided about as foreign use."""
    taken: Counter[NodeName] = Counter(view.strays)
    for record in ledger.astir():
        if record.id not in decided:
            taken.update(occupies(record, view.now_s, view.config.rounds.settle_s))
    for name, avoid in books.avoid.items():
        if avoid.until_s > view.now_s:
            taken[name] += avoid.gpus
    still = books.maintenance is not None
    return tuple(_node(node, taken[node.name], still, view.away.get(node.name, ())) for node in mine)


def _node(node: Node, taken: Gpus, maintenance: bool, away: tuple[Away, ...]) -> Node:
    """In maintenance nothing moves, for whatever cause."""
    health = Health.DRAIN if maintenance and node.health is Health.UP else node.health
    return altered(node, foreign=min(node.foreign + taken, node.gpus), health=health, away=() if maintenance else away)
