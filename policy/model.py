"""The values that every part of Horae speaks in: the snapshot, the decision, and what they are made of.

All values are immutable and compare by content. The textual form of a `Snapshot` is the instance file
(`policy/text/instance.py`); nothing is known about a cluster that this form cannot say.

Units, everywhere: times are seconds (`_s`), rates are iterations/s, sizes are bytes, GPU time is GPU-seconds.
Text becomes a number at the edges only.

Words (the project's glossary): tenant > app > job. A job is one gang of workers. An allocation is node -> GPUs
for one job; a share may be fractional and is by GPU type. A lease is the time until which a GPU is a job's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from policy.errors import BadInput as BadInput  # noqa: PLC0414 - a word of the model to everybody
from policy.records import quick

SCHEMA = 1

Seconds = float
GpuSeconds = float
IterationsPerSecond = float
Gpus = int
Bytes = int
JobName = str
NodeName = str
GpuType = str

#: node -> whole GPUs, for one job. Never holds zeros: an allocation of no GPUs is the empty map.
Allocation = Mapping[NodeName, Gpus]
#: GPU type -> GPUs, possibly fractional, for one job or tenant.
Share = Mapping[GpuType, float]

EMPTY: Mapping[Any, Any] = MappingProxyType({})


class Health(StrEnum):
    UP = "up"
    DRAIN = "drain"  #: keeps what runs there, takes nothing new
    DOWN = "down"


class Pinning(StrEnum):
    """How exactly the adapter can say where a job runs."""

    EXACT = "exact"  #: named nodes and counts
    TYPE = "type"  #: the GPU type only
    NONE = "none"  #: the count only


@quick
@dataclass(frozen=True, slots=True)
class Away:
    """A time that is known ahead in which a node is not there: maintenance, a reservation (`policy/away.py`)."""

    name: str
    from_s: Seconds
    to_s: Seconds
    leave_s: Seconds  #: jobs that can be resumed leave from then on, before `from_s`
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    name: NodeName
    gpu_type: GpuType
    gpus: Gpus
    rack: str | None = None
    health: Health = Health.UP
    foreign: Gpus = 0  #: GPUs held there by jobs that are not ours
    cpus: float | None = None  #: free for our jobs; None: not known, not a constraint
    memory: Bytes | None = None
    features: tuple[str, ...] = ()  #: what jobs may ask for by name
    wake_s: Seconds = 0.0  #: powered down: how long a job waits there before it runs
    away: tuple[Away, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """What the adapter can carry out; placement never plans beyond it."""

    equal_gpus_per_node: bool = False
    one_type_per_job: bool = False
    pinning: Pinning = Pinning.EXACT

    def equal(self, shape: Shape | None) -> bool:
        """Whether a job's nodes are to have equally many GPUs: what keeps its own shape is not reshaped."""
        return self.equal_gpus_per_node and not (shape is not None and shape.laid_out)


@dataclass(frozen=True, slots=True)
class Cluster:
    nodes: tuple[Node, ...]
    limits: Limits = Limits()
    gpu_types: tuple[GpuType, ...] = ()  #: slowest first; every type of `nodes` is in it


class Beyond(StrEnum):
    """What a tenant may still have when its budget of GPU time is used up (`policy/beyond.py`)."""

    IDLE = "idle"  #: what others leave idle
    WAIT = "wait"  #: what it holds, and nothing new


@quick
@dataclass(frozen=True, slots=True)
class Tenant:
    name: str
    weight: float = 1.0
    cap: Gpus | None = None  #: most GPUs it may hold now: a site's limit, learnt from a blocked grant
    beyond: Beyond | None = None  #: its budget is used up; None: it is not, or there is none


@quick
@dataclass(frozen=True, slots=True)
class Quota:
    """A limit of the site's that binds some jobs together, as its cluster states it. What jobs that are not in the
    snapshot use of it is taken off already."""

    name: str  #: for people: "QOS small"
    whom: tuple[JobName, ...]
    gpus: Gpus | None = None  #: most that they may hold
    jobs: int | None = None  #: most of them that may hold GPUs at a time
    nodes: int | None = None  #: most that each of them may be on
    gpus_per_node: Gpus | None = None  #: most that each of them may hold on a node
    least: Gpus | None = None  #: fewest that each of them may hold, where it holds any


