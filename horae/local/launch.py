"""Starting a supervisor that outlives us, as the user whose job it is."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

import horae.elastic
from horae.port import Never
from horae.spec import JobSpec
from horae.untrusted import Folder

_ELASTIC = str(Path(horae.elastic.__file__).parent)


class Launcher:
    def __init__(self, python: str) -> None:
        self._python = python
        self._children: list[subprocess.Popen[bytes]] = []

    def check(self, spec: JobSpec) -> None:
        """Raises Never for a job that this process could not run as its owner."""
        self._user(spec.owner)
        if not spec.command:
            raise Never("a job needs a command")

    def give(self, folder: Folder, spec: JobSpec) -> None:
        """Let the job's owner write in its folder, which nobody else could so far. Raises OSError, Unbelievable."""
        user = self._user(spec.owner)
        if user is not None:
            folder.give(user.pw_uid, user.pw_gid)

    def start(self, folder: str, owner: str, lock: int) -> None:
        """Returns at once; the supervisor holds `lock` from the first moment. Raises OSError.

        `owner`: whose the job is, by what its owner cannot write.
        """
        # Isolated and without site-packages: nothing of the arbiter's or the user's environment can break it.
        argv = [self._python, "-I", "-S", _ELASTIC, "--job", folder, "--lock", str(lock), "--daemon"]
        user = self._user(owner)
        if user is not None:
            argv += ["--user", user.pw_name]
        self._children.append(
            subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(lock,),
                start_new_session=True,
                cwd="/",
            )
        )

    def reap(self) -> None:
        """Collect the intermediate processes of past starts."""
        self._children = [child for child in self._children if child.poll() is None]

    @staticmethod
    def _user(owner: str) -> pwd.struct_passwd | None:
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
            raise Never(f"this arbiter runs as {pwd.getpwuid(me).pw_name} and cannot run jobs of {owner}")
        return user
