"""Every verb of the API, once: what is asked, how, by whom, and what comes back.

The client calls these methods, the server makes its routes of them, the documentation its pages. A verb's parameters
that stand in its path go there; the others are the query of a `GET` and the body of a `POST`. What they must be say
the names of `words.py`, which only the server loads: the command line pays for none of it.
"""

# What a verb does is its client's and its server's affair: here it has no body.
# mypy: disable-error-code="empty-body"

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from horae.api import words
    from horae.arbiter.requests import answers


class May(Enum):
    """Who may ask. Whose jobs they may act on is the arbiter's to say (`horae/arbiter/requests/authority.py`)."""

    EVERYBODY = auto()
    OPERATORS = auto()


class Returns(Enum):
    """How an answer is written: the media type."""

    JSON = "application/json"
    YAML = "application/yaml"  #: an instance file
    TEXT = "text/plain"
    BYTES = "application/octet-stream"  #: of a log; where they end stands in the headers


@dataclass(frozen=True)
class ApiVerb:
    method: str
    path: str
    summary: str
    may: May
    returns: Returns
    under: str  #: the key of the JSON answer under which the value stands; "": it is the answer
    function: Callable[..., Any]

    @property
    def name(self) -> str:
        return self.function.__name__

    @cached_property
    def parameters(self) -> tuple[inspect.Parameter, ...]:
        """All but the object that it is asked of."""
        return tuple(inspect.signature(self.function).parameters.values())[1:]

    def in_path(self, name: str) -> bool:
        return f"{{{name}}}" in self.path

    def said(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """What a call says, with every default, by parameter."""
        found = inspect.signature(self.function).bind(None, *arguments, **named)
        found.apply_defaults()
        return {each.name: found.arguments[each.name] for each in self.parameters}


class Asks(Protocol):
    """Whoever brings a verb to an arbiter."""

    def ask(self, verb: ApiVerb, said: Mapping[str, Any]) -> Any: ...


F = TypeVar("F", bound=Callable[..., Any])


def _verb(
    method: str,
    path: str,
    summary: str,
    *,
    may: May = May.EVERYBODY,
    returns: Returns = Returns.JSON,
    under: str = "",
) -> Callable[[F], F]:
    def declare(function: F) -> F:
        verb = ApiVerb(method, path, summary, may, returns, under, function)

        @wraps(function)
        def call(self: Asks, *arguments: Any, **named: Any) -> Any:
            return self.ask(verb, verb.said(arguments, named))

        call.verb = verb  # type: ignore[attr-defined]
        return cast(F, call)

    return declare


class Verbs:
    """The API as methods. Their first paragraphs are the summaries; what more there is to say is in the docstring."""

    @_verb("GET", "/v1/about", "The arbiter: version, cluster, pools, who you are.")
    def about(self) -> answers.About: ...

    @_verb("GET", "/v1/status", "Everything now: jobs, nodes, tenants, pools, alerts.")
    def status(
        self, *, ended: bool = False, losses: bool = False, starts: bool = False, brief: bool = False
    ) -> answers.StatusAnswer:
        """`ended`: also jobs that ended and are remembered. `losses`: with the newest points of each loss curve.
        `starts`: with `start_s`, when a waiting job might start by the ends of those that run; null: nobody knows.
        `brief`: of each job only what a line of a table shows."""

    @_verb("GET", "/v1/jobs/{job}", "One job.")
    def job(self, job: str) -> answers.JobAnswer: ...

    @_verb("GET", "/v1/jobs/{job}/explain", "Why a job holds what it holds, and what would change it.")
    def explain(self, job: str) -> answers.ExplanationAnswer:
        """For its owner and operators also what the end of its output says, once it failed."""

    @_verb("GET", "/v1/jobs/{job}/report", "What became of the job's GPU time. Its owner and operators only.")
    def report(self, job: str) -> answers.Report: ...

    @_verb("GET", "/v1/jobs/{job}/log", "The job's output from an offset.", returns=Returns.BYTES)
    def log_part(self, job: str, *, offset: words.Offset = 0) -> words.LogChunk:
        """Raw bytes. `X-Next-Offset` is where to go on, `X-End` is `true` when that is the present end."""

    @_verb("GET", "/v1/history", "What happened, oldest first.", under="events")
    def history(
        self,
        *,
        job: str | None = None,
        after: words.Newer = None,
        since_s: words.Since = None,
        limit: words.Limit = 1000,
    ) -> list[answers.EventAnswer]:
        """At most `limit` events, the newest ones that match."""

    @_verb("GET", "/v1/snapshot", "What the policy sees now: an instance file.",
           may=May.OPERATORS, returns=Returns.YAML)  # fmt: skip
    def snapshot(self, pool: str | None = None) -> str: ...

    @_verb("GET", "/v1/config", "The configuration in force, with every default. Operators only.", may=May.OPERATORS)
    def config(self) -> dict[str, Any]: ...

    # --- requests -----------------------------------------------------------------------------------------

    @_verb("POST", "/v1/jobs", "Hand in jobs: all of them are taken, or none.")
    def hand_in(self, jobs: Sequence[Mapping[str, Any]]) -> answers.HandedIn:
        """One job, or `{"jobs": [...]}`. They run as you; `tenant` must be one that you may submit for."""

    @_verb("POST", "/v1/dry-run", "What would become of jobs if they came now.")
    def dry_run(self, jobs: Sequence[Mapping[str, Any]]) -> answers.DryRunAnswer:
        """The body of a submission, of which nothing is kept. `jobs`: what each would hold, and why; `start_in_s`,
        where it waits: by the ends of running jobs. `others`: whose GPUs would differ. Guards are not asked."""

    @_verb("POST", "/v1/jobs/{job}/cancel", "End a job for good.")
    def cancel(self, job: str, why: words.Why = "") -> answers.SaidAnswer: ...

    @_verb("POST", "/v1/jobs/{job}/hold", "Let a job keep what it holds and get nothing.")
    def hold(self, job: str, why: words.Why = "") -> answers.SaidAnswer: ...

    @_verb("POST", "/v1/jobs/{job}/unhold", "Undo a hold.")
    def unhold(self, job: str) -> answers.SaidAnswer: ...

    @_verb("POST", "/v1/jobs/{job}/priority", "Move a job in line: among its tenant's jobs, or (operators) among all.")
    def prioritise(self, job: str, priority: words.Priority, *, across: bool = False) -> answers.SaidAnswer:
        """Owners may move their jobs behind others of the tenant; the tenant's leads and operators before them too."""

    @_verb("POST", "/v1/pools/{pool}/mode", "Set how far the arbiter goes. Operators only.", may=May.OPERATORS)
    def mode(self, pool: str, mode: words.Title) -> answers.SaidAnswer: ...

    @_verb("POST", "/v1/release-all", "Hand every job back to the cluster. Operators only.", may=May.OPERATORS)
    def release_all(self, why: words.Why = "") -> answers.SaidAnswer: ...

    # --- apps and their own agents: Themis' two-level interface (§4.2.2, Fig. 7) --------------------------
    # register -> wait for an offer -> bid -> see the win. An agent speaks for an app whose jobs are all its caller's;
    # `horae.apps.agent` plays the whole part.

    @_verb("GET", "/v1/apps", "Apps: their schedulers, phases, trials, weights and bids.", under="apps")
    def apps(self) -> list[answers.App]:
        """Losses and settings of other people's trials are left out."""

    @_verb("POST", "/v1/agents", "Register an app's own agent: from now on its bids are waited for.")
    def register_agent(self, app: words.AppName) -> answers.Registered:
        """Every job of the app must be yours. After three offers without a bid it is no longer waited for."""

    @_verb("POST", "/v1/agents/leave", "Bid no more: the built-in agent does.")
    def leave_agent(self, app: words.AppName) -> answers.Left: ...

    @_verb("GET", "/v1/agents/offer", "The open offer to an app.")
    def offer(self, app: words.AppName, *, after: words.Count = 0, wait_s: words.Wait = 0.0) -> answers.OfferTold:
        """Waits up to `wait_s` for one that is newer than number `after`; `offer` is null where there is none.
        `left_s` is the time left to bid."""

    @_verb("GET", "/v1/agents/instance", "What an app's agent may see of the policy's picture: an instance file.",
           returns=Returns.YAML)  # fmt: skip
    def agent_instance(self, app: words.AppName) -> str:
        """`horae decide FILE --bids APP` prints the table that the built-in agent would send."""

    @_verb("POST", "/v1/agents/bid", "Bid on the open offer.")
    def bid(self, app: words.AppName, offer: words.Offer, bids: Sequence[Mapping[str, Any]]) -> answers.Taken:
        """Until the deadline a later table takes the place of an earlier one. A table that is refused or late is on
        record, and the app is bid for by its last table or by the built-in agent."""

    @_verb("GET", "/v1/agents/win", "What an app got when an offer was settled.")
    def win(self, app: words.AppName, offer: words.Offer, *, wait_s: words.Wait = 0.0) -> answers.Win:
        """`jobs`: what each job is to have, by node; `numbers`: how the auction went; `text`: whose table counted."""

    @_verb("GET", "/metrics", "Numbers for Prometheus.", returns=Returns.TEXT)
    def metrics(self) -> str: ...


#: In the order of the document.
VERBS: tuple[ApiVerb, ...] = tuple(each.verb for each in vars(Verbs).values() if hasattr(each, "verb"))
