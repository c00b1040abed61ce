"""What a job needs next. Pure: a record and what was just read of its job in, a record and actions out.

    IDLE --start--> FORMING --its gang stands--> OPEN --stop, a part ended--> LEAVING --all have told--> CLEARING
                       '--not in time, stop--> CLEARING <--lost--'               '--reshape--> FORMING
    CLEARING --its containers are gone--> IDLE

Every action brings the cluster nearer to what the record says and may be taken twice. A service's stored counts are
compared with the wanted ones in each round: so a flex that was refused and stored all the same is put right.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from horae.elastic.protocol import EXIT_STOPPED, State
from horae.port import BlockKind, JobState, backoff_s
from policy.model import EMPTY, Allocation
from yarn_bridge.clients.records import App, Instance, Service
from yarn_bridge.jobs import shapes
from yarn_bridge.jobs.masters import Displaced
from yarn_bridge.jobs.record import Phase, Record, Worker
from yarn_bridge.options import SERVICES

#: after its grace a worker's supervisor ends the trainer by itself and says so; this long is waited for that
MARGIN_S = 15.0
#: Shares of the life of a job's HDFS token, which all workers of its service have; each slice has its own, and the
#: oldest counts. Past its end no worker can start and none can write. In the first the service, or the slices, are made
#: anew where that costs little, at a start or a resize; at the second the job is stopped at a checkpoint for it, early
#: enough that a slow one is done well before the end.
RENEW_WHEN_MOVED, RENEW_AT = 0.4, 0.7
RENEWED = "stopped at a checkpoint to be started under a new HDFS token: the one it has would end soon"
OUTLIVED = "stopped at a checkpoint to be started anew: YARN ends its application soon, whose lifetime is limited"
#: a job without GPUs that was lost begins again after this long, twice as long each time
AGAIN_S, LONGEST_AGAIN_S = 5.0, 600.0
#: A gang that has all of its containers, or its application master, may take so many times its time: what makes them
#: slow to start (files and images that come to the nodes, a full machine) would be there again at the next try, and
#: begin anew.
_SLOW_STARTS = 2.0
#: who ended an application, in YARN's words
BY_USER = re.compile(r"(?:killed|[Ss]topped) by user ([^\s@]+)")
#: states of a worker's container in which it has its GPU
LIVING = frozenset({"INIT", "STARTED", "READY", "RUNNING_BUT_UNREADY", "RUNNING", "UPGRADING", "NEEDS_UPGRADE"})


@dataclass(frozen=True, slots=True)
class Ack:
    """How a worker's part of an epoch ended, in its own words; of one that goes on, why no checkpoint is written."""

    epoch: int
    state: str
    exit_code: int
    mark: tuple[int, float, float] | None
    text: str
    time_s: float


@dataclass(frozen=True, slots=True)
class Facts:
    now_s: float
    app: App | None  #: its service's application, while that has not ended
    service: Service | None = None
    service_read: bool = False  #: False: `service` says nothing
    members: Mapping[str, Worker] = field(default_factory=lambda: EMPTY)  #: who waits at the gate, by container
    acks: Mapping[str, Ack] = field(default_factory=lambda: EMPTY)  #: by container
    lost_nodes: frozenset[str] = frozenset()
    token_life_s: float = 0.0  #: how long an HDFS token lives; 0: for ever
    unreadable: str = ""  #: why the service could not be read, where that was tried, or what its workers wrote
    harm: str = ""  #: who pays for its application as long as that lives, however little it does
    last_words: str = ""  #: what YARN says of its application's end, where that is news
    hindered: str = ""  #: why its service could not be made or flexed, when that was tried last
    began_s: float = 0.0  #: when its application master was first seen to run, or a daemon to answer again; 0: neither
    partitions: Mapping[str, str] = field(default_factory=lambda: EMPTY)  #: of nodes whose workers must ask for one
    displaced: Displaced | None = None  #: by the application master that it has now
    closed: bool = False  #: its queue takes no new application (asked where it would need one by its age)


class Verb(StrEnum):
    MAKE = "make"  #: create the service in the record's shape, after destroying one that ended
    FLEX = "flex"
    DESTROY = "destroy"
    SWEEP = "sweep"  #: forget members and acknowledgements
    FORGET = "forget"  #: those of the members named


