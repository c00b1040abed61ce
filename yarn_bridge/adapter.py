"""The cluster port on YARN: three reads a round, whatever the number of jobs that rest or run.

A job is one YARN service of its owner, made at its first grant, or slices of GPUs (`runtimes.py`). The nodes, our
running applications and one listing of the job folders in HDFS tell what changed; only jobs on the move are looked at
one by one. What a job needs next is decided in `state_machine.py` from its record and what was read. `observe` shows it
as due while this arbiter's claim stands; `follow_up` writes it down and then does it, so a kill anywhere is healed by
the next round.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from horae.port import (
    BlockKind,
    Capabilities,
    Due,
    FixConfiguration,
    JobId,
    JobState,
    LogChunk,
    Never,
    Observation,
    PortError,
    TryLater,
)  # fmt: skip
from horae.spec import JobSpec
from horae.untrusted import Unbelievable
from policy.model import Allocation, Gpus, Limits, Node, Pinning
from yarn_bridge.clients.errors import Exists, Gone
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.clients.http import HttpClient, Unanswered
from yarn_bridge.clients.records import App, NodeReport
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.clients.roll_call import RollCall, unsaved
from yarn_bridge.clients.services import Services
from yarn_bridge.clients.settings import setting_of
from yarn_bridge.clients.token_life import TokenLife
from yarn_bridge.jobs import shapes
from yarn_bridge.jobs.executor import JobExecutor
from yarn_bridge.jobs.grants import check_grant
from yarn_bridge.jobs.queue_limits import QueueLimits
from yarn_bridge.jobs.reading import lost_nodes, nodes_of, observed
from yarn_bridge.jobs.record import SLICES, Phase, Record
from yarn_bridge.jobs.room import Lessons, below, given, held_by, only_queue
from yarn_bridge.jobs.state_machine import (
    RENEW_WHEN_MOVED,
    Action,
    Facts,
    Step,
    Verb,
    go_ahead,
    is_worn,
    living_instances,
    next_step,
    suspicious,
)
from yarn_bridge.jobs.store import JobFiles, Seen, foreign
from yarn_bridge.options import Options
from yarn_bridge.runtimes.chooser import named_nodes

_ALIVE = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")
#: the service of a job on the move is read at least this often
_LOOK_S = 2.0
_LEAST = "yarn.scheduler.minimum-allocation-mb"


@dataclass(frozen=True, slots=True)
class _Next:
    """A job's next step, as the newest look found it: good as long as its record is the one that it was made from."""

    record: Record
    app: App | None
    facts: Facts
    step: Step


