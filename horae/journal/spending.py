"""GPU time by tenant and day of the calendar (UTC): what budgets are counted from. A part of the fold, so it survives
restarts and compaction, and a live account equals one rebuilt from the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from policy.model import Gpus, GpuSeconds, GpuType, Seconds

DAY_S = 86400.0
#: Days that are kept of a tenant: a year, and what is left of the one before.
KEPT_DAYS = 400

#: tenant -> day since 1970, as text -> GPU-s
Spent = dict[str, dict[str, GpuSeconds]]


def by_day(from_s: Seconds, to_s: Seconds) -> Iterator[tuple[int, Seconds]]:
    """(day, seconds of it) of a stretch of wall time; of one that is longer than what is kept, its end."""
    from_s = max(from_s, to_s - KEPT_DAYS * DAY_S)
    while from_s < to_s:
        day = int(from_s // DAY_S)
        until_s = min((day + 1) * DAY_S, to_s)
        yield day, until_s - from_s
        from_s = until_s


def charge(
    spent: Spent, tenant: str, holding: Mapping[GpuType, Gpus], from_wall_s: Seconds, to_wall_s: Seconds
) -> None:
    """Put what was held in that time on the tenant's account."""
    gpus = sum(holding.values())
    if not gpus:
        return
    days = spent.setdefault(tenant, {})
    known = len(days)
    for day, seconds in by_day(from_wall_s, to_wall_s):
        days[str(day)] = days.get(str(day), 0.0) + gpus * seconds
    if len(days) == known:
        return  # no day came, so none goes
    newest = max(map(int, days), default=0)
    for day_ in [d for d in days if int(d) <= newest - KEPT_DAYS]:
        del days[day_]


def since(spent: Mapping[str, Mapping[str, GpuSeconds]], tenant: str, first_day: int) -> GpuSeconds:
    """What the tenant used from that day on."""
    return sum(gpu_s for day, gpu_s in spent.get(tenant, {}).items() if int(day) >= first_day)
