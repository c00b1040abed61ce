"""Looking: what the cluster shows of our jobs, and what each of them needs next. Nothing is changed by it.

Three reads a round, whatever the number of jobs that rest or run: the nodes, our running applications and one listing
of the job folders in HDFS tell what changed; only jobs on the move are looked at one by one. The caller holds the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from horae.port import Due, FixConfiguration, JobId, Never, Observation, ObservedJob, PortError, TryLater
from horae.spec import JobSpec
from horae.untrusted import Unbelievable
from policy.model import Allocation, Gpus, Node
from yarn_bridge.clients.errors import Gone
from yarn_bridge.clients.hdfs import Status
from yarn_bridge.clients.http import Unanswered
from yarn_bridge.clients.records import App, NodeReport, Service
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.clients.roll_call import RollCall, unsaved
from yarn_bridge.jobs.grants import check_grant
from yarn_bridge.jobs.masters import Beginner, Displaced, MasterRoom, displaced
from yarn_bridge.jobs.partitions import Reach, reach
from yarn_bridge.jobs.queue_limits import QueueLimits
from yarn_bridge.jobs.reading import arrived, lost_nodes, observed, one_a_host
from yarn_bridge.jobs.record import Phase, Record
from yarn_bridge.jobs.room import Held, Lessons, held_by, holdings, standing, worker_of
from yarn_bridge.jobs.shapes import ANYWHERE, HOST_ATTRIBUTE, queue_of, same_queue
from yarn_bridge.jobs.state_machine import (
    RENEW_WHEN_MOVED,
    Facts,
    Step,
    awaits,
    checkpoint_trouble,
    is_over,
    next_step,
    out_of_patience,
    suspicious,
    workers_of,
    worn,
)
from yarn_bridge.jobs.store import JobFiles, Seen, foreign
from yarn_bridge.jobs.token_life import TokenLife
from yarn_bridge.options import SERVICES, SLICES, Options
from yarn_bridge.runtimes.chooser import Choice
from yarn_bridge.verbs.executor import JobExecutor
from yarn_bridge.verbs.offers import Offers, Ours

_RESTS = (Phase.IDLE, Phase.OPEN)
#: phases in which a word of its workers is waited for, and in which one may come
_MOVES = {Phase.FORMING, Phase.LEAVING}
#: phases in which an old application makes way for another
_NEEDS_ANOTHER = {Phase.FORMING, Phase.IDLE}
_SPEAKS = _MOVES | {Phase.OPEN}
_ALIVE = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")
#: the service of a job on the move is read at least this often
_LOOK_S = 2.0
#: a node has told of a gang that stands
_TELLS_S = 3.0
#: a gang that does not stand after this long, or a third of its time, is asked about
_ASK_WHY_S = 15.0
#: nodes tell of themselves once a second, and for 1,000 of them the ResourceManager needs half of one to answer
_NODES_S = 2.0
#: what lives of ours; the arbiter looks seldomer than that while all that it asked for is under way
_APPS_S = 0.5
#: a stamp is milliseconds: what was written in the one in which it was read is seen by another reading, this much later
_SETTLED_S = 1.0


#: An owner can stop his application master, so that each question takes a whole time-out: for so many times as long
#: nobody asks for a service again that was not answered for. Once in so many seconds it may be the ResourceManager that
#: was slow, and is asked again after as long as it took.
_HUSH, _FORGIVEN_S = 9.0, 600.0


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


def _lost_its_master(seen: Seen, app: App | None) -> bool:
    """Whether it waits, and had an application before that it could have kept."""
    record = seen.record
    waits = record.phase is Phase.IDLE and not record.outcome.ended
    had = record.granted > 0 and seen.application != ""  # before its first grant there was none of ours
    return waits and had and app is None and record.runtime == SERVICES


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
        self.silent: dict[JobId, float] = {}  #: when a request for this job was not answered in time
        self.token: str | None = None  #: the claim of the arbiter that we serve
        self.untidy = ""  #: why what broken submissions left stays
        self.least_mib = 0  #: YARN gives memory in multiples of this; 0: not known
        self.lessons = Lessons()
        self.limits = QueueLimits(options, manager)
        self.masters = MasterRoom()
        self.offers = Offers(options, self.limits, self.lessons, self.masters, clock)
        self._bad: dict[str, tuple[float, str]] = {}  #: folders that cannot be read: (stamp, why)
        self._rollcall = RollCall()
        self._apps: tuple[float, list[App]] = (float("-inf"), [])  #: when, and what was listed
        self._told: tuple[float, set[str], list[NodeReport]] = (float("-inf"), set(), [])  #: when, applications, nodes
        self._known_gpus: dict[str, Gpus] = {}
        self._named = False  #: every GPU node tells its own name in its attributes
        self._claim: tuple[float, str | None] = (-1.0, None)
        self._lost: frozenset[str] = frozenset()
        self._token_life = TokenLife(options, clock)
        self._hush_s = float("-inf")  #: until when services of which nothing was heard are not asked for
        self._blind, self._back_s = (
            False,
            float("-inf"),
        )  #: the look before came to nothing; when one came through again

    def close(self) -> None:
        self._token_life.close()

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
        got = self._reach(reports)
        names = [each.record.job for each in mine]
        beginners = self._beginners(mine)
        begin = self.limits.beginnings(beginners, self._told[1])
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
            caps=_least(self.limits.caps(told), self.lessons.caps(self._clock())),
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
        return [*self.jobs, *self._bad]

    def _find_due(self, apps: Mapping[tuple[str, str, str], App]) -> list[str]:
        """What each job needs next; complaints. Those of which a daemon said nothing come last, and one that says
        nothing again ends the round for them: a round takes one time-out at most, and nobody else waits for it."""
        notes = []
        for seen in self.by_silence(self.jobs):
            record = seen.record
            if record.released or seen.refused:
                continue
            app = apps.get((record.runtime, record.owner, record.service))
            try:
                facts = self.facts(seen, app)
            except Unanswered as error:
                notes.append(f"{record.job}: {error.text}")
                self.silent[record.job] = self._clock()
                break
            except PortError as error:
                notes.append(f"{record.job}: {error.text}")
                continue
            except Unbelievable as error:
                notes.append(f"{record.job}: {error}")
                continue
            step = self.next(seen, facts)
            if step.record is not record or step.actions or seen.unwritten:
                self.due[record.job] = Next(record, app, facts, step)
            elif facts.service_read:
                self.silent.pop(record.job, None)
            if seen.shut:
                notes.append(f"{record.job}: its workers cannot be told to go: {seen.shut}")
            if step.note:
                notes.append(f"{record.job}: {step.note}: they go")
            if facts.unreadable:
                notes.append(f"{record.job}: {facts.unreadable}")
        return notes

    def by_silence(self, jobs: Collection[JobId]) -> list[Seen]:
        known = [self.jobs[job] for job in jobs if job in self.jobs]
        return sorted(known, key=lambda each: self.silent.get(each.record.job, 0.0))

    def find(self, jobs: Collection[JobId]) -> None:
        """One fresh read where any of them was never seen."""
        if any(job not in self.jobs for job in jobs):
            self._refresh()

    def known(self, job: JobId) -> Seen:
        """The job as last read, or found now. Raises Gone when there is none."""
        self.find([job])
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
        for name, entry in entries.items():
            if name.startswith(".") or not entry.folder:
                continue
            seen = self.jobs.get(name)
            if seen is None:
                if self._bad.get(name, (-1.0, ""))[0] == entry.modified_s:
                    continue
                found = self._files.read(name, entry)
                if isinstance(found, str):
                    self._bad[name] = (entry.modified_s, found)
                    continue
                seen = found
            elif seen.doubtful or (not alone and _may_be_another(seen, entry)):
                self._files.reread(seen)
            if seen.stamp != entry.modified_s:
                seen.stamp = entry.modified_s
                seen.unread = True
            against = foreign(seen.record, entry)
            seen.refused = f"{self._files.folder(name)} {against}" if against else ""
            jobs[name] = seen
        self.jobs = jobs
        refused = [seen.refused for seen in jobs.values() if seen.refused]
        return refused + [why for name, (_, why) in self._bad.items() if name in entries]

    def facts(self, seen: Seen, app: App | None) -> Facts:
        """What this job's next step depends on: nothing more is read of a job that rests or runs as it should."""
        record = seen.record
        if seen.unread or self._clock() >= seen.again_s:
            self._hear(seen)
        seen.queue = ""
        if app is not None:
            seen.application = app.id
            seen.queue = app.queue
        runs = app is not None and app.state == "RUNNING"
        seen.began_s = (seen.began_s or self._clock()) if runs else 0.0
        life_s = self._token_life.seconds()
        pinned = bool(record.components) and ANYWHERE not in dict(record.components)
        harm = self.choice().harm if pinned else ""
        cheap = Facts(
            self._clock(),
            app,
            None,
            False,
            seen.members,
            seen.acks,
            self._lost,
            life_s,
            unreadable=seen.unheard,
            harm=harm,
            hindered=seen.hindered,
            began_s=max(seen.began_s, self._back_s),
            partitions=self._executor.by_service.partitions,
        )
        if record.phase in _NEEDS_ANOTHER and worn(cheap, RENEW_WHEN_MOVED):
            why, _ = self.limits.refuses(queue_of(seen.spec, self._options), record.owner)
            cheap = replace(cheap, closed=why != "")
        if record.phase is Phase.FORMING:
            seen.came = arrived(record, app, None, seen.came)
        if _lost_its_master(seen, app):
            return self._without_master(seen, cheap)
        return self._with_service(seen, cheap) if self._worth_reading(seen, cheap) else cheap

    def _with_service(self, seen: Seen, cheap: Facts) -> Facts:
        """The dearest read there is, which its owner can make last as long as nobody answers at all."""
        record = seen.record
        app = cheap.app
        seen.looked_s = self._clock()
        if app is not None and record.job in self.silent and seen.looked_s < self._hush_s:
            return replace(cheap, unreadable="its application master did not answer; it is asked again later")
        try:
            service = self._executor.read(record)
        except Unanswered:
            now_s = self._clock()
            times = _HUSH if now_s < self._hush_s + _FORGIVEN_S else 1.0
            self._hush_s = now_s + times * (now_s - seen.looked_s)
            raise
        except PortError as error:
            return replace(cheap, unreadable=error.text)
        if record.phase is Phase.FORMING and app is not None:
            seen.came = arrived(record, app, service, seen.came)
            self._ask_why(seen, app)
            cheap = replace(cheap, displaced=self._displaced(seen, app))
        words = self._words(seen, app, service)
        return replace(cheap, service=service, service_read=True, last_words=words)

    def _displaced(self, seen: Seen, app: App) -> Displaced | None:
        record = seen.record
        if not record.each or ANYWHERE in dict(record.components):
            return None
        workers = {node: gpus // record.each for node, gpus in record.allocation}
        hosts = self._executor.hosts(record, app)
        return displaced(workers, hosts, self._told[2], self.limits.master, self.worker_of(seen.spec))

    def _without_master(self, seen: Seen, facts: Facts) -> Facts:
        """Of a job that waits, and has an application no more: whether somebody ended that."""
        words = self._executor.ended_by(seen.application)
        seen.application = ""
        return replace(facts, last_words=words)

    def _hear(self, seen: Seen) -> None:
        """What its workers wrote. The owner of a folder may close it, or fill it until nobody reads through it: that
        keeps him no GPU longer than silence does. Raises PortError, Unbelievable while that is not over."""
        seen.unheard = ""
        try:
            self._read_words(seen)
        except (FixConfiguration, Never, Unbelievable) as error:
            if not out_of_patience(seen.record, self._clock()):
                raise
            seen.members = {}
            seen.acks = {}
            seen.unheard = str(error)

    def _read_words(self, seen: Seen) -> None:
        """What they wrote, where that says anything in its phase. Only a reading that came through counts."""
        record = seen.record
        now_s = self._clock()
        leaves = record.phase is Phase.LEAVING
        seen.acks = self._files.acks(record) if record.phase is Phase.OPEN or leaves else {}
        seen.members = self._files.members(record) if awaits(record) else {}
        seen.again_s = now_s + _SETTLED_S if seen.unread else float("inf")
        seen.unread = False

    def _words(self, seen: Seen, app: App | None, service: Service | None) -> str:
        """What YARN says of the end of an application that is gone; "" where that is no news."""
        phase = seen.record.phase
        if app is not None:
            return ""
        if phase in (Phase.OPEN, Phase.LEAVING) and seen.application:
            return self._executor.last_words(seen.application)
        failed = phase is Phase.FORMING and (service is None or service.ended)
        return self._executor.refusal(seen.record, seen.application) if failed else ""

    def _ask_why(self, seen: Seen, app: App) -> None:
        """What the scheduler says of a gang that is late; it notes nothing before it is asked."""
        gang_s = self._options.gang_s
        forming_s = self._clock() - seen.record.since_s
        if forming_s < min(_ASK_WHY_S, gang_s / 3):
            seen.withheld = ()
            return
        with suppress(PortError):  # words alone: a gang is waited for, or given back, without them as well
            seen.withheld = self._manager.activities(app.id, 4 * _LOOK_S, seen.record.owner) or seen.withheld

    def _worth_reading(self, seen: Seen, facts: Facts) -> bool:
        """Whether to ask for the service, the dearest read there is: when the cheap ones say that it has news."""
        record = seen.record
        app = facts.app
        overdue = self._clock() - seen.looked_s > _LOOK_S
        if record.phase is Phase.FORMING:
            if app is not None and app.state != "RUNNING":
                return overdue and self._clock() - record.since_s > self._options.gang_s
            return overdue or (app is not None and len(seen.members) >= record.size)
        if record.phase is Phase.LEAVING and record.next is not None:  # containers come and go as they should
            return app is None or (overdue and self._clock() - record.since_s > _LOOK_S)
        if record.phase is Phase.CLEARING:
            return overdue or app is None or workers_of(record, app) == 0
        if record.phase is Phase.IDLE:
            useless = record.runtime == SLICES or is_over(record, facts)
            return app is not None and (workers_of(record, app) > 0 or useless) and overdue
        return suspicious(record, app, seen.members)

    def next(self, seen: Seen, facts: Facts) -> Step:
        if seen.unwritten and seen.record.phase is Phase.LEAVING:
            # Its workers have yet to be told, however long ago it was decided: their time begins when they are.
            untold = replace(seen.record, stop_s=self._clock())
            return Step(untold)
        spec = seen.spec
        resumable = spec.checkpoint is not None or bool(spec.extra.get("self_checkpointing"))
        return next_step(seen.record, facts, spec.retries, resumable, spec.grace_s, self._options.gang_s)
