"""Where tenants stand with their GPU-hours: the period of the calendar, what is used of it, what is said at its
end.

Counted is what a tenant's jobs held, from the journal (`horae/journal/spending.py`), and what they hold since its last
word. Days, weeks (from Monday), months and years are UTC's. Pure: ledger -> standings, events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from horae.config import BudgetForm, Config, Period
from horae.journal import Draft, Ledger, events
from horae.journal.spending import DAY_S, by_day, since
from policy.model import Beyond, Seconds

#: The alert of a tenant whose budget is used up begins so.
ALERT = "budget:"


@dataclass(frozen=True, slots=True)
class BudgetStanding:
    """`until_s`: wall time at which the next period begins."""

    gpu_hours: float
    used: float  #: GPU-hours
    period: Period
    until_s: Seconds
    then: Beyond

    @property
    def over(self) -> bool:
        return self.used >= self.gpu_hours

    @property
    def text(self) -> str:
        until = datetime.fromtimestamp(self.until_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
        return f"{self.gpu_hours:g} GPU-hours a {self.period}, the next begins {until}"


def standings(ledger: Ledger, config: Config, now_s: Seconds, wall_s: Seconds) -> dict[str, BudgetStanding]:
    """By tenant, of those that have a budget."""
    stated = {t.name: t.budget for t in config.tenants if t.budget is not None}
    if not stated:
        return {}
    periods = {name: bounds_of(budget.period, wall_s) for name, budget in stated.items()}
    used = {name: since(ledger.spent, name, int(begin_s // DAY_S)) for name, (begin_s, _) in periods.items()}
    for record in ledger.astir():
        if record.tenant in used and record.holding:
            from_s = max(wall_s - max(now_s - record.charged_s, 0.0), periods[record.tenant][0])
            used[record.tenant] += sum(record.holding.values()) * sum(s for _, s in by_day(from_s, wall_s))
    return {name: _standing(budget, used[name] / 3600.0, periods[name][1]) for name, budget in stated.items()}


def _standing(budget: BudgetForm, used: float, until_s: Seconds) -> BudgetStanding:
    return BudgetStanding(budget.gpu_hours, used, budget.period, until_s, budget.then)


def bounds_of(period: Period, wall_s: Seconds) -> tuple[Seconds, Seconds]:
    """Wall times at which the period of this moment begins and ends."""
    day = datetime.fromtimestamp(wall_s, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period is Period.DAY:
        begin, end = day, day + timedelta(days=1)
    elif period is Period.WEEK:
        begin = day - timedelta(days=day.weekday())
        end = begin + timedelta(days=7)
    elif period is Period.MONTH:
        begin = day.replace(day=1)
        end = (begin + timedelta(days=31)).replace(day=1)
    else:
        begin = day.replace(month=1, day=1)
        end = begin.replace(year=begin.year + 1)
    return begin.timestamp(), end.timestamp()


def told(ledger: Ledger, found: Mapping[str, BudgetStanding]) -> list[Draft]:
    """What is to be said: a budget that is used up, and one that is not any more."""
    drafts = []
    for name, standing in found.items():
        if standing.over and (text := over_text(name, standing)) != _told(ledger, name):
            drafts.append(events.Alerted(f"{ALERT}{name}", text, "the next period, or a larger `budget` of the tenant"))
    now_over = {f"{ALERT}{name}" for name, standing in found.items() if standing.over}
    gone = [what for what in ledger.alerts if what.startswith(ALERT) and what not in now_over]
    return [*drafts, *map(events.Cleared, gone)]


def over_text(tenant: str, standing: BudgetStanding) -> str:
    """Says the same until something changes."""
    then = "what its jobs hold and get is what others leave idle"
    if standing.then is Beyond.WAIT:
        then = "its running jobs run on and do not grow, and none of them starts"
    return f"tenant {tenant} has used its {standing.text}; until then {then}"


def _told(ledger: Ledger, tenant: str) -> str:
    alert = ledger.alerts.get(f"{ALERT}{tenant}")
    return "" if alert is None else alert.text
