"""What apps' own agents ask: to be waited for, what is on offer, to bid, what they won. Runs on the core's thread.

An agent is a program of somebody who owns every job of the app. What it is told to do is in `docs/howto/sweeps.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from horae.arbiter.core import Core
from horae.arbiter.decide import offers
from horae.arbiter.requests import answers
from horae.arbiter.requests.authority import NotAllowed, Requester
from horae.arbiter.round import question
from horae.journal import JobRecord, PoolRecord, events
from horae.port import TryLater
from policy import catalogue
from policy.contract import Bidding
from policy.model import BadInput, Snapshot


class Agents:
    def __init__(self, core: Core) -> None:
        self._core = core

    def register(self, app: str, caller: Requester) -> answers.Registered:
        """Wait for this app's bids from now on. Again is no matter. Raises BadInput, NotAllowed."""
        key, pool, _ = self._mine(app, caller)
        self._bidding(app, pool)
        if (known := self._books(pool).agents.get(key)) is None or known.by != caller.user or known.missed:
            self._core.write([events.AgentNamed(pool, key, caller.user)], durable=True)
        return {"app": key, "pool": pool, "bid_s": self._core.config.rounds.bid_s}

    def leave(self, app: str, caller: Requester) -> answers.Left:
        """Wait for them no more: the built-in agent bids."""
        key, pool, _ = self._mine(app, caller)
        if key in self._books(pool).agents:
            self._core.write([events.AgentNamed(pool, key, None)], durable=True)
            self._core.wake()
        return {"app": key, "pool": pool}

    def offer(self, app: str, caller: Requester) -> answers.OfferTold:
        """The open offer to the app (None where there is none), and how the app's jobs stand."""
        key, pool, records = self._mine(app, caller)
        self._registered(key, pool)
        books, now_s = self._books(pool), self._core.now_s()
        found = books.offer
        nodes = {n.name: n for n in self._core.view.observation.nodes} if self._core.view is not None else {}
        return {
            "app": key,
            "pool": pool,
            "offer": None
            if found is None or key not in found.asked
            else {
                "number": found.number,
                "left_s": max(found.deadline_s - now_s, 0.0),
                "came": key in found.bids,
                "gpus": dict(found.gpus),
                "nodes": {n: {"gpu_type": nodes[n].gpu_type, "rack": nodes[n].rack} for n in found.gpus if n in nodes},
            },
            "jobs": [_job(r, self._core) for r in records],
        }

    def bid(self, app: str, number: int, rows: Sequence[Mapping[str, Any]], caller: Requester) -> answers.Taken:
        """Take the table for the open offer; a later one of the same app replaces it. Raises BadInput, NotAllowed.

        What is refused is on record too, once an offer.
        """
        key, pool, _ = self._mine(app, caller)
        self._registered(key, pool)
        books, bidding = self._books(pool), self._bidding(app, pool)
        try:
            checked = bidding.checked(rows, self._open(books, key, pool, number))
        except BadInput as error:
            current = books.offer
            if current is not None and key not in current.refused and key not in current.bids:
                self._core.write([events.BidRefused(pool, current.number, key, error.message[:300])])
            raise
        self._core.write([events.Bid(pool, number, key, checked)], durable=True)
        if books.offer is not None and not offers.missing(books.offer):
            self._core.wake()
        return {"app": key, "offer": number, "rows": len(checked)}

    def _open(self, books: PoolRecord, key: str, pool: str, number: int) -> Mapping[str, int]:
        """What offer `number` offers. Raises BadInput where it cannot be bid for (any more)."""
        current, now_s = books.offer, self._core.now_s()
        if current is None or current.number != number or key not in current.asked:
            newest = "none is open" if current is None else f"offer {current.number} is open"
            raise BadInput("is not the open offer", field="offer", value=number, remedy=f"{newest}; wait for the next")
        if now_s >= current.deadline_s or self._core.asking(pool):
            late_s = now_s - current.deadline_s
            when = f"{late_s:.1f} s after the deadline" if late_s >= 0 else "while it is being decided"
            raise BadInput(f"came {when}", field="offer", value=number, remedy="bid for the next offer")
        return current.gpus

    def win(self, app: str, number: int, caller: Requester) -> answers.Win:
        """What the app got when offer `number` was settled; `settled` false: not yet."""
        key, pool, _ = self._mine(app, caller, ended=True)
        books = self._books(pool)
        if (books.offer is not None and books.offer.number <= number) or number > books.offers:
            return {"app": key, "offer": number, "settled": False}
        last = books.settled
        if last.get("number") != number or key not in last.get("apps", {}):
            return {"app": key, "offer": number, "settled": True, "text": "nothing of it is remembered", "jobs": {}}
        return cast(answers.Win, {"app": key, "offer": number, "settled": True, **last["apps"][key]})

    def picture(self, app: str, caller: Requester) -> tuple[str, Snapshot]:
        """(the app's whole name, what its agent may see of the snapshot)."""
        key, pool_name, _ = self._mine(app, caller)
        self._registered(key, pool_name)
        pool = self._core.config.pool(pool_name)
        if pool is None or self._core.view is None:
            raise TryLater("the cluster was not looked at yet")
        asked = question(self._core.ledger, pool, self._core.view, self._core.apps)
        return key, self._bidding(app, pool_name).public(asked.snapshot, key)

    # --- whose it is --------------------------------------------------------------------------------------

    def _books(self, pool: str) -> PoolRecord:
        return self._core.ledger.pool(pool)

    def _mine(self, app: str, caller: Requester, *, ended: bool = False) -> tuple[str, str, list[JobRecord]]:
        """(whole name, pool, jobs in order) of an app all of whose jobs are the caller's. Raises BadInput, NotAllowed.

        An app is named `TENANT/APP`, or `APP` where that is no question.
        """
        found: dict[str, list[JobRecord]] = {}
        for record in self._core.ledger.jobs.values():
            if (record.live or ended) and app in (record.app_key, record.app):
                found.setdefault(record.app_key, []).append(record)
        if app in found:
            found = {app: found[app]}
        if len(found) != 1:
            several = f"several tenants have an app {app}" if found else f"there is no app {app} with jobs to run"
            names = f"say which: {', '.join(sorted(found))}" if found else "`horae apps` lists them"
            raise BadInput(several, field="app", value=app, remedy=names)
        key, records = found.popitem()
        for record in records:
            if record.owner != caller.user and not caller.is_operator(self._core.config):
                raise NotAllowed(
                    f"app {key} has jobs of {record.owner or 'nobody we know'}; only their owner bids for it"
                )
        return key, records[0].pool, sorted(records, key=lambda r: (r.submitted_s, r.id))

    def _bidding(self, app: str, pool: str) -> Bidding:
        """How the policy of the pool takes bids. Raises BadInput where it takes none."""
        configured = self._core.config.pool(pool)
        policy = "none" if configured is None else configured.policy
        found = catalogue.bidding(policy)
        if found is None:
            able = " or ".join(entry.name for entry in catalogue.entries().values() if entry.bids is not None)
            raise BadInput(
                f"the policy of pool {pool}, {policy}, takes no bids",
                field="app",
                value=app,
                remedy=f"agents bid where the policy is {able}",
            )
        return found

    def _registered(self, key: str, pool: str) -> None:
        if key not in self._books(pool).agents:
            raise BadInput(
                f"no agent is registered for {key} (any more)", field="app", value=key, remedy="register it first"
            )


def _job(record: JobRecord, core: Core) -> answers.JobOffered:
    fresh = core.fresh.get(record.id)
    losses = fresh.loss if fresh is not None else record.measured.get("loss", [])
    done = fresh.done if fresh is not None else record.measured.get("done", 0.0)
    gpus = record.spec.gpus
    return {
        "id": record.id,
        "name": record.spec.name,
        "state": record.state.value,
        "gpus": {"min": gpus.min, "max": gpus.max, "allowed": None if gpus.allowed is None else list(gpus.allowed)},
        "allocation": dict(record.allocation),
        "done": done,
        "total": record.spec.iterations,
        "loss": losses[-1][1] if losses else None,
    }
