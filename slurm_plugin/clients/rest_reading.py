"""slurmrestd's jobs and nodes -> rows: the same rows that squeue and sinfo give, whatever the version. Pure.

Values are bare until v0.0.39 and `{"set", "infinite", "number"}` after; states are one word or a list of a base
state and flags; an array's pending tasks are one record with their numbers in `array_task_string`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from slurm_plugin.clients.base import CannotSay
from slurm_plugin.records import BadRecord, JobRow, NodeRow, expand, gpu_count, gpus, gpus_in_use, size, tres, word

#: flags that outrank the base state in squeue's word, in its order
_FLAGS = (
    "COMPLETING", "STAGE_OUT", "CONFIGURING", "RESIZING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT",
    "STOPPED", "REVOKED", "RESV_DEL_HOLD", "SIGNALING", "EXPEDITING",
)  # fmt: skip
_ENDED = frozenset(
    """COMPLETED COMPLETING CANCELLED FAILED TIMEOUT NODE_FAIL PREEMPTED BOOT_FAIL DEADLINE OUT_OF_MEMORY""".split()
)
_MOST_TASKS = 4_000_001  #: what MaxArraySize itself may be at most
_LARGEST = 0xFFFFFFFFFFFFFFFF
_NO_VALUE = {0xFFFFFFFE, 0xFFFFFFFF, 0xFFFE, 0xFFFF, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF}


def job_rows(
    jobs: Iterable[Mapping[str, Any]], partitions: Sequence[str], now_s: float, odd: list[str]
) -> list[JobRow]:
    """Rows of the jobs of `partitions` (all, when empty), each pending array task on its own. What cannot be Slurm's
    is set aside with a note in `odd`.

    Raises CannotSay for an array whose list of tasks slurmrestd has cut off.
    """
    wanted = frozenset(partitions)
    rows: list[JobRow] = []
    for job in jobs:
        try:
            if not wanted or wanted & set(str(job.get("partition") or "").split(",")):
                rows += _rows(job, now_s)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            odd.append(f"slurmrestd: a job was set aside: {type(error).__name__}: {str(error)[:80]}")
    return rows


def _rows(job: Mapping[str, Any], now_s: float) -> Iterator[JobRow]:
    number = int(job["job_id"])
    array = value(job.get("array_job_id")) or 0
    task = value(job.get("array_task_id"))
    tasks = job.get("array_task_string") or ""
    if array and tasks:
        for each in task_numbers(tasks):
            yield job_row(job, f"{array}_{each}", number, now_s)
    elif array and task is not None:
        yield job_row(job, f"{array}_{task}", number, now_s)
    else:
        yield job_row(job, str(number), number, now_s)


def job_row(job: Mapping[str, Any], name: str, number: int, now_s: float) -> JobRow:
    state = job_state(job["job_state"])
    alloc = tres(_raw(job, "tres_alloc_str"))
    end_s = _time(job.get("end_time"))
    limit = value(job.get("time_limit"))
    limit_s = None if limit is None else limit * 60.0
    if limit_s is None and state not in _ENDED:
        end_s = None  # a year ahead: slurmctld's stand-in for no limit
    reason = _word(job, "state_description") or _word(job, "state_reason")
    return JobRow(
        id=name,
        slurm_id=number,
        state=state,
        reason=None if reason == "None" else reason,
        restarts=value(job.get("restart_cnt")) or 0,
        priority=value(job.get("priority")) or 0,
        nodes=expand(_word(job, "nodes")),
        gpus_per_node=gpu_count(_raw(job, "tres_per_node")),
        gpus_total=gpu_count(_raw(job, "tres_per_job")),
        num_nodes=value(job.get("node_count")) or 1,
        num_cpus=value(job.get("cpus")) or 1,
        alloc_memory=size(alloc.get("mem", "")),
        comment=_text(job, "comment"),
        admin_comment=_text(job, "admin_comment"),
        user=str(_raw(job, "user_name")),
        uid=known_uid(job.get("user_id")),
        account=_word(job, "account"),
        qos=_word(job, "qos"),
        partition=str(_raw(job, "partition")),
        name=str(_raw(job, "name")),
        cwd=str(_raw(job, "current_working_directory")),
        command=_word(job, "command"),
        stdout=_word(job, "standard_output"),
        dependency=_word(job, "dependency"),
        submit_s=_time(job.get("submit_time")),
        eligible_s=_time(job.get("eligible_time")),
        start_s=_time(job.get("start_time")),
        end_s=end_s,
        preempt_s=_time(job.get("preempt_time")),
        limit_s=limit_s,
        left_s=max(end_s - now_s, 0.0) if state == "RUNNING" and end_s else limit_s,
        exit_status=exit_status(job.get("exit_code")),
        feature=_word(job, "features"),
        requeue=job.get("requeue") is not False,
        split=_split(job, expand(_word(job, "nodes"))),
    )


def _raw(row: Mapping[str, Any], field: str) -> Any:
    """Empty where the row has nothing there."""
    return row.get(field) or ""


def _word(row: Mapping[str, Any], field: str) -> str | None:
    return word(_raw(row, field))


def _text(row: Mapping[str, Any], field: str) -> str:
    return _word(row, field) or ""


def known_uid(raw: Any) -> int:
    """Raises BadRecord: root's uid is not what is taken for an unknown one."""
    found = value(raw)
    if found is None or found < 0:
        raise BadRecord("it does not say whose it is")
    return found


