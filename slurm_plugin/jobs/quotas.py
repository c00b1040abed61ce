"""Whom the site's limits bind: each job's QOS (its partition's first, unless its own goes before that), its
association and the accounts above it.

Slurm looks at the QOS before the association: a limit that a QOS sets takes the place of the association's own. One
on CPUs or memory lets no more GPUs be held than go with so much, by the job that needs the least for each: Slurm does
the rest. So does one on minutes, by the shortest time limit of those that may be started. One on GPUs of a type binds
who asked for that type; who did not uses of it what he was given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from horae.port import JobId, ObservedJob
from policy.model import EMPTY, Gpus, Quota
from slurm_plugin.comment import parse_tag
from slurm_plugin.jobs.limits import BOUNDS, AssociationLimits, Bound, Limited, QosLimits, QosRules, SiteLimits
from slurm_plugin.jobs.specification import keeps_shape
from slurm_plugin.records import Facts, JobRow

_DEEPEST = 64  #: accounts above each other
_FREE = Bound()
_NONE = Limited()
_PLAIN = QosRules()
_CPUS, _MEMORY, _OF_TYPE = "cpu", "mem", "gres/gpu:"
_MIB = 1 << 20
_LITTLE = 0.01  #: of anything, at least, is with a GPU that has any


class _Used(NamedTuple):
    """By others, of one limit."""

    gpus: int
    jobs: int
    beside: Mapping[str, int]

    def least(self, other: _Used) -> _Used:
        beside = {tres: min(used, other.beside.get(tres, used)) for tres, used in self.beside.items()}
        return _Used(min(self.gpus, other.gpus), min(self.jobs, other.jobs), beside)


@dataclass(slots=True)
class _Found:
    limited: Limited = _NONE
    whom: list[JobId] = field(default_factory=list)


class Quotas:
    """The limits as they were read last, with what others use: that is counted between two reads of Slurm, so of the
    last two counts the lower one stands, or a job that just began would count twice and others be shrunk for it."""

    def __init__(self) -> None:
        self._site = SiteLimits()
        self._rules: Mapping[str, QosRules] = EMPTY
        self._others: dict[str, _Used] = {}
        self._taken: dict[str, _Used] = {}  #: what stands of others' use
        self._held: dict[str, Gpus] = {}  #: by those whom it binds, when the limits were read
        self._fresh = False

    def took(self, site: SiteLimits) -> None:
        self._site, self._fresh = site, True

    def told(self, rules: Mapping[str, QosRules]) -> None:
        self._rules = rules

    def look(
        self,
        jobs: Mapping[JobId, ObservedJob],
        rows: Mapping[JobId, JobRow],
        facts: Facts,
        node_gpus: Mapping[str, Gpus] = EMPTY,
    ) -> tuple[Quota, ...]:
        """Of the jobs that are shown; GPUs, jobs and what goes with them less what those that are not use. `node_gpus`:
        of all nodes, for the most GPUs that so many of them have."""
        found: defaultdict[str, _Found] = defaultdict(_Found)
        single: list[Quota] = []
        for name, job in jobs.items():
            row = rows.get(name)
            if row is None or job.state.ended:
                continue
            bound = self._bind(row, facts, job)
            if not keeps_shape(row):
                single += self._on_nodes(job, row, facts, bound, node_gpus)
                single += self._fewest(job, row, facts)
            for quota, limited in bound:
                entry = found[quota]
                entry.limited = limited
                entry.whom.append(name)
        others = {name: _used_by_others(entry, jobs, rows) for name, entry in found.items()}
        if self._fresh:
            before, self._others, self._fresh = self._others, others, False
            self._taken = {name: now.least(before.get(name, now)) for name, now in others.items()}
            self._held = {name: _held_by(entry, jobs) for name, entry in found.items()}
        told: list[Quota] = []
        safe = "safe" in facts.enforced
        for name, entry in sorted(found.items()):
            told += _told(name, entry, self._taken.get(name, others[name]), jobs, rows)
            told += _of_nodes(name, entry, jobs, node_gpus)
            told += _of_minutes(name, entry, jobs, self._held.get(name), safe)
        return (*told, *single)

    def _bind(self, row: JobRow, facts: Facts, job: ObservedJob) -> list[tuple[str, Limited]]:
        """Each limit that binds it, by its name."""
        names = self._names(row, facts)
        chain = [self._site.qos[name] for name in names if name in self._site.qos]
        factor = self._factor(names)
        bound = list(_of_qos(row, chain))
        by_qos = {kind for qos in chain for kind in _set(qos, row)}
        association = self._association(row)
        users = association if association is not None and association.user else None
        above = self._above(association)
        for at in above:
            who = f"user {at.user} in account {at.account}" if at.user else f"account {at.account}"
            limited = _unless(_times(at.group, factor), "group", by_qos)
            if limited.binds:
                bound.append((who, limited))
        if users is not None and users.jobs.most is not None and ("user", "jobs") not in by_qos:
            bound.append((f"jobs of user {users.user} in account {users.account}", Limited(jobs=users.jobs)))
        each = _of_one([*(qos.job for qos in chain), *(_times(at.job, factor) for at in above)], job, row)
        if _may_start(job):
            each += _in_minutes([limited for _, limited in bound], job, "safe" in facts.enforced)
        most = min(each, default=None)
        if most is not None and (job.spec is None or job.spec.gpus.max is None or job.spec.gpus.max > most):
            bound.append((f"GPUs of one job, {row.id}", Limited(Bound(most))))
        return bound

    def _on_nodes(
        self,
        job: ObservedJob,
        row: JobRow,
        facts: Facts,
        bound: Iterable[tuple[str, Limited]],
        node_gpus: Mapping[str, Gpus],
    ) -> Iterable[Quota]:
        """How many nodes a job may be on whose nodes are chosen for it, and how many GPUs it may hold of each. More
        nodes than several jobs may be on together none may be on alone; the rest of such a limit is Slurm's."""
        names = self._names(row, facts)
        factor, above = self._factor(names), self._above(self._association(row))
        single = [self._site.qos[name].job for name in names if name in self._site.qos]
        single += [_times(at.job, factor) for at in above]
        limits = [_first(single, "nodes")]
        for _, limited in bound:
            limits.append(limited.nodes.most)
        if not self._rule(row.qos or "").any_nodes:
            limits.append(facts.most_nodes.get(row.partition))
        nodes = min(filter(None, limits), default=None)
        per_node = _first(single, "per_node")
        if nodes is not None or per_node is not None:
            most = _most_on(nodes, per_node, node_gpus, sum(job.allocation.values()))
            yield Quota(f"nodes of one job, {row.id}", (job.id,), most, None, nodes, per_node)

    def _fewest(self, job: ObservedJob, row: JobRow, facts: Facts) -> Iterable[Quota]:
        for name in self._names(row, facts):
            qos = self._site.qos.get(name)
            if qos is not None and qos.least is not None:
                yield Quota(f"fewest GPUs of one job, {row.id}", (job.id,), least=qos.least)
                return

    def _factor(self, names: Collection[str]) -> float:
        factors = [self._rule(name).factor for name in names]
        return next((each for each in factors if each is not None), 1.0)

    def _association(self, row: JobRow) -> AssociationLimits | None:
        """Its user's in its partition, or in any; else its account's."""
        known, account = self._site.associations, row.account or ""
        keys = ((account, row.user, row.partition), (account, row.user, ""), (account, "", ""))
        return next((known[key] for key in keys if key in known), None)

    def _names(self, row: JobRow, facts: Facts) -> list[str]:
        """The QOS that bind it, the one first whose limits go before the other's."""
        own, partitions = row.qos or "", facts.partition_qos.get(row.partition, "")
        first, second = (own, partitions) if self._rule(own).before_partition else (partitions, own)
        return [name for name in dict.fromkeys((first, second)) if name]

    def _rule(self, name: str) -> QosRules:
        return self._rules.get(name, _PLAIN)

    def _above(self, association: AssociationLimits | None) -> list[AssociationLimits]:
        """It, its account, and the accounts above."""
        found: list[AssociationLimits] = []
        while association is not None and len(found) < _DEEPEST:
            found.append(association)
            account = association.account if association.user else association.parent
            association = self._site.associations.get((account, "", "")) if account else None
        return found