@quick
@dataclass(frozen=True, slots=True)
class GpuRange:
    """How many GPUs a job can use. Rigid: min == max. `allowed` (ascending), when given, is the whole truth."""

    requested: Gpus
    min: Gpus
    max: Gpus | None  #: None: no limit
    allowed: tuple[Gpus, ...] | None = None

    @property
    def rigid(self) -> bool:
        return self.min == self.max

    def feasible(self, gpus: Gpus) -> bool:
        """True if a gang of `gpus` can run; 0 is always feasible (the job waits)."""
        if gpus == 0:
            return True
        if self.allowed is not None:
            return gpus in self.allowed
        return gpus >= self.min and (self.max is None or gpus <= self.max)

    def at_most(self, gpus: float) -> Gpus:
        """The largest feasible gang that is <= `gpus` (0 when even the smallest does not fit)."""
        if self.allowed is not None:
            return max((n for n in self.allowed if n <= gpus), default=0)
        if gpus < self.min:
            return 0
        top = int(gpus)
        return top if self.max is None else min(top, self.max)

    def above(self, gpus: Gpus) -> Gpus | None:
        """The smallest feasible gang that is > `gpus`, None at the top of the range."""
        if self.allowed is not None:
            return next((n for n in self.allowed if n > gpus), None)
        step = max(gpus + 1, self.min)
        return step if self.max is None or step <= self.max else None


@quick
@dataclass(frozen=True, slots=True)
class Work:
    """Iterations. `total` None: the length is unknown to everybody."""

    total: float | None = None
    done: float = 0.0

    @property
    def left(self) -> float | None:
        if self.total is None:
            return None
        left = self.total - self.done
        return 0.0 if left < 0.0 else left


@quick
@dataclass(frozen=True, slots=True)
class Slowdown:
    """S of Themis (§4.3.1): iteration time at this span over iteration time within one node. Each >= 1."""

    node: float = 1.0
    rack: float = 1.1
    cluster: float = 1.3


class Provenance(StrEnum):
    """Where a throughput point comes from; reasons and certificates say so when it is not `measured`."""

    STATED = "stated"  #: written in the instance or by the user
    MEASURED = "measured"
    FIT = "fit"
    PRIOR = "prior"  #: a site-wide ratio between GPU types


@dataclass(frozen=True, slots=True)
class LossForecast:
    """A fitted loss curve, as the profiler makes it: `law` names the family, `parameters` its coefficients."""

    law: str
    parameters: Mapping[str, float]
    interval: tuple[float, float] | None = None  #: relative, of the iterations left


#: How features of nodes begin that no site names and no user asks for: `policy.away` makes them.
OWN_FEATURE = "\x00"


@quick
@dataclass(frozen=True, slots=True)
class Shape:
    """What a rigid job asked for and keeps. None and empty: not said. Every allocation that is new obeys all of it;
    what the job holds already is as the cluster gave it."""

    nodes: int | None = None
    gpus_per_node: Gpus | None = None
    cpus_per_node: float | None = None
    memory_per_node: Bytes | None = None
    features: tuple[str, ...] = ()  #: every node has all of them
    exclusive: bool = False  #: nobody else on its nodes
    licences: Mapping[str, int] = field(default_factory=lambda: EMPTY, hash=False)  #: counted by the cluster itself
    most_nodes: int | None = None  #: by a limit of the site's (`policy/parts/quotas.py`), as the next: no user's word
    most_per_node: Gpus | None = None

    @property
    def laid_out(self) -> bool:
        """Whether its user said anything: then its GPUs lie as the cluster lays them, else as any job's."""
        limited = self.most_nodes is not None or self.most_per_node is not None
        ours = (limited or bool(self.features)) and all(each.startswith(OWN_FEATURE) for each in self.features)
        said = replace(self, features=(), most_nodes=None, most_per_node=None)
        return not ours or said != Shape()


