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


class _Pickler(pickle.Pickler):
    dispatch_table = copyreg.dispatch_table.copy()


def _proxy(value: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    # A function of ours: pickle cannot name the type itself, which builtins does not export.
    return MappingProxyType(value)


def _read_only(value: MappingProxyType[Any, Any]) -> tuple[Any, ...]:
    return _proxy, (dict(value),)


_Pickler.dispatch_table[MappingProxyType] = _read_only
