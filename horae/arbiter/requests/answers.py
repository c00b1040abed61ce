"""What the API answers, field by field: the models of its responses.

A row is what its owner sees. What the others see of it is less (`horae/api/privacy/`): fields of a `total=False` part
are there for those who may know them. Wall times are seconds since 1970, durations seconds.
"""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

#: GPUs by node.
Places = dict[str, int]


# --- jobs --------------------------------------------------------------------------------------------------


class _GpusAsked(TypedDict):
    requested: int
    min: int
    max: int | None


class GpusAsked(_GpusAsked, total=False):
    allowed: list[int]  #: the only counts that run


class _PublicLine(TypedDict):
    id: str
    name: str
    owner: str
    tenant: str
    state: str  #: of `horae.port.JobState`, or `held`, `released`, `suspended`, `unknown`
    range: str  #: as `horae submit --gpus` reads it
    allocation: Places
    submitted_s: float
    ran_s: float
    ended: bool
    why: str
    code: str | None  #: of the policy's reason


class JobLine(_PublicLine, total=False):
    """What a line of a table shows."""

    start_s: float | None  #: asked for: when it might start
    checkpoint_trouble: str | None
    unused: str | None


class _PublicJob(_PublicLine):
    app: str
    pool: str
    gpus: GpusAsked
    target: Places | None
    since_s: float  #: in this state
    ended_s: float | None
    time_left_s: float | None
    waited_s: float | None
    attained: dict[str, float]  #: GPU-s by GPU type
    step: float
    total: float | None
    rate: float | None  #: iterations/s at its present size
    starts: int
    resizes: int
    restart_cost_s: float | None
    exit_code: int | None
    rho: float | None
    elastic: bool
    priority: int
    precedence: int


class JobAnswer(_PublicJob, total=False):
    start_s: float | None
    native: str
    loss: float | None
    losses: list[list[float]]  #: asked for: the newest points (iteration, loss)
    model: str | None
    command: list[str]
    cwd: str | None
    env: dict[str, str]
    checkpoint: str | None
    checkpoint_trouble: str | None
    unused_gpus: int
    unused_s: float | None
    unused: str | None
    extra: dict[str, str]


class _Cause(TypedDict):
    what: str
    text: str


class CauseAnswer(_Cause, total=False):
    numbers: dict[str, Any]
    change: str  #: what would change it


class JobAhead(TypedDict):
    id: str
    name: str
    tenant: str


class ExplanationAnswer(JobAnswer):
    headline: str
    causes: list[CauseAnswer]  #: the strongest first
    ahead: list[str]
    ahead_jobs: list[JobAhead]
    policy: str | None
    decided_ago_s: float | None


class Report(TypedDict):
    id: str
    name: str
    tenant: str
    state: str
    held_gpu_s: float
    trained_gpu_s: float
    restarting_gpu_s: float
    waited_s: float
    starts: int
    scaling: float | None
    whole: bool  #: false: the journal does not hold its first events any more
    advice: list[str]


# --- the cluster -------------------------------------------------------------------------------------------


class AbsenceAnswer(TypedDict):
    name: str
    from_s: float
    to_s: float
    leave_s: float
    reason: str


class Node(TypedDict):
    name: str
    gpu_type: str
    gpus: int
    held: int
    foreign: int
    health: str
    rack: str | None
    pool: str | None
    away: list[AbsenceAnswer]


class Budget(TypedDict):
    gpu_hours: float
    period: str
    then: str
    used: float
    until_s: float
    over: bool


class Used(TypedDict):
    """What a tenant's jobs make of it."""

    held: int
    running: int
    waiting: int
    gpu_s: float
    rho: float | None


class _PublicTenant(Used):
    name: str
    weight: float
    fair: float  #: GPUs that it is owed now
    cap: int | None


class Tenant(_PublicTenant, total=False):
    budget: Budget | None


class _PublicPool(TypedDict):
    name: str
    policy: str
    mode: str
    releasing: bool
    maintenance: str | None
    decisions: int
    decided: dict[str, Any]  #: the newest decision's record


class StepAnswer(TypedDict, total=False):
    """One that would be taken, were the pool acted in."""

    job: str
    verb: str
    allocation: Places
    ready: bool
    phase: str
    why: str
    waits_for: list[str]


