"""Specifications on disk: what is read is what was written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae import spec_json
from horae.spec import JobSpec
from policy.model import GpuRange

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
numbers = st.floats(0.001, 1e6)
specs = st.builds(
    JobSpec,
    name=names,
    command=st.lists(names, max_size=3).map(tuple),
    gpus=st.builds(
        GpuRange,
        requested=st.integers(1, 8),
        min=st.integers(1, 8),
        max=st.none() | st.integers(8, 16),
        allowed=st.none() | st.lists(st.integers(1, 8), max_size=3).map(tuple),
    ),
    env=st.dictionaries(names, names, max_size=2),
    elastic=st.booleans(),
    checkpoint=st.none() | names,
    gpu_types=st.lists(names, max_size=2).map(tuple),
    cpus_per_gpu=st.none() | numbers,
    throughput=st.dictionaries(names, st.dictionaries(st.integers(1, 8), numbers, max_size=2), max_size=2),
    time_limit_s=st.none() | numbers,
    retries=st.integers(0, 9),
    extra=st.dictionaries(names, names, max_size=2),
)


@given(spec=specs)
def test_round_trip(spec: JobSpec) -> None:
    data = spec_json.encode(spec)
    assert spec_json.decode(data) == spec
    assert spec_json.encode(spec_json.decode(data)) == data


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"name": "x"}', b"\xff", b'{"gpus": 3, "name": "x"}'])
def test_rubbish_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        spec_json.decode(data)


def test_unknown_fields_are_refused() -> None:
    data = spec_json.encode(JobSpec("x", ("true",), GpuRange(1, 1, 1))).replace(b'"name"', b'"nome"')
    with pytest.raises(ValueError, match="nome"):
        spec_json.decode(data)
