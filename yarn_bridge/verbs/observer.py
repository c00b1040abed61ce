"""Looking: what the cluster shows of our jobs, and what each of them needs next. Nothing is changed by it.

Three reads a round, whatever the number of jobs that rest or run: the nodes, our running applications and one listing
of the job folders in HDFS tell what changed; only jobs on the move are looked at one by one. The caller holds the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from horae.port import Due, FixConfiguration, JobId, Observation, PortError, TryLater
from horae.spec import JobSpec
from horae.untrusted import Unbelievable
from policy.model import Allocation, Gpus, Node
from yarn_bridge.clients.errors import Gone
from yarn_bridge.clients.http import Unanswered
from yarn_bridge.clients.records import App, NodeReport
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.clients.roll_call import RollCall, unsaved
from yarn_bridge.jobs.grants import check_grant
from yarn_bridge.jobs.queue_limits import QueueLimits
from yarn_bridge.jobs.reading import lost_nodes, nodes_of, observed
from yarn_bridge.jobs.record import Phase, Record
from yarn_bridge.jobs.room import Lessons, below, held_by, holdings
from yarn_bridge.jobs.state_machine import RENEW_WHEN_MOVED, Facts, Step, is_worn, next_step, suspicious
from yarn_bridge.jobs.store import JobFiles, Seen, foreign
from yarn_bridge.jobs.token_life import TokenLife
from yarn_bridge.options import SLICES, Options
from yarn_bridge.runtimes.chooser import Choice, named_nodes
from yarn_bridge.verbs.executor import JobExecutor

_ALIVE = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")
#: the service of a job on the move is read at least this often
_LOOK_S = 2.0


@dataclass(frozen=True, slots=True)
class Next:
    """A job's next step, as the newest look found it: good as long as its record is the one that it was made from."""

    record: Record
    app: App | None
    facts: Facts
    step: Step

    def __str__(self) -> str:
        """What is about to be done, for the journal."""
        before, after = self.record.phase, self.step.record.phase
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
        self._options, self._manager, self._files = options, manager, files
        self._executor, self._clock = executor, clock
        self.jobs: dict[JobId, Seen] = {}
        self.nodes: tuple[Node, ...] = ()
        self.due: dict[JobId, Next] = {}
        self.silent: dict[JobId, float] = {}  #: when a request for this job was not answered in time
        self.token: str | None = None  #: the claim of the arbiter that we serve
        self.untidy = ""  #: why what broken submissions left stays
        self.least_mib = 0  #: YARN gives memory in multiples of this; 0: not known
        self.lessons, self.limits = Lessons(), QueueLimits(options, manager)
        self._bad: dict[str, tuple[float, str]] = {}  #: folders that cannot be read: (stamp, why)
        self._rollcall = RollCall()
        self._known_gpus: dict[str, Gpus] = {}
        self._named = False  #: every GPU node tells its own name in its attributes
        self._claim: tuple[float, str | None] = (-1.0, None)
        self._lost: frozenset[str] = frozenset()
        self._token_life = TokenLife(options, clock)

    def close(self) -> None:
        self._token_life.close()

    @property
    def ours(self) -> bool:
        """Whether our arbiter's claim stood at the last look."""
        return self.token is not None and self._claim[1] == self.token

    def choice(self) -> Choice:
        return self._executor.chooser.choice(self._named)

    def look(self) -> Observation:
        reports = self.read_nodes()
        self._rollcall.check(reports, self.nodes, self._clock(), self._manager.info)
        listed = self._manager.apps(kinds=self._executor.kinds, states=_ALIVE)
        apps = self._executor.look(listed)
        notes = self._refresh() + unsaved(listed, self._clock()) + ([self.untidy] if self.untidy else [])
        self._lost = lost_nodes(reports, self.nodes)
        self.due, due = {}, []
        if self.ours:
            notes += self._find_due(apps)
            due = [Due(job, str(each)) for job, each in self.due.items()]
            strays = self._executor.strays(self.names())
            due += [Due(app, f"{name} is of no job and is ended", stray=True) for app, name in strays.items()]
        mine = [seen for seen in self.jobs.values() if not seen.record.released]
        known = [(seen.record, seen.spec) for seen in mine]
        told = holdings(known, self._options)
        self.limits.look(told, self._clock())
        self.nodes = self._usable(reports, known, notes)
        return Observation(
            now_s=self._clock(),
            nodes=self.nodes,
            jobs=tuple(observed(record, spec, self.nodes) for record, spec in known),
            claim=self._claim[1],
            notes=tuple(notes),
            due=tuple(due),
            tenants=self.limits.tenants(),
            caps=self.limits.caps(told),
        )

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
            if facts.unreadable:
                notes.append(f"{record.job}: {facts.unreadable}")
        return notes

    def by_silence(self, jobs: Collection[JobId]) -> list[Seen]:
        known = [self.jobs[job] for job in jobs if job in self.jobs]
        return sorted(known, key=lambda each: self.silent.get(each.record.job, 0.0))

    def known(self, job: JobId) -> Seen:
        """The job as last read; one fresh read when it was never seen. Raises Gone when there is none."""
        if job not in self.jobs:
            self._refresh()
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

    def _held(self) -> dict[str, int]:
        taken: dict[str, int] = {}
        for seen in self.jobs.values():
            if seen.record.phase is not Phase.IDLE and not seen.record.released:
                for node, gpus in seen.record.claims.items():
                    taken[node] = taken.get(node, 0) + gpus
        return taken

    # --- reading ---

    def read_nodes(self) -> list[NodeReport]:
        reports = self._manager.nodes()
        for each in reports:
            if each.gpus and each.state == "RUNNING":
                self._known_gpus[each.host] = each.gpus
        if any(each.gpus and each.state == "RUNNING" for each in reports):
            self._named = named_nodes(reports)
        return reports

    def _usable(
        self, reports: list[NodeReport], jobs: Sequence[tuple[Record, JobSpec]], notes: list[str]
    ) -> tuple[Node, ...]:
        """The nodes, without the free GPUs that we could not have; `notes` grows by why."""
        now_s = self._clock()
        held = held_by(jobs, self._options, self.least_mib)
        nodes = nodes_of(reports, held, self._known_gpus, self._options)
        nodes = self.lessons.heeded(nodes, held, now_s)
        notes += self.lessons.notes(now_s)
        limit = self.limits.ceiling()
        if self.limits.why:
            notes.append(f"the limits of queue {self._options.queue} are not known: {self.limits.why}")
        if limit is None:
            return nodes
        fewer = below(nodes, held, limit.gpus)
        if fewer != nodes:
            notes.append(f"{limit.text}: other free GPUs are not offered")
        return fewer

    def _refresh(self) -> list[str]:
        """Read again what changed in HDFS since the last round; complaints."""
        entries = self._files.entries()
        claim = entries.pop(".claim", None)
        if claim is None and self._claim[1] is not None:
            raise TryLater(f"the listing of {self._files.jobs} lacks the arbiter's claim: it is not believed", 5.0)
        stamp = claim.modified_s if claim else 0.0
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
            elif seen.stamp != entry.modified_s:
                if not (seen.unwritten and self.ours):
                    self._files.reread(seen)
                seen.stamp, seen.unsettled = entry.modified_s, 2
            against = foreign(seen.record, entry)
            seen.refused = f"{self._files.folder(name)} {against}" if against else ""
            jobs[name] = seen
        self.jobs = jobs
        refused = [seen.refused for seen in jobs.values() if seen.refused]
        return refused + [why for name, (_, why) in self._bad.items() if name in entries]

    def facts(self, seen: Seen, app: App | None) -> Facts:
        """What this job's next step depends on: nothing more is read of a job that rests or runs as it should."""
        record = seen.record
        if seen.unsettled > 0:
            seen.acks = self._files.acks(record) if record.workers else {}
            seen.members = self._files.members(record) if record.phase is not Phase.IDLE else {}
            seen.unsettled -= 1  # only a read that came through counts
        seen.application = seen.application if app is None else app.id
        life_s = self._token_life.seconds()
        cheap = Facts(self._clock(), app, None, False, seen.members, seen.acks, self._lost, life_s)
        if not self._worth_reading(seen, cheap):
            return cheap
        seen.looked_s = self._clock()
        try:
            service = self._executor.read(record)
        except PortError as error:
            return replace(cheap, unreadable=error.text)
        words = ""
        if app is None and record.phase in (Phase.OPEN, Phase.LEAVING) and seen.application:
            words = self._executor.last_words(seen.application)
        elif app is None and record.phase is Phase.FORMING and (service is None or service.ended):
            words = self._executor.refusal(record)
        return replace(cheap, service=service, service_read=True, last_words=words)

    def _worth_reading(self, seen: Seen, facts: Facts) -> bool:
        """Whether to ask for the service, the dearest read there is: when the cheap ones say that it has news."""
        record, app = seen.record, facts.app
        overdue = self._clock() - seen.looked_s > _LOOK_S
        if record.phase is Phase.FORMING:
            if app is not None and app.state != "RUNNING":
                return overdue and self._clock() - record.since_s > self._options.gang_s
            return overdue or (app is not None and len(seen.members) >= record.gpus)
        if record.phase is Phase.LEAVING and record.next is not None and not overdue:
            return False  # containers come and go as they should
        if record.phase is Phase.CLEARING:
            return overdue or app is None or app.gpus == 0
        if record.phase is Phase.IDLE:
            useless = record.outcome.ended or record.runtime == SLICES or is_worn(facts, RENEW_WHEN_MOVED)
            return app is not None and (app.gpus > 0 or useless) and overdue
        return suspicious(record, app, seen.members)

    def next(self, seen: Seen, facts: Facts) -> Step:
        spec = seen.spec
        resumable = spec.checkpoint is not None or bool(spec.extra.get("self_checkpointing"))
        return next_step(seen.record, facts, spec.retries, resumable, spec.grace_s, self._options.gang_s)
