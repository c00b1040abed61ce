"""From a job to its YARN service: names, components, the worker's script.

One worker is one container with one GPU, or with as many as its job says. Where a component can ask for a named node,
there is one component a node, most of them at nought, so that a new shape is one FLEX; elsewhere there is one component
for all.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import marshal
import re
import shlex
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

from horae.elastic import carry, protocol
from horae.port import FixConfiguration, JobId, Never
from horae.spec import JobSpec
from policy.model import EMPTY, Allocation
from yarn_bridge.clients.records import GPU, gpus_in
from yarn_bridge.jobs.record import Record
from yarn_bridge.options import BY_QUEUE, SERVICES, Options

JOB_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@=-]{0,199}")
SDK = "horae.pyz"
ANYWHERE = "*"
HOST_ATTRIBUTE = "nm.yarn.io/host"
#: a worker's end never holds its GPU: a new container is asked for, and the bridge decides what the gang does
RESTART = "ON_FAILURE"
EXTRA_QUEUE, EXTRA_SERVICE, EXTRA_WORKER = "yarn.queue", "yarn.service", "yarn.worker"
#: What a job may say of its service and of each worker, in the Services API's words. All else would be what Horae
#: counts: GPUs, memory and cores of a worker, how many there are, where, in which queue.
WORDS = {
    EXTRA_SERVICE: ("artifact", "configuration", "docker_client_config", "kerberos_principal"),
    EXTRA_WORKER: ("artifact", "configuration", "resource", "run_privileged_container"),
}
#: an artifact of another kind stands for components of another service's
ARTIFACTS = ("DOCKER", "TARBALL")
#: The size of an application master, which is counted as the cluster's configuration says.
_MASTER, MASTERS = "yarn.service.am-resource.", "every service's application master has the size that the cluster says"


def service_name(job: JobId, root: str = "") -> str:
    """Lower-case, unique for each job id and each bridge: every journal numbers its jobs from 1, and a YARN may have
    several. `root`: of the bridge's folders; "": as the version before named them, whatever their bridge."""
    slug = re.sub(r"[^a-z0-9]+", "-", job.lower()).strip("-")[:40]
    told = f"{root} {job}" if root else job
    return f"h-{slug}-{hashlib.sha256(told.encode()).hexdigest()[:8]}".replace("--", "-")


def check(job: JobId, spec: JobSpec) -> None:
    """Raises Never for what YARN can never run."""
    if not JOB_ID.fullmatch(job):
        raise Never(f"{job!r} cannot be a job's id on YARN: letters, digits and ._+@=- only, at most 200")
    for name, words in WORDS.items():
        _check_part(job, name, _part(spec, name), words)
    if spec.command == ():
        raise Never(f"{job} has no command")
    if spec.typed is not None:
        raise Never("a job's containers on YARN are other machines: they cannot read the environment it was typed in")


def _check_part(job: JobId, name: str, part: Mapping[str, Any], words: Sequence[str]) -> None:
    """Raises Never for a word that would give a worker what nobody counts."""
    where = f"{job}: extra.{name}"
    artifact, resource, more = (_object(part, where, word) for word in ("artifact", "resource", "configuration"))
    additional = _object(resource, f"{where}.resource", "additional")
    properties = _object(more, f"{where}.configuration", "properties")
    kind = artifact.get("type", ARTIFACTS[0])
    known = f"a job may say {', '.join(words)}"
    size = "a worker has what the job's own memory_per_gpu and cpus_per_gpu say"
    refused = {
        **dict.fromkeys(part.keys() - set(words), known),
        **({} if kind in ARTIFACTS else {f"artifact.type {kind!r}": f"one of {', '.join(ARTIFACTS)}"}),
        **{f"resource.{word}": size for word in resource.keys() - {"additional"}},
        **{
            f"resource.additional.{word}": "a worker has the GPUs of its grant"
            for word in additional
            if gpus_in({word: 1})
        },
        **{f"configuration.properties.{word}": MASTERS for word in properties if word.startswith(_MASTER)},
    }
    for word, remedy in sorted(refused.items()):
        raise Never(f"{where} must not say {word}: {remedy}")


def _object(value: Mapping[str, Any], where: str, name: str) -> Mapping[str, Any]:
    found = value.get(name, {})
    if not isinstance(found, Mapping):
        raise Never(f"{where}.{name} is no object: {str(found)[:60]!r}")
    return found


def components_for(nodes: Sequence[str], exact: bool) -> tuple[tuple[str, str], ...]:
    if not exact:
        return ((ANYWHERE, "worker"),)
    return tuple((node, f"w{index}") for index, node in enumerate(sorted(nodes)))


