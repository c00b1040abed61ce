"""The options that have a small language of their own: --env, --localization, --quicklink, --conf, --keytab."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from yarn_bridge.submarine.given import Given

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Schemes that the original took as remote.
_SCHEMES = (
    "hdfs", "oss", "s3a", "s3n", "wasb", "wasbs", "abfs", "abfss", "adl", "har", "ftp", "http", "https", "viewfs",
    "swebhdfs", "webhdfs", "swift",
)  # fmt: skip
#: What YARN's localizer fetches by itself in the owner's name, wherever Hadoop is.
_HADOOP = ("hdfs", "webhdfs", "swebhdfs", "viewfs", "har")
STATIC, ARCHIVE = "STATIC", "ARCHIVE"
_TARGET = re.compile(r"\.|\./|\./[^/]+|/.*")
_LINK = re.compile(r"(?P<label>[^=]+)=https?://(?P<role>[a-z]+-[0-9]+):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class Localization:
    source: str
    name: str  #: in the working folder of each container
    mount: str = ""  #: absolute path inside a docker container; nothing: none
    kind: str = STATIC
    upload: str = ""  #: the local file or folder that is put to `source` before
    note: str = ""  #: what is to be said of it


@dataclass(frozen=True, slots=True)
class LocalPolicy:
    """What becomes of files that are not in HDFS yet."""

    staging: str  #: where in HDFS they are put
    strict: bool  #: refused instead


def environment(items: list[Given]) -> dict[str, str]:
    """As the original: a name without '=' is empty, the same name again appends after a ':'. Raises BadInput."""
    found: dict[str, str] = {}
    for item in items:
        name, _, value = item.value.partition("=")
        if not _VARIABLE.fullmatch(name):
            raise item.bad(f"{name!r} is no name of a variable", "write NAME=VALUE")
        if name in found and value:
            value = f"{found[name]}{'' if found[name].endswith(':') else ':'}{value}"
        found[name] = value or found.get(name, "")
    return found


def localization(item: Given, docker: bool, policy: LocalPolicy) -> Localization | None:
    """Raises BadInput, for what cannot be done with what to do. None: YARN has no way to fetch it."""
    parts = item.value.split(":")
    if parts[0] in _SCHEMES:
        parts = [":".join(parts[:2]), *parts[2:]]
    elif len(parts) > 2 and parts[1].startswith("//"):
        if policy.strict:
            raise item.bad(
                f"the scheme {parts[0]!r} is none that Submarine knew", "put the file into HDFS: hdfs:///..."
            )
        return None
    if not 2 <= len(parts) <= 3 or not parts[0]:
        raise item.bad("is not REMOTE:LOCAL[:rw]", "e.g. hdfs:///user/ann/data.bin:./data.bin")
    source, target = parts[:2]
    if not _TARGET.fullmatch(target):
        raise item.bad(f"{target!r}: the local path is ., ./, ./NAME or absolute", "write REMOTE:./NAME")
    if len(parts) == 3 and parts[2] not in ("rw", "wr"):
        raise item.bad(f"{parts[2]!r}: Submarine knew rw only", "leave it out")
    base = source.rstrip("/").rpartition("/")[2]
    scheme = source.partition(":")[0] if "://" in source or source.partition(":")[0] in _SCHEMES else ""
    if policy.strict and scheme not in _HADOOP:
        raise item.bad(
            f"{source} is not in HDFS; --strict uploads nothing",
            _upload(source, scheme, base, target, policy.staging),
        )
    return placed(source, scheme, _named(item, source, target, docker, policy.strict), policy)


def _named(item: Given, source: str, target: str, docker: bool, strict: bool) -> Localization:
    """Where it is in the working folder, and in an image. Raises BadInput."""
    base = source.rstrip("/").rpartition("/")[2]
    if not target.startswith("/"):
        return Localization(source, base if target in (".", "./") else target.removeprefix("./"))
    name = target.rstrip("/").rpartition("/")[2] or base
    if docker:
        return Localization(source, name, target)
    if strict:
        raise item.bad(
            f"{target}: a path outside the working folder needs a docker image to be mounted in",
            f"write ./{name} and use that path, or add --docker_image",
        )
    note = f"there is no image to mount {target} in: it is ./{name} in the working folder"
    return Localization(source, name, note=note)


def placed(source: str, scheme: str, wanted: Localization, policy: LocalPolicy) -> Localization:
    """A local file goes to the job's staging folder first, as Submarine did it; a folder as an archive of it."""
    if scheme:
        notes = [] if scheme in _HADOOP else [f"fetched by YARN, where the nodes' Hadoop knows {scheme}://"]
        return replace(wanted, note="; ".join([*notes, wanted.note] if wanted.note else notes))
    remote = f"{policy.staging}/{source.rstrip('/').rpartition('/')[2]}"
    kind = wanted.kind
    if Path(source).is_dir():
        remote, kind = f"{remote}.zip", ARCHIVE
    note = f"put to {remote} first" + (f"; {wanted.note}" if wanted.note else "")
    return replace(wanted, source=remote, kind=kind, upload=source, note=note)


