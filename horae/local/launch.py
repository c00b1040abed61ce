"""Starting a supervisor that outlives us, as the user whose job it is.

It gets what to run by a descriptor, not from the job's folder, and of our environment only what every program needs.
Its keeper stays root: it reads nothing and only waits, forwards signals and kills what is below it, which is all of
the job whatever that does to get away; so its owner can neither end it nor hold it up.
"""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Mapping
from typing import Any

from horae import spec_json
from horae.local.asked import Asked, file_of
from horae.local.operations import Operations
from horae.local.options import ACCOUNT, USERADD, LocalOptions
from horae.port import JobId, Never
from horae.spec import JobSpec

#: Of our own environment, what a job gets: nothing in it can be a secret.
_PASSED = ("PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH")
_PASSED_PREFIX = "LC_"
_PATH = "/usr/local/bin:/usr/bin:/bin"


class Launcher:
    def __init__(self, options: LocalOptions, operations: Operations | Asked) -> None:
        self._options, self._operations = options, operations

    def check(self, spec: JobSpec) -> None:
        """Raises Never for a job that could not be run as its owner."""
        self.owner(spec)
        if not spec.command:
            raise Never("a job needs a command")
        if spec.workers is not None:
            raise Never("on one machine there is one worker a GPU: leave workers out, and ask for at least one GPU")

    def start(self, job: JobId, spec: JobSpec, state: Mapping[str, Any], lock: int) -> None:
        """Returns at once; the supervisor holds `lock` from the first moment. Raises OSError, Never."""
        with file_of(json.dumps(self._document(spec, state)).encode()) as document:
            self._operations.start(job, self.owner(spec), lock, document)

    def _document(self, spec: JobSpec, state: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "spec": spec_json.plain(spec),
            "state": dict(state),
            "limits": {"log_bytes": self._options.log_limit_bytes, "free_bytes": self._options.keep_free_bytes},
        }

    def owner(self, spec: JobSpec) -> str:
        """As whom it runs; "" for ourselves. Raises Never for somebody whose jobs cannot be run here."""
        name, me = spec.owner, os.geteuid()
        helped = isinstance(self._operations, Asked)
        if not name and not helped:
            return ""
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            if name == str(me) and not helped:  # a container's number without a name
                return ""
            raise Never(f"there is no user {name} on this machine") from None
        if helped:
            if user.pw_uid == me or user.pw_uid < self._options.least_uid:
                raise Never(
                    f"jobs of {name} are not run here: only those of users from number {self._options.least_uid} on "
                    f"(least_uid among cluster.options), and never the arbiter's own"
                )
            return name
        if user.pw_uid == me:
            return ""
        if me != 0:
            raise Never(f"this arbiter runs as {_name(me)} and cannot run jobs of {name}")
        return name


def own_operations(options: LocalOptions) -> Operations:
    """Of this process."""
    return Operations(options.state, options.python, environment(options.pass_env))


def as_root() -> str:
    """A note for an arbiter that is root as a whole; else nothing."""
    if os.geteuid() != 0:
        return ""
    try:
        pwd.getpwnam(ACCOUNT)
        first = ""
    except KeyError:
        first = f"`{USERADD.format(ACCOUNT)}`, "
    return (
        f"this arbiter is root as a whole, and need not be: {first}`account: {ACCOUNT}` among cluster.options, restart "
        "(then only a small helper is root)"
    )


def environment(more: tuple[str, ...] = ()) -> dict[str, str]:
    """What every job starts with of ours, beside its user's name and home; `more`: `pass_env`."""
    env = {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED or name in more or name.startswith(_PASSED_PREFIX)
    }
    env.setdefault("PATH", _PATH)
    return env


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a container's number without a name
        return str(uid)
