"""The instance file: one decision, fully specified; the textual form of a `Snapshot`.

`parse` reads YAML or JSON and refuses what contradicts itself; `to_text` prints. `parse(to_text(s)) == s` for every
snapshot, and printing again gives the same bytes: a saved snapshot is replayed, not approximated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from policy.model import (
    SCHEMA,
    App,
    Away,
    BadInput,
    Beyond,
    Cluster,
    GpuRange,
    GpuType,
    Health,
    Job,
    Limits,
    LossForecast,
    Node,
    Phase,
    Pinning,
    PolicyChoice,
    Provenance,
    Quota,
    Seconds,
    Shape,
    Slowdown,
    Snapshot,
    Tenant,
    TypeChoice,
    Work,
)
from policy.parts import carrying, forecast
from policy.text.forms import (
    MOST_ROWS,
    AwayForm,
    CarriedForm,
    ClusterForm,
    GpusForm,
    InstanceForm,
    JobForm,
    TypesForm,
)
from policy.text.instance_text import to_plain, to_text
from policy.text.plain import not_plain
from policy.text.textform import Document, Place, fit, load, load_file, one_of

__all__ = ["Tables", "from_document", "parse", "read", "schema", "to_plain", "to_text"]

#: table name -> model key -> GPU type -> GPU count -> iterations/s. Raises KeyError for a table it does not have.
Tables = Callable[[str], Mapping[str, Mapping[str, Mapping[int, float]]]]


def read(path: str, tables: Tables | None = None) -> Snapshot:
    """The snapshot in the file at `path` (`-`: standard input). Raises BadInput."""
    return from_document(load_file(path), tables)


def parse(text: str | bytes, where: str = "<text>", tables: Tables | None = None) -> Snapshot:
    """The snapshot that `text` says; `where` names it in errors. Raises BadInput."""
    return from_document(load(text, where), tables)


def from_document(document: Document, tables: Tables | None = None) -> Snapshot:
    """The snapshot of a text already read. Raises BadInput, with the line of what is wrong."""
    form = fit(InstanceForm, document)
    if form.schema_ != SCHEMA:
        raise document.bad(("schema",), f"version {form.schema_} is not known", remedy=f"this is version {SCHEMA}")
    cluster = _cluster(form.cluster, document)
    nodes = {n.name: n for n in cluster.nodes}
    jobs: list[Job] = []
    shared: dict[str, Mapping[str, Mapping[int, float]]] = {}
    for i, job in enumerate(form.jobs):
        jobs.append(_job(job, ("jobs", i), nodes, document, tables, shared))
    _once((j.name for j in jobs), "jobs", document)
    _not_above(cluster, form.jobs, document)
    tenants = _tenants(form, document)
    _once((a.name for a in form.apps), "apps", document)
    _all_plain(form.state, ("state",), document)
    _carried(form.state, document)
    _all_plain(form.policy.options if form.policy else {}, ("policy", "options"), document)
    return Snapshot(
        cluster=cluster,
        jobs=tuple(jobs),
        tenants=tenants,
        now_s=form.now,
        apps=tuple(
            App(a.name, a.scheduler, a.budget, a.demand_max, tuple(Phase(p.jobs, p.iterations) for p in a.phases))
            for a in form.apps
        ),
        active_apps=_active_apps(form, document),
        state=form.state,
        policy=None if form.policy is None else PolicyChoice(form.policy.name, form.policy.options),
        quotas=_quotas(form, jobs, document),
    )


def schema() -> dict[str, Any]:
    """JSON Schema of the instance file."""
    out = InstanceForm.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **out, "title": "Horae instance"}


# --- text -> values ----------------------------------------------------------------------------------------


def _active_apps(form: InstanceForm, document: Document) -> tuple[tuple[Seconds, int], ...]:
    place = ("history", "active_apps")
    told = enumerate(form.history.active_apps)
    active = tuple((at, _whole(apps, (*place, i, 1), document)) for i, (at, apps) in told)
    for i, ((before, _), (at, _)) in enumerate(pairwise(active), start=1):
        if at < before:
            raise document.bad((*place, i), "its time is before the one above", remedy="sort by time")
    return active


def _all_plain(value: object, inside: Place, document: Document) -> None:
    for place, why in not_plain(value):
        raise document.bad((*inside, *place), why, remedy="use text, numbers, booleans, lists and mappings")


def _carried(state: Mapping[str, Any], document: Document) -> None:
    """Of a state only this is not the policy's own."""
    place, pending = ("state", carrying.KEY), state.get(carrying.KEY, {})
    if not isinstance(pending, dict):
        raise document.bad(
            place, "must be a mapping of jobs", value=pending, remedy="as an answer returned it, or none"
        )
    for job in pending:
        fit(CarriedForm, document, (*place, job))


