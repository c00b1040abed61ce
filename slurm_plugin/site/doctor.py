"""`horae doctor slurm`: each right and setting that enforce mode needs, proved by a probe that changes nothing.

Rights are probed on a job that cannot exist: slurmctld checks who asks before it looks for the job only for some
requests, so what is proved is what `scontrol show` tells about us (AdminLevel, SlurmUser), and that foreign jobs
and all nodes can be seen.
"""

from __future__ import annotations

import getpass
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from horae.doctor import Check, Verdict, failed
from horae.port import PortError
from policy.model import Gpus
from slurm_plugin.adapter import SlurmCluster, connect
from slurm_plugin.clients import versions
from slurm_plugin.clients.command_reading import settings_of
from slurm_plugin.clients.rest import RestClient
from slurm_plugin.jobs.state_machine import CHECKPOINTED
from slurm_plugin.options import parse_options
from slurm_plugin.records import Facts
from slurm_plugin.rights import HIDING
from slurm_plugin.site import mended, of_version

_WARNED = "Horae goes on: what it needs was answered; see slurmrestd's own log"
QUEUE_DEPTH = 100  #: Slurm's default_queue_depth
OK, WARN, FAIL = Verdict.OK, Verdict.WARN, Verdict.FAIL


def checks(options: Mapping[str, Any]) -> list[Check]:
    """Entry point `horae.doctor: slurm`. Raises BadInput for options; everything else is a check's answer."""
    return [replace(check, remedy="") if check.verdict is OK else check for check in _examine(options)]


def _examine(options: Mapping[str, Any]) -> list[Check]:
    checked = parse_options(options, "--set")
    try:
        cluster = connect(options)
    except PortError as error:
        return [failed("connection", error)]
    try:
        began = time.monotonic()
        facts = cluster.facts()
        took = time.monotonic() - began
        found = [Check("controller", OK, f"Slurm {facts.version} of {facts.cluster} answers in {took * 1000:.0f} ms")]
        settings = settings_of(cluster.command.ask("show config"))
        found += _clients(cluster)
        found += _settings(facts, settings, checked.partitions)
        found += of_version.checks(cluster.transport, settings, checked.spool)
        found += _alone(facts, checked.partitions)
        there = [name for name in checked.partitions if name in facts.partitions]
        rows = cluster.client.nodes(there) if there else []
        found += _scheduler(settings, sum(sum(row.gpu_types.values()) for row in rows))
        found += mended.checks(cluster.transport, facts, facts.slurm_user)
        found += _rights(cluster, settings)
        found += _private(facts)
        found += _tenants(facts, checked.tenants)
        found += _spool(cluster, checked.spool)
        return found
    except PortError as error:
        return [failed("controller", error)]
    finally:
        cluster.close()


def _clients(cluster: SlurmCluster) -> list[Check]:
    """Which ways to Slurm work, and by which of them each operation goes."""
    found = []
    for client in cluster.client.clients:
        try:
            text = client.describe()
            if isinstance(client, RestClient):
                client.nodes(())
                found += [Check("slurmrestd warns", WARN, said, _WARNED) for said in client.warnings]
            found.append(Check(f"client {client.name}", OK, text))
        except PortError as error:
            known = versions.RELEASES.get(cluster.facts().release)
            if client.name == "pyslurm" and known is not None and not known.pyslurm:
                remedy = "the package index has no pyslurm for this Slurm: leave `pyslurm` out"
                found.append(Check("client pyslurm", WARN, error.text, remedy))
                continue
            remedy = "its part goes by the other clients meanwhile: see the clients in the Slurm guide"
            found.append(Check(f"client {client.name}", WARN, error.text, remedy))
    ways: dict[str, list[str]] = {}
    for choice in cluster.client.choices():
        ways.setdefault(choice.client, []).append(choice.operation.value)
    text = "; ".join(f"{', '.join(operations)} by {client}" for client, operations in ways.items())
    pace = cluster.client.pace
    text += f"; at most {pace.per_s:g} requests a second after a burst of {pace.burst:g}"
    return [*found, Check("routes", OK, text)]


def _settings(facts: Facts, settings: Mapping[str, str], partitions: tuple[str, ...]) -> list[Check]:
    found = []
    if facts.release in versions.RELEASES:
        found.append(Check("release", OK, facts.version))
    else:
        tried = ", ".join(f"{major}.{minor:02d}" for major, minor in versions.RELEASES)
        text = f"{facts.version} was never tried (tried: {tried})"
        found.append(Check("release", WARN, text, "run in advise mode first"))
    missing = sorted(set(partitions) - set(facts.partitions))
    if missing or not partitions:
        text = f"no partition {', '.join(missing)}" if missing else "none named"
        found.append(
            Check("managed partitions", FAIL, text, "set partitions to some of " + ", ".join(facts.partitions))
        )
    else:
        found.append(Check("managed partitions", OK, ", ".join(partitions)))
    lua = "lua" in settings.get("JobSubmitPlugins", "").split(",")
    found.append(
        Check(
            "Lua at submission", OK if lua else FAIL, settings.get("JobSubmitPlugins", "none"), "JobSubmitPlugins=lua"
        )
    )
    hold = CHECKPOINTED in facts.exit_hold
    held = "holds the job (RequeueExitHold)"
    bare = "a checkpointed job is FAILED for a moment, and its afterok dependents die"
    found.append(
        Check("exit code 86", OK if hold else WARN, held if hold else bare, "RequeueExitHold=86 in slurm.conf")
    )
    requeue = settings.get("JobRequeue", "1").startswith("1")
    text = "JobRequeue=1" if requeue else "JobRequeue=0: the Lua module sets it for each managed job"
    found.append(Check("requeueing", OK, text))
    gpus = "gpu" in settings.get("GresTypes", "").split(",")
    found.append(Check("GPUs", OK if gpus else FAIL, settings.get("GresTypes", "none"), "GresTypes=gpu and gres.conf"))
    if "rl_enable" in settings.get("SlurmctldParameters", ""):
        found.append(
            Check(
                "RPC rate limit", WARN, "on: Horae asks no faster than it allows", "exempt Horae: run it as SlurmUser"
            )
        )
    enforced = {"limits", "safe"} & set(settings.get("AccountingStorageEnforce", "").split(","))
    if enforced or (facts.multifactor and settings.get("PriorityWeightFairShare", "0") != "0"):
        text = "Slurm freezes a job's billing at its first allocation; fair share and limits may count it"
        found.append(Check("billing", WARN, text, "count gres/gpu seconds: AccountingStorageTRES=gres/gpu"))
    return found


