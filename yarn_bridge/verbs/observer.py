"""Looking: what the cluster shows of our jobs, and what each of them needs next. Nothing is changed by it.

Three reads a round, whatever the number of jobs that rest or run: the nodes, our running applications and one listing
of the job folders in HDFS tell what changed; only jobs on the move are looked at one by one. The caller holds the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from horae.port import Due, FixConfiguration, JobId, Observation, ObservedJob, PortError, TryLater
from horae.spec import JobSpec
from horae.untrusted import Unbelievable
from policy.model import Allocation, Gpus, Node
from yarn_bridge.clients.errors import Gone
from yarn_bridge.clients.hdfs import Status
from yarn_bridge.clients.http import Unanswered
from yarn_bridge.clients.records import App, NodeReport
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.clients.roll_call import RollCall, unsaved
from yarn_bridge.jobs.grants import check_grant
from yarn_bridge.jobs.kept import Unreadable
from yarn_bridge.jobs.masters import Beginner, MasterRoom, Waited
from yarn_bridge.jobs.partitions import Reach, reach
from yarn_bridge.jobs.queue_limits import QueueLimits
from yarn_bridge.jobs.reading import lost_nodes, observed, one_a_host
from yarn_bridge.jobs.record import Phase, Record
from yarn_bridge.jobs.room import Held, Lessons, held_by, holdings, standing, worker_of
from yarn_bridge.jobs.shapes import HOST_ATTRIBUTE, queue_of, same_queue
from yarn_bridge.jobs.state_machine import Facts, Step, checkpoint_trouble
from yarn_bridge.jobs.store import JobFiles, Seen, foreign
from yarn_bridge.options import SERVICES, SLICES, Options
from yarn_bridge.runtimes.chooser import Choice
from yarn_bridge.verbs.executor import JobExecutor
from yarn_bridge.verbs.needs import Around, Needs
from yarn_bridge.verbs.offers import Offers, Ours

_RESTS = (Phase.IDLE, Phase.OPEN)
#: phases in which a word of its workers is waited for, and in which one may come
_MOVES = {Phase.FORMING, Phase.LEAVING}
_SPEAKS = _MOVES | {Phase.OPEN}
_ALIVE = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")
#: a node has told of a gang that stands
_TELLS_S = 3.0
#: nodes tell of themselves once a second, and for 1,000 of them the ResourceManager needs half of one to answer
_NODES_S = 2.0
#: what lives of ours; the arbiter looks seldomer than that while all that it asked for is under way
_APPS_S = 0.5
#: a grant that a queue's share does not allow is decided anew meanwhile
_AGAIN_S = 5.0
#: why an application is in another queue than it was asked for in
_PUT_THERE = (
    ": the scheduler's placement rules (queue-mappings) or somebody put it there, and the limits there are not counted"
)


def _least(one: Mapping[str, Gpus], other: Mapping[str, Gpus]) -> dict[str, Gpus]:
    return dict(other) | {name: min(gpus, other.get(name, gpus)) for name, gpus in one.items()}


def _reshapes(record: Record) -> bool:
    """Whether it goes to another shape, or comes to one. (Slices come and go with that.)"""
    moves = record.phase is Phase.FORMING or (record.phase is Phase.LEAVING and record.next is not None)
    return moves and record.runtime == SERVICES


def _needs_master(record: Record, has_one: bool) -> bool:
    """Whether it is to have an application master, and YARN has placed none."""
    waits = record.phase is Phase.IDLE and not record.outcome.ended
    return not record.released and (waits or record.phase is Phase.FORMING) and not has_one


def _may_be_another(seen: Seen, entry: Status) -> bool:
    """Whether somebody else may have moved it: by a stamp, when it begins to, and after that with each look."""
    return seen.stamp != entry.modified_s or seen.record.phase not in _RESTS


@dataclass(frozen=True, slots=True)
class Next:
    """A job's next step, as the newest look found it: good as long as its record is the one that it was made from."""

    record: Record
    app: App | None
    facts: Facts
    step: Step

    def __str__(self) -> str:
        """What is about to be done, for the journal."""
        before = self.record.phase
        after = self.step.record.phase
        words = [f"{before} -> {after}"] if before is not after else []
        words += [action.verb.value for action in self.step.actions]
        return ", ".join(words) or "its record is written"


