"""The command line of `horae-exec`: from arguments, a job folder or a cluster's environment to one `Run`."""

import argparse
import os
import pwd
import signal
import sys
from typing import Callable, List, Optional, Sequence, Tuple

from .. import protocol
from . import shape, start
from .jobfolder import JobFolder
from .processes import began, keep, kill_below
from .run import Unusable, run_from_folder
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
    command: List[str] = []
    if "--" in words:
        cut = words.index("--")
        words, command = words[:cut], words[cut + 1 :]
    try:
        options, launch = _understood(words)
        if options.job is not None:
            return _run_folder(options)
        if not command:
            _parser().error("what shall run? give its command after --")
        options.command = command
        return launch(options)
    except (Unusable, OSError, ValueError) as error:
        print("horae-exec: %s" % error, file=sys.stderr)
        return protocol.EXIT_USAGE


def _understood(words: Sequence[str]) -> "Tuple[argparse.Namespace, Callable[[argparse.Namespace], int]]":
    """The options, and what runs a command with them. Raises Unusable where nothing here can tell."""
    parser = _parser()
    if "-h" in words or "--help" in words:
        from . import launchers

        for each in launchers.every():
            each.add_options(parser)
    options, rest = parser.parse_known_args(words)
    if options.job is not None and not rest:
        return options, _run_here
    from . import launchers  # here: a job folder's keeper stays small, and its start quick

    half = launchers.by_option(rest)
    if half is not None:
        half.add_options(parser)
    options = parser.parse_args(words)
    if half is None and not options.gpus:
        half = launchers.by_environment(os.environ)
        if half is None and not launchers.known():
            raise Unusable(
                "this copy of Horae's SDK knows no cluster: say --gpus N to run on this machine alone, or use what "
                "`python -m horae.elastic.carry FOLDER` writes where Horae is installed"
            )
    return options, _run_here if half is None else half.run


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
    return start.over(Supervisor(run, folder, spool).run())


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
    folder = start.open_folder(options.folder or ".horae")
    start.hold(folder)
    epoch = folder.epoch() + 1
    folder.write_epoch(epoch)
    folder.withdraw_stop()
    allocation = {"localhost": options.gpus or 1}
    env = start.trainer_environment(options, folder, epoch, folder.file(protocol.EPOCH_FILE))
    run = start.run_of(options, epoch, lambda: shape.local_members(options.command, env, os.getcwd(), allocation))
    run.allocation = allocation
    keep(STOP_SIGNALS)
    return start.over(Supervisor(run, folder, Spool(folder.file(protocol.LOG_FILE), echo=1)).run())


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
