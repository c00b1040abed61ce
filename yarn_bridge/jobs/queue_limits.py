"""What the scheduler says of Horae's queue and those below it: limits, and tenants where queues are tenants. Asked for
now and then: it changes with a refresh only."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace

from horae.port import FixConfiguration, PortError, SiteTenant, TryLater
from horae.spec import JobSpec
from policy.model import EMPTY, BadInput, Gpus, JobName, Quota
from yarn_bridge.clients.queues import CORES, GPUS, MEMORY, RUNS, Amounts, Queue, Queues, queues
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.jobs.masters import Beginner, quotas
from yarn_bridge.jobs.partitions import Reach, lets_in
from yarn_bridge.jobs.record import Record
from yarn_bridge.jobs.room import (
    WORDS,
    Ceiling,
    Held,
    Holding,
    Limits,
    caps,
    ceilings,
    held_by,
    of_some,
    of_users,
    own_queues,
    paths,
    placed_in,
    too_many,
)
from yarn_bridge.jobs.shapes import queue_of, same_queue
from yarn_bridge.options import BY_QUEUE, Options

#: what others use in the queue is as old as this at most
_EVERY_S = 20.0
#: the scheduler notes where it keeps nodes only once it was asked, and has come by all of them after this long
_NOTED_S = 3.0
#: who keeps nodes is asked of so many applications
_MOST_APPS = 8


class QueueLimits:
    """What was told last stands while nobody tells."""

    def __init__(self, options: Options, manager: ResourceManager) -> None:
        self._options = options
        self._manager = manager
        self._asked_s = float("-inf")
        self._queues: Queues | None = None
        self._managed: Queue | None = None
        self._held: Sequence[Holding] = ()  #: by our jobs, when that was asked
        self._at: Mapping[str, Held] = {}  #: of that, by node, those in our queue
        self._away: Mapping[str, Held] = {}  #: what jobs in other queues hold
        self.master = Held(0, 1, 0)  #: what YARN gives to an application beside its workers
        self._lived: AbstractSet[str] | None = None  #: our applications when they were asked
        self.kept: Mapping[str, str] = {}  #: nodes where nobody else gets anything -> the application they are kept for
        self._noting: frozenset[str] = frozenset()  #: applications of which the scheduler notes where it keeps nodes
        self.exclusive: frozenset[str] = frozenset()  #: labels of partitions that lend nothing
        self._shut: dict[tuple[str, str], str] = {}  #: queue and user -> why he may not submit to it; "": he may
        self.why = ""  #: why they are not known, or not anew
        self._quotas: Limits = frozenset()  #: limits that are told as quotas, since they do not bind all jobs
        self._beside = False  #: a job in another queue than ours could have more
        self._gone = ""  #: that there is no such queue any more: nothing can be started in it

    def forget(self) -> None:
        """Ask at the next chance."""
        self._asked_s = float("-inf")

    def _is_away(self, spec: JobSpec) -> bool:
        """Whether its job names a queue of its own, whose limits are not those of ours."""
        return self._options.tenants != BY_QUEUE and not self._is_ours(queue_of(spec, self._options))

    def _is_ours(self, queue: str) -> bool:
        return same_queue(queue, self._options.queue)

    def look(
        self,
        held: Sequence[Holding],
        jobs: Sequence[tuple[Record, JobSpec]],
        least_mib: int,
        labels: bool,
        now_s: float,
    ) -> None:
        """Ask again where it is time. `held`: by our jobs; `least_mib`: YARN gives memory in multiples of it; `labels`:
        some nodes have one. Where queues are tenants, raises TryLater or FixConfiguration as long as there is no
        answer: nobody could be told apart."""
        here = [each for each in jobs if not self._is_away(each[1])]
        away = [each for each in jobs if self._is_away(each[1])]
        at = held_by(here, self._options, least_mib)
        self._away = held_by(away, self._options, least_mib)
        if now_s - self._asked_s >= _EVERY_S:
            self._asked_s = now_s
            self._ask(held, at, labels)
            with suppress(PortError):  # what is not known is not left out
                self._ask_who_keeps(now_s)
        if self._options.tenants == BY_QUEUE and self._managed is None:
            self.forget()
            text = f"the queues that are the tenants are not known: {self.why or self._gone}"
            raise TryLater(text) if self.why else FixConfiguration(text)

    def leaves(self) -> tuple[Queue, ...]:
        """The leaf queues that jobs may be in; none where nobody could tell yet."""
        return () if self._managed is None else tuple(self._managed.leaves())

    def troubles(self) -> list[str]:
        """What people should know."""
        told = [f"{self._gone}: nothing is started in it"] if self._gone else []
        unknown = f"the limits of queue {self._options.queue} are not known: {self.why}"
        return [*told, unknown] if self.why else told

    def divide(
        self,
        jobs: Sequence[JobName],
        held: Sequence[Holding],
        beginners: Sequence[Beginner],
        begin: Sequence[Quota],
        got: Reach,
    ) -> None:
        """Which limits of our queue, and of those above, are quotas of those whom they bind: where they are taken off
        the nodes, which is fairer among these, nobody else is offered any more, either. So that is for the time in
        which a job in another queue could have more. `held`: by each job; `begin`: as `beginnings` told; `got`: where
        workers get to."""
        self._quotas = frozenset()
        self._beside = False
        if self._queues is None or self._options.tenants == BY_QUEUE:
            return
        known = dict(zip(jobs, held, strict=True))
        bound = set[JobName]()
        for quota in (*begin, *self.own_queues(jobs, held, beginners, got)):
            bound |= _held_back(quota, known)
        away = {job: each.queue for job, each in known.items() if each.grows and not self._is_ours(each.queue)}
        there = paths(self._queues, set(away.values()))
        self._beside = any(queue in there and job not in bound for job, queue in away.items())
        if self._beside and got.whole and not self._gone:
            self._quotas = of_some(self._queues, self._options.queue, held)

    def ceilings(
        self, label: str, within: Collection[str], begins: bool, held: Sequence[Holding]
    ) -> dict[str, Ceiling]:
        """By resource, in the partition of this label, which has the nodes `within`. None where there is no limit, or
        nobody could tell yet. What jobs in other queues hold comes on top: no limit of this one is theirs. `begins`: an
        application more may come; `held`: by each job."""
        if self._gone:
            return {} if self._beside else {GPUS: Ceiling(0, self._gone)}
        if self._queues is None:
            return {}
        ours = [each for node, each in self._at.items() if node in within]
        found = ceilings(self._queues, self._options.queue, _sum(ours), label, self._quotas)
        if self._managed is not None:
            self._bound_by_users(found, self._managed, label, held)
        master = _sum([self.master] if begins else [])
        away = _sum([each for node, each in self._away.items() if node in within])
        out = {}
        for what, each in found.items():
            ours_at_most = max(each.most - master[what], 0)
            out[what] = replace(each, most=ours_at_most + away[what])
        return out

    def _bound_by_users(self, found: dict[str, Ceiling], managed: Queue, label: str, held: Sequence[Holding]) -> None:
        """`found`, with what all users of ours together may hold in this partition: a tenant's cap is on the sum of
        all."""
        owners = {each.owner for each in held if each.size and self._is_ours(each.queue)}
        users = max(len(owners), 1)
        for what, each in managed.per_user_in.get(label, EMPTY).items():
            most = users * each
            told = found.get(what)
            if (managed.path, what) in self._quotas or (told is not None and told.most <= most):
                continue
            text = f"one user may hold {each} {WORDS[what]} at most in {label or 'the default'} partition"
            found[what] = Ceiling(most, f"queue {managed.path}: {text}")

    def beginnings(self, beginners: Sequence[Beginner], lives: AbstractSet[str], slices: int = 0) -> tuple[Quota, ...]:
        """How many of these jobs may get an application. `lives`: our applications now; `slices`: as `quotas` has
        them."""
        if self._queues is None:
            return ()
        self._lived = lives if self._lived is None else self._lived
        since = len(lives - self._lived) - len(self._lived - lives)
        master = {MEMORY: self.master.memory_mib, CORES: self.master.cpus}
        return quotas(self._queues, beginners, master, since, slices)

    def own_queues(
        self, jobs: Sequence[JobName], held: Sequence[Holding], beginners: Sequence[Beginner], got: Reach
    ) -> tuple[Quota, ...]:
        """What queues let hold jobs that are in other queues than ours; and those in ours, by limits that do not bind
        the others. `held`: by each job, now; `got`: where workers get to."""
        if self._queues is None:
            return ()
        known = dict(zip(jobs, held, strict=True))
        master = {MEMORY: self.master.memory_mib, CORES: self.master.cpus}
        begin = {each.job for each in beginners}
        if self._options.tenants == BY_QUEUE:
            return tuple(quota for leaf in self.leaves() for quota in of_users(leaf, known, begin, master))
        at_home = {job: each for job, each in known.items() if self._is_ours(each.queue)}
        away = {job: each for job, each in known.items() if job not in at_home}
        if not away:
            return ()
        found = own_queues(
            self._queues,
            known if self._quotas else away,
            at_home,
            self._quotas,
            self._held,
            begin,
            master,
            got.binds,
        )
        if self._gone and at_home:
            holds = sum(each.gpus for each in at_home.values())
            found = (*found, Quota(self._gone, tuple(at_home), holds))
        return found

    def keeps_out(self, queue: str, asked: Mapping[str, str]) -> str:
        """Why workers of this leaf queue do not get to these nodes; "" where they do, or nobody tells. `asked`: node ->
        partition that they would ask for."""
        if self._queues is None:
            return ""
        try:
            leaf = self._queues.find(queue)
        except BadInput:
            return ""
        for node, label in asked.items():
            if label != leaf.label and not lets_in(leaf, label):
                return f"queue {leaf.path} is not let into partition {label}, where {node} is"
        return ""

    def is_parent(self, queue: str) -> bool:
        """Whether it takes no application itself; not where nobody tells."""
        if self._queues is not None:
            with suppress(BadInput):
                return self._queues.find(queue).parent
        return False

    def state(self, queue: str) -> str:
        """Of this leaf queue: it takes applications while it is `RUNS`, as one does that nobody tells of."""
        if self._queues is not None:
            with suppress(BadInput):
                return self._queues.find(queue).state
        return RUNS

    def refuses(self, queue: str, owner: str) -> tuple[str, str]:
        """Why this leaf queue would not take a new application of this user's ("": of nobody's), and what mends it; ""
        where it would, or nobody tells."""
        state = self.state(queue)
        if state != RUNS:
            return f"queue {queue} is {state} and takes no new application", f"set the queue's state to {RUNS}"
        if owner and (queue, owner) not in self._shut:
            self._shut[queue, owner] = self._manager.may_submit(queue, owner) or ""
        said = self._shut.get((queue, owner), "")
        remedy = f"the queue's acl_submit_applications names who may ({said})"
        return (f"YARN lets {owner} not submit to queue {queue}", remedy) if said else ("", "")

    def too_large(self, queue: str, worker: Amounts) -> str:
        """Why no container of this size is given in this leaf queue, whatever is free; "" where it is, or nobody tells.
        An application that asks for one fails, or asks for ever."""
        if self._queues is None:
            return ""
        try:
            most = self._queues.find(queue).largest
        except BadInput:
            return ""
        over = [name for name, amount in worker.items() if amount > most.get(name, amount)]
        found = [f"{name} {worker[name]}, {most[name]} at most" for name in over]
        return f"a worker has more than YARN gives one container in queue {queue}: {', '.join(found)}" if found else ""

    def too_many(
        self, job: JobName, shape: Mapping[str, Gpus], jobs: Mapping[JobName, Holding], got: Reach
    ) -> tuple[Gpus, str]:
        """How many GPUs of this shape of the job's would not come, and why: by what its queue, those above it and its
        owner may hold of each partition, which a policy knows in all alone. `jobs`: what each holds now."""
        if self._queues is None or self._gone:
            return 0, ""
        there = paths(self._queues, {each.queue for each in (*self._held, *jobs.values())})
        mine = replace(placed_in(there, jobs[job]), at=shape)
        others = [placed_in(there, each) for name, each in jobs.items() if name != job]
        then = [placed_in(there, each) for each in self._held]
        now = jobs[job].at
        more = {node for node, gpus in shape.items() if gpus > now.get(node, 0)}
        found = [(0, "")]
        for label, nodes in got.binds.items():
            if more.isdisjoint(nodes):
                continue  # nothing is asked for there, whatever was made of the limits since
            wanted = mine.on(nodes)
            beside = [each.on(nodes) for each in others]
            before = [each.on(nodes) for each in then]
            found += too_many(self._queues, label, wanted, beside, before)
        return max(found)

    def caps(self, held: Sequence[Holding], got: Reach) -> dict[str, Gpus]:
        """By tenant. `held`: now; what others use is as it was when that was asked. A user with jobs in other queues
        too has none where quotas say the same of those in ours."""
        if self._queues is None or self._gone:
            return {}
        found = self._caps(self._queues, held, got)
        if self._managed is not None and all((self._managed.path, what) in self._quotas for what in WORDS):
            abroad = {each.owner for each in held if each.size and not self._is_ours(each.queue)}
            found = {tenant: most for tenant, most in found.items() if tenant not in abroad}
        return found

    def _caps(self, queues: Queues, held: Sequence[Holding], got: Reach) -> dict[str, Gpus]:
        asked = {(each.owner, each.queue) for each in self._held}
        new = tuple(each for each in held if (each.owner, each.queue) not in asked)
        return caps(queues, (*self._held, *new), self._options, held, got.binds or {"": ()})

    def kept_for_others(self) -> str:
        """Whose containers keep nodes for themselves while they wait, outside Horae's queue; "" for nobody's."""
        told = [f"{each.reserved} of {each.path}" for each in self._keepers()]
        return f"YARN keeps nodes for containers that wait: {', '.join(told)}" if told else ""

    def _keepers(self) -> list[Queue]:
        """Leaf queues for whose containers nodes are kept, beside Horae's."""
        if self._queues is None or self._managed is None:
            return []
        ours = {each.path for each in self._managed.walk()}
        return [each for each in self._queues.root.leaves() if each.reserved and each.path not in ours]

    def _ask_who_keeps(self, now_s: float) -> None:
        """Which nodes are kept: an application says so, once the scheduler was asked to note it."""
        self.kept = {}
        found = dict[str, str]()
        noting = list[str]()
        for queue in self._keepers():
            for each in self._manager.apps(queue=queue.path, states=("RUNNING", "ACCEPTED")):
                if each.reserves and len(noting) < _MOST_APPS:
                    noting.append(each.id)
                    found |= dict.fromkeys(self._manager.kept_for(each.id, 2 * _EVERY_S), each.id)
        if not self._noting.issuperset(noting):
            self._asked_s = now_s - _EVERY_S + _NOTED_S
        self.kept = found
        self._noting = frozenset(noting)

    def losers(self) -> tuple[str, ...]:
        """Leaf queues that lose containers to requests of our jobs that YARN goes on counting when they are met. Where
        nobody tells, others may."""
        if self._queues is None and not self.why:
            self._ask(self._held, self._at, labels=False)
        if self._queues is None:
            return ("queues that nobody tells of",)
        leaves = () if self._managed is None else self._managed.leaves()
        return self._queues.losers({each.path for each in leaves} | {each.queue for each in self._held})

    def tenants(self) -> tuple[SiteTenant, ...]:
        if self._options.tenants != BY_QUEUE or self._queues is None or self._managed is None:
            return ()
        return self._queues.tenants(self._managed)

    def _ask(self, held: Sequence[Holding], at: Mapping[str, Held], labels: bool) -> None:
        self.why = ""
        self._lived = None
        self._shut = {}
        try:
            found = queues(self._manager.scheduler())
            self.exclusive = self._manager.exclusive_labels() if labels else frozenset()
        except (PortError, BadInput) as error:
            self.why = str(error)
            return
        self._gone = ""
        try:
            self._managed = found.find(self._options.queue)
            if self._managed.parent and self._options.tenants != BY_QUEUE:
                self._gone = f"queue {self._managed.path} is a parent and takes no application itself"
        except BadInput as error:
            self._gone = str(error)
        self._queues = found
        self._held = held
        self._at = dict(at)


def _held_back(quota: Quota, jobs: Mapping[JobName, Holding]) -> set[JobName]:
    """Those of its jobs that it lets have no more."""
    if quota.jobs == 0:
        return set(quota.whom)
    if quota.gpus is None:
        return set()
    left = quota.gpus - sum(jobs[job].gpus for job in quota.whom)
    return {job for job in quota.whom if jobs[job].grows > left}


def _sum(held: Sequence[Held]) -> dict[str, int]:
    return {
        GPUS: sum(each.gpus for each in held),
        MEMORY: sum(each.memory_mib for each in held),
        CORES: sum(each.cpus for each in held),
    }
