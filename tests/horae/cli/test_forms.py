"""Durations, sizes, GPU ranges and host lists: what people write and read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.tui import explained, forms, screen
from policy.model import BadInput, GpuRange


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0:00"),
        (5.9, "0:05"),
        (754, "12:34"),
        (3723, "1:02:03"),
        (183845, "2-03:04:05"),
        (None, "-"),
        (-3, "0:00"),
    ],
)
def test_durations_look_like_squeue(seconds: float | None, text: str) -> None:
    assert forms.duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("1d", 86400), ("12:34", 754), ("1:02:03", 3723),
        ("2-03:04:05", 183845), ("2-3", 183600), ("0-00:10", 600),
    ],
)  # fmt: skip
def test_durations_are_read_as_slurm_reads_them(text: str, seconds: float) -> None:
    assert forms.parse_duration(text) == seconds


@given(st.integers(0, 10**8))
def test_a_printed_duration_reads_back(seconds: int) -> None:
    assert forms.parse_duration(forms.duration(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1", "1:2:3:4", "1-", "5 weeks"])
def test_a_wrong_duration_names_field_value_and_remedy(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        forms.parse_duration(text, "--seconds")
    assert caught.value.field == "--seconds"
    assert caught.value.value == text
    assert "D-HH:MM:SS" in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("4", GpuRange(4, 4, 4)),
        ("1:8", GpuRange(8, 1, 8)),
        ("2:", GpuRange(2, 2, None)),
        ("8,1,4,2,4", GpuRange(8, 1, 8, (1, 2, 4, 8))),
    ],
)
def test_gpu_ranges(text: str, gpus: GpuRange) -> None:
    assert forms.parse_gpus(text) == gpus


@given(st.integers(1, 512), st.integers(0, 512))
def test_a_printed_gpu_range_reads_back(low: int, more: int) -> None:
    gpus = GpuRange(low + more, low, low + more)
    assert forms.parse_gpus(forms.gpu_range(gpus)) == gpus


@pytest.mark.parametrize("text", ["", "0", "4:2", "a:b", "1:2:3", "1,,2", "0,1", "-1", "1.5", "1_0", "٣", "1:٣", "2,٤"])
def test_a_wrong_gpu_range_is_refused(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        forms.parse_gpus(text)
    assert caught.value.value == text
    assert caught.value.remedy


def test_host_lists_fold() -> None:
    assert forms.fold(["n3", "n1", "n2", "n7", "n1"]) == "n[1-3,7]"
    assert forms.fold(["gpu-a01", "gpu-a02", "login"]) == "gpu-a[01-02],login"
    assert forms.fold([]) == ""


def test_an_allocation_names_counts_once() -> None:
    assert forms.allocation({"n1": 4, "n2": 4, "n5": 2}) == "n[1-2]:4,n5:2"
    assert forms.allocation({}) == ""


def test_numbers_for_people() -> None:
    assert [forms.number(v) for v in (None, 3.0, 0.123456, 1234.5678)] == ["-", "3", "0.1235", "1235"]


def test_the_longest_word_of_an_explanation_stands_apart_from_its_text() -> None:
    answer = {"id": "1", "name": "a", "tenant": "ann", "state": "running", "allocation": {"n1": 1}, "range": "1:4"}
    answer |= {"target": None, "ended": False, "starts": 1, "ran_s": 5.0, "time_left_s": None, "step": 0, "total": 0}
    answer |= {"causes": [{"what": "checkpoint", "text": "it is kept"}, {"what": "policy", "text": "keeps its GPU"}]}
    text = explained.page({**answer, "ahead": [], "policy": ""}).plain
    assert "\ncheckpoint it is kept" in text
    assert "\npolicy   keeps its GPU" in text


def test_many_rows_of_json_are_written_as_few_are(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"id": "1", "why": "ça\u2028\x1b[1m \U0001f600", "loss": 0.25, "held": {}, "losses": [[1.0, None]], "no": []}
    for many in (3, 2000):
        screen.emit_json({"jobs": [row] * many, "now_s": 1.5})
        written = capsys.readouterr().out
        assert written.isascii()
        assert written == json.dumps({"jobs": [row] * many, "now_s": 1.5}, indent=2) + "\n"


def test_a_table_writes_out_what_a_cell_hides_and_keeps_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [["1", screen.Cell("a\x1b[2J", "red"), "x"], ["22", "b", "çé"]]
    screen.table((screen.Column("ID", right=True), screen.Column("NAME"), screen.Column("WHY")), rows)
    assert capsys.readouterr().out == "ID NAME     WHY\n 1 a\\x1b[2J x\n22 b        çé\n"
    screen.table((screen.Column("ID"),), [], header=False)
    assert capsys.readouterr().out == ""
