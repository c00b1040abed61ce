"""The traces of others: rows of public ones, and small ones in their documented forms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from horae.sim.traces.model import TraceJob
from horae.sim.traces.reading import Malformed, read
from horae.tables import table

DATA = Path(__file__).parent / "data"


def written(folder: Path, text: str) -> Path:
    path = folder / "trace"
    path.write_text(text)
    return path


def test_every_excerpt_says_where_it_is_from() -> None:
    rows = [line.split("\t") for line in (DATA / "PROVENANCE.tsv").read_text().splitlines()]
    assert sorted(row[0] for row in rows[1:]) == sorted(p.name for p in DATA.iterdir() if p.name != "PROVENANCE.tsv")
    assert all(row[4] in ("MIT", "Apache-2.0") for row in rows[1:])


def test_gavel_three_widths() -> None:
    simulated = read(DATA / "gavel_simulated.trace", "gavel").jobs
    assert (len(simulated), simulated[1].submitted, simulated[1].gpus) == (12, 219316.0, 4)
    physical = read(DATA / "gavel_physical.trace", "gavel").jobs
    assert len(physical) == 13
    first = physical[0]
    assert first.model == "resnet18-128@gavel"
    assert first.duration == pytest.approx(first.iterations / table("gavel")["resnet18-128"]["v100"][first.gpus])
    shockwave = read(DATA / "shockwave.trace", "gavel").jobs
    assert (shockwave[1].submitted, shockwave[1].duration, shockwave[1].iterations) == (55.0, 3338.0, 143450.0)


def test_pollux_and_a_model_that_nobody_knows(tmp_path: Path) -> None:
    jobs = read(DATA / "pollux.csv", "pollux").jobs
    assert (jobs[0].job, jobs[0].submitted, jobs[1].submitted, jobs[0].gpus) == ("cifar10-0", 0.0, 3.0, 6)
    text = "name,time,application,num_replicas,batch_size\na,1,gpt9,1,8\n"
    with pytest.raises(Malformed, match=r"trace:2: application: is none of bert, .*: gpt9"):
        read(written(tmp_path, text), "pollux")


def test_philly_tables_are_put_in_order_and_begin_at_0(tmp_path: Path) -> None:
    text = (
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n2017-10-09 07:00:55,5.0,8,40.0,6214e9\n"
    )
    jobs = read(written(tmp_path, text), "philly").jobs
    assert jobs == (TraceJob("2", 0.0, 8, 5.0, "6214e9"), TraceJob("1", 60.0, 1, 66.0, "11cb48"))


def test_philly_log_is_read_a_job_at_a_time(tmp_path: Path) -> None:
    def attempt(start: str | None, end: str | None, gpus: int) -> dict[str, object]:
        return {
            "start_time": start,
            "end_time": end,
            "detail": [{"ip": "m1", "gpus": [f"gpu{n}" for n in range(gpus)]}],
        }

    def job(name: str, *attempts: dict[str, object]) -> dict[str, object]:
        return {"jobid": name, "vc": "v", "submitted_time": "2017-10-07 01:00:00", "attempts": list(attempts)}

    log = [
        job(
            "a",
            attempt("2017-10-07 01:12:09", "2017-10-07 01:13:09", 8),
            attempt("2017-10-07 02:00:00", "2017-10-07 02:00:30", 4),
        ),
        job("b"),
        job("c", attempt("2017-10-07 01:12:09", "None", 1)),
    ]  # fmt: skip
    found = read(written(tmp_path, json.dumps(log, indent=4)), "philly")
    assert found.jobs == (TraceJob("a", 0.0, 8, 90.0, "v"),)
    assert found.left_aside == {"never started": 1, "no end": 1}
    with pytest.raises(Malformed, match=r":\d+: job: the list is cut"):
        read(written(tmp_path, json.dumps(log, indent=4)[:-40]), "philly")


def test_helios(tmp_path: Path) -> None:
    text = (
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
        "7,u1,vcA,8,32,1,COMPLETED,2020-04-01 00:04:03,2020-04-01 00:04:05,2020-04-01 00:05:05,60,2\n"
        "8,u1,vcA,0,32,1,COMPLETED,2020-04-01 00:04:03,2020-04-01 00:04:05,2020-04-01 00:05:05,60,2\n"
    )
    found = read(written(tmp_path, text), "helios")
    assert (found.jobs, found.left_aside) == ((TraceJob("7", 0.0, 8, 60.0, "vcA"),), {"no gpus": 1})


def test_alibaba_tasks_of_a_job_are_one_gang(tmp_path: Path) -> None:
    text = (
        "j1,ps,2,Terminated,100.0,400.0,600.0,1.0,,MISC\n"
        "j2,worker,1,Running,150.0,,600.0,1.0,50.0,T4\n"
        "j1,worker,3,Terminated,110.0,390.0,600.0,1.0,50.0,T4\n"
    )
    found = read(written(tmp_path, text), "alibaba")
    assert (found.jobs, found.left_aside) == ((TraceJob("j1", 0.0, 2, 300.0),), {"no end": 1})


def test_alibaba_pods(tmp_path: Path) -> None:
    text = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "p0,1,1,2,1000,,LS,Succeeded,10,110,30\np1,1,1,0,0,,BE,Succeeded,10,110,30\np2,1,1,1,460,,BE,Pending,11,110,\n"
    )
    found = read(written(tmp_path, text), "alibaba")
    assert found.jobs == (TraceJob("p0", 0.0, 2, 80.0, "LS"),)
    assert found.left_aside == {"no gpus": 1, "never started": 1}


def test_swf(tmp_path: Path) -> None:
    row = "{} {} 5 {} {} -1 -1 {} 600 -1 1 3 -1 -1 -1 -1 -1 -1\n"
    text = (
        "; Computer: a\n; Note: b\n"
        + row.format(1, 10, 60, 4, 8)
        + row.format(2, 20, 60, 4, -1)
        + row.format(3, 30, -1, 1, 1)
    )
    found = read(written(tmp_path, text), "swf")
    assert found.jobs == (TraceJob("1", 0.0, 8, 60.0, "user3"), TraceJob("2", 10.0, 4, 60.0, "user3"))
    assert found.left_aside == {"no run time": 1}
    with pytest.raises(Malformed, match=r"trace:3: wait: 2 fields, a row of this form has 18"):
        read(written(tmp_path, "; c\n" + row.format(1, 1, 1, 1, 1) + "2 20"), "swf")


def test_sacct_jobs_are_as_long_as_all_their_incarnations(tmp_path: Path) -> None:
    head = "JobIDRaw|JobID|User|Account|State|Submit|Eligible|Start|End|ElapsedRaw|AllocTRES|ReqTRES|NodeList\n"
    rows = (
        "5|5|a|ml|PREEMPTED|100|110|120|150|30|gres/gpu=2|gres/gpu=2|n1\n"
        "5|5|a|ml|COMPLETED|150|150|200|260|60|gres/gpu=2|gres/gpu=2|n1\n"
        "5.batch|5.batch||ml|COMPLETED|150|150|200|260|60|gres/gpu=2||n1\n"
        "6|6|a|ml|COMPLETED|100|100|100|160|60|cpu=2|cpu=2|n1\n"
    )
    found = read(written(tmp_path, head + rows), "sacct")
    assert found.jobs == (TraceJob("5.0", 0.0, 2, 90.0, "ml"),)
    assert found.left_aside == {"no gpus": 1}
