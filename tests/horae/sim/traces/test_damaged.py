"""Whatever a file holds, a reader makes jobs of it or says what is malformed: never another exception, never a hang."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horae.sim.traces import reading
from horae.sim.traces.forms import philly
from horae.sim.traces.reading import FORMS, Malformed, read
from tests.horae.sim.made import said

SEEDS = {
    "ours": "submitted,duration,gpus,job,min_gpus,max_gpus,model,iterations\n0,5,2,a,1,4,m,9\n1,6,2,b,,,,\n",
    "philly": '[{"jobid":"a","vc":"v","submitted_time":"2017-10-07 01:00:00","attempts":[{"start_time":'
    '"2017-10-07 01:12:09","end_time":"2017-10-07 01:13:09","detail":[{"ip":"m","gpus":["g0"]}]}]}]\n',
    "helios": "job_id,gpu_num,submit_time,duration\n7,8,2020-04-01 00:04:03,60\n",
    "alibaba": "j1,ps,2,Terminated,100.0,400.0,600.0,1.0,,MISC\nj1,w,3,Terminated,110.0,390.0,600.0,1.0,50.0,T4\n",
    "gavel": "ResNet-18 (batch size 32)\tpython\twd\t-n\t1\t14775\t1\t1\t-1.0\t0\n",
    "pollux": "name,time,application,num_replicas,batch_size\ncifar10-0,107,cifar10,6,2048\n",
    "sacct": "JobIDRaw|JobID|User|Account|State|Submit|Eligible|Start|End|ElapsedRaw|AllocTRES|ReqTRES|NodeList\n"
    "5|5_[3-9%2]|a|ml|PENDING|100|110|Unknown|None|0||gres/gpu:a=2|None assigned\n"
    "6|6+0|a|ml|COMPLETED|150|150|200|260|60|gres/gpu=2|gres/gpu=2|n[1-2,7]\n",
    "swf": "; c\n1 10 5 60 4 -1 -1 8 600 -1 1 3 -1 -1 -1 -1 -1 -1\n",
}

PIECES = st.one_of(
    st.sampled_from(
        [b"\0", b"\xff", b"|", b",", b"\t", b";", b"\n", b'"', b"-1", b"[", b"]", b"1e999", b"99999999999"]
    ),
    st.binary(max_size=6),
)


def test_every_form_has_a_seed_and_it_is_whole(tmp_path: Path) -> None:
    assert SEEDS.keys() == FORMS.keys()
    for form, text in SEEDS.items():
        (tmp_path / form).write_text(text)
        assert read(tmp_path / form, form).jobs, form


@pytest.mark.parametrize("form", sorted(FORMS))
@given(st.data())
@settings(max_examples=40, deadline=None)
def test_damage_anywhere_is_told_or_passed_over(form: str, data: st.DataObject) -> None:
    raw = SEEDS[form].encode()
    for _ in range(data.draw(st.integers(1, 4))):
        at, wide = data.draw(st.integers(0, len(raw))), data.draw(st.integers(0, 9))
        raw = raw[:at] + data.draw(PIECES) + raw[at + wide :]
    if data.draw(st.booleans()):
        packed = gzip.compress(raw)
        raw = packed[: data.draw(st.integers(0, len(packed)))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        path.write_bytes(raw)
        for skip_bad in (False, True):
            try:
                found = read(path, form, skip_bad=skip_bad)
            except Malformed as told:
                assert str(told).startswith(f"{path}:")
                continue
            assert [j.submitted for j in found.jobs] == sorted(j.submitted for j in found.jobs)
            assert all(j.gpus >= 1 and (j.duration is None or j.duration >= 0) for j in found.jobs)


@pytest.mark.parametrize("form", sorted(FORMS.keys() - {"ours", "philly"}))
def test_what_a_program_wrote_and_was_cut_in_its_last_number_is_refused(form: str, tmp_path: Path) -> None:
    """`60` that lost its end is a good `6`. (The list of Philly's log has an end.)"""
    path, text = tmp_path / "t", SEEDS[form]
    path.write_text(text.removesuffix("\n"))
    last = text.count("\n")
    with pytest.raises(Malformed, match=rf":{last}: \w+: the last line has no end: the dump is cut"):
        read(path, form)
    assert [bad.line for bad in read(path, form, skip_bad=True).malformed] == [last]


@pytest.mark.parametrize(
    ("words", "more"), [(["simulate"], ["--cluster", "v100:1x8", "--policy", "fifo"]), (["trace", "describe"], [])]
)
def test_a_last_line_of_ours_without_its_end_is_read_and_told(
    words: list[str], more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may have been written by hand: `60` and the beginning of `600` look the same."""
    path = tmp_path / "t.csv"
    path.write_text("submitted,duration,gpus\n0,60,1\n5,60,1\n")
    code, whole, err = said(capsys, *words, str(path), *more, "--json")
    assert (code, err) == (0, "")
    path.write_text("submitted,duration,gpus\n0,60,1\n5,60,1")
    code, out, err = said(capsys, *words, str(path), *more, "--json")
    assert (code, json.loads(out)["jobs"]) == (0, json.loads(whole)["jobs"])
    assert f"{path}:3: gpus: the last line has no end" in err


@pytest.mark.parametrize("form", sorted(FORMS.keys() - {"philly"}))
def test_lines_that_carriage_returns_alone_end_are_refused_as_such(form: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes((2 * SEEDS[form]).replace("\n", "\r").encode())
    for skip_bad in (False, True):
        with pytest.raises(Malformed, match=":1: header: its lines end with carriage returns alone"):
            read(path, form, skip_bad=skip_bad)


@pytest.mark.parametrize(
    ("form", "column"),
    [("helios", "gpu_num"), ("alibaba", "plan_gpu"), ("gavel", "scale_factor"), ("pollux", "num_replicas"),
     ("sacct", "AllocTRES"), ("swf", "requested"), ("philly", "attempts"), ("ours", "gpus")],
)  # fmt: skip
def test_a_job_that_is_too_large_is_told_by_the_forms_own_column(
    form: str, column: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t"
    path.write_text(
        SEEDS[form].replace('["g0"]', '["g0","g1"]').replace("14775\t1", "14775\t2").replace("0,5,2,a,1", "0,5,2,a,2")
    )
    code, _, err = said(capsys, "simulate", str(path), "--cluster", "v100:1x1", "--policy", "fifo", "--format", form)
    assert code == 3
    assert f": {column}: " in err
    assert "GPUs, more than the cluster has (1)" in err
    assert "--skip-bad" in err


def test_a_job_whose_one_task_is_malformed_is_counted_once(tmp_path: Path) -> None:
    """And not as one without GPUs as well."""
    path = tmp_path / "t"
    path.write_text(SEEDS["alibaba"] + "j2,w,1,Terminated,5.0,9.0,600.0,1.0,many,T4\n")
    found = read(path, "alibaba", skip_bad=True)
    assert [(job.job, job.gpus) for job in found.jobs] == [("j1", 2)]
    assert found.skipped() == {"malformed": 1}


def test_more_jobs_than_there_is_memory_for_are_refused_and_not_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_JOBS", 3)
    path = tmp_path / "t"
    path.write_text("submitted,duration,gpus\n" + "1,1,1\n" * 4)
    for skip_bad in (False, True):
        with pytest.raises(Malformed, match=r":5: job: more than 3 jobs; .*horae trace sample"):
            read(path, skip_bad=skip_bad)


def test_a_job_of_a_million_lines_is_decoded_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = Counter[str]()

    class Counted(json.JSONDecoder):
        def raw_decode(self, s: str, idx: int = 0) -> tuple[object, int]:
            tries["all"] += 1
            return super().raw_decode(s, idx)

    monkeypatch.setattr(philly.json, "JSONDecoder", Counted)
    path = tmp_path / "t"
    path.write_text(SEEDS["philly"].replace('["g0"]', "[" + '"g0",\n' * 1_000_000 + '"g0"]'))
    assert [job.gpus for job in read(path, "philly").jobs] == [1_000_001]
    assert tries["all"] < 40
