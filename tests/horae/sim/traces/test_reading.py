"""Our own form: what a row means, and every way in which a file can be wrong, told by line and column."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from horae.sim.traces import lines as line_reader
from horae.sim.traces.model import TraceJob
from horae.sim.traces.reading import Malformed, read
from policy.model import BadInput

HEAD = "submitted,duration,gpus\n"


def trace(folder: Path, data: str | bytes) -> Path:
    path = folder / "jobs.csv"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def test_columns_that_are_left_out_mean_what_the_form_says(tmp_path: Path) -> None:
    (job,) = read(trace(tmp_path, HEAD + "0,10.5,4\n")).jobs
    assert job == TraceJob("1", 0.0, 4, 10.5, "default", "1", 4, 4, None, None, True)


def test_columns_come_in_any_order_and_those_of_others_are_passed_over(tmp_path: Path) -> None:
    text = (
        "gpus,note,submitted,tenant,job,app,min_gpus,max_gpus,model,iterations,known\r\n"
        '4,"a, b",7,vision,one,sweep,2,8,resnet50@gavel,900,0\r\n'
    )
    (job,) = read(trace(tmp_path, text)).jobs
    assert job == TraceJob("one", 7.0, 4, None, "vision", "sweep", 2, 8, "resnet50@gavel", 900.0, False)


def test_gzip_is_told_by_content_and_a_last_line_needs_no_end(tmp_path: Path) -> None:
    assert len(read(trace(tmp_path, gzip.compress((HEAD + "0,1,1\n5,1,1").encode()))).jobs) == 2


BAD = [
    ("", ":1: header:", "the file is empty"),
    ("submitted;duration;gpus\n0;1;1\n", ":1: header:", "the separator is commas"),
    ("submitted,gpus\n0,1\n", ":1: duration:", "lacks this column"),
    ("submitted,duration,gpus,gpus\n0,1,1,1\n", ":1: gpus:", "twice"),
    (HEAD + "0,1,1\n5;1;1\n", ":3: duration:", "1 field, the header has 3 (separated by semicolons?): 5;1;1"),
    (HEAD + "0,1,1\n5,1\n", ":3: gpus:", "2 fields, the header has 3"),
    (HEAD + "0,1,1\n5,1", ":3: gpus:", "(the file is cut)"),
    (HEAD + "0,1,1,1\n", ":2: field 4:", "4 fields, the header has 3"),
    (HEAD + "5,1,1\n4,1,1\n", ":3: submitted:", "out of order"),
    (HEAD + "-1,1,1\n", ":2: submitted:", "is negative: -1"),
    (HEAD + "0,-0.5,1\n", ":2: duration:", "is negative: -0.5"),
    (HEAD + "0,1,0\n", ":2: gpus:", "is below 1: 0"),
    (HEAD + "0,1,1.5\n", ":2: gpus:", "is no whole number: 1.5"),
    (HEAD + "0,1,900000\n", ":2: gpus:", "is above 100000"),
    (HEAD + "0,soon,1\n", ":2: duration:", "is no number: soon"),
    (HEAD + "0,nan,1\n", ":2: duration:", "is no number: nan"),
    (HEAD + "0,1_0,1\n", ":2: duration:", "is no number: 1_0"),
    (HEAD + "0,,1\n", ":2: duration:", "is empty"),
    (HEAD + "0,1\0,1\n", ":2: duration:", "holds a NUL byte"),
    (HEAD + '0,"1,1\n', ":2: line:", "quotes do not match"),
    (HEAD.encode() + b"0,\xff,1\n", ":2: line:", "is not UTF-8"),
    (HEAD.replace("\n", ",min_gpus\n") + "0,1,2,3\n", ":2: min_gpus:", "is above gpus, 2: 3"),
    (HEAD.replace("\n", ",max_gpus\n") + "0,1,2,1\n", ":2: max_gpus:", "is below gpus, 2: 1"),
    (HEAD.replace("\n", ",known\n") + "0,1,2,yes\n", ":2: known:", "is neither 0 nor 1: yes"),
    (HEAD.replace("\n", ",job\n") + "0,1,2,a\n0,1,2,a\n", ":3: job:", "line 2 has the same name: a"),
    (HEAD.replace("\n", ",slowdown\n") + "0,1,2,1.2/1.1/1\n", ":2: slowdown:", "falls with the distance: 1.2/1.1/1"),
    (HEAD.replace("\n", ",loss\n") + "0,1,2,0.4/2/9\n", ":2: loss:", "rises"),
    (HEAD.replace("\n", ",loss\n") + "0,1,2,low\n", ":2: loss:", "is not START/END/HALF (2.3/0.4/500): low"),
    (HEAD.replace("\n", ",phases\n") + "0,1,2,4x9 4x9\n", ":2: phases:", "keeps as many jobs"),
    (HEAD.replace("\n", ",phases\n") + "0,1,2,4 by 9\n", ":2: phases:", "is not JOBSxITERATIONS"),
    (gzip.compress((HEAD + "0,1,1\n" * 9).encode())[:-12], ":", "the gzip is cut or damaged"),
]


@pytest.mark.parametrize(("data", "where", "what"), BAD, ids=[str(n) for n in range(len(BAD))])
def test_what_is_malformed_is_told_by_file_line_column_and_value(
    tmp_path: Path, data: str | bytes, where: str, what: str
) -> None:
    path = trace(tmp_path, data)
    with pytest.raises(Malformed) as told:
        read(path)
    assert str(told.value).startswith(f"{path}{where}")
    assert what in str(told.value)


def test_with_skip_bad_the_rest_is_read_and_each_bad_row_kept(tmp_path: Path) -> None:
    found = read(trace(tmp_path, HEAD + "5,1,1\n4,1,1\nx,1,1\n6,1,0\n7,1\n8,1,1\n"), skip_bad=True)
    assert [job.submitted for job in found.jobs] == [5, 8]
    assert [(bad.line, bad.column) for bad in found.malformed] == [
        (3, "submitted"), (4, "submitted"), (5, "gpus"), (6, "gpus"),
    ]  # fmt: skip
    assert found.skipped() == {"malformed": 4}


def test_a_file_that_is_all_wrong_is_not_listed_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_reader, "MOST_MALFORMED", 10)
    with pytest.raises(Malformed, match="more than 10 rows"):
        read(trace(tmp_path, HEAD + "x,1,1\n" * 50), skip_bad=True)


def test_gigabytes_without_a_line_end_are_refused_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "hole"
    path.write_text(HEAD)
    os.truncate(path, 2 << 30)
    program = (
        "import resource, sys; from pathlib import Path; from horae.sim.traces.reading import *\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "try: read(Path(sys.argv[1]))\nexcept Malformed as told: print(told)"
    )
    said = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    assert said.stdout.startswith(f"{path}:2: line: longer than")


def test_a_form_that_there_is_not_is_named_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="ours, philly, helios, alibaba, gavel, pollux, sacct, swf"):
        read(trace(tmp_path, HEAD), "lublin")


def test_parquet_without_its_package_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from horae.cli import main

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["trace", "describe", str(trace(tmp_path, b"PAR1....PAR1"))]) == 3
    assert "pip install 'horae[parquet]'" in capsys.readouterr().err


def test_parquet_is_read_as_the_same_rows_of_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a stand-in with the three calls that are made of pyarrow."""
    columns = {"submitted": [0.0, 5.5], "duration": [9, 10], "gpus": [1, 2], "tenant": ['a "b", c', None]}

    class Batch:
        def to_pydict(self) -> dict[str, list[object]]:
            return {name: list(values) for name, values in columns.items()}

    class ParquetFile:
        def __init__(self, path: Path) -> None:
            self.schema_arrow = types.SimpleNamespace(names=list(columns))

        def iter_batches(self, batch_size: int) -> list[Batch]:
            return [Batch()]

    arrow, parquet = types.ModuleType("pyarrow"), types.ModuleType("pyarrow.parquet")
    arrow.__dict__["ArrowException"], parquet.__dict__["ParquetFile"] = Exception, ParquetFile
    monkeypatch.setitem(sys.modules, "pyarrow", arrow)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)
    jobs = read(trace(tmp_path, b"PAR1....PAR1")).jobs
    assert jobs == (TraceJob("1", 0.0, 1, 9.0, 'a "b", c'), TraceJob("2", 5.5, 2, 10.0))
    columns["gpus"][1] = 0
    with pytest.raises(Malformed, match=r"jobs.csv:3: gpus: is below 1: 0"):
        read(tmp_path / "jobs.csv")
