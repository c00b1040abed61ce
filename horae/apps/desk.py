"""Offers to external agents, their bids, and their deadlines (Themis §4.2.2; plain functions an API can call).

`open` makes an offer and starts its clock; `bid` takes a table while it runs; `into` puts what came in time into the
state that the policy reads (`policy/themis/external.py`), which replaces a late table by the last one it has;
`wins` says what came of it. Tables come from outside: every row is checked, and nothing of a table is believed that
the offer does not contain. The desk's whole state is plain (`to_plain`, `from_plain`) and goes into the journal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from policy.model import Allocation, App, BadInput, Decision, Gpus, NodeName, Seconds, Snapshot
from policy.themis.offer import offer

#: Rows of one table; more are a mistake or an attack.
MOST_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Offer:
    """GPUs that anybody may bid for until `deadline_s`."""

    number: int
    made_s: Seconds
    deadline_s: Seconds
    gpus: Mapping[NodeName, Gpus]


@dataclass(slots=True)
class Desk:
    """The newest offer and the bids that came for it. One a pool."""

    offer: Offer | None = None
    bids: dict[str, dict[str, Any]] = field(default_factory=dict)

    def open(self, snapshot: Snapshot, patience_s: Seconds) -> Offer | None:
        """Offer what is free now; bids for older offers are void. None: nothing is on offer."""
        free = {n: g for n, g in offer(snapshot).free.items() if g > 0}
        if not free:
            return None
        number = self.offer.number + 1 if self.offer is not None else 1
        self.offer = Offer(number, snapshot.now_s, snapshot.now_s + patience_s, free)
        self.bids = {}
        return self.offer

    def bid(self, app: str, number: int, rows: Sequence[Mapping[str, Any]], now_s: Seconds) -> None:
        """Take an app's table for offer `number`. Raises BadInput: late, another offer, or rows that cannot be."""
        current = self.offer
        if current is None or number != current.number:
            newest = "none is open" if current is None else f"offer {current.number} is open"
            raise BadInput("is not the open offer", field="offer", value=number, remedy=newest)
        if now_s > current.deadline_s:
            raise BadInput(
                f"came {now_s - current.deadline_s:g} s after the deadline",
                field="offer",
                value=number,
                remedy="the app's last table stands in; bid for the next offer",
            )
        if len(rows) > MOST_ROWS:
            raise BadInput(f"{len(rows)} rows", field="rows", remedy=f"at most {MOST_ROWS}")
        checked = [_row(i, row, current.gpus) for i, row in enumerate(rows)]
        self.bids[app] = {"time_s": now_s, "rows": checked}

    def waiting_for(self, apps: Sequence[App], now_s: Seconds) -> list[str]:
        """External apps whose table is still to come; empty once all came or the time is over."""
        if self.offer is None or now_s > self.offer.deadline_s:
            return []
        return [a.name for a in apps if a.scheduler == "external" and a.name not in self.bids]

    def into(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The policy's state with the bids that came in time."""
        out = {k: v for k, v in state.items() if k != "bids"}
        return {**out, "bids": dict(self.bids)} if self.bids else out

    def to_plain(self) -> dict[str, Any]:
        o = self.offer
        return {
            "offer": None
            if o is None
            else {"number": o.number, "made_s": o.made_s, "deadline_s": o.deadline_s, "gpus": dict(o.gpus)},
            "bids": self.bids,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Desk:
        made = plain["offer"]
        return cls(None if made is None else Offer(**made), {a: dict(b) for a, b in plain["bids"].items()})


def wins(snapshot: Snapshot, decision: Decision, app: str) -> dict[str, Allocation]:
    """The app's GPUs after the round, by job."""
    return {j.name: dict(decision.allocation.get(j.name, {})) for j in snapshot.jobs if j.app == app}


def _row(i: int, row: Mapping[str, Any], offered: Mapping[NodeName, Gpus]) -> dict[str, Any]:
    nodes, rho = row.get("nodes"), row.get("rho")
    if isinstance(rho, bool) or not isinstance(rho, int | float) or not isfinite(rho) or rho <= 0:
        raise BadInput("must be a number above 0", field=f"rows[{i}].rho", value=rho, remedy="finish-time fairness")
    if not isinstance(nodes, Mapping):
        raise BadInput("must map nodes to GPUs", field=f"rows[{i}].nodes", value=nodes, remedy="as in the offer")
    for node, gpus in nodes.items():
        most = offered.get(node, 0)
        if isinstance(gpus, bool) or not isinstance(gpus, int) or not 0 < gpus <= most:
            raise BadInput(
                f"{gpus!r} GPUs of {node}, which offers {most}",
                field=f"rows[{i}].nodes",
                value=gpus,
                remedy="only what is on offer",
            )
    return {"nodes": dict(nodes), "rho": float(rho)}
