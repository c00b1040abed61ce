"""What a job's owner may write in HDFS, read within bounds: facts about that one job, at most.

All reading of job folders and of checkpoints in HDFS goes through here, for the checks of `horae/untrusted.py`: few
entries, small documents, typed and finite numbers, names of one kind. What cannot be believed costs that job: a
member is not there, an acknowledgement was not given, or the job is told about as `Unbelievable`.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Collection, Iterator
from typing import TypeVar
from urllib.parse import urlsplit

from horae import spec_json
from horae.elastic.stores.checkpoints import newest_mark
from horae.elastic.stores.federation import client_conf, is_default, namenodes, unmounted
from horae.elastic.stores.store import HDFS_SCHEMES, FolderStore, Store
from horae.port import JobId
from horae.spec import JobSpec
from horae.untrusted import LARGEST, Facts, Unbelievable, parse
from yarn_bridge.clients.hdfs import Hdfs, Status
from yarn_bridge.jobs.record import Record, Worker, record_of
from yarn_bridge.jobs.shapes import service_name
from yarn_bridge.jobs.state_machine import Ack

#: what a document may be long, whatever HDFS holds
MOST_BYTES = 256 << 10
#: entries of a folder, epochs of a log, checkpoints
MOST_ENTRIES = 4096
#: members that have left no trace yet and are read in one look, beside two for each of the gang's GPUs
MOST_STRANGERS = 32
#: requests for the newest checkpoint of one job
MOST_ASKED = 256
#: how long a checkpoint folder on a shared filesystem is waited for
PATIENCE_S = 5.0
#: of a checkpoint's account
_MANIFEST = 16 << 20
_NAME = re.compile(r"[A-Za-z0-9_]{1,128}")
_HOST = re.compile(r"[A-Za-z0-9._:-]{1,255}")
_EPOCH = re.compile(r"[0-9]{1,12}")
_UNREADABLE = (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
T = TypeVar("T")


def gate_record(data: bytes, where: str) -> Record:
    """The record that stood in the gate of the version before. Raises Unbelievable."""
    facts = Facts(_parsed(data, where), where)
    inner = facts.inner("record")
    if inner is None:
        raise Unbelievable(where, "holds no record")
    for name in ("epoch", "granted", "failures"):
        inner.whole(name)
    for name in ("submitted_s", "since_s", "stop_s", "grace_s"):
        inner.number(name)
    try:
        found = record_of(dict(_object(_object(_parsed(data, where))["record"])))
    except ValueError as error:
        raise Unbelievable(where, str(error)) from None
    if not _sound(found):
        raise Unbelievable(where, "holds a record that Horae did not write")
    return found


def _sound(record: Record) -> bool:
    """Whether its counts are some; that every part is of its type `record_of` has seen to."""
    following = record.next or (0, ())
    counts = [*record.allocation, *record.ahead, *following[1]]
    return all(0 <= count <= LARGEST for _, count in counts)


def old_spec(data: bytes, where: str) -> JobSpec:
    """The specification beside it. Raises Unbelievable."""
    _parsed(data, where)
    try:
        return spec_json.decode(data)
    except _UNREADABLE as error:
        raise Unbelievable(where, f"cannot be read: {error}") from None


def member(data: bytes | None, name: str) -> Worker | None:
    """Who waits at the gate; None for what says no host and port."""
    try:
        facts = Facts(_parsed(data or b"{}", name), name)
        host, port = facts.text("host", 255), facts.whole("port", 0, 65535)
    except Unbelievable:
        return None
    if host is None or not _HOST.fullmatch(host):
        return None
    return Worker(name, "", str(host), port or 0)


def ack(data: bytes | None, name: str) -> Ack | None:
    """How a worker's part ended, in its own words; None for anything else."""
    try:
        facts = Facts(_parsed(data or b"{}", name), name)
        epoch, code = facts.whole("epoch"), facts.whole("exit_code", -(1 << 31), 1 << 31)
        state, text, time_s = facts.text("state", 40), facts.text("text", 400), facts.number("time_s")
        mark = _mark(facts.inner("checkpoint"))
    except Unbelievable:
        return None
    if epoch is None or code is None or state is None or time_s is None:
        return None
    return Ack(epoch, str(state), code, mark, str(text or ""), time_s)


