"""What a cluster kind brings for a site's administrator: install and uninstall (`doctor.py` for the checks).

A site is an entry point of the group `horae.sites`: a class without arguments that follows `Site`. Changes to files
are values first (`Change`): shown as a diff, written only when told, recorded so that `uninstall` restores every
byte, and never undone over an administrator's later edit.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from policy.model import BadInput


class Place(Protocol):
    """Text that a site keeps elsewhere than in a file of this host, such as a scheduler's settings behind REST.

    `name` says where, is not an absolute path, and is all that `Site.place` needs to open it again. Reading and
    writing raise BadInput or PortError.
    """

    @property
    def name(self) -> str: ...

    def read(self) -> bytes | None: ...

    def write(self, data: bytes | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Change:
    """One file as it is to be, or one place. `after` None: the file goes."""

    path: Path
    after: bytes | None
    why: str
    mode: int = 0o644
    place: Place | None = None  #: then `path` is not looked at

    @property
    def name(self) -> str:
        return self.place.name if self.place else str(self.path)

    def now(self) -> bytes | None:
        return self.place.read() if self.place else _read(self.path)

    def make(self) -> None:
        if self.place:
            self.place.write(self.after)
        else:
            _put(self.path, self.after, self.mode)


class Site(Protocol):
    """A site whose changes have places also has `place(name) -> Place`, by which `uninstall` opens them again."""

    def changes(self, options: Mapping[str, str]) -> tuple[list[Change], list[str]]:
        """Files to change, and commands for the administrator to run after that. Raises BadInput."""
        ...


@dataclass(frozen=True, slots=True)
class Stay:
    """What `uninstall` leaves, or what is to be done for it to leave nothing."""

    text: str  #: the command for it, or what a person does
    remove: Callable[[], object] | None = None  #: what `--purge` does; raises BadInput, OSError. None: a person does it
    first: bool = False  #: before the files are put back; if it fails, nothing is


@runtime_checkable
class SiteLeaving(Protocol):
    """A site where something stays beside the files that `uninstall` puts back."""

    def leaving(self, options: Mapping[str, str]) -> list[Stay]:
        """What that is, in the order in which it goes. Asked before the files are put back."""
        ...


def site(kind: str) -> Site:
    """Only this kind is loaded: the others' optional parts need not be installed."""
    known = {point.name: point for point in entry_points(group="horae.sites")}
    if kind not in known:
        raise BadInput(f"no cluster kind '{kind}'", value=kind, remedy=f"one of {', '.join(sorted(known))}")
    found: Site = known[kind].load()()
    return found


CONFIG = "/etc/horae/config.yaml"


