"""The configuration file: what it says, and what is said when it is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.config import Config, Mode, load, parse, schema
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


def test_the_schema_names_every_section() -> None:
    assert set(schema()["properties"]) >= {"cluster", "state_dir", "pools", "tenants", "rounds", "guards", "history"}
