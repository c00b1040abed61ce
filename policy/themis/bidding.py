"""The arbiter's half of an auction (§4.2.2, Fig. 7): what it offers to apps' own agents, and what their tables become.

A `policy.contract.Bidding`. Light: the arbiter's own process loads it, and none of the auction with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from policy import away
from policy.bounds import LEAST_RHO, MOST_BIDS, MOST_RHO
from policy.contract import Context
from policy.model import BadInput, Gpus, NodeName, Seconds, Snapshot
from policy.text.textform import brief
from policy.themis.offer import offer

#: Of a reason's numbers.
NUMBERS = ("rho_before", "rho", "bid", "bid_by", "won", "kept_fraction", "kept", "leftover", "leased", "offered")
#: What of a policy's state is of bids: the tables of this round, and those that may stand in for an app.
SENT, REMEMBERED = "bids", "tables"


def offered(snapshot: Snapshot) -> dict[NodeName, Gpus]:
    return {n: g for n, g in offer(away.prepared(snapshot)).free.items() if g > 0}


def told(state: Mapping[str, Any], sent: Mapping[str, Any], agents: Collection[str], now_s: Seconds) -> dict[str, Any]:
    """Remembered tables of agents that are gone are left out. How the state is read: `external.py`."""
    tables = {app: t for app, t in state.get(REMEMBERED, {}).items() if app in agents}
    bids = {app: {"time_s": now_s, "rows": rows} for app, rows in sent.items()}
    more = {key: value for key, value in ((REMEMBERED, tables), (SENT, bids)) if value}
    return {key: value for key, value in state.items() if key != REMEMBERED} | more


def outcome(numbers: Mapping[str, Any]) -> str:
    if numbers.get("bid_by") == "last-table":
        return ", its last one stood in"
    if numbers.get("bid_by") == "built-in":
        return ", the built-in agent bid for it"
    return "" if numbers.get("bid") else "; other apps were worse off and bid this time"


def checked(rows: Sequence[Mapping[str, Any]], free: Mapping[NodeName, Gpus]) -> list[dict[str, Any]]:
    """Each row is `nodes`, offered GPUs beside those under lease, and `rho`, what they would make of the app."""
    if len(rows) > MOST_BIDS:
        raise BadInput(f"has {len(rows)} rows", field="bids", value=len(rows), remedy=f"at most {MOST_BIDS}")
    return [_row(i, row, free) for i, row in enumerate(rows)]


def _row(i: int, row: Mapping[str, Any], free: Mapping[NodeName, Gpus]) -> dict[str, Any]:
    nodes, rho = row.get("nodes"), row.get("rho")
    if isinstance(rho, bool) or not isinstance(rho, int | float) or not LEAST_RHO <= rho <= MOST_RHO:
        words = f"must be a number above 0 (from {LEAST_RHO:g} to {MOST_RHO:g})"
        raise BadInput(words, field=f"bids[{i}].rho", value=rho, remedy="finish-time fairness")
    if not isinstance(nodes, Mapping):
        raise BadInput("must map nodes to GPUs", field=f"bids[{i}].nodes", value=nodes, remedy="as in the offer")
    for node, gpus in nodes.items():
        most = free.get(node, 0)
        if isinstance(gpus, bool) or not isinstance(gpus, int) or not 0 < gpus <= most:
            raise BadInput(
                f"asks for {brief(gpus)} GPUs of {str(node)[:80]}, which offers {most}",
                field=f"bids[{i}].nodes",
                value=gpus,
                remedy="only what is on offer",
            )
    stated = row.get("gpus")
    if stated is not None and stated != sum(nodes.values()):
        raise BadInput(
            f"says {brief(stated)} GPUs, its nodes are {sum(nodes.values())}",
            field=f"bids[{i}].gpus",
            value=stated,
            remedy="leave gpus out, or make them agree",
        )
    return {"nodes": dict(nodes), "rho": float(rho)}


def public(snapshot: Snapshot, app: str) -> Snapshot:
    """Names, sizes, places and speeds are everybody's, so the app's own bids come out as they would in the arbiter."""
    hidden = tuple(
        job if job.app == app else replace(job, loss=(), loss_forecast=None, model=None) for job in snapshot.jobs
    )
    state = {key: value for key, value in snapshot.state.items() if key not in (SENT, REMEMBERED)}
    return replace(snapshot, jobs=hidden, state=state)


def table(snapshot: Snapshot, options: Mapping[str, Any], context: Context, app: str) -> Any:
    from policy.themis.round import bids

    return bids(snapshot, options, context, app)