@dataclass(frozen=True, slots=True)
class TypeChoice:
    """GPU types that a job may run on, by its user's word. A required type that no node has: it can never run."""

    require: tuple[GpuType, ...] = ()  #: one of these; empty: any
    prefer: tuple[GpuType, ...] = ()  #: the first that suffices, before others
    forbid: tuple[GpuType, ...] = ()

    def allows(self, gpu_type: GpuType) -> bool:
        return gpu_type not in self.forbid and (not self.require or gpu_type in self.require)


@quick
@dataclass(frozen=True, slots=True)
class Job:
    name: JobName
    tenant: str
    app: str
    gpus: GpuRange
    submitted_s: Seconds = 0.0
    work: Work = Work()
    #: iterations/s by GPU type and GPU count, at best placement
    throughput: Mapping[GpuType, Mapping[Gpus, IterationsPerSecond]] = field(default_factory=lambda: EMPTY)
    provenance: Mapping[GpuType, Provenance] = field(default_factory=lambda: EMPTY)
    model: str | None = None  #: key of a throughput table or profile
    slowdown: Slowdown = Slowdown()
    attained: Mapping[GpuType, GpuSeconds] = field(default_factory=lambda: EMPTY)
    allocation: Allocation = field(default_factory=lambda: EMPTY)
    #: one expiry time a held GPU, by node, ascending
    lease_until: Mapping[NodeName, tuple[Seconds, ...]] = field(default_factory=lambda: EMPTY)
    cpus_per_gpu: float | None = None
    memory_per_gpu: Bytes | None = None
    known: bool = True  #: False: a policy must not read `work.total`
    loss: tuple[tuple[float, float], ...] = ()  #: (iteration, loss)
    loss_forecast: LossForecast | None = None
    restart_cost_s: Seconds | None = None  #: None: not measured yet
    shape: Shape | None = None
    gpu_types: TypeChoice | None = None  #: None: any type
    priority: int = 0  #: among the jobs of its tenant: higher stands earlier in line (`policy/line.py`)
    precedence: int = 0  #: among all jobs, set by operators
    stays: bool = False  #: once it runs, it runs to its end: it cannot be stopped and resumed
    time_left_s: Seconds | None = None  #: running time left of its time limit; None: no limit
    place: tuple[Seconds, JobName] | None = None  #: in line, where priorities moved it; worked out, never stated

    @property
    def held(self) -> Gpus:
        return sum(self.allocation.values()) if self.allocation else 0

    @property
    def work_left(self) -> float | None:
        """Iterations left as far as a policy may know them."""
        return self.work.left if self.known else None

    @property
    def order(self) -> tuple[Seconds, JobName]:
        """The tie rule everywhere: earliest submitted, then name; where priorities moved it, its place in line."""
        return (self.submitted_s, self.name) if self.place is None else self.place


@dataclass(frozen=True, slots=True)
class Phase:
    jobs: int
    iterations: float