class YarnCluster:
    """`ClusterPort` of one YARN. Thread-safe: one lock around what is remembered."""

    def __init__(self, options: Options, clock: Callable[[], float] = time.time) -> None:
        self._options, self._clock = options, clock
        self._http = HttpClient(options.access(options.resource_manager), "ResourceManager")
        self.manager = ResourceManager(self._http)
        self._hdfs = Hdfs(options.access(options.webhdfs), dict(options.hdfs_names))
        self.files = JobFiles(self._hdfs, options.root)
        self._hands = JobExecutor(options, self.manager, self.files)
        self._token_life = TokenLife(options, clock)
        self._jobs: dict[JobId, Seen] = {}
        self._bad: dict[str, tuple[float, str]] = {}  #: folders that cannot be read: (stamp, why)
        self._nodes: tuple[Node, ...] = ()
        self._rollcall = RollCall()
        self._lessons, self._limits = Lessons(), QueueLimits(options, lambda: self.manager)
        self._least_mib = 0  #: YARN gives memory in multiples of this; 0: not known
        self._known_gpus: dict[str, Gpus] = {}
        self._reasons: dict[JobId, str] = {}
        self._silent: dict[JobId, float] = {}  #: when a request for this job was not answered in time
        self._untidy = ""  #: why what broken submissions left stays
        self._named = False  #: every GPU node tells its own name in its attributes
        self._claim: tuple[float, str | None] = (-1.0, None)
        self._token: str | None = None
        self._due: dict[JobId, _Next] = {}
        self._lost: frozenset[str] = frozenset()
        self._lock = threading.RLock()

    @property
    def services(self) -> Services:
        return self._hands.by_service.services

    # --- looking ---

    def capabilities(self) -> Capabilities:
        info = self.manager.info()
        with self._lock:
            self._read_nodes()
            choice = self._hands.chooser.choice(self._named)
        conf = setting_of(self.manager.http, "the ResourceManager", _LEAST)
        self._least_mib = 0 if conf.why else conf.number(_LEAST, 1024)
        pinned, notes = choice.pinned, [f"jobs run as {choice.runtime}: {choice.why}"]
        if not pinned:
            notes.append("workers cannot be pinned to nodes here: the cluster chooses where they run")
        return Capabilities(
            cluster=f"yarn {info.version}",
            limits=Limits(pinning=Pinning.EXACT if pinned else Pinning.NONE),
            reshape_in_place=True,
            cpus_per_gpu=float(self._options.cpus),
            memory_per_gpu=given(self._options.memory_mib, self._least_mib) << 20,
            order_lever=None,
            notes=tuple(notes),
        )

    def observe(self) -> Observation:
        with self._lock:
            reports = self._read_nodes()
            self._rollcall.check(reports, self._nodes, self._clock(), self.manager.info)
            listed = self.manager.apps(kinds=self._hands.kinds, states=_ALIVE)
            apps = self._hands.look(listed)
            notes = self._refresh() + unsaved(listed, self._clock()) + ([self._untidy] if self._untidy else [])
            self._lost = lost_nodes(reports, self._nodes)
            self._due, due = {}, []
            if self._ours():
                notes += self._find_due(apps)
                due = [Due(job, _in_words(each)) for job, each in self._due.items()]
                strays = self._hands.strays(self._known_names())
                due += [Due(app, f"{name} is of no job and is ended", stray=True) for app, name in strays.items()]
            mine = [seen for seen in self._jobs.values() if not seen.record.released]
            self._nodes = self._usable(reports, [(seen.record, seen.spec) for seen in mine], notes)
            jobs = tuple(observed(seen.record, seen.spec, self._nodes) for seen in mine)
            return Observation(self._clock(), self._nodes, jobs, self._claim[1], tuple(notes), tuple(due))

    def _known_names(self) -> list[JobId]:
        return [*self._jobs, *self._bad]

    def _find_due(self, apps: Mapping[tuple[str, str, str], App]) -> list[str]:
        """What each job needs next; complaints. Those of which a daemon said nothing come last, and one that says
        nothing again ends the round for them: a round takes one time-out at most, and nobody else waits for it."""
        notes = []
        for seen in self._by_silence(self._jobs):
            record = seen.record
            if record.released or seen.refused:
                continue
            app = apps.get((record.runtime, record.owner, record.service))
            try:
                facts = self._facts(seen, app, self._lost)
            except Unanswered as error:
                notes.append(f"{record.job}: {error.text}")
                self._silent[record.job] = self._clock()
                break
            except PortError as error:
                notes.append(f"{record.job}: {error.text}")
                continue
            except Unbelievable as error:
                notes.append(f"{record.job}: {error}")
                continue
            step = self._next(seen, facts)
            if step.record is not record or step.actions or seen.unwritten:
                self._due[record.job] = _Next(record, app, facts, step)
            elif facts.service_read:
                self._silent.pop(record.job, None)
            if facts.unreadable:
                notes.append(f"{record.job}: {facts.unreadable}")
        return notes

    def _by_silence(self, jobs: Collection[JobId]) -> list[Seen]:
        known = [self._jobs[job] for job in jobs if job in self._jobs]
        return sorted(known, key=lambda each: self._silent.get(each.record.job, 0.0))

    def follow_up(self, jobs: Collection[JobId]) -> dict[JobId, PortError]:
        """A daemon that does not answer ends it for the others too: they are tried again after the next look."""
        with self._lock:
            if not self._ours():
                return {}
            errors: dict[JobId, PortError] = {}
            silent: Unanswered | None = None
            for seen in self._by_silence([job for job in jobs if job in self._due]):
                job = seen.record.job
                due = self._due.pop(job)
                if silent is not None:
                    errors[job] = TryLater(f"not tried: {silent.text}")
                    continue
                try:
                    self._advance(seen, due)
                    self._silent.pop(job, None)
                except Unanswered as error:
                    errors[job] = silent = error
                    self._silent[job] = self._clock()
                except PortError as error:
                    errors[job] = error
                except Unbelievable as error:
                    errors[job] = TryLater(str(error))
            if silent is None:
                errors |= self._hands.end_strays(self._known_names(), jobs)
            return errors

    def read_log(self, job: JobId, offset: int, limit: int = 1 << 20) -> LogChunk:
        with self._lock:
            self._known(job)
        try:
            return self.files.log(job, offset, limit)
        except Unbelievable as error:
            raise Never(f"{job}: {error}") from None

    # --- who we are ---

    def claim(self, token: str) -> None:
        with self._lock:
            self.files.prepare()
            self.files.write_claim(token)
            self._token = token
            try:
                self.files.tidy(self._clock())
            except (PortError, Unbelievable) as error:
                self._untidy = str(error)

    def _ours(self) -> bool:
        return self._token is not None and self._claim[1] == self._token

    def heartbeat(self) -> None:
        """Nothing waits for it: jobs come through us, and nobody else starts them."""

    # --- acting ---

    def submit(self, job: JobId, spec: JobSpec) -> None:
        shapes.check(job, spec)
        with self._lock:
            try:
                known = self._known(job)
            except Gone:
                known = None
            if known is not None:
                if known.record.released or known.spec != spec:
                    raise Never(f"there is already another job {job}")
                return
            self.files.prepare()
            owner = spec.owner or self._options.user
            record = Record(job, owner, shapes.service_name(job), self._clock(), since_s=self._clock())
            script = shapes.launch_script(job, spec, self._options, self.files.folder(job))
            try:
                self.files.add(record, spec, script)
            except Exists as error:
                raise TryLater(f"{job}: another submission of it is on its way ({error.text})") from None
            self._jobs[job] = Seen(record, spec, -1.0)

    def start(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        with self._lock:
            seen = self._known(job)
            record = seen.record
            if record.phase is Phase.FORMING and record.granted == epoch:
                return
            if epoch <= record.epoch or epoch < record.granted:
                return
            if record.phase is not Phase.IDLE:
                raise TryLater(f"{job} still holds its GPUs ({record.phase})")
            if record.outcome.ended:
                raise Never(f"{job} has ended: {record.outcome}")
            self._check(allocation, {})
            self._grant(seen, allocation, epoch)

    def reshape(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        """Checkpoint, FLEX, go on: workers that stay keep their containers and wait at the gate meanwhile.

        Containers of new workers start while the old gang checkpoints.
        """
        with self._lock:
            seen = self._known(job)
            record = seen.record
            if epoch <= max(record.epoch, record.granted) or (record.next is not None and epoch <= record.next[0]):
                return
            if record.outcome.ended and record.phase is Phase.IDLE:
                raise Never(f"{job} has ended: {record.outcome}")
            if record.phase is not Phase.OPEN:
                raise TryLater(f"{job} does not run ({record.phase})")
            self._check(allocation, record.placed)
            shape = tuple((node, int(gpus)) for node, gpus in allocation.items())
            self._ask(seen, seen.spec.grace_s, (epoch, shape))

    def checkpoint_and_stop(self, job: JobId, grace_s: float) -> None:
        with self._lock:
            seen = self._known(job)
            record = seen.record
            if record.phase is Phase.OPEN:
                self._ask(seen, grace_s, None)
            elif record.phase is Phase.FORMING and record.stop_s is None:
                self._put(seen, replace(record, stop_s=self._clock(), asked=True, grace_s=grace_s))
            elif record.phase is Phase.LEAVING and (record.next is not None or not record.asked):
                self._put(seen, replace(record, next=None, asked=True))

    def cancel(self, job: JobId) -> None:
        with self._lock:
            seen = self._known(job)
            record = seen.record
            if record.outcome.ended and record.phase in (Phase.IDLE, Phase.CLEARING):
                return
            phase = Phase.CLEARING if record.granted else Phase.IDLE
            ended = record.into(phase, self._clock(), outcome=JobState.CANCELLED, native="cancelled", next=None)
            self._put(seen, replace(ended, exit_code=None))
            if record.granted:
                with suppress(TryLater):  # the record says what is wanted: the next round sees to it
                    self._do(seen, Action(Verb.DESTROY))

    def release(self, job: JobId) -> None:
        with self._lock:
            try:
                seen = self._known(job)
            except Gone:
                return
            if not seen.record.released:
                self._put(seen, replace(seen.record, released=True))

    def set_order(self, jobs: Sequence[JobId]) -> None:
        raise Never("a job that waits has no application in YARN yet: there is no order to set")

    def set_reason(self, job: JobId, text: str) -> None:
        with self._lock:
            seen = self._known(job)
            if self._reasons.get(job) != text:
                self.files.reason(seen.record, text)
                self._reasons[job] = text

    def close(self) -> None:
        self._hands.close()
        self._token_life.close()
        self._http.close()
        self._hdfs.close()

    # --- reading ---

    def _read_nodes(self) -> list[NodeReport]:
        reports = self.manager.nodes()
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
        held = held_by(jobs, self._options, self._least_mib)
        nodes = nodes_of(reports, held, self._known_gpus, self._options)
        nodes = self._lessons.heeded(nodes, held, now_s)
        notes += self._lessons.notes(now_s)
        if not only_queue(jobs, self._options):
            return nodes
        ours = sum(each.gpus for each in held.values())
        limit = self._limits.ceiling(ours, now_s)
        if self._limits.why:
            notes.append(f"the limits of queue {self._options.queue} are not known: {self._limits.why}")
        if limit is None:
            return nodes
        fewer = below(nodes, held, limit.gpus)
        if fewer != nodes:
            notes.append(f"{limit.text}: other free GPUs are not offered")
        return fewer

    def _refresh(self) -> list[str]:
        """Read again what changed in HDFS since the last round; complaints."""
        entries = self.files.entries()
        claim = entries.pop(".claim", None)
        if claim is None and self._claim[1] is not None:
            raise TryLater(f"the listing of {self.files.jobs} lacks the arbiter's claim: it is not believed", 5.0)
        stamp = claim.modified_s if claim else 0.0
        if stamp != self._claim[0]:
            self._claim = (stamp, self.files.claim() if claim else None)
        jobs: dict[JobId, Seen] = {}
        for name, entry in entries.items():
            if name.startswith(".") or not entry.folder:
                continue
            seen = self._jobs.get(name)
            if seen is None:
                if self._bad.get(name, (-1.0, ""))[0] == entry.modified_s:
                    continue
                found = self.files.read(name, entry)
                if isinstance(found, str):
                    self._bad[name] = (entry.modified_s, found)
                    continue
                seen = found
            elif seen.stamp != entry.modified_s:
                if not (seen.unwritten and self._ours()):
                    self.files.reread(seen)
                seen.stamp, seen.unsettled = entry.modified_s, 2
            against = foreign(seen.record, entry)
            seen.refused = f"{self.files.folder(name)} {against}" if against else ""
            jobs[name] = seen
        self._jobs = jobs
        refused = [seen.refused for seen in jobs.values() if seen.refused]
        return refused + [why for name, (_, why) in self._bad.items() if name in entries]

    def _facts(self, seen: Seen, app: App | None, lost: frozenset[str]) -> Facts:
        """What this job's next step depends on: nothing more is read of a job that rests or runs as it should."""
        record = seen.record
        if seen.unsettled > 0:
            seen.acks = self.files.acks(record) if record.workers else {}
            seen.members = self.files.members(record) if record.phase is not Phase.IDLE else {}
            seen.unsettled -= 1  # only a read that came through counts
        seen.application = seen.application if app is None else app.id
        life_s = self._token_life.seconds()
        cheap = Facts(self._clock(), app, None, False, seen.members, seen.acks, lost, life_s)
        if not self._worth_reading(seen, cheap):
            return cheap
        seen.looked_s = self._clock()
        try:
            service = self._hands.read(record)
        except PortError as error:
            return replace(cheap, unreadable=error.text)
        ended = app is None and record.phase in (Phase.OPEN, Phase.LEAVING) and seen.application
        words = self._hands.last_words(seen.application) if ended else ""
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

    def _known(self, job: JobId) -> Seen:
        """The job as last read; one fresh read when it was never seen. Raises Gone when there is none."""
        if job not in self._jobs:
            self._refresh()
        if job not in self._jobs:
            raise Gone(f"there is no job {job} in {self.files.jobs}")
        if why := self._jobs[job].refused:
            raise FixConfiguration(why, f"hdfs dfs -chown {self._jobs[job].record.owner} {self.files.folder(job)}")
        return self._jobs[job]

    def _check(self, allocation: Allocation, held: Mapping[str, int]) -> None:
        """Raises Never for what can never be, TryLater for GPUs that are not free. `held`: what it has already."""
        if not self._nodes:
            self.observe()
        check_grant(allocation, held, self._nodes, self._held())

    def _held(self) -> dict[str, int]:
        taken: dict[str, int] = {}
        for seen in self._jobs.values():
            if seen.record.phase is not Phase.IDLE and not seen.record.released:
                for node, gpus in seen.record.claims.items():
                    taken[node] = taken.get(node, 0) + gpus
        return taken

    # --- moving ---

    def _grant(self, seen: Seen, allocation: Allocation, epoch: int) -> None:
        shape = tuple((node, int(gpus)) for node, gpus in allocation.items())
        choice = self._hands.chooser.choice(self._named)
        record = self._under(seen, choice.runtime)
        components = record.components
        if not components or not shapes.covers(components, allocation):
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
        self._put(seen, granted)
        same = components == record.components
        action = Action(Verb.FLEX, shapes.counts(components, allocation)) if same else Action(Verb.MAKE)
        try:
            self._do(seen, action)
        except (TryLater, Gone):
            return  # the record says what is wanted: the next round sees to it
        except PortError as error:
            blocked = (BlockKind.OTHER.value, error.text)
            self._put(seen, replace(record, since_s=self._clock(), blocked=blocked))
            raise

    def _under(self, seen: Seen, runtime: str) -> Record:
        """The record under this runtime; what the job keeps under another one is given back first."""
        record = seen.record
        if record.runtime != runtime:
            if record.granted and not self._hands.end(record):
                raise TryLater(f"{record.job}: what it had as {record.runtime} is still ending")
            self._put(seen, replace(record, runtime=runtime, components=()))
        return seen.record

    def _components(self, pinned: bool) -> tuple[tuple[str, str], ...]:
        return shapes.components_for([node.name for node in self._nodes], pinned)

    def _ask(self, seen: Seen, grace_s: float, following: tuple[int, tuple[tuple[str, int], ...]] | None) -> None:
        now_s = self._clock()
        asked = seen.record.into(Phase.LEAVING, now_s, stop_s=now_s, asked=True, grace_s=grace_s, next=following)
        step = go_ahead(asked, {})
        self._put(seen, step.record)
        for action in step.actions:
            self._do(seen, action)

    def _advance(self, seen: Seen, due: _Next) -> None:
        if seen.record is not due.record:
            return  # another request came first: the next look says what it needs now
        self._take(seen, due.step, due.facts)
        if due.record.phase is Phase.LEAVING and seen.record.phase is Phase.FORMING:
            facts = self._facts(seen, due.app, self._lost)
            self._take(seen, self._next(seen, facts), facts)  # its gang may stand already

    def _next(self, seen: Seen, facts: Facts) -> Step:
        spec = seen.spec
        resumable = spec.checkpoint is not None or bool(spec.extra.get("self_checkpointing"))
        return next_step(seen.record, facts, spec.retries, resumable, spec.grace_s, self._options.gang_s)

    def _take(self, seen: Seen, step: Step, facts: Facts) -> None:
        record, spec = step.record, seen.spec
        if record.phase is Phase.FORMING and not shapes.covers(record.components, dict(record.allocation)):
            # a node that came later: a new service
            record = replace(record, components=self._components(self._hands.chooser.choice(self._named).pinned))
        if record is not seen.record:
            # Nobody told what was saved. Read again when its containers are gone: until then a rank may still save.
            record = self._taught(seen.record, record, facts)
            killed = record.outcome is JobState.LOST or (record.outcome is JobState.STOPPED and record.exit_code == 137)
            if killed and record.phase in (Phase.CLEARING, Phase.IDLE):
                newest = self.files.newest(record, spec)
                record = replace(record, checkpoint=newest or record.checkpoint)
        if seen.record.phase is Phase.LEAVING and record.phase is Phase.FORMING:
            # The acknowledgements alone say so: whoever reads `leaving` again comes to the same. It is written with
            # what the next step makes of it, which often is that its gang stands.
            seen.record, seen.unsettled, seen.unwritten = record, 2, True
        elif record is not seen.record or seen.unwritten:
            self._put(seen, record)
        for action in step.actions:
            self._do(seen, action)

    def _taught(self, before: Record, after: Record, facts: Facts) -> Record:
        """A gang that came only in part says where there is less room than was thought."""
        in_part = before.phase is Phase.FORMING and after.blocked is not None and after.blocked != before.blocked
        if not in_part or after.blocked is None or facts.service is None:
            return after
        came = Counter(each.node for each in living_instances(facts.service))
        missing = {node: gpus - came[node] for node, gpus in before.allocation}
        if shapes.ANYWHERE in dict(before.components):
            return after  # YARN chose the nodes
        self._limits.forget()
        lesson = self._lessons.learn(missing, self._clock())
        kind, text = after.blocked
        return replace(after, blocked=(kind, f"{text}; {lesson}")) if lesson else after

    def _put(self, seen: Seen, record: Record) -> None:
        """Written down before it is so."""
        self.files.keep(record)
        seen.record, seen.unsettled, seen.unwritten = record, 2, False

    def _do(self, seen: Seen, action: Action) -> None:
        self._hands.do(seen.record, seen.spec, action, seen.application)


def _in_words(due: _Next) -> str:
    """What is about to be done, for the journal."""
    before, after = due.record.phase, due.step.record.phase
    words = [f"{before} -> {after}"] if before is not after else []
    words += [action.verb.value for action in due.step.actions]
    return ", ".join(words) or "its record is written"
