"""Whatever a file holds, a reader makes jobs of it or says what is malformed: never another exception, never a hang."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horae.sim.traces.reading import FORMS, Malformed, read

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
