"""The configuration file: what it says, and what is said when it is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.config import Config, Mode, load, parse, schema
from horae.port import SiteTenant
from policy.model import BadInput

WHOLE = """\
state_dir: /srv/horae
cluster: {adapter: local, options: {nodes: 2}}
pools:
  - {name: big, nodes: "gpu[01-16]", policy: afs-l, options: {lease: 600}, mode: order, seed: 3}
  - {name: rest}
tenants:
  - {name: vision, weight: 2.5, users: [ann, ben]}
  - {name: speech}
operators: [ops]
gpu_types: {k80: 1, v100: 4.5}
rounds: {tick_s: 10, busy_s: 2, decide_s: 30}
guards: {min_run_s: 300, restarts_per_hour: 3}
history: {keep_s: 86400}
"""


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "horae.yaml"
    file.write_text(WHOLE)
    config = load(file)
    assert (config.state_dir, config.pools[0].mode, config.pools[1].mode) == (
        Path("/srv/horae"),
        Mode.ORDER,
        Mode.OBSERVE,
    )
    assert config.pools[0].names() == {f"gpu{i:02d}" for i in range(1, 17)}
    assert (config.weight("vision"), config.weight("nobody")) == (2.5, 1.0)
    assert config.rounds.decide_s == 30


def test_only_the_adapter_must_be_said() -> None:
    config = parse("cluster: {adapter: fake}")
    assert [p.name for p in config.pools] == ["main"]
    assert config.pools[0].names() is None


@pytest.mark.parametrize(
    ("user", "tenant", "may"),
    [
        ("ann", "vision", True),
        ("cem", "vision", False),
        ("cem", "speech", True),
        ("cem", "cem", True),
        ("cem", "nobody", False),
        ("vision", "vision", True),
    ],
)
def test_who_may_run_jobs_of_a_tenant(user: str, tenant: str, may: bool) -> None:
    assert parse(WHOLE).may_submit(user, tenant) is may


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        (("weight: 2.5", "weight: -1"), 7, "must be greater than 0"),
        (("weight: 2.5", "weight: heavy"), 7, "must be a number"),
        (("operators", "operator"), 9, "did you mean 'operators'"),
        (("tick_s: 10", "tick_s: 10s"), 11, "must be a number"),
        (("busy_s: 2", "busy_s: 20"), None, "longer than rounds.tick_s"),
        (("restarts_per_hour: 3", "restarts_per_hour: 0"), 12, "greater than or equal to 1"),
        (("- {name: speech}", "- {name: vision}"), 6, "tenant vision stands twice"),
        (("adapter: local, ", ""), 2, "is missing"),
        (("k80: 1", "k80: .nan"), 10, "finite"),
    ],
)
def test_a_mistake_is_named_with_its_line(change: tuple[str, str], line: int | None, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(WHOLE.replace(*change), "horae.yaml")
    assert said in str(caught.value)
    assert line is None or caught.value.line in (line, line + 1)


@given(st.text())
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    try:
        assert isinstance(parse(text), Config)
    except BadInput as refused:
        assert str(refused)


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.sampled_from(["fake", "n[1-2]", "observe", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["cluster", "adapter", "pools", "nodes", "name", "mode", "rounds", "tick_s", "tenants", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(plain)
def test_any_data_is_read_or_refused_in_words(data: object) -> None:
    try:
        assert isinstance(parse(json.dumps({"cluster": {"adapter": "fake"}, "pools": data})), Config)
    except BadInput as refused:
        assert str(refused)


def test_tenants_of_the_cluster_are_known_beside_those_of_the_file() -> None:
    """Also where it was asked before they came."""
    config = parse("cluster: {adapter: fake}\ntenants: [{name: vision, weight: 2, cap: 4, users: [ann]}]")
    assert (config.weight("speech"), config.lists("speech"), config.at_home("ann", "ann")) == (1.0, False, ("vision",))
    known = config.knowing([SiteTenant("vision", 9.0), SiteTenant("speech", 3.0)])
    assert (known.weight("speech"), known.lists("speech"), known.cap("speech")) == (3.0, True, None)
    assert (known.weight("vision"), known.cap("vision")) == (2.0, 4)
    assert config.weight("speech") == 1.0
    assert known == config.knowing([SiteTenant("speech", 3.0)])


def test_the_schema_names_every_section() -> None:
    assert set(schema()["properties"]) >= {"cluster", "state_dir", "pools", "tenants", "rounds", "guards", "history"}


@pytest.mark.parametrize(
    ("text", "field", "value", "bound"),
    [
        ("rounds: {tick_s: 1e10}", "rounds.tick_s", "10000000000", "1000000000"),
        ("rounds: {debounce_s: 1e300}", "rounds.debounce_s", "1e+300", "1000000000"),
        ("guards: {restarts_per_hour: 99999999999}", "guards.restarts_per_hour", "99999999999", "1000000000"),
        ("tenants: [{name: a, weight: 1e12}]", "tenants[0].weight", "1000000000000", "1000000000"),
        ("gpu_types: {k80: 1e10}", "gpu_types.k80", "10000000000", "1000000000"),
        (
            "history: {compact_bytes: 99999999999999999}",
            "history.compact_bytes",
            "99999999999999999",
            "1125899906842624",
        ),
        ("pools: [{seed: 99999999999999999}]", "pools[0].seed", "99999999999999999", "9007199254740992"),
        (f"operators: [{', '.join(['a'] * 10_001)}]", "operators", "10001", "10000"),
        (f"operators: [{'a' * 256}]", "operators[0]", "aaa", "255"),
        ('pools: [{nodes: "n[1-999999999]"}]', "pools[0].nodes", "n[1-999999999]", "100000"),
        ('pools: [{nodes: "n[1-9999]x[1-9999]"}]', "pools[0].nodes", "n[1-9999]x[1-9999]", "100000"),
        (f'pools: [{{nodes: "n[1-{"9" * 400}]"}}]', "pools[0].nodes", "n[1-9", "100000"),
    ],
)
def test_what_is_larger_than_anything_means_is_refused_with_its_bound(
    text: str, field: str, value: str, bound: str
) -> None:
    with pytest.raises(BadInput) as caught:
        parse(f"cluster: {{adapter: local}}\n{text}\n", "c.yaml")
    said = str(caught.value)
    assert caught.value.field == field
    assert value in said, said
    assert bound in said, said


def test_hostlists_of_real_sites_are_within_the_bound() -> None:
    for nodes in ("gpu[01-16]", "a[1-2]b[1-3],c", "r[1-20]n[1-100]", "n[1-9/2],x", "n1"):
        assert parse(f'cluster: {{adapter: local}}\npools: [{{nodes: "{nodes}"}}]').pools[0].names()