class PoolAnswer(_PublicPool):
    advised: list[StepAnswer]


class _Alert(TypedDict):
    what: str
    text: str
    remedy: str


class AlertAnswer(_Alert, total=False):
    since_s: float


class HeldAnswer(TypedDict):
    """Who holds what, and who waits."""

    jobs: list[JobAnswer]
    nodes: list[Node]
    tenants: list[Tenant]


class StatusAnswer(HeldAnswer):
    cluster: str
    now_s: float
    pools: list[PoolAnswer]
    alerts: list[AlertAnswer]


class You(TypedDict):
    user: str
    uid: int
    operator: bool


class AboutArbiter(TypedDict):
    version: str
    cluster: str
    state_dir: str
    pools: list[str]
    rounds: int
    stage: str
    stalled: str | None
    stood_down: str | None
    looked_ago_s: float | None
    notes: list[str]


class About(AboutArbiter):
    you: You


class _PublicEvent(TypedDict):
    seq: int
    wall_s: float
    kind: str
    job: str | None
    pool: str | None
    name: str
    owner: str
    tenant: str
    text: str


class EventAnswer(_PublicEvent, total=False):
    data: dict[str, Any]


# --- requests ----------------------------------------------------------------------------------------------


class _HandedIn(TypedDict):
    jobs: list[str]  #: their numbers, in order


class HandedIn(_HandedIn, total=False):
    notes: list[str]


class TriedJob(TypedDict):
    id: str  #: the number that it would have
    name: str
    tenant: str
    allocation: Places
    code: str | None
    why: str
    change: str
    start_in_s: float | None
    start_after: list[str]


#: `with` is a word of Python's.
OtherJob = TypedDict("OtherJob", {"id": str, "name": str, "tenant": str, "gpus": int, "without": int, "with": int})


class DryRunAnswer(TypedDict):
    pool: str
    mode: str
    policy: str
    jobs: list[TriedJob]
    others: list[OtherJob]


class _SaidAnswer(TypedDict):
    text: str


class SaidAnswer(_SaidAnswer, total=False):
    """What became of a request, and of which job or pool."""

    job: str
    pool: str


# --- apps and their agents ---------------------------------------------------------------------------------


class Phase(TypedDict):
    number: int
    of: int
    end: float  #: iterations
    places: int | None


class AgentAnswer(TypedDict):
    by: str
    missed: int


class _PublicTrial(TypedDict):
    id: str
    name: str
    state: str
    held: int
    step: float
    rank: int | None


class TrialAnswer(_PublicTrial, total=False):
    loss: float | None
    parameters: dict[str, Any]
    why: str


class AppCounts(TypedDict):
    jobs: int
    running: int
    waiting: int
    completed: int
    ended_early: int
    held: int
    gpu_s: float


class AppStandingAnswer(TypedDict):
    """What the pool's policy makes of the app."""

    weight: float | None
    rho: float | None
    agent: AgentAnswer | None


class _PublicApp(AppCounts, AppStandingAnswer):
    name: str
    app: str
    tenant: str
    pool: str
    owners: list[str]
    scheduler: str | None
    phase: Phase | None
    best: str | None
    trials: list[TrialAnswer]


class AppStandingWhole(AppStandingAnswer, total=False):
    bid: dict[str, Any] | None  #: whose table counted in the last auction, and how it went


class App(_PublicApp, AppStandingWhole):
    """What the others see of it has no `bid`."""


class Left(TypedDict):
    app: str
    pool: str


class Registered(Left):
    bid_s: float  #: how long a bid is waited for


class NodeOffered(TypedDict):
    gpu_type: str
    rack: str | None


class OfferAnswer(TypedDict):
    number: int
    left_s: float
    came: bool  #: a table of this app is there
    gpus: Places
    nodes: dict[str, NodeOffered]


class JobOffered(TypedDict):
    id: str
    name: str
    state: str
    gpus: dict[str, Any]
    allocation: Places
    done: float
    total: float | None
    loss: float | None


class OfferTold(Left):
    offer: OfferAnswer | None
    jobs: list[JobOffered]


class Taken(TypedDict):
    app: str
    offer: int
    rows: int


class _Win(TypedDict):
    app: str
    offer: int
    settled: bool


class Win(_Win, total=False):
    text: str
    jobs: dict[str, Places]
    numbers: dict[str, Any]
