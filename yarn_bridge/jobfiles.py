"""The bridge's files in HDFS (`memory.py` says which): one listing tells what changed, and only that is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from horae.elastic.checkpoints import newest_mark
from horae.elastic.stores import FolderStore, Store
from horae.local import specfile
from horae.port import JobId, LogChunk, TryLater
from horae.spec import JobSpec
from yarn_bridge.hdfs import Hdfs, Status
from yarn_bridge.memory import CLAIM, GATE, LAUNCH, SPEC, Record, Worker, decode, encode
from yarn_bridge.services import definition_path
from yarn_bridge.steps import Ack


@dataclass
class Seen:
    """One job as last read."""

    record: Record
    spec: JobSpec
    stamp: float
    unwritten: bool = False  #: `record` is newer than what HDFS has
    unsettled: int = 2  #: rounds in which it is read again whatever its stamp says: stamps are milliseconds
    members: dict[str, Worker] = field(default_factory=dict)
    acks: dict[str, Ack] = field(default_factory=dict)
    looked_s: float = 0.0  #: when its service was read last
    application: str = ""  #: of its service, as last listed among those that live


class JobFiles:
    def __init__(self, hdfs: Hdfs, root: str) -> None:
        self._hdfs, self.root = hdfs, root
        self.jobs = f"{root}/jobs"
        self._members: dict[str, Worker] = {}
        self._acks: dict[tuple[str, str, float], Ack] = {}

    def folder(self, job: JobId) -> str:
        return f"{self.jobs}/{job}"

    def prepare(self) -> None:
        """Folders that other owners may add to."""
        self._hdfs.make_folder(self.root, "755")
        self._hdfs.make_folder(self.jobs, "1777")

    def entries(self) -> dict[str, Status]:
        return {each.name: each for each in self._hdfs.entries(self.jobs)}

    # --- claim and SDK ---

    def claim(self) -> str | None:
        data = self._hdfs.document(f"{self.jobs}/.{CLAIM}")
        return None if data is None else data.decode(errors="replace").strip()

    def write_claim(self, token: str) -> None:
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
        own, folder = self._hdfs.as_user(record.owner), self.folder(record.job)
        launch = own.read(f"{folder}/{LAUNCH}")
        if launch is None:
            raise TryLater(f"{folder} lacks {LAUNCH}")
        name, data = make(launch)
        path = f"{folder}/{name}"
        found = own.status(path)
        if found is None or found.length != len(data):
            own.write(path, data)
            found = own.status(path)
        if found is None:
            raise TryLater(f"{path} was written and is not there")
        return path, found

    # --- records ---

    def add(self, record: Record, spec: JobSpec, launch: str) -> None:
        """A job's folder appears whole or not at all. Raises Exists."""
        own = self._hdfs.as_user(record.owner)
        part = f"{self.jobs}/.tmp-{record.service}"
        own.delete(part)
        own.make_folder(part, "755")
        own.keep_document(f"{part}/{SPEC}", specfile.encode(spec), part)
        own.keep_document(f"{part}/{GATE}", encode(record), part)
        own.write(f"{part}/{LAUNCH}", launch.encode())
        own.rename(part, self.folder(record.job))

    def read(self, job: JobId, stamp: float) -> Seen | str:
        """The job, or what is wrong with its files."""
        folder = self.folder(job)
        data, text = self._hdfs.document(f"{folder}/{GATE}"), self._hdfs.document(f"{folder}/{SPEC}")
        if data is None or text is None:
            return f"{folder} lacks {GATE if data is None else SPEC}"
        try:
            return Seen(decode(data), specfile.decode(text), stamp)
        except ValueError as error:
            return f"{folder}: {error}"

    def reread(self, seen: Seen) -> None:
        data = self._hdfs.document(f"{self.folder(seen.record.job)}/{GATE}")
        if data is not None:
            seen.record, seen.unwritten = decode(data), False

    def keep(self, record: Record) -> None:
        folder = self.folder(record.job)
        self._hdfs.as_user(record.owner).keep_document(f"{folder}/{GATE}", encode(record), folder)

    def reason(self, record: Record, text: str) -> None:
        folder = self.folder(record.job)
        self._hdfs.as_user(record.owner).keep_document(f"{folder}/reason", text.encode() + b"\n", folder)

    def look(self, owner: str, path: str) -> Status | None:
        """A file of the owner's that is not ours."""
        return self._hdfs.as_user(owner).status(path)

    def forget_definition(self, record: Record) -> None:
        """Of its YARN service, which YARN keeps in its owner's home."""
        path = definition_path(record.service, record.owner)
        self._hdfs.as_user(record.owner).delete(path.rpartition("/")[0])

    # --- the gate ---

    def members(self, job: JobId) -> dict[str, Worker]:
        folder = f"{self.folder(job)}/members"
        found: dict[str, Worker] = {}
        for entry in self._hdfs.entries(folder):
            if entry.name.startswith("."):
                continue
            if entry.name not in self._members:
                value = _json(self._hdfs.document(f"{folder}/{entry.name}"))
                if "host" not in value:
                    continue
                port = value.get("port")
                known = Worker(entry.name, "", str(value["host"]), port if isinstance(port, int) else 0)
                self._members[entry.name] = known
            found[entry.name] = self._members[entry.name]
        return found

    def acks(self, job: JobId) -> dict[str, Ack]:
        folder = f"{self.folder(job)}/acks"
        found: dict[str, Ack] = {}
        for entry in self._hdfs.entries(folder):
            if entry.name.startswith("."):
                continue
            key = (job, entry.name, entry.modified_s)
            if key not in self._acks:
                ack = _ack(_json(self._hdfs.document(f"{folder}/{entry.name}")))
                if ack is None:
                    continue
                self._acks[key] = ack
            found[entry.name] = self._acks[key]
        return found

    def forget(self, record: Record, names: Iterable[str]) -> None:
        """Members whose containers are gone."""
        own, folder = self._hdfs.as_user(record.owner), self.folder(record.job)
        for name in sorted(names):
            own.delete(f"{folder}/members/{name}")
            own.delete(f"{folder}/acks/{name}")
            self._members.pop(name, None)
            self._acks = {key: ack for key, ack in self._acks.items() if key[:2] != (record.job, name)}

    def sweep(self, record: Record) -> None:
        own = self._hdfs.as_user(record.owner)
        folder = self.folder(record.job)
        for name in ("members", "acks"):
            own.delete(f"{folder}/{name}")
        own.sweep(folder)
        self._acks = {key: ack for key, ack in self._acks.items() if key[0] != record.job}
        for worker in record.workers:
            self._members.pop(worker.name, None)

    # --- output and checkpoints ---

    def log(self, job: JobId, offset: int, limit: int) -> LogChunk:
        """The epochs' outputs one after the other."""
        folder = f"{self.folder(job)}/log"
        parts = [each for each in self._hdfs.entries(folder) if each.name.isdigit()]
        total = sum(each.length for each in parts)
        identity = job if parts else ""
        if offset > total:
            offset, identity = 0, f"{identity}:truncated"
        data, start = b"", 0
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

    def newest(self, spec: JobSpec, owner: str) -> tuple[int, float, float] | None:
        """The newest complete checkpoint, where the bridge can see it."""
        url = spec.checkpoint
        if not url:
            return None
        store: Store
        scheme, separator, rest = url.partition("://")
        if separator and scheme in {"hdfs", "webhdfs", "swebhdfs"}:
            store = _Checkpoints(self._hdfs.as_user(owner), "/" + rest.partition("/")[2].rstrip("/"))
        elif url.startswith("/"):
            store = FolderStore(url)
        else:
            return None
        try:
            found = newest_mark(store)
        except OSError:  # a folder of the user's that is not for the bridge to read
            return None
        return None if found is None else (found[0].epoch, float(found[0].step), found[1])


