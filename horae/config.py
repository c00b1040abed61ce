"""The one configuration file of an arbiter: what it may say, and how it is read.

    state_dir: /var/lib/horae
    cluster: {adapter: local, options: {}}
    pools:
      - {name: main, nodes: "n[1-8]", policy: max-min, mode: enforce}
    tenants:
      - {name: vision, weight: 2.0, users: [ann, ben]}
    operators: [root]

Everything has a default but the cluster's adapter. `load` reads a file, `parse` a text; both raise `BadInput` with
file, line, field, value and remedy. `schema` is what `horae schema config` prints. Times are seconds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from ClusterShell.NodeSet import NodeSet, NodeSetException
from pydantic import Field, field_validator, model_validator

from horae.port import SiteTenant
from policy.model import Beyond, NodeName
from policy.own_file import is_file
from policy.text.textform import Form, fit, load_file, wrong
from policy.text.textform import load as load_text


class Mode(StrEnum):
    """How far the arbiter goes in a pool. Each does what the one before it does, and more."""

    OBSERVE = "observe"  #: reads only
    ADVISE = "advise"  #: decides, and reports what it would do
    ORDER = "order"  #: sets the order of waiting jobs
    ENFORCE = "enforce"  #: starts, stops, resizes

    @property
    def decides(self) -> bool:
        return self is not Mode.OBSERVE

    @property
    def acts(self) -> bool:
        """Changes anything in the cluster at all."""
        return self in (Mode.ORDER, Mode.ENFORCE)


#: More than any time (30 years), weight or count means, few enough to compute with, and lists that a round can walk.
MOST, MOST_LISTED, MOST_NODES, MOST_NAME = 1e9, 10_000, 100_000, 255
Positive = Annotated[float, Field(gt=0, le=MOST)]
NotNegative = Annotated[float, Field(ge=0, le=MOST)]
Name = Annotated[str, Field(min_length=1, max_length=MOST_NAME)]
Names = Annotated[list[Name], Field(max_length=MOST_LISTED)]
Speeds = Annotated[dict[Name, Positive], Field(max_length=MOST_LISTED)]


class ClusterForm(Form):
    adapter: Name  #: name of an entry point of the group horae.clusters
    options: dict[str, Any] = Field(default_factory=dict)  #: the adapter's own


class Pool(Form):
    """A set of nodes with one policy and one mode. Pools share no node."""

    name: Name = "main"
    nodes: str | None = None  #: hostlist, e.g. gpu[01-16]; left out: all nodes that no other pool names
    policy: Name = "max-min"  #: `horae policies` lists them; or the absolute path of a file with one
    options: dict[str, Any] = Field(default_factory=dict)
    mode: Annotated[Mode, Field(strict=False)] = Mode.OBSERVE  #: nothing is changed before somebody says so
    seed: Annotated[int, Field(ge=-(1 << 53), le=1 << 53)] = 0
    #: elastic jobs all of whose GPUs lie unused so long checkpoint, leave and wait; left out: never
    reclaim_unused_s: Positive | None = None

    @field_validator("policy")
    @classmethod
    def _from_anywhere(cls, name: str) -> str:
        if is_file(name) and not name.startswith("/"):
            raise wrong("is a file whose folder is not said", "write its absolute path: /etc/horae/mine.py")
        return name

    @field_validator("nodes")
    @classmethod
    def _folds(cls, text: str | None) -> str | None:
        if text is None:
            return None
        if (most := _named(text)) > MOST_NODES:
            raise wrong(f"names {most:.3g} nodes", f"at most {MOST_NODES}")
        try:
            empty = not len(NodeSet(text))
        except NodeSetException as error:
            raise wrong(f"is no hostlist: {error}", "write it as Slurm does, e.g. gpu[01-16]") from error
        if empty:
            raise wrong("names no node", "leave the key out to take all nodes that no other pool names")
        return text

    def names(self) -> frozenset[NodeName] | None:
        """The nodes it names; None: all that no other pool names."""
        return None if self.nodes is None else frozenset(NodeSet(self.nodes))


class Period(StrEnum):
    """Of the calendar, in UTC; weeks begin on Monday."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"


class BudgetForm(Form):
    """GPU time that a tenant may use in a period."""

    gpu_hours: Positive
    period: Annotated[Period, Field(strict=False)] = Period.MONTH
    then: Annotated[Beyond, Field(strict=False)] = Beyond.IDLE  #: idle: only what others leave idle; wait: nothing new


