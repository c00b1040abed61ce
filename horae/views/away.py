"""What nodes that are to be away mean to a job, in words and in times that people know. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from horae.arbiter.standing import movable
from horae.journal.ledger import JobRecord
from horae.port import date_and_time
from horae.views.cause import Cause
from policy.model import Away, Code, NodeName, Seconds

#: Names of nodes that a sentence holds.
_NAMED = 3


def causes(
    record: JobRecord, away: Mapping[NodeName, tuple[Away, ...]], now_s: Seconds, ahead_s: Seconds
) -> list[Cause]:
    """Of the nodes that it holds; where it waits for their sake, of all. `ahead_s`: the wall's clock before ours."""
    if not record.live:
        return []
    held = {node: away[node] for node in record.allocation if node in away}
    waits = record.reason is not None and record.reason["code"] == Code.WAITS_AWAY and not record.allocation
    by_time: dict[Away, list[NodeName]] = {}
    for node, times in sorted((away if waits else held).items()):
        for time in times:
            by_time.setdefault(time, []).append(node)
    return [_cause(record, time, nodes, now_s, ahead_s) for time, nodes in by_time.items()]


def _cause(record: JobRecord, time: Away, nodes: list[NodeName], now_s: Seconds, ahead_s: Seconds) -> Cause:
    which = ", ".join(nodes[:_NAMED]) + (f" and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else "")
    why = f"{time.name}: {time.reason}" if time.reason else time.name
    text = f"{which} {'is' if len(nodes) == 1 else 'are'} away from {date_and_time(time.from_s + ahead_s)} "
    text += f"to {date_and_time(time.to_s + ahead_s)} ({why})"
    numbers = {"away": time.name, "from_s": time.from_s + ahead_s, "to_s": time.to_s + ahead_s}
    if not record.allocation:
        late = movable(record) or time.leave_s <= now_s
        return Cause(
            "away", text, numbers, "its end" + ("" if late else ", or a time limit that is over before it begins")
        )
    if movable(record):
        leaves = date_and_time(time.leave_s + ahead_s)
        return Cause("away", f"{text}; it checkpoints and leaves from {leaves} on", numbers)
    left_s = record.time_left_at(now_s)
    if left_s is not None and now_s + left_s <= time.from_s:
        return Cause("away", f"{text}; its time limit ends before", numbers)
    return Cause("away", f"{text}; it cannot be stopped and resumed, and may still run then", numbers)
