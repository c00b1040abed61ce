"""A job as slices of GPUs, where the Services API is not to be had: grow by submitting, shrink by killing.

What the steps see is a service whose components are the nodes: counts from the names of the slices that live,
containers from the ResourceManager. Suspended is no slice at all.

A slice that nobody holds cannot stay: those of jobs are compared with the record in every round, and those of no
job of this bridge's folder are ended.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from horae.port import FixConfiguration, PortError, TryLater
from horae.spec import JobSpec
from yarn_bridge.clients.errors import Gone
from yarn_bridge.clients.hdfs import Status
from yarn_bridge.clients.http import KERBEROS
from yarn_bridge.clients.records import App, Component, Container, Instance, Service
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.clients.settings import settings_of
from yarn_bridge.jobs import shapes
from yarn_bridge.jobs.record import ENDED_BY_US, Record
from yarn_bridge.jobs.store import JobFiles
from yarn_bridge.options import Options
from yarn_bridge.runtimes.slice_shapes import (
    SLICE_KIND,
    Classes,
    Slice,
    change,
    check,
    epoch_tag,
    root_tag,
    script,
    slice_of,
    submission,
)
from yarn_bridge.runtimes.slice_tokens import SliceTokens

#: a container that YARN does not list is gone after this long
_SETTLES_S = 15.0
#: so many slices of one grant may fail before nobody submits another
_FAILURES = 3
_FRAMEWORK = "yarn.service.framework.path"


class SliceRuntime:
    def __init__(
        self, options: Options, manager: ResourceManager, files: JobFiles, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options, self._manager, self._files, self._clock = options, manager, files, clock
        self._root = root_tag(files.jobs)
        self.names: Mapping[str, str] = {}  #: nodes and the resource that their GPUs are, as last seen
        self._seen: dict[tuple[str, str], list[Slice]] = {}  #: (owner, service) -> what the last look showed
        self._missing: dict[str, float] = {}  #: container -> when a living slice was first seen without it
        self._workers: dict[str, tuple[str, Status]] = {}  #: job -> its script
        self._classes: Classes | None = None
        self._secured = options.auth == KERBEROS
        self._tokens = SliceTokens(options, manager)

    # --- looking ---

    def look(self, listed: Iterable[App]) -> dict[tuple[str, str], App]:
        """The slices of each job as one application: RUNNING once all of them are."""
        self._seen = {}
        whole = set()
        for app in listed:
            found = slice_of(app)
            if found is not None and self._root in app.tags:
                self._seen.setdefault((app.user, found.service), []).append(found)
                if app.gpus >= found.gpus:
                    whole.add(app.id.removeprefix("application_"))
        # What a slice lacked once it does not lack any more: the next time is another one.
        self._missing = {
            key: since
            for key, since in self._missing.items()
            if self._clock() - since < 10 * _SETTLES_S and not any(f"{each}_" in key for each in whole)
        }
        return {(owner, name): _as_one(name, held) for (owner, name), held in self._seen.items()}

    def applications(self, record: Record) -> list[App]:
        """Those of its slices that the last look showed."""
        return [each.app for each in self._seen.get((record.owner, record.service), ())]

    def strays(self, known: Collection[str]) -> list[Slice]:
        """Slices of the last look that are of no job. `known`: the names under which jobs have theirs."""
        return [each for (_, name), held in self._seen.items() if name not in known for each in held]

    def end_stray(self, stray: Slice) -> None:
        self._manager.kill(stray.app.id, "of no job of Horae's", stray.app.user)

    def read(self, record: Record) -> Service | None:
        held = self._seen.get((record.owner, record.service))
        if not held:
            return None
        names, counts = dict(record.components), {name: 0 for _, name in record.components}
        instances: dict[str, list[Instance]] = {}
        for each in held:
            component = names.get(each.node, f"formerly {each.node}")
            counts[component] = counts.get(component, 0) + each.gpus
            instances.setdefault(component, []).extend(self._instances(each, record))
        parts = {
            name: Component(
                name,
                "",
                count,
                tuple(instances.get(name, ())),
            )
            for name, count in counts.items()
        }
        first = held[0].app
        return Service(record.service, first.id, "STARTED", first.queue, "", None, parts)

    def _instances(self, each: Slice, record: Record) -> list[Instance]:
        """Its containers with a GPU, and for a while those of the open gang that YARN does not list.

        A ResourceManager that has just started learns of containers only as its nodes come back, and of application
        masters as they do: such an application is ACCEPTED once more, although it was given its one attempt.
        """
        running = each.app.state == "RUNNING"
        attempt = each.app.id.replace("application_", "appattempt_") + "_000001"
        listed: list[Container] = []
        if running:
            with suppress(Gone):  # it ended meanwhile
                listed = self._manager.containers(each.app.id, attempt, record.owner)
        found = {}
        for container in (one for one in listed if one.gpus):
            state = "READY" if container.state == "RUNNING" else "INIT"
            node, number = container.node.partition(":")[0], _number(container.id)
            found[container.id] = Instance(f"slice-{number}", container.id, node, state, "", container.started_s)
            self._missing.pop(container.id, None)
        prefix = each.app.id.replace("application_", "") + "_"
        for worker in record.workers:
            if prefix in worker.name and worker.name not in found:
                since = self._missing.setdefault(worker.name, self._clock()) if running else self._clock()
                if self._clock() - since < _SETTLES_S:
                    name = f"slice-{_number(worker.name)}"
                    found[worker.name] = Instance(name, worker.name, worker.node, "READY", "", 0.0)
        return list(found.values())

    # --- acting ---

    def make(self, record: Record, spec: JobSpec, application: str = "") -> None:
        """Under Kerberos all slices are this grant's own, so that none has a token of an earlier one."""
        self._shape(record, spec, dict(record.allocation), anew=self._secured)

    def flex(self, record: Record, spec: JobSpec, counts: Mapping[str, int]) -> None:
        self._shape(record, spec, {node: counts.get(name, 0) for node, name in record.components})

    def end(self, record: Record, application: str | None = None) -> bool:
        over = True
        for each in self._living(self._listed(record)):
            over = self._kill(each) and over
        return over

    def close(self) -> None:
        self._tokens.close()

    def _shape(self, record: Record, spec: JobSpec, wanted: Mapping[str, int], *, anew: bool = False) -> None:
        """To GPUs by node; what YARN lists now is what counts, so that no answer that got lost is done twice.

        `anew`: slices of earlier grants are not kept.
        """
        if shapes.ANYWHERE in dict(record.components):
            wanted = {shapes.ANYWHERE: sum(wanted.values())}
        listed = self._listed(record)
        living = self._living(listed)
        kept = [each for each in living if not anew or epoch_tag(record.granted) in each.app.tags]
        ending, submitting = change(kept, wanted)
        for each in [each for each in living if each not in kept or each in ending]:
            self._kill(each)
        if not submitting:
            return
        check(spec)
        _check_failures(record, listed)
        worker, classes = self._worker(record), self._hadoop()
        for node, gpus in submitting.items():
            app_id = self._manager.new_application(record.owner)
            body = submission(
                app_id,
                (node, gpus),
                record,
                spec,
                self._options,
                self._root,
                worker,
                classes,
                shapes.named(node, self.names),
            )
            self._submit(body, record.owner)

    def _submit(self, body: dict[str, Any], owner: str) -> None:
        """Under Kerberos with a token of its own: YARN cancels a token when the application that it came with ends."""
        if not self._secured:
            self._manager.submit(body, owner)
            return
        token = self._tokens.get(owner)
        body["am-container-spec"]["credentials"] = token.credentials()
        try:
            self._manager.submit(body, owner)
        except TryLater:
            raise  # it may be submitted all the same
        except PortError:
            with suppress(PortError):  # it ends by itself where nobody renews it
                self._tokens.cancel(token, owner)
            raise

    def _kill(self, each: Slice) -> bool:
        try:
            return self._manager.kill(each.app.id, ENDED_BY_US, each.app.user)
        except Gone:
            return True

    def _listed(self, record: Record) -> list[App]:
        """Its slices as YARN has them now, those that have ended too."""
        found = self._manager.apps(kinds=(SLICE_KIND,), tags=(record.service,), user=record.owner)
        return [each for each in found if self._root in each.tags]

    @staticmethod
    def _living(listed: Iterable[App]) -> list[Slice]:
        return [found for app in listed if not app.ended and (found := slice_of(app)) is not None]

    def _worker(self, record: Record) -> tuple[str, Status]:
        if record.job not in self._workers:
            self._workers[record.job] = self._files.carry_script(record, script)
        return self._workers[record.job]

    def _hadoop(self) -> Classes:
        if self._classes is None:
            conf = settings_of(self._manager.http, "the ResourceManager")
            archive = self._options.framework or conf.get(_FRAMEWORK)
            status = self._files.look(self._options.user, archive) if archive else None
            if archive and status is None:
                if self._options.framework:
                    raise FixConfiguration(f"there is no {archive} in HDFS", "correct the option `framework`")
                archive = ""
            self._classes = Classes(archive, status, conf.get("yarn.application.classpath"))
        return self._classes


