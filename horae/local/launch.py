"""Starting a supervisor that outlives us, as the user whose job it is.

It gets what to run by a descriptor, not from the job's folder, and of our environment only what every program needs.
Its keeper stays root: it reads nothing and only waits, forwards signals and kills what is below it, which is all of
the job whatever that does to get away; so its owner can neither end it nor hold it up.
"""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import horae.elastic
from horae import spec_json
from horae.elastic import protocol
from horae.local.books import Books
from horae.local.options import LocalOptions
from horae.port import JobId, Never
from horae.spec import JobSpec

_ELASTIC = str(Path(horae.elastic.__file__).parent)
#: Of our own environment, what a job gets: nothing in it can be a secret.
_PASSED = ("PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH")
_PASSED_PREFIX = "LC_"
_PATH = "/usr/local/bin:/usr/bin:/bin"


class Launcher:
    def __init__(self, options: LocalOptions, books: Books) -> None:
        self._options, self._books = options, books
        self._children: list[subprocess.Popen[bytes]] = []

    def check(self, spec: JobSpec) -> None:
        """Raises Never for a job that this process could not run as its owner."""
        user_of(spec.owner)
        if not spec.command:
            raise Never("a job needs a command")

    def start(self, job: JobId, folder: str, spec: JobSpec, state: Mapping[str, Any], lock: int) -> None:
        """Returns at once; the supervisor holds `lock` from the first moment. Raises OSError, Never."""
        user = user_of(spec.owner)
        with tempfile.TemporaryFile() as start:
            start.write(json.dumps(self._document(spec, state)).encode())
            start.flush()
            note = self._books.keepers_note(job)
            try:
                # Isolated and without site-packages: nothing of the arbiter's or the user's environment can break it.
                argv = [self._options.python, "-I", "-S", _ELASTIC, "--job", folder, "--daemon"]
                argv += ["--lock", str(lock), "--start", str(start.fileno()), "--keeper", str(note)]
                if user is not None:
                    argv += ["--user", user.pw_name]
                self._children.append(
                    subprocess.Popen(
                        argv,
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        pass_fds=(lock, start.fileno(), note),
                        start_new_session=True,
                        cwd="/",
                        env={**environment(user, self._options.pass_env), protocol.ENV_SUPERVISED: folder},
                    )
                )
            finally:
                os.close(note)

    def _document(self, spec: JobSpec, state: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "spec": spec_json.plain(spec),
            "state": dict(state),
            "limits": {"log_bytes": self._options.log_limit_bytes, "free_bytes": self._options.keep_free_bytes},
        }

    def reap(self) -> None:
        """Collect the intermediate processes of past starts."""
        self._children = [child for child in self._children if child.poll() is None]


def environment(user: pwd.struct_passwd | None, more: tuple[str, ...] = ()) -> dict[str, str]:
    """What a job starts with: its user's name and home, and what the site names in `pass_env`."""
    whose = user if user is not None else _me()
    env = {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED or name in more or name.startswith(_PASSED_PREFIX)
    }
    env.setdefault("PATH", _PATH)
    if whose is not None:
        env.update(HOME=whose.pw_dir, USER=whose.pw_name, LOGNAME=whose.pw_name, SHELL=whose.pw_shell)
    return env


def _me() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(os.geteuid())
    except KeyError:  # a container's number without a name
        return None


def user_of(owner: str) -> pwd.struct_passwd | None:
    """Whom to become; None for ourselves. Raises Never."""
    me = os.geteuid()
    if not owner:
        return None
    try:
        user = pwd.getpwnam(owner)
    except KeyError:
        raise Never(f"there is no user {owner} on this machine") from None
    if user.pw_uid == me:
        return None
    if me != 0:
        known = _me()
        raise Never(f"this arbiter runs as {known.pw_name if known else me} and cannot run jobs of {owner}")
    return user
