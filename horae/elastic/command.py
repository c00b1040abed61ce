"""The command line of `horae-exec`: from arguments, or a job folder, to one `Run`."""

import argparse
import json
import os
import pwd
import signal
import sys
from typing import Any, Dict, Optional, Sequence

from . import protocol, shape, slurm
from .files import read_bytes
from .jobfolder import JobFolder
from .processes import keep
from .spool import DEFAULT_LIMIT, Spool
from .supervisor import STOP_SIGNALS, Run, Supervisor


class Unusable(Exception):
    """The job folder or the arguments cannot be used; the text says why and what to do."""


def run_from_folder(folder: JobFolder) -> Run:
    """The start that an adapter prepared: `spec.json` says what, `state.json` says where. Raises Unusable."""
    spec = _json(folder, protocol.SPEC_FILE)
    state = _json(folder, protocol.STATE_FILE)
    try:
        epoch = int(state["epoch"])
        allocation = {str(node): int(gpus) for node, gpus in state["allocation"].items()}
        slots = {str(node): [int(i) for i in each] for node, each in state["slots"].items()}
        speeds = {str(node): float(speed) for node, speed in (state.get("speeds") or {}).items()}
        command = [str(word) for word in spec["command"]]
        name, cwd, extra = str(spec["name"]), str(spec.get("cwd") or ""), spec.get("extra") or {}
        limit = spec.get("time_limit_s")
        grace_s, retries = float(spec.get("grace_s", 60.0)), int(spec.get("retries", 0))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unusable(
            "%s: its %s or %s lacks something: %r" % (folder.path, "spec.json", "state.json", error)
        ) from None
    url = spec.get("checkpoint")
    checkpoint = None if url is None else checkpoint_url(str(url), cwd)
    env = shape.plain_environment(spec.get("env") or {})
    env.update(
        shape.trainer_environment(name, folder.path, epoch, checkpoint, folder.file(protocol.EPOCH_FILE), grace_s)
    )
    run = Run(name, epoch, lambda: shape.local_members(command, env, cwd or folder.path, allocation, slots, speeds))
    run.checkpoint = checkpoint
    run.grace_s = grace_s
    run.retries = retries
    run.time_limit_s = None if limit is None else float(limit)
    run.allocation = allocation
    run.slots = slots
    apply_extra(run, extra)
    return run


def apply_extra(run: Run, extra: Dict[str, Any]) -> None:
    """The user's own words for the supervisor. Raises Unusable."""
    run.self_checkpointing = str(extra.get(protocol.EXTRA_SELF_CHECKPOINTING, "")).lower() in ("1", "true", "yes")
    word = str(extra.get(protocol.EXTRA_STOP_SIGNAL, "USR1")).upper()
    if word not in ("USR1", "TERM"):
        raise Unusable("%s: %r is neither USR1 nor TERM" % (protocol.EXTRA_STOP_SIGNAL, word))
    run.stop_signal = signal.SIGTERM if word == "TERM" else signal.SIGUSR1
    try:
        run.log_limit = int(extra.get(protocol.EXTRA_LOG_LIMIT, DEFAULT_LIMIT))
    except ValueError:
        raise Unusable("%s: not a number of bytes" % protocol.EXTRA_LOG_LIMIT) from None


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        prog="horae-exec",
        description="The parent of a trainer: starts it once a GPU, asks it to checkpoint, keeps its log.",
    )
    parser.add_argument("--job", metavar="FOLDER", help="run the start that a job folder describes")
    parser.add_argument("--lock", metavar="FD", type=int, help="the folder's lock, already held by this descriptor")
    parser.add_argument("--daemon", action="store_true", help="return at once and outlive the caller")
    parser.add_argument("--user", help="run the job as this user (as root only)")
    here = parser.add_argument_group("as the last line of an sbatch script: exec horae-exec [options] -- COMMAND")
    here.add_argument("--checkpoint", metavar="FOLDER", help="where its checkpoints are (default: the working folder)")
    here.add_argument("--grace", metavar="SECONDS", type=float, default=60.0, help="time to checkpoint and leave")
    here.add_argument("--retries", metavar="N", type=int, default=0, help="failures after which it has failed")
    here.add_argument("--self-checkpointing", action="store_true", help="its checkpoints are not the SDK's")
    here.add_argument("command", nargs="*", metavar="COMMAND", help="the trainer, run once a GPU")
    options = parser.parse_args(arguments)
    if (options.job is None) == (not options.command):
        parser.error("either --job FOLDER or -- COMMAND is needed")
    try:
        if options.job is None:
            return _run_slurm(options)
        return _run_folder(options.job, options.lock, options.daemon, options.user)
    except (Unusable, slurm.NotSlurm, OSError) as error:
        print("horae-exec: %s" % error, file=sys.stderr)
        return protocol.EXIT_USAGE


def _run_folder(path: str, lock: Optional[int], daemon: bool, user: Optional[str]) -> int:
    folder = JobFolder(path)
    if lock is None:
        lock = folder.take_lock()
        if lock is None:
            raise Unusable("%s: another supervisor holds its lock" % folder.path)
    os.set_inheritable(lock, False)
    if daemon:
        if os.fork():
            os._exit(0)
        _leave_terminal()
    if user:
        become(user)
    keep(STOP_SIGNALS)
    spool = Spool(folder.file(protocol.LOG_FILE), echo=None if daemon else 1)
    try:
        run = run_from_folder(folder)
    except Unusable as error:
        spool.write(b"[horae-exec] %s\n" % str(error).encode())
        raise
    spool.limit = run.log_limit
    return Supervisor(run, folder, spool).run()


def _run_slurm(options: argparse.Namespace) -> int:
    """One start in the batch step of a Slurm job. No lock: a lost node's supervisor may hold it for ever; the fence
    decides who may write."""
    place = slurm.Place(os.environ)
    folder = slurm.job_folder(os.environ, place)
    epoch = slurm.epoch_of(folder, place)
    direct = slurm.is_batch_shell()
    keep(STOP_SIGNALS)
    spool = Spool(folder.file(protocol.LOG_FILE), echo=1)
    checkpoint = checkpoint_url(options.checkpoint or "", os.getcwd())
    env = slurm.fresh(shape.plain_environment({}))
    fence = folder.file(protocol.EPOCH_FILE)
    env.update(shape.trainer_environment(place.name, folder.path, epoch, checkpoint, fence, options.grace))
    run = Run(place.name, epoch, lambda: slurm.members(place, folder, epoch, options.command, env))
    run.checkpoint = checkpoint
    run.self_checkpointing = options.self_checkpointing
    run.grace_s = options.grace
    run.retries = options.retries
    run.allocation = place.allocation
    slurm.announce(folder, epoch, direct, checkpoint)
    return Supervisor(run, folder, spool).run()


def become(user: str) -> None:
    """Run as another user from here on. Raises Unusable."""
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise Unusable("no such user: %s" % user) from None
    if entry.pw_uid == os.geteuid():
        return
    try:
        os.initgroups(user, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
    except PermissionError:
        raise Unusable("only root can run a job as %s" % user) from None
    os.environ.update(HOME=entry.pw_dir, USER=user, LOGNAME=user, SHELL=entry.pw_shell)


def _leave_terminal() -> None:
    """Own session, no terminal, no open file of the caller but the lock."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    os.chdir("/")


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


def checkpoint_url(url: str, cwd: str) -> str:
    """A relative folder is the user's: relative to where the trainer runs."""
    return url if "://" in url else os.path.join(cwd, url)