def _away(form: AwayForm, place: tuple[str | int, ...], document: Document) -> Away:
    leave_s = form.from_ if form.leave is None else form.leave
    if not leave_s <= form.from_ < form.to:
        raise document.bad(place, "ends before it begins", remedy="leave, from and to in this order")
    return Away(form.name, form.from_, form.to, leave_s, form.reason)


def _cluster(form: ClusterForm, document: Document) -> Cluster:
    if len(form.nodes) + sum(g.count for g in form.groups) > MOST_ROWS:
        raise document.bad(("cluster",), "has too many nodes", remedy=f"at most {MOST_ROWS} in nodes and groups")
    named = [*_nodes(form, document), *_grouped(form)]
    seen: set[str] = set()
    for node, place in named:
        if node.name in seen:
            raise document.bad(place, f"a second node {node.name!r}", value=node.name, remedy="names are unique")
        seen.add(node.name)
    nodes = tuple(node for node, _ in named)
    limits = Limits(form.limits.equal_gpus_per_node, form.limits.one_type_per_job, Pinning(form.limits.pinning))
    return Cluster(nodes, limits, _gpu_types(form, nodes, document))


def _nodes(form: ClusterForm, document: Document) -> Iterator[tuple[Node, Place]]:
    """Those that are listed one by one, each with its place in the text."""
    for i, n in enumerate(form.nodes):
        place = ("cluster", "nodes", i)
        if n.foreign > n.gpus:
            raise document.bad(
                (*place, "foreign"),
                f"{n.foreign} foreign GPUs on a node of {n.gpus}",
                value=n.foreign,
                remedy=f"at most {n.gpus}",
            )
        node = Node(
            n.name, n.gpu_type, n.gpus, n.rack, Health(n.health), n.foreign, n.cpus, n.memory, tuple(n.features),
            n.wake_s, tuple(_away(a, (*place, "away", k), document) for k, a in enumerate(n.away)),
        )  # fmt: skip
        yield node, (*place, "name")


def _grouped(form: ClusterForm) -> Iterator[tuple[Node, Place]]:
    """Those of groups, numbered from 1 under the group's name."""
    numbers: Counter[str] = Counter()
    for i, g in enumerate(form.groups):
        stem = g.name or f"{g.gpu_type}-"
        for k in range(g.count):
            numbers[stem] += 1
            rack = None
            if g.racks is not None:
                number = 1 + k * g.racks // g.count
                rack = f"{stem.rstrip('-')}-rack{number}"
            node = Node(f"{stem}{numbers[stem]}", g.gpu_type, g.gpus, rack, cpus=g.cpus, memory=g.memory)
            yield node, ("cluster", "groups", i)


def _gpu_types(form: ClusterForm, nodes: Sequence[Node], document: Document) -> tuple[GpuType, ...]:
    """Slowest first, where the text says an order; else as they come."""
    present = tuple(dict.fromkeys(n.gpu_type for n in nodes))
    types = present if form.gpu_types is None else tuple(form.gpu_types)
    for i, t in enumerate(types):
        if t in types[:i]:
            raise document.bad(("cluster", "gpu_types", i), f"a second {t!r}", value=t, remedy="names are unique")
    missing = [t for t in present if t not in types]
    if missing:
        raise document.bad(
            ("cluster", "gpu_types"),
            f"lacks {missing[0]!r}, which a node has",
            remedy="list every type, slowest first",
        )
    return types


