"""The routes of apps and of their own agents: Themis' two-level interface (§4.2.2, Fig. 7).

register -> wait for an offer -> bid -> see the win. An agent speaks for an app whose jobs are all its caller's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import PlainTextResponse
from pydantic import Field

from horae.api.backend import Backend
from horae.api.callers import Bytes, Me
from horae.api.peers import Caller
from horae.api.privacy import access, hidden
from horae.arbiter.decide.offers import MOST_ROWS
from policy import bounds
from policy.model import BadInput
from policy.text.forms import MOST_POINTS
from policy.text.textform import Form, fit, load

#: A call waits at most this long: shorter than a client's patience, and a stopping server need not wait for it.
LONGEST_WAIT_S = 20.0
#: How often a waiting call looks.
LOOK_S = 0.2

Name = Annotated[str, Field(min_length=1, max_length=300)]
App = Annotated[
    str, Query(alias="app", min_length=1, max_length=300, description="TENANT/APP, or APP where that is no question")
]
Wait = Annotated[float, Query(ge=0, le=LONGEST_WAIT_S, description="wait so long for news")]


class AgentForm(Form):
    """Whom an agent speaks for."""

    app: Name


class RowForm(Form):
    """What the app's finish-time fairness would be with these GPUs beside those under its lease."""

    nodes: dict[Name, Annotated[int, Field(gt=0, le=bounds.MOST_GPUS)]] = Field(
        max_length=MOST_POINTS, description="offered GPUs by node; none: of winning nothing"
    )
    rho: Annotated[float, Field(ge=bounds.LEAST_RHO, le=bounds.MOST_RHO)]
    gpus: int | None = Field(None, description="their sum, as `horae decide --bids` prints it")


class BidForm(AgentForm):
    """A table of valuations, one row an allocation that would be welcome. No rows: nothing is wanted."""

    offer: Annotated[int, Field(ge=1, le=1 << 62)]
    bids: list[RowForm] = Field(max_length=MOST_ROWS)


class LooseBid(AgentForm):
    """The same before the rows are looked at: the arbiter puts on record what was wrong with them."""

    offer: Annotated[int, Field(ge=1, le=1 << 62)]
    bids: list[dict[str, Any]] = Field(max_length=10 * MOST_ROWS)


def add_routes(app: FastAPI, backend: Backend, site: access.AccessRules) -> None:
    def known(name: str, caller: Caller) -> str:
        """The app that the caller means; one with jobs that are hidden is answered like one that never was."""
        if caller.operator or not hidden.jobs(site.hides()):
            return name
        mine = [row["name"] for row in access.apps(backend.apps(), caller, site)]
        meant = [found for found in mine if name in (found, found.partition("/")[2])]
        if len(meant) == 1:
            return str(meant[0])
        wrong = f"several tenants have an app {name}" if meant else f"there is no app {name} with jobs to run"
        remedy = f"say which: {', '.join(sorted(meant))}" if meant else "`horae apps` lists them"
        raise BadInput(wrong, field="app", value=name, remedy=remedy)

    @app.get("/v1/apps", summary="Apps: their schedulers, phases, trials, weights and bids.")
    def apps(caller: Me) -> dict[str, Any]:
        """Losses and settings of other people's trials are left out."""
        return {"apps": access.apps(backend.apps(), caller, site)}

    @app.post("/v1/agents", summary="Register an app's own agent: from now on its bids are waited for.",
              openapi_extra=_body(AgentForm))  # fmt: skip
    def register(caller: Me, sent: Bytes) -> dict[str, Any]:
        """Every job of the app must be yours. After three offers without a bid it is no longer waited for."""
        name = known(fit(AgentForm, load(sent or b"{}", "body.json")).app, caller)
        return backend.register_agent(name, by=caller.name)

    @app.post("/v1/agents/leave", summary="Bid no more: the built-in agent does.", openapi_extra=_body(AgentForm))
    def leave(caller: Me, sent: Bytes) -> dict[str, Any]:
        name = known(fit(AgentForm, load(sent or b"{}", "body.json")).app, caller)
        return backend.leave_agent(name, by=caller.name)

    @app.get("/v1/agents/offer", summary="The open offer to an app.")
    async def offer(
        caller: Me,
        name: App,
        after: Annotated[int, Query(ge=0, le=1 << 62, description="only an offer newer than this number")] = 0,
        wait_s: Wait = 0.0,
    ) -> dict[str, Any]:
        """Waits up to `wait_s` for one; `offer` is null where there is none. `left_s` is the time left to bid."""

        def news(found: dict[str, Any]) -> bool:
            return found["offer"] is not None and found["offer"]["number"] > after

        found = await _waited(lambda: backend.offer(known(name, caller), by=caller.name), news, wait_s)
        return found if news(found) else {**found, "offer": None}

    @app.get("/v1/agents/instance", summary="What an app's agent may see of the policy's picture: an instance file.",
             response_class=PlainTextResponse)  # fmt: skip
    def instance(caller: Me, name: App) -> PlainTextResponse:
        """`horae decide FILE --bids APP` prints the table that the built-in agent would send."""
        return PlainTextResponse(
            backend.agent_instance(known(name, caller), by=caller.name), media_type="application/yaml"
        )

    @app.post("/v1/agents/bid", summary="Bid on the open offer.", openapi_extra=_body(BidForm))
    def bid(caller: Me, sent: Bytes) -> dict[str, Any]:
        """Until the deadline a later table takes the place of an earlier one. A table that is refused or late is on
        record, and the app is bid for by its last table or by the built-in agent."""
        form = fit(LooseBid, load(sent or b"{}", "body.json"))
        return backend.bid(known(form.app, caller), form.offer, form.bids, by=caller.name)

    @app.get("/v1/agents/win", summary="What an app got when an offer was settled.")
    async def win(
        caller: Me,
        name: App,
        number: Annotated[int, Query(alias="offer", ge=1, le=1 << 62)],
        wait_s: Wait = 0.0,
    ) -> dict[str, Any]:
        """`jobs`: what each job is to have, by node; `numbers`: how the auction went; `text`: whose table counted."""
        return await _waited(
            lambda: backend.win(known(name, caller), number, by=caller.name),
            lambda found: bool(found["settled"]),
            wait_s,
        )


def _body(form: type[Form]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": form.model_json_schema()}}}}


async def _waited(
    ask: Callable[[], dict[str, Any]], enough: Callable[[dict[str, Any]], bool], wait_s: float
) -> dict[str, Any]:
    """Ask until there is news or the time is over. Holds no thread while it waits."""
    until = time.monotonic() + wait_s
    while True:
        found = await run_in_threadpool(ask)
        if enough(found) or time.monotonic() >= until:
            return found
        await asyncio.sleep(LOOK_S)
