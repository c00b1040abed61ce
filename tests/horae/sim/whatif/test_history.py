"""`history` is arithmetic on the dump: equal to a slow second reading of every random one."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from horae.sim.traces.lines import TraceLines
from horae.sim.traces.malformed import Malformed
from horae.sim.traces.sacct.jobs import folded
from horae.sim.traces.sacct.records import records
from horae.sim.whatif.history import SiteHistory, history
from tests.horae.sim.whatif.by_hand import HEADER, dump, reckoned


def read(path: Path, data: str | bytes, **more: Any) -> SiteHistory:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    lines = TraceLines(path, **more)
    return history(folded(records(lines)[1]), len(lines.malformed))


@pytest.mark.parametrize("block", range(20))
def test_it_equals_a_second_reading_of_random_dumps(tmp_path: Path, block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        text = dump(seed)
        found, meant = read(tmp_path / "dump", text), reckoned(text)
        answer = found.answer
        assert answer["jobs"] == meant["jobs"] == answer["gpu_jobs"] + sum(answer["skipped"].values()), seed
        assert answer["gpu_jobs"] == meant["gpu_jobs"], seed
        assert answer["skipped"] == {k: meant[k] for k in ("no gpus", "never started")}, seed
        assert answer["gpu_hours"] == pytest.approx(meant["gpu_hours"], rel=1e-12), seed
        assert answer["wait"]["mean"] == pytest.approx(meant["wait_mean"], rel=1e-12), seed
        accounts = {k: (v["jobs"], v["gpu_hours"], v["wait_mean"]) for k, v in answer["by_account"].items()}
        assert accounts == {k: pytest.approx(v, rel=1e-12) for k, v in meant["by_account"].items()}, seed
        sizes = {k: (v["jobs"], v["wait_mean"]) for k, v in answer["by_size"].items()}
        assert sizes == {k: pytest.approx(v, rel=1e-12) for k, v in meant["by_size"].items()}, seed
        assert float(sum(found.held.most().values())) == pytest.approx(meant["cluster"], rel=1e-12), seed


def row(**cells: Any) -> str:
    usual = {
        "JobIDRaw": 7, "JobID": 7, "User": "ann", "Account": "ml", "State": "COMPLETED",
        "Submit": "2025-03-01T10:00:00", "Eligible": "2025-03-01T10:00:00", "Start": "2025-03-01T10:01:00",
        "End": "2025-03-01T11:01:00", "ElapsedRaw": 3600, "AllocTRES": "cpu=4,gres/gpu=2", "ReqTRES": "gres/gpu=2",
        "NodeList": "gpu[01-02]",
    }  # fmt: skip
    cells = {**usual, **({"JobID": cells["JobIDRaw"]} if "JobIDRaw" in cells else {}), **cells}
    return "|".join(str(cells[name]) for name in HEADER.split("|"))


def text(*rows: str) -> str:
    return "\n".join([HEADER, *rows, ""])


def test_times_are_read_as_they_stand_and_gzip_by_its_content(tmp_path: Path) -> None:
    found = read(tmp_path / "year.txt", gzip.compress(text(row()).encode()))
    assert found.answer["wait"] == {"mean": 60.0, "median": 60.0, "p95": 60.0}
    assert (found.answer["gpu_hours"], found.answer["utilisation"]) == (2.0, 1.0)
    assert found.held.most() == {"gpu01": 1, "gpu02": 1}


def test_what_ends_and_what_starts_in_one_second_do_not_overlap(tmp_path: Path) -> None:
    after = {"Start": "2025-03-01T11:01:00", "End": "2025-03-01T12:00:00"}
    assert sum(read(tmp_path / "d", text(row(), row(JobIDRaw=8, **after))).held.most().values()) == 2
    after["Start"] = "2025-03-01T11:00:59"
    assert sum(read(tmp_path / "d", text(row(), row(JobIDRaw=8, **after))).held.most().values()) == 4


def test_gpus_are_counted_once_where_sacct_tells_them_twice(tmp_path: Path) -> None:
    found = read(tmp_path / "d", text(row(AllocTRES="cpu=1,gres/gpu:a100=4,gres/gpu=4,gres/gpumem=9G,gres/gpuutil=3")))
    assert list(found.answer["by_size"]) == ["4"]
    assert found.held.type_of("gpu01") == "a100"


def test_the_rest_of_an_array_is_as_many_jobs_as_it_names(tmp_path: Path) -> None:
    waiting = row(JobIDRaw=9, JobID="9_[4-6,8%2]", Start="Unknown", End="Unknown", ElapsedRaw=0, AllocTRES="")
    answer = read(tmp_path / "d", text(row(), waiting)).answer
    assert (answer["jobs"], answer["skipped"]["never started"]) == (5, 4)


@pytest.mark.parametrize(
    ("lines", "where", "what"),
    [
        ([row(Start="yesterday")], ":2: Start:", "is no time: yesterday"),
        ([row(), row(ElapsedRaw="-4")], ":3: ElapsedRaw:", "is no number of seconds: -4"),
        ([row(AllocTRES="gres/gpu=many")], ":2: AllocTRES:", "gres/gpu is no number of GPUs"),
        ([row(JobIDRaw="x", JobID=7)], ":2: JobIDRaw:", "is no job number: x"),
        ([row(JobID="7_[1,2,...]")], ":2: JobID:", "names tasks that cannot be read"),
        ([row(NodeList="gpu[1-999999999]")], ":2: NodeList:", "more than 1,000,000 hosts"),
        ([row(NodeList="@all")], ":2: NodeList:", "is no list of hosts"),
        ([row().replace("|", ",")], ":2: JobID:", "separated by commas?"),
        ([row() + "|more"], ":2: field 14:", "14 fields, the header has 13"),
        ([row(User="a\0b")], ":2: User:", "holds a NUL byte"),
        ([row(JobIDRaw="7.")], ":2: JobIDRaw:", "is no number of a job, nor of a step"),
        ([row(Start="2025-03-01")], ":2: Start:", "is no time: 2025-03-01"),
        ([row(ElapsedRaw="01:00:00")], ":2: ElapsedRaw:", "is no number of seconds"),
        ([row(AllocTRES="gres/gpu=2K")], ":2: AllocTRES:", "is no number of GPUs"),
    ],
)
def test_a_bad_row_is_told_by_line_and_column(tmp_path: Path, lines: list[str], where: str, what: str) -> None:
    path = tmp_path / "dump"
    with pytest.raises(Malformed) as told:
        read(path, text(*lines))
    assert str(told.value).startswith(f"{path}{where}")
    assert what in str(told.value)


def test_a_dump_that_was_cut_is_told_so_wherever_it_was(tmp_path: Path) -> None:
    whole = text(row(), row(JobIDRaw=8)).encode()
    for cut in range(len(HEADER) + 2, len(whole)):
        if whole[cut - 1 : cut] == b"\n":
            continue
        with pytest.raises(Malformed, match="cut"):
            read(tmp_path / "dump", whole[:cut])
    packed = gzip.compress(whole)
    with pytest.raises(Malformed, match="gzip is cut"):
        read(tmp_path / "dump", packed[:-9])


def test_bad_rows_are_left_out_and_counted_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "dump"
    path.write_text(text(row(), row(JobIDRaw=8, Start="?"), row(JobIDRaw=9)) + row(JobIDRaw=10)[:-3])
    lines = TraceLines(path, skip_bad=True)
    jobs = list(folded(records(lines)[1]))
    assert [bad.line for bad in lines.malformed] == [3, 5]
    assert len(jobs) == 2


def test_a_column_that_is_missing_is_named_with_the_command_that_prints_it(tmp_path: Path) -> None:
    with pytest.raises(Malformed, match=r":1: NodeList: .*sacct -a -D -P"):
        read(tmp_path / "dump", text().replace("|NodeList", ""))


def test_odd_rows_of_a_dump(tmp_path: Path) -> None:
    """Bars at the end (`sacct -p`), columns that are not needed, units, names that are not ASCII, kinds of GPUs and of
    resources that nobody knows, steps of all kinds, and every way to end."""
    rows = [
        row(Account="ärzte", User="Åsa", AllocTRES="cpu=4n,mem=64Gn,fs/disk=1K,gres/gpu:h100-80gb=2,gres/tmpfs=9T"),
        *(row(JobIDRaw=f"7.{step}", AllocTRES="gres/gpu=2") for step in ("batch", "extern", "interactive", "0", "TBD")),
        *(row(JobIDRaw=8 + n, State=state) for n, state in enumerate(
            ("TIMEOUT", "NODE_FAIL", "PREEMPTED", "REQUEUED", "CANCELLED by 1000", "OUT_OF_MEMORY", "DEADLINE")
        )),
        row(JobIDRaw=20, JobID="18_2"),
        row(JobIDRaw=21, JobID="21+0"), row(JobIDRaw=22, JobID="21+1"), row(JobIDRaw="22.0", JobID="21+1.0"),
        row(JobIDRaw=30, State="PENDING", Start="Unknown", End="Unknown", ElapsedRaw=0, AllocTRES="",
            NodeList="None assigned"),
        row(JobIDRaw=31, State="CANCELLED", Start="None", ElapsedRaw=0, AllocTRES="", NodeList="None assigned"),
        row(JobIDRaw=32, State="RUNNING", End="Unknown", ElapsedRaw=60),
    ]  # fmt: skip
    lines = [f"{HEADER}|ReqMem|"] + [f"{each}|4Gc|" for each in rows]
    answer = read(tmp_path / "d", "\n".join([*lines, ""])).answer
    assert (answer["jobs"], answer["gpu_jobs"], answer["skipped"]["never started"]) == (13, 11, 2)
    assert answer["by_account"]["ärzte"]["gpu_hours"] == 2.0
    assert answer["gpu_hours"] == pytest.approx(2.0 * 11 + 2 * 60 / 3600)
    assert answer["by_size"] == {"2": {"jobs": 10, "wait_mean": 60.0}, "4": {"jobs": 1, "wait_mean": 60.0}}
    assert {"TIMEOUT", "NODE_FAIL", "PREEMPTED", "REQUEUED", "CANCELLED", "RUNNING"} <= answer["by_state"].keys()


def test_dumps_of_two_months_put_together_count_a_start_once(tmp_path: Path) -> None:
    """The first saw it run. Another start of the same job, and another user's, are what they were."""
    running = row(State="RUNNING", End="Unknown", ElapsedRaw=600)
    again = row(Submit="2025-03-01T11:05:00", Eligible="2025-03-01T11:05:00", Start="2025-03-01T11:06:00",
                End="2025-03-01T12:06:00")  # fmt: skip
    rows = [running, row(JobIDRaw=8), row(), row(User="bob"), again, row(JobIDRaw=8)]
    (path := tmp_path / "d").write_text(text(*rows))
    lines = TraceLines(path)
    past = history(folded(records(lines)[1], lines))
    assert (past.answer["gpu_jobs"], past.answer["gpu_hours"]) == (3, 2.0 * 4)
    assert past.answer["by_state"] == {"COMPLETED": 8.0}
    (told,) = lines.remarks
    assert (told.line, told.column, told.what[:12]) == (2, "JobIDRaw", "2 such rows ")
    assert not lines.malformed


def test_a_start_before_its_job_was_eligible_is_told(tmp_path: Path) -> None:
    """An hour comes twice where the clock is put back, and sacct's words do not tell which it is."""
    back = {"Submit": "2025-10-26T02:59:30", "Eligible": "2025-10-26T02:59:30", "Start": "2025-10-26T02:00:10",
            "End": "2025-10-26T03:00:10"}  # fmt: skip
    (path := tmp_path / "d").write_text(text(row(), row(JobIDRaw=8, **back), row(JobIDRaw=9, **back)))
    lines = TraceLines(path)
    assert len(list(folded(records(lines)[1], lines))) == 3
    (told,) = lines.remarks
    assert (told.line, told.column, told.value) == (3, "Start", "SLURM_TIME_FORMAT=%s")
    assert told.what.startswith("2 such rows start before they are eligible")