def _tenants(form: InstanceForm, document: Document) -> tuple[Tenant, ...]:
    named = [j.tenant or j.name for j in form.jobs]
    if form.tenants is None:
        return tuple(Tenant(t) for t in dict.fromkeys(named))
    _once((t.name for t in form.tenants), "tenants", document)
    known = {t.name for t in form.tenants}
    for i, name in enumerate(named):
        if name not in known:
            raise document.bad(
                ("jobs", i, "tenant"),
                f"no tenant {name!r} in tenants",
                value=name,
                remedy=f"add it to tenants, leave tenants out, or use one of {one_of(known)}",
            )
    return tuple(Tenant(t.name, t.weight, t.cap, t.beyond and Beyond(t.beyond)) for t in form.tenants)


def _quotas(form: InstanceForm, jobs: Sequence[Job], document: Document) -> tuple[Quota, ...]:
    _once((q.name for q in form.quotas), "quotas", document)
    known = {j.name for j in jobs}
    found = []
    for i, quota in enumerate(form.quotas):
        match = quota.match
        for k, name in enumerate(match.jobs):
            if name not in known:
                place = ("quotas", i, "match", "jobs", k)
                raise document.bad(place, f"no job {name!r}", value=name, remedy="name jobs of this file")
        named = set(match.jobs)
        whom = [j.name for j in jobs if j.name in named or match.tenant == j.tenant or match.app == j.app]
        of_each = quota.nodes, quota.gpus_per_node, quota.least
        found.append(Quota(quota.name, tuple(whom), quota.gpus, quota.jobs, *of_each))
    return tuple(found)


def _once(names: Iterable[str], section: str, document: Document) -> None:
    seen: set[str] = set()
    for i, name in enumerate(names):
        if name in seen:
            raise document.bad(
                (section, i, "name"), f"a second {name!r} in {section}", value=name, remedy="names are unique"
            )
        seen.add(name)


def _not_above(cluster: Cluster, jobs: list[JobForm], document: Document) -> None:
    """No node may hold more GPUs than it has beside foreign ones."""
    room = {n.name: n.gpus - n.foreign for n in cluster.nodes}
    size = {n.name: n.gpus for n in cluster.nodes}
    for i, job in enumerate(jobs):
        for node, gpus in job.allocation.items():
            room[node] -= gpus
            if room[node] < 0:
                raise document.bad(
                    ("jobs", i, "allocation", node),
                    f"node {node!r} has {size[node]} GPUs; the jobs up to {job.name!r} and foreign ones hold "
                    f"{size[node] - room[node]}",
                    value=gpus,
                    remedy="lower the allocations or the foreign GPUs there",
                )


def _gpu_range(form: GpusForm) -> GpuRange:
    if form.allowed is not None:
        allowed = tuple(sorted(set(form.allowed)))
        return GpuRange(form.requested or allowed[-1], allowed[0], allowed[-1], allowed)
    low = 1 if form.min is None else form.min
    return GpuRange(form.requested or form.max or low, low, form.max)


def _job(
    form: JobForm,
    place: tuple[str | int, ...],
    nodes: Mapping[str, Node],
    document: Document,
    tables: Tables | None,
    shared: dict[str, Mapping[str, Mapping[int, float]]],
) -> Job:
    for node in form.allocation:
        if node not in nodes:
            raise document.bad(
                (*place, "allocation", node),
                f"no node {node!r} in the cluster",
                value=node,
                remedy="name a node of it",
            )
    return Job(
        name=form.name,
        tenant=form.tenant or form.name,
        app=form.app or form.name,
        gpus=_gpu_range(form.gpus),
        submitted_s=form.submitted,
        work=Work(form.work.total, form.work.done),
        throughput=_throughput(form, place, document, tables, shared),
        provenance={t: Provenance(p) for t, p in form.provenance.items()},
        model=form.model,
        slowdown=Slowdown(form.slowdown.node, form.slowdown.rack, form.slowdown.cluster),
        attained=form.attained,
        allocation=form.allocation,
        lease_until=_leases(form, place, document),
        cpus_per_gpu=None if form.cpus is None else form.cpus.per_gpu,
        memory_per_gpu=None if form.memory is None else form.memory.per_gpu,
        known=form.known,
        loss=tuple((p[0], p[1]) for p in form.loss),
        loss_forecast=_forecast(form, place, document),
        restart_cost_s=form.restart_cost,
        shape=_shape(form, place, document),
        gpu_types=_type_choice(form.gpu_types),
        stays=form.stays,
        time_left_s=form.time_left,
        priority=form.priority,
        precedence=form.precedence,
    )


