"""Linux processes that do not get away: subreaper, death signal, the whole tree below a process.

A trainer may fork, daemonise and leave its process group; what it cannot leave is its nearest living ancestor that
is a *child subreaper*, to which the kernel gives every orphan. The supervisor is one for its ranks, and its keeper
(`keep`) is one for the supervisor: whoever of the two dies, nothing of the job computes on.
"""

import ctypes
import errno
import os
import signal
import time
from typing import Callable, Dict, Iterable, List, Optional, Set, Tuple

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, "prctl(%d): %s" % (option, os.strerror(code)))


def become_subreaper() -> None:
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """In a child right after fork: be killed when `parent` (the forking thread of it) dies, also if it just did."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def parents() -> Dict[int, int]:
    """pid -> parent's pid, of every process that can be seen."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % name, "rb") as file:
                text = file.read()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        # The second field is the command in parentheses and may hold anything, parentheses too.
        fields = text[text.rfind(b")") + 2 :].split()
        found[int(name)] = int(fields[1])
    return found


def descendants(ancestor: int) -> Set[int]:
    below: Dict[int, List[int]] = {}
    for pid, parent in parents().items():
        below.setdefault(parent, []).append(pid)
    found: Set[int] = set()
    waiting = [ancestor]
    while waiting:
        for pid in below.get(waiting.pop(), ()):
            if pid not in found:
                found.add(pid)
                waiting.append(pid)
    return found


def send(pid: int, number: int) -> bool:
    """Signal a process; False when it is gone (or became somebody else's)."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def send_group(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def reap() -> List[Tuple[int, int]]:
    """(pid, exit code) of every child that has ended; 128 + n for signal n."""
    ended: List[Tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append((pid, exit_code(status)))


def exit_code(status: int) -> int:
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)


def has_children() -> bool:
    """Whether this process has any child, running or not yet reaped. For a subreaper: anything below it."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def kill_below() -> int:
    """Kill everything below this process, a subreaper, and reap it. Returns how many there were.

    Repeats until nothing is left: what forks meanwhile is an orphan of ours the moment its parent is killed.
    """
    killed: Set[int] = set()
    while has_children():
        victims = descendants(os.getpid())
        for pid in victims:
            send(pid, signal.SIGKILL)
        killed |= victims
        reap()
        time.sleep(0.002)
    return len(killed)


def began(pid: int) -> int:
    """When a process was started, in the kernel's ticks since the machine was."""
    with open("/proc/%d/stat" % pid, "rb") as file:
        text = file.read()
    return int(text[text.rfind(b")") + 2 :].split()[19])


def environment(pid: int) -> Optional[Set[bytes]]:
    """What a process was told at its start; None while that cannot be known yet. Raises OSError once it is gone.

    From exec until the kernel has laid out the new program's stack neither words nor environment are shown: 30 ms on
    a busy machine. Raises OSError for another user's, too.
    """
    found = _shown(pid, "environ")
    if not found and not _shown(pid, "cmdline"):
        try:
            os.readlink("/proc/%d/exe" % pid)
            return None
        except FileNotFoundError:  # the kernel's own, or ended and not reaped: it will never tell
            return set()
    return set(found.split(b"\0"))


def _shown(pid: int, name: str) -> bytes:
    with open("/proc/%d/%s" % (pid, name), "rb") as file:
        return file.read()


def marked(variable: str, value: str, patience_s: float = 1.0) -> Set[int]:
    """Processes whose environment holds `variable=value` (of this user; of everybody when root).

    Waits up to `patience_s` for those that are just being started.
    """
    mark = os.fsencode("%s=%s" % (variable, value))
    found = set()
    untold = {int(name) for name in os.listdir("/proc") if name.isdigit()} - {os.getpid()}
    deadline = time.monotonic() + patience_s
    while True:
        for pid in sorted(untold):
            try:
                told = environment(pid)
            except OSError:  # gone, or another user's: either way not ours to find
                told = set()
            if told is None:
                continue
            untold.discard(pid)
            if mark in told:
                found.add(pid)
        if not untold or time.monotonic() > deadline:
            return found
        time.sleep(0.002)


def kill_marked(variable: str, value: str, patience_s: float = 5.0) -> int:
    """Kill every process that carries the mark, until none is left. Returns how many there were."""
    killed: Set[int] = set()
    deadline = time.monotonic() + patience_s
    while True:
        victims = marked(variable, value)
        if not victims or time.monotonic() > deadline:
            return len(killed)
        for pid in victims:
            send(pid, signal.SIGKILL)
        killed |= victims
        time.sleep(0.005)


def keep(
    forwarded: Iterable[int],
    become: Optional[Callable[[], None]] = None,
    afterwards: Optional[Callable[[int], None]] = None,
) -> None:
    """Split in two: returns in the child, which does the work; the parent is its keeper and never returns.

    `become` makes the child another user's, and not the keeper, which that user can then neither end nor stop.
    `afterwards` is called in the keeper with the child's exit code, once nothing of it is left.

    In the child the `forwarded` signals are blocked until whoever handles them unblocks them. The keeper forwards
    them, waits, kills what the child left behind, and ends as the child ended.
    If the keeper itself is killed, the child is told (SIGUSR2), kills everything below itself and ends. If the keeper
    is told (SIGUSR2), it kills the child and all below it at once: a child that is stopped cannot.
    """
    keeper = os.getpid()
    become_subreaper()
    forwarded = tuple(forwarded)
    signal.pthread_sigmask(signal.SIG_BLOCK, forwarded + (signal.SIGUSR2,))
    child = os.fork()
    if child == 0:
        become_subreaper()
        if become is not None:
            become()
        signal.signal(signal.SIGUSR2, _end_all)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGUSR2,))
        # After `become`: the kernel forgets it when a process becomes another user's.
        _prctl(_PR_SET_PDEATHSIG, signal.SIGUSR2)
        if os.getppid() != keeper:
            os._exit(128 + signal.SIGKILL)
        return

    def forward(number: int, _frame: object) -> None:
        send(child, number)

    def end(_number: int, _frame: object) -> None:
        send(child, signal.SIGKILL)

    for number in forwarded:
        signal.signal(number, forward)
    signal.signal(signal.SIGUSR2, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, forwarded + (signal.SIGUSR2,))
    code = _wait_for(child)
    kill_below()
    if afterwards is not None:
        afterwards(code)
    os._exit(code)


def _end_all(_number: int, _frame: object) -> None:
    kill_below()
    os._exit(128 + signal.SIGKILL)


def _wait_for(child: int) -> int:
    code: Optional[int] = None
    while code is None:
        try:
            pid, status = os.waitpid(-1, 0)
        except OSError as error:
            if error.errno == errno.EINTR:
                continue
            raise
        if pid == child:
            code = exit_code(status)
    return code