def throttled(jobs: Mapping[JobId, ObservedJob], rows: Mapping[JobId, JobRow]) -> tuple[str, ...]:
    """Arrays of which only so many tasks are to run at a time."""
    return tuple(dict.fromkeys(_array(rows[name]) for name, job in jobs.items() if _at_once(name, job, rows)))


def of_arrays(
    jobs: Mapping[JobId, ObservedJob], rows: Mapping[JobId, JobRow], now: Mapping[str, int | None] = EMPTY
) -> tuple[Quota, ...]:
    """Of arrays of which only so many tasks run at a time (`--array=1-100%2`). `now`: as it is by now, where that is
    known (None: all)."""
    found: defaultdict[tuple[str, int], list[JobId]] = defaultdict(list)
    for name, job in jobs.items():
        said = _at_once(name, job, rows)
        most = now.get(_array(rows[name]), said) if said else None
        if most:
            found[_array(rows[name]), most].append(name)
    return tuple(
        Quota(f"tasks of array {array} at a time", tuple(whom), None, most) for (array, most), whom in found.items()
    )


def _array(row: JobRow) -> str:
    return row.id.partition("_")[0]


def _at_once(name: JobId, job: ObservedJob, rows: Mapping[JobId, JobRow]) -> int | None:
    tag = parse_tag(rows[name].admin_comment) if name in rows and not job.state.ended else None
    return tag.at_once if tag is not None else None


