"""Text forms: YAML by the rules of 1.2, lines, and no text that gets through as anything but a value or a BadInput."""

from __future__ import annotations

import gc
import tracemalloc
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from policy.model import BadInput
from policy.text.plain import not_plain, plain, surely_plain
from policy.text.textform import Document, Form, fit, load, load_file, name_of, to_json, to_yaml


def value(text: str) -> object:
    return load(text, "x.yaml").value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: no", {"a": "no"}),
        ("a: on", {"a": "on"}),
        ("a: yes", {"a": "yes"}),
        ("a: True", {"a": True}),
        ("a: 010", {"a": 10}),
        ("a: 1:30", {"a": "1:30"}),
        ("a: 2020-01-01", {"a": "2020-01-01"}),
        ("a: 1e3", {"a": 1000.0}),
        ("a: -1.5E-3", {"a": -0.0015}),
        ("a: 1_000", {"a": "1_000"}),
        ("a: ~", {"a": None}),
        ("a:", {"a": None}),
        ("a: .inf", {"a": float("inf")}),
        ("a: 0x10", {"a": "0x10"}),
        ("x: &p {k: 1}\ny: {<<: *p, l: 2}", {"x": {"k": 1}, "y": {"k": 1, "l": 2}}),
    ],
)
def test_yaml_is_read_by_the_rules_of_1_2(text: str, expected: object) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a: 1\nb: 2\na: 3", 3, "stands twice"),
        ("a: {b: 1, b: 2}", 1, "stands twice"),
        ("a: 1\n  b: 2", 2, "is not YAML"),
        ("a: 1\n---\nb: 2", 2, "document"),
        ("a: !!python/object:os.system {}", 1, "is not YAML"),
        ("a: \x01", 1, "is not YAML"),
        ("? {a: 1}\n: 2", 1, "cannot be a key"),
        ("? [1]\n: 2", 1, "cannot be a key"),
        ("x: [1, 2\n", 2, "is not YAML"),
        ("a: *b", 1, "is not YAML"),
    ],
)
def test_bad_yaml_has_a_line(text: str, line: int, says: str) -> None:
    with pytest.raises(BadInput, match=says) as caught:
        load(text, "x.yaml")
    assert (caught.value.where, caught.value.line) == ("x.yaml", line)


def test_bad_json_has_a_line() -> None:
    with pytest.raises(BadInput, match="is not JSON") as caught:
        load('{"a": 1,\n "b": }', "x.json")
    assert caught.value.line == 2
    with pytest.raises(BadInput, match="stands twice"):
        load('{"a": 1, "a": 2}', "x.json")
    with pytest.raises(BadInput, match="number that cannot be read"):
        load('{"a": ' + "1" * 5000 + "}", "x.json")


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "- " * 50_000 + "a", "&a [*a]", "a: &a {b: *a}"], ids=range(5)
)
def test_bottomless_nesting_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        load(text, "x")


def test_aliases_may_not_explode() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    with pytest.raises(BadInput, match="expand without bound"):
        load("\n".join(lines), "x.yaml")


def test_not_utf_8_has_a_line() -> None:
    with pytest.raises(BadInput, match="UTF-8") as caught:
        load(b"a: 1\nb: \xff\n", "x.yaml")
    assert caught.value.line == 2
    assert load(b"\xef\xbb\xbfa: 1", "x.yaml").value == {"a": 1}


def test_flow_yaml_without_a_telling_name() -> None:
    assert load("{a: 1}", "-").value == {"a": 1}
    assert load('{"a": 1}', "-").value == {"a": 1}
    with pytest.raises(BadInput):
        load("{a: ", "-")


def test_lines_of_a_document_within_a_file() -> None:
    document = load('{"a": [1,\n 2]}', "batch.jsonl", first_line=41)
    assert document.line(("a", 1)) == 42
    assert document.line(("a", 7)) == 41
    assert document.line(("zz",)) == 41


def test_lines_of_json_with_tabs() -> None:
    assert load('{\n\t"a": {\n\t\t"b": 1\n\t}\n}', "x.json").line(("a", "b")) == 3


@settings(max_examples=300, deadline=None)
@given(st.text() | st.binary())
def test_any_text_is_a_value_or_bad_input(text: str | bytes) -> None:
    for where in ("x.yaml", "x.json", "x"):
        try:
            document = load(text, where)
        except BadInput as error:
            assert error.where == where
        else:
            assert isinstance(document, Document)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.text(), PLAIN, max_size=4))
def test_what_is_printed_is_read_back(plain: dict[str, object]) -> None:
    try:
        text = to_yaml(plain)
        text.encode()
    except UnicodeEncodeError:
        return  # a lone surrogate is no text
    assert load(text, "x.yaml").value == plain
    assert load(to_json(plain), "x.json").value == plain


# --- forms ---------------------------------------------------------------------------------------------------


class Inner(Form):
    size: int = Field(ge=1)
    tags: list[str] = Field(default_factory=list)


