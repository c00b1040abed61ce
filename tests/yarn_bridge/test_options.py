"""Configuration errors name the field, the value and what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from horae.config import load
from policy.model import BadInput
from yarn_bridge import connect
from yarn_bridge.options import parse_options

GOOD = {"resource_manager": ["http://rm1:8088", "http://rm2:8088"], "webhdfs": "http://nn1:9870"}


def test_behind_a_gateway_addresses_have_a_path() -> None:
    gateway = "https://knox:8443/gateway/default"
    found = parse_options({"resource_manager": f"{gateway}/resourcemanager", "webhdfs": f"{gateway}/"})
    assert (found.resource_manager, found.webhdfs) == ((f"{gateway}/resourcemanager",), (f"{gateway}/",))


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
        ("webhdfs", "https://knox:8443/gateway/default/webhdfs"),
        ("webhdfs", "https://knox:8443/gateway?x=1"),
        ("resource_manager", "http://rm1:8088/ws/v1/cluster/"),
        ("user", "Alice Liddell"),
        ("folder", "relative/path"),
        ("auth", "token"),
        ("principal", "horae/_HOST@EXAMPLE.ORG"),
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


def test_the_guides_configuration_under_kerberos_is_taken(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs/howto/yarn-site.md").read_text()
    (told,) = re.findall(r"```yaml\n(# /etc/horae/config\.yaml\n.*?auth: kerberos.*?)```", guide, re.DOTALL)
    (tmp_path / "config.yaml").write_text(told)
    config = load(tmp_path / "config.yaml")
    found = parse_options(config.cluster.options)
    assert (found.auth, found.principal) == ("kerberos", "horae@EXAMPLE.ORG")
    assert len(found.resource_manager) == len(found.webhdfs) == 2
