"""From what YARN and the records say to the port's values. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from horae.elastic.protocol import CHECKPOINTS_FAIL
from horae.port import JobState, ObservedJob
from horae.spec import JobSpec
from policy.model import EMPTY, Allocation, Gpus, Health, Node
from yarn_bridge.clients.queues import CORES, MEMORY
from yarn_bridge.clients.records import App, NodeReport, Service
from yarn_bridge.jobs import shapes
from yarn_bridge.jobs.record import Phase, Record
from yarn_bridge.jobs.room import Held, amount, at_most, there, without
from yarn_bridge.jobs.state_machine import living_instances
from yarn_bridge.options import LABEL, Options

_HEALTH = {"RUNNING": Health.UP, "DECOMMISSIONING": Health.DRAIN}
#: a node in one of these has no containers any more; in any other, one that we do not know too, it may have
_LEFT = frozenset({"LOST", "DECOMMISSIONED", "REBOOTED", "SHUTDOWN"})
_STATE = {
    Phase.FORMING: JobState.STARTING,
    Phase.OPEN: JobState.RUNNING,
    Phase.LEAVING: JobState.STOPPING,
    Phase.CLEARING: JobState.STOPPING,
}


class Others:
    """What others use of each node, beside us.

    A node tells what is used of it in all. Where a job of ours comes or goes it may hold all of what it was granted or
    nothing of it yet, so that sum says only between which bounds others are: what was certain last counts, within them.
    Without it a GPU of somebody else's would count as free for as long as our job begins, or ends, beside it.
    """

    def __init__(self) -> None:
        self._last: dict[str, Held] = {}

    def look(
        self,
        reports: Sequence[NodeReport],
        held: Mapping[str, Held],
        returning: Mapping[str, Gpus],
        moving: Collection[str],
    ) -> dict[str, Held]:
        """By node. `held`: the most that we may have there; `returning`: GPUs that we gave back, of which the node may
        not have told yet; `moving`: nodes where a job of ours comes or goes."""
        found = {}
        for report in one_a_host(reports):
            ours = held.get(report.host, Held())
            back = returning.get(report.host, 0)
            used = Held(report.gpus_used, report.cpus_used, report.memory_used_mib)
            least = Held(
                max(used.gpus - ours.gpus - back, 0),
                max(used.cpus - ours.cpus, 0),
                max(used.memory_mib - ours.memory_mib, 0),
            )
            last = self._last.get(report.host, least) if report.host in moving or back else least
            found[report.host] = Held(
                min(max(last.gpus, least.gpus), used.gpus),
                min(max(last.cpus, least.cpus), used.cpus),
                min(max(last.memory_mib, least.memory_mib), used.memory_mib),
            )
        self._last = found
        return found

    def gpus(self, host: str) -> Gpus:
        """As last found."""
        return self._last.get(host, Held()).gpus


def arrived(
    record: Record, app: App | None, service: Service | None, before: Mapping[str, Gpus] | None
) -> Mapping[str, Gpus] | None:
    """By node, the most that came of a gang that forms; None where nobody says where. `app`, `service`: as just read,
    the latter if it was; `before`: what this said last.

    The ResourceManager counts its GPUs in all; its service says where, and is believed as long as it counts the same.
    """
    if shapes.ANYWHERE in dict(record.components):
        return None
    counted = 0 if app is None else app.gpus
    told = Counter(each.node for each in living_instances(service)) if service is not None else Counter[str]()
    by_node = {node: workers * record.each for node, workers in told.items()} or before or {}
    if sum(by_node.values()) == counted:
        return by_node
    return dict.fromkeys(record.claims, counted)


def beside(
    nodes: Sequence[Node], others: Mapping[str, Held], certain: Mapping[str, Held], held: Mapping[str, Held]
) -> tuple[Node, ...]:
    """The nodes without the free GPUs, memory and cores that others have there for certain. `others`: what `nodes` are
    without as it is; what our jobs claim (`held`) is left to them."""
    found = []
    for node in nodes:
        at = others.get(node.name, Held())
        least = certain.get(node.name, Held())
        ours = held.get(node.name, Held())
        left = without(node, max(least.gpus - at.gpus, 0), held)
        for what in (MEMORY, CORES):
            more = max(amount(least, what) - amount(at, what), 0)
            left = at_most(left, what, max(there(left, what) - more, amount(ours, what)))
        found.append(left)
    return tuple(found)


def nodes_of(
    reports: Sequence[NodeReport],
    others: Mapping[str, Held],
    known_gpus: Mapping[str, Gpus],
    options: Options,
) -> tuple[Node, ...]:
    """Nodes with GPUs, by name. What others use of them is foreign (`others`; all that is used, where a node is not in
    it). Cores and memory are what is there for us beside that."""
    found = []
    for report in one_a_host(reports):
        gpus = report.gpus or known_gpus.get(report.host, 0)
        if gpus == 0:
            continue
        health = _HEALTH.get(report.state, Health.DOWN)
        used = others.get(report.host, Held(report.gpus_used, report.cpus_used, report.memory_used_mib))
        foreign = max(0, min(gpus, used.gpus))
        cpus = report.cpus - used.cpus
        memory_mib = report.memory_mib - used.memory_mib
        found.append(
            Node(
                name=report.host,
                gpu_type=_type(report, options),
                gpus=gpus,
                rack=report.rack.lstrip("/") or None,
                health=health,
                foreign=0 if health is Health.DOWN else foreign,
                cpus=None if health is Health.DOWN else float(max(cpus, 0)),
                memory=None if health is Health.DOWN else max(memory_mib, 0) << 20,
            )
        )
    return tuple(sorted(found, key=lambda node: node.name))


def _type(report: NodeReport, options: Options) -> str:
    """By the attribute, else by the name of the resource, else by the label where labels are types."""
    if options.kind_attribute == LABEL:
        return (report.labels[0] if report.labels else report.gpu_type or options.kind).lower()
    return report.attributes.get(options.kind_attribute, report.gpu_type or options.kind).lower()


def one_a_host(reports: Sequence[NodeReport]) -> list[NodeReport]:
    """A NodeManager that came back at another port leaves its former self behind as lost."""
    found: dict[str, NodeReport] = {}
    for report in reports:
        other = found.get(report.host)
        if other is None or (report.state == "RUNNING" and other.state != "RUNNING"):
            found[report.host] = report
    return list(found.values())


def lost_nodes(reports: Sequence[NodeReport], known: Sequence[Node]) -> frozenset[str]:
    """Nodes whose containers are gone, and known ones of which the cluster says nothing any more."""
    told = {report.host: report.state not in _LEFT for report in one_a_host(reports)}
    gone = {host for host, there in told.items() if not there}
    return frozenset(gone | {node.name for node in known if node.name not in told})


def observed(record: Record, spec: JobSpec, nodes: Sequence[Node], page: str = "", trouble: str = "") -> ObservedJob:
    """`page`: the ResourceManager's, of its application; "" while it has none. `trouble`: why its gang cannot write
    checkpoints."""
    idle = record.phase is Phase.IDLE
    state = record.outcome if idle else _STATE[record.phase]
    blocked = record.block if idle else None
    # A grant that came to nothing was no start.
    epoch = record.epoch if idle else max(record.epoch, record.granted)
    native = record.native if idle else f"{record.phase}, {page}" if page else str(record.phase)
    return ObservedJob(
        id=record.job,
        state=state,
        epoch=epoch,
        allocation=_fitting(record, nodes) if state.holds else EMPTY,
        since_s=record.since_s,
        exit_code=record.exit_code if idle else None,
        spec=spec,
        blocked=blocked,
        checkpoint=record.mark,
        submitted_s=record.submitted_s,
        native=f"{CHECKPOINTS_FAIL}{trouble}" if trouble else native,
    )


def _fitting(record: Record, nodes: Sequence[Node]) -> Allocation:
    """The grant, never more than a node has beside what others hold there."""
    room = {node.name: node.gpus - node.foreign for node in nodes}
    found = {name: min(gpus, room.get(name, 0)) for name, gpus in record.placed.items()}
    return {name: gpus for name, gpus in found.items() if gpus > 0}