def counts(record: Record, allocation: Allocation, components: Sequence[tuple[str, str]] = ()) -> dict[str, int]:
    """Workers of every component for this allocation; `components`: others than the record's."""
    listed = components or record.components
    known = dict(listed)
    if not record.each:
        return {known[ANYWHERE]: record.count}
    if ANYWHERE in known:
        return {known[ANYWHERE]: sum(allocation.values()) // record.each}
    return {name: int(allocation.get(node, 0)) // record.each for node, name in listed}


def tag_of(record: Record, node: str) -> str:
    """What YARN counts a job's containers on this node by; "" where they are not counted apart."""
    return dict(record.components).get(node, "") if record.runtime == SERVICES else ""


def covers(components: Sequence[tuple[str, str]], allocation: Allocation) -> bool:
    """Whether a service with these components can take this shape."""
    known = dict(components)
    return ANYWHERE in known or set(allocation) <= set(known)


def queue_of(spec: JobSpec, options: Options) -> str:
    """The leaf queue that its application goes to: its tenant, where those are queues."""
    if options.tenants == BY_QUEUE and spec.tenant.startswith("root."):
        return spec.tenant
    return spec.extra.get(EXTRA_QUEUE) or options.queue


def same_queue(one: str, other: str) -> bool:
    """Whether both may name one queue: a queue goes by its path, or by the last part of it."""
    return f".{one}".endswith(f".{other}") or f".{other}".endswith(f".{one}")


def worker_size(spec: JobSpec, options: Options) -> tuple[int, int]:
    """(virtual cores, MiB) of a worker's container. What is said of a GPU is, of a job without GPUs, said of a
    worker."""
    each = max(spec.gpus_a_worker, 1)
    memory = max(64, -(-spec.memory_per_gpu * each // (1 << 20))) if spec.memory_per_gpu else options.memory_mib * each
    cpus = max(1, round(spec.cpus_per_gpu * each)) if spec.cpus_per_gpu else options.cpus * each
    return int(cpus), int(memory)


def service_spec(
    record: Record,
    spec: JobSpec,
    options: Options,
    folder: str,
    sdk: str,
    partitions: Mapping[str, str] = EMPTY,
    names: Mapping[str, str] = EMPTY,
) -> dict[str, Any]:
    """The body that creates the service in the record's shape. `folder`: the job's, in HDFS; `sdk`: its path there;
    `partitions`: nodes whose workers must ask for a partition, and which; `names`: nodes and the resource that their
    GPUs are. Raises FixConfiguration where YARN chooses the nodes and their GPUs have several names."""
    cpus, memory_mib = worker_size(spec, options)
    resource: dict[str, Any] = {"cpus": cpus, "memory": str(memory_mib)}
    wanted = counts(record, dict(record.allocation))
    components = []
    for node, name in record.components:
        component: dict[str, Any] = {
            "name": name,
            "number_of_containers": wanted[name],
            "restart_policy": RESTART,
            "launch_command": "exec bash launch.sh",
            "resource": {**resource, **_asked(node, record, names)},
        }
        if node != ANYWHERE:
            where: dict[str, Any] = {"type": "AFFINITY", "scope": "NODE", "node_attributes": {HOST_ATTRIBUTE: [node]}}
            if node in partitions:  # in the same constraint: two that say so place nothing
                where["node_partitions"] = [partitions[node]]
            component["placement_policy"] = {"constraints": [where]}
        components.append(merged(component, _part(spec, EXTRA_WORKER)))
    files = [
        {"type": "STATIC", "src_file": sdk, "dest_file": SDK},
        {"type": "STATIC", "src_file": f"{folder}/launch.sh", "dest_file": "launch.sh"},
    ]
    made = {
        "name": record.service,
        "version": "1.0",
        "description": f"job {record.job} of Horae's: see `horae explain {record.job}`, `horae logs {record.job}`",
        "queue": queue_of(spec, options),
        "components": components,
        "configuration": {"files": files},
    }
    return merged(made, _part(spec, EXTRA_SERVICE))


def _asked(node: str, record: Record, names: Mapping[str, str]) -> dict[str, Any]:
    """A worker's GPUs, by the name that they have there."""
    if not record.each:
        return {}
    return {"additional": {named(node, names): {"value": record.each, "unit": ""}}}


def named(node: str, names: Mapping[str, str]) -> str:
    """The resource that the GPUs of a node are, or of any node. Raises FixConfiguration."""
    known = {names.get(each, GPU) for each in ([node] if node != ANYWHERE else names)} or {GPU}
    if len(known) > 1:
        raise FixConfiguration(
            f"the nodes' GPUs have several names ({', '.join(sorted(known))}), and YARN chooses the nodes",
            "let nodes tell their names: the attribute 'host' of each NodeManager, as `horae doctor` says",
        )
    return known.pop()


def launch_script(job: JobId, spec: JobSpec, options: Options, folder: str) -> str:
    """What a worker's container runs. A script: the API's launch command passes a shell's double quotes on the way."""
    addresses = [each.rstrip("/") for each in options.webhdfs]
    url = f"{_hdfs_of(addresses)}{folder}"
    words = ["--gate", url, "--log", f"{url}/log", "--gpus", "1", "--name", spec.name or job]
    words += ["--grace", repr(float(spec.grace_s))]
    if spec.checkpoint:
        words += ["--checkpoint", spec.checkpoint]
    if signal := spec.extra.get(protocol.EXTRA_STOP_SIGNAL):
        words += ["--stop-signal", signal]
    if spec.extra.get(protocol.EXTRA_SELF_CHECKPOINTING, "").lower() in {"1", "true", "yes"}:
        words.append("--self-checkpointing")
    lines = ["#!/bin/bash", "# A worker of Horae: waits at the gate, trains whenever it opens.", 'here="$PWD"']
    lines.append(f'export {protocol.ENV_SCRATCH}="$here"')  # YARN takes it away with the container, however that ends
    environment = {"HORAE_WEBHDFS": ",".join(addresses), **dict(options.env), **spec.env}
    lines += [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    if spec.gpus_a_worker != 1:  # one process for all of them, or none to be seen: YARN without isolation says neither
        seen = ",".join(map(str, range(spec.gpus_a_worker))) or "-1"
        lines.append(f'export CUDA_VISIBLE_DEVICES="${{CUDA_VISIBLE_DEVICES:-{seen}}}"')
    lines.append(f'export PYTHONPATH="$here/{SDK}${{PYTHONPATH:+:$PYTHONPATH}}"')
    if spec.cwd:
        lines.append(f"cd {shlex.quote(spec.cwd)} || exit 72")
    said = " ".join(shlex.quote(word) for word in words)
    command = " ".join(shlex.quote(word) for word in spec.command)
    run = f'exec {shlex.quote(options.python)} "$here/{SDK}" --member "$CONTAINER_ID" --folder "$here/.horae"'
    return "\n".join([*lines, f"{run} {said} -- {command}", ""])


def _hdfs_of(addresses: Sequence[str]) -> str:
    """The URL of HDFS's root for workers. A gateway's address has a path, which only HORAE_WEBHDFS can hold."""
    hosts = [each.partition("://")[2] for each in addresses]
    if any("/" in each for each in hosts):
        return "hdfs://" + hosts[0].partition("/")[0]
    return f"{'swebhdfs' if addresses[0].startswith('https:') else 'webhdfs'}://{','.join(hosts)}"


def sdk() -> tuple[str, bytes]:
    """(file name, bytes) of the in-job part of Horae: one file that Python runs and imports; the same for the same.

    Beside each module lies what this Python compiles it to: a start of a trainer would compile it anew, for an archive
    keeps nothing. Where a node has another Python, that one passes it over and compiles the source.
    """
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in carry.files().items():
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
            if name.endswith(".py"):
                archive.writestr(zipfile.ZipInfo(f"{name}c"), _compiled(name, text.encode()), zipfile.ZIP_DEFLATED)
    data = made.getvalue()
    return f"horae-{hashlib.sha256(data).hexdigest()[:12]}.pyz", data


def _compiled(name: str, source: bytes) -> bytes:
    """A .pyc that is never compared with its source (PEP 552). Marshal's version 2 writes the same in every process;
    later ones also write which of its objects somebody else holds."""
    code = compile(source, name, "exec", dont_inherit=True)
    unchecked = (1).to_bytes(4, "little")
    return importlib.util.MAGIC_NUMBER + unchecked + importlib.util.source_hash(source) + marshal.dumps(code, 2)


def merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Maps are merged, lists joined, `more`'s values win; names, counts and placement are ours."""
    found = dict(base)
    for key, value in more.items():
        if key in {"name", "number_of_containers", "launch_command", "placement_policy", "components"}:
            continue
        there = found.get(key)
        if isinstance(there, Mapping) and isinstance(value, Mapping):
            found[key] = merged(there, value)
        elif isinstance(there, list) and isinstance(value, list):
            found[key] = [*there, *value]
        else:
            found[key] = value
    return found


def _part(spec: JobSpec, name: str) -> Mapping[str, Any]:
    text = spec.extra.get(name)
    if not text:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Never(f"extra.{name} is not a JSON object: {text[:60]!r}")
    return value
