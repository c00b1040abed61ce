"""One start of one job: what to run and by which rules."""

import json
import os
import signal
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from .. import protocol
from ..files import read_bytes
from . import shape, tasks, typed
from .gang import Member
from .jobfolder import JobFolder
from .spool import DEFAULT_LIMIT


class Unusable(ValueError):
    """The job folder or the arguments cannot be used; the text says why and what to do."""


class Run:
    def __init__(self, name: str, epoch: int, members: Callable[[], List[Member]]) -> None:
        self.name = name
        self.epoch = epoch
        self.members = members  #: the processes to spawn, made anew for each attempt
        self.checkpoint: Optional[str] = None
        self.self_checkpointing = False
        self.stop_signal = signal.SIGUSR1
        self.grace_s = 60.0
        self.retries = 0
        self.time_limit_s: Optional[float] = None
        self.log_limit = DEFAULT_LIMIT
        self.keep_free = 0  #: bytes that its output leaves on the disk
        self.allocation: Dict[str, int] = {}
        self.slots: Dict[str, List[int]] = {}
        #: A launcher's exit code as the gang's.
        self.translate: Callable[[int], int] = lambda code: code
        #: Whether a rank of the newest gang began: where none did, its launcher's failure is not the job's.
        self.begun: Callable[[], bool] = lambda: True
        #: Asked, again and again, when all ranks here have finished: whether all others have too. None: there are none.
        self.all_done: Optional[Callable[[], bool]] = None
        #: Somebody who listens for requests elsewhere while the gang runs; has `start()` and `end()`.
        self.watch: Optional[Callable[[], Any]] = None


def run_from_folder(folder: JobFolder, document: Optional[bytes] = None) -> Run:
    """The start that an adapter prepared: its `document` says what and where, else `spec.json` and `state.json` do.

    Raises Unusable.
    """
    spec, state, limits = described(folder, document)
    try:
        epoch = int(state["epoch"])
        allocation = {str(node): int(gpus) for node, gpus in state["allocation"].items()}
        slots = {str(node): [int(i) for i in each] for node, each in state["slots"].items()}
        speeds = {str(node): float(speed) for node, speed in (state.get("speeds") or {}).items()}
        command = [str(word) for word in spec["command"]]
        name, cwd, extra = str(spec["name"]), str(spec.get("cwd") or folder.path), spec.get("extra") or {}
        limit = spec.get("time_limit_s")
        grace_s, retries = float(spec.get("grace_s", 60.0)), int(spec.get("retries", 0))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unusable("%s: spec.json or state.json lacks something: %r" % (folder.path, error)) from None
    url = spec.get("checkpoint")
    checkpoint = None if url is None else checkpoint_url(str(url), cwd)
    fence = folder.file(protocol.EPOCH_FILE)
    own = {str(key): str(value) for key, value in (spec.get("env") or {}).items()}
    check_servers(shape.plain_environment(own))
    told = shape.trainer_environment(name, folder.path, epoch, checkpoint, fence, grace_s)

    def members() -> List[Member]:
        """Anew for each attempt; what it was typed in is read by whoever runs it. Raises OSError."""
        base = shape.plain_environment({})
        if not spec.get("typed"):
            return shape.local_members(command, {**base, **own, **told}, cwd, allocation, slots, speeds)
        found = typed.read(str(spec["typed"]))
        env = {**found.environment(base), **own, **told}
        return typed.prepared(shape.local_members(command, env, cwd, allocation, slots, speeds), found.apply)

    run = Run(name, epoch, members)
    run.checkpoint = checkpoint
    run.grace_s = grace_s
    run.retries = retries
    if limit is not None and not _true(extra.get(protocol.EXTRA_REQUEUE_AT_LIMIT)):  # else it is the arbiter's to ask
        run.time_limit_s = float(limit)
    run.allocation = allocation
    run.slots = slots
    apply_extra(run, extra)
    _within_the_site(run, limits)
    return run


def _within_the_site(run: Run, limits: Mapping[str, Any]) -> None:
    """Whatever the job asks for."""
    most = int(limits.get("log_bytes") or 0)
    if most and not 0 < run.log_limit <= most:
        run.log_limit = most
    run.keep_free = int(limits.get("free_bytes") or 0)


def described(folder: JobFolder, document: Optional[bytes]) -> "Tuple[Dict[str, Any], Dict[str, Any], Dict[str, Any]]":
    """(what to run, where, the site's limits). Raises Unusable."""
    if document is None:
        return _json(folder, protocol.SPEC_FILE), _json(folder, protocol.STATE_FILE), {}
    value = json.loads(document.decode())
    return value["spec"], value["state"], value["limits"]


def apply_extra(run: Run, extra: Dict[str, Any]) -> None:
    """The user's own words for the supervisor. Raises Unusable."""
    run.self_checkpointing = _true(extra.get(protocol.EXTRA_SELF_CHECKPOINTING))
    word = str(extra.get(protocol.EXTRA_STOP_SIGNAL, "USR1")).upper()
    if word not in ("USR1", "TERM"):
        raise Unusable("%s: %r is neither USR1 nor TERM" % (protocol.EXTRA_STOP_SIGNAL, word))
    run.stop_signal = signal.SIGTERM if word == "TERM" else signal.SIGUSR1
    try:
        run.log_limit = int(extra.get(protocol.EXTRA_LOG_LIMIT, DEFAULT_LIMIT))
    except ValueError:
        raise Unusable("%s: not a number of bytes" % protocol.EXTRA_LOG_LIMIT) from None


def _true(word: Any) -> bool:
    return str(word or "").lower() in ("1", "true", "yes")


def check_servers(env: Dict[str, str]) -> None:
    """Raises Unusable for servers that cannot be read."""
    try:
        tasks.servers(env)
    except ValueError as error:
        raise Unusable(str(error)) from None


def checkpoint_url(url: str, cwd: str) -> str:
    """A relative folder is the user's: relative to where the trainer runs."""
    return url if "://" in url else os.path.join(cwd, url)


def _json(folder: JobFolder, name: str) -> Dict[str, Any]:
    data = read_bytes(folder.file(name))
    if data is None:
        raise Unusable("%s: there is no such file" % folder.file(name))
    try:
        value = json.loads(data.decode())
    except ValueError as error:
        raise Unusable("%s: %s" % (folder.file(name), error)) from None
    if not isinstance(value, dict):
        raise Unusable("%s: not a JSON object" % folder.file(name))
    return value
