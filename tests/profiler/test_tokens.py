"""Numbers and shapes of lines."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.text.tokens import DEC, DUR, INT, duration, matcher, number, tokenise, without_bar


def shown(text: str) -> str:
    """Canonical text with signs for the kinds of numbers."""
    return tokenise(text)[0].replace(INT, "#").replace(DEC, "%").replace(DUR, "&")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("Epoch: [0][5/157] Time 0.130 (1.824)", "Epoch: [#][#/#] Time % (%)"),
        ("Acc@1 0.464 top5 9 top-1 3 conv2d_1", "Acc@1 % top5 # top-1 # conv2d_1"),
        ("1.5e-3 1E5 .5 5. -3", "% % % #. -#"),
        ("1,234,567 and 1,234.5 and 0,523", "# and % and #,#"),
        ("3:06:24 02:00 12:37:52,222 1:2", "& & & #:#"),
        ("epoch3 step-100 iter5", "epoch# step-# iter#"),
        ("2018-09-05T12:37:52.222Z", "#-#-#T&Z"),
        ("v0.5.0 fp16 x86_64 0x7fc5", "v0.5.0 fp16 x86_# #x7fc5"),
        ("9s 12ms 45% 3.2it/s", "#s #ms #% %it/s"),
    ],
)
def test_numbers_of_a_line(text: str, want: str) -> None:
    """A number inside a word is part of the word; everything else is a number of its kind."""
    assert shown(text) == want


@settings(max_examples=400, deadline=None)
@given(st.text(alphabet="0123456789.,:;eE+-/ ()[]aTx@_%\u3000", max_size=40))
def test_matcher_reads_what_tokenise_read(text: str) -> None:
    """The expression of a shape gives the same numbers as taking the line apart."""
    canonical, numbers = tokenise(text)
    m = matcher(canonical, set(range(len(numbers)))).fullmatch(text)
    assert m is not None
    assert list(m.groups()) == numbers


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="0123456789.,:eE- /a", max_size=30), st.text(alphabet="0123456789", min_size=1, max_size=6))
def test_shape_does_not_depend_on_the_digits(text: str, digits: str) -> None:
    """Lines that the expression of one line matches have that line's shape."""
    canonical, numbers = tokenise(text)
    other = text.translate({ord(d): digits[i % len(digits)] for i, d in enumerate("0123456789")})
    if matcher(canonical, set()).fullmatch(other):
        assert len(tokenise(other)[1]) == len(numbers)


def test_values() -> None:
    """Thousands and durations."""
    assert number("1,234.5") == 1234.5
    assert duration("1:02:03.5") == 3723.5
    assert duration("02:00") == 120


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("100/100 [======>.......] - 9s", "100/100 [] - 9s"),
        (" 12%|\u2588\u258e        | 2/16 [02:00", " 12%|| 2/16 [02:00"),
        ("  0%|          | 0/16", "  0%|| 0/16"),
        ("50%|#####5    | 5/10", "50%|| 5/10"),
        ("313/313 \u2501\u2501\u2501\u2501\u2501 2s", "313/313 2s"),
        ("loss | 3 | 4", "loss | 3 | 4"),
    ],
)
def test_fill_of_bars(line: str, want: str) -> None:
    """The fill of a bar goes, so that its states are one shape."""
    assert without_bar(line.encode()).decode() == want
