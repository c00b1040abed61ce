"""What `horae install yarn` changes on a site: Horae's queue, the files that say what Hadoop needs, the service.

The queue goes in by the ResourceManager's own interface where its configuration is mutable, into the site's
capacity-scheduler.xml or fair-scheduler.xml where that is at hand (`etc`), else into a file to be merged. No other
queue is touched, but for the one that is named to give up its share (`from`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from horae.port import PortError
from horae.sites import Change, systemd_unit
from policy.model import BadInput
from yarn_bridge.clients.http import KERBEROS, HttpClient
from yarn_bridge.clients.queues import CAPACITY, Queues, queues
from yarn_bridge.clients.resource_manager import ResourceManager
from yarn_bridge.clients.settings import setting_of
from yarn_bridge.options import parse_options
from yarn_bridge.runtimes.chooser import HANDLER, PATIENT, TRIES
from yarn_bridge.site.scheduler_conf import PLACE, PREFIX, SchedulerConf, parse, text_of
from yarn_bridge.site.security import PLAIN_FILTER, PROXY_FILTER
from yarn_bridge.site.xml import merged, properties

#: where the ResourceManager keeps the scheduler's configuration
STORE = "yarn.scheduler.configuration.store.class"
DEFAULTS = {
    "rm": "",  # web addresses of the ResourceManagers, by commas
    "webhdfs": "",  # of the NameNodes
    "queue": "root.horae",  # Horae's own
    "capacity": "",  # per cent of its parent that the new queue is guaranteed; or a weight: 3w
    "from": "",  # the queue beside it that gives up this share
    "user": "horae",  # the service account: administers the queue
    "submitters": "",  # who may submit to it, as Hadoop writes it: "alice,bob ml,vision", users and groups, or *
    "admin": "",  # who may change the scheduler's configuration; default: `user`
    "etc": "",  # Hadoop's configuration folder on this host, where the scheduler's file is
    "until": "",  # restart: take a queue that the ResourceManager forgets at its next start
    "out": "/etc/horae/yarn",  # where the XML to merge goes
    "units": "/etc/systemd/system",
    "bin": "/opt/horae/bin",
    "auth": "simple",
    "principal": "",
    "keytab": "",
    "ca": "",
}


def planned(said: Mapping[str, str]) -> tuple[list[Change], list[str]]:
    """(changes, what the administrator does after them). Raises BadInput."""
    unknown = next((name for name in said if name not in DEFAULTS), None)
    if unknown:
        raise BadInput("no such option", where="--set", field=unknown, remedy=f"one of {', '.join(DEFAULTS)}")
    given = {**DEFAULTS, **said}
    if not re.fullmatch(r"(\*|[\w.$-]*(,[\w.$-]+)*( [\w.$-]+(,[\w.$-]+)*)?)", given["submitters"]):
        raise BadInput(
            "is no list of users and groups", where="--set", field="submitters", value=given["submitters"],
            remedy="users by commas, a blank, groups by commas: --set 'submitters=alice,bob ml,vision'; or *",
        )  # fmt: skip
    manager = _manager(given)
    try:
        tree = queues(manager.scheduler())
        out = Path(given["out"])
        changes = [
            Change(out / "yarn-site.xml", yarn_site(tree).encode(), "settings to merge into yarn-site.xml"),
            Change(out / "core-site.xml", core_site(given).encode(), "settings to merge into core-site.xml"),
        ]
        changes += _queue(given, manager, tree, out)
        unit = _unit(given)
        changes.append(Change(Path(given["units"]) / "horae.service", unit.encode(), "the arbiter as a service"))
    except PortError as error:
        raise BadInput(error.text, where=given["rm"], remedy=getattr(error, "remedy", "")) from None
    finally:
        manager.close()
    user = given["user"]
    commands = [
        f"merge {out}/yarn-site.xml and {out}/core-site.xml into Hadoop's (each property says where), and restart",
        f"hdfs dfs -mkdir -p /user/{user}; hdfs dfs -chown {user} /user/{user}; hdfs dfs -chmod 1777 /tmp",
        "yarn rmadmin -refreshQueues   # where the queue came by a file",
        "systemctl daemon-reload",
        "horae doctor /etc/horae/config.yaml",
    ]
    return changes, commands


def opened(name: str) -> SchedulerConf:
    """The place of that name, as `uninstall` reads it from its record."""
    found = re.fullmatch(re.escape(PLACE) + r"(\S+(?: \S+)*) as (\S+) by (\w+)", name)
    if found is None:
        raise BadInput("is not a place of this site", value=name)
    # Under Kerberos whoever runs `uninstall` has a ticket.
    given = {**DEFAULTS, "rm": found[1].replace(" ", ","), "user": found[2], "auth": found[3]}
    return SchedulerConf(_manager(given), found[2])


def _manager(given: Mapping[str, str]) -> ResourceManager:
    options = {
        "resource_manager": given["rm"],
        "webhdfs": given["webhdfs"] or given["rm"],
        **{key: given[key] for key in ("user", "auth", "principal", "keytab", "ca") if given[key]},
    }
    if not given["rm"]:
        raise BadInput("must be given", where="--set", field="rm", remedy="--set rm=http://rm1:8088,http://rm2:8088")
    checked = parse_options(options, "--set")
    return ResourceManager(HttpClient(checked.access(checked.resource_manager), "ResourceManager"))


def _queue(given: Mapping[str, str], manager: ResourceManager, tree: Queues, out: Path) -> list[Change]:
    path = given["queue"] if given["queue"].startswith("root.") else f"root.{given['queue']}"
    if not re.fullmatch(r"root(\.[\w-]+)+", path):
        raise BadInput("is not a queue's path", where="--set", field="queue", value=path, remedy="--set queue=root.gpu")
    parent = path.rpartition(".")[0]
    if parent not in {queue.path for queue in tree.root.walk()}:
        raise BadInput(f"there is no queue {parent} to put it in", where="--set", field="queue", value=path)
    if tree.kind != CAPACITY:
        return [_fair_queue(given, path, tree, out)]
    # With a connection of its own: the plan's is closed before anything is written.
    conf = SchedulerConf(_manager(given), given["admin"] or given["user"])
    current, in_file = conf.values(), _in_file(given, path)
    if current is not None:
        by_rest = Change(
            Path(), text_of(with_queue(current, path, given)).encode(), f"Horae's queue {path}", place=conf
        )
        return [by_rest, *(in_file if _forgets(manager, given) else [])]
    if in_file:
        return in_file
    there = any(queue.path == path for queue in tree.root.walk())
    share = _share(given) if given["capacity"] else {"capacity": "of its parent, in per cent", "user-limit-factor": "2"}
    wanted = {f"{PREFIX}{path}.{key}": value for key, value in ({} if there else _parameters(given, share)).items()}
    siblings = sorted({queue.name for queue in tree.find(parent).children} | {path.rpartition(".")[2]})
    wanted[f"{PREFIX}{parent}.queues"] = ",".join(siblings)
    return [Change(out / "capacity-scheduler.xml", _document(wanted).encode(), "to merge into capacity-scheduler.xml")]


def _in_file(given: Mapping[str, str], path: str) -> list[Change]:
    if not given["etc"]:
        return []
    file = Path(given["etc"]) / "capacity-scheduler.xml"
    text = _text(file)
    wanted = with_queue(properties(text, str(file)), path, given)
    return [Change(file, merged(text, wanted).encode(), f"Horae's queue {path}")]


def _forgets(manager: ResourceManager, given: Mapping[str, str]) -> bool:
    """Whether the ResourceManager keeps the scheduler's configuration in memory. Raises BadInput where its next start
    would so leave every job without a queue, and nobody said that this is meant."""
    if setting_of(manager.http, "the ResourceManager", STORE).get(STORE) != "memory":
        return False
    if not given["etc"] and given["until"] != "restart":
        raise BadInput(
            "the ResourceManager keeps its queues in memory: the new one would be gone at its next start, and no job "
            "could start",
            where="--set",
            field="etc",
            remedy=f"set {STORE} to leveldb or zk; or --set etc=/etc/hadoop/conf puts it into capacity-scheduler.xml "
            "as well; or --set until=restart takes it so",
        )
    return True


def with_queue(current: Mapping[str, str], path: str, given: Mapping[str, str]) -> dict[str, str]:
    """The configuration with Horae's queue in it; the same when it is there. Raises BadInput."""
    wanted = dict(parse(text_of(current)))
    parent, _, name = path.rpartition(".")
    children = [each for each in wanted.get(f"{PREFIX}{parent}.queues", "").split(",") if each]
    if name in children:
        return wanted
    share = _share(given)
    if share["capacity"].endswith("w") != any(_capacity(wanted, f"{parent}.{each}").endswith("w") for each in children):
        raise BadInput(
            "per cent and weights do not mix beside each other", where="--set", field="capacity",
            value=given["capacity"], remedy=f"as the queues below {parent} have it",
        )  # fmt: skip
    if not share["capacity"].endswith("w"):
        donor = given["from"] if "." in given["from"] else f"{parent}.{given['from']}"
        if not given["from"] or donor.rpartition(".")[2] not in children or donor.rpartition(".")[0] != parent:
            raise BadInput(
                "names no queue that gives up this share", where="--set", field="from", value=given["from"],
                remedy="one of " + ", ".join(f"{one} ({_capacity(wanted, f'{parent}.{one}')} %)" for one in children),
            )  # fmt: skip
        left = float(_capacity(wanted, donor) or "0") - float(share["capacity"])
        if left < 0:
            raise BadInput(
                f"{donor} has only {_capacity(wanted, donor)} %", where="--set", field="capacity",
                value=given["capacity"],
            )  # fmt: skip
        wanted[f"{PREFIX}{donor}.capacity"] = f"{left:g}"
    wanted |= {f"{PREFIX}{path}.{key}": value for key, value in _parameters(given, share).items()}
    wanted[f"{PREFIX}{parent}.queues"] = ",".join(sorted([*children, name]))
    return wanted


