"""GPU types: as the name of the resource, as a node's attribute, as its label."""

from __future__ import annotations

from typing import Any

import pytest

from horae.port import FixConfiguration
from horae.spec import JobSpec
from policy.model import GpuRange
from yarn_bridge.clients.records import app, node_report
from yarn_bridge.jobs.reading import nodes_of
from yarn_bridge.jobs.record import Record
from yarn_bridge.jobs.shapes import service_spec
from yarn_bridge.options import Options, parse_options

URLS = {"resource_manager": ["http://rm:8088"], "webhdfs": ["http://nn:9870"]}
SPEC = JobSpec("j", ("train",), GpuRange(4, 1, 4))


def amounts(found: dict[str, int]) -> dict[str, Any]:
    return {"resourceInformations": {"resourceInformation": [{"name": n, "value": v} for n, v in found.items()]}}


def report(host: str, total: dict[str, int], labels: tuple[str, ...] = (), **attributes: str) -> Any:
    used = dict.fromkeys(total, 1)
    listed = [{"prefix": "nm.yarn.io", "name": name, "value": value} for name, value in attributes.items()]
    return node_report({
        "id": f"{host}:1", "nodeHostName": host, "state": "RUNNING", "nodeLabels": list(labels),
        "totalResource": amounts(total), "usedResource": amounts(used), "availableResource": amounts({}),
        "nodeAttributesInfo": {"nodeAttributeInfo": listed},
    })  # fmt: skip


def options(**more: Any) -> Options:
    return parse_options({**URLS, **more})


def kinds(found: list[Any], given: Options) -> dict[str, tuple[str, int, int]]:
    return {node.name: (node.gpu_type, node.gpus, node.foreign) for node in nodes_of(found, {}, {}, given)}


def test_a_resources_name_says_the_type() -> None:
    found = [
        report("n1", {"yarn.io/gpu-a100": 8}),
        report("n2", {"yarn.io/gpu": 4}),
        report("n3", {"nvidia.com/gpu-H100-80": 2}),
        report("n4", {"memory-mb": 5, "vcores": 2, "yarn.io/fpga": 3}),
    ]
    assert kinds(found, options()) == {"n1": ("a100", 8, 1), "n2": ("gpu", 4, 1), "n3": ("h100-80", 2, 1)}
    assert found[2].gpu_name == "nvidia.com/gpu-H100-80"


def test_an_attribute_says_it_better_and_yarns_own_count_counts() -> None:
    both = report("n1", {"yarn.io/gpu-x": 8, "yarn.io/gpu": 8}, gpukind="A100")
    assert kinds([both], options()) == {"n1": ("a100", 8, 1)}
    assert (both.gpu_name, both.gpu_others) == ("yarn.io/gpu", ())


def test_a_label_is_the_type_where_the_site_says_so() -> None:
    found = [report("n1", {"yarn.io/gpu": 4}, ("V100",)), report("n2", {"yarn.io/gpu-t4": 4})]
    assert kinds(found, options(kind_attribute="label")) == {"n1": ("v100", 4, 1), "n2": ("t4", 4, 1)}


def test_of_two_types_of_one_node_the_more_are_offered() -> None:
    mixed = report("n1", {"yarn.io/gpu-t4": 2, "yarn.io/gpu-a100": 4})
    assert kinds([mixed], options()) == {"n1": ("a100", 4, 1)}
    assert mixed.gpu_others == ("yarn.io/gpu-t4",)


def test_what_an_application_holds_is_counted_under_all_names() -> None:
    used = amounts({"yarn.io/gpu-a100": 3, "yarn.io/gpu": 2, "memory-mb": 900})
    usage = {"resourceUsagesByPartition": [{"used": used}]}
    assert app({"id": "a", "state": "RUNNING", "resourceInfo": usage}).gpus == 5


def record(*components: tuple[str, str]) -> Record:
    return Record("j", "ann", "h-j", 0.0, allocation=(("n1", 1), ("n2", 1)), components=components)


def test_each_node_is_asked_for_its_gpus_by_their_name() -> None:
    names = {"n1": "yarn.io/gpu-a100", "n2": "yarn.io/gpu"}
    made = service_spec(record(("n1", "w0"), ("n2", "w1")), SPEC, options(), "/f", "/s", names=names)
    asked = {each["name"]: each["resource"]["additional"] for each in made["components"]}
    assert asked == {
        "w0": {"yarn.io/gpu-a100": {"value": 1, "unit": ""}},
        "w1": {"yarn.io/gpu": {"value": 1, "unit": ""}},
    }
    with pytest.raises(FixConfiguration, match="several names"):
        service_spec(record(("*", "worker")), SPEC, options(), "/f", "/s", names=names)
    (one,) = service_spec(record(("*", "worker")), SPEC, options(), "/f", "/s", names={"n1": "yarn.io/gpu-a100"})[
        "components"
    ]
    assert list(one["resource"]["additional"]) == ["yarn.io/gpu-a100"]
