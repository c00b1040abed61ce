"""Carrying out what `state_machine.py` asks for, by the runtime that a job was granted under.

An action may be taken twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait

from horae.port import JobId, PortError
from horae.spec import JobSpec
from yarn_bridge.clients.errors import Gone
from yarn_bridge.clients.records import App, Service
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.jobs.record import ENDED_BY_US, Phase, Record
from yarn_bridge.jobs.state_machine import BY_USER, Action, Verb
from yarn_bridge.jobs.store import JobFiles
from yarn_bridge.options import SERVICES, SLICES, Options
from yarn_bridge.runtimes.chooser import Chooser, Runtime
from yarn_bridge.runtimes.service_runtime import KIND, ServiceRuntime
from yarn_bridge.runtimes.slice_runtime import SliceRuntime
from yarn_bridge.runtimes.slice_shapes import SLICE_KIND, Slice
from yarn_bridge.verbs.silence import Silence

#: YARN takes a tenth of a second for a FLEX and most of one for a new service, waiting; HDFS writes a job's folder in
#: half a second: so many jobs' are asked for side by side
_AT_ONCE = 8
#: of what YARN says, for people
LONGEST = 300


class JobExecutor:
    #: application types of ours
    kinds = (KIND, SLICE_KIND)

    def __init__(self, options: Options, manager: ResourceManager, files: JobFiles) -> None:
        self._manager = manager
        self._files = files
        self.chooser = Chooser(options, manager)
        self.by_service = ServiceRuntime(options, manager, files)
        self.by_slices = SliceRuntime(options, manager, files)
        self._runtimes: Mapping[str, Runtime] = {SERVICES: self.by_service, SLICES: self.by_slices}
        self._helpers: Executor = ThreadPoolExecutor(_AT_ONCE, "asking")
        self._ahead: dict[JobId, Future[None]] = {}  #: the newest FLEX of each job that nobody waits for

    def close(self) -> None:
        self._helpers.shutdown(wait=False, cancel_futures=True)
        self.by_slices.close()

    def look(self, running: Iterable[App]) -> dict[tuple[str, str, str], App]:
        """This round's applications of ours by (runtime, owner, service); a job's slices as one."""
        listed = list(running)
        found = {(SERVICES, each.user, each.name): each for each in listed if each.kind == KIND}
        for (owner, service), app in self.by_slices.look(listed).items():
            found[SLICES, owner, service] = app
        return found

    def hosts(self, record: Record, app: App) -> list[str]:
        """The nodes of its application masters that run: one, or one a slice. `app`: as `look` showed it."""
        whole = self.by_slices.applications(record) if record.runtime == SLICES else [app]
        return [each.am_node.partition(":")[0] for each in whole if each.state == "RUNNING"]

    def strays(self, jobs: Iterable[JobId]) -> dict[str, str]:
        """Applications of ours that the last look showed and that are of no job: id -> name. `jobs`: all that have a
        folder."""
        return {stray.app.id: stray.app.name for stray in self._strays(jobs)}

    def _strays(self, jobs: Iterable[JobId]) -> list[Slice]:
        """Names and tags are anybody's to choose: ours is only what the owner of a job that was handed in has."""
        found = self.by_slices.strays(self._files.services_of(jobs).keys())
        owners = self._files.owners_of({each.service for each in found})
        return [each for each in found if owners.get(each.service) == each.app.user]

    def end_strays(self, jobs: Iterable[JobId], wanted: Collection[str]) -> dict[str, PortError]:
        """End those of `wanted` that are strays still; what failed, by application."""
        errors: dict[str, PortError] = {}
        for stray in self._strays(jobs) if wanted else ():
            if stray.app.id in wanted:
                try:
                    self.by_slices.end_stray(stray)
                except PortError as error:
                    errors[stray.app.id] = error
        return errors

    def check_power(self, record: Record) -> None:
        """Raises Powerless where we could not give its workers back once they have gone, nor start it again."""
        self._manager.check_power(record.owner)

    def read(self, record: Record) -> Service | None:
        return self._runtimes[record.runtime].read(record)

    def end(self, record: Record) -> bool:
        """Everything that it has goes; False while YARN still ends it."""
        return self._runtimes[record.runtime].end(record)

    def last_words(self, application: str) -> str:
        """What YARN says of an application's end; "" while it lives."""
        try:
            found = self._manager.app(application)
        except Gone:  # an emptied state store, or one that is not kept over a restart
            return f"the ResourceManager does not know {application} any more"
        return (found.diagnostics[:LONGEST] or "YARN does not say why") if found.ended else ""

    def refusal(self, record: Record, application: str) -> str:
        """Why the application that this grant was given ended before its gang stood, or who ended the one that the job
        had (`application`); "" where we did, or none ended."""
        made = self.by_service.made(record)
        return self.ended_by(made or application, bool(made)) if record.runtime == SERVICES else ""

    def ended_by(self, application: str, anybody: bool = False) -> str:
        """What YARN says of an application that some user ended, or `anybody` but us; "" of any other."""
        said = self.last_words(application) if application else ""
        theirs = (anybody or BY_USER.search(said)) and ENDED_BY_US not in said
        return said if theirs else ""

    def side_by_side(self, asking: Mapping[JobId, Callable[[], None]]) -> dict[JobId, PortError]:
        """Of several jobs; what failed."""
        silence = Silence()
        begun = {job: self._helpers.submit(silence.tried, ask) for job, ask in asking.items()}
        wait(begun.values())
        ended = {job: one.result() for job, one in begun.items()}
        return {job: error for job, error in ended.items() if error is not None}

    def do(self, record: Record, spec: JobSpec, action: Action, application: str = "") -> None:
        """Raises PortError when it is not done; the next round asks for it again.

        `application`: the one that YARN listed last for the job, "" for none. Nobody waits for a FLEX of a job that has
        not left yet, nor for its error: its shape is compared once all its workers have left.
        """
        before = self._ahead.pop(record.job, None)
        if record.phase is Phase.LEAVING and action.verb is Verb.FLEX:
            self._ahead[record.job] = self._helpers.submit(self._do_after, before, record, spec, action)
        else:
            self._do_after(before, record, spec, action, application)

    def _do_after(
        self, before: Future[None] | None, record: Record, spec: JobSpec, action: Action, application: str = ""
    ) -> None:
        if before is not None:
            wait([before])  # what is asked for last shall hold
        runtime = self._runtimes[record.runtime]
        if action.verb is Verb.SWEEP:
            self._files.sweep(record)
        elif action.verb is Verb.FORGET:
            self._files.forget(record, action.names)
        elif action.verb is Verb.DESTROY:
            runtime.end(record, application)
        elif action.verb is Verb.FLEX:
            runtime.flex(record, spec, dict(action.counts))
        else:
            runtime.make(record, spec, application)
