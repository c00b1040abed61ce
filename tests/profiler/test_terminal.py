"""Bytes -> logical lines: redrawing, escapes, encodings, and that no cutting of the text changes the answer."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.text.terminal import LONGEST, State, Terminal


def states(data: bytes, cuts: list[int] | None = None) -> list[State]:
    """All states, the unfinished line's too, fed in pieces."""
    terminal, out, at = Terminal(), [], 0
    for cut in [*sorted(cuts or []), len(data)]:
        out += terminal.feed(data[at:cut])
        at = max(cut, at)
    return out + terminal.rest()


@pytest.mark.parametrize(
    ("data", "want"),
    [
        (b"one\ntwo\n", [(1, b"one", False), (2, b"two", False)]),
        (b"one\r\ntwo\r\n", [(1, b"one", False), (2, b"two", False)]),
        (b"half a line", [(1, b"half a line", False)]),
        (b"10%\r20%\r30%\n", [(1, b"10%", True), (1, b"20%", True), (1, b"30%", False)]),
        (b"10%\r20%", [(1, b"10%", True), (1, b"20%", False)]),
        (b"10%\r   \r\nnext\n", [(1, b"10%", False), (2, b"next", False)]),
        (b"50%\b\b\b60%\n", [(1, b"50%", True), (1, b"60%", False)]),
        (b"abc\b\bX\n", [(1, b"abc", True), (1, b"aXc", False)]),
        (b"\x1b[31mred\x1b[0m text\n", [(1, b"red text", False)]),
        (b"a\x1b]0;window title\x07b\n", [(1, b"ab", False)]),
        (b"Validation 1/2\x1b[A\rEpoch 0\n", [(1, b"Validation 1/2", True), (1, b"Epoch 0", False)]),
        (b"\0\0\0step 1\n", [(1, b"step 1", False)]),
        (
            "\u5b66\u7fd2\b\b\u4e60\n".encode(),
            [(1, "\u5b66\u7fd2".encode(), True), (1, "\u5b66\u4e60".encode(), False)],
        ),
        (b"\xef\xbb\xbfstep 1\n", [(1, b"step 1", False)]),
        (b"\n\n\n", [(1, b"", False), (2, b"", False), (3, b"", False)]),
    ],
)
def test_states_of_a_line(data: bytes, want: list[State]) -> None:
    """Every way of redrawing leaves the states a terminal showed, the last one final."""
    assert states(data) == want


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_other_encodings(encoding: str) -> None:
    """UTF-16 with and without a mark, and UTF-8 with one, read as what they say."""
    text = "".join(f"step {i} loss 0.{i}\n" for i in range(40))
    assert [s for _, s, _ in states(text.encode(encoding))] == [f"step {i} loss 0.{i}".encode() for i in range(40)]


def test_short_text_in_utf16_is_shown_before_the_encoding_is_sure() -> None:
    """What waits for more bytes to tell the encoding is not hidden from somebody who asks now."""
    terminal = Terminal()
    assert terminal.feed("step 1\n".encode("utf-16")) == []
    assert terminal.rest() == [(1, b"step 1", False)]


TEXT = st.lists(
    st.sampled_from(
        [b"step ", b"1", b"\r", b"\n", b"\b", b"\b\b\b", b"\x1b[2K", b"\x1b[31m", b" ", b"\xe5\xad", b"\xff", b"loss"]
    ),
    max_size=60,
).map(b"".join)


@settings(max_examples=300, deadline=None)
@given(TEXT, st.lists(st.integers(0, 300), max_size=6))
def test_cutting_changes_nothing(data: bytes, cuts: list[int]) -> None:
    """The states of a text are the same in one piece and in many."""
    data = data * 3 + b"x" * 300
    assert states(data, [c for c in cuts if c <= len(data)]) == states(data)


@settings(max_examples=100, deadline=None)
@given(TEXT, st.integers(0, 200))
def test_state_survives_json(data: bytes, cut: int) -> None:
    """A terminal written as JSON in the middle goes on as if nothing had happened."""
    data = data + b"y" * 300
    one = Terminal()
    first = one.feed(data[:cut])
    two = Terminal.from_json(json.loads(json.dumps(one.to_json())))
    assert first + two.feed(data[cut:]) + two.rest() == states(data)


def test_a_line_of_many_megabytes_is_not_held() -> None:
    """A line without any end costs bounded memory, is counted, and the next line is read."""
    terminal = Terminal()
    tracemalloc.start()
    for _ in range(200):
        assert terminal.feed(b"x" * 100_000) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * LONGEST
    assert terminal.feed(b"\nstep 2\n") == [(2, b"step 2", False)]
    assert terminal.unread == 1


def test_a_bar_of_many_megabytes_gives_its_states() -> None:
    """A bar that is redrawn a hundred thousand times on one line is read as it comes, in bounded memory."""
    terminal, seen = Terminal(), 0
    tracemalloc.start()
    for i in range(100_000):
        seen += len(terminal.feed(b"\r%6d/100000 [======>.......] - loss: 0.5" % i))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    rest = terminal.rest()
    assert seen + len(rest) == 100_000
    assert rest[-1] == (1, b" 99999/100000 [======>.......] - loss: 0.5", False)
    assert peak < 8 * LONGEST


def test_backspaces_cost_no_more_than_the_text() -> None:
    """A spinner behind a long text puts out a few states, not one copy of the text a turn."""
    spinner = b"z" * 50_000 + b"|\b/\b-\b\\\b" * 10_000 + b"\n"
    assert len(states(spinner)) < 10