@dataclass(frozen=True, slots=True)
class Action:
    verb: Verb
    counts: Mapping[str, int] = field(default_factory=lambda: EMPTY)
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    record: Record
    actions: tuple[Action, ...] = ()
    note: str = ""  #: what is undone by it, for people
    leaves: bool = False  #: it trains, and nobody asked: it leaves to be started anew


_SWEEP, _MAKE, _DESTROY = Action(Verb.SWEEP), Action(Verb.MAKE), Action(Verb.DESTROY)


def next_step(record: Record, facts: Facts, retries: int, resumable: bool, grace_s: float, gang_s: float) -> Step:
    """`retries`, `resumable`, `grace_s`: of the job's specification; `gang_s`: how long a gang may take to stand."""
    if record.phase is Phase.FORMING:
        return _forming(record, facts, gang_s)
    if record.phase is Phase.OPEN:
        return _open(record, facts, retries, resumable, grace_s)
    if record.phase is Phase.LEAVING:
        return _leaving(record, facts, retries, resumable)
    if record.phase is Phase.CLEARING:
        return _clearing(record, facts)
    return _idle(record, facts)


# --- phases -----------------------------------------------------------------------------------------------


def _forming(record: Record, facts: Facts, gang_s: float) -> Step:
    if record.stop_s is not None:
        return _clear(record, facts, JobState.STOPPED, "asked to stop before its gang stood", epoch=record.granted)
    late = bool(record.each) and _has_had_its_time(record, facts, gang_s)
    if not facts.service_read:
        return _never_asked(record, facts, facts.unreadable) if late and facts.unreadable else Step(record)
    service = facts.service
    if facts.last_words and (service is None or service.ended):
        # Made again at once it would fail again: the arbiter waits longer each time with a job that is lost.
        how = "was ended" if BY_USER.search(facts.last_words) else "failed"
        return _bereaved(record, facts, f"its YARN application {how}: {facts.last_words}")
    # Once a grant: what was made for this one is new, whatever the clocks say.
    old = facts.app is not None and facts.app.submitted_s < record.since_s
    misled = service is not None and astray(record, dict(record.allocation), service, facts.partitions)
    useless = old and (misled or worn_when_moved(facts))
    if service is None or service.ended or useless or not _has(service, record.components):
        if late:
            why = f": {facts.hindered}" if facts.hindered else ""
            return _never_asked(record, facts, f"its service does not run{why}")
        return Step(record, (_MAKE,))
    wanted = shapes.counts(record, dict(record.allocation))
    actions: tuple[Action, ...] = ()
    if service.components and service.flexible and service.counts != wanted:
        actions = (Action(Verb.FLEX, wanted),)
    living = living_instances(service)
    standing = [each for each in living if each.container in facts.members]
    if not actions and len(living) == len(standing) == record.size and _placed_as_granted(record, standing):
        workers = tuple(
            replace(facts.members[each.container], node=each.node) for each in _in_rank_order(record, standing)
        )
        opened = record.into(
            Phase.OPEN, facts.now_s, epoch=record.granted, workers=workers, blocked=None, native="", exit_code=None
        )
        gone = tuple(sorted(set(facts.members) - {each.container for each in standing}))
        return Step(replace(opened, asked=False, stop_s=None), (Action(Verb.FORGET, names=gone),) if gone else ())
    if facts.displaced is not None and len(living) < record.size:
        where = facts.displaced
        room = f"beside it {where.fit} of its {where.of} workers there have room"
        master = "its application master" if record.runtime == SERVICES else "the application master of a slice"
        return _give_back(record, facts, f"{master} came to {where.node}, and {room}")
    if late:
        # The ResourceManager knows of a container before the application master tells of it.
        counted = 0 if facts.app is None else workers_of(record, facts.app)
        given = _given(facts, not actions and record.size in (len(living), counted))
        if given and facts.now_s - record.since_s <= _SLOW_STARTS * gang_s:
            return Step(record)
        came = f"{len(standing)} of its {record.size} workers came within {_within(record, facts, gang_s)}"
        if actions and facts.hindered:
            return _never_asked(record, facts, f"{came}: {facts.hindered}")
        more = f", {_SLOW_STARTS:g} times that passed, and YARN had given {given}" if given else ""
        return _give_back(record, facts, came + more)
    return Step(record, actions)


