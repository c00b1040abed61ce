"""When nodes are to be away: what the operator's configuration and the cluster say, on the arbiter's clock. Pure.

Both are asked at each look. A node is emptied ahead: `guards.leave_ahead_s` before it goes away, or earlier, where a
job that is there needs longer to checkpoint and leave.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ClusterShell.NodeSet import NodeSet

from horae.arbiter.standing import movable
from horae.config import Config
from horae.journal import Ledger
from horae.port import Absence, Observation
from policy.model import Away, NodeName, Seconds


def absences(
    ledger: Ledger, config: Config, observation: Observation, now_s: Seconds, wall_s: Seconds
) -> dict[NodeName, tuple[Away, ...]]:
    """By node, of those that the cluster shows; times that are over are left out."""
    shown = {node.name for node in observation.nodes}
    found: dict[NodeName, list[Away]] = {}
    for absence in _stated(config, observation, now_s, wall_s):
        if absence.to_s <= now_s:
            continue
        for node in absence.nodes:
            if node in shown:
                from_s = absence.from_s
                ahead_s = _ahead_s(ledger, config, node)
                away = Away(absence.name, from_s, absence.to_s, from_s - ahead_s, absence.reason)
                found.setdefault(node, []).append(away)
    return {node: tuple(sorted(times, key=lambda t: (t.from_s, t.name))) for node, times in found.items()}


def _stated(config: Config, observation: Observation, now_s: Seconds, wall_s: Seconds) -> Iterator[Absence]:
    for form in config.away:
        begins_s, ends_s = (float(round(at.timestamp() - wall_s + now_s)) for at in form.times())
        yield Absence(form.name, tuple(NodeSet(form.nodes)), begins_s, ends_s, form.reason)
    for seen in observation.away:
        begins_s, ends_s = (float(round(at_s - observation.now_s + now_s)) for at_s in (seen.from_s, seen.to_s))
        yield Absence(seen.name, seen.nodes, begins_s, ends_s, seen.reason)


def _ahead_s(ledger: Ledger, config: Config, node: NodeName) -> Seconds:
    graces = [r.spec.grace_s for r in ledger.astir() if node in r.allocation and movable(r)]
    return max([config.guards.leave_ahead_s, *(grace_s + 2 * config.rounds.tick_s for grace_s in graces)])


def closing(away: Mapping[NodeName, tuple[Away, ...]], now_s: Seconds) -> frozenset[NodeName]:
    """Nodes that are being emptied, or are away."""
    return frozenset(node for node, times in away.items() if any(t.leave_s <= now_s < t.to_s for t in times))


def turned(away: Mapping[NodeName, tuple[Away, ...]], since_s: Seconds, now_s: Seconds) -> bool:
    """Whether one of the times began or ended between two times."""
    return any(
        since_s < at_s <= now_s for times in away.values() for t in times for at_s in (t.leave_s, t.from_s, t.to_s)
    )
