"""What a job is handed in with beside its form: environment, umask and limits of the process that calls.

As sbatch's `--export` they are chosen (`chosen`), and kept (`keep`) in a file of the caller's own that nobody else can
read, in a folder of the caller's own. The arbiter is told the file's name and no more; the job's supervisor reads it
once it is the caller again (`horae/elastic/supervisor/typed.py`). Files of jobs that are over go at a later submission
(`swept`), by whom they belong to.
"""

from __future__ import annotations

import json
import math
import os
import pwd
import resource
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from horae.descriptors import Folder, Unbelievable
from horae.elastic.supervisor.typed import LARGEST, LIMITS, OURS
from policy.errors import BadInput
from policy.model import EMPTY

FIELD = "--export"
_REMEDY = "ALL, NONE, or names and NAME=VALUE with commas between them; ALL,NAME=VALUE adds"
#: What belongs to a terminal, a login session or another scheduler's allocation, and means nothing in the job, or
#: something wrong. Carried where it is named.
_LEFT = frozenset(
    "TERM COLUMNS LINES DISPLAY WAYLAND_DISPLAY XAUTHORITY WINDOWID DBUS_SESSION_BUS_ADDRESS XDG_RUNTIME_DIR XDG_SEAT "
    "XDG_VTNR TMUX TMUX_PANE STY GPG_TTY GPG_AGENT_INFO PWD OLDPWD SHLVL _ NOTIFY_SOCKET LISTEN_FDS LISTEN_PID "
    "INVOCATION_ID JOURNAL_STREAM NVIDIA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES".split()
)
_LEFT_PREFIXES = (
    "SSH_", "SUDO_", "XDG_SESSION_", "TERM_", "SLURM_", "SLURMD_", "SRUN_", "PMI_", "PMIX_", "OMPI_", "TORCHELASTIC_",
)  # fmt: skip
#: Bytes: what the kernel takes as one word of a program, and less than it takes in all with a usual stack.
LONGEST = 131071
MOST = 1 << 20
_DAY_S = 86400.0
#: A file of which nobody noted whose it is (a submission broke off) goes after so long.
_NOBODYS_S = 90 * _DAY_S
_SWEPT = ".swept"


@dataclass(frozen=True, slots=True)
class Chosen:
    env: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    whole: bool = False  #: all of the environment, not only what is added to what every job gets


# --- what is carried ----------------------------------------------------------------------------------------


def chosen(words: str, environment: Mapping[str, str]) -> Chosen:
    """What `--export=WORDS` carries of an environment. Raises BadInput."""
    parts = _parts(words)
    if not parts or "" in parts:
        raise BadInput("names nothing, or nothing between two commas", field=FIELD, value=words, remedy=_REMEDY)
    if parts == ["NONE"]:
        return Chosen()
    if "NONE" in parts:
        raise BadInput("NONE stands alone", field=FIELD, value=words, remedy=_REMEDY)
    env = {n: v for n, v in environment.items() if not left_out(n)} if "ALL" in parts else {}
    for part in parts:
        if part != "ALL":
            name, value = _named(part, environment)
            env[name] = value
    _bounded(env)
    return Chosen(env, "ALL" in parts)


def left_out(name: str) -> bool:
    """Whether ALL does not carry it."""
    return name in OURS or name in _LEFT or name.startswith(_LEFT_PREFIXES)


def _parts(words: str) -> list[str]:
    """At commas that stand in no quotes; the quotes go."""
    parts, quote = [""], ""
    for c in words:
        if c == quote:
            quote = ""
        elif not quote and c in "'\"":
            quote = c
        elif not quote and c == ",":
            parts.append("")
        else:
            parts[-1] += c
    if quote:
        raise BadInput(f"a {quote} is not closed", field=FIELD, value=words, remedy=_REMEDY)
    return parts


def _named(part: str, environment: Mapping[str, str]) -> tuple[str, str]:
    name, equals, value = part.partition("=")
    if not name or "\0" in part:
        raise BadInput("is no name of a variable", field=FIELD, value=part, remedy=_REMEDY)
    if name in OURS:
        raise BadInput("is Horae's own to set", field=FIELD, value=name, remedy="leave it out")
    if not equals and name not in environment:
        raise BadInput("is not set here", field=FIELD, value=name, remedy="set it, or leave it out")
    return name, value if equals else environment[name]


