"""Bids from outside (Themis §4.2.2, Fig. 7; Appendix, proof of Theorem 3.3).

An external agent's table comes in the snapshot's state, put there by whoever received it:

    state["bids"][APP] = {"time_s": 3590.0, "rows": [{"nodes": {"a1": 2}, "rho": 1.2}, ...]}

`nodes` are offered GPUs beside what the app has under lease; an empty map states the rho of winning nothing. A table
older than the deadline is not used: the app's table of the last auction stands in, by GPU count and span, and without
one the built-in agent's valuation. Rows that cannot be (a node or a count that is not offered, a rho that is not a
positive number) are left out, and the decision says how many.

An agent may know more than was measured (that it will stop early), but not arbitrarily much: a row that says to be
more than `trust` times better than the app's measured valuation counts as that, and so does a rho of winning nothing
that is as much worse. What came of it, the certificate measures without looking at any bid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any

from policy.model import Gpus, NodeName, Seconds
from policy.themis.auction.rows import Bid, Demand, PerGpu, Row
from policy.themis.offer import NodeClass, Offer

Table = list[dict[str, Any]]


def fresh(state: Mapping[str, Any], app: str, now_s: Seconds, deadline_s: Seconds) -> Table | None:
    """The rows that the app's own agent sent for this round; None: none, too old, or not a table."""
    sent = state.get("bids", {})
    bid = sent.get(app) if isinstance(sent, Mapping) else None
    if not isinstance(bid, Mapping) or not isinstance(bid.get("rows"), list | tuple):
        return None
    time_s = bid.get("time_s")
    if not isinstance(time_s, int | float) or not now_s - deadline_s <= time_s <= now_s + deadline_s:
        return None
    return [dict(r) for r in bid["rows"] if isinstance(r, Mapping)]


def nodes_of(table: Table) -> set[NodeName]:
    """Nodes that the table names."""
    return {n for row in table if isinstance(row.get("nodes"), Mapping) for n in row["nodes"]}


def _within(gpus: object, free: Gpus) -> bool:
    return isinstance(gpus, int) and not isinstance(gpus, bool) and 0 < gpus <= free


def bid(
    app: str,
    table: Table,
    classes: Sequence[NodeClass],
    offered: Offer,
    null_rho: float,
    starving: bool,
    most: Gpus | None,
    need: PerGpu,
    measured: Callable[[Mapping[NodeName, Gpus]], float],
    trust: float,
) -> tuple[Bid, int, int]:
    """The table as a bid, how many of its rows cannot be, and how many say too much.

    The nodes it names are classes of their own. `measured`: the rho that the built-in agent gives such a win.
    """
    at = {c.nodes[0]: c.index for c in classes if len(c.nodes) == 1}
    rows, bad, bounded, stated_null = [], 0, 0, null_rho
    for entry in table:
        nodes, rho = entry.get("nodes"), entry.get("rho")
        if not isinstance(nodes, Mapping) or isinstance(rho, bool) or not isinstance(rho, int | float):
            bad += 1
            continue
        counts = list(nodes.values())
        possible = isfinite(rho) and rho > 0
        possible = possible and all(n in at and _within(g, offered.free[n]) for n, g in nodes.items())
        if not possible or (most is not None and sum(counts) > most):
            bad += 1
        elif not nodes:
            bounded += not starving and rho > null_rho * trust
            stated_null = null_rho if starving else min(float(rho), null_rho * trust)
        elif not isfinite(least := measured(nodes) / trust):
            bad += 1  # nothing of the app runs on these GPUs
        else:
            bounded += rho < least
            in_order = sorted(nodes, key=at.__getitem__)
            demands = tuple(Demand((at[name],), nodes[name], 1) for name in in_order)
            rows.append(Row(max(float(rho), least), sum(counts), demands))
    better = tuple(sorted(r for r in rows if r.rho < stated_null))
    return Bid(app, stated_null, starving, better, need, exact=True), bad, bounded


def remembered(bid_rows: Sequence[Row], classes: Sequence[NodeClass]) -> Table:
    """A table by GPU count and span: what stands in for the app when its agent is late."""
    best: dict[tuple[Gpus, str], float] = {}
    for row in bid_rows:
        key = (row.gpus, span_of(row, classes))
        best[key] = min(row.rho, best.get(key, row.rho))
    return [{"gpus": g, "span": s, "rho": rho} for (g, s), rho in sorted(best.items())]


def replaced(bid_rows: Sequence[Row], table: Any, classes: Sequence[NodeClass], trust: float) -> list[Row]:
    """The rows with the remembered rho, as far as it is trusted; rows that the table does not know are left out."""
    if not isinstance(table, list | tuple):
        return list(bid_rows)
    known = {(r["gpus"], r["span"]): float(r["rho"]) for r in table if isinstance(r, Mapping) and r.keys() >= _KEYS}
    out = []
    for row in bid_rows:
        rho = known.get((row.gpus, span_of(row, classes)))
        if rho is not None and isfinite(rho) and rho > 0:
            out.append(row._replace(rho=max(rho, row.rho / trust)))
    return sorted(out)


_KEYS = {"gpus", "span", "rho"}


def span_of(row: Row, classes: Sequence[NodeClass]) -> str:
    """How far a row may spread: `node`, `rack` or `cluster`."""
    if len(row.demands) == 1 and row.demands[0].times == 1:
        return "node"
    racks = {classes[i].rack for d in row.demands for i in d.domain}
    return "rack" if len(racks) == 1 else "cluster"


def example(row: Row, classes: Sequence[NodeClass]) -> dict[NodeName, Gpus]:
    """Named nodes on which the row could be met, were the app alone: for people, and for an external agent."""
    left = {n: c.free for c in classes for n in c.nodes}
    out: dict[NodeName, Gpus] = {}
    for demand in sorted(row.demands, key=lambda d: (-d.chunk, len(d.domain))):
        nodes = [n for i in demand.domain for n in classes[i].nodes]
        for _ in range(demand.times):
            able = [n for n in nodes if left[n] >= demand.chunk and not (demand.apart and n in out)]
            node = min(able, key=lambda n: (n not in out, -left[n] if demand.chunk == 1 else left[n]))
            left[node] -= demand.chunk
            out[node] = out.get(node, 0) + demand.chunk
    return out
