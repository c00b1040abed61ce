"""Whom the site's limits bind: each job's QOS (its partition's first), its association and the accounts above it.

Slurm looks at the QOS before the association: a limit that a QOS sets takes the place of the association's own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from horae.port import JobId, ObservedJob
from policy.model import EMPTY, Gpus, Quota
from slurm_plugin.comment import parse_tag
from slurm_plugin.jobs.limits import AssociationLimits, Bound, QosLimits, SiteLimits
from slurm_plugin.records import Facts, JobRow

_DEEPEST = 64  #: accounts above each other
_FREE = Bound()


@dataclass(slots=True)
class _Found:
    gpus: Bound = _FREE
    jobs: Bound = _FREE
    whom: list[JobId] = field(default_factory=list)


class Quotas:
    """The limits as they were read last, with what others use: that is counted between two reads of Slurm, so of the
    last two counts the lower one stands, or a job that just began would count twice and others be shrunk for it."""

    def __init__(self) -> None:
        self._site = SiteLimits()
        self._others: dict[str, tuple[int, int]] = {}
        self._taken: dict[str, tuple[int, int]] = {}  #: what stands of others' use: GPUs, jobs
        self._fresh = False

    def took(self, site: SiteLimits) -> None:
        self._site, self._fresh = site, True

    def look(self, jobs: Mapping[JobId, ObservedJob], rows: Mapping[JobId, JobRow], facts: Facts) -> tuple[Quota, ...]:
        """Of the jobs that are shown; GPUs and jobs less what those that are not use."""
        found: defaultdict[str, _Found] = defaultdict(_Found)
        for name, job in jobs.items():
            row = rows.get(name)
            if row is None or job.state.ended:
                continue
            for quota, gpus, count in self._bind(row, facts, job):
                entry = found[quota]
                entry.gpus, entry.jobs = gpus, count
                entry.whom.append(name)
        others = {}
        for name, entry in found.items():
            held = [sum(jobs[job].allocation.values()) for job in entry.whom if _counted(rows[job])]
            others[name] = max(entry.gpus.used - sum(held), 0), max(entry.jobs.used - sum(map(bool, held)), 0)
        if self._fresh:
            before, self._others, self._fresh = self._others, others, False
            self._taken = {
                name: (min(now[0], before.get(name, now)[0]), min(now[1], before.get(name, now)[1]))
                for name, now in others.items()
            }
        return tuple(
            Quota(name, tuple(entry.whom), _less(entry.gpus, taken[0]), _less(entry.jobs, taken[1]))
            for name, entry in sorted(found.items())
            for taken in (self._taken.get(name, others[name]),)
        )

    def _bind(self, row: JobRow, facts: Facts, job: ObservedJob) -> Iterable[tuple[str, Bound, Bound]]:
        """(name, GPUs, jobs) of each limit that binds it."""
        names = (facts.partition_qos.get(row.partition), row.qos)
        chain = [self._site.qos[name] for name in dict.fromkeys(names) if name in self._site.qos]
        yield from _of_qos(row, chain)
        set_by_qos = _set(row, chain)
        known, account = self._site.associations, row.account or ""
        users = known.get((account, row.user, row.partition)) or known.get((account, row.user, ""))
        association = users or known.get((account, "", ""))
        for at in self._above(association):
            who = f"user {at.user} in account {at.account}" if at.user else f"account {at.account}"
            gpus = _FREE if "group gpus" in set_by_qos else at.group.gpus
            jobs = _FREE if "group jobs" in set_by_qos else at.group.jobs
            if gpus.most is not None or jobs.most is not None:
                yield who, gpus, jobs
        if users is not None and users.jobs.most is not None and "user jobs" not in set_by_qos:
            yield f"jobs of user {users.user} in account {users.account}", _FREE, users.jobs
        each = next((qos.job_gpus for qos in chain if qos.job_gpus is not None), None)
        if each is None and association is not None:
            each = next((at.job_gpus for at in self._above(association) if at.job_gpus is not None), None)
        if each is not None and (job.spec is None or job.spec.gpus.max is None or job.spec.gpus.max > each):
            yield f"GPUs of one job, {row.id}", Bound(each), _FREE

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


def _of_qos(row: JobRow, chain: list[QosLimits]) -> Iterable[tuple[str, Bound, Bound]]:
    """The first QOS that sets a limit is the one that counts."""
    seen: set[str] = set()
    for qos in chain:
        for kind, name, limited in (
            ("group", f"QOS {qos.name}", qos.group),
            ("user", f"QOS {qos.name} of user {row.user}", qos.users.get(row.user)),
            ("account", f"QOS {qos.name} of account {row.account}", qos.accounts.get(row.account or "")),
        ):
            if limited is None:
                continue
            gpus = _FREE if f"{kind} gpus" in seen else limited.gpus
            jobs = _FREE if f"{kind} jobs" in seen else limited.jobs
            seen |= {f"{kind} gpus"} if gpus.most is not None else set()
            seen |= {f"{kind} jobs"} if jobs.most is not None else set()
            if gpus.most is not None or jobs.most is not None:
                yield name, gpus, jobs


def _set(row: JobRow, chain: list[QosLimits]) -> set[str]:
    """The kinds of limits that its QOS set."""
    found = set()
    for qos in chain:
        for kind, limited in (("group", qos.group), ("user", qos.users.get(row.user))):
            if limited is not None and limited.gpus.most is not None:
                found.add(f"{kind} gpus")
            if limited is not None and limited.jobs.most is not None:
                found.add(f"{kind} jobs")
    return found


def _counted(row: JobRow) -> bool:
    """Whether Slurm counts it: usage ends with RUNNING."""
    return row.state in {"RUNNING", "CONFIGURING", "SUSPENDED"}


def _less(bound: Bound, others: Gpus) -> int | None:
    return None if bound.most is None else max(bound.most - others, 0)