def _as_one(name: str, held: list[Slice]) -> App:
    states = {each.app.state for each in held}
    return replace(
        held[0].app,
        name=name,
        state="RUNNING" if states == {"RUNNING"} else next(iter(sorted(states - {"RUNNING"}))),
        submitted_s=min(each.app.submitted_s for each in held),  # as old as the oldest of their tokens
        gpus=sum(each.app.gpus for each in held),
        containers=sum(each.app.containers for each in held),
    )


def _check_failures(record: Record, listed: Iterable[App]) -> None:
    """Raises FixConfiguration where slices of this grant fail again and again."""
    failed = [each for each in listed if each.state == "FAILED" and epoch_tag(record.granted) in each.tags]
    if len(failed) < _FAILURES:
        return
    last = failed[-1]
    mend = f"see the log of {last.id}: does its application master find Hadoop's jars (`framework`)?"
    if "Failed to renew token" in last.diagnostics:
        mend = "the ResourceManager must reach the NameNode that `webhdfs` names, as its `fs.defaultFS`"
    text = f"{record.job}: {len(failed)} of its slices failed, the last one so: {last.diagnostics[:300]}"
    raise FixConfiguration(text, mend)


def _number(container: str) -> int:
    """Orders containers by the age of their slice, then by their own: container_[eN_]CLUSTER_APP_ATTEMPT_NUMBER."""
    found = re.search(r"_(\d+)_\d+_(\d+)$", container)
    return int(found[1]) * 1_000_000 + int(found[2]) if found else 0
