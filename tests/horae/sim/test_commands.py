"""simulate, compare, reproduce on the command line."""

from __future__ import annotations

import csv
import json
import pickle
import subprocess
import sys
import types
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from horae.sim import grids
from horae.sim.plans import Plan
from tests.horae.sim.made import CLUSTER, said
from tests.waiting import eventually

JOBS = "job,submitted,duration,gpus\na,0,100,2\nb,10,50,4\nc,20,30,1\n"


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "jobs.csv"
    path.write_text(JOBS)
    return str(path)


def test_simulate_says_when_jobs_end(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "out.csv"
    words = ("simulate", trace, *CLUSTER, "--policy", "srtf", "--ideal", "--jobs-out", str(rows), "--json")
    code, out, _ = said(capsys, *words)
    assert code == 0
    result = json.loads(out)
    assert list(result) == [
        "policy", "jobs", "completed", "makespan", "jct", "queueing", "rho", "gpu_seconds", "utilisation",
        "resizes", "migrations", "restart_seconds", "rounds", "decide_seconds", "seconds",
    ]  # fmt: skip
    with rows.open() as file:
        assert [(r["job"], float(r["finished"])) for r in csv.DictReader(file)] == [
            ("a", 150.0),
            ("b", 90.0),
            ("c", 50.0),
        ]


def test_simulate_takes_a_policys_options_and_the_first_jobs(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("simulate", trace, *CLUSTER, "--policy", "max-min", "--set", "over=job", "--limit", "2", "--json")
    assert json.loads(said(capsys, *words)[1])["jobs"] == 2
    code, _, err = said(capsys, *words[:-1], "--set", "over=dice")
    assert (code, "over" in err) == (3, True)


def test_a_malformed_row_is_refused_by_its_line_or_left_out(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(trace).write_text(JOBS + "d,30,-1,1\n")
    words = ("simulate", trace, *CLUSTER, "--policy", "fifo", "--json")
    code, _, err = said(capsys, *words)
    assert (code, f"{trace}:5: duration" in err) == (3, True)
    code, out, err = said(capsys, *words, "--skip-bad")
    assert (code, json.loads(out)["skipped"], json.loads(out)["jobs"]) == (0, {"malformed": 1}, 3)
    assert f"{trace}:5: duration" in err


def test_what_a_trace_asks_and_the_cluster_lacks_is_told_by_its_line_or_left_out(
    trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(trace).write_text(JOBS.replace("gpus\n", "gpus,model\n").replace(",2\n", ",2,\n").replace(",4\n", ",9,\n"))
    text = Path(trace).read_text().replace(",1\n", ",1,nets@gavel\n")
    Path(trace).write_text(text)
    words = ("simulate", trace, *CLUSTER, "--policy", "fifo", "--json")
    code, _, err = said(capsys, *words)
    assert (code, f"{trace}:3: gpus: job b needs 9 GPUs" in err, "--skip-bad" in err) == (3, True, True)
    Path(trace).write_text(text.replace(",9,", ",3,"))
    code, _, err = said(capsys, *words)
    assert (code, f"{trace}:4: model: job c: no table has this model" in err, "nets@gavel" in err) == (3, True, True)
    Path(trace).write_text(text)
    for more in ((), ("--engine", "arbiter", "--faults", "all")):
        code, out, err = said(capsys, *words, "--skip-bad", *more)
        assert json.loads(out)["skipped"] == {"malformed": 0, "too large": 1, "unknown model": 1}
        assert [line.partition(": job")[0] for line in err.splitlines()] == [f"{trace}:3: gpus", f"{trace}:4: model"]


def test_rows_that_contradict_their_app_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The remedy told of --skip-bad, which refused them too; the phases of a row left out bind nobody."""
    file = tmp_path / "sweep.csv"
    rows = ["0,5,1,a,2x9 1x9", "0,60,1,a,2x4 1x4", "0,60,1,a,4x4 1x4", "1,60,1,a,2x4 1x4"]
    file.write_text("\n".join(["submitted,duration,gpus,app,phases", *rows, ""]))
    words = ("simulate", str(file), *CLUSTER, "--policy", "fifo", "--json")
    code, _, err = said(capsys, *words)
    assert (code, f"{file}:2: phases: job 1 has 5 iterations, the phases of its app take 18" in err) == (3, True)
    code, out, err = said(capsys, *words, "--skip-bad")
    assert json.loads(out)["skipped"] == {"malformed": 0, "wrong phases": 2}
    assert (code, json.loads(out)["jobs"]) == (0, 2)
    wrong = [line.partition(": job")[0] for line in err.splitlines()]
    assert wrong == [f"{file}:2: phases", f"{file}:4: phases"]


@pytest.mark.parametrize(
    "words",
    [
        ("simulate", "{}", *CLUSTER, "--policy", "fifo", "--jobs-out"),
        ("trace", "scale", "{}", "2", "--out"),
        ("trace", "sample", "{}", "1", "--out"),
        ("trace", "describe", "{}", "--out"),
        ("trace", "fit", "{}", "--jobs", "9", "--out"),
        ("what-if", "--from-sacct", "{}", "--html"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_an_answer_never_replaces_what_was_asked_about(
    words: tuple[str, ...], trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor is anything worked out that could not be written: told before, not after it."""
    words = tuple(word.format(trace) for word in words)
    here = Path(trace).parent
    (here / "link.csv").symlink_to(trace)
    places = {trace: "is read", str(here / "link.csv"): "is read", str(here): "folder", str(here / "a" / "b"): "folder"}
    for out, told in places.items():
        code, _, err = said(capsys, *words, out)
        assert (code, told in err, words[-1] in err) == (3, True, True), err
    assert Path(trace).read_text() == JOBS


@pytest.mark.parametrize(
    "text",
    ["submitted;duration;gpus\n0;1;1\n", "submitted,duration,gpus\n0,1\0,1\n", JOBS + "d,30,1", JOBS + "d,5,1,1\n"],
)
def test_a_damaged_file_says_what_to_do(trace: str, capsys: pytest.CaptureFixture[str], text: str) -> None:
    Path(trace).write_text(text)
    for words in (("simulate", trace, *CLUSTER, "--policy", "fifo"), ("trace", "describe", trace)):
        code, _, err = said(capsys, *words)
        assert (code, f"{trace}:" in err, "correct the" in err) == (3, True, True)


def test_an_engine_that_there_is_not_is_refused(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, "simulate", trace, *CLUSTER, "--policy", "fifo", "--engine", "slow")
    assert (code, "fast or arbiter" in err) == (3, True)


def test_compare_goes_on_where_it_was(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("compare", trace, *CLUSTER, "--policies", "fifo,srtf", "--workers", "1", "--out", str(tmp_path / "grid"))
    code, out, err = said(capsys, *words, "--seeds", "1", "--json")
    assert (code, err.count("done;")) == (0, 2)
    assert list(json.loads(out)["policies"]) == ["fifo", "srtf"]
    code, out, err = said(capsys, *words, "--seeds", "1..2")
    assert (code, err.count("done;")) == (0, 2)
    assert (tmp_path / "grid" / "jct.png").exists()
    with (tmp_path / "grid" / "compare.csv").open() as file:
        assert [(r["policy"], r["seed"]) for r in csv.DictReader(file)] == [
            ("fifo", "1"), ("fifo", "2"), ("srtf", "1"), ("srtf", "2"),
        ]  # fmt: skip


def test_a_cell_that_fails_loses_nothing_else(trace: str, tmp_path: Path) -> None:
    good = Plan(Path(trace), "v100:1x4", "fifo")
    bad = Plan(Path(trace), "v100:1x4", "fifo", seed=1, throughputs="unheard")
    found = grids.run([bad, good], tmp_path, 1)
    assert ("unheard" in found[0].error, found[1].error) == (True, "")
    grids.write(found, tmp_path / "all.csv")
    assert "unheard" in (tmp_path / "all.csv").read_text()


def test_a_grid_that_is_killed_goes_on_and_leaves_nobody(trace: str, tmp_path: Path) -> None:
    jobs = [f"{n},{10 * n},30,{n % 3 + 1}" for n in range(100)]
    Path(trace).write_text("\n".join(["job,submitted,duration,gpus", *jobs, ""]))
    folder = tmp_path / "grid"
    words = [sys.executable, "-c", "from horae.cli import main; raise SystemExit(main())", "compare", trace, *CLUSTER]
    words += ["--policies", "fifo", "--seeds", "1..80", "--workers", "1", "--no-plots", "--out", str(folder)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert "done; 79 left" in running.stderr.readline()
        players = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
        running.kill()
    assert players
    eventually(lambda: not any(Path(f"/proc/{player}").exists() for player in players))
    done = {path.stem for path in folder.glob("*.json")}
    assert 1 <= len(done) < 80
    plans = grids.cells(Plan(Path(trace), "v100:1x4", ""), ["fifo"], [1, 2, 80])
    found = grids.run(plans, folder, 1)
    assert {grids.name_of(one.plan) for one in found if one.known} == done & {grids.name_of(plan) for plan in plans}
    for plan in plans:
        grids.cell(plan, tmp_path)
        name = f"{grids.name_of(plan)}.csv"
        assert (folder / name).read_bytes() == (tmp_path / name).read_bytes()


def test_what_lies_in_the_folder_is_known_by_all_that_it_was_made_of(trace: str, tmp_path: Path) -> None:
    speeds = tmp_path / "speeds.json"
    speeds.write_text('{"m": {"v100": {"1": 1}}}')
    first = Plan(Path(trace), "v100:1x4", "fifo", throughputs=str(speeds))

    def known(plan: Plan) -> bool:
        (found,) = grids.run([plan], tmp_path / "grid", 1)
        return found.known

    assert [known(first), known(first)] == [False, True]
    speeds.write_text('{"m": {"v100": {"1": 2.5}}}')
    assert not known(first)
    (tmp_path / "grid" / "fifo-0.gpus.csv").unlink()
    assert not known(first)
    # Another plan of the same name that comes to its end only in part.
    grids.forget(replace(first, ideal=True), tmp_path / "grid")
    (tmp_path / "grid" / "fifo-0.csv").write_text("job,ten")
    assert not known(first)
    assert "a,default," in (tmp_path / "grid" / "fifo-0.csv").read_text()


def test_a_cell_that_raises_what_nobody_expects_costs_no_other(
    trace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Plan.run

    def short_of_memory(plan: Plan, **more: bool) -> object:
        if plan.seed == 1:
            raise MemoryError("no room")
        return run(plan, **more)

    monkeypatch.setattr(Plan, "run", short_of_memory)
    found = grids.run(grids.cells(Plan(Path(trace), "v100:1x4", ""), ["fifo"], [0, 1, 2]), tmp_path, 1)
    assert [one.error for one in found] == ["", "MemoryError: no room", ""]


class _Cluster(types.ModuleType):
    """A stand-in with the calls that are made of Dask: what is handed to it travels as bytes, and a worker dies."""

    class Client:
        def __init__(self, address: str, timeout: float) -> None:
            if "nobody" in address:
                raise OSError("timed out")

        def wait_for_workers(self, n: int, timeout: float) -> None:
            pass

        def scatter(self, data: bytes, hash: bool) -> bytes:
            return data

        def submit(self, call: Callable[..., object], plan: Plan, *more: object, pure: bool) -> object:
            there, arguments = pickle.loads(pickle.dumps((plan, more)))
            if there.seed == 2:
                return _Future("error" if there.policy == "fifo" else "cancelled", None)
            return _Future("finished", pickle.loads(pickle.dumps(call(there, *arguments))))

        def close(self) -> None:
            pass

    @staticmethod
    def as_completed(futures: Iterable[object]) -> list[object]:
        return list(futures)


class _Future:
    def __init__(self, status: str, value: object) -> None:
        self.status, self._value = status, value

    def result(self) -> object:
        return self._value

    def exception(self) -> Exception | None:
        return RuntimeError("KilledWorker") if self.status == "error" else None


def test_a_grid_on_a_dask_cluster_is_the_grid_of_here(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", _Cluster("distributed"))
    words = ("compare", trace, *CLUSTER, "--policies", "fifo,srtf", "--no-plots", "--seeds", "1..2")
    code, _, err = said(capsys, *words, "--dask", "tcp://there:8786", "--out", str(tmp_path / "far"))
    assert (code, "KilledWorker" in err, "scheduler is gone" in err) == (1, True, True)
    assert said(capsys, *words, "--workers", "1", "--out", str(tmp_path / "near"))[0] == 0
    for name in ("fifo-1.csv", "srtf-1.csv", "fifo-1.gpus.csv"):
        assert (tmp_path / "far" / name).read_bytes() == (tmp_path / "near" / name).read_bytes()
    plans = [Plan(Path(trace), "v100:1x4", "fifo", seed=1)]
    assert [cell.known for cell in grids.run(plans, tmp_path / "far", 1)] == [True]
    code, _, err = said(capsys, *words, "--dask", "tcp://nobody:1", "--out", str(tmp_path / "none"))
    assert (code, "no Dask scheduler answers" in err) == (3, True)
    monkeypatch.setitem(sys.modules, "distributed", None)
    code, _, err = said(capsys, *words, "--dask", "tcp://there:8786", "--out", str(tmp_path / "none"))
    assert (code, "pip install 'horae[dask]'" in err) == (3, True)


def test_reproduce_lists_and_compares(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(capsys, "reproduce", "--list", "--json")
    assert {"name", "paper", "what", "seconds"} == set(json.loads(out)[0])
    _, out, _ = said(capsys, "reproduce", "gandiva-fair-table-3")
    assert "reproduced" in out
    assert ["C", "performance", "50", "50"] in [line.split() for line in out.splitlines()]
