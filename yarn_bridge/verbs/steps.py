"""Taking a job's steps: its record is written down, then what the record asks for is done.

A kill anywhere between is healed by the next look, which finds the same step again. The caller holds the lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from horae.port import FixConfiguration, JobId, JobState, Never, PortError, TryLater
from horae.spec import JobSpec
from policy.model import Allocation
from yarn_bridge.clients.errors import Gone, Powerless
from yarn_bridge.clients.http import Unanswered
from yarn_bridge.jobs import shapes
from yarn_bridge.jobs.record import Phase, Record
from yarn_bridge.jobs.room import no_more_than
from yarn_bridge.jobs.state_machine import (
    MARGIN_S,
    Action,
    Facts,
    Step,
    Verb,
    awaits,
    began_late,
    go_ahead,
    living_instances,
)
from yarn_bridge.jobs.store import JobFiles, Seen
from yarn_bridge.options import SERVICES, Options
from yarn_bridge.verbs.executor import LONGEST, JobExecutor
from yarn_bridge.verbs.observer import Next, Observer
from yarn_bridge.verbs.silence import Silence

T = TypeVar("T")
#: what YARN says of an application that a queue lets wait, whoever's it is
_QUEUES = "Queue's AM resource limit"
#: it says nothing where there may be no more applications at a time
_SILENT = "nothing, as where `max-parallel-apps` of its user or of a queue is reached"


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be asked of YARN for one job; its record says so already, and said `before` what it says there."""

    seen: Seen
    action: Action
    before: Record


def each_of(steps: Mapping[JobId, Callable[[], T | None]]) -> tuple[dict[JobId, T], dict[JobId, PortError]]:
    """Each job's step in turn: what it gave, and what failed."""
    given: dict[JobId, T] = {}
    failed: dict[JobId, PortError] = {}
    silence = Silence()
    for job, step in steps.items():
        found = silence.tried(step)
        if isinstance(found, PortError):
            failed[job] = found
        elif found is not None:
            given[job] = found
    return given, failed


