"""A job's specification as JSON: what `spec.json` holds."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any

from pydantic import TypeAdapter, ValidationError

from horae.spec import JobSpec
from policy.text.plain import plain as plain_value


def encode(spec: JobSpec) -> bytes:
    """The same bytes for equal specifications."""
    return json.dumps(plain(spec), sort_keys=True, indent=1).encode() + b"\n"


def plain(spec: JobSpec) -> dict[str, Any]:
    """What JSON can hold."""
    value = {each.name: getattr(spec, each.name) for each in fields(spec)}
    value["gpus"] = asdict(spec.gpus)
    if spec.shape is not None:
        value["shape"] = {each.name: getattr(spec.shape, each.name) for each in fields(spec.shape)}
    return {name: plain_value(each) for name, each in value.items()}


def decode(data: bytes) -> JobSpec:
    """Raises ValueError for anything that `encode` did not write."""
    try:
        return made(json.loads(data))
    except RecursionError:
        raise ValueError("not a job specification: it is nested too deeply") from None


_SPEC = TypeAdapter(JobSpec)


def made(value: Any) -> JobSpec:
    """Raises ValueError for anything that `plain` did not make."""
    try:
        value = dict(value)
        known = {each.name for each in fields(JobSpec)}
        if unknown := set(value) - known:
            raise ValueError(f"unknown fields {sorted(unknown)}")
        return _SPEC.validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"not a job specification: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"not a job specification: {error!r}") from None