class TenantForm(Form):
    name: Name
    weight: Positive = 1.0
    cap: Annotated[int, Field(ge=0)] | None = None  #: GPUs that its jobs may hold at once, in each pool; left out: any
    budget: BudgetForm | None = None  #: left out: none
    users: Annotated[list[Name], Field(max_length=MOST_LISTED)] | None = (
        None  #: who may submit in its name; left out: everybody
    )
    leads: Names = Field(default_factory=list)  #: who may say which of its jobs go first, whoever owns them


class AwayForm(Form):
    """A time known ahead in which nodes are not there: maintenance, a reservation (`policy/away.py`)."""

    name: Name
    nodes: Annotated[str, Field(min_length=1)]  #: hostlist, e.g. gpu[01-16]
    begins: Annotated[str, Field(max_length=64)]  #: e.g. 2026-12-01T08:00+01:00; without a zone, of the arbiter's host
    ends: Annotated[str, Field(max_length=64)]
    reason: Annotated[str, Field(max_length=1000)] = ""

    @field_validator("nodes")
    @classmethod
    def _folds(cls, text: str) -> str:
        return Pool(nodes=text).nodes or text

    @field_validator("begins", "ends")
    @classmethod
    def _dated(cls, text: str) -> str:
        try:
            datetime.fromisoformat(text)
        except ValueError as error:
            raise wrong("is no time", "write a date and a time, e.g. 2026-12-01T08:00+01:00") from error
        return text

    @model_validator(mode="after")
    def _in_order(self) -> AwayForm:
        begins, ends = self.times()
        if begins >= ends:
            raise wrong(f"{self.name} ends before it begins", "a time of `ends` after `begins`")
        return self

    def times(self) -> tuple[datetime, datetime]:
        begins, ends = (datetime.fromisoformat(text).astimezone() for text in (self.begins, self.ends))
        return begins, ends


class Rounds(Form):
    """When the arbiter looks, decides and acts."""

    tick_s: Positive = 5.0  #: the cluster is looked at this often at least
    busy_s: Positive = 1.0  #: or this often, while something that was asked for is under way
    debounce_s: NotNegative = 0.2  #: events within this time make one round; one alone is looked at sooner
    decide_s: Positive = 10.0  #: time limit of one decision
    bid_s: Positive = 5.0  #: apps' own agents have this long to bid on an offer
    quiet_s: Positive = 60.0  #: a decision is made this often at least, also when nothing changed
    act_s: Positive = 5.0  #: actions that do not fit into this time are left to the next round
    settle_s: Positive = 30.0  #: what the cluster does not show after this time did not happen
    repeat_s: Positive = 10.0  #: a request that the cluster does not follow is repeated this often
    blocked_s: NotNegative = 5.0  #: a start that the cluster blocks this long is withdrawn
    feedback_s: Positive = 300.0  #: how long a site's limit, learnt from a blocked start, is believed
    avoid_s: Positive = 60.0  #: how long GPUs that could not be had, though they looked free, are left alone


class Guards(Form):
    """What holds a policy's suggestion back (`horae/arbiter/admit/guards.py`)."""

    min_run_s: NotNegative = 60.0  #: a job runs this long between two resizes
    restarts_per_hour: Annotated[int, Field(ge=1, le=int(MOST))] = 6  #: a job is stopped by us at most this often
    gain: NotNegative = 1.0  #: a resize must gain this many times what its restart loses; 0: always worth it
    horizon_s: Positive = 1800.0  #: over which a resize's gain is counted
    leave_ahead_s: NotNegative = 300.0  #: elastic jobs leave a node so long before it goes away (`away`)
    restart_cost_s: NotNegative = 30.0  #: of a job whose restarts were not measured yet
    loss_backoff_s: Positive = 10.0  #: wait of a job that is lost again and again; doubles, up to an hour


class Probes(Form):
    """Short runs of a job elsewhere, where knowing its speed there would change the decision
    (`horae/arbiter/admit/probes.py`). Made in pools that enforce."""

    an_hour: NotNegative = 2.0  #: at most so many in a pool; 0: none
    run_s: Positive = 120.0  #: a probe runs this long at the new place
    settle_s: NotNegative = 300.0  #: a job that was started or moved less than this ago is left alone
    horizon_s: Positive = 4 * 3600.0  #: over which what was learnt is counted
    price: NotNegative = 0.5  #: what an idle GPU is worth to the other jobs; 1: as much as in linear scaling
    advise: bool = False  #: also in pools that only advise: said, and not made