def _split(job: Mapping[str, Any], nodes: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """From `gres_detail`, one text a node in their order, for jobs that asked for a total over several nodes."""
    detail = job.get("gres_detail") or ()
    if len(nodes) < 2 or len(detail) != len(nodes) or not gpu_count(job.get("tres_per_job") or ""):
        return ()
    each = ((node, gpu_count(text) or 0) for node, text in zip(nodes, detail, strict=True))
    return tuple((node, count) for node, count in each if count)


def node_rows(nodes: Iterable[Mapping[str, Any]], partitions: Sequence[str]) -> list[NodeRow]:
    wanted = frozenset(partitions)
    return [node_row(node) for node in nodes if not wanted or wanted & set(node.get("partitions") or ())]


def node_row(node: Mapping[str, Any]) -> NodeRow:
    state = node.get("state")
    flags = [state] if isinstance(state, str) else list(state or ())
    flags += node.get("state_flags") or ()
    words = [str(flag).lower() for flag in flags if flag]
    cpus = value(node.get("cpus")) or 0
    allocated = value(node.get("alloc_cpus")) or 0
    out = any(word_ in {"down", "drain", "fail", "error", "not_responding"} for word_ in words)
    return NodeRow(
        name=str(node["name"]),
        gpu_types=gpus(_text(node, "gres")),
        used=gpus_in_use(_text(node, "gres_used")),
        state="+".join(words),
        cpus_idle=0 if out else cpus - allocated,
        cpus_total=cpus,
        memory=(value(node.get("real_memory")) or 0) << 20,
        memory_used=(value(node.get("alloc_memory")) or 0) << 20,
        features=_features(node.get("active_features", node.get("features"))),
        registered=bool(value(node.get("slurmd_start_time", 1))),
    )


def _features(told: str | Sequence[Any] | None) -> tuple[str, ...]:
    return tuple(told.split(",")) if isinstance(told, str) else tuple(map(str, told or ("",)))


def job_state(state: str | Sequence[str]) -> str:
    """squeue's one word for a base state with flags."""
    if isinstance(state, str):
        return state
    flags = set(state)
    return next((flag for flag in _FLAGS if flag in flags), next(iter(state), "UNKNOWN"))


def value(raw: Any) -> int | None:
    """A number of any version; None for unset and infinite."""
    if isinstance(raw, Mapping):
        return whole(raw.get("number")) if raw.get("set") and not raw.get("infinite") else None
    if raw is None or isinstance(raw, bool | str):
        return None
    found = whole(raw)
    return None if found in _NO_VALUE else found


def whole(raw: Any) -> int:
    """A number of a row; 0 for nothing. Raises BadRecord above what Slurm itself could hold."""
    found = int(raw or 0)
    if abs(found) > _LARGEST:
        raise BadRecord(f"a number of {len(str(found))} digits")
    return found


def _time(raw: Any) -> float | None:
    found = value(raw)
    return float(found) if found else None


def exit_status(raw: Any) -> int | None:
    """The wait status behind an exit code: a number, or status, return code and signal apart."""
    if not isinstance(raw, Mapping):
        return value(raw)
    signal = raw.get("signal") or {}
    number = value(signal.get("id", signal.get("signal_id"))) or 0
    return ((value(raw.get("return_code")) or 0) << 8) | number


def task_numbers(text: str) -> list[int]:
    """`1,3-6%2`, `0-10:5` -> numbers of tasks. Raises CannotSay when the list is cut off (`...`)."""
    numbers: list[int] = []
    for part in text.partition("%")[0].strip("[]").split(","):
        found = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?(?::([0-9]{1,9}))?", part.strip())
        if found is None:
            raise CannotSay(f"slurmrestd cuts off the list of an array's tasks: {text}")
        first, last, step = (int(number) if number else 0 for number in found.groups())
        if max(first, last) > _MOST_TASKS:
            raise BadRecord(f"an array of tasks up to {max(first, last)}")
        numbers += range(first, (last if found[2] else first) + 1, step or 1)
    return numbers