def _has_had_its_time(record: Record, facts: Facts, gang_s: float) -> bool:
    """It is counted from when YARN could give it anything: once its application master has begun, which on a full
    machine alone may take most of a minute, and the ResourceManager is back. No node is to blame for that."""
    return _asks_s(record, facts) > gang_s or facts.now_s - record.since_s > _SLOW_STARTS * gang_s


def began_late(record: Record, facts: Facts, gang_s: float) -> bool:
    """Whether a gang whose time is over was not asked for in all of it: no node was short of anything."""
    return facts.app is None or _asks_s(record, facts) <= gang_s


def _asks_s(record: Record, facts: Facts) -> float:
    """For how long YARN could have given it anything."""
    return facts.now_s - max(record.since_s, facts.began_s)


def _within(record: Record, facts: Facts, gang_s: float) -> str:
    asks_s = _asks_s(record, facts)
    return f"{gang_s:g} s" if asks_s > gang_s else f"{asks_s:.0f} s, which its application master was late to begin"


def _given(facts: Facts, whole: bool) -> str:
    """The containers that a late gang has, where those are all that YARN can give it now: what is waited for is that
    something begins in them. `whole`: all of its workers have one."""
    if whole:
        return "all of their containers"
    begins = facts.app is not None and facts.app.state != "RUNNING" and facts.app.am_node
    return "its application master a container" if begins else ""


def _open(record: Record, facts: Facts, retries: int, resumable: bool, grace_s: float) -> Step:
    told = _told(record, facts)
    if len(told) == len(record.workers):
        return _judged(record, facts, told, retries, resumable)
    if why := _lost(record, facts, told):
        return _bereaved(record, facts, why)
    if told:
        finished = all(ack.state == State.COMPLETED for ack in told.values())
        if not finished or facts.now_s > min(ack.time_s for ack in told.values()) + grace_s:
            return Step(record.into(Phase.LEAVING, facts.now_s, stop_s=facts.now_s, grace_s=grace_s))
        return Step(record)
    if resumable and (why := worn(facts, RENEW_AT)):
        leaving = record.into(Phase.LEAVING, facts.now_s, stop_s=facts.now_s, grace_s=grace_s, native=why)
        return Step(leaving, leaves=True)
    return _within_its_grant(record, facts)


def _leaving(record: Record, facts: Facts, retries: int, resumable: bool) -> Step:
    told = _told(record, facts)
    if len(told) == len(record.workers):
        return _judged(record, facts, told, retries, resumable)
    if why := _lost(record, facts, told):
        return _bereaved(record, facts, why)
    if out_of_patience(record, facts.now_s):
        outcome = JobState.STOPPED if record.asked else JobState.LOST
        mark = _newest(record, told)
        return _clear(record, facts, outcome, "did not leave in time and was killed", exit_code=137, checkpoint=mark)
    return go_ahead(record, told)


def go_ahead(record: Record, told: Mapping[str, Ack]) -> Step:
    """What a job that leaves for another shape can be flexed to before all its workers have left. `told`: their ends.

    New workers only wait at the gate, and what all workers of a component have left can go. So containers start and
    end while rank 0 still writes its checkpoint.
    """
    if record.next is None or record.runtime != SERVICES or not shapes.covers(record.components, dict(record.next[1])):
        return Step(record)
    now, then = (shapes.counts(record, shape) for shape in (record.placed, dict(record.next[1])))
    names = dict(record.components)
    working = {
        names.get(worker.node, names.get(shapes.ANYWHERE))
        for worker in record.workers
        if worker.name not in told or told[worker.name].state != State.STOPPED
    }
    ahead = {name: now[name] if then[name] < now[name] and name in working else then[name] for name in now}
    if ahead == (dict(record.ahead) or now):
        return Step(record)
    return Step(replace(record, ahead=tuple(ahead.items())), (Action(Verb.FLEX, ahead),))


def _clearing(record: Record, facts: Facts) -> Step:
    service = facts.service
    stuck = facts.unreadable != "" and facts.now_s - record.since_s > MARGIN_S
    gone = (service is None or service.ended) if facts.service_read else stuck
    if gone and facts.app is None:  # a definition that cannot be read holds nothing
        return Step(_cleared(record, facts), (_SWEEP, _DESTROY))
    if not facts.service_read:
        # Nobody answers for it any more: what its application holds is freed all the same.
        return Step(record, (_DESTROY,) if stuck else ())
    if service is None or record.outcome.ended or record.anew:
        # Without its definition, which its owner may have taken away, it cannot be flexed. And an application master
        # does not withdraw what it has asked for, not even when it is flexed to nothing: YARN reserves GPUs for that,
        # and they are nobody's for as long as the application lives.
        return Step(record, (_DESTROY,))
    nothing = dict.fromkeys((name for _, name in record.components), 0)
    if service.components and service.counts != nothing:
        return Step(record, (Action(Verb.FLEX, nothing),) if service.flexible else ())
    holds = facts.app is not None and workers_of(record, facts.app) > 0
    if not service.components or living_instances(service) or holds:
        return Step(record)
    return Step(_cleared(record, facts), (_SWEEP,))


