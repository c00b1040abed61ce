"""What a policy is: one pure function, and an entry that says what it is called, needs and promises.

A policy is `decide(snapshot, options, context) -> Proposal`. It reads no clock, no file and no environment; the same
snapshot, options and context give the same proposal, byte for byte. It lives in a package under `policy/` whose
`entries.py` lists it (see `policy/catalogue.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from random import Random
from typing import Any, Protocol

from policy.model import BadInput, Gpus, NodeName, Proposal, Seconds, Snapshot
from policy.throughput import Throughput


@dataclass(frozen=True, slots=True)
class Context:
    """What a decision depends on besides the snapshot and the options."""

    speeds: Throughput  #: the throughput model over the snapshot's cluster
    seed: int = 0
    time_limit_s: Seconds | None = None  #: for mathematical programs; None: the solver module's default
    solver: str | None = None  #: "highs" or "cbc"; None: the solver module's default

    def random(self) -> Random:
        """A fresh generator from the seed: the only source of chance."""
        return Random(self.seed)


Policy = Callable[[Snapshot, Mapping[str, Any], Context], Proposal]


class Bidding(Protocol):
    """What an arbiter does for a policy that takes bids from apps' own agents: offer, check, hand on, tell.

    What a table says is between the agents and the policy: whoever stands between them keeps it as it is.
    """

    NUMBERS: tuple[str, ...]  #: those of a reason that tell an agent how it went

    def offered(self, snapshot: Snapshot) -> Mapping[NodeName, Gpus]:
        """What may be bid for now; empty: nothing."""

    def checked(self, rows: Sequence[Mapping[str, Any]], free: Mapping[NodeName, Gpus]) -> list[dict[str, Any]]:
        """An agent's table, row by row. `free`: what was offered. Raises BadInput with the first that cannot be."""

    def told(
        self, state: Mapping[str, Any], sent: Mapping[str, Any], agents: Collection[str], now_s: Seconds
    ) -> dict[str, Any]:
        """The policy's state with the tables `sent` by app in time. `agents`: the apps that have one."""

    def public(self, snapshot: Snapshot, app: str) -> Snapshot:
        """As the agent of `app` may see it: of other apps' jobs no losses, and nobody else's tables."""

    def outcome(self, numbers: Mapping[str, Any]) -> str:
        """Whose table counted, by a reason's numbers: goes on behind what came in. "": the one that was sent."""

    def table(self, snapshot: Snapshot, options: Mapping[str, Any], context: Context, app: str) -> Any:
        """What the built-in agent would bid for `app`: `to_plain` of each."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a policy. `kind` is bool, int, float or str; `low`/`high` are inclusive bounds."""

    name: str
    kind: type
    default: Any
    text: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    unit: str = ""

    def check(self, value: Any) -> Any:
        """`value` as this option's, text (from `--set`) included. Raises BadInput."""
        if isinstance(value, str) and self.kind is not str:
            value = self._from_text(value)
        if self.default is None and value is None:
            return None
        # A boolean is an int to Python, and to nobody else.
        if isinstance(value, bool) != (self.kind is bool):
            raise self._bad(value, f"must be {self._what()}")
        if self.kind is float and isinstance(value, int):
            value = float(value)
        if not isinstance(value, self.kind):
            raise self._bad(value, f"must be {self._what()}")
        if self.choices and value not in self.choices:
            raise self._bad(value, "is none of its values")
        if isinstance(value, int | float):
            self._within(value)
        return value

    def _within(self, value: float) -> None:
        if self.low is not None and not value >= self.low:
            raise self._bad(value, f"must be at least {self.low:g}")
        if self.high is not None and not value <= self.high:
            raise self._bad(value, f"must be at most {self.high:g}")
        if not isfinite(value):
            raise self._bad(value, "must be finite")

    def _from_text(self, text: str) -> Any:
        lower = text.strip().lower()
        if self.default is None and lower in ("none", "null", ""):
            return None
        if self.kind is bool and lower in ("true", "false", "yes", "no", "on", "off", "1", "0"):
            return lower in ("true", "yes", "on", "1")
        try:
            return self.kind(lower) if self.kind in (int, float) else text
        except ValueError:
            raise self._bad(text, f"must be {self._what()}") from None

    def _what(self) -> str:
        if self.choices:
            return "one of " + ", ".join(self.choices)
        kinds: dict[type, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
        return kinds[self.kind] + (f" ({self.unit})" if self.unit else "")

    def _bad(self, value: object, message: str) -> BadInput:
        return BadInput(
            f"{message} (it is {value!r})", field=f"policy.options.{self.name}", value=value, remedy=self._what()
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """A policy in the catalogue."""

    name: str
    summary: str  #: one line
    call: str  #: "package.module:function", a `Policy`; imported when it is used
    paper: str
    section: str
    needs: tuple[str, ...] = ()  #: what a snapshot must hold for it: "throughput", "work.total", "loss", ...
    guarantees: tuple[str, ...] = ()  #: what holds for every decision, or under which condition
    options: tuple[Option, ...] = ()
    quantum: bool = False  #: works in quanta: `--rounds N` says in which part of them a job ran
    idle: tuple[str, ...] = ()  #: why it may leave GPUs idle that somebody could use (`policy/idle.py`); (): never
    one_type: bool = False  #: a gang never has GPUs of two types, also where it could join them
    weighs: bool | None = None  #: whether it reads tenants' weights, with some option at least; None: it does not say
    bids: str | None = None  #: "package.module", a `Bidding`; None: it takes no bids from apps' own agents
    notes: tuple[str, ...] = field(default=())  #: where it differs from the paper, and why

    def resolve(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Every option with its value: `given` over the defaults. Raises BadInput listing the valid keys."""
        known = {o.name: o for o in self.options}
        for key in given:
            if key not in known:
                raise BadInput(
                    f"{self.name} has no option {key!r}",
                    field=f"policy.options.{key}",
                    value=given[key],
                    remedy=f"its options: {', '.join(known)}" if known else "it has no options",
                )
        return {n: o.check(given[n]) if n in given else o.default for n, o in known.items()}
