"""The cluster port on YARN.

A job is one YARN service of its owner, made at its first grant, or slices of GPUs (`runtimes/`). What a job needs next
is decided in `jobs/state_machine.py` from its record and what was read. `observe` (`jobs/observer.py`) shows it as due
while this arbiter's claim stands; `follow_up` (`jobs/steps.py`) writes it down and then does it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

from horae.port import (
    Capabilities,
    FixConfiguration,
    JobId,
    JobState,
    LogChunk,
    Never,
    Observation,
    PortError,
    TryLater,
    raise_any,
)  # fmt: skip
from horae.spec import JobSpec
from horae.untrusted import Unbelievable
from policy.model import Allocation, Limits, Pinning
from yarn_bridge.clients.errors import Exists, Gone
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.clients.http import HttpClient
from yarn_bridge.clients.queues import CORES, MEMORY
from yarn_bridge.clients.records import GPU
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.clients.services import Services
from yarn_bridge.clients.settings import setting_of
from yarn_bridge.jobs import shapes
from yarn_bridge.jobs.record import Phase, Record
from yarn_bridge.jobs.room import Held, given
from yarn_bridge.jobs.state_machine import Action, Verb, astray
from yarn_bridge.jobs.store import JobFiles, Seen
from yarn_bridge.options import BY_QUEUE, SERVICES, Options
from yarn_bridge.verbs.executor import JobExecutor
from yarn_bridge.verbs.observer import Observer
from yarn_bridge.verbs.steps import Asked, Steps, each_of

_LEAST, _MASTER = "yarn.scheduler.minimum-allocation-mb", "yarn.service.am-resource.memory"
#: the fair scheduler's, and what that was called before
_STEP, _OLD_STEP = "yarn.resource-types.memory-mb.increment-allocation", "yarn.scheduler.increment-allocation-mb"
_LARGER = "ask for less (memory, cpus), or have yarn.scheduler.maximum-allocation-mb and -vcores raised"


class YarnCluster:
    """`ClusterPort` of one YARN. Thread-safe: one lock around what is remembered."""

    def __init__(
        self,
        options: Options,
        clock: Callable[[], float] = time.time,
        manager: ResourceManager | None = None,
        hdfs: Hdfs | None = None,
    ) -> None:
        self._options, self._clock = options, clock
        access, stores = options.access(options.resource_manager), options.access(options.webhdfs)
        self.manager = manager or ResourceManager(HttpClient(access, "ResourceManager"))
        self.files = JobFiles(hdfs or Hdfs(stores, dict(options.hdfs_names)), options.root)
        self._executor = JobExecutor(options, self.manager, self.files)
        self._observer = Observer(options, self.manager, self.files, self._executor, clock)
        self._steps = Steps(options, self.files, self._executor, self._observer, clock)
        self._reasons: dict[JobId, str] = {}
        self._lock = threading.RLock()

    @property
    def services(self) -> Services:
        return self._executor.by_service.services

    # --- looking ---

    def capabilities(self) -> Capabilities:
        info = self.manager.info()
        with self._lock:
            self._observer.read_nodes()
            choice = self._observer.choice()
        self._observer.least_mib = least_mib = self._memory_step()
        self._observer.limits.master = Held(0, 1, given(self._master_mib(choice.runtime), least_mib))
        pinned, notes = choice.pinned, [f"jobs run as {choice.runtime}: {choice.why}"]
        if not pinned:
            notes.append("workers cannot be pinned to nodes here: the cluster chooses where they run")
        return Capabilities(
            cluster=f"yarn {info.version}",
            limits=Limits(pinning=Pinning.EXACT if pinned else Pinning.NONE),
            reshape_in_place=True,
            own_workers=True,
            cpus_per_gpu=float(self._options.cpus),
            memory_per_gpu=given(self._options.memory_mib, least_mib) << 20,
            tenant_key=shapes.EXTRA_QUEUE if self._options.tenants == BY_QUEUE else "",
            order_lever=None,
            notes=tuple(notes),
        )

    def _memory_step(self) -> int:
        """YARN gives memory in multiples of this; 0: not known. The fair scheduler has steps beside its least: of both
        the larger one, so that nothing is counted as less than it becomes."""
        http = self.manager.http
        conf = setting_of(http, "the ResourceManager", _LEAST)
        if conf.why:
            return 0
        least = conf.number(_LEAST, 1024)
        if self.manager.places_by_attributes():
            return least
        older = setting_of(http, "the ResourceManager", _OLD_STEP).number(_OLD_STEP, 1024)
        return max(least, setting_of(http, "the ResourceManager", _STEP).number(_STEP, older))

    def _master_mib(self, runtime: str) -> int:
        if runtime != SERVICES:
            return self._options.slice_memory_mib
        return setting_of(self.manager.http, "the ResourceManager", _MASTER).number(_MASTER, 1024)

    def observe(self) -> Observation:
        with self._lock:
            return self._observer.look()

    def noticed(self) -> object:
        """Follows what workers write; without the lock, so that a slow look or request delays nothing."""
        return self._observer.noticed()

    def follow_up(self, jobs: Collection[JobId]) -> dict[JobId, PortError]:
        with self._lock:
            return self._steps.follow_up(jobs) if self._observer.ours else {}

    def read_log(self, job: JobId, offset: int, limit: int = 1 << 20) -> LogChunk:
        with self._lock:
            self._observer.known(job)
        try:
            return self.files.log(job, offset, limit)
        except Unbelievable as error:
            raise Never(f"{job}: {error}") from None

    # --- who we are ---

    def claim(self, token: str) -> None:
        with self._lock:
            self.files.prepare()
            self.files.write_claim(token)
            self._observer.token = token
            self._observer.forget()
            try:
                self.files.tidy(self._clock())
            except (PortError, Unbelievable) as error:
                self._observer.untidy = str(error)

    def heartbeat(self) -> None:
        """Nothing waits for it: jobs come through us, and nobody else starts them."""

    # --- acting ---

    at_once = 16  #: 256 requests for new jobs; two rounds of `side_by_side`

    def submit(self, job: JobId, spec: JobSpec) -> None:
        raise_any(self.submit_many([(job, spec)]))

    def submit_many(self, jobs: Sequence[tuple[JobId, JobSpec]]) -> dict[JobId, PortError]:
        """Each is looked at in turn; the folders of all are written side by side."""
        with self._lock:
            self._observer.find([job for job, _ in jobs])
            new, errors = each_of({job: partial(self._new, job, spec) for job, spec in jobs})
            if new:
                self.files.prepare()
            failed = self._executor.side_by_side({job: partial(self._add, each) for job, each in new.items()})
            self._observer.jobs.update({job: each for job, each in new.items() if job not in failed})
            return errors | failed

    def _new(self, job: JobId, spec: JobSpec) -> Seen | None:
        """The job as it is to be handed in; None where it is known already."""
        shapes.check(job, spec)
        if job in self._observer.jobs:
            known = self._observer.known(job)
            if known.record.released or known.spec != spec:
                raise Never(f"there is already another job {job}")
            return None
        owner = spec.owner or self._options.user
        self._check_queue(owner, shapes.queue_of(spec, self._options))
        if why := self._too_large(spec):
            raise Never(f"{job}: {why}; {_LARGER}")
        now_s, each = self._clock(), spec.gpus_a_worker
        record = Record(job, owner, self.files.service_name(job), now_s, since_s=now_s, each=each)
        if each == 0:
            anywhere = shapes.components_for((), exact=False)
            record = replace(record, count=spec.workers or 1, components=anywhere)
        if each != 1 and self._observer.choice().runtime != SERVICES:
            raise Never(f"{job}: workers with no GPU, or with several, need YARN's Services API, which is off here")
        return Seen(record, spec, -1.0)

    def _add(self, new: Seen) -> None:
        job, spec = new.record.job, new.spec
        script = shapes.launch_script(job, spec, self._options, self.files.folder(job))
        try:
            self.files.add(new.record, spec, script)
        except Exists as error:
            raise TryLater(f"{job}: another submission of it is on its way ({error.text})") from None

    def _check_queue(self, owner: str, queue: str) -> None:
        """Raises Never where YARN would refuse the job's application."""
        if self._options.tenants == BY_QUEUE and not self._observer.limits.tenants():
            self._observer.look()
        if self._options.tenants == BY_QUEUE and queue not in {each.name for each in self._observer.limits.tenants()}:
            raise Never(f"{queue} is none of the tenants' queues any more; hand it in again")
        if self._observer.limits.is_parent(queue):
            raise Never(f"queue {queue} is a parent and takes no application itself: name a leaf queue below it")
        if why := self.manager.may_submit(queue, owner):
            remedy = f"the queue's acl_submit_applications names who may ({why})"
            raise Never(f"YARN lets {owner} not submit to queue {queue}: {remedy}")

    def _too_large(self, spec: JobSpec) -> str:
        cpus, memory_mib = shapes.worker_size(spec, self._options)
        gpus = {GPU: spec.gpus_a_worker} if spec.gpus_a_worker else {}
        worker = {MEMORY: given(memory_mib, self._observer.least_mib), CORES: cpus, **gpus}
        return self._observer.limits.too_large(shapes.queue_of(spec, self._options), worker)

    def _check_size(self, job: JobId, spec: JobSpec) -> None:
        """A site may have lowered what it gives since the job was handed in. Raises FixConfiguration."""
        if why := self._too_large(spec):
            raise FixConfiguration(f"{job}: {why}", _LARGER)

    def _check_partitions(self, seen: Seen, allocation: Allocation) -> None:
        """Quotas know of no nodes: a job's own queue may not be let into a partition where ours is. Raises
        FixConfiguration."""
        asked = self._executor.by_service.partitions
        mine = {node: asked[node] for node in allocation if node in asked}
        if why := self._observer.limits.keeps_out(shapes.queue_of(seen.spec, self._options), mine):
            remedy = "name the partition in the queue's accessible-node-labels"
            raise FixConfiguration(f"{seen.record.job}: {why}", remedy)

    def _check_queue_takes(self, seen: Seen, allocation: Allocation) -> None:
        """A job whose next shape needs another application is not stopped for it where its queue takes none. Raises
        FixConfiguration."""
        record = seen.record
        queue = shapes.queue_of(seen.spec, self._options)
        another = record.runtime != SERVICES or not shapes.covers(record.components, allocation)
        asks = another or bool(self._executor.by_service.partitions)  # else a question a move, for nothing
        why, remedy = self._observer.limits.refuses(queue, record.owner if asks else "")
        if why and not self._keeps_its_service(record, allocation):
            raise FixConfiguration(f"{record.job}: {why}", remedy)

    def _keeps_its_service(self, record: Record, allocation: Allocation) -> bool:
        """Whether its workers get to these nodes as its service is. Raises PortError where nobody tells."""
        if record.runtime != SERVICES or not shapes.covers(record.components, allocation):
            return False
        service = self._executor.read(record)
        partitions = self._executor.by_service.partitions
        return service is not None and not astray(record, allocation, service, partitions)

    def start(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        raise_any(self.start_many([(job, allocation, epoch)]))

    def start_many(self, starts: Sequence[tuple[JobId, Allocation, int]]) -> dict[JobId, PortError]:
        """Written down one after the other, since they share the nodes' room; YARN is then asked for all at once."""
        with self._lock:
            granted, errors = each_of({job: partial(self._grant, job, nodes, epoch) for job, nodes, epoch in starts})
            return errors | self._steps.make(granted)

    def _grant(self, job: JobId, allocation: Allocation, epoch: int) -> Asked | None:
        """None where it is granted already, or was granted more since."""
        seen = self._observer.known(job)
        record = seen.record
        if record.phase is Phase.FORMING and record.granted == epoch:
            return None
        if epoch <= record.epoch or epoch < record.granted:
            return None
        if record.phase is not Phase.IDLE:
            raise TryLater(f"{job} still holds its GPUs ({record.phase})")
        if record.outcome.ended:
            raise Never(f"{job} has ended: {record.outcome}")
        self._check_size(job, seen.spec)
        self._observer.check(allocation, {})
        self._check_partitions(seen, allocation)
        if any(gpus % record.each for gpus in allocation.values()):
            raise Never(f"{job}: each of its workers has {record.each} GPUs; {dict(allocation)} is no multiple of it")
        self._observer.check_shares(seen, allocation)
        return self._steps.grant(seen, allocation, epoch)

    def reshape(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        """Checkpoint, FLEX, go on: workers that stay keep their containers and wait at the gate meanwhile.

        Containers of new workers start while the old gang checkpoints.
        """
        with self._lock:
            seen = self._observer.known(job)
            record = seen.record
            if epoch <= max(record.epoch, record.granted) or (record.next is not None and epoch <= record.next[0]):
                return
            if record.outcome.ended and record.phase is Phase.IDLE:
                raise Never(f"{job} has ended: {record.outcome}")
            if record.phase is not Phase.OPEN:
                raise TryLater(f"{job} does not run ({record.phase})")
            self._check_size(job, seen.spec)
            self._check_queue_takes(seen, allocation)
            self._observer.check(allocation, record.placed)
            self._check_partitions(seen, allocation)
            self._observer.check_shares(seen, allocation)
            shape = tuple((node, int(gpus)) for node, gpus in allocation.items())
            self._steps.ask(seen, seen.spec.grace_s, (epoch, shape))

    def checkpoint_and_stop(self, job: JobId, grace_s: float) -> None:
        raise_any(self.stop_many([(job, grace_s)]))

    def stop_many(self, stops: Sequence[tuple[JobId, float]]) -> dict[JobId, PortError]:
        with self._lock:
            _, errors = each_of({job: partial(self._stop, job, grace_s) for job, grace_s in stops})
            return errors

    def _stop(self, job: JobId, grace_s: float) -> None:
        seen = self._observer.known(job)
        record = seen.record
        if record.phase is Phase.OPEN:
            self._steps.ask(seen, grace_s, None)
        elif record.phase is Phase.FORMING and record.stop_s is None:
            self._steps.put(seen, replace(record, stop_s=self._clock(), asked=True, grace_s=grace_s))
        elif record.phase is Phase.LEAVING and (record.next is not None or not record.asked):
            self._steps.put(seen, replace(record, next=None, asked=True))

    def cancel(self, job: JobId) -> None:
        raise_any(self.cancel_many([job]))

    def cancel_many(self, jobs: Sequence[JobId]) -> dict[JobId, PortError]:
        with self._lock:
            ending, errors = each_of({job: partial(self._cancel, job) for job in jobs})
            failed = self._steps.do_all(ending)
        # the record says what is wanted: the next round sees to it
        return errors | {job: error for job, error in failed.items() if not isinstance(error, TryLater)}

    def _cancel(self, job: JobId) -> Asked | None:
        seen = self._observer.known(job)
        record = seen.record
        if record.outcome.ended and record.phase in (Phase.IDLE, Phase.CLEARING):
            return None
        phase = Phase.CLEARING if record.granted else Phase.IDLE
        ended = record.into(phase, self._clock(), outcome=JobState.CANCELLED, native="cancelled", next=None)
        self._steps.put(seen, replace(ended, exit_code=None))
        return Asked(seen, Action(Verb.DESTROY), record) if record.granted else None

    def release(self, job: JobId) -> None:
        with self._lock:
            try:
                seen = self._observer.known(job)
            except Gone:
                return
            if not seen.record.released:
                self._steps.put(seen, replace(seen.record, released=True))

    def set_order(self, jobs: Sequence[JobId]) -> None:
        raise Never("a job that waits has no application in YARN yet: there is no order to set")

    def set_reason(self, job: JobId, text: str) -> None:
        with self._lock:
            seen = self._observer.known(job)
            if self._reasons.get(job) != text:
                self.files.reason(seen.record, text)
                self._reasons[job] = text

    def close(self) -> None:
        self._executor.close()
        self._observer.close()
        self.manager.close()