class Outer(Form):
    name: str
    inner: dict[str, Inner] = Field(default_factory=dict)
    ratio: float = 0.5
    on_: bool = Field(True, alias="on")


def refused(text: str) -> BadInput:
    with pytest.raises(BadInput) as caught:
        fit(Outer, load(text, "x.yaml"))
    return caught.value


def test_forms_are_strict() -> None:
    assert fit(Outer, load("name: a\nratio: 2\non: false", "x.yaml")).on_ is False
    for text, line, field, says in (
        ("name: 3", 1, "name", "put it in quotes"),
        ("name: a\nratio: '2'", 2, "ratio", "must be a number, not text"),
        ("name: a\nratio: true", 2, "ratio", "must be a number, not a boolean"),
        ("name: a\non: 1", 2, "on", "true or false"),
        ("name: a\nname2: b", 2, "name2", "did you mean 'name'? known keys: inner, name, on, ratio"),
        ("ratio: 1", 1, "name", "is missing"),
        ("name: a\ninner:\n  x: {size: 0}", 3, "inner.x.size", "greater than or equal to 1 (it is 0)"),
        ("name: a\ninner:\n  x:\n    size: 1\n    tags: [a,\n b, 3]", 6, "inner.x.tags[2]", "text"),
        ("name: a\ninner: [1]", 2, "inner", "must be a mapping of keys to values, not a list"),
        ("name: a\ninner: {x: 3}", 2, "inner.x", "must be a mapping"),
        ("- a", 1, "", "is a list"),
        ("", 1, "", "is empty"),
    ):
        error = refused(text)
        assert says in str(error), text
        assert (error.line or 1, error.field) == (line, field), text


def test_names_of_places() -> None:
    assert name_of(("jobs", 3, "gpus", "min")) == "jobs[3].gpus.min"
    assert name_of(()) == ""


def test_what_has_no_text_form() -> None:
    assert list(not_plain({"a": [1, "x", None, True, 1.5]})) == []
    assert [place for place, _ in not_plain({"a": [1, {2}], "b": {3: 4}, "c": float("inf")})] == [
        ("a", 1),
        ("b", "3"),
        ("c",),
    ]


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=2) | st.binary(max_size=1)
values = st.recursive(
    leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=2) | st.integers(), inner)
)


@given(values)
def test_the_quick_answer_about_plain_values_is_the_long_one(value: object) -> None:
    assert surely_plain(value) == (not list(not_plain(value)))


def test_other_kinds_of_containers_are_left_to_the_long_answer() -> None:
    state = MappingProxyType({"a": (1, 2)})
    assert not surely_plain(state)
    assert surely_plain(plain(state))


def test_what_holds_itself_or_lies_deep_is_left_to_the_long_answer() -> None:
    ring: list[object] = []
    ring.append({"a": ring})
    deep: list[object] = []
    for _ in range(1000):
        deep = [deep]
    assert not surely_plain(ring)
    assert not surely_plain(deep)


def test_a_folder_is_no_file(tmp_path: object) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        load_file(str(tmp_path))


def laughing(levels: int) -> str:
    """Each level merges ten times the one before: a few lines that stand for ten to the power of them."""
    lines = ["l0: &l0 {" + ", ".join(f"k{i}: {i}" for i in range(10)) + "}"]
    lines += [f"l{n}: &l{n}\n  <<: [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize("levels", [7, 9, 60])
def test_merges_that_multiply_are_refused_before_they_are_carried_out(levels: int) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BadInput, match="merges bring together more than"):
            value(laughing(levels))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 128 << 20, "a seventh level carried out took 1.8 GB"


def test_merges_of_an_honest_file_are_read() -> None:
    found = value(laughing(4))
    assert isinstance(found, dict)
    assert found["l3"] == {f"k{i}": i for i in range(10)}


class Few(Form):
    numbers: list[int] = Field(max_length=3)
    name: str = ""


@pytest.mark.parametrize(
    "text",
    [
        '{"numbers": [1, 2, 3, 4, 5, 6]}',
        '{"numbers": ["a", "b"], "other": 1}',
        '{"numbers": [1, 2',
        '{"numbers": [1], "numbers": [2]}',
        '{"numbers": [1], "name": "\\ud800"}',
        '{"numbers": [1' + "0" * 5000 + "]}",
        '{"numbers": ' + "[" * 300 + "]" * 300 + "}",
        "[1]",
        "",
    ],
)
@pytest.mark.parametrize("where", ["x.json", "x.yaml", "x"])
def test_what_is_refused_is_let_go_at_once(text: str, where: str) -> None:
    """An error that is in a circle with what was sent keeps it until the collector comes, which may be long."""

    def refused() -> bool:
        try:
            fit(Few, load(text, where))
        except BadInput:
            return True
        return False

    assert refused()  # what a first refusal loads is not of these
    gc.collect()
    gc.disable()
    try:
        assert refused()
        assert gc.collect() == 0
    finally:
        gc.enable()
