"""A job as one YARN service: components with counts, FLEX for a new shape."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from urllib.parse import urlsplit

from horae.port import PortError, TryLater
from horae.spec import JobSpec
from yarn_bridge.clients.errors import Exists
from yarn_bridge.clients.http import KERBEROS, Unanswered
from yarn_bridge.clients.records import Service
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.clients.services import Services, keytab_of, no_keytab
from yarn_bridge.jobs import shapes
from yarn_bridge.jobs.record import ENDED_BY_US, Record
from yarn_bridge.jobs.store import JobFiles
from yarn_bridge.options import Options

#: YARN's application type of a service
KIND = "yarn-service"


class ServiceRuntime:
    def __init__(self, options: Options, manager: ResourceManager, files: JobFiles) -> None:
        self._options, self._manager, self._files = options, manager, files
        self._services: Services | None = None
        self._sdk, self._carrying = "", threading.Lock()
        self.partitions: Mapping[str, str] = {}  #: nodes whose workers must ask for a partition, as last seen
        self.names: Mapping[str, str] = {}  #: nodes and the resource that their GPUs are, as last seen
        self._made: dict[str, tuple[int, str]] = {}  #: service -> the grant it was made for, and its application
        self._broken: dict[str, float] = {}  #: service -> when that which is no definition of it was written

    @property
    def services(self) -> Services:
        if self._services is None:
            self._services = Services(self._manager.http, self._manager.quirks(), self._files.forget_definition)
        return self._services

    def read(self, record: Record) -> Service | None:
        """The job's service. What is no definition of it, as a creation that broke off or its owner leaves it, goes,
        once it was there twice: one that is being written is half of one, too."""
        try:
            return self.services.get(record.service, record.owner)
        except Unanswered:
            raise
        except TryLater:
            before_s = self._broken.pop(record.service, None)
            written_s = self._files.broken_definition(record.service, record.owner)
            if written_s is not None:
                self._broken[record.service] = written_s
            if written_s is None or written_s != before_s:
                raise
            self._files.forget_definition(record.service, record.owner)
            return None

    def make(self, record: Record, spec: JobSpec, application: str = "") -> None:
        """A new service in the record's shape, in place of one that has ended or has other components."""
        with self._carrying:  # once, for all that begin at the same time
            self._sdk = self._sdk or self._files.carry(*shapes.sdk())
        if not self.end(record, application or None):
            raise TryLater(f"{record.job}: its former service is still ending")
        body = shapes.service_spec(
            record, spec, self._options, self._files.folder(record.job), self._sdk, self.partitions, self.names
        )
        if self._options.auth == KERBEROS:
            self._check_keytab(record, str((body.get("kerberos_principal") or {}).get("keytab", "")))
        try:
            self._made[record.service] = record.granted, self.services.create(body, record.owner)
        except Exists as error:
            raise TryLater(error.text) from None

    def made(self, record: Record) -> str:
        """The application of the service as it was made for this grant by us; "" where it was not, or nobody told."""
        granted, application = self._made.get(record.service, (0, ""))
        return application if granted == record.granted else ""

    def flex(self, record: Record, spec: JobSpec, counts: dict[str, int]) -> None:
        self.services.flex(record.service, record.owner, counts)

    def end(self, record: Record, application: str | None = None) -> bool:
        """Kill its application, then forget its definition: YARN waits for the orderly end of a service that runs.
        What YARN lists goes first: nobody may answer for it any more, or its definition may be gone."""
        if application and not self._manager.kill(application, ENDED_BY_US, record.owner):
            return False
        try:
            service = self.read(record)
        except PortError:
            if application is None:
                raise
            # Nothing of it lives, and nobody can read its definition.
            return self._files.forget_definition(record.service, record.owner)
        if service is None:
            return True
        if service.app and not service.ended and not self._manager.kill(service.app, ENDED_BY_US, record.owner):
            return False
        self.services.forget(record.service, record.owner)
        return True

    def _check_keytab(self, record: Record, said: str) -> None:
        """YARN takes a service whose keytab is missing, runs its workers, and can then never be asked about it."""
        place = urlsplit(said or keytab_of(record.owner))
        if place.scheme != "hdfs":
            return  # on the nodes, where nobody can look from here
        found = self._files.look(record.owner, place.path)
        if found is None:
            raise no_keytab(f"{record.job}: there is no keytab {place.path} of {record.owner} in HDFS", record.owner)
        if found.permission.lstrip("0")[-2:] != "00":
            text = f"{record.job}: others can read the keytab {place.path} (its mode is {found.permission})"
            raise no_keytab(text, record.owner)
