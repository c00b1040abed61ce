"""Pickles of questions, from the arbiter to its own policy process: nothing else is read in this form, and no answer.

A question is mostly jobs: they travel as columns, one list a field, and are made again by one call each. What many
jobs share (a table, a range, an empty mapping) is one object on the other side too, so that it is worked out once.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from itertools import repeat
from operator import attrgetter, is_
from types import MappingProxyType
from typing import Any

from horae.journal.quiet import quiet
from policy.model import (
    Cluster,
    GpuRange,
    Job,
    Limits,
    LossForecast,
    Node,
    PolicyChoice,
    Shape,
    Slowdown,
    Snapshot,
    Tenant,
    TypeChoice,
    Work,
)

#: Sent as the values of their fields, in order.
_BY_POSITION = (
    GpuRange, Limits, LossForecast, PolicyChoice, Shape, Slowdown, Tenant, TypeChoice, Work,
)  # fmt: skip


def dumps(value: object) -> bytes:
    out = io.BytesIO()
    with quiet():
        _Pickler(out, pickle.HIGHEST_PROTOCOL).dump(value)
    return out.getvalue()


def loads(data: bytes) -> Any:
    with quiet():
        return pickle.loads(data)


def read_only(values: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(values)


def _names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


_JOB, _NODE, _SNAPSHOT = _names(Job), _names(Node), _names(Snapshot)
_WORK_AT, _JOBS_AT = _JOB.index("work"), _SNAPSHOT.index("jobs")
_OF_SNAPSHOT = attrgetter(*_SNAPSHOT)


#: Of one field, a value for each; or the value that all have, and how many they are.
Column = list[Any] | tuple[Any, int]


def columns(values: Sequence[Any], names: Sequence[str]) -> list[Column]:
    return [_column(list(map(attrgetter(name), values))) for name in names]


def _column(values: list[Any]) -> Column:
    if values and all(map(is_, values, repeat(values[0]))):
        return values[0], len(values)
    return values


def _each(column: Column) -> Iterable[Any]:
    return column if isinstance(column, list) else repeat(*column)


def cluster(nodes: list[Column], limits: Limits, gpu_types: tuple[str, ...]) -> Cluster:
    return Cluster(tuple(map(Node, *map(_each, nodes))), limits, gpu_types)


def snapshot(jobs: list[Column], total: Column, done: Column, *others: Any) -> Snapshot:
    """`jobs`: columns of a job's fields in order, without its work. `others`: a snapshot's, without its jobs."""
    work = list(map(Work, _each(total), _each(done)))
    fields_ = list(map(_each, jobs))
    made = tuple(map(Job, *fields_[:_WORK_AT], work, *fields_[_WORK_AT:]))
    values: list[Any] = [*others[:_JOBS_AT], made, *others[_JOBS_AT:]]
    return Snapshot(*values)


class _Pickler(pickle.Pickler):
    """Knows the model's read-only mappings, which have no pickle of their own, and its records."""

    dispatch_table = copyreg.dispatch_table.copy()


def _of_mapping(value: MappingProxyType[Any, Any]) -> tuple[Any, ...]:
    return read_only, (dict(value),)


def _of_cluster(value: Cluster) -> tuple[Any, ...]:
    return cluster, (columns(value.nodes, _NODE), value.limits, value.gpu_types)


def _of_snapshot(value: Snapshot) -> tuple[Any, ...]:
    work = [job.work for job in value.jobs]
    of_work = columns(work, ("total", "done"))
    of_jobs = columns(value.jobs, [name for name in _JOB if name != "work"])
    others = list(_OF_SNAPSHOT(value))
    del others[_JOBS_AT]
    return snapshot, (of_jobs, *of_work, *others)


def _of_record(kind: type[Any]) -> Callable[[Any], tuple[Any, ...]]:
    values = attrgetter(*_names(kind))
    return lambda value: (kind, values(value))


_Pickler.dispatch_table[MappingProxyType] = _of_mapping
_Pickler.dispatch_table[Cluster] = _of_cluster
_Pickler.dispatch_table[Snapshot] = _of_snapshot
for _kind in _BY_POSITION:
    _Pickler.dispatch_table[_kind] = _of_record(_kind)