def _capacity(values: Mapping[str, str], path: str) -> str:
    return values.get(f"{PREFIX}{path}.capacity", "")


def _share(given: Mapping[str, str]) -> dict[str, str]:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(w?)", given["capacity"])
    if found is None or float(found[1]) <= 0 or (not found[2] and float(found[1]) > 100):
        raise BadInput(
            "is not a share", where="--set", field="capacity", value=given["capacity"],
            remedy="--set capacity=40 (per cent of the parent) and --set from=QUEUE; or a weight: --set capacity=3w",
        )  # fmt: skip
    # One user may fill the queue and what others leave idle: fairness between users is the arbiter's business.
    factor = 100.0 if found[2] else max(1.0, 100.0 / float(found[1]))
    return {"capacity": given["capacity"], "user-limit-factor": f"{-(-factor // 1):g}"}


def _parameters(given: Mapping[str, str], share: Mapping[str, str]) -> dict[str, str]:
    return {
        **share,
        "maximum-capacity": "100",
        "state": "RUNNING",
        # A suspended job keeps its application master, so most of a queue's masters may wait.
        "maximum-am-resource-percent": "0.5",
        "acl_administer_queue": given["user"],
        **({"acl_submit_applications": given["submitters"]} if given["submitters"] else {}),
    }


