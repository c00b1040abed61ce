"""One bad row among good ones, in every form: refused by file, line and column with what to do; left out and counted
where that is asked, and then nothing else of the file is lost or read as another thing than before."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horae.sim.traces.model import Trace, TraceJob
from horae.sim.traces.reading import FORMS, Malformed, read
from tests.horae.sim.made import CLUSTER, said

#: By form (a second shape of it after a `/`): whether its first line is a header, and a row.
SHAPES = {
    "ours": (
        "submitted,duration,gpus,job,tenant,min_gpus,max_gpus,model,iterations",
        "{n}0,5{n},1,j{n},t,1,4,resnet50@gavel,9{n}",
    ),
    "philly/pollux": (
        "timestamp,duration,num_gpus,gpu_time,cluster",
        "2017-10-09 07:{n}0:55,6{n}.0,1,66.0,c{n}",
    ),
    "philly/clusters": (
        "vc,submit_time_local,duration_s,num_gpus",
        "c{n},2017-10-09 07:{n}0:55,6{n}.0,1",
    ),
    "helios": ("job_id,user,vc,gpu_num,submit_time,duration", "{n},u,v{n},1,2020-04-01 00:{n}4:03,6{n}"),
    "alibaba/pods": (
        "name,cpu_milli,num_gpu,qos,creation_time,deletion_time,scheduled_time",
        "p{n},1,1,LS,1{n},11{n},3{n}",
    ),
    "alibaba/tasks": ("", "j{n},w,1,Terminated,11{n}.0,39{n}.0,600.0,1.0,100.0,T4"),
    "gavel": ("", "ResNet-18 (batch size 32)\tpython\twd\t-n\t1\t1477{n}\t1\t1\t-1.0\t{n}"),
    "pollux": ("name,time,application,num_replicas,batch_size", "cifar10-{n},10{n},cifar10,1,2048"),
    "sacct": (
        "JobIDRaw|JobID|User|Account|State|Submit|Eligible|Start|End|ElapsedRaw|AllocTRES|ReqTRES|NodeList",
        "{n}|{n}|a|ml{n}|COMPLETED|15{n}|15{n}|200|260|6{n}|gres/gpu=1|gres/gpu=1|n1",
    ),
    "swf": ("", "{n} 1{n} 5 6{n} 1 -1 -1 1 600 -1 1 {n} -1 -1 -1 -1 -1 -1"),
}
ROWS = 5
BAD = 2  #: how-manieth is bad, from 0


def lines(shape: str) -> list[str]:
    header, row = SHAPES[shape]
    return [*([header] if header else []), *(row.format(n=n + 1) for n in range(ROWS))]


def bad_line(shape: str, at: int = BAD) -> int:
    return at + 1 + bool(SHAPES[shape][0])


def among(shape: str, bad: str, at: int = BAD) -> str:
    rows = lines(shape)
    rows[bad_line(shape, at) - 1] = bad
    return "\n".join(rows) + "\n"


def read_as(shape: str, path: Path, *, skip_bad: bool = False) -> Trace:
    return read(path, shape.partition("/")[0], skip_bad=skip_bad)


def test_every_form_is_here_and_whole(tmp_path: Path) -> None:
    assert {shape.partition("/")[0] for shape in SHAPES} == FORMS.keys()
    for shape in SHAPES:
        (tmp_path / "t").write_text("\n".join(lines(shape)) + "\n")
        assert len(read_as(shape, tmp_path / "t").jobs) == ROWS, shape


#: What is wrong -> (shape, what of a row is replaced, by what, the column that is named).
WRONG: dict[str, list[tuple[str, str, str, str]]] = {
    "a negative time": [
        ("ours", "30,53", "-30,53", "submitted"), ("philly/pollux", "63.0", "-63.0", "duration"),
        ("philly/clusters", "63.0", "-63.0", "duration_s"), ("helios", ",63", ",-63", "duration"),
        ("alibaba/pods", ",13,", ",-13,", "creation_time"), ("alibaba/tasks", "113.0", "-113.0", "start_time"),
        ("gavel", "\t3", "\t-3", "arrival_time"), ("pollux", "103", "-103", "time"),
        ("sacct", "|63|", "|-63|", "ElapsedRaw"), ("swf", "3 13", "3 -13", "submit"),
    ],
    "an end before its start": [
        ("alibaba/pods", ",113,", ",14,", "deletion_time"), ("alibaba/pods", ",33", ",3", "scheduled_time"),
        ("alibaba/tasks", "393.0", "93.0", "end_time"),
    ],
    "text where a number belongs": [
        ("ours", ",53,", ",soon,", "duration"), ("philly/pollux", "63.0", "6E", "duration"),
        ("philly/clusters", "63.0", "0x63", "duration_s"), ("helios", ",63", ",6 3", "duration"),
        ("alibaba/pods", ",113,", ",1_13,", "deletion_time"), ("alibaba/tasks", "393.0", "1e", "end_time"),
        ("gavel", "14773", "many", "total_steps"), ("pollux", ",103,", ",nan,", "time"),
        ("sacct", "|63|", "|1-02:03:04|", "ElapsedRaw"), ("swf", " 63 ", " 6\x0c3 ", "run"),
    ],
    "no time": [
        ("philly/pollux", "2017-10-09 07", "2017-13-09 07", "timestamp"),
        ("philly/clusters", "2017-10-09 07:30:55", "None", "submit_time_local"),
        ("helios", "2020-04-01", "yesterday", "submit_time"), ("sacct", "|200|", "|noon|", "Start"),
        ("sacct", "|153|153|", "|Unknown|None|", "Submit"),
    ],
    "more GPUs than there are anywhere": [
        ("ours", ",1,j3", ",100001,j3", "gpus"), ("philly/pollux", ",1,66", ",100001,66", "num_gpus"),
        ("philly/clusters", ".0,1", ".0,100001", "num_gpus"), ("helios", ",1,2020", ",100001,2020", "gpu_num"),
        ("alibaba/pods", ",1,LS", ",100001,LS", "num_gpu"), ("alibaba/tasks", "100.0", "10000100.0", "plan_gpu"),
        ("gavel", "3\t1\t1", "3\t100001\t1", "scale_factor"), ("pollux", ",1,2048", ",100001,2048", "num_replicas"),
        ("sacct", "gres/gpu=1|gres", "gres/gpu=9999999999|gres", "AllocTRES"),
        ("swf", " -1 1 600", " -1 100001 600", "requested"),
    ],
    "part of a GPU, or a unit": [
        ("ours", ",1,j3", ",1.5,j3", "gpus"), ("helios", ",1,2020", ",1.5,2020", "gpu_num"),
        ("alibaba/tasks", ",w,1,", ",w,1.5,", "inst_num"),
        ("sacct", "gres/gpu=1|gres", "gres/gpu=1K|gres", "AllocTRES"),
        ("swf", " -1 1 600", " -1 1.5 600", "requested"),
    ],
    "a model that nobody knows": [
        ("gavel", "ResNet-18", "ResNet-19", "job_type"), ("gavel", "(batch size 32)", "(batch siz", "job_type"),
        ("pollux", ",cifar10,", ",gpt9,", "application"),
    ],
    "another separator": [
        (shape, separator, other, "")
        for shape, separator, other in (
            ("ours", ",", ";"), ("philly/pollux", ",", "\t"), ("philly/clusters", ",", "|"), ("helios", ",", ";"),
            ("alibaba/pods", ",", ";"), ("alibaba/tasks", ",", "\t"), ("gavel", "\t", ","), ("pollux", ",", ";"),
            ("sacct", "|", ","), ("swf", " ", ","),
        )
    ],
    "a NUL byte": [(shape, "1", "1\0", "") for shape in SHAPES],
    "no text": [(shape, "1", "1\udcff", "line") for shape in SHAPES],
    "the line above goes on": [(shape, "", "half a line\n", "") for shape in SHAPES],
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_it_is_refused_by_line_and_column_or_left_out_and_counted(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t"
    for shape, old, new, column in WRONG[what]:
        good = lines(shape)[bad_line(shape) - 1]
        bad = good.replace(old, new) if old else new + good
        assert bad != good, shape
        path.write_bytes(among(shape, bad).encode(errors="surrogateescape"))
        form = shape.partition("/")[0]
        code, _, err = said(capsys, "simulate", str(path), *CLUSTER, "--policy", "fifo", "--format", form)
        assert (code, f"{path}:{bad_line(shape)}: {column}" in err, "--skip-bad" in err) == (3, True, True), (
            shape,
            err,
        )
        found = read_as(shape, path, skip_bad=True)
        more = 0 if old else 1  # half a line is a row, too, and the row after it is whole
        assert [row.line for row in found.malformed] == [bad_line(shape)], shape
        assert len(found.jobs) == ROWS - 1 + more, shape


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if not SHAPES[shape][0]])
@pytest.mark.parametrize("bad", ["half a row", "\udcff", "\0", "a\tb\tc\td\te\tf\tg\th"])
def test_a_form_without_a_header_is_read_though_its_first_row_is_bad(shape: str, bad: str, tmp_path: Path) -> None:
    (path := tmp_path / "t").write_bytes(among(shape, bad, 0).encode(errors="surrogateescape"))
    found = read_as(shape, path, skip_bad=True)
    assert ([row.line for row in found.malformed], len(found.jobs)) == ([1], ROWS - 1)
    with pytest.raises(Malformed, match=":1: "):
        read_as(shape, path)


def test_rows_that_are_out_of_order_are_refused_in_ours_and_put_in_order_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for shape in SHAPES:
        first, *rest = lines(shape)[bool(SHAPES[shape][0]) :]
        path.write_text("\n".join([*lines(shape)[: bool(SHAPES[shape][0])], *rest, first, ""]))
        if shape == "ours":
            with pytest.raises(Malformed, match=f":{ROWS + 1}: submitted: out of order"):
                read_as(shape, path)
            continue
        at = [job.submitted for job in read_as(shape, path).jobs]
        assert (at, at[0], len(at)) == (sorted(at), 0.0, ROWS), shape


@pytest.mark.parametrize("shape", SHAPES)
def test_wherever_a_file_is_cut_no_job_is_another_than_it_was(shape: str, tmp_path: Path) -> None:
    path, whole = tmp_path / "t", ("\n".join(lines(shape)) + "\n").encode()
    path.write_bytes(whole)
    known = {told(job) for job in read_as(shape, path).jobs}
    for cut in range(whole.index(b"\n") + 1, len(whole)):
        path.write_bytes(whole[:cut])
        if whole[cut - 1 : cut] == b"\n":
            continue
        if shape == "ours":  # a person may have written it: it is read, and what is doubtful is told
            found = read_as(shape, path, skip_bad=True)
            assert found.remarks
        else:
            with pytest.raises(Malformed):
                read_as(shape, path)
            found = read_as(shape, path, skip_bad=True)
            assert {told(job) for job in found.jobs} <= known


def told(job: TraceJob) -> tuple[object, ...]:
    """All but when it came: that is from the first of those that are read."""
    return job.job, job.tenant, job.gpus, job.duration, job.min_gpus, job.max_gpus, job.model, job.iterations


PIECES = st.one_of(
    st.sampled_from(
        b'\0 \xff | , \t ; \r " - [ 1e999 9999999999999 . \x0b \x0c \x1c _ + nan \xe2\x80\xa8 \xc2\xa0 \xd9\xa3'.split(
            b" "
        )
    ),
    st.binary(max_size=4).filter(lambda raw: b"\n" not in raw),
)


@pytest.mark.parametrize("shape", SHAPES)
@given(st.data())
@settings(max_examples=60, deadline=None)
def test_damage_in_one_row_costs_no_other(shape: str, data: st.DataObject) -> None:
    """Each row is a job, malformed, or counted as none; and the others are what they were."""
    at = data.draw(st.integers(0, ROWS - 1))
    rows = [line.encode() for line in lines(shape)]
    line = bad_line(shape, at)
    raw = rows[line - 1]
    for _ in range(data.draw(st.integers(1, 3))):
        place, wide = data.draw(st.integers(0, len(raw))), data.draw(st.integers(0, 5))
        raw = raw[:place] + data.draw(PIECES) + raw[place + wide :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        path.write_bytes(b"\n".join(rows) + b"\n")
        before = read_as(shape, path)
        rows[line - 1] = raw
        path.write_bytes(b"\n".join(rows) + b"\n")
        found = read_as(shape, path, skip_bad=True)
    steps = 1 if shape == "sacct" and b"." in raw else 0  # a step is no row of its own
    empty = not raw.decode(errors="replace").strip()
    rest = len(found.jobs) + sum(found.skipped().values())
    together = 1 if shape in ("alibaba/tasks", "sacct") else 0  # rows of one name are one job
    assert ROWS - steps - empty - together <= rest <= ROWS
    # In our own form a row that comes too late in time makes those before it out of order.
    late = {row.line for row in found.malformed if "out of order" in row.what or "same name" in row.what}
    others = Counter(told(job)[1:] for job in before.jobs if job.line not in {line, *late})
    if not together:
        assert not others - Counter(told(job)[1:] for job in found.jobs)