@dataclass(frozen=True, slots=True)
class App:
    """An app with a scheduler of its own (Themis §4.3.3); apps of one plain job need no entry."""

    name: str
    scheduler: str
    budget: GpuSeconds | None = None
    demand_max: Gpus | None = None
    phases: tuple[Phase, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    name: str
    options: Mapping[str, Any] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One immutable picture of the cluster: everything a decision may depend on."""

    cluster: Cluster
    jobs: tuple[Job, ...]
    tenants: tuple[Tenant, ...] = ()
    now_s: Seconds = 0.0
    apps: tuple[App, ...] = ()
    active_apps: tuple[tuple[Seconds, int], ...] = ()  #: (time, number of active apps from then on)
    state: Mapping[str, Any] = field(default_factory=lambda: EMPTY)  #: the policy's own, as it returned it
    policy: PolicyChoice | None = None
    quotas: tuple[Quota, ...] = ()


# --- the answer -------------------------------------------------------------------------------------------


class Code(StrEnum):
    """Why a job holds what it holds. Closed: dashboards and scripts may switch on it."""

    GRANTED = "granted"  #: holds GPUs now that it did not hold before
    KEPT = "kept"  #: holds what it held
    GREW = "grew"
    SHRANK = "shrank"
    MOVED = "moved"  #: same count, other nodes
    PREEMPTED = "preempted"  #: held GPUs, now waits
    WAITS_CAPACITY = "waits-capacity"  #: not enough free GPUs behind those ahead of it
    WAITS_GANG = "waits-gang"  #: GPUs are free, but no placement of its smallest gang obeys the limits
    WAITS_TURN = "waits-turn"  #: others are ahead by the policy's order
    WAITS_CAP = "waits-cap"  #: its tenant's limit
    WAITS_AWAY = "waits-away"  #: the nodes that it would take are to be away before it ends
    WAITS_LEASE = "waits-lease"  #: the GPUs it would take are under others' unexpired leases
    INFEASIBLE = "infeasible"  #: no set of healthy nodes could ever hold its smallest gang
    NO_GAIN = "no-gain"  #: more GPUs would not make it faster
    UNKNOWN_SPEED = "unknown-speed"  #: no throughput known on any GPU type present
    LOST_SWEEP = "lost-sweep"  #: its app's scheduler ended it
    FINISHED = "finished"  #: no work left


@quick
@dataclass(frozen=True, slots=True)
class Reason:
    code: Code
    text: str  #: one sentence, for a person
    numbers: Mapping[str, Any] = field(default_factory=lambda: EMPTY)  #: the evidence
    change: str = ""  #: what would change it, one clause


class Termination(StrEnum):
    OPTIMAL = "optimal"
    FEASIBLE = "feasible"  #: stopped early with an incumbent
    TIME_LIMIT = "time-limit"  #: stopped early with nothing
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    NUMERICAL = "numerical"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class SolverSummary:
    """How the mathematical program behind a decision ended; absent where a policy solves none."""

    termination: Termination
    gap: float | None
    seconds: float
    solver: str = ""
    #: the wall clock ended it, not its own limits: on another machine it may end elsewhere; a note says so
    clock: bool = field(default=False, compare=False)


@quick
@dataclass(frozen=True, slots=True)
class Worst:
    """A property's worst case and whom it hits."""

    worst: float
    who: str | tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class Certificate:
    """Properties of a decision, measured from the snapshot by code the policies do not use."""

    feasible: bool
    work_conserving: bool
    sharing_incentive: Worst  #: ratio to the weighted 1/n share; 1 = exactly fair
    envy: Worst  #: absolute, normalised throughput scaled by weights
    pareto: bool | None  #: None: not computed (time), and `notes` says so
    rho: Mapping[str, float | None]  #: by app; None for an app that holds nothing
    throughput: float  #: total, normalised to each job's slowest type
    optimal_throughput: float | None
    notes: tuple[str, ...] = ()  #: what fails or was left out, on whom, by how much


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a policy returns. `decide` turns it into a Decision: default reasons, checks, certificate."""

    allocation: Mapping[JobName, Allocation]
    shares: Mapping[JobName, Share] | None = None
    leases: Mapping[JobName, Mapping[NodeName, tuple[Seconds, ...]]] = field(default_factory=lambda: EMPTY)
    cancel: tuple[JobName, ...] = ()
    reasons: Mapping[JobName, Reason] = field(default_factory=lambda: EMPTY)
    state: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    solver: SolverSummary | None = None
    notes: tuple[str, ...] = ()


@quick
@dataclass(frozen=True, slots=True)
class TenantShare:
    shares: Share
    throughput: float  #: normalised to the slowest GPU type


@dataclass(frozen=True, slots=True)
class Decision:
    policy: str
    options: Mapping[str, Any]
    seed: int
    allocation: Mapping[JobName, Allocation]
    reasons: Mapping[JobName, Reason]
    certificate: Certificate
    shares: Mapping[JobName, Share] | None = None
    tenants: Mapping[str, TenantShare] = field(default_factory=lambda: EMPTY)
    leases: Mapping[JobName, Mapping[NodeName, tuple[Seconds, ...]]] = field(default_factory=lambda: EMPTY)
    cancel: tuple[JobName, ...] = ()
    solver: SolverSummary | None = None
    state: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