def _fair_queue(given: Mapping[str, str], path: str, tree: Queues, out: Path) -> Change:
    """The fair scheduler reads its file again by itself every ten seconds."""
    name = path.rpartition(".")[2]
    weight = given["capacity"].rstrip("w") or "1"
    submitters = given["submitters"]
    element = f'  <queue name="{name}"><weight>{escape(weight)}</weight>' + (
        (f"<aclSubmitApps>{escape(submitters)}</aclSubmitApps>" if submitters else "")
        + f"<aclAdministerApps>{escape(given['user'])}</aclAdministerApps></queue>\n"
    )
    file = Path(given["etc"]) / "fair-scheduler.xml" if given["etc"] else None
    if file is None or path.count(".") > 1:
        where = f"to put below {path.rpartition('.')[0]} in fair-scheduler.xml"
        return Change(out / "fair-scheduler.xml", f"<allocations>\n{element}</allocations>\n".encode(), where)
    text = _text(file)
    there = any(queue.path == path for queue in tree.root.walk()) or f'name="{name}"' in text
    after = text if there else text.replace("</allocations>", f"{element}</allocations>")
    return Change(file, after.encode(), f"Horae's queue {path}")


def yarn_site(tree: Queues) -> str:
    """The settings that the bridge relies on; `doctor` proves each. Where the scheduler preempts, workers may ask for
    named nodes only by the placement processor: see `yarn_bridge.runtimes.chooser.harmful`."""
    preempts = any(each.preemptable or each.among_users for each in tree.root.leaves())
    return _document(
        {
            "yarn.webapp.api-service.enable": "true",
            **(PATIENT if preempts else {HANDLER: "scheduler"}),
            "yarn.resourcemanager.recovery.enabled": "true",
            "yarn.cluster.max-application-priority": "10",
            "yarn.service.framework.path": "/yarn-services/service-dep.tar.gz",
            "yarn.nodemanager.node-attributes.provider": "config",
            "yarn.nodemanager.node-attributes.provider.configured-node-attributes":
                "host,STRING,NAME-OF-THIS-NODE:gpukind,STRING,TYPE-OF-ITS-GPUS",
            "yarn.nodemanager.recovery.enabled": "true",
            "yarn.nodemanager.recovery.supervised": "true",
            "yarn.nodemanager.sleep-delay-before-sigkill.ms": "5000",
            "yarn.nodemanager.container-monitor.interval-ms": "1000",
        },
        {
            "yarn.webapp.api-service.enable": "ResourceManager: elastic jobs are YARN services",
            HANDLER: "ResourceManager: workers go to named nodes",
            TRIES: "ResourceManager: a worker may wait for its node, as long as its gang",
            "yarn.resourcemanager.recovery.enabled": "ResourceManager: jobs survive its restart; needs a store.class",
            "yarn.cluster.max-application-priority": "ResourceManager: else every priority is 0",
            "yarn.service.framework.path": "ResourceManager: made once by `yarn app -enableFastLaunch`",
            "yarn.nodemanager.node-attributes.provider": "every NodeManager",
            "yarn.nodemanager.node-attributes.provider.configured-node-attributes":
                "every NodeManager, each with its own name and GPU type",
            "yarn.nodemanager.recovery.enabled": "every NodeManager: else workers of one that fails live on unseen",
            "yarn.nodemanager.sleep-delay-before-sigkill.ms": "every NodeManager: what a killed worker has to end",
            "yarn.nodemanager.container-monitor.interval-ms": "every NodeManager: how soon a worker counts as ready",
        },
    )  # fmt: skip