class _Checkpoints(Store):
    """Checkpoints as they lie in HDFS, for looking only."""

    def __init__(self, hdfs: Hdfs, path: str) -> None:
        self._hdfs, self._path = hdfs, path

    def entries(self) -> list[str]:
        return [each.name for each in self._hdfs.entries(self._path) if each.folder and not each.name.startswith(".")]

    def read(self, entry: str, name: str) -> bytes | None:
        return self._hdfs.read(f"{self._path}/{entry}/{name}")

    def sizes(self, entry: str) -> dict[str, int]:
        return dict(self._walk(f"{self._path}/{entry}", ""))

    def _walk(self, path: str, below: str) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        for each in self._hdfs.entries(path):
            if each.folder:
                found += self._walk(f"{path}/{each.name}", f"{below}{each.name}/")
            else:
                found.append((below + each.name, each.length))
        return found


def _ack(value: dict[str, Any]) -> Ack | None:
    try:
        mark = value.get("checkpoint")
        newest = None if mark is None else (int(mark["epoch"]), float(mark["step"]), float(mark["time_s"]))
        return Ack(
            int(value["epoch"]), str(value["state"]), int(value["exit_code"]), newest, str(value.get("text") or ""),
            float(value["time_s"]),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError):
        return None


def _json(data: bytes | None) -> dict[str, Any]:
    try:
        value = json.loads(data or b"{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