def _bounded(env: Mapping[str, str]) -> None:
    """Raises BadInput for what no program could be started with."""
    sizes = {name: len(os.fsencode(f"{name}={value}")) + 1 for name, value in env.items()}
    large = sorted(sizes, key=lambda name: -sizes[name])[:3]
    why = ""
    if large and sizes[large[0]] > LONGEST:
        why = f"{large[0]} has {sizes[large[0]]} bytes, and no program can be started with more than {LONGEST} in one"
    elif (total := sum(sizes.values())) > MOST:
        why = f"the environment has {total} bytes, and at most {MOST} are carried; the largest: {', '.join(large)}"
    if why:
        raise BadInput(why, field=FIELD, remedy=f"unset what is not needed, or name what is: {FIELD} PATH,HOME")


# --- how it is kept -----------------------------------------------------------------------------------------


def folder() -> Path:
    """Where such files are: of the caller's account, whatever HOME says."""
    named = os.environ.get("XDG_STATE_HOME", "")
    home = Path(named) if named.startswith("/") else Path(_home()) / ".local" / "state"
    return home / "horae" / "typed"


def _home() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:  # a container's number without a name
        return str(Path("~").expanduser())


def keep(what: Chosen) -> Path:
    """A new file of the caller's, mode 0600, with `what`, umask and limits as they are. Raises BadInput."""
    at = folder()
    limits = {name: list(resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))) for name in LIMITS}
    value = {"env": dict(what.env), "whole": what.whole, "umask": _umask(), "limits": limits}
    data = json.dumps(value).encode()
    assert len(data) <= LARGEST
    path = at / f"{os.urandom(16).hex()}.json"
    try:
        at.mkdir(mode=0o700, parents=True, exist_ok=True)
        with Folder.open(at) as place:
            found = place.stat()
            if found.st_uid != os.geteuid() or found.st_mode & 0o022:
                raise Unbelievable(str(at), "is another's, or others can write it")
            place.replace(path.name, data, mode=0o600)
    except (OSError, Unbelievable) as error:
        why = str(error.strerror) if isinstance(error, OSError) else str(error)
        raise BadInput(
            f"the environment cannot be kept for the job: {why}", field=FIELD, value=str(at),
            remedy=f"name a folder that you may write as XDG_STATE_HOME; or {FIELD} NONE: the arbiter's PATH will do",
        ) from error  # fmt: skip
    return path


def _umask() -> int:
    found = os.umask(0o077)
    os.umask(found)
    return found


def note(path: Path, socket: Path, jobs: Sequence[str]) -> None:
    """Which jobs need the file, for `swept`."""
    text = json.dumps({"socket": str(socket.absolute()), "jobs": list(jobs)})
    with Folder.open(path.parent) as place:
        place.replace(path.with_suffix(".jobs").name, text.encode(), mode=0o600)


def swept(socket: Path, living: Callable[[], Collection[str]]) -> list[Path]:
    """Throw away files whose jobs at the arbiter of `socket` are over: once a day. `living`: numbers of the others.

    Raises OSError.
    """
    at, now = folder(), time.time()
    mark = at / _SWEPT
    if _age_s(mark, now) < _DAY_S:
        return []
    old = {path: age for path in at.glob("*.json") if (age := _age_s(path, now)) > _DAY_S}
    alive = frozenset(living()) if old else frozenset()
    gone = []
    for path, age in old.items():
        needs = path.with_suffix(".jobs")
        named = _needed(needs, socket)
        if age > _NOBODYS_S if named == [] else named is not None and alive.isdisjoint(named):
            path.unlink(missing_ok=True)
            needs.unlink(missing_ok=True)
            gone.append(path)
    if at.is_dir():
        mark.touch(mode=0o600)
    return gone


def _age_s(path: Path, now_s: float) -> float:
    """Since it was written; of what is not there, beyond all bounds."""
    try:
        return now_s - path.stat().st_mtime
    except FileNotFoundError:
        return math.inf


def _needed(path: Path, socket: Path) -> list[str] | None:
    """The jobs that a file is of, none where nobody noted them; None where they are another arbiter's."""
    try:
        value = json.loads(path.read_text())
        return [str(job) for job in value["jobs"]] if value["socket"] == str(socket.absolute()) else None
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError):
        return None
