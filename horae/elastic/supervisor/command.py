"""The command line of `horae-exec`: from arguments, a job folder or a cluster's environment to one `Run`."""

import argparse
import os
import pwd
import signal
import sys
from typing import Callable, Dict, List, Optional, Sequence

from .. import own_gpus, protocol
from . import shape, tasks
from .gang import Member
from .jobfolder import JobFolder
from .processes import began, keep, kill_below
from .run import Run, Unusable, apply_extra, check_servers, checkpoint_url, run_from_folder
from .spool import Spool
from .supervisor import STOP_SIGNALS, Supervisor, write_loss

#: How long the newest checkpoint of a job whose supervisor died is looked for.
_LOSS_S = 10

_DESCRIPTION = """\
The parent of a trainer: starts it once a GPU, asks it to checkpoint, keeps its log, tells truly how it ended.

On one machine:       horae-exec --gpus 2 --checkpoint ckpt -- python train.py
In a Slurm script:    exec horae-exec --checkpoint ckpt -- python train.py
On YARN:              horae-exec --gate hdfs://nn/jobs/j1/gate --member w-1 --gpus 1 -- python train.py
"""


def main(arguments: Optional[Sequence[str]] = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:2] == ["--slurm-task", "--"]:
        from .slurm import task_main

        return task_main(words[2:])
    parser = _parser()
    command: List[str] = []
    if "--" in words:
        cut = words.index("--")
        words, command = words[:cut], words[cut + 1 :]
    options = parser.parse_args(words)
    try:
        if options.job is not None:
            return _run_folder(options)
        if not command:
            parser.error("what shall run? give its command after --")
        options.command = command
        if options.gate is not None:
            return _run_gate(options)
        return _run_slurm(options) if os.environ.get("SLURM_JOB_ID") and not options.gpus else _run_here(options)
    except (Unusable, OSError, ValueError) as error:
        print("horae-exec: %s" % error, file=sys.stderr)
        return protocol.EXIT_USAGE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="horae-exec", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", metavar="URL", help="folder or URL of the job's checkpoints")
    parser.add_argument("--folder", help="job folder: state, spool, fence")
    parser.add_argument("--name", help="the job's name (default: the command's)")
    parser.add_argument("--gpus", type=int, help="ranks to start on this machine")
    parser.add_argument("--grace", type=float, default=60.0, metavar="S", help="seconds to checkpoint and leave")
    parser.add_argument("--retries", type=int, default=0, help="failures after which the job is run again in place")
    parser.add_argument("--stop-signal", default="USR1", help="USR1 or TERM: what asks the trainer to checkpoint")
    parser.add_argument(
        "--self-checkpointing", action="store_true", help="its checkpoints are its own: believe its exit code 86"
    )
    parser.add_argument("--gate", metavar="URL", help="stay, and train whenever this gate opens (YARN)")
    parser.add_argument("--member", help="this worker's name at the gate")
    parser.add_argument("--log", metavar="URL", help="with --gate: rank 0's output is copied there, a file an epoch")
    parser.add_argument("--job", metavar="FOLDER", help="run the start that a job folder describes (local cluster)")
    parser.add_argument("--lock", metavar="FD", type=int, help=argparse.SUPPRESS)  # the folder's lock, already held
    parser.add_argument("--start", metavar="FD", type=int, help=argparse.SUPPRESS)  # what to run, instead of its files
    parser.add_argument("--keeper", metavar="FD", type=int, help=argparse.SUPPRESS)  # where the keeper says who it is
    parser.add_argument("--daemon", action="store_true", help="with --job: return at once and outlive the caller")
    parser.add_argument("--user", help="with --job: run as this user (as root only)")
    return parser


# --- the ways to run --------------------------------------------------------------------------------------


