"""The port of the local cluster.

    STATE/claim  heartbeat          the arbiter's marks
    STATE/nodes/NAME                `down` or `drain`: the health of a virtual node, by whoever may write there
    STATE/jobs/JOB/                 one folder a job (horae/elastic/jobfolder.py)

Nothing is remembered outside these files but caches. Two arbiters at once are safe: starts are made under one lock
of the cluster, and a job's own lock admits one supervisor.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import re
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock

from horae.elastic import protocol
from horae.elastic.checkpoints import newest_mark
from horae.elastic.files import read_bytes, write_atomic
from horae.elastic.processes import kill_marked, send
from horae.elastic.protocol import State
from horae.elastic.run import checkpoint_url
from horae.elastic.stores import open_store
from horae.local import specfile
from horae.local.keeping import Keeper, leftovers
from horae.local.launch import Launcher
from horae.local.logs import LogReader
from horae.local.options import LocalOptions
from horae.local.records import REASON_FILE, RELEASED_FILE, Record, Records, read
from horae.port import (
    Capabilities,
    FixConfiguration,
    JobId,
    LogChunk,
    Never,
    Observation,
    TryLater,
)
from horae.spec import JobSpec
from horae.untrusted import Folder
from policy.model import Allocation, Health, Seconds

_JOB_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:+@=-]{0,199}$")


class LocalCluster:
    """A `horae.port.ClusterPort`. Thread-safe."""

    def __init__(self, options: LocalOptions) -> None:
        self._options = options
        self._state = options.state
        self._mutex = Lock()
        self._nodes = {node.name: node for node in options.nodes}
        with _mending(f"cannot use {self._state}"):
            for folder in (self._state, self._state / "jobs", self._state / "nodes"):
                folder.mkdir(parents=True, exist_ok=True)
            leftovers(self._state / "jobs")
        self._records = Records(self._state / "jobs")
        self._logs = LogReader()
        self._launcher = Launcher(options.python)
        self._keeper = Keeper(self._state / "jobs", options.keep_s)

    # --- looking ------------------------------------------------------------------------------------------

    def capabilities(self) -> Capabilities:
        gpus = sum(node.gpus for node in self._options.nodes)
        kind = "real" if self._options.devices else "virtual"
        return Capabilities(
            cluster=f"local ({len(self._nodes)} {kind} nodes, {gpus} GPUs)",
            notes=("a released job that waits is not started by anybody: there is no other scheduler here",),
        )

    def observe(self) -> Observation:
        with self._mutex, _reading():
            self._launcher.reap()
            records = self._records.scan()
            health = self._health()
            records = [self._settled(self._struck(record, health)) for record in records]
            gone = set(self._keeper.clear(records))
            records = [record for record in records if record.id not in gone]
            foreign: dict[str, int] = {}
            for record in records:
                if record.released:
                    for node, gpus in record.allocation.items():
                        foreign[node] = foreign.get(node, 0) + gpus
            claim = read_bytes(str(self._state / "claim"), 4096)
            return Observation(
                now_s=time.time(),
                nodes=tuple(
                    replace(node, health=health.get(node.name, Health.UP), foreign=foreign.get(node.name, 0))
                    for node in self._options.nodes
                ),
                jobs=tuple(record.observed() for record in records if not record.released),
                claim=None if claim is None else claim.decode(errors="replace").strip(),
                notes=tuple(record.trouble for record in records if record.trouble),
            )

    def read_log(self, job: JobId, offset: int, limit: int = 1 << 20) -> LogChunk:
        with self._mutex, _reading():
            record = self._known(job)
            return self._logs.read(job, record.folder.file(protocol.LOG_FILE), offset, limit)

    # --- the arbiter's marks ------------------------------------------------------------------------------

    def claim(self, token: str) -> None:
        with _mending("cannot write the claim"):
            write_atomic(str(self._state / "claim"), token.encode() + b"\n")

    def heartbeat(self) -> None:
        with _mending("cannot write the heartbeat"):
            write_atomic(str(self._state / "heartbeat"), b"%.3f\n" % time.time(), sync=False)

    # --- acting -------------------------------------------------------------------------------------------

    def submit(self, job: JobId, spec: JobSpec) -> None:
        if not _JOB_ID.match(job):
            raise Never(f"{job!r} cannot be a job's id here: letters, digits and ._:+@=- only, at most 200")
        data = specfile.encode(spec)
        self._launcher.check(spec)
        with self._mutex, _mending(f"cannot keep job {job}"):
            record = self._records.one(job)
            if record is not None and not record.trouble:
                if record.released or record.spec != spec:
                    raise Never(f"there is already another job {job}")
                return
            if record is not None:  # made during a power cut: the name is there, the specification is not
                write_atomic(record.folder.file(protocol.SPEC_FILE), data)
                return
            folder = self._state / "jobs" / f".{job}.{os.urandom(4).hex()}"
            folder.mkdir(mode=0o700)
            try:
                write_atomic(str(folder / protocol.SPEC_FILE), data, sync=False)
                with Folder.open(folder) as opened:
                    self._launcher.give(opened, spec)
                folder.rename(self._state / "jobs" / job)
            except OSError:
                shutil.rmtree(folder, ignore_errors=True)
                raise

    def start(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        with self._mutex, _mending(f"cannot start job {job}"), self._starting():
            record = self._settled(self._known(job))
            if record.job_state.ended:
                raise Never(f"job {job} is {record.job_state}: it never starts again")
            self._check(allocation)
            if epoch <= max(record.epoch, record.state_epoch):
                return  # asked twice, or by an arbiter that is behind
            if record.lives:
                raise TryLater(f"job {job} is still {record.job_state} in epoch {record.epoch}")
            if record.spec is None:
                raise Never(record.trouble)
            slots = self._free_slots(allocation)
            lock = record.folder.take_lock()
            if lock is None:
                raise TryLater(f"job {job} is being looked at", retry_after_s=0.05)
            try:
                self._launch(record, record.spec, allocation, slots, epoch, lock)
            finally:
                os.close(lock)

    def reshape(self, job: JobId, allocation: Allocation, epoch: int) -> None:
        raise Never("the local cluster changes a job's GPUs by stopping and starting it")

    def checkpoint_and_stop(self, job: JobId, grace_s: Seconds) -> None:
        with self._mutex, _mending(f"cannot ask job {job} to stop"):
            record = self._known(job)
            if not record.lives or record.state_epoch > record.epoch:
                return
            if record.folder.stop_request(record.epoch) is None:
                record.folder.request_stop(record.epoch, grace_s)
            self._wake(record)

    def cancel(self, job: JobId) -> None:
        with self._mutex, _mending(f"cannot cancel job {job}"):
            record = self._known(job)
            if record.cancelled or (record.job_state.ended and not record.lives):
                return
            record.folder.request_cancel()
            self._wake(record)

    def release(self, job: JobId) -> None:
        with self._mutex, _mending(f"cannot release job {job}"):
            record = self._records.one(job) if _JOB_ID.match(job) else None
            if record is not None and not record.released:
                write_atomic(record.folder.file(RELEASED_FILE), b"")

    def set_order(self, jobs: Sequence[JobId]) -> None:
        raise Never("the local cluster starts nothing by itself: there is no order to set")

    def set_reason(self, job: JobId, text: str) -> None:
        with self._mutex, _mending(f"cannot note why job {job} waits"):
            path = self._known(job).folder.file(REASON_FILE)
            data = text.encode() + b"\n"
            if read_bytes(path) != data:
                write_atomic(path, data, sync=False)

    def close(self) -> None:
        self._launcher.reap()

    # --- starting -----------------------------------------------------------------------------------------

    def _check(self, allocation: Allocation) -> None:
        if not allocation:
            raise Never("an allocation without GPUs cannot run anything")
        for name, gpus in allocation.items():
            node = self._nodes.get(name)
            if node is None:
                raise Never(f"there is no node {name} (there are {', '.join(self._nodes)})")
            if not 1 <= gpus <= node.gpus:
                raise Never(f"node {name} has {node.gpus} GPUs; {gpus} cannot be granted there")

    def _free_slots(self, allocation: Allocation) -> dict[str, list[int]]:
        """GPU indices for each node, the lowest free ones. Raises TryLater."""
        health = self._health()
        busy: dict[str, set[int]] = {}
        for record in self._records.scan():
            for name, held in record.slots.items():
                busy.setdefault(name, set()).update(held)
        slots = {}
        for name, gpus in allocation.items():
            if name in health:
                raise TryLater(f"node {name} is {health[name]}", retry_after_s=5.0)
            free = [i for i in self._options.slots(self._nodes[name]) if i not in busy.get(name, ())]
            if len(free) < gpus:
                raise TryLater(f"node {name} has {len(free)} GPUs free; {gpus} were granted")
            slots[name] = free[:gpus]
        return slots

    def _launch(
        self,
        record: Record,
        spec: JobSpec,
        allocation: Allocation,
        slots: Mapping[str, Sequence[int]],
        epoch: int,
        lock: int,
    ) -> None:
        """Write the fence and the first account, then let the supervisor inherit the lock."""
        folder = record.folder
        folder.write_epoch(epoch)
        folder.withdraw_stop()
        speeds = {n: s for n in allocation if (s := self._options.speeds.get(self._nodes[n].gpu_type)) is not None}
        folder.write_state(
            {
                **{key: record.state.get(key) for key in ("checkpoint", "failures", "ran_s")},
                "epoch": epoch,
                "state": State.STARTING,
                "pid": None,
                "allocation": dict(allocation),
                "slots": {node: list(held) for node, held in slots.items()},
                "speeds": speeds,
                "since_s": time.time(),
                "exit_code": None,
            },
            sync=False,
        )
        self._launcher.start(folder.path, _owner(folder.path), lock)

    @contextmanager
    def _starting(self) -> Iterator[None]:
        """One start at a time on the whole cluster, whoever the arbiter is: slots are chosen under this lock."""
        fd = os.open(self._state / "start.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    # --- healing ------------------------------------------------------------------------------------------

    def _settled(self, record: Record) -> Record:
        """A start whose supervisor died without a word is written down as lost, and what it left is killed."""
        if record.final or record.lives:
            return record
        lock = record.folder.take_lock()
        if lock is None:
            return record
        try:
            # Under the lock once more: it may have ended in order, or another arbiter have seen to it, since the look.
            record = read(record.id, record.folder.path, record)
            if record.final:
                return record
            kill_marked(protocol.ENV_JOB_DIR, record.folder.path)
            state = {
                **record.state,
                "epoch": record.epoch,
                "state": State.CANCELLED if record.cancelled else State.LOST,
                "pid": None,
                "allocation": {},
                "slots": {},
                "since_s": time.time(),
                "exit_code": None,
                "native": "its supervisor died",
                "checkpoint": self._newest(record) or record.state.get("checkpoint"),
            }
            try:
                record.folder.write_state(state)
            except OSError as error:
                # Without room for the note the folder still says the same, only less shortly.
                return replace(record, trouble=f"{record.folder.path}: {error.strerror}")
        finally:
            os.close(lock)
        return self._records.one(record.id) or record

    def _newest(self, record: Record) -> dict[str, float] | None:
        """The newest complete checkpoint; the dead supervisor's account may be seconds behind."""
        if record.spec is None or record.spec.checkpoint is None:
            return None
        url = record.spec.checkpoint
        try:
            found = newest_mark(open_store(checkpoint_url(url, record.spec.cwd)))
        except (OSError, ValueError):
            return None
        return None if found is None else {"epoch": found[0].epoch, "step": found[0].step, "time_s": found[1]}

    def _struck(self, record: Record, health: Mapping[str, Health]) -> Record:
        """A virtual node that is down takes what runs there with it."""
        if record.lives and any(health.get(node) is Health.DOWN for node in record.allocation):
            pid = self._supervisor(record)
            if pid is not None:
                send(pid, signal.SIGKILL)
        return record

    def _health(self) -> dict[str, Health]:
        """Nodes that are not up."""
        found = {}
        for path in (self._state / "nodes").iterdir():
            word = (read_bytes(str(path), 64) or b"").decode(errors="replace").strip()
            if path.name in self._nodes and word in (Health.DOWN, Health.DRAIN):
                found[path.name] = Health(word)
        return found

    # --- the supervisor -----------------------------------------------------------------------------------

    def _wake(self, record: Record) -> None:
        """Have the supervisor look at its folder now; without this it does within half a second."""
        pid = self._supervisor(record)
        if pid is not None:
            send(pid, signal.SIGUSR1)

    def _supervisor(self, record: Record) -> int | None:
        """The living supervisor's pid. The account is the owner's to write: only a process of his is believed."""
        pid = record.state.get("pid")
        if not record.lives or record.state_epoch != record.epoch or not isinstance(pid, int) or pid <= 1:
            return None
        try:
            same = Path(f"/proc/{pid}").stat().st_uid == Path(record.folder.path).stat().st_uid
        except FileNotFoundError:
            return None
        return pid if same else None

    def _known(self, job: JobId) -> Record:
        record = self._records.one(job) if _JOB_ID.match(job) else None
        if record is None or record.released:
            raise Never(f"there is no job {job}")
        return record


def _owner(folder: str) -> str:
    """Whose job it is: his whom we gave the folder. Only root can give it to anybody else. Raises Never."""
    uid = Path(folder).lstat().st_uid
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        raise Never(f"{folder} belongs to user {uid}, whom this machine does not know") from None


@contextmanager
def _mending(what: str) -> Iterator[None]:
    """An operating-system error becomes the port's word for what to do about it."""
    try:
        yield
    except OSError as error:
        remedy = "check the folder's owner and rights"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = "free some space"
        elif error.errno in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE):
            raise TryLater(f"{what}: {error}", retry_after_s=5.0) from error
        raise FixConfiguration(f"{what}: {error}", remedy) from error


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TryLater(f"the local cluster cannot be read: {error}", retry_after_s=5.0) from error
