"""What a hostile file says is refused by file, line and column: numbers of thousands of digits, lists within lists,
signs where none belong, speeds that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from horae.sim.engine.workload import tables
from horae.sim.faults.schedule import read_schedule
from horae.sim.traces.reading import read
from policy.model import BadInput
from tests.horae.sim.made import CLUSTER, said

LONG = "9" * 5000
SACCT = {
    "JobIDRaw": "6", "JobID": "6", "User": "a", "Account": "ml", "State": "COMPLETED", "Submit": "150",
    "Eligible": "150", "Start": "200", "End": "260", "ElapsedRaw": "60", "AllocTRES": "gres/gpu=2",
    "ReqTRES": "gres/gpu=2", "NodeList": "n1",
}  # fmt: skip
#: A job of the Philly log.
JOB = (
    '{"jobid":"a","vc":"v","submitted_time":"2017-10-07 01:00:00","attempts":[{"start_time":"2017-10-07 01:12:09",'
    '"end_time":"2017-10-07 01:13:09","detail":[{"ip":"m","gpus":["g0"]}]}]}'
)


def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, text: str) -> str:
    """What is said of a trace, by a command that ends as it should and counts the row where it is asked to."""
    file = tmp_path / "trace"
    file.write_text(text)
    code, _, err = said(capsys, "simulate", str(file), *CLUSTER, "--policy", "fifo", "--format", form)
    assert code == 3, err
    assert f"{file}:" in err
    assert "correct the" in err
    return err


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("JobIDRaw", LONG, "JobIDRaw: is no job number"),
        ("ElapsedRaw", LONG, "ElapsedRaw: is no number of seconds"),
        ("JobID", f"6+{LONG}", "JobID: is none of"),
        ("JobID", f"6_{LONG}", "JobID: is none of"),
        ("JobID", f"6_[1-{LONG}]", "JobID: names tasks that cannot be read"),
        ("NodeList", f"n[1-{LONG}]", "NodeList: is no list of hosts (a number of more than 12 digits)"),
        ("NodeList", "n[1-99999999999]", "NodeList: is no list of hosts (more than 1,000,000 hosts)"),
        ("NodeList", "n[0000000001-9999999999]", "more than 1,000,000 hosts"),
        ("Submit", "1960-01-01T00:00:00", "Submit: is no time"),
    ],
)
def test_a_row_of_sacct(column: str, value: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header, good = "|".join(SACCT), "|".join(SACCT.values())
    bad = "|".join((SACCT | {column: value}).values())
    assert f":2: {told}" in (err := refused(tmp_path, capsys, "sacct", f"{header}\n{bad}\n")) or told in err
    (tmp_path / "trace").write_text(f"{header}\n{bad}\n{good}\n")
    found = read(tmp_path / "trace", "sacct", skip_bad=True)
    assert (len(found.jobs), [row.line for row in found.malformed]) == (1, [2])


@pytest.mark.parametrize(
    ("name", "value"),
    [("phases", f"{LONG}x5"), ("phases", "\u0663x5"), ("loss", "1_0/1/5"), ("slowdown", f"1/{LONG}/\u0663")],
)
def test_a_cell_of_ours(name: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    err = refused(tmp_path, capsys, "ours", f"submitted,duration,gpus,{name}\n0,5,1,{value}\n")
    assert f":2: {name}: is not" in err


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        f"[{JOB} {JOB}]",
        f"[{JOB},,{JOB}]",
        f"[,{JOB}]",
        f"[{JOB},]",
        f"[{JOB}",
        f"[{JOB}] more",
        f"[{JOB}][{JOB}]",
        "[" + JOB.replace('["g0"]', '"g0"') + "]",
    ],
)
def test_a_log_of_philly(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ":1: " in refused(tmp_path, capsys, "philly", text)


def test_a_log_of_philly_that_is_whole(tmp_path: Path) -> None:
    file, other = tmp_path / "log", JOB.replace('"a"', '"b"')
    for text, jobs in (("[]", 0), (f" [\n{JOB}\n,\n{other} ]\n\n", 2)):
        file.write_text(text)
        assert len(read(file, "philly").jobs) == jobs


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"m": {"v100": {"1": -1}}}', "m.v100.1: is no rate"),
        ('{"m": {"v100": {"1": NaN}}}', "m.v100.1"),
        ('{"m": {"v100": {"1": 1e999}}}', "m.v100.1"),
        ('{"m": {"v100": {"1": true}}}', "m.v100.1"),
        ('{"m": {"v100": {"1": "7"}}}', "m.v100.1"),
        ('{"m": {"v100": {"0": 1}}}', "m.v100.0: is no number of GPUs"),
        ('{"m": {"v100": {"1.5": 1}}}', "is no number of GPUs"),
        ('{"m": {"v100": {"%s": 1}}}' % LONG, "is no number of GPUs"),  # noqa: UP031
        ('{"m": {"v100": {}}}', "m.v100: is no throughput table"),
        ('{"m": {"v100": {"1": 0}}}', "m.v100: is 0 on any number of GPUs"),
        ('{"m": []}', "m: is no throughput table"),
        ("[]", "is no throughput table"),
        ("[" * 100_000, "is nested too deeply"),
    ],
)
def test_a_throughput_table(text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    file.write_text(text)
    with pytest.raises(BadInput) as refusal:
        tables(str(file))
    assert told in str(refusal.value)
    assert str(file) in str(refusal.value)


def test_a_schedule_of_lists_within_lists(tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    file.write_text("[" * 100_000)
    with pytest.raises(BadInput, match="nested too deeply"):
        read_schedule(file, 1, ["n1"])


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("simulate", "TRACE", *CLUSTER, "--policy", "fifo", "--restart", "inf"), 2, "--restart"),
        (("simulate", "TRACE", "--cluster", "", "--policy", "fifo"), 3, "--cluster: names no cluster"),
        (("simulate", "TRACE", "--cluster", ",".join(f"t{n}:1x4" for n in range(60)), "--policy", "fifo"), 0, ""),
        (("compare", "TRACE", *CLUSTER, "--policies", ","), 2, "names no policy"),
        (("compare", "TRACE", *CLUSTER, "--policies", "fifo", "--out", "made", "--noise", "nan"), 3, "--noise: is no"),
        (("compare", "TRACE", *CLUSTER, "--policies", "fifo", "--out", "made", "--lie", "x"), 3, "--lie"),
        (("trace", "scale", "TRACE", "1e12"), 3, "F: 1e+12 times 2 jobs are more than 100,000,000"),
    ],
)
def test_words_of_a_command(
    words: tuple[str, ...], code: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text("submitted,duration,gpus\n0,5,1\n1,5,1\n")
    found, _, err = said(capsys, *(str(file) if word == "TRACE" else word for word in words))
    assert found == code
    assert told in err
