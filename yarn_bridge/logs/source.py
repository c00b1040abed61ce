"""Logs of any application of the cluster, Horae's or not: `horae profile yarn:APPLICATION[/CONTAINER[/FILE]]`.

While it runs, NodeManagers show the files of its living containers on their web; where it has ended, its NodeManagers
have put them into HDFS (`aggregated.py`), if the site aggregates logs. Hadoop's own client is not needed.

Who asks is the user who runs the command, as with Hadoop's own client: under simple authentication `HADOOP_USER_NAME`
or the login name, under Kerberos the ticket of this process. Only who can read the bridge's keytab asks as the bridge,
on the owner's behalf.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from horae.joblogs import Log
from horae.port import FixConfiguration, PortError, TryLater
from policy.model import BadInput
from yarn_bridge.clients.errors import Gone
from yarn_bridge.clients.hdfs import Hdfs, Status
from yarn_bridge.clients.http import KERBEROS, SIMPLE, Access, HttpClient, understood
from yarn_bridge.clients.records import App, Container, many
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.clients.settings import Settings, settings_of
from yarn_bridge.logs.aggregated import entries
from yarn_bridge.options import Options, parse_options

_WHAT = re.compile(r"(?:(application)|container)_(?:e\d+_)?(\d+)_(\d+)(?:_\d+_\d+)?(?:/(.*))?")
_FORM = "yarn:APPLICATION, yarn:APPLICATION/CONTAINER/FILE or yarn:CONTAINER/FILE; * stands for anything"
#: what YARN itself and the Services' application master write beside a program's own output
_YARNS = ("launch_container.sh", "directory.info", "prelaunch.*", "container-localizer-syslog", "serviceam-*")
_MASTER = re.compile(r"_0*1$")
_HEADER = 1 << 14  #: bytes within which a NodeManager's words before a log end
_BEGIN = re.compile(rb"LogLength:\s*(\d{1,18})\s*\nLogContents:\n")
_TAIL = 1 << 16  #: bytes of a file's end that are read at once
_UNDER_WAY = ("NOT_START", "RUNNING", "RUNNING_WITH_FAILURE")  #: of log aggregation, as the ResourceManager says
_SHOWN = 8  #: names in an error
_WRITTEN_S = 300.0  #: NodeManagers take this long at most, for what is asked here, to put logs into HDFS
_MOST_USERS = 500  #: folders looked through for an application that the ResourceManager has forgotten


@dataclass(frozen=True, slots=True)
class LogPattern:
    """What a name means: an application, and patterns of containers and files; no pattern for files: all sensible."""

    app: str
    container: str = "*"
    file: str = ""

    def takes(self, container: str, file: str) -> bool:
        if not fnmatchcase(container, self.container):
            return False
        return fnmatchcase(file, self.file) if self.file else not any(fnmatchcase(file, each) for each in _YARNS)


def parse(what: str) -> LogPattern:
    """Raises BadInput."""
    found = _WHAT.fullmatch(what)
    parts = (found[4] or "").split("/") if found else []
    if found is None or len(parts) > (2 if found[1] else 1):
        raise BadInput(f"{what!r} names no application of YARN", field="LOG", value=what, remedy=f"write {_FORM}")
    app = f"application_{found[2]}_{found[3]}"
    if found[1]:
        return LogPattern(app, parts[0] or "*", parts[1] if len(parts) > 1 else "")
    return LogPattern(app, what.partition("/")[0], parts[0])


def open_logs(options: Mapping[str, Any]) -> YarnLogs:
    """Entry point `horae.logs: yarn`. Raises BadInput for options."""
    return YarnLogs(parse_options(options))


class YarnLogs:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._names = dict(options.hdfs_names)
        access = _access(options)
        self._bridge = access.auth == KERBEROS and bool(access.keytab)
        self._access = access
        self.manager = ResourceManager(HttpClient(access, "ResourceManager"))
        self.hdfs = Hdfs(replace(access, urls=options.webhdfs), self._names)
        self._faults: list[BadInput | PortError] = []
        self._passed: list[str] = []  #: containers and files that were not meant

    def logs(self, what: str) -> Iterator[Log]:
        """Raises PortError or BadInput where not one log can be read."""
        wanted = parse(what)
        self._faults, self._passed = [], []
        try:
            app = self.manager.app(wanted.app)
        except Gone:
            found = self._forgotten(wanted)
        else:
            found = self._ended(app, wanted) if app.ended else self._running(app, wanted)
        count = 0
        for each in found:
            count += 1
            yield each
        if not count:
            self._nothing(wanted)

    @property
    def troubles(self) -> list[str]:
        return list(dict.fromkeys(str(each) for each in self._faults))

    def close(self) -> None:
        self.manager.close()

    def _nothing(self, wanted: LogPattern) -> None:
        """Why there was not one log. Always raises."""
        if len(self._faults) == 1 or (self._faults and all(isinstance(each, BadInput) for each in self._faults)):
            raise self._faults[0]
        if self._faults:
            raise TryLater("; ".join(self.troubles), retry_after_s=5.0)
        there = ", ".join(self._passed[:_SHOWN]) + (", ..." if len(self._passed) > _SHOWN else "")
        raise BadInput(
            f"{wanted.app} has no log that matches {wanted.container}/{wanted.file or '*'}", field="LOG",
            value=wanted.file or wanted.container, remedy=f"it has {there or 'none at all'}; write {_FORM}",
        )  # fmt: skip

    def _takes(self, wanted: LogPattern, container: str, file: str) -> bool:
        taken = wanted.takes(container, file)
        if not taken:
            self._passed.append(f"{container}/{file}")
        return taken

    def _owner(self, app: App) -> str:
        return app.user if self._bridge else ""

    # --- while it runs ---

    def _running(self, app: App, wanted: LogPattern) -> Iterator[Log]:
        owner = self._owner(app)
        attempts = sorted(self.manager.attempts(app.id), key=lambda each: each.id)
        living = self.manager.containers(app.id, attempts[-1].id, owner) if attempts else []
        if not living:
            raise TryLater(f"{app.id} is {app.state} and has no container yet", retry_after_s=5.0)
        masters = {each.am_container for each in attempts}
        silent: dict[str, PortError] = {}
        for each in sorted(living, key=lambda each: each.id):
            if not fnmatchcase(each.id, wanted.container):
                continue
            if each.node in silent:
                self._faults.append(_unread(each, silent[each.node]))
                continue
            try:
                node = self._node(each)
                files = _files(node, each.id, owner)
            except PortError as error:
                silent[each.node] = error
                self._faults.append(_unread(each, error))
                continue
            with contextlib.closing(node):
                for file in files:
                    if self._takes(wanted, each.id, file):
                        pieces = _living(node, each.id, file, owner)
                        yield Log(f"yarn:{each.id}/{file}", pieces, each.id in masters, bool(wanted.file))

    def _node(self, container: Container) -> HttpClient:
        """The web of the NodeManager that a container runs on. `hdfs_names` is asked for names that are not known."""
        parts = urlsplit(container.logs)
        if not parts.scheme or not parts.hostname:
            raise TryLater(f"the ResourceManager does not say where the logs of {container.id} are")
        known = self._names.get(parts.netloc) or self._names.get(parts.hostname)
        if known is not None:
            parts = parts._replace(netloc=known if ":" in known else f"{known}:{parts.port}")
        url = urlunsplit((parts.scheme, parts.netloc, "", "", ""))
        return HttpClient(replace(self._access, urls=(url,)), f"NodeManager {container.node}")

    # --- after its end ---

    def _ended(self, app: App, wanted: LogPattern) -> Iterator[Log]:
        settings = settings_of(self.manager.http, "the ResourceManager")
        hdfs = self.hdfs.as_user(self._owner(app))
        folders, unfinished = self._folders(hdfs, settings, app.user, app.id)
        if not folders:
            self._absent(app, settings, unfinished)
        recent = time.time() - app.finished_s < _WRITTEN_S
        if app.log_aggregation == "FAILED" or (recent and app.log_aggregation in _UNDER_WAY):
            word = "failed to put" if app.log_aggregation == "FAILED" else "may still be putting"
            self._faults.append(TryLater(f"nodes {word} logs of {app.id} into HDFS: some may be missing", 30.0))
        for file in unfinished:
            self._faults.append(TryLater(f"{file} is still being written", retry_after_s=60.0))
        yield from self._read(hdfs, folders, wanted)

    def _absent(self, app: App, settings: Settings, unfinished: list[str]) -> None:
        """Why an application that has ended has no aggregated logs. Always raises."""
        if settings.values and not settings.on("yarn.log-aggregation-enable"):
            raise FixConfiguration(
                f"the logs of {app.id} are not kept: this cluster does not aggregate logs",
                "set yarn.log-aggregation-enable=true on all nodes; until then read applications while they run",
            )
        roots = ", ".join(f"{root}/{app.user}" for root in _roots(settings))
        if unfinished or time.time() - app.finished_s < _WRITTEN_S:
            raise TryLater(f"the logs of {app.id} are not all in HDFS yet ({roots})", retry_after_s=10.0)
        raise BadInput(
            f"there are no logs of {app.id} in {roots}", field="LOG", value=app.id,
            remedy="they are removed after yarn.log-aggregation.retain-seconds; was aggregation on when it ran?",
        )  # fmt: skip

    def _forgotten(self, wanted: LogPattern) -> Iterator[Log]:
        """Of an application that the ResourceManager does not know (any more): its owner is looked for in HDFS."""
        settings = settings_of(self.manager.http, "the ResourceManager")
        me = self.hdfs.owner or self._access.user
        users = [me]
        with contextlib.suppress(PortError):  # some sites let nobody list the users; one's own folder is still read
            users += [each.name for root in _roots(settings) for each in self.hdfs.entries(root) if each.folder]
        for user in list(dict.fromkeys(users))[:_MOST_USERS]:
            try:
                folders, _ = self._folders(self.hdfs, settings, user, wanted.app)
            except FixConfiguration:  # someone else's
                continue
            if folders:
                yield from self._read(self.hdfs, folders, wanted)
                return
        raise BadInput(
            f"the ResourceManager does not know {wanted.app}, and there are no logs of it in "
            f"{', '.join(_roots(settings))} that {me or 'this ticket'} may read", field="LOG", value=wanted.app,
            remedy="is it of this cluster? Its logs may be read by its owner",
        )  # fmt: skip

    def _folders(
        self, hdfs: Hdfs, settings: Settings, user: str, app: str
    ) -> tuple[list[tuple[str, Status]], list[str]]:
        """Files of an application, by path, in the order they were written; and those that are not whole yet."""
        found: list[tuple[str, Status]] = []
        unfinished = []
        bucket = f"{int(app.rpartition('_')[2]) % 10000:04d}"
        for root in _roots(settings):
            for kind in self._listed(hdfs, f"{root}/{user}", user):
                # 3.3 and newer, then the layout of before
                below = f"{bucket}/{app}" if kind.name.startswith("bucket-") else app
                folder = f"{root}/{user}/{kind.name}/{below}"
                for each in self._listed(hdfs, folder, user) if kind.folder else ():
                    if each.name.endswith(".tmp") or not (each.folder or each.length):
                        unfinished.append(f"{folder}/{each.name}")
                    elif not each.folder and not each.name.endswith((".checksum", ".har")):
                        found.append((f"{folder}/{each.name}", each))
        return found, unfinished

    def _listed(self, hdfs: Hdfs, folder: str, user: str) -> list[Status]:
        try:
            return hdfs.entries(folder)
        except FixConfiguration as error:
            said = error.text.removesuffix(f" ({error.remedy})")
            raise FixConfiguration(said, _as_owner(user)) from None

    def _read(self, hdfs: Hdfs, files: list[tuple[str, Status]], wanted: LogPattern) -> Iterator[Log]:
        for path, status in files:
            try:
                for entry in entries(_InHdfs(hdfs, path, status.length)):
                    if self._takes(wanted, entry.container, entry.file):
                        name = f"yarn:{entry.container}/{entry.file}"
                        yield Log(name, entry.pieces, bool(_MASTER.search(entry.container)), bool(wanted.file))
            except (BadInput, PortError) as error:
                self._faults.append(error)


class _InHdfs:
    """A file in HDFS. Its end, where its index is, is asked for once."""

    def __init__(self, hdfs: Hdfs, name: str, length: int) -> None:
        self._hdfs, self.name, self.length = hdfs, name, length
        self._tail_at = max(0, length - _TAIL)
        self._tail: bytes | None = None

    def pieces(self, offset: int, length: int) -> Iterator[bytes]:
        if offset < self._tail_at:
            return self._hdfs.pieces(self.name, offset, length) if length else iter(())
        if self._tail is None:
            self._tail = b"".join(self._hdfs.pieces(self.name, self._tail_at)) if self.length else b""
        at = offset - self._tail_at
        return iter((self._tail[at : at + length],))


def _access(options: Options) -> Access:
    """As whom to ask: see above."""
    access = options.access(options.resource_manager)
    if options.auth == SIMPLE:
        return replace(access, user=os.environ.get("HADOOP_USER_NAME") or getpass.getuser(), doas=False)
    if access.keytab and os.access(Path(access.keytab), os.R_OK):
        return access
    return replace(access, user="", principal="", keytab="", doas=False)


def _as_owner(user: str) -> str:
    return f"ask as {user}: with {user}'s Kerberos ticket, or HADOOP_USER_NAME={user} under simple authentication"


def _roots(settings: Settings) -> list[str]:
    """Folders in HDFS that logs are aggregated in; a format may have one of its own."""
    keys = ("nodemanager", "log-aggregation.TFile", "log-aggregation.IFile")
    found = [settings.get(f"yarn.{key}.remote-app-log-dir") for key in keys]
    return list(dict.fromkeys(urlsplit(each).path.rstrip("/") for each in found if each)) or ["/tmp/logs"]


def _unread(container: Container, error: PortError) -> PortError:
    said = f"{container.id} is not read: {error.text}"
    if "cannot be resolved" in error.text:
        return FixConfiguration(said, "make the node's name resolve on this host, or map it in the option hdfs_names")
    return TryLater(said, retry_after_s=5.0)


def _files(node: HttpClient, container: str, owner: str) -> list[str]:
    """Names of a living container's files."""
    answer = node.ask("GET", f"/ws/v1/node/containers/{quote(container)}/logs", owner=owner)
    doing = f"listing the logs of {container}"
    found = answer.get(doing, "containerLogsInfo")
    with understood(doing):
        return sorted(
            str(file["fileName"])
            for part in (found if isinstance(found, list) else [found or {}])
            if part.get("logAggregationType", "LOCAL") == "LOCAL"
            for file in many(part.get("containerLogInfo"))
        )


def _living(node: HttpClient, container: str, file: str, owner: str) -> Iterator[bytes]:
    """What a file of a living container holds now: the NodeManager's words before and behind it are taken away."""
    path = f"/ws/v1/node/containers/{quote(container)}/logs/{quote(file)}"
    head, left = b"", -1
    for piece in node.pieces(path, owner=owner):
        data = piece
        if left < 0:
            head += piece
            begin = _BEGIN.search(head)
            if begin is None:
                if len(head) > _HEADER:
                    break
                continue
            left, data = int(begin[1]), head[begin.end() :]
        if data[:left]:
            yield data[:left]
        left = max(0, left - len(data))
    if left < 0:
        raise TryLater(f"{node.name} does not answer with the log {file} of {container}: {head[:80]!r}")
