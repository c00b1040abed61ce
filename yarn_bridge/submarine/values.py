"""The options that have a small language of their own: --env, --localization, --quicklink, --conf, --keytab."""

from __future__ import annotations

import re
from dataclasses import dataclass

from yarn_bridge.submarine.given import Given

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Schemes that the original took as remote.
_SCHEMES = (
    "hdfs", "oss", "s3a", "s3n", "wasb", "wasbs", "abfs", "abfss", "adl", "har", "ftp", "http", "https", "viewfs",
    "swebhdfs", "webhdfs", "swift",
)  # fmt: skip
#: What YARN's localizer fetches by itself in the owner's name.
_HADOOP = ("hdfs", "webhdfs", "swebhdfs", "viewfs", "har")
_TARGET = re.compile(r"\.|\./|\./[^/]+|/.*")
_LINK = re.compile(r"(?P<label>[^=]+)=https?://(?P<role>[a-z]+-[0-9]+):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class Localization:
    source: str
    name: str  #: in the working folder of each container
    mount: str = ""  #: absolute path inside a docker container; nothing: none


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


def localization(item: Given, docker: bool, staging: str) -> Localization:
    """Raises BadInput, for what cannot be done with what to do."""
    parts = item.value.split(":")
    if parts[0] in _SCHEMES:
        parts = [":".join(parts[:2]), *parts[2:]]
    elif len(parts) > 2 and parts[1].startswith("//"):
        raise item.bad(f"the scheme {parts[0]!r} is none that Submarine knew", "put the file into HDFS: hdfs:///...")
    if not 2 <= len(parts) <= 3 or not parts[0]:
        raise item.bad("is not REMOTE:LOCAL[:rw]", "e.g. hdfs:///user/ann/data.bin:./data.bin")
    source, target = parts[:2]
    if not _TARGET.fullmatch(target):
        raise item.bad(f"{target!r}: the local path is ., ./, ./NAME or absolute", "write REMOTE:./NAME")
    if len(parts) == 3 and parts[2] not in ("rw", "wr"):
        raise item.bad(f"{parts[2]!r}: Submarine knew rw only", "leave it out")
    scheme = source.partition(":")[0] if "://" in source or source.partition(":")[0] in _SCHEMES else ""
    base = source.rstrip("/").rpartition("/")[2]
    if scheme not in _HADOOP:
        raise item.bad(
            f"{source} is not in HDFS; Horae uploads nothing", _upload(source, scheme, base, target, staging)
        )
    if target.startswith("/"):
        if not docker:
            raise item.bad(
                f"{target}: a path outside the working folder needs a docker image to be mounted in",
                f"write ./{target.rpartition('/')[2] or base} and use that path, or add --docker_image",
            )
        return Localization(source, target.rpartition("/")[2] or base, target)
    return Localization(source, base if target in (".", "./") else target[2:])


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


def conf(items: list[Given]) -> Conf:
    """Raises BadInput for a pair whose meaning cannot be carried over."""
    queue: str | None = None
    resources: list[str] = []
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
            raise item.bad(
                f"{key} is a setting of another runtime and has nothing to act on here",
                f"write {instead}"
                if instead
                else "take it out; settings of the cluster are in the site's configuration",
            )
    return Conf(queue, tuple(resources))


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
