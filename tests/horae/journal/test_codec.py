"""Plain forms: what is given away as it is, and what is copied."""

from __future__ import annotations

import json

import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from horae.journal.codec import Plain, given, is_plain, parsed, plain, text

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=2)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(max_size=2) | st.integers(0, 3), inner, max_size=3)
    ),
)


def kinds(value: object) -> object:
    """The same, with each container's own type: a list equals no tuple, but a dict equals any mapping."""
    if isinstance(value, dict):
        return ("dict", type(value), [(type(k), k, kinds(v)) for k, v in value.items()])
    if isinstance(value, (list, tuple)):
        return (type(value), [kinds(v) for v in value])
    return (type(value), value)


@examples(values)
def test_what_is_plain_is_its_own_plain_form(value: object) -> None:
    if is_plain(value):
        assert kinds(plain(value)) == kinds(value)
        assert given(value) is value
    else:
        assert kinds(given(value)) == kinds(plain(value))


@examples(st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_text_is_read_as_it_was_written(value: object) -> None:
    assert kinds(parsed(text(value))) == kinds(value)
    assert kinds(parsed(json.dumps(value))) == kinds(value)


def test_what_only_json_reads_is_read_and_what_nobody_reads_is_refused() -> None:
    assert parsed('"\\ud800"') == "\ud800"
    with pytest.raises(ValueError):
        parsed("{")


def test_tuples_and_keys_that_are_no_text_are_not_plain_yet() -> None:
    assert is_plain({"a": [1, 2.5, None, {"b": "c"}]})
    assert not is_plain({"a": (1,)})
    assert not is_plain({"a": {1: 2}})
    assert given(Plain({"a": [1]})) == {"a": [1]}