def _alone(facts: Facts, partitions: tuple[str, ...]) -> Iterator[Check]:
    """Whether GPUs that a job leaves on its nodes can be another's."""
    for name in partitions:
        match facts.alone.get(name):
            case None:
                continue
            case "ExclusiveUser=YES" as setting:
                verdict, whose = WARN, "the GPUs that a user's job leaves on a node are that user's alone"
            case setting:
                verdict, whose = FAIL, "each job has its nodes whole, with GPUs that it never asked for"
        text = f"{name} is {setting}: {whose}, and grants of others wait there"
        yield Check("nodes for several jobs", verdict, text, "change it in slurm.conf, or manage another partition")


def _scheduler(settings: Mapping[str, str], gpus: Gpus) -> list[Check]:
    """How soon slurmctld starts what is released. `gpus`: of the managed nodes, as many jobs as can begin at once."""
    parameters = settings.get("SchedulerParameters", "")
    swift = "batch_sched_delay=0" in parameters
    latency = Check(
        "start latency", OK if swift else WARN, "under a second" if swift else "up to 4 s after each release",
        "SchedulerParameters=batch_sched_delay=0,sched_min_interval=0",
    )  # fmt: skip
    said = re.search(r"\bdefault_queue_depth=(\d+)", parameters)
    depth = int(said[1]) if said else QUEUE_DEPTH
    text = f"slurmctld starts {depth} jobs at a time (default_queue_depth)"
    if depth < gpus:
        text += f", and of more, on {gpus} GPUs, the others with its next backfill, half a minute later"
    together = Check(
        "starts together", WARN if depth < gpus else OK, text, f"default_queue_depth={gpus} in SchedulerParameters"
    )
    return [latency, together]


def _rights(cluster: SlurmCluster, settings: Mapping[str, str]) -> list[Check]:
    me = cluster.account() or getpass.getuser()
    slurm_user = settings.get("SlurmUser", "").partition("(")[0]
    if me in {slurm_user, "root"}:
        return [Check("rights", OK, f"{me} is SlurmUser or root")]
    level = cluster.admin_level(me)
    if level in {"Operator", "Administrator"}:
        found = [Check("rights", OK, f"{me} is {level}")]
    else:
        found = [
            Check(
                "rights", FAIL, f"{me} has AdminLevel {level or 'none'}",
                f"sacctmgr -i add user {me} account=root adminlevel=Operator (needs slurmdbd), or run as {slurm_user}",
            )
        ]  # fmt: skip
    hidden = cluster.facts().private & {"jobs", "nodes"}
    if hidden and found[0].verdict is FAIL:
        found.append(Check("PrivateData", FAIL, f"hides {', '.join(sorted(hidden))} from us", "Operator sees all"))
    return found


def _private(facts: Facts) -> list[Check]:
    """What this site hides from other users, Horae must not show them."""
    hidden = sorted(facts.private & HIDING)
    if not hidden:
        return []
    return [
        Check("what the site hides", OK, f"{', '.join(hidden)} of others: Horae shows it to operators alone as well")
    ]


#: AccountingStorageEnforce's words under which slurmctld lets nobody name what is not his; most stand for accounts too
_QOS = frozenset({"qos", "all"})
_ACCOUNT = _QOS | {"associations", "limits", "safe", "wckeys"}


def _tenants(facts: Facts, by: str) -> list[Check]:
    """Whether a job's tenant is its user's to choose."""
    unchecked = {"account": facts.enforced.isdisjoint(_ACCOUNT), "qos": facts.enforced.isdisjoint(_QOS)}
    if not unchecked.get(by):
        return []
    text = f"jobs may name any {by} (AccountingStorageEnforce), and so have any tenant's share"
    return [Check("tenants", WARN, text, "AccountingStorageEnforce=associations,qos, or `tenants: user`")]


def _spool(cluster: SlurmCluster, spool: str) -> list[Check]:
    try:
        cluster.spool.probe()
    except PortError as error:
        return [Check("spool", FAIL, error.text, f"install -d -o {getpass.getuser()} -m 755 {spool}")]
    away = cluster.clock_offset_s()
    found = [Check("spool", OK, f"{spool} can be written")]
    fine = abs(away) < 5
    found.append(
        Check("clocks", OK if fine else WARN, f"slurmctld's host is {away:+.1f} s from here", "run NTP on both")
    )
    return found