def _idle(record: Record, facts: Facts) -> Step:
    """Nothing to do but to take back what a late flex gave, or a service of a job that has ended."""
    if not record.each and not record.outcome.ended and (facts.app is None or not record.granted):
        return _by_itself(record, facts)
    if facts.last_words and killed_by_owner(record, facts):
        return _bereaved(record, facts, f"its YARN application was ended: {facts.last_words}")
    if facts.app is None or not facts.service_read or not record.granted:
        return Step(record)
    service = facts.service
    if service is None or is_over(record, facts):
        return Step(record, (_DESTROY,))
    if service.components and service.flexible and any(service.counts.values()):
        return Step(record, (Action(Verb.FLEX, dict.fromkeys(service.counts, 0)),))
    return Step(record)


def is_over(record: Record, facts: Facts) -> bool:
    """Whether a job that waits needs its application no more. One that it could not have anew is kept for as long as it
    could train under it."""
    share = RENEW_AT if facts.closed else RENEW_WHEN_MOVED
    return record.outcome.ended or worn(facts, share) != ""


def _by_itself(record: Record, facts: Facts) -> Step:
    """A job without GPUs waits for nobody: it begins, and begins again when it was lost."""
    waits_s = backoff_s(record.granted - 1, AGAIN_S, LONGEST_AGAIN_S) if record.granted else 0.0
    if facts.now_s - record.since_s >= waits_s:
        return Step(replace(record.into(Phase.FORMING, facts.now_s), granted=record.granted + 1, workers=()))
    return Step(record)


# --- ends -------------------------------------------------------------------------------------------------


def _judged(record: Record, facts: Facts, told: Mapping[str, Ack], retries: int, resumable: bool) -> Step:
    """All workers have told how their part ended."""
    acks = [told[worker.name] for worker in record.workers]
    mark = _newest(record, told)
    failed = sorted((ack for ack in acks if ack.state not in (State.STOPPED, State.COMPLETED)), key=_cause)
    if failed:
        first, failures = failed[0], record.failures + 1
        final = failures > retries or not resumable
        back = JobState.STOPPED if record.asked else JobState.LOST
        return _clear(
            replace(record, failures=failures),
            facts,
            JobState.FAILED if final else back,
            f"{first.text or 'failed'}; failure {failures} of {retries + 1}",
            exit_code=first.exit_code,
            checkpoint=mark,
        )
    if all(ack.state == State.COMPLETED for ack in acks):
        return _clear(record, facts, JobState.COMPLETED, "finished", exit_code=0, checkpoint=mark)
    code = next((ack.exit_code for ack in acks if ack.exit_code not in (EXIT_STOPPED, 0)), EXIT_STOPPED)
    if record.next is not None and code == EXIT_STOPPED:
        epoch, allocation = record.next
        formed = record.into(
            Phase.FORMING,
            facts.now_s,
            granted=epoch,
            allocation=allocation,
            workers=(),
            next=None,
            ahead=(),
            stop_s=None,
            asked=False,
            checkpoint=mark,
            outcome=JobState.STOPPED,
            exit_code=code,
        )
        if worn_when_moved(facts) or not shapes.covers(record.components, dict(allocation)):
            return Step(formed)  # a new service is made as soon as the old one was looked at
        counts = shapes.counts(record, dict(allocation))
        return Step(formed, () if counts == dict(record.ahead) else (Action(Verb.FLEX, counts),))
    text = record.native or next((ack.text for ack in acks if ack.exit_code == code), "")
    return _clear(record, facts, JobState.STOPPED, text, exit_code=code, checkpoint=mark)


