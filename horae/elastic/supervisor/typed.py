"""A job as its user typed it: environment, umask and limits of where it was handed in, for its trainer alone.

`horae submit` keeps them in a file of the user's own; the specification names it. It is read here, by a process that
has become the user, and applied between fork and exec of a rank: nothing that is privileged, nor the supervisor, ever
has any of it. What stands there is the user's to write, so it is read within bounds and can only lower a limit.

    {"env": {"PATH": ...}, "whole": true, "umask": 18, "limits": {"NOFILE": [1024, 4096]}}     -1: no limit
"""

import json
import os
import resource
import shutil
import stat
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from .. import protocol
from . import tasks
from .gang import Member

#: Names that say what a gang is made of: a job says them itself, or the site; never where it was typed by chance.
OURS = protocol.ENVIRONMENT | {protocol.ENV_HOST, tasks.FRAMEWORK, tasks.SERVERS}
#: Bytes of such a file: what the kernel hands to a program at most, each byte written as six.
LARGEST = 8 << 20
#: Of the supervisor's environment, what a whole environment of the user's takes the place of.
_REPLACED = ("LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH")
_REPLACED_PREFIX = "LC_"
#: Limits that a shell hands on, by their names after RLIMIT_.
LIMITS = tuple(
    name
    for name in "AS CORE CPU DATA FSIZE MEMLOCK MSGQUEUE NICE NOFILE NPROC RSS RTPRIO RTTIME SIGPENDING STACK".split()
    if hasattr(resource, "RLIMIT_" + name)
)
_MOST = 1 << 63


class Typed:
    """What stands in such a file."""

    def __init__(self, env: Mapping[str, str], whole: bool, umask: Optional[int], limits: Mapping[str, List[int]]):
        self.env = env
        self.whole = whole  #: it is all of the environment, not only what is added
        self.umask = umask
        self.limits = limits

    def environment(self, base: Mapping[str, str]) -> Dict[str, str]:
        """`base`, as a program of the user's would have it."""
        found = dict(base)
        if self.whole:
            for name in base:
                if name in _REPLACED or name.startswith(_REPLACED_PREFIX):
                    del found[name]
        found.update((name, value) for name, value in self.env.items() if name not in OURS)
        return found

    def apply(self) -> None:
        """To this process, for good. A limit only ever becomes lower. Raises OSError."""
        if self.umask is not None:
            os.umask(self.umask)
        for name, told in self.limits.items():
            number = getattr(resource, "RLIMIT_" + name)
            most = resource.getrlimit(number)[1]
            soft, hard = (_lower(each, most) for each in told)
            resource.setrlimit(number, (_lower(soft, hard), hard))


def _lower(one: int, other: int) -> int:
    if one == resource.RLIM_INFINITY:
        return other
    return one if other == resource.RLIM_INFINITY else min(one, other)


def read(path: str) -> Typed:
    """Raises OSError, whatever is wrong with it: the text says which file and what to do."""
    try:
        return _parsed(_bytes(path))
    except FileNotFoundError:
        raise OSError("%s, the environment it was handed in with, is gone: hand it in again" % path) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise OSError("%s is not what `horae submit` keeps there: %s" % (path, error or type(error).__name__)) from None


def _bytes(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("no plain file")
        if found.st_uid != os.geteuid():
            raise ValueError("it belongs to user %d" % found.st_uid)
        if found.st_size > LARGEST:
            raise ValueError("%d bytes; at most %d are read" % (found.st_size, LARGEST))
        data = b""
        while len(data) <= LARGEST:
            part = os.read(fd, LARGEST + 1 - len(data))
            if not part:
                return data
            data += part
        raise ValueError("it grows while it is read")
    finally:
        os.close(fd)


def _parsed(data: bytes) -> Typed:
    value = json.loads(data.decode())
    umask, limits = value["umask"], value["limits"]
    env = {_variable(name): _text(name, text) for name, text in value["env"].items()}
    if umask is not None and (not _whole(umask) or not 0 <= umask <= 0o777):
        raise ValueError("umask is %.40r" % (umask,))
    for name, told in limits.items():
        if name not in LIMITS:
            raise ValueError("there is no limit %.40r" % name)
        if not isinstance(told, list) or len(told) != 2 or not all(_whole(n) and -1 <= n < _MOST for n in told):
            raise ValueError("limit %s is %.80r" % (name, told))
    return Typed(env, value["whole"] is True, umask, limits)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _variable(name: str) -> str:
    if not name or "=" in name or "\0" in name:
        raise ValueError("no variable can be named %.80r" % name)
    return name


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("variable %.80r holds no text" % name)
    return value


# --- what runs, in words ------------------------------------------------------------------------------------


def first_line(member: Member) -> str:
    """Which program it is, by which interpreter, and where: the first line of a start."""
    word, where = member.program[0], member.cwd or "/"
    path = _found(word, member.env, where)
    if path is None:
        return "finds no program %s on its PATH; folder %s" % (_shown(word), _shown(where))
    if os.path.isdir(path):
        return "finds a folder, and no program, at %s; folder %s" % (_shown(path), _shown(where))
    by = _interpreter(path, member.env, where)
    return "runs %s%s in %s" % (_shown(path), " by %s" % _shown(by) if by else "", _shown(where))


def _found(word: str, env: Mapping[str, str], where: str) -> Optional[str]:
    if "/" in word:
        return os.path.normpath(os.path.join(where, word))
    return shutil.which(word, path=env.get("PATH", os.defpath))


def _interpreter(path: str, env: Mapping[str, str], where: str) -> str:
    """Of a script, what its first line names as the kernel reads it, a carriage return included; else nothing."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return ""
        with open(path, "rb") as file:
            first = file.read(512).split(b"\n")[0]
    except OSError:
        return ""  # what is wrong with it the kernel says when it is started
    if first[:2] != b"#!":
        return ""
    words = os.fsdecode(first[2:]).replace("\t", " ").strip(" ").split(" ")
    if os.path.basename(words[0]) != "env":
        return words[0]
    named = [word for word in words[1:] if word and not word.startswith("-") and "=" not in word]
    return (_found(named[0], env, where) or named[0]) if named else words[0]


def _shown(text: str) -> str:
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def prepared(members: Sequence[Member], apply: Callable[[], None]) -> List[Member]:
    """The same, each of which does `apply` last before it becomes its program."""
    for member in members:
        member.prepare = apply
    return list(members)