def _throughput(
    form: JobForm,
    place: Place,
    document: Document,
    tables: Tables | None,
    shared: dict[str, Mapping[str, Mapping[int, float]]],
) -> Mapping[str, Mapping[int, float]]:
    """Jobs of one model share one table: whatever is worked out from it is worked out once."""
    if form.throughput:
        return shared.setdefault(repr(form.throughput), form.throughput)
    if not form.model or "@" not in form.model:
        return form.throughput
    if form.model not in shared:
        shared[form.model] = _from_table(form.model, (*place, "model"), document, tables)
    return shared[form.model]


def _forecast(job: JobForm, place: Place, document: Document) -> LossForecast | None:
    form = job.loss_forecast
    if form is None:
        return None
    interval = None if form.interval is None else (form.interval[0], form.interval[1])
    found = LossForecast(form.law, form.parameters, interval)
    try:
        forecast.check(found)
    except BadInput as wrong:
        inside = (*place, *wrong.field.split("."))
        raise document.bad(inside, wrong.message, value=wrong.value, remedy=wrong.remedy) from wrong
    return found


def _type_choice(form: TypesForm | None) -> TypeChoice | None:
    if form is None:
        return None
    return TypeChoice(tuple(form.require), tuple(form.prefer), tuple(form.forbid))


def _shape(form: JobForm, place: tuple[str | int, ...], document: Document) -> Shape | None:
    shape = form.shape
    if shape is None:
        return None
    gpus = _gpu_range(form.gpus)
    if shape.nodes and shape.gpus_per_node and not gpus.feasible(shape.nodes * shape.gpus_per_node):
        raise document.bad(
            (*place, "shape"),
            f"{shape.nodes} nodes of {shape.gpus_per_node} GPUs are no size of its gang",
            remedy="gpus is nodes times gpus_per_node",
        )
    return Shape(
        shape.nodes,
        shape.gpus_per_node,
        shape.cpus_per_node,
        shape.memory_per_node,
        tuple(shape.features),
        shape.exclusive,
        shape.licences,
    )


def _leases(form: JobForm, place: tuple[str | int, ...], document: Document) -> Mapping[str, tuple[float, ...]]:
    if form.lease_until is None:
        return {}
    at = (*place, "lease_until")
    if list(form.lease_until) == [""]:
        if not form.allocation:
            raise document.bad(at, "a lease without an allocation", remedy="say what it holds in allocation")
        return {node: tuple(form.lease_until[""]) * gpus for node, gpus in form.allocation.items()}
    for node, times in form.lease_until.items():
        held = form.allocation.get(node, 0)
        if not held:
            raise document.bad((*at, node), f"a lease on {node!r}, where it holds nothing", remedy="see allocation")
        if len(times) != held:
            raise document.bad(
                (*at, node),
                f"{len(times)} times for {held} GPUs held there",
                value=times,
                remedy="one expiry time a GPU",
            )
    return {node: tuple(sorted(times)) for node, times in form.lease_until.items()}


def _from_table(
    model: str, place: tuple[str | int, ...], document: Document, tables: Tables | None
) -> Mapping[str, Mapping[int, float]]:
    key, _, name = model.rpartition("@")
    if tables is None:
        raise document.bad(place, "no throughput tables are at hand here", value=model, remedy="write throughput")
    try:
        table = tables(name)
    except KeyError as error:
        raise document.bad(place, f"no throughput table {name!r}", value=model, remedy=f"{error.args[0]}") from error
    if key not in table:
        raise document.bad(
            place, f"no model {key!r} in the table {name!r}", value=model, remedy=f"one of {one_of(table)}"
        )
    return {t: dict(sorted(curve.items())) for t, curve in table[key].items()}


def _pair(values: list[float] | None) -> tuple[float, float] | None:
    return None if values is None else (values[0], values[1])


def _whole(value: float, place: tuple[str | int, ...], document: Document) -> int:
    if value < 0 or value != int(value):
        raise document.bad(place, "must be a whole number, 0 or more", value=value, remedy="a count of apps")
    return int(value)
