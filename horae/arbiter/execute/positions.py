"""Where each job stands, for the plan: ledger -> positions, targets and the GPUs that are ours. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from horae.arbiter.decide.album import SnapshotSources
from horae.arbiter.execute.plan import PlanPhase, PlanStep, Position, plan
from horae.arbiter.observe.absences import closing
from horae.arbiter.standing import decidable, grant_stands, keeps_to_itself, movable, occupies
from horae.config import Config
from horae.journal import JobRecord, Ledger
from horae.journal.quiet import quiet
from horae.port import JobId, JobState
from policy.model import Allocation, Gpus, GpuType, Health, Limits, Node, NodeName, Pinning, Seconds


@dataclass(frozen=True, slots=True)
class Board:
    positions: Sequence[Position]
    targets: Mapping[JobId, Allocation]
    capacity: Mapping[NodeName, Gpus]
    closed: frozenset[NodeName]


def board(ledger: Ledger, pool: str, view: SnapshotSources, *, restart_gap_s: Seconds) -> Board:
    """The jobs of the pool that a plan may have to do with, and their targets; what the rest hold there is taken."""
    now_s, config = view.now_s, view.config
    nodes = [n for n in view.observation.nodes if view.pools.get(n.name) == pool]
    ours = set(map(attrgetter("name"), nodes))
    unseen = keeps_to_itself(ledger, config, pool)
    mine: list[JobRecord] = []
    rest: list[JobRecord] = []
    for record in ledger.in_motion():
        if record.pool != pool or not (record.shown or unseen) or _at_rest(record, ours):
            rest.append(record)
        else:
            mine.append(record)
    capacity = _capacity(nodes, view, rest, ledger.held_on().values())
    types = {n.name: n.gpu_type for n in view.observation.nodes}
    positions = [_position(r, config, now_s, restart_gap_s, ledger.opened_s) for r in mine]
    targets = {
        r.id: _target(r, p, view.limits, types, decidable(r, config, now_s, unseen=unseen))
        for r, p in zip(mine, positions, strict=True)
    }
    all_closed = ledger.pool(pool).maintenance is not None
    closed = frozenset(n.name for n in nodes if all_closed or n.health is not Health.UP)
    free = {n.name: capacity[n.name] for n in nodes}
    return Board(positions, targets, free, closed | closing(view.away, now_s))


def _capacity(
    nodes: Iterable[Node],
    view: SnapshotSources,
    rest: Iterable[JobRecord],
    held_on: Iterable[Mapping[NodeName, Gpus]],
) -> Counter[NodeName]:
    """GPUs that a plan may use, by node: less what is foreign, of jobs that are over, held by the `rest`, or by those
    that run on, which have no step and which nobody waits for."""
    capacity = Counter({n.name: n.gpus - n.foreign if n.health is not Health.DOWN else 0 for n in nodes})
    for held in (view.strays, *held_on):
        capacity.subtract(held)
    for record in rest:
        for node, gpus in occupies(record, view.now_s, view.config.rounds.settle_s).items():
            capacity[node] -= gpus
    return capacity


def _at_rest(record: JobRecord, ours: Collection[NodeName]) -> bool:
    """Nothing is asked of it, and it has what it is to have: nothing, or just these of our nodes. No plan has a step
    for it, nor waits for it."""
    held = record.allocation
    if record.target != held:
        return False
    asked = record.grant is not None or record.cancel_why is not None or record.stop_asked_s is not None
    if asked:
        return False
    leaves = record.state is JobState.STOPPING or record.hold_why is not None or record.blocked is not None
    return not leaves and all(map(ours.__contains__, held))


def phase_of(record: JobRecord, now_s: Seconds, settle_s: Seconds) -> PlanPhase:
    if record.state is JobState.STOPPING or (record.state.holds and record.stop_asked_s is not None):
        return PlanPhase.LEAVES
    if record.state.holds:
        return PlanPhase.RUNS
    return PlanPhase.GRANTED if grant_stands(record, now_s, settle_s) else PlanPhase.IDLE


def repeatable(asked_s: Seconds | None, now_s: Seconds, repeat_s: Seconds, opened_s: Seconds) -> bool:
    """Whether something is asked for (again): never asked, long ago, or by an arbiter that did not live to see."""
    return asked_s is None or now_s - asked_s >= repeat_s or asked_s <= opened_s


def _position(record: JobRecord, config: Config, now_s: Seconds, restart_gap_s: Seconds, opened_s: Seconds) -> Position:
    if not record.state.holds and record.grant is None and record.cancel_why is None:
        return _idle(record, restart_gap_s)
    rounds = config.rounds
    phase = phase_of(record, now_s, rounds.settle_s)
    cancel = record.cancel_why is not None
    repeat = False
    if cancel:
        repeat = repeatable(record.cancel_sent_s, now_s, rounds.repeat_s, opened_s)
        phase = PlanPhase.LEAVES if record.cancel_sent_s is not None else phase
    elif phase is PlanPhase.LEAVES and record.state is not JobState.STOPPING:
        repeat = repeatable(record.stop_repeated_s, now_s, rounds.repeat_s, opened_s)
    elif phase is PlanPhase.GRANTED and record.grant is not None:
        repeat = repeatable(record.grant.at_s, now_s, rounds.repeat_s, opened_s)
    blocked_s = record.blocked.since_s if record.blocked is not None else None
    return Position(
        record.id,
        phase,
        occupies(record, now_s, rounds.settle_s),
        grace_s=record.spec.grace_s,
        epoch=record.grant.epoch if record.grant is not None else 0,
        repeat=repeat,
        withdraw=blocked_s is not None and phase is PlanPhase.RUNS and now_s - blocked_s >= rounds.blocked_s,
        cancel=cancel,
        forming=record.state is JobState.STARTING,
        left_nodes=frozenset(record.left_nodes),
        may_start_s=_may_start_s(record, restart_gap_s),
    )


def _idle(record: JobRecord, restart_gap_s: Seconds) -> Position:
    """Nothing was asked for it: that is most of a long queue."""
    return Position(
        record.id,
        PlanPhase.IDLE,
        record.allocation,
        record.spec.grace_s,
        left_nodes=frozenset(record.left_nodes),
        may_start_s=_may_start_s(record, restart_gap_s),
    )


def _may_start_s(record: JobRecord, restart_gap_s: Seconds) -> Seconds:
    """Without a gap at any time: the event in which it left may be younger than this round."""
    return record.left_s + restart_gap_s if restart_gap_s else 0.0


def _target(
    record: JobRecord,
    position: Position,
    limits: Limits,
    types: Mapping[NodeName, GpuType],
    decided_about: bool,
) -> Allocation:
    """What it is to hold. A job that nothing was decided about yet, or nothing can be now, is left as it is; so is one
    that runs and cannot be resumed, whatever was decided."""
    if record.hold_why is not None and (movable(record) or not record.state.holds):
        return {}
    held, target = position.held, record.target
    stays = position.phase is PlanPhase.RUNS and not movable(record)
    if target is None or not decided_about or stays or _as_good(held, target, limits.pinning, types):
        return held
    return target


def _as_good(held: Allocation, target: Allocation, pinning: Pinning, types: Mapping[NodeName, GpuType]) -> bool:
    """Where the cluster chooses the nodes, what it chose is what was asked for."""
    if pinning is Pinning.EXACT or not held or not target:
        return False
    if pinning is Pinning.NONE:
        return sum(held.values()) == sum(target.values())
    return _by_type(held, types) == _by_type(target, types)


def _by_type(allocation: Allocation, types: Mapping[NodeName, GpuType]) -> Counter[GpuType]:
    out: Counter[GpuType] = Counter()
    for node, gpus in allocation.items():
        out[types.get(node, "?")] += gpus
    return out


@quiet()
def steps(
    ledger: Ledger, pool: str, view: SnapshotSources, *, restart_gap_s: float, reshape_in_place: bool
) -> tuple[Board, tuple[PlanStep, ...]]:
    """The way from what is to the targets on record."""
    where = board(ledger, pool, view, restart_gap_s=restart_gap_s)
    return where, plan(
        where.positions,
        where.targets,
        where.capacity,
        now_s=view.now_s,
        reshape_in_place=reshape_in_place,
        closed=where.closed,
    )