def _run_folder(options: argparse.Namespace) -> int:
    """One start that the local cluster prepared.

    Until the child has become the job's owner nothing that he could write is opened or read, and its keeper, which
    stays who we are, never does.
    """
    folder = JobFolder(options.job)
    lock = folder.take_lock() if options.lock is None else options.lock
    if lock is None:
        raise Unusable("%s: another supervisor holds its lock" % folder.path)
    os.set_inheritable(lock, False)
    document = None if options.start is None else _document(options.start)
    if options.daemon:
        if os.fork():
            os._exit(0)
        _leave_terminal()
    if options.keeper is not None:
        signal.pthread_sigmask(signal.SIG_BLOCK, (*STOP_SIGNALS, signal.SIGUSR2))  # whoever reads it may signal
        os.write(options.keeper, b"%d %d\n" % (os.getpid(), began(os.getpid())))
        os.close(options.keeper)
    become = _nothing if not options.user else lambda: _become(options.user)
    keep(STOP_SIGNALS, become, lambda code: _tell_loss(folder, document, become, code))
    if options.lock is not None:
        folder.hold_quietly()
    spool = Spool(folder.file(protocol.LOG_FILE), echo=None if options.daemon else 1)
    try:
        run = run_from_folder(folder, document)
    except Unusable as error:
        spool.write(("[horae-exec] %s\n" % error).encode())
        raise
    spool.limit, spool.keep_free = run.log_limit, run.keep_free
    return _over(Supervisor(run, folder, spool).run())


def _document(fd: int) -> bytes:
    """What the starter wrote for us: it is ours alone, and parsed by whoever we become."""
    os.set_inheritable(fd, False)
    size = os.fstat(fd).st_size
    data = b""
    while len(data) < size:
        part = os.pread(fd, size - len(data), len(data))
        if not part:
            break
        data += part
    os.close(fd)
    return data


def _nothing() -> None:
    """Stays who it is."""


def _tell_loss(folder: JobFolder, document: Optional[bytes], become: Callable[[], None], code: int) -> None:
    """In the keeper: a supervisor that was killed could not say so. Its owner's own side looks for the newest
    checkpoint and writes that down, for a short time at most."""
    if code <= 128:
        return
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(_LOSS_S)
            become()
            write_loss(folder, document)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    kill_below()


def _run_here(options: argparse.Namespace) -> int:
    """A gang on this machine, without any cluster."""
    folder = _open_folder(options.folder or ".horae")
    _hold(folder)
    epoch = folder.epoch() + 1
    folder.write_epoch(epoch)
    folder.withdraw_stop()
    allocation = {"localhost": options.gpus or 1}
    env = _trainer_environment(options, folder, epoch, folder.file(protocol.EPOCH_FILE))
    run = _run_of(options, epoch, lambda: shape.local_members(options.command, env, os.getcwd(), allocation))
    run.allocation = allocation
    keep(STOP_SIGNALS)
    return _over(Supervisor(run, folder, Spool(folder.file(protocol.LOG_FILE), echo=1)).run())


def _run_slurm(options: argparse.Namespace) -> int:
    from . import slurm

    found = slurm.Shape(os.environ)
    if os.environ.get(tasks.SERVERS):
        raise Unusable("%s: servers beside the ranks are for YARN and one machine, not for Slurm" % tasks.SERVERS)
    folder = _open_folder(options.folder or slurm.job_folder(os.environ, found))
    if slurm.ungranted(folder, found):
        sys.stderr.write("[horae-exec] restart %d was granted by nobody: it waits, held\n" % found.restarts)
        return protocol.EXIT_STOPPED
    # A node whose slurmd died may still hold the lock of an older run. The fence keeps that one from writing; it
    # must not keep this one from running.
    lock = folder.take_lock()
    epoch = slurm.epoch_of(folder, found)
    hosts = slurm.host_names(found.node_list)
    env = _trainer_environment(options, folder, epoch, folder.file(protocol.EPOCH_FILE))
    avoided = slurm.left_steps(folder)

    def members() -> List[Member]:
        slurm.pass_over(avoided, slurm.probe_step)
        return slurm.members(options.command, env, os.getcwd(), found, hosts)

    run = _run_of(options, epoch, members)
    run.allocation = dict.fromkeys(hosts, found.gpus_per_node)
    run.translate = lambda code: slurm.translate(folder, epoch, code)
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # the arbiter may signal as soon as it reads this
    slurm.announce(folder, epoch, slurm.is_batch_shell(), run.checkpoint)
    keep(STOP_SIGNALS)
    spool = Spool(folder.file(protocol.LOG_FILE), echo=1)
    supervisor = Supervisor(run, folder, spool)
    if lock is None:
        supervisor.say("an older run of this job still holds its lock; it may not write any more")
    code = supervisor.run()
    if code == protocol.EXIT_STOPPED and slurm.asked_to_stay(folder, epoch):
        slurm.stay(folder, epoch, lambda: supervisor.dismissed)
    return _over(code)