def definition_of(data: bytes, where: str) -> str:
    """Of which service it is the definition; "" of none."""
    try:
        return str(Facts(parse(data, where), where).text("name", 255) or "")
    except Unbelievable:
        return ""


def _mark(facts: Facts | None) -> tuple[int, float, float] | None:
    if facts is None:
        return None
    epoch, step, time_s = facts.whole("epoch"), facts.number("step"), facts.number("time_s")
    if epoch is None or step is None or time_s is None:
        raise Unbelievable(facts.where, "is not a checkpoint")
    return epoch, step, time_s


def _parsed(data: bytes, where: str) -> object:
    if len(data) > MOST_BYTES:
        raise Unbelievable(where, f"is larger than {MOST_BYTES} bytes")
    return parse(data, where)


def _object(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


class UserFiles:
    """What lies in the folders of jobs. Remembers what cannot change: a worker registers once."""

    def __init__(self, hdfs: Hdfs) -> None:
        self._hdfs = hdfs
        self._members: dict[tuple[str, str], Worker] = {}
        self._acks: dict[tuple[str, str], tuple[float, Ack]] = {}  #: with the stamp that each was read at

    def members(self, folder: str, gpus: int) -> dict[str, Worker]:
        """By container. `gpus`: of the gang, which says how many are worth reading."""
        unread = 2 * gpus + MOST_STRANGERS
        found: dict[str, Worker] = {}
        for entry in self._listed(f"{folder}/members"):
            known = self._members.get((folder, entry.name))
            if known is None and unread > 0:
                unread -= 1
                known = member(self._hdfs.document(f"{folder}/members/{entry.name}"), entry.name)
            if known is not None:
                self._members[folder, entry.name] = found[entry.name] = known
        return found

    def acks(self, folder: str, of: Collection[str]) -> dict[str, Ack]:
        """Of these workers: nobody else's is looked at."""
        found: dict[str, Ack] = {}
        for entry in self._listed(f"{folder}/acks"):
            if entry.name not in of:
                continue
            stamp, told = self._acks.get((folder, entry.name), (None, None))
            if stamp != entry.modified_s:
                told = ack(self._hdfs.document(f"{folder}/acks/{entry.name}"), entry.name)
            if told is not None:
                self._acks[folder, entry.name] = entry.modified_s, told
                found[entry.name] = told
        return found

    def forget(self, folder: str, names: Collection[str] | None = None) -> None:
        """These members, or all of the folder."""
        for member_key in [key for key in self._members if key[0] == folder and (names is None or key[1] in names)]:
            del self._members[member_key]
        for key in [key for key in self._acks if key[0] == folder and (names is None or key[1] in names)]:
            del self._acks[key]

    def log_parts(self, folder: str) -> list[Status]:
        """The output of its epochs, oldest first."""
        listed = self._hdfs.some(f"{folder}/log", MOST_ENTRIES)
        return [each for each in listed if not each.folder and _EPOCH.fullmatch(each.name)]

    def _listed(self, path: str) -> Iterator[Status]:
        return (each for each in self._hdfs.some(path, MOST_ENTRIES) if _NAME.fullmatch(each.name))


class Newest:
    """The newest complete checkpoint of a job, where the bridge can see it: in the cluster's own HDFS, whatever host
    its address names, or on a shared filesystem. No other host is ever asked, and nobody waits long for a folder."""

    def __init__(self, hdfs: Hdfs) -> None:
        self._hdfs, self._aside = hdfs, Aside()

    def of(self, job: JobId, spec: JobSpec, owner: str) -> tuple[int, float, float] | None:
        try:
            url = self._own(spec.checkpoint or "")
        except ValueError:  # a mount table that this host does not have
            return None
        scheme, separator, rest = url.partition("://")
        if separator and scheme in HDFS_SCHEMES:
            path = "/" + rest.partition("/")[2].rstrip("/")
            return self._found(_Checkpoints(self._hdfs.as_user(owner), path))
        if url.startswith("/"):
            return self._aside.ask(job, lambda: self._found(FolderStore(url)))
        return None

    def _own(self, url: str) -> str:
        """As it is, or behind its mount point; "" where this host's Hadoop configuration says that it is in another
        nameservice. Raises ValueError."""
        if not url.startswith(("hdfs://", "viewfs://")):
            return url
        conf = client_conf()
        found = unmounted(url, conf)
        authority = urlsplit(found).netloc
        there = () if is_default(authority, conf) else namenodes(authority, conf)
        return found if not there or set(there) & set(self._hdfs.access.urls) else ""

    @staticmethod
    def _found(store: Store) -> tuple[int, float, float] | None:
        try:
            found = newest_mark(store)
            mark = None if found is None else (found[0].epoch, float(found[0].step), found[1])
        except (*_UNREADABLE, Unbelievable):  # a folder of the user's that says nothing we could believe
            return None
        if mark is None or not all(math.isfinite(each) and 0 <= each <= LARGEST for each in mark):
            return None
        return mark


class Aside:
    """Questions to filesystems, which may hang: each is asked by a thread of its own and waited for a little."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._asked: dict[str, threading.Thread] = {}

    def ask(self, key: str, question: Callable[[], T | None]) -> T | None:
        """None too where the answer takes long, and at once where the one before is still out."""
        self._asked = {name: each for name, each in self._asked.items() if each.is_alive()}
        if key in self._asked:
            return None
        answers: list[T | None] = []
        thread = threading.Thread(target=lambda: answers.append(question()), name=f"look {key}", daemon=True)
        self._asked[key] = thread
        thread.start()
        thread.join(self._patience_s)
        return answers[0] if answers else None


class _Checkpoints(Store):
    """Checkpoints as they lie in HDFS, for looking only, and for so many requests at most."""

    def __init__(self, hdfs: Hdfs, path: str) -> None:
        self._hdfs, self._path, self._left = hdfs, path, MOST_ASKED

    def entries(self) -> list[str]:
        self._count()
        folder = self._hdfs.status(self._path)
        only = self._hdfs.owner if folder is not None and int(folder.permission, 8) & 0o002 else ""
        listed = [each for each in self._some(self._path) if each.folder and not each.name.startswith(".")]
        return [each.name for each in listed if only in ("", each.owner)]

    def read(self, entry: str, name: str) -> bytes | None:
        self._count()
        data = self._hdfs.read(f"{self._path}/{entry}/{name}", 0, _MANIFEST + 1)
        if data is not None and len(data) > _MANIFEST:
            raise OSError(f"{entry}/{name} is larger than {_MANIFEST} bytes")
        return data

    def sizes(self, entry: str) -> dict[str, int]:
        return dict(self._walk(f"{self._path}/{entry}", ""))

    def _walk(self, path: str, below: str) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        for each in self._some(path):
            if each.folder:
                found += self._walk(f"{path}/{each.name}", f"{below}{each.name}/")
            else:
                found.append((below + each.name, each.length))
        return found

    def _some(self, path: str) -> list[Status]:
        self._count()
        return self._hdfs.some(path, MOST_ENTRIES)

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise OSError(f"{self._path} takes more than {MOST_ASKED} requests to look through")


def agrees(record: Record, spec: JobSpec, name: str, owner: str) -> str:
    """What speaks against a folder of the version before being the job that it says; "" for nothing."""
    if record.job != name:
        return f"says that it is job {record.job}"
    if record.owner != owner:
        return f"says that it is {record.owner}'s, and is {owner}'s folder"
    if record.service != service_name(name):
        return f"says that its service is {record.service}"
    if spec.owner not in {"", owner}:
        return f"says that {spec.owner} handed it in, and is {owner}'s folder"
    return ""