class Unused(Form):
    """When GPUs that are held and not used are said to be so (`horae/arbiter/observe/unused.py`)."""

    after_s: NotNegative = 1800.0  #: unused so long; 0: nothing is said
    below: Annotated[float, Field(gt=0, le=1)] = 0.05  #: a GPU computes less of its time than this, where that shows


class History(Form):
    """What the journal keeps, and when it is compacted."""

    keep_s: Positive = 30 * 86400.0  #: older events may be dropped
    forget_s: Positive = 7 * 86400.0  #: jobs that ended this long ago are forgotten
    measured_s: Positive = 300.0  #: a running job's measurements are recorded this often
    compact_events: Annotated[int, Field(ge=100, le=int(MOST))] = (
        200_000  #: compact when the journal has grown by this much
    )
    compact_bytes: Annotated[int, Field(ge=1 << 16, le=1 << 50)] = 1 << 28


class Api(Form):
    """The socket that everybody calls, and what callers see of each other."""

    socket: Annotated[Path, Field(strict=False)] | None = None  #: default: /run/horae, or the user's own run folder
    show_others: bool = False  #: whether everybody sees everybody's commands, losses and logs


class Config(Form):
    """`pools`, `tenants` and `operators` are lists in the file."""

    cluster: ClusterForm
    state_dir: Annotated[Path, Field(strict=False)] = Path("/var/lib/horae")
    pools: Annotated[list[Pool], Field(min_length=1, max_length=MOST_LISTED)] = Field(default_factory=lambda: [Pool()])
    tenants: Annotated[list[TenantForm], Field(max_length=MOST_LISTED)] = Field(default_factory=list)
    operators: Names = Field(default_factory=lambda: ["root"])
    gpu_types: Speeds = Field(default_factory=dict)  #: relative speeds, believed until measured
    rounds: Rounds = Field(default_factory=Rounds)
    guards: Guards = Field(default_factory=Guards)
    probes: Probes = Field(default_factory=Probes)
    unused: Unused = Field(default_factory=Unused)
    away: Annotated[list[AwayForm], Field(max_length=MOST_LISTED)] = Field(default_factory=list)  #: nodes, when
    history: History = Field(default_factory=History)
    api: Api = Field(default_factory=Api)

    @field_validator("pools")
    @classmethod
    def _disjoint(cls, pools: list[Pool]) -> list[Pool]:
        _once("pool", (p.name for p in pools))
        rest = [p.name for p in pools if p.nodes is None]
        if len(rest) > 1:
            raise wrong(f"pools {' and '.join(rest)} both take all other nodes", "name the nodes of all but one")
        seen: dict[NodeName, str] = {}
        for pool in pools:
            both = sorted(n for n in pool.names() or () if n in seen)
            if both:
                nodes, first = NodeSet.fromlist(both), seen[both[0]]
                raise wrong(f"{nodes} is in pool {first} and in pool {pool.name}", "a node has one pool")
            seen.update(dict.fromkeys(pool.names() or (), pool.name))
        return pools

    @field_validator("tenants")
    @classmethod
    def _listed_once(cls, tenants: list[TenantForm]) -> list[TenantForm]:
        _once("tenant", (t.name for t in tenants))
        return tenants

    @model_validator(mode="after")
    def _unused_agree(self) -> Config:
        for pool in self.pools:
            if pool.reclaim_unused_s is not None and not 0 < self.unused.after_s <= pool.reclaim_unused_s:
                raise wrong(
                    f"pool {pool.name} takes unused GPUs back after {pool.reclaim_unused_s:g} s, and they are called "
                    f"so after {self.unused.after_s:g} s (unused.after_s; 0: never)",
                    "make reclaim_unused_s as long, or longer, and unused.after_s more than 0",
                )
        return self

    @model_validator(mode="after")
    def _times_agree(self) -> Config:
        if self.rounds.busy_s > self.rounds.tick_s:
            raise wrong("rounds.busy_s is longer than rounds.tick_s", "make it shorter, or the same")
        return self

    def pool(self, name: str) -> Pool | None:
        return next((p for p in self.pools if p.name == name), None)

    @cached_property
    def _listed(self) -> dict[str, TenantForm]:
        return {t.name: t for t in self.tenants}

    @cached_property
    def _homes(self) -> dict[str, list[str]]:
        """By user, the tenants that list them."""
        found: dict[str, list[str]] = {}
        for tenant in self.tenants:
            for user in dict.fromkeys(tenant.users or ()):
                found.setdefault(user, []).append(tenant.name)
        return found

    def weight(self, tenant: str) -> float:
        return self._listed[tenant].weight if tenant in self._listed else 1.0

    def cap(self, tenant: str) -> int | None:
        """GPUs that the tenant may hold at once in a pool; None: as many as there are."""
        return self._listed[tenant].cap if tenant in self._listed else None

    def knowing(self, tenants: Sequence[SiteTenant]) -> Config:
        """With the cluster's own tenants, as they weigh there; what the file says of one of them stands."""
        more = [TenantForm(name=t.name, weight=t.weight) for t in tenants if t.name not in self._listed]
        if not more:
            return self
        known = self.model_copy(update={"tenants": [*self.tenants, *more]})
        for worked_out in ("_listed", "_homes"):  # pydantic copies these too
            known.__dict__.pop(worked_out, None)
        return known

    def may_submit(self, user: str, tenant: str) -> bool:
        """Whether `user` may run jobs in the name of `tenant`. A tenant that is not listed is its own user's."""
        listed = self._listed.get(tenant)
        if listed is None:
            return user == tenant
        return listed.users is None or user in listed.users or user == tenant

    def leads(self, user: str, tenant: str) -> bool:
        """Whether the order of the tenant's jobs is this user's to say: a lead's, or of whoever is the whole tenant."""
        listed = self._listed.get(tenant)
        if listed is None:
            return user == tenant
        return user in listed.leads or listed.users == [user] or (user == tenant and listed.users is None)

    def lists(self, tenant: str) -> bool:
        return tenant in self._listed

    def homes(self, user: str) -> tuple[str, ...]:
        """The tenants that list this user."""
        return tuple(self._homes.get(user, ()))

    def at_home(self, user: str, tenant: str) -> tuple[str, ...]:
        """The tenants that a job of `user` may count against where it names `tenant`: whom a tenant lists has no share
        of their own beside it."""
        return (tenant,) if tenant != user or self.lists(tenant) else self.homes(user) or (tenant,)


