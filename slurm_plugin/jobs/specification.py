"""What the user of a job asked for, from its row, the module's tag and the user's `horae:` word. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from horae.spec import ENDS_STAY, OWN_PROFILE, STAYS, JobSpec
from horae.untrusted import printable
from policy.model import EMPTY, GpuRange, Gpus, Shape
from slurm_plugin.comment import Tag, UserWord, parse_tag, parse_word
from slurm_plugin.options import Options
from slurm_plugin.records import JobRow, expand

_MOST_TEXT = 4096  #: of a name, an account, a path


def port_id(row: JobRow) -> str:
    """JobId (or array task) and nonce: Slurm gives JobIds out again after it lost its state."""
    tag = parse_tag(row.admin_comment)
    return f"{row.id}.{tag.nonce}" if tag else row.id


def keeps_shape(row: JobRow) -> bool:
    """Whether its request stands as its user made it: held, ordered and released, and nothing else."""
    tag = parse_tag(row.admin_comment)
    return tag is not None and tag.own_shape


def stays(row: JobRow) -> bool:
    """Whether a start of it is its last: its own end is all that takes it from its nodes. Of one that the module made
    elastic, and so requeueable, an administrator has said so since."""
    tag = parse_tag(row.admin_comment)
    return tag is not None and (tag.own_shape or not row.requeue)


def tag_of(row: JobRow) -> Tag | None:
    """The module's tag. Of a job that keeps its own shape with the numbers that Slurm shows, where it shows others:
    its owner or an administrator has changed them since."""
    tag = parse_tag(row.admin_comment)
    now = row.gpus_total or (row.gpus_per_node or 0) * row.num_nodes
    if tag is None or not tag.own_shape or now == 0:
        return tag
    otherwise = row.gpus_per_node and tag.per_node and row.gpus_per_node != tag.per_node
    if now == tag.gpus and not otherwise:
        return tag
    cpus = tag.node_cpus if tag.nodes == row.num_nodes else None  # of tasks that are spread otherwise now
    return replace(
        tag, gpus=now, nodes=row.num_nodes, per_node=row.gpus_per_node, fixed_nodes=not row.gpus_total, node_cpus=cpus
    )


def said_tasks(row: JobRow) -> int | None:
    """What each update of a job that keeps its shape has to say of its tasks, unless it was reshaped since."""
    tag, now = parse_tag(row.admin_comment), tag_of(row)
    if tag is None or now is None or now.gpus != tag.gpus:
        return None
    return tag.tasks


def requested(row: JobRow, tag: Tag | None) -> Gpus | None:
    """GPUs that it asked for in all; None for a job without GPUs."""
    if tag and tag.gpus:
        return tag.gpus
    if row.gpus_total:
        return row.gpus_total
    return row.gpus_per_node * max(row.num_nodes, 1) if row.gpus_per_node else None


def cpus_per_gpu(row: JobRow, tag: Tag | None, defaults: Mapping[str, int]) -> float | None:
    """CPUs that go with each GPU of a job that changes its shape: what its user asked for, else what its partition
    gives, else one; None for one whose shape is its own."""
    if tag is None or not tag.gpus or tag.own_shape:
        return None
    if tag.cpus:
        return tag.cpus / tag.gpus
    return float(defaults.get(row.partition, defaults.get("", 1)))


def specification(
    row: JobRow,
    tag: Tag | None,
    gpus: Gpus,
    options: Options,
    defaults: Mapping[str, int] = EMPTY,
) -> JobSpec:
    """What the user asked for. Raises BadInput for a `horae:` word that cannot be read."""
    word = parse_word(row.comment, f"job {row.id}, --comment") if not (tag and tag.own_shape) else None
    return _specification(row, tag, gpus, options, word, cpus_per_gpu(row, tag, defaults))


def rigid(
    row: JobRow,
    tag: Tag | None,
    gpus: Gpus,
    options: Options,
    defaults: Mapping[str, int] = EMPTY,
) -> JobSpec:
    """The same job without its `horae:` word."""
    return _specification(row, tag, gpus, options, None, cpus_per_gpu(row, tag, defaults))


def shown(text: str) -> str:
    """What a user wrote, without what a screen would follow."""
    return printable(text, _MOST_TEXT)


def own_shape(tag: Tag | None) -> Shape | None:
    """What a job that keeps its own shape asks of its nodes, as far as it says; None for any other."""
    if tag is None or not tag.own_shape:
        return None
    return Shape(
        nodes=tag.nodes if tag.fixed_nodes else None,
        gpus_per_node=tag.per_node,
        cpus_per_node=tag.node_cpus,
        memory_per_node=tag.memory,
        features=tuple(word for word in tag.features if not _is_part(word, tag)),
        exclusive=tag.alone,
    )


def _is_part(word: str, tag: Tag) -> bool:
    """Whether the nodes that it names are not all that it is to have: then any others may be beside them."""
    return word.startswith("on ") and (tag.nodes or 1) > len(expand(word.removeprefix("on ")))


def _specification(
    row: JobRow, tag: Tag | None, gpus: Gpus, options: Options, user: UserWord | None, per_gpu: float | None
) -> JobSpec:
    tenant = shown({"account": row.account, "qos": row.qos}.get(options.tenants) or row.user)
    asked, word, shape = tag or Tag(""), user or UserWord(), own_shape(tag)
    memory = asked.memory * max(asked.nodes or 1, 1) // gpus if asked.memory else None
    if tag is None:
        per_gpu = row.num_cpus / gpus
    once = _once(row) if user is not None and stays(row) else {}
    return JobSpec(
        name=shown(row.name),
        command=(shown(row.command),) if row.command else (),
        gpus=word.range(gpus) if user else GpuRange(gpus, gpus, gpus),
        owner=row.user,
        tenant=tenant,
        app=word.app or f"{row.user}/{row.id.split('_')[0]}",
        cwd=shown(row.cwd),
        elastic=user is not None and not once,
        checkpoint=(word.checkpoint or shown(row.cwd)) if user else None,
        gpu_types=word.types or asked.types,
        prefer_types=word.prefer,
        forbid_types=word.forbid,
        cpus_per_gpu=per_gpu,
        memory_per_gpu=memory if shape is None else None,
        model=word.key,
        iterations=word.iterations,
        grace_s=word.grace_s or 60.0,
        shape=shape,
        extra={"slurm_job": row.id, "partition": row.partition, OWN_PROFILE: row.id, **once},
    )


def _once(row: JobRow) -> dict[str, str]:
    """Of an elastic one that Slurm may not start again, for people."""
    return {
        STAYS: "by Requeue=0, set since its submission, Slurm would not start it again",
        ENDS_STAY: f"`scontrol update jobid={row.id} requeue=1`",
    }
