"""The client's half of Themis' two-level interface (§4.2.2, Fig. 7): an app's own agent, as a loop.

    from horae.api.client import Client, find_socket
    from horae.apps.agent import Agent

    def value(call):                       # an app scheduler of your own
        rows = call.table()                # what the built-in agent would bid
        return [{**row, "rho": row["rho"] * 0.9} for row in rows]

    for win in Agent(Client(find_socket()), "tune").run(value):
        print(win["offer"], win["text"], win["jobs"])

It needs no more than the API: a program in another language does the same with five calls (`docs/howto/sweeps.md`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from horae.api.client import Client, Unreachable
from horae.api.errors import ApiError, Code
from policy.model import Seconds

if TYPE_CHECKING:
    from horae.arbiter.requests import answers

#: How long one call waits for news.
WAIT_S = 2.0
#: After the arbiter could not be reached.
PAUSE_S = 1.0

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """One call for bids."""

    app: str  #: whole name, TENANT/APP
    number: int
    deadline_s: Seconds  #: on `time.monotonic`
    gpus: Mapping[str, int]  #: on offer, by node
    nodes: Mapping[str, Mapping[str, Any]]  #: their GPU types and racks
    jobs: Sequence[Mapping[str, Any]]  #: the app's: id, allocation, done, loss, ...
    _client: Client

    @property
    def left_s(self) -> Seconds:
        return self.deadline_s - time.monotonic()

    def table(self) -> list[dict[str, Any]]:
        """The table that the built-in agent would send: worked out here, from what the arbiter shows this agent.

        Empty where the app's jobs have ended since the call.
        """
        from policy.contract import Context
        from policy.decide import choose
        from policy.model import BadInput
        from policy.text.instance import parse
        from policy.themis.round import bids
        from policy.throughput import Throughput

        snapshot = parse(self._client.agent_instance(self.app), "the arbiter's picture")
        _, options = choose(snapshot)
        try:
            found = bids(snapshot, options, Context(Throughput(snapshot.cluster)), self.app)
        except BadInput:  # no active app of this name any more
            return []
        return [r for r in found if all(self.gpus.get(n, 0) >= g for n, g in r["nodes"].items())]


Value = Callable[[Call], Sequence[Row]]
#: Is shown the app's jobs (id, done, loss, ...) every few seconds; an app scheduler ends its losers here.
Watch = Callable[[Sequence[Mapping[str, Any]]], None]


class Agent:
    """Bids for one app. Its caller must own every job of the app."""

    def __init__(self, client: Client, app: str) -> None:
        self.client, self.app = client, app
        self.jobs: Sequence[Mapping[str, Any]] = ()  #: of the app, as they were at the newest look
        self._newest = 0

    def register(self) -> answers.Registered:
        """Raises ApiError where the app is not the caller's, has no jobs, or its pool's policy takes no bids."""
        return self.client.register_agent(self.app)

    def next(self, wait_s: Seconds = WAIT_S) -> Call | None:
        """The next call for bids; None: none came within `wait_s`."""
        found = self.client.offer(self.app, after=self._newest, wait_s=wait_s)
        offer, self.jobs = found["offer"], found["jobs"]
        if offer is None:
            return None
        self._newest = offer["number"]
        until = time.monotonic() + offer["left_s"]
        return Call(found["app"], offer["number"], until, offer["gpus"], offer["nodes"], found["jobs"], self.client)

    def bid(self, call: Call, rows: Sequence[Row]) -> None:
        """Raises ApiError for a table that is late or cannot be."""
        self.client.bid(self.app, call.number, rows)

    def win(self, call: Call, wait_s: Seconds = WAIT_S) -> answers.Win:
        """What came of the call: `jobs`, `numbers` and `text` once `settled` is true."""
        return self.client.win(self.app, call.number, wait_s=wait_s)

    def run(
        self, value: Value, watch: Watch | None = None, stop: threading.Event | None = None
    ) -> Iterator[answers.Win]:
        """Bid until the app has no more jobs or `stop` is set; yields what came of each call.

        An arbiter that restarts is waited for. A table that is refused is the arbiter's to replace: the win says so.
        Raises ApiError where the app is not the caller's.
        """
        stop, known = stop or threading.Event(), False
        while not stop.is_set():
            try:
                if not known:
                    self.register()
                    known = True
                call = self.next()
                if watch is not None:
                    watch(self.jobs)
                if call is not None:
                    yield self._play(call, value(call), stop)
            except Unreachable:
                stop.wait(PAUSE_S)
            except ApiError as error:
                if error.code is Code.TRY_LATER:
                    stop.wait(PAUSE_S)
                elif error.code is Code.BAD_INPUT and known:
                    known = False  # it missed too many offers and is not registered any more, or the app is over
                    if not self._lives():
                        return
                else:
                    raise

    def _play(self, call: Call, rows: Sequence[Row], stop: threading.Event) -> answers.Win:
        """Bid, and wait for what comes of it."""
        try:
            self.bid(call, rows)
        except ApiError as error:
            if error.code is not Code.BAD_INPUT:
                raise
        won = self.win(call)
        while not won["settled"] and not stop.is_set():
            won = self.win(call)
        return won

    def _lives(self) -> bool:
        return any(a["running"] + a["waiting"] for a in self.client.apps() if self.app in (a["name"], a["app"]))
