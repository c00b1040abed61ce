"""The bridge's files in HDFS (`record.py` says which): one listing tells what changed, and only that is read."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field

from horae.port import FixConfiguration, JobId, LogChunk, Never, PortError, TryLater
from horae.spec import JobSpec
from horae.untrusted import Unbelievable
from policy.model import Gpus
from yarn_bridge.clients.hdfs import Hdfs, Status
from yarn_bridge.clients.records import Withheld
from yarn_bridge.clients.services import definition_path
from yarn_bridge.clients.stamps import Stamps
from yarn_bridge.jobs import ground
from yarn_bridge.jobs.kept import Kept, Unreadable
from yarn_bridge.jobs.record import CLAIM, GATE, LAUNCH, SPEC, Phase, Record, Worker, encode, gate_document
from yarn_bridge.jobs.shapes import service_name
from yarn_bridge.jobs.state_machine import Ack
from yarn_bridge.jobs.user_files import MOST_ENTRIES, Newest, UserFiles, agrees, definition_of, gate_record, old_spec

#: where a job's folder is made
STAGING = ".new-"
#: a submission takes seconds
_ABANDONED_S = 3600.0
#: of a launch script, and of what YARN keeps of a service
_LONGEST = 4 << 20


@dataclass
class Seen:
    """One job as last read."""

    record: Record
    spec: JobSpec
    stamp: float
    unwritten: bool = False  #: `record` is newer than what HDFS has
    doubtful: bool = False  #: writing its next record broke off: HDFS has that one, or this one
    unread: bool = True  #: its folder has news, or its phase asks for other things in it
    again_s: float = float("inf")  #: when its folder is read once more, whatever its stamp says
    members: dict[str, Worker] = field(default_factory=dict)
    acks: dict[str, Ack] = field(default_factory=dict)
    looked_s: float = 0.0  #: when its service was read last
    application: str = ""  #: of its service, as last listed among those that live
    queue: str = ""  #: where that is, with all above it
    began_s: float = 0.0  #: when its application master was first seen to run; 0: it does not
    refused: str = ""  #: why nothing is done with it now
    shut: str = ""  #: why its workers cannot be told anything, where its owner is in the way
    unheard: str = ""  #: why what its workers wrote cannot be read, where it goes on without
    hindered: str = ""  #: why its service could not be made or flexed, when that was tried last
    withheld: tuple[Withheld, ...] = ()  #: why the gang that forms gets no more, as the scheduler said last
    came: Mapping[str, Gpus] | None = None  #: by node, what came of a gang that forms, or that was given back before it
    #: stood; None: all of it may be there

    @property
    def holds(self) -> dict[str, Gpus]:
        """The most GPUs that it has of each node."""
        held = self.record.held
        return held if self.came is None else {node: min(gpus, self.came.get(node, 0)) for node, gpus in held.items()}


class JobFiles:
    def __init__(self, hdfs: Hdfs, root: str) -> None:
        self._hdfs = hdfs
        self.root = root
        self.jobs = f"{root}/jobs"
        self._kept = Kept(hdfs, root)
        self._theirs = UserFiles(hdfs)
        self._newest = Newest(hdfs)
        self.stamps = Stamps(self.entries)
        self._gates: dict[JobId, bytes] = {}  #: as written last, by us
        self._reasoned: set[JobId] = set()  #: whose reason fits one attribute, as written last by us
        self._trusted = False

    def folder(self, job: JobId) -> str:
        return f"{self.jobs}/{job}"

    def prepare(self) -> None:
        """Folders in which only the bridge can add or rename; what the version before left is taken over once."""
        self._hdfs.make_folder(self.root, "755")
        self._hdfs.make_folder(self.jobs, "755")
        self._trust()
        found = self._hdfs.status(self.jobs)
        if found is None or found.permission.lstrip("0") != "755":
            self._hdfs.set_permission(self.jobs, "755")
        if not self._kept.there():
            self._kept.adopt(self._before())

    def _trust(self) -> None:
        """Nothing is believed before. Raises FixConfiguration."""
        if not self._trusted:
            ground.check(self._hdfs, self.root)
            self._trusted = True

    def tidy(self, now_s: float) -> None:
        """Take away what submissions left that broke off long ago: each folder in it goes in its owner's name."""
        for name, entry in self.entries().items():
            if not name.startswith(STAGING) or entry.modified_s > now_s - _ABANDONED_S:
                continue
            staging = f"{self.jobs}/{name}"
            for part in self._hdfs.some(staging, MOST_ENTRIES):
                self._hdfs.as_user(part.owner).delete(f"{staging}/{part.name}")
            self._hdfs.delete(staging)

    def entries(self) -> dict[str, Status]:
        return {each.name: each for each in self._hdfs.entries(self.jobs)}

    def listed(self) -> dict[str, Status]:
        """As `entries`, for a look, which reads what is new."""
        asked_s = self.stamps.now_s()
        found = self.entries()
        self.stamps.saw(found, asked_s)
        return found

    def _before(self) -> Iterator[tuple[Record, JobSpec]]:
        """The jobs of folders that the version before made."""
        for name, entry in self.entries().items():
            if entry.folder and not name.startswith("."):
                found = self._as_before(name, entry)
                if isinstance(found, Seen):
                    yield found.record, found.spec

    def _as_before(self, job: JobId, entry: Status) -> Seen | str:
        folder = self.folder(job)
        data = self._hdfs.document(f"{folder}/{GATE}")
        text = self._hdfs.document(f"{folder}/{SPEC}")
        if data is None or text is None:
            return f"{folder} lacks {GATE if data is None else SPEC}"
        try:
            record = gate_record(data, f"{folder}/{GATE}")
            spec = old_spec(text, f"{folder}/{SPEC}")
        except Unbelievable as error:
            return str(error)
        against = agrees(record, spec, job, entry.owner)
        return f"{folder} {against}: it is refused" if against else Seen(record, spec, entry.modified_s)

    # --- claim and SDK ---

    def claim(self) -> str | None:
        data = self._hdfs.document(f"{self.jobs}/.{CLAIM}")
        return None if data is None else data.decode(errors="replace").strip()

    def write_claim(self, token: str) -> None:
        self._gates.clear()  # somebody else may have written them meanwhile
        self._reasoned.clear()
        with self.stamps.writing(f".{CLAIM}"):
            self._hdfs.keep_document(f"{self.jobs}/.{CLAIM}", token.encode() + b"\n", self.jobs)

    def carry(self, name: str, data: bytes) -> str:
        """Put a file into lib/ where it is not yet; its path."""
        path = f"{self.root}/lib/{name}"
        found = self._hdfs.status(path)
        if found is None or found.length != len(data):
            self._hdfs.write(path, data)
        return path

    def carry_script(self, record: Record, make: Callable[[bytes], tuple[str, bytes]]) -> tuple[str, Status]:
        """What `make` makes of the job's launch script, put beside it where it is not yet; its path and status."""
        own = self._hdfs.as_user(record.owner)
        folder = self.folder(record.job)
        launch = own.read(f"{folder}/{LAUNCH}", 0, _LONGEST + 1)
        if launch is None:
            raise TryLater(f"{folder} lacks {LAUNCH}")
        if len(launch) > _LONGEST:
            raise Never(f"{folder}/{LAUNCH} is larger than {_LONGEST} bytes")
        name, data = make(launch)
        path = f"{folder}/{name}"
        found = own.status(path)
        if found is None or found.length != len(data):
            with self.stamps.writing(record.job):
                own.write(path, data)
            found = own.status(path)
        if found is None:
            raise TryLater(f"{path} was written and is not there")
        return path, found

    # --- records ---

    def add(self, record: Record, spec: JobSpec, launch: str) -> None:
        """A job's folder appears whole or not at all, and is its owner's. Raises Exists, Never.

        It is made where its owner may write for as long as that takes, and put by the bridge where he may not.
        """
        own = self._hdfs.as_user(record.owner)
        folder = self.folder(record.job)
        known = self._kept.spec(record.job) if self._kept.record(record.job) is not None else None
        if known is not None and known != spec:
            raise Never(f"there is already another job {record.job}")
        staging = f"{self.jobs}/{STAGING}{secrets.token_hex(8)}"
        part = f"{staging}/{record.job}"
        self._hdfs.make_folder(staging, "1777")
        try:
            own.make_folder(part, "755")
            own.make_document(f"{part}/{GATE}", encode(record))
            own.create(f"{part}/{LAUNCH}", launch.encode())
            made = self._hdfs.status(part)
            if made is None or made.owner != record.owner:
                raise Never(f"{folder} would be {made.owner if made else 'nobody'}'s, not {record.owner}'s: refused")
            if known is None:
                self._kept.add(record, spec)
            self._hdfs.rename(part, folder)
            self._gates[record.job] = encode(record)
        except BaseException:
            with suppress(PortError):  # what cannot be taken away now is swept later
                own.delete(part)
            raise
        finally:
            with suppress(PortError):
                self._hdfs.delete(staging)

    def read(self, job: JobId, entry: Status) -> Seen | str:
        """The job, or what is wrong with it. Raises Unreadable."""
        self._trust()
        folder = self.folder(job)
        if not self._kept.there():
            return self._as_before(job, entry)
        record = self._kept.record(job)
        spec = self._kept.spec(job)
        if record is None or spec is None:
            return f"{folder} was not handed in to Horae, whatever it says ({entry.owner} made it): it is refused"
        if against := foreign(record, entry):
            return f"{folder} {against}"
        return Seen(record, spec, entry.modified_s, unwritten=self._is_behind(record))

    def _is_behind(self, record: Record) -> bool:
        """Whether its gate says something else: a kill may have come between the two. Of a gate that its owner lets
        nobody read nobody knows, and it is written anew in his name."""
        path = f"{self.folder(record.job)}/{GATE}"
        try:
            return record.phase is not Phase.IDLE and self._hdfs.document(path) != encode(record)
        except (FixConfiguration, Never):
            return True

    def service_name(self, job: JobId) -> str:
        return service_name(job, self.root)

    def services_of(self, jobs: Iterable[JobId]) -> dict[str, JobId]:
        """Under which names jobs have their services, or had in the version before."""
        return {name: job for job in jobs for name in (self.service_name(job), service_name(job))}

    def owners_of(self, services: Set[str]) -> dict[str, str]:
        """Of those of them that a job handed in to this bridge has, or had before somebody took its folder away."""
        jobs = self.services_of(self._kept.jobs()) if services else {}
        found: dict[str, str] = {}
        for name in services & jobs.keys():
            with suppress(Unreadable):  # no record of ours: nobody's
                record = self._kept.record(jobs[name])
                found |= {} if record is None else {name: record.owner}
        return found

    def record(self, job: JobId) -> Record | None:
        """As HDFS has it now. Raises Unreadable."""
        return self._kept.record(job)

    def reread(self, seen: Seen) -> None:
        """The record as HDFS has it now; of one whose writing broke off, whether its gate has followed. Raises
        Unreadable."""
        found = self._kept.record(seen.record.job)
        if found is not None:
            seen.record = found
            seen.unwritten = seen.doubtful and self._is_behind(found)
            seen.unread = True
        seen.doubtful = False

    def keep(self, record: Record) -> None:
        self._kept.keep(record)

    def tell(self, record: Record, *, aloud: bool = False) -> None:
        """By the gate, what its workers are to do. `aloud`: the stamp of its folder tells of it, for arbiters that only
        look on."""
        folder = self.folder(record.job)
        if aloud or self._is_news(record):
            own = self._hdfs.as_user(record.owner)
            path = f"{folder}/{GATE}"
            data = encode(record)
            before = self._gates.pop(record.job, b"")  # of a writing that breaks off nobody knows what stands there
            if aloud or not (before and own.fits_one(before) and own.overwrite_document(path, data)):
                with self.stamps.writing(record.job):
                    own.keep_document(path, data, folder)
            self._gates[record.job] = data

    def _is_news(self, record: Record) -> bool:
        """Whether its gate says something else than before. Who waits for a gang to form waits at a gate that says
        stop, whomever that named."""
        written = self._gates.get(record.job)
        if written is None or record.phase is not Phase.FORMING:
            return written != encode(record)
        before = json.loads(written)
        now = gate_document(record)
        return bool(before["state"] != now["state"] or before["epoch"] != now["epoch"])

    def reason(self, record: Record, text: str) -> None:
        """Written over where there is one of ours: one request for three, and no stamp that has its folder read."""
        folder = self.folder(record.job)
        path, data = f"{folder}/reason", text.encode() + b"\n"
        own = self._hdfs.as_user(record.owner)
        if record.job in self._reasoned and own.overwrite_document(path, data):
            return
        self._reasoned.discard(record.job)
        with self.stamps.writing(record.job):
            own.keep_document(path, data, folder)
        if own.fits_one(data):
            self._reasoned.add(record.job)

    def look(self, owner: str, path: str) -> Status | None:
        """A file of the owner's that is not ours."""
        return self._hdfs.as_user(owner).status(path)

    def broken_definition(self, service: str, owner: str) -> float | None:
        """When that was written which stands where YARN keeps this service's definition and is none of it; None where
        it is one, or there is nothing."""
        path = definition_path(service, owner)
        own = self._hdfs.as_user(owner)
        found = own.status(path)
        if found is None:
            return None
        data = own.read(path, 0, _LONGEST)
        if data is None or definition_of(data, path) == service:
            return None
        return found.modified_s

    def forget_definition(self, service: str, owner: str) -> bool:
        """Of a YARN service, which YARN keeps in its owner's home. False where it is not there."""
        path = definition_path(service, owner)
        return self._hdfs.as_user(owner).delete(path.rpartition("/")[0])

    # --- the gate ---

    def members(self, record: Record) -> dict[str, Worker]:
        return self._theirs.members(self.folder(record.job), max(record.size, len(record.workers)))

    def acks(self, record: Record) -> dict[str, Ack]:
        return self._theirs.acks(self.folder(record.job), {each.name for each in record.workers})

    def forget(self, record: Record, names: Iterable[str]) -> None:
        """Members whose containers are gone."""
        gone = sorted(names)
        own = self._hdfs.as_user(record.owner)
        folder = self.folder(record.job)
        for name in gone:
            own.delete(f"{folder}/members/{name}")
            own.delete(f"{folder}/acks/{name}")
        self._theirs.forget(folder, gone)

    def sweep(self, record: Record) -> None:
        own = self._hdfs.as_user(record.owner)
        folder = self.folder(record.job)
        with self.stamps.writing(record.job):
            for name in ("members", "acks"):
                own.delete(f"{folder}/{name}")
            own.sweep(folder)
        self._theirs.forget(folder)

    # --- output and checkpoints ---

    def log(self, job: JobId, offset: int, limit: int) -> LogChunk:
        """The epochs' outputs one after the other."""
        folder = f"{self.folder(job)}/log"
        parts = self._theirs.log_parts(self.folder(job))
        total = sum(each.length for each in parts)
        identity = job if parts else ""
        if offset > total:
            offset = 0
            identity = f"{identity}:truncated"
        data = b""
        start = 0
        for part in parts:
            if start + part.length > offset + len(data) and len(data) < limit:
                skip = offset + len(data) - start
                wanted = min(limit - len(data), part.length - skip)
                piece = self._hdfs.read(f"{folder}/{part.name}", skip, wanted) or b""
                data += piece
                if len(piece) < wanted:  # a DataNode that is behind: what follows would be out of place
                    break
            start += part.length
        end = offset + len(data)
        return LogChunk(data, end, identity, end >= total)

    def newest(self, record: Record, spec: JobSpec) -> tuple[int, float, float] | None:
        """The newest complete checkpoint, where the bridge can see it."""
        return self._newest.of(record.job, spec, record.owner)


def foreign(record: Record, entry: Status) -> str:
    """What is wrong with whose folder it is; "" where HDFS and the record agree."""
    if entry.owner == record.owner:
        return ""
    return f"is {entry.owner}'s folder now, and the job is {record.owner}'s: it is refused until that is mended"
