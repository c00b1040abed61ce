"""Configuration errors name the field, the value and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from policy.model import BadInput
from yarn_bridge import connect
from yarn_bridge.options import parse_options

GOOD = {"resource_manager": ["http://rm1:8088", "http://rm2:8088"], "webhdfs": "http://nn1:9870"}


def test_defaults_are_those_of_a_plain_site() -> None:
    found = parse_options(GOOD)
    assert found.webhdfs == ("http://nn1:9870",)
    assert (found.queue, found.user, found.root) == ("default", "horae", "/user/horae/horae")
    assert found.access(found.resource_manager).urls == ("http://rm1:8088", "http://rm2:8088")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("resource_manager", []),
        ("resource_manager", "rm1:8088"),
        ("webhdfs", "http://nn1:9870/webhdfs/v1"),
        ("webhdfs", 9870),
        ("user", "Alice Liddell"),
        ("folder", "relative/path"),
        ("auth", "token"),
        ("memory_mib", 0),
        ("memory_mib", True),
        ("gang_s", -1),
        ("doas", "yes"),
        ("env", ["A=1"]),
        ("runtime", "docker"),
        ("framework", "hdfs://nn/fw.tar.gz"),
        ("slice_memory_mib", 0),
        ("colour", "red"),
    ],
)
def test_what_is_wrong_is_named(field: str, value: Any) -> None:
    with pytest.raises(BadInput) as raised:
        connect({**GOOD, field: value})
    assert raised.value.field == field
    assert raised.value.where == "cluster.yarn"


@pytest.mark.parametrize("auth", ["simple", "kerberos"])
def test_slices_are_to_be_had_with_and_without_kerberos(auth: str) -> None:
    assert parse_options({**GOOD, "runtime": "slices", "auth": auth}).runtime == "slices"


def test_what_is_missing_is_named_with_an_example() -> None:
    with pytest.raises(BadInput) as raised:
        connect({"webhdfs": ["http://nn1:9870"]})
    assert raised.value.field == "resource_manager"
    assert "http://rm1:8088" in raised.value.remedy
