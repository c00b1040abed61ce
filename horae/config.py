"""The one configuration file of an arbiter: what it may say, and how it is read.

    state_dir: /var/lib/horae
    cluster: {adapter: local, options: {}}
    pools:
      - {name: main, nodes: "n[1-8]", policy: max-min, mode: enforce}
    tenants:
      - {name: vision, weight: 2.0, users: [ann, ben]}
    operators: [root]

Everything has a default but the cluster's adapter. `load` reads a file, `parse` a text; both raise `BadInput` with
file, line, field, value and remedy. `horae schema config` prints `Config.model_json_schema()`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from ClusterShell.NodeSet import NodeSet, NodeSetException
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from policy.model import NodeName


class Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


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


class ClusterForm(Form):
    adapter: str = Field(description="name of an entry point of the group horae.clusters")
    options: dict[str, Any] = Field(default_factory=dict, description="the adapter's own")


class Pool(Form):
    """A set of nodes with one policy and one mode. Pools share no node."""

    name: str = Field("main", min_length=1)
    nodes: str | None = Field(None, description="hostlist, e.g. gpu[01-16]; left out: all nodes no other pool names")
    policy: str = "max-min"
    options: dict[str, Any] = Field(default_factory=dict)
    mode: Mode = Mode.ENFORCE
    seed: int = 0

    @field_validator("nodes")
    @classmethod
    def _folds(cls, text: str | None) -> str | None:
        if text is not None:
            try:
                if not len(NodeSet(text)):
                    raise ValueError("names no node")
            except NodeSetException as error:
                raise ValueError(f"is no hostlist: {error}") from error
        return text

    def names(self) -> frozenset[NodeName] | None:
        """The nodes it names; None: all that no other pool names."""
        return None if self.nodes is None else frozenset(NodeSet(self.nodes))


class TenantForm(Form):
    name: str = Field(min_length=1)
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    users: tuple[str, ...] | None = Field(None, description="who may submit in its name; left out: everybody")


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Rounds(Form):
    tick_s: Positive = Field(5.0, description="the cluster is looked at this often at least")
    debounce_s: NotNegative = Field(0.2, description="events within this time make one round")
    decide_s: Positive = Field(10.0, description="time limit of one decision")
    quiet_s: Positive = Field(60.0, description="a decision is made this often at least, also when nothing changed")
    act_s: Positive = Field(5.0, description="actions of one round that take longer are left to the next")
    settle_s: Positive = Field(
        30.0, description="an action that the cluster does not show after this time did not happen"
    )
    repeat_s: Positive = Field(10.0, description="a request that the cluster does not follow is repeated this often")
    blocked_s: NotNegative = Field(5.0, description="a start that the cluster blocks this long is withdrawn")
    feedback_s: Positive = Field(300.0, description="how long a limit learnt from a blocked start is believed")


class Guards(Form):
    min_run_s: NotNegative = Field(60.0, description="a job runs this long between two resizes")
    restarts_per_hour: int = Field(6, ge=1, description="a job is stopped by us at most this often in an hour")
    gain: NotNegative = Field(
        1.0, description="a resize must gain this many times its restart's cost (0: always worth it)"
    )
    horizon_s: Positive = Field(1800.0, description="over which time a resize's gain is counted")
    restart_cost_s: NotNegative = Field(30.0, description="of a job whose restarts were not measured yet")
    loss_backoff_s: Positive = Field(10.0, description="wait after a job was lost; doubles each time, up to an hour")


class History(Form):
    keep_s: Positive = Field(30 * 86400.0, description="events older than this may be dropped")
    forget_s: Positive = Field(7 * 86400.0, description="jobs that ended this long ago are forgotten")
    compact_events: int = Field(200_000, ge=100, description="compact when the journal has that many events")
    compact_bytes: int = Field(1 << 28, ge=1 << 16, description="or when it has grown to this size")


class Config(Form):
    state_dir: Path = Path("/var/lib/horae")
    cluster: ClusterForm
    pools: tuple[Pool, ...] = Field(default_factory=lambda: (Pool(),), min_length=1)
    tenants: tuple[TenantForm, ...] = ()
    operators: tuple[str, ...] = ("root",)
    gpu_types: dict[str, Positive] = Field(
        default_factory=dict, description="relative speed by GPU type, believed of a job until it was measured"
    )
    rounds: Rounds = Field(default_factory=Rounds)
    guards: Guards = Field(default_factory=Guards)
    history: History = Field(default_factory=History)

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        _once("pool", (p.name for p in self.pools))
        _once("tenant", (t.name for t in self.tenants))
        seen: dict[NodeName, str] = {}
        rest = [p.name for p in self.pools if p.nodes is None]
        if len(rest) > 1:
            raise ValueError(f"pools {' and '.join(rest)} both take all other nodes; name the nodes of one")
        for pool in self.pools:
            for node in sorted(pool.names() or ()):
                if node in seen:
                    raise ValueError(
                        f"node {node} is in pool {seen[node]} and in pool {pool.name}; a node has one pool"
                    )
                seen[node] = pool.name
        return self

    def pool_of(self, node: NodeName) -> str | None:
        """The pool a node belongs to; None: none, the arbiter leaves it alone."""
        rest = None
        for pool in self.pools:
            names = pool.names()
            if names is None:
                rest = pool.name
            elif node in names:
                return pool.name
        return rest

    def pool(self, name: str) -> Pool | None:
        return next((p for p in self.pools if p.name == name), None)

    def weight(self, tenant: str) -> float:
        return next((t.weight for t in self.tenants if t.name == tenant), 1.0)

    def may_submit(self, user: str, tenant: str) -> bool:
        """Whether `user` may run jobs in the name of `tenant`. A tenant that is not listed is its own user's."""
        for listed in self.tenants:
            if listed.name == tenant:
                return listed.users is None or user in listed.users or user == tenant
        return user == tenant


def _once(what: str, names: Iterable[str]) -> None:
    seen = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{what} {name} stands twice")
        seen.add(name)


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
    return {node: pool for node in nodes if (pool := named.get(node, rest)) is not None}