def systemd_unit(user: str, folder: str, umask: str, after: str = "", writable: str = "") -> str:
    """The arbiter's service: no rights but its user's. `folder`: of the program; `writable`: outside its own state."""
    return f"""[Unit]
Description=Horae, fair and elastic GPU scheduling
Documentation=man:horae(1)
After={" ".join(["network-online.target", *after.split()])}
Wants=network-online.target

[Service]
Type=notify
User={user}
ExecStart={folder}/horae serve {CONFIG}
# Ready when it knows the cluster, however long that is away.
TimeoutStartSec=infinity
WatchdogSec=120
Restart=on-failure
RestartSec=2
# Another arbiter has the cluster, or the configuration is wrong: starting again would help nobody.
RestartPreventExitStatus=1 2 3
StateDirectory=horae
StateDirectoryMode=0700
RuntimeDirectory=horae
UMask={umask}
# Connections are shared out below this (1,024 otherwise); a runaway policy ends before the host does.
LimitNOFILE=65536
LimitCORE=0
MemoryMax=50%
TasksMax=4096
NoNewPrivileges=yes
ProtectSystem=strict
{f"ReadWritePaths={writable}" if writable else "# writes nothing outside its state"}
ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictSUIDSGID=yes
RemoveIPC=yes
KeyringMode=private
LockPersonality=yes
CapabilityBoundingSet=
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""


def pending(changes: Iterable[Change]) -> list[Change]:
    """Those that would change anything."""
    return [change for change in changes if change.now() != change.after]


def diff(change: Change) -> str:
    before, after = change.now() or b"", change.after or b""
    lines = difflib.unified_diff(
        before.decode(errors="replace").splitlines(keepends=True),
        after.decode(errors="replace").splitlines(keepends=True),
        change.name if before else "/dev/null",
        change.name if change.after is not None else "/dev/null",
    )
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)


def apply(changes: Sequence[Change], record: Path) -> None:
    """Write them, and first what was there into `record`. Raises BadInput for what cannot be written."""
    known = _load(record)
    for change in pending(changes):
        mode = None if change.place else _mode(change.path)
        entry = known.setdefault(change.name, {"before": _text(change.now()), "mode": mode})
        entry["after"] = _digest(change.after)
        entry.setdefault("folders", _missing(record) + ([] if change.place else _missing(change.path)))
        _write(record, json.dumps(known, indent=1).encode(), 0o600)
        change.make()


def restore(record: Path, place: Callable[[str], Place] | None = None) -> tuple[list[str], list[str]]:
    """Undo what `record` lists: (restored, left alone because somebody edited it since).

    `place` opens what is no file of this host.
    """
    known, done, left = _load(record), [], []
    folders: list[str] = []  #: that came with what is gone now
    for key in list(reversed(known)):
        entry = known[key]
        opened = None if key.startswith("/") or place is None else place(key)
        before = base64.b64decode(entry["before"]) if entry["before"] is not None else None
        change = Change(Path(key), before, "", entry["mode"] or 0o644, opened)
        if (opened is None and not key.startswith("/")) or _digest(change.now()) != entry["after"]:
            left.append(key)
            continue
        change.make()
        done.append(key)
        folders += entry.get("folders", ())
        del known[key]
    if known:
        first = next(iter(known.values()))
        first["folders"] = [*first.get("folders", ()), *folders]
        _write(record, json.dumps(known, indent=1).encode(), 0o600)
    else:
        record.unlink(missing_ok=True)
        for folder in sorted(set(folders), key=len, reverse=True):
            with suppress(OSError):  # somebody has put something into it
                Path(folder).rmdir()
    return done, left


def _missing(path: Path) -> list[str]:
    """Folders above it that are not there yet."""
    return [str(each) for each in path.absolute().parents if not each.exists()]


def _load(record: Path) -> dict[str, dict[str, Any]]:
    data = _read(record)
    if data is None:
        return {}
    try:
        value: dict[str, dict[str, Any]] = json.loads(data)
    except ValueError as error:
        raise BadInput(f"is not a record of an installation: {error}", where=str(record)) from error
    return value


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", where=str(path), remedy="run as root") from error


def _put(path: Path, data: bytes | None, mode: int) -> None:
    path = path.resolve()  # a link, to where a site keeps its settings, stays one
    if data is None:
        path.unlink(missing_ok=True)
    else:
        _write(path, data, mode)


def _write(path: Path, data: bytes, mode: int) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".horae-")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        found = path.stat() if path.exists() else None
        Path(temporary).chmod(found.st_mode & 0o7777 if found else mode)
        if found:
            os.chown(temporary, found.st_uid, found.st_gid)
            for name in _attributes(path):
                os.setxattr(temporary, name, os.getxattr(path, name))
        Path(temporary).replace(path)
    except OSError as error:
        raise BadInput(f"cannot be written: {error.strerror}", where=str(path), remedy="run as root") from error


def _attributes(path: Path) -> list[str]:
    """Who else may read or write it (ACLs), and people's own; labels of a kernel's module it gives by itself."""
    with suppress(OSError):  # a file system without any
        return [name for name in os.listxattr(path) if not name.startswith("security.")]
    return []


def _mode(path: Path) -> int | None:
    return path.stat().st_mode & 0o7777 if path.exists() else None


def _digest(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