def _run_gate(options: argparse.Namespace) -> int:
    """A YARN worker: stays, trains at each opening, and ends when the work is complete or the gate is closed."""
    from ..stores.mirror import Mirror, Together
    from .gate import Gate, comes_back

    if not options.member:
        raise Unusable("--gate needs --member, this worker's name")
    folder = _open_folder(options.folder or ".horae")
    _hold(folder)
    keep(STOP_SIGNALS)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)  # at the gate they end it
    spool = Spool(folder.file(protocol.LOG_FILE), echo=1)

    def say(text: str) -> None:
        spool.write(("[horae-exec] %s\n" % text).encode(errors="replace"))

    gpus = options.gpus or 1
    gate = Gate(options.gate, options.member, gpus, say)
    gate.register()
    own_gpus.heed(options.member, gpus, say)
    epoch, mirror = 0, None
    while True:
        opening = gate.wait(after=epoch)
        if mirror is not None:
            mirror.await_end()  # side by side with the wait; the spool goes on, and what forks has one thread
        if opening is None:
            say("the gate is closed")
            return 0
        epoch = opening.epoch
        folder.write_epoch(epoch)
        folder.withdraw_stop()
        env = _trainer_environment(options, folder, epoch, gate.fence)
        check_servers(env)
        run = _run_of(options, epoch, _at(opening.members, options, env))
        run.retries = 0  # the whole gang must start over, not this worker alone: that is the arbiter's to say
        run.allocation = opening.allocation
        if tasks.servers(env):
            run.all_done = gate.all_done(opening)
        watch = gate.watch(opening, folder)
        mirror = None
        if options.log and opening.position == 0:
            mirror = Mirror(spool.path, "%s/%08d" % (options.log.rstrip("/"), epoch))
        run.watch = watch if mirror is None else Together.of(watch, mirror)
        supervisor = Supervisor(run, folder, spool, last=False)
        code = supervisor.run()
        own = code if supervisor.exit_code is None else supervisor.exit_code
        stays = comes_back(supervisor.state)
        if mirror is not None:
            # Whoever hears of the end may take this container away.
            mirror.finish()
            (mirror.await_sent if stays else mirror.await_end)()
        gate.acknowledge(epoch, supervisor.state, own, supervisor.marks.newest, supervisor.native)
        if not stays:
            return _over(code)


def _at(
    members: Callable[[Sequence[str], Dict[str, str], str, str], List[Member]],
    options: argparse.Namespace,
    env: Dict[str, str],
) -> Callable[[], List[Member]]:
    return lambda: members(options.command, env, os.getcwd(), options.member)


# --- parts ------------------------------------------------------------------------------------------------


def _over(code: int) -> int:
    """The end is written down: a late request must not change the exit code. (On the way out Python restores the
    default actions; an ignored signal stays ignored.)"""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    return code


def _run_of(options: argparse.Namespace, epoch: int, members: Callable[[], List[Member]]) -> Run:
    run = Run(options.name or os.path.basename(options.command[0]), epoch, members)
    run.checkpoint = None if options.checkpoint is None else checkpoint_url(options.checkpoint, os.getcwd())
    run.grace_s = options.grace
    run.retries = options.retries
    apply_extra(
        run,
        {
            protocol.EXTRA_SELF_CHECKPOINTING: options.self_checkpointing,
            protocol.EXTRA_STOP_SIGNAL: options.stop_signal,
        },
    )
    return run


def _trainer_environment(options: argparse.Namespace, folder: JobFolder, epoch: int, fence: str) -> Dict[str, str]:
    env = shape.plain_environment({})
    checkpoint = None if options.checkpoint is None else checkpoint_url(options.checkpoint, os.getcwd())
    name = options.name or os.path.basename(options.command[0])
    env.update(shape.trainer_environment(name, folder.path, epoch, checkpoint, fence, options.grace))
    return env


def _open_folder(path: str) -> JobFolder:
    os.makedirs(path, exist_ok=True)
    return JobFolder(path)


def _hold(folder: JobFolder) -> None:
    """Take the folder's lock for as long as this process lives."""
    if folder.take_lock() is None:
        raise Unusable("%s: another supervisor holds its lock" % folder.path)


def _become(user: str) -> None:
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
