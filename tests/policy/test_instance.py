"""The instance file: what it says, what it refuses and where, and that printing loses nothing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.model import BadInput, GpuRange, Health, Pinning, Snapshot, Work
from policy.text import instance
from tests.policy.worlds import snapshots

FULL = """\
schema: 1
now: 3600.0
cluster:
  nodes:
    - {name: a1, gpu_type: v100, gpus: 4, rack: r1}
    - {name: no, gpu_type: k80, gpus: 4, memory: 64G, cpus: 16, health: drain, foreign: 1}
  limits: {pinning: type, equal_gpus_per_node: true}
  gpu_types: [k80, v100]
tenants:
  - {name: alice, weight: 2, cap: 7}
jobs:
  - name: j1
    tenant: alice
    app: sweep-7
    submitted: 10
    gpus: {requested: 4, min: 1, max: 8}
    work: {total: 1e4, done: 2500}
    throughput: {v100: {1: 2.0, 2: 3.8, 4: 7.0}, k80: 1}
    slowdown: {rack: 1.5}
    attained: {v100: 1200}
    allocation: {a1: 2}
    lease_until: 4200.0
    cpus: {per_gpu: 4}
    memory: 3G
    known: false
    loss: [[0, 6.9], [100, 5.1]]
    restart_cost: 35
apps:
  - {name: sweep-7, scheduler: successive-halving, budget: 16, demand_max: 16, phases: [{jobs: 8, iterations: 4}]}
history:
  active_apps: [[0.0, 3], [1200.0, 5]]