def core_site(given: Mapping[str, str]) -> str:
    user = given["user"]
    # Under Kerberos the plain one: the ResourceManager makes its own of it, which heeds doAs and delegation tokens.
    kerberos = given["auth"] == KERBEROS
    return _document(
        {
            f"hadoop.proxyuser.{user}.hosts": "HOST-OF-HORAE",
            f"hadoop.proxyuser.{user}.groups": "GROUP-OF-THOSE-WHO-TRAIN",
            "hadoop.http.filter.initializers": PLAIN_FILTER if kerberos else PROXY_FILTER,
        },
        {
            f"hadoop.proxyuser.{user}.hosts": "ResourceManager and NameNode: from where Horae may act for owners",
            f"hadoop.proxyuser.{user}.groups": "ResourceManager and NameNode: for whom",
            "hadoop.http.filter.initializers": "ResourceManager: makes it heed doAs; then set `doas: true`",
        },
    )  # fmt: skip


def _document(values: Mapping[str, str], why: Mapping[str, str] | None = None) -> str:
    lines = ['<?xml version="1.0"?>', "<configuration>"]
    for key, value in values.items():
        if why and key in why:
            lines.append(f"  <!-- {why[key]} -->")
        lines.append(f"  <property><name>{escape(key)}</name><value>{escape(value)}</value></property>")
    return "\n".join([*lines, "</configuration>", ""])


def _unit(given: Mapping[str, str]) -> str:
    return systemd_unit(given["user"], given["bin"], "0077")


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        raise BadInput("there is no such file", where=str(path), remedy="--set etc=FOLDER of Hadoop's files") from None
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", where=str(path)) from error
