"""JSON at the cost of its size: places found without building anything, and what is refused before it is built."""

from __future__ import annotations

import json
import tracemalloc
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from policy.model import BadInput
from policy.text import jsontext
from policy.text.textform import Form, fit, load

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


def places(value: Any, at: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], Any]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(at, value), *(found for key, v in inner for found in places(v, (*at, key)))]


@given(VALUES, st.sampled_from([None, 1, 3]))
def test_every_value_is_found_where_it_stands(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    assert jsontext.loads(text) == value
    for place, there in places(value):
        rest = text[jsontext.offset_of(text, place) :]
        if place and isinstance(place[-1], str):
            key, end = json.JSONDecoder().raw_decode(rest)
            assert key == place[-1]
            rest = rest[end:].lstrip()[1:].lstrip()
        assert json.JSONDecoder().raw_decode(rest)[0] == there


def test_what_is_not_there_is_told_at_what_is_around_it() -> None:
    text = '{\n"a": [\n1,\n{"b": 2}]}'
    assert text[jsontext.offset_of(text, ("a", 1, "c")) :].startswith('{"b"')
    assert text[jsontext.offset_of(text, ("a", 7)) :].startswith('"a"')


@pytest.mark.parametrize(
    ("text", "words", "line"),
    [
        ('{"a": 1,\n"b": {"c": 1,\n"d": 2,\n"c": 3}}', "the key 'c' stands twice", 4),
        ('{"a": {"a": 1}, "b": [{"a": 1}],\n"a": 2}', "the key 'a' stands twice", 2),
        ("[" * 201 + "]" * 201, "nested too deeply", None),
        ("[" * 1_000_000, "nested too deeply", None),
        ('{"a":' * 500_000, "nested too deeply", None),
        ("[" + "9" * 5000 + "]", "a number that cannot be read", None),
        ('{"a": "\\ud800"}', "half of a character", 1),
        ('{"a": {\n"\\udc00": 1}}', "half of a character", 1),
        ('{"a": }', "is not JSON", 1),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line(text: str, words: str, line: int | None) -> None:
    with pytest.raises(BadInput, match=words) as refused:
        load(text, "body.json")
    assert refused.value.line == line
    str(refused.value).encode()


def test_brackets_in_words_nest_nothing() -> None:
    assert load('{"a": "' + "[" * 500 + '", "b": "\\"' + "{" * 500 + '"}', "body.json").value["b"][1] == "{"
    assert load('{"a": "\\ud83d\\ude00"}', "body.json").value == {"a": "\U0001f600"}


class _Lists(Form):
    jobs: Annotated[list[dict[str, int]], Field(max_length=1000)]


@pytest.mark.parametrize("inner", ["1,", "[],", '"x",', "{},", "[[[[[[]]]]]],"])
def test_a_refused_body_costs_what_its_size_says(inner: str) -> None:
    """Half a megabyte of what is wrong everywhere: the line is found, and memory stays near that of the values."""
    text = '{"jobs": [' + inner * ((1 << 19) // len(inner)) + '"end"]}'
    tracemalloc.start()
    try:
        with pytest.raises(BadInput):
            fit(_Lists, load(text, "body.json"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20


@pytest.mark.parametrize("text", ['{"comm' + "[" * 217, '"' + "[" * 300, '["' + '\\"' * 50_000 + "[" * 300])
def test_a_quote_that_nobody_closed_costs_no_more_than_its_length(text: str) -> None:
    """It was tried in 2^n ways: 223 bytes kept the arbiter busy for ever."""
    with pytest.raises(jsontext.Refused, match="Unterminated string"):
        jsontext.loads(text)


def test_brackets_before_such_a_quote_are_counted() -> None:
    with pytest.raises(jsontext.Refused, match="nested too deeply"):
        jsontext.loads("[" * 201 + '"x')