def resource(source: str, policy: LocalPolicy) -> Localization:
    """One of tony.containers.resources: PATH[::NAME][#archive]. An archive is unpacked into a folder of its name."""
    path, _, word = source.partition("#")
    path, _, name = path.partition("::")
    scheme = path.partition(":")[0] if "://" in path else ""
    kind = ARCHIVE if word == "archive" else STATIC
    return placed(path, scheme, Localization(path, name or path.rstrip("/").rpartition("/")[2], kind=kind), policy)


def _upload(source: str, scheme: str, base: str, target: str, staging: str) -> str:
    if scheme:
        return f"copy it first: hdfs dfs -cp {source} {staging}/{base}, then write {staging}/{base}:{target}"
    return f"put it there first: hdfs dfs -put {source} {staging}/, then write {staging}/{base}:{target}"


def check_quicklink(item: Given) -> None:
    """Raises BadInput for what the original refused too, so that the first error is about the text itself."""
    match = _LINK.fullmatch(item.value)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise item.bad("is not LABEL=http(s)://ROLE-N:PORT", "e.g. Notebook=https://master-0:7070")


@dataclass(frozen=True, slots=True)
class Conf:
    queue: str | None = None
    resources: tuple[str, ...] = ()  #: files for the working folder, from tony.containers.resources
    idle: tuple[str, ...] = ()  #: what has nothing to act on here, and what says it instead


#: The key of another runtime -> the option that says the same.
_INSTEAD = {
    "tony.application.name": "--name",
    "tony.application.framework": "--framework",
    "tony.worker.instances": "--num_workers",
    "tony.worker.memory": "--worker_resources",
    "tony.worker.vcores": "--worker_resources",
    "tony.worker.gpus": "--worker_resources",
    "tony.worker.command": "--worker_launch_cmd",
    "tony.ps.instances": "--num_ps",
    "tony.ps.memory": "--ps_resources",
    "tony.ps.vcores": "--ps_resources",
    "tony.ps.command": "--ps_launch_cmd",
    "tony.docker.containers.image": "--docker_image",
}


def conf(items: list[Given], strict: bool) -> Conf:
    """Raises BadInput for what is no pair, and under `strict` for one whose meaning cannot be carried over."""
    queue: str | None = None
    resources: list[str] = []
    idle: list[str] = []
    for item in items:
        key, equals, value = item.value.partition("=")
        if not equals or not key:
            raise item.bad("is no KEY=VALUE", "e.g. --conf tony.yarn.queue=gpu")
        if key == "tony.yarn.queue":
            queue = value
        elif key == "tony.containers.resources":
            resources += [each for each in value.split(",") if each]
        elif key == "submarine.runtime.class":
            continue  # which of the original's runtimes: there is one here
        else:
            instead = _INSTEAD.get(key)
            text = f"{key} is a setting of another runtime and has nothing to act on here"
            remedy = f"write {instead}" if instead else "settings of the cluster are in the site's configuration"
            if strict:
                raise item.bad(text, remedy if instead else f"take it out; {remedy}")
            idle.append(f"{text} ({remedy})")
    return Conf(queue, tuple(resources), tuple(idle))


def keytab(path: Given, distribute: Given | None, home: str) -> str:
    """The keytab as YARN Services reads it. Raises BadInput: Horae copies no keys."""
    text = path.value
    in_hdfs = text.startswith("hdfs://")
    if distribute is not None and not in_hdfs:
        name = text.rpartition("/")[2]
        raise distribute.bad(
            "Horae copies no key",
            f"put it there yourself: hdfs dfs -put {text} {home}/ && hdfs dfs -chmod 600 {home}/{name}, then "
            f"--keytab {home}/{name}",
        )
    if in_hdfs or text.startswith("file://"):
        return text
    if not text.startswith("/"):
        raise path.bad("is not an absolute path", "the path of the keytab on every node, or hdfs:///...")
    return f"file://{text}"