state: {passes: {alice: 1.5}}
policy: {name: themis, options: {lease: 600}}
"""


def bad(text: str, where: str = "x.yaml") -> BadInput:
    with pytest.raises(BadInput) as caught:
        instance.parse(text, where)
    return caught.value


def test_every_key_is_read() -> None:
    s = instance.parse(FULL)
    job = s.jobs[0]
    assert s.now_s == 3600.0
    assert [n.name for n in s.cluster.nodes] == ["a1", "no"]
    assert (s.cluster.nodes[1].memory, s.cluster.nodes[1].cpus) == (64 * 2**30, 16.0)
    assert (s.cluster.nodes[1].health, s.cluster.nodes[1].foreign) == (Health.DRAIN, 1)
    assert s.cluster.limits.pinning is Pinning.TYPE
    assert s.cluster.limits.equal_gpus_per_node
    assert (s.tenants[0].weight, s.tenants[0].cap) == (2.0, 7)
    assert job.gpus == GpuRange(4, 1, 8)
    assert job.work == Work(10000.0, 2500.0)
    assert job.work_left is None
    assert job.throughput == {"v100": {1: 2.0, 2: 3.8, 4: 7.0}, "k80": {1: 1.0}}
    assert (job.slowdown.node, job.slowdown.rack, job.slowdown.cluster) == (1.0, 1.5, 1.3)
    assert job.lease_until == {"a1": (4200.0, 4200.0)}
    assert (job.cpus_per_gpu, job.memory_per_gpu) == (4.0, 3 * 2**30)
    assert job.loss == ((0.0, 6.9), (100.0, 5.1))
    assert s.apps[0].phases[0].jobs == 8
    assert s.active_apps == ((0.0, 3), (1200.0, 5))
    assert s.policy is not None
    assert s.policy.options == {"lease": 600}


def test_defaults() -> None:
    s = instance.parse("{cluster: {nodes: [{name: a, gpu_type: t, gpus: 1}]}, jobs: [{name: j, gpus: 2}]}")
    job = s.jobs[0]
    assert (job.tenant, job.app, job.gpus) == ("j", "j", GpuRange(2, 2, 2))
    assert [(t.name, t.weight, t.cap) for t in s.tenants] == [("j", 1.0, None)]
    assert s.cluster.gpu_types == ("t",)
    assert job.known
    assert job.work == Work()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", GpuRange(3, 3, 3)),
        ("{min: 2, max: 6}", GpuRange(6, 2, 6)),
        ("{min: 2, max: null}", GpuRange(2, 2, None)),
        ("{max: 6}", GpuRange(6, 1, 6)),
        ("{requested: 4, min: 2, max: 6}", GpuRange(4, 2, 6)),
        ("{allowed: [8, 2, 2, 4]}", GpuRange(8, 2, 8, (2, 4, 8))),
        ("{requested: 2, allowed: [2, 4]}", GpuRange(2, 2, 4, (2, 4))),
    ],
)
def test_gpu_ranges(text: str, expected: GpuRange) -> None:
    s = instance.parse(f"{{cluster: {{}}, jobs: [{{name: j, gpus: {text}}}]}}")
    assert s.jobs[0].gpus == expected
    assert instance.parse(instance.to_text(s)) == s


def test_groups_are_nodes() -> None:
    s = instance.parse(
        "cluster:\n  groups:\n    - {count: 4, gpu_type: v100, gpus: 4, racks: 2}\n"
        "    - {count: 1, gpu_type: v100, gpus: 8}\n    - {count: 2, gpu_type: k80, gpus: 1, name: old}\n"
    )
    assert [(n.name, n.gpus, n.rack) for n in s.cluster.nodes] == [
        ("v100-1", 4, "v100-rack1"),
        ("v100-2", 4, "v100-rack1"),
        ("v100-3", 4, "v100-rack2"),
        ("v100-4", 4, "v100-rack2"),
        ("v100-5", 8, None),
        ("old1", 1, None),
        ("old2", 1, None),
    ]


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "says"),
    [
        ("gpus: 4, rack", "gpuz: 4, rack", 5, "cluster.nodes[0].gpuz", "did you mean 'gpus'"),
        ("health: drain", "health: broken", 6, "cluster.nodes[1].health", "'up', 'drain' or 'down'"),
        ("foreign: 1", "foreign: 5", 6, "cluster.nodes[1].foreign", "5 foreign GPUs on a node of 4"),
        ("name: no", "name: a1", 6, "cluster.nodes[1].name", "a second node 'a1'"),
        ("memory: 64G", "memory: 64 sheep", 6, "cluster.nodes[1].memory", "not a size"),
        ("[k80, v100]", "[v100]", 8, "cluster.gpu_types", "lacks 'k80'"),
        ("[k80, v100]", "[k80, v100, k80]", 8, "cluster.gpu_types[2]", "a second 'k80'"),
        ("weight: 2", "weight: 0", 10, "tenants[0].weight", "greater than 0"),
        ("weight: 2", "weight: .inf", 10, "tenants[0].weight", "finite"),
        ("tenant: alice", "tenant: bob", 13, "jobs[0].tenant", "no tenant 'bob'"),
        ("submitted: 10", "submitted: soon", 15, "jobs[0].submitted", "must be a number, not text"),
        ("min: 1", "min: 9", 16, "jobs[0].gpus", "min 9 is above max 8"),
        ("min: 1", "min: 0", 16, "jobs[0].gpus.min", "greater than or equal to 1"),
        ("min: 1", "min: 1.5", 16, "jobs[0].gpus.min", "whole number"),
        ("min: 1", "min: true", 16, "jobs[0].gpus.min", "whole number, not a boolean"),
        ("requested: 4", "requested: 12", 16, "jobs[0].gpus", "requested 12 is outside"),
        ("{requested: 4, min: 1, max: 8}", "{requested: 4}", 16, "jobs[0].gpus", "neither min, max nor allowed"),
        ("max: 8", "allowed: [4]", 16, "jobs[0].gpus", "allowed and also min"),
        ("done: 2500", "done: 25000", 17, "jobs[0].work", "done 25000 is above total 10000"),
        ("2: 3.8", "2: -3.8", 18, "jobs[0].throughput.v100[2]", "greater than or equal to 0"),
        ("2: 3.8", "2: .nan", 18, "jobs[0].throughput.v100[2]", "finite"),
        ("2: 3.8", "zwei: 3.8", 18, "jobs[0].throughput.v100.zwei", "whole number"),
        ("k80: 1}", "k80: {}}", 18, "jobs[0].throughput.k80", "at least 1 item"),
        ("rack: 1.5", "rack: 0.5", 19, "jobs[0].slowdown.rack", "greater than or equal to 1"),
        ("{a1: 2}", "{zz: 2}", 21, "jobs[0].allocation.zz", "no node 'zz'"),
        ("{a1: 2}", "{a1: 5}", 21, "jobs[0].allocation.a1", "node 'a1' has 4 GPUs"),
        ("{a1: 2}", "{no: 4}", 21, "jobs[0].allocation.no", "foreign ones hold 5"),
        ("{a1: 2}", "{a1: 0}", 21, "jobs[0].allocation.a1", "greater than or equal to 1"),
        ("4200.0", "{a1: [1.0]}", 22, "jobs[0].lease_until.a1", "1 times for 2 GPUs"),
        ("4200.0", "{no: 1.0}", 22, "jobs[0].lease_until.no", "where it holds nothing"),
        ("    allocation: {a1: 2}\n", "", 21, "jobs[0].lease_until", "a lease without an allocation"),
        ("[1200.0, 5]", "[1200.0, 5.5]", 31, "history.active_apps[1][1]", "whole number"),
        ("[[0.0, 3]", "[[2000.0, 3]", 31, "history.active_apps[1]", "is before the one above"),
        ("schema: 1", "schema: 7", 1, "schema", "version 7 is not known"),
        ("now: 3600.0", "now: 3600.0\nnow: 1", 3, "", "the key 'now' stands twice"),
        ("now: 3600.0", "now: [}", 2, "", "is not YAML"),
        ("name: j1", "name: 1", 12, "jobs[0].name", "must be text, not a number"),
        ("options: {lease: 600}", "options: {3: 600}", 33, "policy.options", "must be text"),
    ],
)
def test_what_is_refused_and_where(old: str, new: str, line: int, field: str, says: str) -> None:
    assert FULL.count(old) == 1
    error = bad(FULL.replace(old, new))
    text = str(error)
    assert says in text
    assert (error.where, error.line) == ("x.yaml", line)
    assert error.field.startswith(field)


def test_a_second_job_or_tenant_of_one_name() -> None:
    text = "cluster: {}\njobs:\n- {name: a, gpus: 1}\n- {name: b, gpus: 1}\n- {name: a, gpus: 1}\n"
    assert (bad(text).line, bad(text).field) == (5, "jobs[2].name")
    text = "cluster: {}\ntenants:\n- {name: a}\n- {name: a}\n"
    assert (bad(text).line, bad(text).field) == (4, "tenants[1].name")


def test_two_jobs_may_not_hold_more_than_a_node_has() -> None:
    text = (
        "cluster: {nodes: [{name: a, gpu_type: t, gpus: 4}]}\njobs:\n"
        "- {name: x, gpus: 3, allocation: {a: 3}}\n- {name: y, gpus: 2, allocation: {a: 2}}\n"
    )
    error = bad(text)
    assert (error.line, error.field) == (4, "jobs[1].allocation.a")


def test_json_errors_have_lines_too() -> None:
    text = json.dumps(instance.to_plain(instance.parse(FULL)), indent=1).replace('"weight": 2.0', '"weight": -2.0')
    error = bad(text, "x.json")
    assert error.line is not None
    assert '"weight"' in text.splitlines()[error.line - 1]


def test_all_errors_are_counted() -> None:
    error = bad(FULL.replace("weight: 2", "weight: 0").replace("min: 1", "min: 0"))
    assert error.line == 10
    assert "and 1 more" in str(error)


def test_models_come_from_tables() -> None:
    def tables(name: str) -> dict[str, dict[str, dict[int, float]]]:
        if name != "lab":
            raise KeyError("tables: lab")
        return {"resnet50": {"v100": {2: 3.0, 1: 2.0}}}

    text = "cluster: {}\njobs:\n- {name: a, gpus: 1, model: resnet50@lab}\n"
    s = instance.parse(text, tables=tables)
    assert s.jobs[0].throughput == {"v100": {1: 2.0, 2: 3.0}}
    assert instance.parse(instance.to_text(s)) == s  # without any table
    for name, says in (("vgg@lab", "no model 'vgg'"), ("resnet50@gavel", "tables: lab")):
        with pytest.raises(BadInput, match=says) as caught:
            instance.parse(text.replace("resnet50@lab", name), "x", tables=tables)
        assert (caught.value.line, caught.value.field) == (3, "jobs[0].model")
    assert "no throughput tables" in str(bad(text))


@settings(max_examples=150, deadline=None)
@given(snapshots())
def test_printing_loses_nothing(s: Snapshot) -> None:
    for form in ("yaml", "json"):
        text = instance.to_text(s, form)
        again = instance.parse(text)
        assert again == s
        assert instance.to_text(again, form) == text


def test_printing_keeps_strange_names() -> None:
    for name in (
        "no",
        "1e3",
        "010",
        "0x1f",
        "~",
        "null",
        "a: b",
        "- x",
        "ä#ö",
        "'",
        '"',
        " x ",
        "1:30",
        "2020-01-01",
        "<<",
    ):
        text = json.dumps({"cluster": {"nodes": [{"name": name, "gpu_type": name, "gpus": 1}]}, "jobs": []})
        s = instance.parse(text)
        assert s.cluster.nodes[0].name == name
        assert instance.parse(instance.to_text(s)) == s


VALUES = st.sampled_from((None, True, -1, 0, 3, 1.5, float("nan"), "", "x", "a1", [], {}, [1], {"a": 1}, {"min": 1}))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_value_in_any_place_is_read_or_refused(data: st.DataObject) -> None:
    """Whatever stands in whatever place: a snapshot, or a BadInput that names the file. Nothing else comes out."""
    value = json.loads(json.dumps(instance.to_plain(instance.parse(FULL))))
    at = value
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = data.draw(st.sampled_from(keys))
        if isinstance(at[key], dict | list) and at[key] and data.draw(st.booleans()):
            at = at[key]
            continue
        what = data.draw(st.sampled_from(("replace", "drop", "add")))
        if what == "replace":
            at[key] = data.draw(VALUES)
        elif what == "drop":
            del at[key]
        elif isinstance(at, dict):
            at[data.draw(st.sampled_from(("zz", "name", "gpus", "")))] = data.draw(VALUES)
        else:
            at.append(data.draw(VALUES))
        break
    text = json.dumps(value)
    try:
        s = instance.parse(text, "x.json")
    except BadInput as error:
        assert error.where == "x.json"
        assert error.message
    else:
        assert instance.parse(instance.to_text(s)) == s


def test_the_schema_knows_every_key() -> None:
    schema = instance.schema()
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == {
        "schema", "now", "cluster", "tenants", "quotas", "jobs", "apps", "history", "state", "policy",
    }  # fmt: skip
    job = schema["$defs"]["JobForm"]
    assert job["required"] == ["name", "gpus"]
    assert {"lease_until", "throughput", "loss_forecast", "restart_cost"} <= set(job["properties"])
    assert json.loads(json.dumps(schema)) == schema


@pytest.mark.parametrize(
    "text", ["", "   \n", "null", "[]", "3", "jobs", "{}", "jobs: []", "cluster: null", "cluster: []"]
)
def test_files_that_say_too_little(text: str) -> None:
    assert bad(text).where == "x.yaml"


def test_a_missing_file(tmp_path: object) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        instance.read(f"{tmp_path}/none.yaml")
