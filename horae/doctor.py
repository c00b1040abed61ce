"""Checks of an installation and its cluster. Each is harmless, answers in words, and names the remedy.

An adapter brings its own as an entry point of the group `horae.doctor`, named like the adapter: a callable
`checks(options: Mapping[str, Any]) -> Iterable[Check]`. What raises becomes a failed check: a doctor must not fall ill.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from horae import extras
from horae.config import Config
from horae.extras import displaced
from horae.port import PortError
from policy.model import BadInput

GROUP = "horae.doctor"
#: Below this, a journal and its checkpoints do not grow far.
ROOM_BYTES = 1 << 30


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. `remedy` is never empty where something is wrong."""

    name: str
    verdict: Verdict
    text: str
    remedy: str = ""


def ok(name: str, text: str) -> Check:
    return Check(name, Verdict.OK, text)


def warn(name: str, text: str, remedy: str) -> Check:
    return Check(name, Verdict.WARN, text, remedy)


def fail(name: str, text: str, remedy: str) -> Check:
    return Check(name, Verdict.FAIL, text, remedy)


def failed(name: str, error: PortError) -> Check:
    """What a cluster did not do; its remedy is said once."""
    remedy = getattr(error, "remedy", "")
    away = "check that it runs and that cluster.options names it as it is; its own log says more"
    return fail(name, error.text.removesuffix(f" ({remedy})"), remedy or away)


def examine(config: Config | None, socket: Path | None) -> Iterator[Check]:
    """All checks: of this installation, of the configured arbiter and cluster, of a running arbiter."""
    yield from _each("installation", installation)
    if config is not None:
        found = config
        yield from _each("state folder", lambda: state(found.state_dir))
        yield from _each("policies", lambda: policies(found))
        yield from _each("cluster", lambda: cluster(found))
        yield from _adapter(found)
    if socket is not None:
        at = socket
        yield from _each("arbiter", lambda: arbiter(at))


def _each(name: str, checks: Callable[[], Iterable[Check]]) -> Iterator[Check]:
    try:
        yield from checks()
    except BadInput as error:
        told = f"{error.field}: {error.message}" if error.field else error.message
        yield fail(name, told, error.remedy or "mend the configuration")
    except ModuleNotFoundError as error:
        found = extras.missing(error)
        yield fail(name, found.message, found.remedy)
    except PortError as error:
        yield failed(name, error)
    except Exception as error:  # noqa: BLE001 - a check that breaks is a finding
        yield fail(name, f"the check itself failed: {type(error).__name__}: {error}", "please report it")


def installation() -> Iterator[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield ok("python", f"{version} at {sys.executable}")
    yield ok("sqlite", sqlite3.sqlite_version)
    if why := displaced():
        yield fail("packages", why, "a virtual environment of its own is the safe place")
    from policy.catalogue import entries

    yield ok("policies", ", ".join(entries()))
    adapters = sorted({e.name for e in entry_points(group="horae.clusters")})
    yield ok("adapters", ", ".join(adapters))
    if shutil.which("nvidia-smi"):
        from horae.machine_gpus import this_machine

        gpus = sum(node.gpus for node, _ in this_machine())
        yield (
            ok("gpus", f"nvidia-smi shows {gpus}")
            if gpus
            else warn("gpus", "nvidia-smi is here and shows no GPU", "check the driver, or say which nodes there are")
        )


def state(folder: Path) -> Iterator[Check]:
    """The journal's folder: can it be written, by us alone, and is there room?"""
    here = folder
    while not here.exists():
        here = here.parent
    if not os.access(here, os.W_OK | os.X_OK):
        yield fail("state folder", f"{here} cannot be written by this user", "run as another user, or set state_dir")
        return
    if folder.exists() and folder.stat().st_mode & 0o077:
        yield warn(
            "state folder", f"{folder} can be read by others: it holds everybody's commands", f"chmod 700 {folder}"
        )
    free = shutil.disk_usage(here).free
    room = f"{free / (1 << 30):.1f} GiB free"
    yield (
        ok("state folder", f"{folder}, {room}")
        if free >= ROOM_BYTES
        else warn(
            "state folder",
            f"only {room} at {here}",
            "make room: a full disk stops the journal, and the arbiter with it",
        )
    )


def policies(config: Config) -> Iterator[Check]:
    from policy.catalogue import entries, is_own, named

    for pool in config.pools:
        entry = named(pool.policy, believed=False)
        yield ok(f"pool {pool.name}", f"{pool.policy}, mode {pool.mode}")
        if not is_own(entry) and os.geteuid() != 0:
            yield warn(
                f"pool {pool.name}",
                f"{pool.policy} is not one of Horae's, and runs with this account's rights: it can read the journal",
                "use a policy that you have read; under an arbiter that is root it is an account that owns nothing",
            )
        if entry.weighs is False and any(t.weight != 1 for t in config.tenants):
            yield warn(
                f"pool {pool.name}",
                f"tenants have weights, and {pool.policy} reads none: to it they are equals",
                f"a policy that does ({', '.join(n for n, e in entries().items() if e.weighs)}), or tenants' caps",
            )


def cluster(config: Config) -> Iterator[Check]:
    """Connect and look once, as the arbiter would. Nothing is claimed or changed."""
    from horae.api.service import connect
    from horae.config import pools_by_node

    port = connect(config.cluster)
    try:
        begun = time.monotonic()
        seen = port.observe()
        took = time.monotonic() - begun
        capabilities = port.capabilities()
        gpus = sum(n.gpus for n in seen.nodes)
        yield ok(
            "cluster", f"{capabilities.cluster}: {len(seen.nodes)} nodes, {gpus} GPUs, read in {took * 1e3:.0f} ms"
        )
        for note in (*capabilities.notes, *seen.notes):
            yield warn("cluster", note, "known limits are in the adapter's documentation")
        where = pools_by_node(config, (n.name for n in seen.nodes))
        alone = [n.name for n in seen.nodes if n.name not in where]
        if alone:
            yield warn("pools", f"no pool holds {', '.join(alone[:10])}", "the arbiter leaves them alone: name them")
        for pool in config.pools:
            names = pool.names()
            missing = sorted(names - {n.name for n in seen.nodes}) if names else []
            if missing:
                yield warn(
                    f"pool {pool.name}", f"the cluster has no {', '.join(missing[:10])}", "correct pools[].nodes"
                )
    finally:
        port.close()


def _adapter(config: Config) -> Iterator[Check]:
    for entry in entry_points(group=GROUP):
        if entry.name == config.cluster.adapter:

            def checks(
                load: Callable[[], Any] = entry.load, options: Mapping[str, Any] = config.cluster.options
            ) -> Any:
                return load()(options)

            yield from _each(f"adapter {entry.name}", checks)


def arbiter(socket: Path) -> Iterator[Check]:
    """The running arbiter, by its own account."""
    from horae.api.client import Client, Unreachable
    from horae.api.errors import ApiError

    try:
        client = Client(socket, timeout_s=5.0)
        about = client.about()
        alerts = client.status(brief=True)["alerts"]
    except (Unreachable, ApiError) as error:
        yield warn("arbiter", str(error), getattr(error, "remedy", "") or "start it with `horae serve`")
        return
    yield ok("arbiter", f"{about['cluster']}, {about['rounds']} rounds, you are {about['you']['user']}")
    if about["stood_down"]:
        yield fail("arbiter", "stood down: another arbiter claimed the cluster", "stop one of the two for good")
    for alert in alerts:
        yield fail("arbiter", alert["text"], alert["remedy"] or "see `horae history`")
