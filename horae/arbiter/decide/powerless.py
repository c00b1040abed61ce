"""Where the arbiter is root, a policy's process is not: it is an account that owns nothing, and gets no rights back.

The account is one of those that systemd lends to services for as long as they run (systemd.exec(5), DynamicUser), so
that no program of the host has the same. It must be able to read Python and Horae. Where it cannot, which is a
checkout below /root, Horae's own policies run as root, and those of other packages do not run.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import sys
from itertools import filterfalse
from pathlib import Path
from typing import Any

from horae.descriptors import installed
from policy import catalogue

_ACCOUNTS = range(61184, 65520)
#: Of the arbiter's environment, what its policies' process gets there: nothing in it can be a secret.
_PASSED = ("PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "OMP_NUM_THREADS")
_PR_SET_NO_NEW_PRIVS = 38


def account() -> tuple[int | None, Path | None]:
    """(its number, None): nobody has it; (None, what it could not read); (None, None): we are not root."""
    if os.geteuid() != 0:
        return None, None
    if (kept := next(filterfalse(_open_to_all, installed.parts()), None)) is not None:
        return None, kept
    start = os.getpid() % len(_ACCOUNTS)
    return next(filterfalse(_has_a_name, (*_ACCOUNTS[start:], *_ACCOUNTS[:start]))), None


def _open_to_all(part: Path) -> bool:
    return bool(part.stat().st_mode & (0o001 if part.is_dir() else 0o004))


def _has_a_name(uid: int) -> bool:
    try:
        return bool(pwd.getpwuid(uid))
    except KeyError:
        return False


def popen(uid: int) -> dict[str, Any]:
    """What `subprocess.Popen` is told for a process of that account."""
    env = {name: value for name, value in os.environ.items() if name in _PASSED or name.startswith("LC_")}
    return {"user": uid, "group": uid, "extra_groups": (), "env": env}


def barred(policy: str, kept: Path | None) -> str:
    """Why a policy does not run as root, where `kept` keeps its process from being anybody else; "": it is Horae's."""
    entry = catalogue.known(policy)
    if kept is None or entry is None or catalogue.is_own(entry):
        return ""
    return (
        f"policy {policy} is not one of Horae's and is not run as root: an account without rights cannot read {kept}; "
        "install Python and Horae where everybody may read, such as /opt/horae"
    )


def keep_so() -> None:
    """No program that this process starts has more rights than it has."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
