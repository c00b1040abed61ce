"""What a job asks of its YARN service beyond Horae's own specification, as a part of the service's JSON.

It travels in `JobSpec.extra` and the adapter merges it into the service that it makes:

    yarn.queue      name of the queue
    yarn.service    {"artifact", "configuration": {"env", "files"}, "kerberos_principal"}: for the whole service
    yarn.worker     {"artifact", "resource": {"additional"}}: for each component of workers

Field names are those of the YARN Services API. The Docker parts follow what Submarine's own code made, and never ran
on a cluster: they need YARN's native container executor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from yarn_bridge.submarine.values import Localization

MOUNTS = "YARN_CONTAINER_RUNTIME_DOCKER_MOUNTS"
_KERBEROS = "/etc/krb5.conf:/etc/krb5.conf:ro"


def artifact(image: str) -> dict[str, str]:
    return {"id": image, "type": "DOCKER"}


def files(items: Sequence[Localization]) -> list[dict[str, str]]:
    return [{"type": item.kind, "src_file": item.source, "dest_file": item.name} for item in items]


def mounts(items: Sequence[Localization], env: Mapping[str, str], kerberos: bool) -> str:
    """What a docker container sees of its node: absolute localizations, then what Submarine added by itself."""
    found = [env[MOUNTS].rstrip(",")] if env.get(MOUNTS) else []
    found += [f"{item.name}:{item.mount}:rw" for item in items if item.mount]
    for own in ("/etc/passwd", "/etc/group"):
        if not any(f":{own}" in each for each in found):
            found.append(f"{own}:{own}:ro")
    return ",".join([*found, _KERBEROS] if kerberos else found)


def service(
    image: str | None,
    docker: bool,
    items: Sequence[Localization],
    env: Mapping[str, str],
    principal: str | None,
    keytab: str | None,
) -> dict[str, Any]:
    """`docker`: whether any role runs in an image."""
    made: dict[str, Any] = {}
    configuration: dict[str, Any] = {}
    if image is not None:
        made["artifact"] = artifact(image)
    if docker:
        configuration["env"] = {MOUNTS: mounts(items, env, principal is not None)}
    if items:
        configuration["files"] = files(items)
    if configuration:
        made["configuration"] = configuration
    if principal is not None and keytab is not None:
        made["kerberos_principal"] = {"principal_name": principal, "keytab": keytab}
    return made


def worker(image: str | None, others: Mapping[str, int]) -> dict[str, Any]:
    """`others`: resources of YARN that are neither memory, cores nor GPUs."""
    made: dict[str, Any] = {} if image is None else {"artifact": artifact(image)}
    if others:
        made["resource"] = {"additional": {name: {"value": count, "unit": ""} for name, count in others.items()}}
    return made


def extra(queue: str | None, whole: Mapping[str, Any], workers: Mapping[str, Any]) -> dict[str, str]:
    """The words of `JobSpec.extra`; nothing for what was not asked."""
    words = {} if queue is None else {"yarn.queue": queue}
    for name, part in (("service", whole), ("worker", workers)):
        if part:
            words[f"yarn.{name}"] = json.dumps(part, sort_keys=True)
    return words