def _clear(record: Record, facts: Facts, outcome: JobState, native: str, **changes: Any) -> Step:
    cleared = record.into(Phase.CLEARING, facts.now_s, outcome=outcome, native=native, next=None, ahead=(), **changes)
    nothing = dict.fromkeys((name for _, name in record.components), 0)
    first = _DESTROY if outcome.ended or cleared.anew else Action(Verb.FLEX, nothing)
    return Step(cleared, (first,))


def _bereaved(record: Record, facts: Facts, why: str) -> Step:
    """A worker is gone that never told its end."""
    outcome = JobState.CANCELLED if killed_by_owner(record, facts) else JobState.LOST
    return _clear(record, facts, outcome, why, anew=record.runtime == SERVICES)


def _give_back(record: Record, facts: Facts, why: str) -> Step:
    """The gang cannot form: what came goes back, the job is what it was before."""
    text = f"{why}; what came was given back"
    blocked = (BlockKind.GANG.value, text)
    return _clear(record, facts, record.outcome, record.native, blocked=blocked, anew=record.runtime == SERVICES)


def _never_asked(record: Record, facts: Facts, why: str) -> Step:
    """YARN was not asked for the gang, whatever its nodes had: its own service is in the way, or its owner, who can
    make it so at each try. So no GPU is left alone for it, and it is tried again later each time, as what was lost."""
    text = f"{why}; what came was given back"
    return _clear(record, facts, JobState.LOST, text, anew=record.runtime == SERVICES)


def _cleared(record: Record, facts: Facts) -> Record:
    return record.into(Phase.IDLE, facts.now_s, allocation=(), workers=(), stop_s=None, asked=False, anew=False)


# --- looking ----------------------------------------------------------------------------------------------


def living_instances(service: Service) -> list[Instance]:
    return [each for component in service.components.values() for each in component.instances if each.state in LIVING]


def _has(service: Service, components: Sequence[tuple[str, str]]) -> bool:
    """Whether the service has the record's components (none are told until its application master answers)."""
    return not service.components or {name for _, name in components} == set(service.components)


def astray(record: Record, allocation: Allocation, service: Service, partitions: Mapping[str, str]) -> bool:
    """Whether workers of its would ask for a partition that a granted node is in no more, or not for the one it is in:
    what a component asks for is fixed. `partitions`: as in `Facts`."""
    names = dict(record.components)
    for node in allocation:
        part = service.components.get(names.get(node, ""))
        if part is not None and part.partition != partitions.get(node, ""):
            return True
    return False


def _placed_as_granted(record: Record, standing: Sequence[Instance]) -> bool:
    if shapes.ANYWHERE in dict(record.components):
        return True
    found: dict[str, int] = {}
    for each in standing:
        found[each.node] = found.get(each.node, 0) + record.each
    return found == dict(record.allocation)


def _in_rank_order(record: Record, standing: Sequence[Instance]) -> list[Instance]:
    """Node by node as granted, so that neighbours share a node; then by instance number."""
    order = {node: index for index, (node, _) in enumerate(record.allocation)}

    def key(each: Instance) -> tuple[int, str, int]:
        number = re.search(r"-(\d+)$", each.name)
        return order.get(each.node, len(order)), each.node, int(number[1]) if number else 0

    return sorted(standing, key=key)


def _told(record: Record, facts: Facts) -> dict[str, Ack]:
    return {name: ack for name, ack in _of_this_epoch(record, facts.acks).items() if ack.state != State.RUNNING}


def checkpoint_trouble(record: Record, acks: Mapping[str, Ack]) -> str:
    """Why checkpoints of the gang that trains cannot be written, in the words of who writes them."""
    if record.phase not in (Phase.OPEN, Phase.LEAVING):
        return ""
    for ack in _of_this_epoch(record, acks).values():
        if ack.state == State.RUNNING and ack.text:
            return ack.text
    return ""


def _of_this_epoch(record: Record, acks: Mapping[str, Ack]) -> dict[str, Ack]:
    found = {worker.name: acks[worker.name] for worker in record.workers if worker.name in acks}
    return {name: ack for name, ack in found.items() if ack.epoch == record.epoch}


