"""Pickles between the arbiter and its own policy process: nothing else is written or read in this form."""

from __future__ import annotations

import copyreg
import io
import pickle
from types import MappingProxyType
from typing import Any


def dumps(value: object) -> bytes:
    out = io.BytesIO()
    _Pickler(out, pickle.HIGHEST_PROTOCOL).dump(value)
    return out.getvalue()


def read_only(values: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(values)


class _Pickler(pickle.Pickler):
    """Knows the model's read-only mappings, which have no pickle of their own."""

    dispatch_table = copyreg.dispatch_table.copy()


def _reduce(value: MappingProxyType[Any, Any]) -> tuple[Any, ...]:
    return read_only, (dict(value),)


_Pickler.dispatch_table[MappingProxyType] = _reduce
