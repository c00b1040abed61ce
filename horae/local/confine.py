"""`horae serve`, started by root, with an account of its own: a small helper stays root, the arbiter does not.

Before anything that a user wrote is read: folders are made and given (STATE/jobs and STATE/keepers are root's, all
else the account's), the helper is started, and root is given up for good, with every capability, in this process and
whatever it starts. What an arbiter that was root before left in those folders becomes the account's.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import re
import socket
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from horae.config import Config, socket_path
from horae.descriptors import Folder, Unbelievable, installed
from horae.local import operations, options
from horae.local.asked import Asked
from horae.local.books import FOLDER as BOOKS
from horae.local.helper import ANSWER
from horae.local.launch import environment
from horae.local.operations import JOBS, KEEPERS
from policy.model import BadInput
from policy.own_file import changed_by_others

_PACKAGES = str(Path(__file__).resolve().parents[2])
_HELPER = f"import sys; sys.path.append({_PACKAGES!r}); from horae.local.helper import main; main(sys.argv[1:])"
#: Names in the folders of an arbiter: others' files are given to nobody.
_JOURNAL = re.compile(r"journal\.db.*|lock|failed-.*\.json|api\.sock|bug-.*")
_CLUSTER = re.compile(rf"{BOOKS}|{JOBS}|{KEEPERS}|nodes|start\.lock|(?:claim|heartbeat)(?:\.\d+\.[0-9a-f]+)?")
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_libc = ctypes.CDLL(None, use_errno=True)
#: The helper of this process, once there is one: who gave up being root does so once.
_asked: list[Asked] = []


def asked(state: Path) -> Asked | None:
    """What this process may do to the jobs of `state`, if it has a helper for them."""
    return next((each for each in _asked if each.state == state), None)


def confine(config: Config, file: Path) -> Config:
    """Give up being root, where the local cluster has an `account`; the configuration, of `file`, to go on with.

    Raises BadInput.
    """
    name = options.account(config.cluster.options) if config.cluster.adapter == "local" else None
    if name is None:
        return config
    user = _account(name)
    _roots_alone(file)
    state = options.state(config.cluster.options)
    least = options.least_uid(config.cluster.options)
    # As root would place it.
    config = config.model_copy(update={"api": config.api.model_copy(update={"socket": socket_path(config)})})
    assert config.api.socket is not None
    try:
        _cluster_folders(state, user)
        _journal_folder(config.state_dir.expanduser().absolute(), state, user)
        _socket_folder(config.api.socket, user)
        python = str(config.cluster.options.get("python") or sys.executable)
        env = environment(options.pass_env(config.cluster.options))
        peer = started(state, python, env, least, user.pw_uid)
        _give_up(user)
    except (OSError, Unbelievable) as error:
        raise BadInput(
            f"cannot run as {name}: {error}", field="cluster.options.account", value=name,
            remedy="see docs/howto/one-machine.md",
        ) from error  # fmt: skip
    _readable(user)
    _asked.append(Asked(peer, state))
    return config


def _account(name: str) -> pwd.struct_passwd:
    field = "cluster.options.account"
    if os.geteuid() != 0:
        raise BadInput(
            "only root can start an arbiter that has an account of its own", field=field, value=name,
            remedy="start it as root, or leave the option out: then it runs jobs of whoever starts it",
        )  # fmt: skip
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise BadInput("there is no such user", field=field, value=name, remedy=options.USERADD.format(name)) from None
    if user.pw_uid == 0:
        raise BadInput("is root", field=field, value=name, remedy="an account that has no other use: horae")
    return user


def _roots_alone(file: Path) -> None:
    """What the helper does is said there, so nobody else may be able to change it. Raises BadInput."""
    if (part := changed_by_others(file)) is not None:
        raise BadInput(
            f"{part} can be changed by others than root", field="cluster.options.account", value=str(file),
            remedy=f"chown root {part}; chmod go-w {part}",
        )  # fmt: skip


# --- folders ----------------------------------------------------------------------------------------------


def _cluster_folders(state: Path, user: pwd.struct_passwd) -> None:
    """What is there is given once, by the root that finds it root's, STATE last: what stands in STATE when it is the
    account's may be of the account's making, and is given to nobody."""
    state.mkdir(mode=0o755, parents=True, exist_ok=True)
    with Folder.open(state) as folder:
        for name, mode, whose in (
            (JOBS, 0o755, 0),
            (KEEPERS, 0o700, 0),
            (BOOKS, 0o700, user.pw_uid),
            ("nodes", 0o755, 0),
        ):
            if folder.lstat(name) is None:
                with folder.make(name, mode) as made:
                    os.fchown(made.fd, whose, user.pw_gid if whose else 0)
        if folder.stat().st_uid != 0:
            return
        _only(folder, _CLUSTER)
        with folder.below(JOBS) as jobs, folder.below(KEEPERS) as keepers, folder.below(BOOKS) as books:
            os.fchmod(jobs.fd, stat.S_IMODE(jobs.stat().st_mode) & ~0o022)
            operations.adopt(books, keepers)
            _give(books, re.compile(".*"), user)
        _give(folder, _CLUSTER, user)


def _journal_folder(path: Path, state: Path, user: pwd.struct_passwd) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with Folder.open(path) as folder:
        _only(folder, _JOURNAL, *(state.relative_to(path).parts[:1] if state.is_relative_to(path) else ()))
        _give(folder, _JOURNAL, user)


def _socket_folder(at: Path, user: pwd.struct_passwd) -> None:
    """A folder that holds nothing but an arbiter's socket becomes the account's too."""
    at.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with Folder.open(at.parent) as folder:
        if folder.stat().st_uid == user.pw_uid:
            return
        others = [name for name in folder.names(1 << 20) if name != at.name and not name.startswith(f"{at.name}.")]
        if others or folder.stat().st_uid != 0 or folder.stat().st_mode & 0o022:
            raise BadInput(
                f"is in a folder that {user.pw_name} cannot write", field="api.socket", value=str(at),
                remedy=f"leave it out (/run/horae/api.sock), or chown {user.pw_name} {at.parent}",
            )  # fmt: skip
        os.fchown(folder.fd, user.pw_uid, user.pw_gid)


def _only(folder: Folder, known: re.Pattern[str], *also: str) -> None:
    """Raises BadInput where a folder that is still root's holds what is not an arbiter's."""
    others = [n for n in folder.names(1 << 20) if not known.fullmatch(n.lstrip(".")) and n not in also]
    if others and folder.stat().st_uid == 0:
        raise BadInput(
            f"{folder.path} holds {others[0]!r}, which is not the arbiter's", field="cluster.options.account",
            remedy="a folder of its own: state_dir, cluster.options.state; or move that away",
        )  # fmt: skip


def _give(folder: Folder, known: re.Pattern[str], user: pwd.struct_passwd) -> None:
    """The folder and root's plain files in it become the account's; not those that have a second name."""
    for name in folder.names(1 << 20):
        found = folder.lstat(name)
        if found is None or not stat.S_ISREG(found.st_mode) or found.st_uid != 0 or not known.fullmatch(name):
            continue
        fd = folder.open_plain(name)
        if fd is None:
            continue
        try:
            now = os.fstat(fd)
            if (now.st_ino, now.st_uid, now.st_nlink) == (found.st_ino, 0, 1):
                os.fchown(fd, user.pw_uid, user.pw_gid)
        finally:
            os.close(fd)
    if folder.stat().st_uid == 0:
        os.fchown(folder.fd, user.pw_uid, user.pw_gid)


# --- root, and no more ------------------------------------------------------------------------------------


def started(state: Path, python: str, env: Mapping[str, str], least: int, account: int) -> socket.socket:
    """A helper for the jobs of `state`, whose jobs get `env`; it ends with the socket. Raises OSError."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        words = [str(its.fileno()), str(state), python, str(least), str(account)]
        subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _HELPER, *words],
            stdin=subprocess.DEVNULL,
            pass_fds=[its.fileno()],
            start_new_session=True,
            cwd="/",
            env=env,
        )
    code, where, why = ANSWER.unpack(ours.recv(ANSWER.size).ljust(ANSWER.size, b"\0"))
    if code != 0:
        ours.close()
        raise OSError(code, b" ".join((where, why)).replace(b"\0", b"").decode(errors="replace").strip())
    return ours


def _give_up(user: pwd.struct_passwd) -> None:
    """Raises OSError."""
    number = 0
    while _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) == 0:
        number += 1
    os.setgroups(os.getgrouplist(user.pw_name, user.pw_gid))
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    os.environ.update(HOME=user.pw_dir, USER=user.pw_name, LOGNAME=user.pw_name)


def _readable(user: pwd.struct_passwd) -> None:
    """Whether the account can run what is installed. Raises BadInput."""
    for part in installed.parts():
        if not os.access(part, os.X_OK if part.is_dir() else os.R_OK):
            raise BadInput(
                f"{user.pw_name} cannot read {part}, where Horae or its Python is installed",
                field="cluster.options.account", value=user.pw_name,
                remedy="install both where everybody may read, such as /opt/horae",
            )  # fmt: skip
