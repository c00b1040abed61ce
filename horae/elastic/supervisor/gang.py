"""The processes of one start of a job: spawned together, signalled together, and ended when one of them dies."""

import errno
import fcntl
import os
import signal
from typing import Callable, Dict, List, Mapping, NoReturn, Optional, Sequence, Set

from .. import protocol
from .processes import die_with_parent, send, send_group

_F_SETPIPE_SZ = 1031
_PIPE = 1 << 20
#: What the supervisor handles or Python ignores; a trainer gets the system's defaults back.
_DEFAULT = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGUSR2,
    signal.SIGCHLD,
    signal.SIGPIPE,
    signal.SIGXFSZ,
)


class Member:
    """One process to spawn: a rank on this machine, or the launcher of many ranks elsewhere (srun)."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Dict[str, str],
        cwd: str,
        rank: int,
        label: Optional[bytes] = None,
        serves: bool = False,
        program: Optional[Sequence[str]] = None,
    ) -> None:
        self.argv = list(argv)
        self.program = list(argv if program is None else program)  #: what the user asked for, where argv launches it
        self.env = env
        self.cwd = cwd
        self.rank = rank
        self.label = label  #: put before each line of its output; None: output passes as it is
        self.serves = serves  #: a server of the ranks (`tasks`): it is ended when they are
        self.prepare: Optional[Callable[[], None]] = None  #: done by it last before it becomes its program


class Gang:
    """Spawns every member; `outputs` are the pipes with their output, by rank."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = list(members)
        self.outputs: Dict[int, int] = {}
        self._alive: Dict[int, int] = {}  # pid -> rank
        self._groups: Set[int] = set()
        self._codes: Dict[int, int] = {}  # rank -> exit code
        self._first_failure: Optional[int] = None
        self._sent: Set[int] = set()  # signals
        self._servers = {member.rank for member in self.members if member.serves}
        self._dismissed = False

    def spawn(self) -> None:
        """Raises OSError when not even a process can be made; what was spawned until then is in the gang."""
        for member in self.members:
            reader, writer = os.pipe()
            _widen(reader)
            try:
                pid = _fork(member, writer)
            except OSError:
                os.close(reader)
                raise
            finally:
                os.close(writer)
            os.set_blocking(reader, False)
            self.outputs[member.rank] = reader
            self._alive[pid] = member.rank
            self._groups.add(pid)

    @property
    def alive(self) -> bool:
        return bool(self._alive)

    @property
    def ranks_alive(self) -> List[int]:
        return sorted(self._alive.values())

    def signal(self, number: int) -> None:
        """To every process group of the gang; members that left their group are the subreaper's affair."""
        self._sent.add(number)
        for pid in self._alive:
            # A rank has no group yet right after its fork. It is our child and not yet reaped: the pid is its own.
            if not send_group(pid, number):
                send(pid, number)

    @property
    def ranks_over(self) -> bool:
        """Whether only servers are left, or nobody."""
        return self._servers.issuperset(self._alive.values())

    def dismiss(self, number: int) -> None:
        """Signal the servers: they are not needed any more, and how they end is no matter."""
        self._dismissed = True
        self.signal(number)

    def ended(self, batch: "Sequence[tuple[int, int]]") -> None:
        """Note (pid, exit code) of processes reaped together; those that are not members are ignored."""
        ours = [(self._alive.pop(pid), code) for pid, code in batch if pid in self._alive]
        if self._dismissed:
            ours = [(rank, code) for rank, code in ours if rank not in self._servers]
        self._codes.update(ours)
        if self._first_failure is None:
            # A rank killed by a signal is the cause; its peers' own errors at the same time are the consequence.
            failures = sorted((code for _, code in ours if code not in (0, protocol.EXIT_STOPPED)), reverse=True)
            if failures:
                self._first_failure = failures[0]
        elif self._first_failure < 128 and signal.SIGKILL not in self._sent:
            # A killed rank's connections close before it can be reaped: its peers may have ended of that already.
            if any(code == 128 + signal.SIGKILL for _, code in ours):
                self._first_failure = 128 + signal.SIGKILL

    @property
    def failed(self) -> bool:
        """Whether a member died: ended with neither 0 nor 86."""
        return self._first_failure is not None

    @property
    def stopping(self) -> bool:
        """Whether a member already left with a checkpoint."""
        return protocol.EXIT_STOPPED in self._codes.values()

    def result(self) -> int:
        """The gang's exit code: the first failure's, else 86 if any member stopped, else 0."""
        if self._first_failure is not None:
            return self._first_failure
        return protocol.EXIT_STOPPED if self.stopping else 0


def _widen(pipe: int) -> None:
    try:
        fcntl.fcntl(pipe, _F_SETPIPE_SZ, _PIPE)
    except OSError:  # over the user's limit: the pipe keeps its default size
        return


def _fork(member: Member, output: int) -> int:
    """Fork and execute. The supervisor has one thread, so what happens between fork and exec is plain Python."""
    parent = os.getpid()
    # Until the child has the system's handlers again, signals to it wait: ours, inherited, would swallow them.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (*_DEFAULT, signal.SIGUSR1))
    try:
        pid = os.fork()
        if pid:
            return pid
    finally:
        if os.getpid() == parent:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        _become(member, output, parent)
    except BaseException as error:  # noqa: BLE001  (the child must never return into the supervisor's code)
        try:
            os.write(2, ("[horae-exec] cannot run %s: %s\n" % (" ".join(member.argv), error)).encode(errors="replace"))
        finally:  # the user's own limits may leave no memory for words
            os._exit(126 if isinstance(error, PermissionError) else 127)


def _become(member: Member, output: int, parent: int) -> NoReturn:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.setsid()
    die_with_parent(parent)
    for number in _DEFAULT:
        signal.signal(number, signal.SIG_DFL)
    # Until the trainer installs its handler a request must not kill it; the stop file carries the early ones.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _enter(member.cwd or "/")
    if member.prepare is not None:
        member.prepare()
    _execute(member.argv, member.env)


def _enter(folder: str) -> None:
    try:
        os.chdir(folder)
    except OSError as error:
        raise OSError(error.errno, "%s (%s)" % (protocol.NO_FOLDER, error.strerror), folder) from error


def _execute(argv: List[str], env: Mapping[str, str]) -> NoReturn:
    try:
        os.execvpe(argv[0], argv, env)
    except PermissionError as error:
        # A folder of the PATH that its user may not enter hides no program: one in no other is not there.
        folders = env.get("PATH", os.defpath).split(os.pathsep)
        if "/" in argv[0] or any(os.path.exists(os.path.join(folder, argv[0])) for folder in folders):
            raise
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0]) from error
