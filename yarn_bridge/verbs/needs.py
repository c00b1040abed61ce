"""What one job needs next: the reads that a job on the move costs, and the step that follows from them.

Nothing is changed by it. The caller holds the lock.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from horae.port import FixConfiguration, JobId, Never, PortError
from horae.untrusted import Unbelievable
from yarn_bridge.clients.http import Unanswered
from yarn_bridge.clients.records import App, NodeReport, Service
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.jobs.masters import Displaced, displaced
from yarn_bridge.jobs.queue_limits import QueueLimits
from yarn_bridge.jobs.reading import arrived
from yarn_bridge.jobs.record import Phase
from yarn_bridge.jobs.room import worker_of
from yarn_bridge.jobs.shapes import ANYWHERE, queue_of
from yarn_bridge.jobs.state_machine import (
    RENEW_WHEN_MOVED,
    Facts,
    Step,
    awaits,
    is_over,
    next_step,
    out_of_patience,
    suspicious,
    workers_of,
    worn,
)
from yarn_bridge.jobs.store import JobFiles, Seen
from yarn_bridge.jobs.token_life import TokenLife
from yarn_bridge.options import SERVICES, SLICES, Options
from yarn_bridge.verbs.executor import JobExecutor

#: phases in which an old application makes way for another
_NEEDS_ANOTHER = {Phase.FORMING, Phase.IDLE}
#: the service of a job on the move is read at least this often
_LOOK_S = 2.0
#: a gang that does not stand after this long, or a third of its time, is asked about
_ASK_WHY_S = 15.0
#: a stamp is milliseconds: what was written in the one in which it was read is seen by another reading, this much later
_SETTLED_S = 1.0

#: An owner can stop his application master, so that each question takes a whole time-out: for so many times as long
#: nobody asks for a service again that was not answered for. Once in so many seconds it may be the ResourceManager that
#: was slow, and is asked again after as long as it took.
_HUSH, _FORGIVEN_S = 9.0, 600.0


def _lost_its_master(seen: Seen, app: App | None) -> bool:
    """Whether it waits, and had an application before that it could have kept."""
    record = seen.record
    waits = record.phase is Phase.IDLE and not record.outcome.ended
    had = record.granted > 0 and seen.application != ""  # before its first grant there was none of ours
    return waits and had and app is None and record.runtime == SERVICES


@dataclass(frozen=True, slots=True)
class Around:
    """What the look showed that this is a part of."""

    lost: frozenset[str]  #: nodes
    reports: list[NodeReport]
    harm: str  #: why workers may not be pinned any more
    back_s: float  #: when a look came through again, after one that came to nothing
    least_mib: int  #: YARN gives memory in multiples of this; 0: not known


class Needs:
    def __init__(
        self,
        options: Options,
        manager: ResourceManager,
        files: JobFiles,
        executor: JobExecutor,
        limits: QueueLimits,
        clock: Callable[[], float],
    ) -> None:
        self._options = options
        self._manager = manager
        self._files = files
        self._executor = executor
        self._limits = limits
        self._clock = clock
        self._token_life = TokenLife(options, clock)
        self._hush_s = float("-inf")  #: until when services of which nothing was heard are not asked for
        self.silent: dict[JobId, float] = {}  #: when a request for this job was not answered in time

    def close(self) -> None:
        self._token_life.close()

    def facts(self, seen: Seen, app: App | None, around: Around) -> Facts:
        """Nothing more is read of a job that rests or runs as it should. Raises PortError, Unbelievable."""
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
        cheap = Facts(
            self._clock(),
            app,
            None,
            False,
            seen.members,
            seen.acks,
            around.lost,
            life_s,
            unreadable=seen.unheard,
            harm=around.harm if pinned else "",
            hindered=seen.hindered,
            began_s=max(seen.began_s, around.back_s),
            partitions=self._executor.by_service.partitions,
        )
        if record.phase in _NEEDS_ANOTHER and worn(cheap, RENEW_WHEN_MOVED):
            why, _ = self._limits.refuses(queue_of(seen.spec, self._options), record.owner)
            cheap = replace(cheap, closed=why != "")
        if record.phase is Phase.FORMING:
            seen.came = arrived(record, app, None, seen.came)
        if _lost_its_master(seen, app):
            return self._without_master(seen, cheap)
        return self._with_service(seen, cheap, around) if self._worth_reading(seen, cheap) else cheap

    def _with_service(self, seen: Seen, cheap: Facts, around: Around) -> Facts:
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
            cheap = replace(cheap, displaced=self._displaced(seen, app, around))
        words = self._words(seen, app, service)
        return replace(cheap, service=service, service_read=True, last_words=words)

    def _displaced(self, seen: Seen, app: App, around: Around) -> Displaced | None:
        record = seen.record
        if not record.each or ANYWHERE in dict(record.components):
            return None
        workers = {node: gpus // record.each for node, gpus in record.allocation}
        hosts = self._executor.hosts(record, app)
        size = worker_of(seen.spec, self._options, around.least_mib)
        return displaced(workers, hosts, around.reports, self._limits.master, size)

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
        """The next step; nothing is read for it."""
        if seen.unwritten and seen.record.phase is Phase.LEAVING:
            # Its workers have yet to be told, however long ago it was decided: their time begins when they are.
            untold = replace(seen.record, stop_s=self._clock())
            return Step(untold)
        spec = seen.spec
        resumable = spec.checkpoint is not None or bool(spec.extra.get("self_checkpointing"))
        return next_step(seen.record, facts, spec.retries, resumable, spec.grace_s, self._options.gang_s)