class Steps:
    def __init__(
        self,
        options: Options,
        files: JobFiles,
        executor: JobExecutor,
        observer: Observer,
        clock: Callable[[], float],
    ) -> None:
        self._gang_s = options.gang_s
        self._files = files
        self._executor = executor
        self._observer = observer
        self._clock = clock

    def follow_up(self, jobs: Collection[JobId]) -> dict[JobId, PortError]:
        """What the newest look found due, of these jobs and strays. A daemon that does not answer ends it for the
        others too: they are tried again after the next look."""
        errors: dict[JobId, PortError] = {}
        silence = Silence()
        for seen in self._observer.by_silence([job for job in jobs if job in self._observer.due]):
            job = seen.record.job
            due = self._observer.due.pop(job)
            error = silence.tried(partial(self._advance, seen, due))
            if error is None:
                self._observer.needs.silent.pop(job, None)
                continue
            errors[job] = error
            if isinstance(error, Unanswered):
                self._observer.needs.silent[job] = self._clock()
        if silence.of is None:
            errors |= self._executor.end_strays(self._observer.names(), jobs)
        return errors

    def grant(self, seen: Seen, allocation: Allocation, epoch: int) -> Asked:
        """Written down; what YARN is to be asked for it, by `make`."""
        shape = tuple((node, int(gpus)) for node, gpus in allocation.items())
        choice = self._observer.choice()
        record = self._under(seen, choice.runtime)
        components = record.components
        if (shapes.ANYWHERE in dict(components)) is choice.pinned or not shapes.covers(components, allocation):
            components = self._components(choice.pinned)
        granted = record.into(
            Phase.FORMING,
            self._clock(),
            granted=epoch,
            allocation=shape,
            components=components,
            workers=(),
            blocked=None,
            stop_s=None,
            asked=False,
            next=None,
        )
        if not self._observer.lives(seen):
            seen.application = ""  # what became of that one says nothing of this grant
            self._observer.check_master(granted)
        elif not record.granted:
            text = f"{record.job}: {record.owner} has an application {record.service} already, which Horae did not make"
            raise FixConfiguration(f"{text} ({seen.application})", f"yarn application -kill {seen.application}")
        self._begin(seen, granted, aloud=True)
        same = components == record.components
        action = Action(Verb.FLEX, shapes.counts(record, allocation, components)) if same else Action(Verb.MAKE)
        return Asked(seen, action, before=record)

    def make(self, grants: Mapping[JobId, Asked]) -> dict[JobId, PortError]:
        """Ask YARN for what was granted; what it refuses is as it was before. The others stay granted where it did not
        answer, since the record says what is wanted: the next round sees to it."""
        failed = self.do_all(grants)
        refused = {job: error for job, error in failed.items() if not isinstance(error, TryLater | Gone)}
        _, worse = each_of({job: partial(self._taken_back, grants[job], error) for job, error in refused.items()})
        return refused | worse

    def _taken_back(self, grant: Asked, error: PortError) -> None:
        # Not as an obstacle: the arbiter would leave the granted GPUs alone, for all, which are not in its way.
        self.put(grant.seen, replace(grant.before, since_s=self._clock(), native=error.text))

    def _under(self, seen: Seen, runtime: str) -> Record:
        """The record under this runtime; what the job keeps under another one is given back first."""
        record = seen.record
        if record.runtime != runtime:
            if record.granted and not self._executor.end(record):
                raise TryLater(f"{record.job}: what it had as {record.runtime} is still ending")
            self.put(seen, replace(record, runtime=runtime, components=()))
        return seen.record

    def _components(self, pinned: bool) -> tuple[tuple[str, str], ...]:
        return shapes.components_for([node.name for node in self._observer.nodes], pinned)

    def ask(self, seen: Seen, grace_s: float, following: tuple[int, tuple[tuple[str, int], ...]] | None) -> None:
        self._executor.check_power(seen.record)
        now_s = self._clock()
        asked = seen.record.into(Phase.LEAVING, now_s, stop_s=now_s, asked=True, grace_s=grace_s, next=following)
        step = go_ahead(asked, {})
        self._begin(seen, step.record)
        for action in step.actions:
            self.do(seen, action)

    def _begin(self, seen: Seen, record: Record, *, aloud: bool = False) -> None:
        """Nothing is begun for an owner whom we may not act for: the record is again what it was."""
        try:
            self.put(seen, record, aloud=aloud)
        except Powerless:
            self._files.keep(seen.record)
            raise

    def put(self, seen: Seen, record: Record, *, aloud: bool = False) -> None:
        """Written down before it is so, then told to its workers."""
        seen.doubtful = True
        self._files.keep(record)
        seen.shut = self._told(record, aloud)
        seen.doubtful = False
        self._observer.offers.given_back(seen.record, seen.holds, record.held)
        seen.came = seen.came if record.phase is Phase.CLEARING else None
        # Who begins to wait for newcomers asks for other files; what a new epoch's workers say changes the stamp.
        seen.unread = seen.unread or (awaits(record) and not awaits(seen.record))
        if record.phase is Phase.OPEN and seen.record.phase is Phase.FORMING:
            seen.again_s = float("inf")  # all who were waited for have come
        seen.record = record
        seen.unwritten = False

    def _told(self, record: Record, aloud: bool) -> str:
        """Why its workers cannot be told to go, where its owner is in the way: he keeps no GPU by it. Raises PortError
        where others are, and where a gang is to begin."""
        try:
            self._files.tell(record, aloud=aloud)
        except Powerless:
            raise
        except (FixConfiguration, Never) as error:
            if record.phase in (Phase.FORMING, Phase.OPEN):
                raise
            return error.text
        return ""

    def do_all(self, asked: Mapping[JobId, Asked]) -> dict[JobId, PortError]:
        """Side by side; what failed."""
        return self._executor.side_by_side(
            {job: partial(self.do, each.seen, each.action) for job, each in asked.items()}
        )

    def do(self, seen: Seen, action: Action) -> None:
        makes = action.verb in (Verb.MAKE, Verb.FLEX)
        try:
            lives = seen.application if self._observer.lives(seen) else ""
            self._executor.do(seen.record, seen.spec, action, lives)
        except PortError as error:
            seen.hindered = error.text if makes else seen.hindered
            raise
        seen.hindered = "" if makes else seen.hindered
        if action.verb is Verb.FORGET:
            seen.members = {name: each for name, each in seen.members.items() if name not in action.names}
        elif action.verb in (Verb.MAKE, Verb.DESTROY):
            self._observer.forget_apps()

    def _advance(self, seen: Seen, due: Next) -> None:
        if seen.record is not due.record:
            return  # another request came first: the next look says what it needs now
        self._take(seen, due.step, due.facts)
        if due.record.phase is Phase.LEAVING and seen.record.phase is Phase.FORMING:
            facts = self._observer.facts(seen, due.app)
            self._take(seen, self._observer.needs.next(seen, facts), facts)  # its gang may stand already

    def _take(self, seen: Seen, step: Step, facts: Facts) -> None:
        record = step.record
        spec = seen.spec
        if step.leaves:
            self._executor.check_power(record)
        if record.phase is Phase.FORMING and not shapes.covers(record.components, dict(record.allocation)):
            # a node that came later: a new service
            record = replace(record, components=self._components(self._observer.choice().pinned))
        if record is not seen.record:
            # Nobody told what was saved. Read again when its containers are gone: until then a rank may still save.
            record = self._taught(seen, record, facts)
            killed = record.outcome is JobState.LOST or (record.outcome is JobState.STOPPED and record.exit_code == 137)
            if killed and record.phase in (Phase.CLEARING, Phase.IDLE):
                newest = self._newest(seen.record, spec)
                record = replace(record, checkpoint=newest or record.checkpoint)
        if seen.record.phase is Phase.LEAVING and record.phase is Phase.FORMING:
            # The acknowledgements alone say so: whoever reads `leaving` again comes to the same. It is written with
            # what the next step makes of it, which often is that its gang stands.
            self._observer.offers.given_back(seen.record, seen.record.held, record.held)
            seen.record = record
            seen.unread = True
            seen.unwritten = True
        elif record is not seen.record or seen.unwritten:
            self.put(seen, record)
        for action in step.actions:
            self._try(seen, action)

    def _newest(self, record: Record, spec: JobSpec) -> tuple[int, float, float] | None:
        """The job's newest checkpoint; None too for one that its owner lets nobody read, or leaves open for ever: it
        is told to people, and found by the job itself. Nobody's GPU waits for it for long."""
        try:
            return self._files.newest(record, spec)
        except (FixConfiguration, Never):
            return None
        except TryLater:
            if record.phase is Phase.CLEARING and self._clock() < record.since_s + MARGIN_S:
                raise
            return None

    def _try(self, seen: Seen, action: Action) -> None:
        try:
            self.do(seen, action)
        except (FixConfiguration, Never) as error:
            if action.verb is Verb.MAKE and not isinstance(error, Gone):
                self._refused(seen, error)
            raise

    def _refused(self, seen: Seen, error: PortError) -> None:
        """YARN does not take the job's application: what it was granted goes to others while that is so."""
        lost = seen.record.into(Phase.CLEARING, self._clock(), outcome=JobState.LOST, native=error.text, next=None)
        self.put(seen, replace(lost, ahead=(), anew=seen.record.runtime == SERVICES))

    def _taught(self, seen: Seen, after: Record, facts: Facts) -> Record:
        """A gang that came only in part says where there is less room than was thought, or in its queue."""
        before = seen.record
        in_part = before.phase is Phase.FORMING and after.blocked is not None and after.blocked != before.blocked
        if not in_part or after.blocked is None or facts.service is None:
            return after
        if facts.service.components and facts.service.counts != shapes.counts(before, dict(before.allocation)):
            return after  # YARN does not take its FLEX: nobody was asked for the others
        came = Counter(each.node for each in living_instances(facts.service))
        missing = {node: gpus - came[node] * before.each for node, gpus in before.allocation}
        if shapes.ANYWHERE in dict(before.components) or max(missing.values(), default=0) <= 0:
            return after  # YARN chose the nodes, or gave all: no node was short
        kind, text = after.blocked
        if (where := facts.displaced) is not None:
            missing = {where.node: (where.of - where.fit) * before.each}
            told = [text, *self._lesson(seen, missing, {where.node: where.fit})]
            return replace(after, blocked=(kind, "; ".join(told)))
        if facts.app is not None and facts.app.state != "RUNNING":
            if facts.app.am_node:
                return after  # it has its container, and was slow to begin
            said = facts.app.diagnostics[:LONGEST] or _SILENT
            kept = self._observer.limits.kept_for_others()
            told = [f"its application master has no container, and YARN says: {said}", *([kept] if kept else [])]
            lesson = "; ".join([*told, self._no_other_begins(seen, said)])
            return replace(after, blocked=(kind, f"{text}; {lesson}"))
        if began_late(before, facts, self._gang_s):
            return after
        return replace(after, blocked=(kind, "; ".join([text, *self._lesson(seen, missing, came)])))

    def _no_other_begins(self, seen: Seen, said: str) -> str:
        """It was nobody's fault who runs: no other application of its owner's is begun for a while, or of anybody's
        where it was the queue."""
        owner = "" if _QUEUES in said else seen.record.owner
        return self._observer.waited.learn(self._observer.queue(seen.spec), owner, self._clock())

    def _cap(self, seen: Seen, missing: dict[str, int]) -> str:
        """It was no node's fault: the tenant is not offered more than it has for a while."""
        tenant = seen.spec.tenant or seen.record.owner
        most = max(self._observer.held_by_tenant(tenant) - sum(missing.values()), 0)
        return self._observer.lessons.learn_cap(tenant, most, self._clock())

    def _lesson(self, seen: Seen, missing: dict[str, int], came: Mapping[str, int]) -> list[str]:
        """What the scheduler says, and what follows for a while. By node: the GPUs `missing`, the workers that
        `came`."""
        short = {node: gpus for node, gpus in missing.items() if gpus > 0}
        said = [each for each in seen.withheld if each.by_queue or short.keys() & set(each.nodes)]
        if said and all(each.by_queue for each in said):
            lesson = self._cap(seen, missing)
        else:
            size = self._observer.worker_of(seen.spec)
            left = {node: no_more_than(came.get(node, 0), size) for node in short}
            lesson = self._observer.lessons.learn(missing, self._clock(), left)
        told = [f"YARN says: {each.text} ({', '.join(each.nodes)})" for each in said]
        if not said and (kept := self._observer.limits.kept_for_others()):
            told.append(kept)
        self._observer.limits.forget()
        return [*told, lesson] if lesson else told