def needs(row: JobRow) -> Mapping[str, int]:
    """Licences."""
    tag = parse_tag(row.admin_comment)
    return dict(tag.licences) if tag is not None else {}


def of_licences(
    jobs: Mapping[JobId, ObservedJob], rows: Mapping[JobId, JobRow], shown: Mapping[str, Bound]
) -> tuple[Quota, ...]:
    """As many jobs as there are licences for, less what jobs that are not shown use. Where jobs need different numbers
    of one it is taken to be the least: Slurm lets no more start."""
    found: defaultdict[str, dict[JobId, int]] = defaultdict(dict)
    for name, job in jobs.items():
        for licence, count in needs(rows[name]).items() if name in rows and not job.state.ended else ():
            found[licence][name] = count
    quotas = []
    for licence, whom in found.items():
        bound = shown.get(licence, _FREE)
        if bound.most is not None:
            ours = sum(count for name, count in whom.items() if jobs[name].allocation and _counted(rows[name]))
            left = bound.most - max(bound.used - ours, 0)
            quotas.append(Quota(f"licences of {licence}", tuple(whom), None, max(left // min(whom.values()), 0)))
    return tuple(quotas)


def _of_qos(row: JobRow, chain: list[QosLimits]) -> Iterable[tuple[str, Limited]]:
    """The first QOS that sets a limit is the one that counts."""
    seen: set[tuple[str, str]] = set()
    for qos in chain:
        named = {
            "group": f"QOS {qos.name}",
            "user": f"QOS {qos.name} of user {row.user}",
            "account": f"QOS {qos.name} of account {row.account}",
        }
        for kind, limited in _kinds(qos, row).items():
            left = _unless(limited, kind, seen)
            if left.binds:
                yield named[kind], left
        seen |= _set(qos, row)


def _kinds(qos: QosLimits, row: JobRow) -> dict[str, Limited]:
    """The limits that a QOS sets for a job, by whose jobs they count."""
    users = qos.users.get(row.user, _NONE)
    accounts = qos.accounts.get(row.account or "", _NONE)
    return {"group": qos.group, "user": users, "account": accounts}


def _set(qos: QosLimits, row: JobRow) -> set[tuple[str, str]]:
    """What a QOS limits of a job, and by whose jobs."""
    return {
        (kind, what)
        for kind, limited in _kinds(qos, row).items()
        for what, bound in limited.each().items()
        if bound.most is not None
    }


def _unless(limited: Limited, kind: str, before: Collection[tuple[str, str]]) -> Limited:
    """Without what another limits before it."""
    left = {what: bound for what, bound in limited.each().items() if (kind, what) not in before}
    own = {what: left.pop(what, _FREE) for what in BOUNDS}
    return Limited(beside=left, **own)


def _times(limited: Limited, factor: float) -> Limited:
    """What of it LimitFactor changes: no numbers of jobs, and no minutes."""
    beside = {tres: _multiplied(bound, factor) for tres, bound in limited.beside.items()}
    own = {what: _multiplied(getattr(limited, what), factor) for what in ("gpus", "nodes", "per_node")}
    return replace(limited, beside=beside, **own)


def _most_on(nodes: int | None, per_node: Gpus | None, node_gpus: Mapping[str, Gpus], held: Gpus) -> Gpus | None:
    """GPUs of the largest nodes, and no less than it holds; None where no nodes are known."""
    if not node_gpus:
        return None
    sizes = sorted(node_gpus.values(), reverse=True)[:nodes]
    if per_node is not None:
        sizes = [min(size, per_node) for size in sizes]
    return max(sum(sizes), held)


def _first(limits: Iterable[Limited], what: str) -> int | None:
    """By the first that sets it."""
    for limited in limits:
        bound: Bound = getattr(limited, what)
        if bound.most is not None:
            return bound.most
    return None


def _multiplied(bound: Bound, factor: float) -> Bound:
    return bound if bound.most is None else replace(bound, most=int(bound.most * factor))


def _of_one(limits: Iterable[Limited], job: ObservedJob, row: JobRow) -> list[Gpus]:
    """GPUs that one job may hold: by the first that limits them, what goes with them, and the minutes of a start."""
    found: dict[str, int] = {}
    for limited in limits:
        if limited.gpus.most is not None:
            found.setdefault("gpus", limited.gpus.most)
        for tres, bound in limited.beside.items():
            each = _with_a_gpu(tres, job, row)
            if bound.most is not None and each:
                found.setdefault(tres, int(bound.most / each))
        if limited.minutes.most is not None:
            found.setdefault("minutes", int(limited.minutes.most / _limit_min(job)))
    return list(found.values())


def _in_minutes(limits: Iterable[Limited], job: ObservedJob, safe: bool) -> list[Gpus]:
    """GPUs that a job may hold by its own time limit, and by what is left of each limit on minutes."""
    left = [limited.minutes_left(safe) for limited in limits]
    held = sum(job.allocation.values())
    return [held + int(minutes / _limit_min(job)) for minutes in left if minutes is not None]


def _may_start(job: ObservedJob) -> bool:
    """Now, or again in another shape."""
    return job.state.startable or (job.spec is not None and job.spec.elastic)


def _limit_min(job: ObservedJob) -> float:
    """Of its next start. Of one without a limit Slurm says whether it may start."""
    return max(job.time_left_s or 0.0, 60.0) / 60.0


def _told(
    name: str,
    entry: _Found,
    taken: _Used,
    jobs: Mapping[JobId, ObservedJob],
    rows: Mapping[JobId, JobRow],
) -> Iterable[Quota]:
    """One limit as those on GPUs and jobs that it comes to. But for one on GPUs nobody gives up what he holds."""
    whom, limited = tuple(entry.whom), entry.limited
    gpus = _less(limited.gpus, taken.gpus)
    count = _less(limited.jobs, taken.jobs)
    if gpus is not None or count is not None:
        yield Quota(name, whom, gpus, count)
    for tres, bound in limited.beside.items():
        each = {job: takes for job in whom if (takes := _with_a_gpu(tres, jobs[job], rows[job]))}
        left = _less(bound, taken.beside.get(tres, 0))
        if left is not None and each:
            theirs = sum(sum(jobs[job].allocation.values()) for job in each)
            yield Quota(f"{_called(tres)} of {name}", tuple(each), max(int(left / min(each.values())), theirs))


def _of_minutes(
    name: str,
    entry: _Found,
    jobs: Mapping[JobId, ObservedJob],
    held_then: Gpus | None,
    safe: bool,
) -> Iterable[Quota]:
    """What was left when the limit was read goes with what was held then: what began since has taken its part of that,
    and what has ended has given its own back, but for what is used up."""
    minutes = entry.limited.minutes_left(safe)
    limits = [_limit_min(jobs[job]) for job in entry.whom if _may_start(jobs[job])]
    if minutes is None or not limits:
        return
    held = _held_by(entry, jobs)
    if held_then is None or entry.limited.used_up:
        held_then = held
    most = held_then + int(minutes / min(limits))
    yield Quota(f"GPU minutes of {name}", tuple(entry.whom), max(most, held))


def _held_by(entry: _Found, jobs: Mapping[JobId, ObservedJob]) -> Gpus:
    return sum(sum(jobs[job].allocation.values()) for job in entry.whom)


def _of_nodes(
    name: str, entry: _Found, jobs: Mapping[JobId, ObservedJob], node_gpus: Mapping[str, Gpus]
) -> Iterable[Quota]:
    """A limit on the nodes that jobs are on together as one on GPUs: those of so many of the largest nodes. On which
    nodes they are, and so whether a job fits beside the others, is Slurm's to say."""
    if entry.limited.nodes.most is None:
        return
    most = _most_on(
        entry.limited.nodes.most,
        None,
        node_gpus,
        _held_by(entry, jobs),
    )
    if most is not None:
        yield Quota(f"GPUs on the nodes of {name}", tuple(entry.whom), most)


def _called(tres: str) -> str:
    kind = tres.removeprefix(_OF_TYPE)
    return {_CPUS: "CPUs", _MEMORY: "memory"}.get(tres, f"{kind} GPUs")


def _with_a_gpu(tres: str, job: ObservedJob, row: JobRow) -> float:
    """What each GPU of it takes of a limit: CPUs, MiB, or one of a type; 0 where that is not known, or nothing."""
    spec = job.spec
    if tres == _CPUS:
        least = spec.gpus.min if spec is not None else 1
        said = spec.cpus_per_gpu if spec is not None else None
        return max(said or row.num_cpus / max(least, 1), _LITTLE)
    if spec is None:
        return 0.0
    if tres == _MEMORY:
        own = spec.shape.memory_per_node if spec.shape is not None else None
        whole = own * max(row.num_nodes, 1) / spec.gpus.min if own else spec.memory_per_gpu
        return (whole or 0) / _MIB
    return float(spec.gpu_types == (tres.removeprefix(_OF_TYPE),))


def _has(tres: str, row: JobRow, gpus: Gpus, asked: float) -> int:
    """What one that holds GPUs uses of a limit."""
    if tres == _CPUS:
        return row.num_cpus
    if tres == _MEMORY:
        return (row.alloc_memory or 0) // _MIB
    return gpus if asked else 0


def _used_by_others(entry: _Found, jobs: Mapping[JobId, ObservedJob], rows: Mapping[JobId, JobRow]) -> _Used:
    """Of what is used of a limit, what the jobs that are shown do not."""
    held = {name: sum(jobs[name].allocation.values()) for name in entry.whom if _counted(rows[name])}
    limited = entry.limited
    beside = {}
    for tres, bound in limited.beside.items():
        ours = [_has(tres, rows[name], gpus, _with_a_gpu(tres, jobs[name], rows[name])) for name, gpus in held.items()]
        beside[tres] = max(bound.used - sum(ours), 0)
    return _Used(
        max(limited.gpus.used - sum(held.values()), 0),
        max(limited.jobs.used - sum(map(bool, held.values())), 0),
        beside,
    )


def _counted(row: JobRow) -> bool:
    """Whether Slurm counts it: usage ends with RUNNING."""
    return row.state in {"RUNNING", "CONFIGURING", "SUSPENDED"}


def _less(bound: Bound, others: Gpus) -> int | None:
    return None if bound.most is None else max(bound.most - others, 0)