def _lost(record: Record, facts: Facts, told: Mapping[str, Ack]) -> str:
    """Why a worker that has not told its end never will; "" when all may yet."""
    waiting = [worker for worker in record.workers if worker.name not in told]
    for worker in waiting:
        if worker.node in facts.lost_nodes:
            return f"node {worker.node} was lost"
    if not facts.service_read:
        return ""
    service = facts.service
    if service is None or service.ended:
        if facts.app is not None:
            return ""
        return f"its YARN application was ended: {facts.last_words or 'YARN does not say why'}"
    if not service.components or facts.app is None:
        return ""
    living = {each.container for each in living_instances(service)}
    gone = [worker for worker in waiting if worker.name not in living]
    ours = {worker.name for worker in record.workers}
    # An application master that has just been replaced does not list its workers yet: the ResourceManager's own
    # count, or a successor at the gate, must say so too. Of a job on its way to another shape others are there anyway.
    moving = record.next is not None
    others = len(living - ours) if moving else 0
    replaced = not moving and any(name in living and name not in ours for name in facts.members)
    # All others come back to the gate; of a job that moves, some who have told were flexed away.
    left = sum(ack.state == State.COMPLETED or (moving and name not in living) for name, ack in told.items())
    if gone and (replaced or workers_of(record, facts.app) - others < len(record.workers) - left):
        return f"its worker on {gone[0].node} was lost"
    return ""


def killed_by_owner(record: Record, facts: Facts) -> bool:
    """Whether its owner ended its application by YARN's own means, or stopped its service: as good as
    `horae cancel`."""
    found = BY_USER.search(facts.last_words)
    return found is not None and found[1] == record.owner


def _within_its_grant(record: Record, facts: Facts) -> Step:
    """What takes back the workers that somebody added while it trains: they wait at a gate that opens to nobody, and
    their GPUs are counted for nobody."""
    service = facts.service
    if service is None or not service.flexible:
        return Step(record)
    wanted = shapes.counts(record, record.placed)
    if any(each.count > wanted.get(name, 0) for name, each in service.components.items()):
        return Step(
            record, (Action(Verb.FLEX, wanted),), "somebody asked YARN for more of its workers than were granted"
        )
    known = {each.container for each in living_instances(service)} | {each.name for each in record.workers}
    gone = tuple(sorted(facts.members.keys() - known))
    return Step(record, (Action(Verb.FORGET, names=gone),) if gone else ())


def worn(facts: Facts, share: float) -> str:
    """Why the job needs another application, if it does: others pay for it, or it or its HDFS token is older than this
    share of its life."""
    if facts.app is None:
        return ""
    if facts.harm:
        return f"stopped at a checkpoint to be started elsewhere: {facts.harm}"
    age_s = facts.now_s - facts.app.submitted_s
    if share * (age_s + facts.app.left_s) < age_s:
        return OUTLIVED
    return RENEWED if 0 < share * facts.token_life_s < age_s else ""


def worn_when_moved(facts: Facts) -> str:
    """Why a job on its way to another shape needs another application, if it does. Where its queue would take none, it
    keeps the one it has, of whatever age."""
    return worn(facts, 1.0 if facts.closed else RENEW_WHEN_MOVED)


def workers_of(record: Record, app: App) -> int:
    """How many of its workers the ResourceManager counts; the application master has no GPU, and is a container."""
    return app.gpus // record.each if record.each else max(app.containers - 1, 0)


def out_of_patience(record: Record, now_s: float) -> bool:
    """Whether its workers' words are waited for no longer: a gang that forms has its own time."""
    if record.phase is Phase.FORMING:
        return True
    return record.stop_s is not None and now_s > record.stop_s + record.grace_s + MARGIN_S


def awaits(record: Record) -> bool:
    """Whether anybody asks who is at the gate: of a job that leaves for another shape not before all have left."""
    leaves = record.phase is Phase.LEAVING and record.next is None
    return leaves or record.phase in (Phase.FORMING, Phase.OPEN)


def suspicious(record: Record, app: App | None, members: Mapping[str, Worker]) -> bool:
    """Whether a running job's service should be read: a worker is missing, or one more is asked for. One too many is
    one that is still ending."""
    ours = {worker.name for worker in record.workers}
    short = app is None or workers_of(record, app) < len(record.workers)
    return short or (app is not None and app.reserves) or any(name not in ours for name in members)


def _newest(record: Record, told: Mapping[str, Ack]) -> tuple[int, float, float] | None:
    marks = [ack.mark for ack in told.values() if ack.mark is not None]
    return max(marks, default=record.checkpoint)


def _cause(ack: Ack) -> tuple[bool, float]:
    """A worker that failed by itself before those that its end killed."""
    return ack.exit_code > 128 and ack.exit_code != 137, ack.time_s