class Observer:
    def __init__(
        self,
        options: Options,
        manager: ResourceManager,
        files: JobFiles,
        executor: JobExecutor,
        clock: Callable[[], float],
    ) -> None:
        self._options = options
        self._manager = manager
        self._files = files
        self._executor = executor
        self._clock = clock
        self.jobs: dict[JobId, Seen] = {}
        self.nodes: tuple[Node, ...] = ()
        self.due: dict[JobId, Next] = {}
        self.token: str | None = None  #: the claim of the arbiter that we serve
        self.untidy = ""  #: why what broken submissions left stays
        self.least_mib = 0  #: YARN gives memory in multiples of this; 0: not known
        self.lessons = Lessons()
        self.limits = QueueLimits(options, manager)
        self.masters = MasterRoom()
        self.waited = Waited()
        self.offers = Offers(options, self.limits, self.lessons, self.masters, clock)
        self._bad: dict[str, tuple[float, str]] = {}  #: folders that are no jobs of ours: (stamp, why)
        self._unread: dict[JobId, Unreadable] = {}  #: jobs of ours of which what we keep cannot be read
        self._rollcall = RollCall()
        self._apps: tuple[float, list[App]] = (float("-inf"), [])  #: when, and what was listed
        self._told: tuple[float, set[str], list[NodeReport]] = (float("-inf"), set(), [])  #: when, applications, nodes
        self._known_gpus: dict[str, Gpus] = {}
        self._named = False  #: every GPU node tells its own name in its attributes
        self._claim: tuple[float, str | None] = (-1.0, None)
        self._lost: frozenset[str] = frozenset()
        self._got = Reach()  #: where workers get to
        self.needs = Needs(options, manager, files, executor, self.limits, clock)
        self._blind, self._back_s = (
            False,
            float("-inf"),
        )  #: the look before came to nothing; when one came through again

    def close(self) -> None:
        self.needs.close()

    @property
    def ours(self) -> bool:
        """Whether our arbiter's claim stood at the last look."""
        return self.token is not None and self._claim[1] == self.token

    def noticed(self) -> int:
        """Whether workers have written; asked only while a job has some who could. For any thread."""
        phases = {seen.record.phase for seen in list(self.jobs.values()) if not seen.record.released}
        stamps = self._files.stamps
        return stamps.news(moves=bool(phases & _MOVES)) if phases & _SPEAKS else stamps.count

    def choice(self) -> Choice:
        return self._executor.chooser.choice(self._named, self.limits.losers())

    def look(self) -> Observation:
        was_blind = self._blind
        self._blind = True
        listed, reports = self._reported()
        apps = self._executor.look(listed)
        complaints = self._refresh()
        self._blind = False
        self._back_s = self._clock() if was_blind else self._back_s
        notes = complaints + unsaved(listed, self._clock()) + ([self.untidy] if self.untidy else [])
        self._lost = lost_nodes(reports, self.nodes)
        self.due = {}
        due = []
        if self.ours:
            notes += self._find_due(apps)
            due = [Due(job, str(each)) for job, each in self.due.items()]
            strays = self._executor.strays(self.names())
            due += [Due(app, f"{name} is of no job and is ended", stray=True) for app, name in strays.items()]
        mine = [seen for seen in self.jobs.values() if not seen.record.released]
        known = [(seen.record, seen.spec) for seen in mine]
        told = holdings(known, self._options, self.least_mib)
        held = held_by(known, self._options, self.least_mib)
        here = self._came(mine)
        came = held_by(known, self._options, self.least_mib, here)
        labels = any(each.labels for each in reports)
        self.limits.look(told, known, self.least_mib, labels, self._clock())
        stands = standing([each.record for each in mine], here)
        ours = Ours(told, held, came, stands, self._unsettled(mine), self._begins())
        self._got = got = self._reach(reports)
        names = [each.record.job for each in mine]
        beginners = self._beginners(mine)
        begin = (
            *self.limits.beginnings(beginners, self._told[1], self._slices()),
            *self.waited.quotas(beginners, self._clock()),
        )
        self.limits.divide(names, told, beginners, begin, got)
        offer = self.offers.of(reports, self._known_gpus, ours, got)
        self.nodes = offer.nodes
        own = self.limits.own_queues(names, told, beginners, got)
        return Observation(
            now_s=self._clock(),
            nodes=self.nodes,
            jobs=tuple(self._observed(each) for each in mine),
            claim=self._claim[1],
            notes=(*notes, *self._elsewhere(mine), *offer.notes),
            due=tuple(due),
            tenants=self.limits.tenants(),
            quotas=(*begin, *own),
            caps=_least(self.limits.caps(told, got), self.lessons.caps(self._clock())),
            unread=tuple(odd.text for odd in self._unread.values()),
        )

    def _elsewhere(self, mine: Sequence[Seen]) -> list[str]:
        """Whose application is not in the queue whose limits we count with."""
        notes = []
        for seen in mine:
            asked = queue_of(seen.spec, self._options)
            found = seen.queue
            if found and not same_queue(found, asked):
                words = f"is in queue {found} and was asked for in {asked}"
                notes.append(f"{seen.record.job}: its application {words}{_PUT_THERE}")
        return notes

    def _beginners(self, mine: Sequence[Seen]) -> list[Beginner]:
        return [
            Beginner(each.record.job, each.record.owner, queue_of(each.spec, self._options))
            for each in mine
            if _needs_master(each.record, self.lives(each))
        ]

    def _slices(self) -> int:
        """The most applications that one job can have beside each other; 0: it has one."""
        choice = self.choice()
        return len(self._known_gpus) if choice.runtime == SLICES and choice.pinned else 0

    def _observed(self, seen: Seen) -> ObservedJob:
        trouble = checkpoint_trouble(seen.record, seen.acks)
        return observed(seen.record, seen.spec, self.nodes, self._page(seen), trouble)

    def _page(self, seen: Seen) -> str:
        lives = seen.application and seen.record.phase is not Phase.CLEARING
        return f"{self._options.resource_manager[0]}/cluster/app/{seen.application}" if lives else ""

    def forget(self) -> None:
        """What was seen of jobs while somebody else moved them: not each of their steps changes a stamp."""
        self.jobs = {}

    def names(self) -> list[JobId]:
        """Of all jobs that have a folder, readable or not."""
        return [*self.jobs, *self._bad, *self._unread]

    def _find_due(self, apps: Mapping[tuple[str, str, str], App]) -> list[str]:
        """What each job needs next; complaints. Those of which a daemon said nothing come last, and one that says
        nothing again ends the round for them: a round takes one time-out at most, and nobody else waits for it."""
        notes = []
        around = self._around()
        for seen in self.by_silence(self.jobs):
            record = seen.record
            if record.released or seen.refused:
                continue
            app = apps.get((record.runtime, record.owner, record.service))
            try:
                facts = self.needs.facts(seen, app, around)
            except Unanswered as error:
                notes.append(f"{record.job}: {error.text}")
                self.needs.silent[record.job] = self._clock()
                break
            except PortError as error:
                notes.append(f"{record.job}: {error.text}")
                continue
            except Unbelievable as error:
                notes.append(f"{record.job}: {error}")
                continue
            step = self.needs.next(seen, facts)
            if step.record is not record or step.actions or seen.unwritten:
                self.due[record.job] = Next(record, app, facts, step)
            elif facts.service_read:
                self.needs.silent.pop(record.job, None)
            if seen.shut:
                notes.append(f"{record.job}: its workers cannot be told to go: {seen.shut}")
            if step.note:
                notes.append(f"{record.job}: {step.note}: they go")
            if facts.unreadable:
                notes.append(f"{record.job}: {facts.unreadable}")
        return notes

    def by_silence(self, jobs: Collection[JobId]) -> list[Seen]:
        known = [self.jobs[job] for job in jobs if job in self.jobs]
        return sorted(known, key=lambda each: self.needs.silent.get(each.record.job, 0.0))

    def find(self, jobs: Collection[JobId]) -> None:
        """One fresh read where any of them was never seen."""
        if any(job not in self.jobs for job in jobs):
            self._refresh()

    def known(self, job: JobId) -> Seen:
        """The job as last read, or found now. Raises Gone when there is none."""
        self.find([job])
        if job in self._unread:
            raise self._unread[job]
        if job not in self.jobs:
            raise Gone(f"there is no job {job} in {self._files.jobs}")
        if why := self.jobs[job].refused:
            raise FixConfiguration(why, f"hdfs dfs -chown {self.jobs[job].record.owner} {self._files.folder(job)}")
        return self.jobs[job]

    def check(self, allocation: Allocation, held: Mapping[str, int]) -> None:
        """Raises Never for what can never be, TryLater for GPUs that are not free. `held`: what it has already."""
        if not self.nodes:
            self.look()
        check_grant(allocation, held, self.nodes, self._held())

    def check_shares(self, seen: Seen, allocation: Allocation) -> None:
        """Raises TryLater where its queue or its owner may not hold so much of a partition: of that a policy knows the
        sum of all alone, and is told at once what would come, before anybody's GPUs stand for it."""
        if not self.choice().pinned:
            return
        live = [each for each in self.jobs.values() if not each.record.released]
        told = holdings([(each.record, each.spec) for each in live], self._options, self.least_mib)
        jobs = {each.record.job: holding for each, holding in zip(live, told, strict=True)}
        job = seen.record.job
        gpus, why = self.limits.too_many(job, allocation, jobs, self._got)
        if gpus:
            tenant = seen.spec.tenant or seen.record.owner
            held = sum(each.gpus for each in told if each.tenant == tenant)
            held -= jobs[job].gpus
            whole = sum(allocation.values())
            lesson = self.lessons.hold_to(tenant, held + whole - gpus, self._clock())
            self.limits.forget()
            raise TryLater(f"{job}: {gpus} of its {whole} GPUs would not come: {why}; {lesson}", retry_after_s=_AGAIN_S)

    def lives(self, seen: Seen) -> bool:
        """Whether it had an application when all were listed last."""
        return seen.application in self._told[1]

    def check_master(self, granted: Record) -> None:
        """Raises TryLater where its application master would have no room beside its workers."""
        known = [(granted if each.record.job == granted.job else each.record, each) for each in self.jobs.values()]
        live = [(record, seen) for record, seen in known if not record.released]
        begin = sum(record.phase is Phase.FORMING and not self.lives(seen) for record, seen in live)
        held = held_by([(record, seen.spec) for record, seen in live], self._options, self.least_mib)
        self.masters.check(granted.job, held, self.limits.master, begin)

    def worker_of(self, spec: JobSpec) -> Held:
        """What YARN gives one worker of this job."""
        return worker_of(spec, self._options, self.least_mib)

    def queue(self, spec: JobSpec) -> str:
        """The leaf queue of this job's applications."""
        return queue_of(spec, self._options)

    def _held(self) -> dict[str, int]:
        taken: dict[str, int] = {}
        for seen in self.jobs.values():
            for node, gpus in {} if seen.record.released else seen.record.held.items():
                taken[node] = taken.get(node, 0) + gpus
        return taken

    def held_by_tenant(self, tenant: str) -> Gpus:
        known = [(seen.record, seen.spec) for seen in self.jobs.values() if not seen.record.released]
        return sum(each.gpus for each in holdings(known, self._options) if each.tenant == tenant)

    # --- reading ---

    def _applications(self) -> list[App]:
        """Ours that live; perhaps as they were a moment ago while gangs change their shape in those that run, and
        nothing else moves: what is waited for then is told in HDFS."""
        running = self._running()
        moving = [seen for seen in self.jobs.values() if seen.record.phase not in _RESTS]
        told_in_hdfs = moving and all(_reshapes(each.record) and each.application in running for each in moving)
        if not told_in_hdfs or self._clock() - self._apps[0] >= _APPS_S:
            self.forget_apps()
            listed = self._manager.apps(kinds=self._executor.kinds, states=_ALIVE)
            self._apps = (self._clock(), listed)
        return self._apps[1]

    def _running(self) -> set[str]:
        return {each.id for each in self._apps[1] if each.state == "RUNNING"}

    def forget_apps(self) -> None:
        """One comes or goes."""
        self._apps = (float("-inf"), [])

    def _reported(self) -> tuple[list[App], list[NodeReport]]:
        """Our applications that live, and all nodes. The nodes are asked first, so that all that they tell of ours as
        used is among what the ResourceManager counts for us; while a job moves and no application came or went, they
        are perhaps as they were a moment ago."""
        moves = any(seen.record.phase not in _RESTS for seen in self.jobs.values())
        fresh = not moves or self._clock() - self._told[0] >= _NODES_S
        if fresh:
            self._ask_nodes()
        listed = self._applications()
        apps = {each.id for each in listed}
        if not fresh and apps != self._told[1]:
            self._ask_nodes()
        self._told = (self._told[0], apps, self._told[2])
        return listed, self._told[2]

    def _ask_nodes(self) -> None:
        """Of a ResourceManager that was started anew nothing is believed before it has told its nodes."""
        before = self._told[1]
        self._told = (float("-inf"), set(), [])
        reports = self.read_nodes()
        self._rollcall.check(reports, self.nodes, self._clock(), self._manager.info)
        self._told = (self._clock(), before, reports)

    def read_nodes(self) -> list[NodeReport]:
        reports = self._manager.nodes()
        up = [each for each in reports if each.gpus and each.state == "RUNNING"]
        self._known_gpus |= {each.host: each.gpus for each in up}
        told = {each.attributes.get(HOST_ATTRIBUTE) == each.host for each in up}
        if len(told) == 1:  # a node alone that does not tell its name any more, or not yet, is left out
            self._named = told.pop()
        return reports

    def _reach(self, reports: list[NodeReport]) -> Reach:
        """Where workers get to; what they must ask for is told to the runtime."""
        choice = self.choice()
        asks = choice.pinned and choice.runtime == SERVICES
        named = HOST_ATTRIBUTE if choice.pinned else ""
        got = reach(one_a_host(reports), self.limits.leaves(), self.limits.exclusive, asks, named)
        self._executor.by_service.partitions = got.asked
        names = {each.host: each.gpu_name for each in one_a_host(reports) if each.gpus}
        self._executor.by_service.names = self._executor.by_slices.names = names
        return got

    def _came(self, jobs: Sequence[Seen]) -> dict[JobId, Mapping[str, Gpus]]:
        """What our jobs have by node. What came of a gang that forms counts only where it was listed after the nodes
        had told of themselves: else what came between would be somebody else's."""
        listed_last = self._apps[0] >= self._told[0]
        return {each.record.job: each.holds for each in jobs if listed_last or each.record.phase is not Phase.FORMING}

    def _unsettled(self, jobs: Sequence[Seen]) -> set[str]:
        """Nodes that may not have told yet of all that comes to these jobs, or goes."""
        now_s = self._clock()
        moving = [
            each.record
            for each in jobs
            if each.record.phase not in _RESTS
            or (each.record.phase is Phase.OPEN and now_s - each.record.since_s < _TELLS_S)
        ]
        return {node for each in moving for node in each.claims}

    def _begins(self) -> bool:
        """Whether a job is to have an application master, and YARN has placed none."""
        running = self._running()
        return any(_needs_master(each.record, each.application in running) for each in self.jobs.values())

    def _refresh(self) -> list[str]:
        """Read again what changed in HDFS since the last round; complaints."""
        entries = self._files.listed()
        claim = entries.pop(".claim", None)
        if claim is None and self._claim[1] is not None:
            raise TryLater(f"the listing of {self._files.jobs} lacks the arbiter's claim: it is not believed", 5.0)
        stamp = claim.modified_s if claim else 0.0
        alone = stamp == self._claim[0] and self.ours  # nobody else has claimed since the last look
        if stamp != self._claim[0]:
            self._claim = (stamp, self._files.claim() if claim else None)
        jobs: dict[JobId, Seen] = {}
        self._unread = {}
        for name, entry in entries.items():
            if name.startswith(".") or not entry.folder:
                continue
            try:
                seen = self._read(name, entry, alone)
            except Unreadable as odd:
                self._unread[name] = odd
                continue
            if seen is None:
                continue
            if seen.stamp != entry.modified_s:
                seen.stamp = entry.modified_s
                seen.unread = True
            against = foreign(seen.record, entry)
            seen.refused = f"{self._files.folder(name)} {against}" if against else ""
            jobs[name] = seen
        self.jobs = jobs
        refused = [seen.refused for seen in jobs.values() if seen.refused]
        return refused + [why for name, (_, why) in self._bad.items() if name in entries]

    def _read(self, job: JobId, entry: Status, alone: bool) -> Seen | None:
        """As it stands in HDFS, as far as that may have changed; None for what is no job of ours. Raises Unreadable."""
        seen = self.jobs.get(job)
        if seen is not None:
            if seen.doubtful or (not alone and _may_be_another(seen, entry)):
                self._files.reread(seen)
            return seen
        if self._bad.get(job, (-1.0, ""))[0] == entry.modified_s:
            return None
        found = self._files.read(job, entry)
        if isinstance(found, Seen):
            return found
        self._bad[job] = (entry.modified_s, found)
        return None

    def facts(self, seen: Seen, app: App | None) -> Facts:
        """What this job's next step depends on. Raises PortError, Unbelievable."""
        return self.needs.facts(seen, app, self._around())

    def _around(self) -> Around:
        return Around(self._lost, self._told[2], self.choice().harm, self._back_s, self.least_mib)