def load(path: str | Path) -> Config:
    """Read a configuration file. Raises BadInput."""
    return fit(Config, load_file(path))


def parse(text: str | bytes, where: str = "<text>") -> Config:
    return fit(Config, load_text(text, where))


def socket_path(config: Config) -> Path:
    """Where the API listens: as configured, else where `horae.api.client` looks for it."""
    if config.api.socket is not None:
        return config.api.socket
    if given := os.environ.get("RUNTIME_DIRECTORY"):  # systemd's, of a unit with RuntimeDirectory=horae
        return Path(given.split(":")[0]) / "api.sock"
    if os.getuid() == 0:
        return Path("/run/horae/api.sock")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "horae" / "api.sock" if runtime else config.state_dir / "api.sock"


def schema() -> dict[str, Any]:
    """The JSON Schema of the configuration file."""
    return Config.model_json_schema()


def pools_by_node(config: Config, nodes: Iterable[NodeName]) -> Mapping[NodeName, str]:
    """node -> its pool, for the nodes that have one."""
    named: dict[NodeName, str] = {}
    rest: str | None = None
    for pool in config.pools:
        names = pool.names()
        if names is None:
            rest = pool.name
        else:
            named.update(dict.fromkeys(names, pool.name))
    return {node: where for node in nodes if (where := named.get(node, rest)) is not None}


def _named(hostlist: str) -> float:
    """At most so many nodes; told without making them."""
    parts = [0.0]
    for word in re.findall(r"\[[^\]]*\]|,|[^,\[]+", hostlist):
        if word == ",":
            parts.append(0.0)
        elif word[0] == "[":
            ranges = word[1:-1].split(",")
            several = len(ranges) + sum(map(_span, ranges))
            parts[-1] = max(parts[-1], 1.0) * several
        else:
            parts[-1] = max(parts[-1], 1.0)
    return sum(parts)


_DIGITS = 15


def _span(text: str) -> float:
    """`1-8` -> 7; 0 for what is no range."""
    low, _, high = text.partition("/")[0].partition("-")
    if not (low.isdecimal() and high.isdecimal()):
        return 0.0
    return max(float(high) - float(low), 0.0) if len(high) <= _DIGITS else float("inf")


def _once(what: str, names: Iterable[str]) -> None:
    seen = set()
    for name in names:
        if name in seen:
            raise wrong(f"{what} {name} stands twice", "name each once")
        seen.add(name)
