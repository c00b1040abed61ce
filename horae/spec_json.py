"""A job's specification as JSON: what `spec.json` holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from horae.spec import JobSpec
from policy.model import GpuRange


def encode(spec: JobSpec) -> bytes:
    """The same bytes for equal specifications."""
    return json.dumps(plain(spec), sort_keys=True, indent=1).encode() + b"\n"


def plain(spec: JobSpec) -> dict[str, Any]:
    """What JSON can hold."""
    value = {each.name: getattr(spec, each.name) for each in fields(spec)}
    value["gpus"] = asdict(spec.gpus)
    return {name: _plain(each) for name, each in value.items()}


def decode(data: bytes) -> JobSpec:
    """Raises ValueError for anything that `encode` did not write."""
    return made(json.loads(data))


def made(value: Any) -> JobSpec:
    """Raises ValueError for anything that `plain` did not make."""
    try:
        value = dict(value)
        known = {each.name for each in fields(JobSpec)}
        if unknown := set(value) - known:
            raise ValueError(f"unknown fields {sorted(unknown)}")
        gpus = dict(value.pop("gpus"))
        allowed = gpus.get("allowed")
        gpus["allowed"] = None if allowed is None else tuple(allowed)
        value["throughput"] = {
            gpu_type: {int(count): float(rate) for count, rate in curve.items()}
            for gpu_type, curve in value.get("throughput", {}).items()
        }
        for name in ("command", "gpu_types"):
            value[name] = tuple(value.get(name, ()))
        return JobSpec(gpus=GpuRange(**gpus), **value)
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"not a job specification: {error!r}") from None


def _plain(value: Any) -> Any:
    """Mappings of any kind become plain ones with text keys."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
