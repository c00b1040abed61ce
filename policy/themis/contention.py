"""N_avg of Eq. 1: how many apps an app has shared the cluster with, over its own life."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from policy.model import Job, Seconds, Snapshot


def by_app(jobs: Sequence[Job]) -> dict[str, list[Job]]:
    """Jobs by app, apps in the tie order (earliest submitted, then name), jobs inside likewise."""
    out: dict[str, list[Job]] = {}
    for job in sorted(jobs, key=lambda j: j.order):
        out.setdefault(job.app, []).append(job)
    return dict(sorted(out.items(), key=lambda item: item[1][0].place or (item[1][0].submitted_s, item[0])))


def average(history: Sequence[tuple[Seconds, int]], now_s: Seconds, start_s: Seconds, present: int) -> float:
    """Time-weighted mean number of active apps from `start_s` to `now_s`; at least 1.

    `history` holds (time, number from then on); before its first entry its first number holds. Without a history
    the number present now is all that is known. An app that starts now sees the number of this moment.
    """
    if not history:
        return float(max(present, 1))
    if start_s >= now_s:
        return float(max(next((n for t, n in reversed(history) if t <= now_s), history[0][1]), 1))
    area = 0.0
    for i, (since, number) in enumerate(history):
        begin = start_s if i == 0 else max(since, start_s)
        end = min(history[i + 1][0] if i + 1 < len(history) else now_s, now_s)
        area += max(end - begin, 0.0) * number
    return max(area / (now_s - start_s), 1.0)


def weights(snapshot: Snapshot, apps: Mapping[str, Sequence[Job]]) -> dict[str, float]:
    """By app: its tenant's weight over the tenant's active apps, scaled so that the mean over the apps is 1.

    Splitting one sweep into ten apps then buys nothing: N_avg of each is ten times as large.
    """
    of_tenant = {t.name: t.weight for t in snapshot.tenants}
    tenant = {name: jobs[0].tenant for name, jobs in apps.items()}
    raw = {
        name: of_tenant.get(owner, 1.0) / sum(1 for other in tenant.values() if other == owner)
        for name, owner in tenant.items()
    }
    mean = sum(raw.values()) / len(raw) if raw else 1.0
    return {name: value / mean for name, value in raw.items()}
