"""`horae decide`, `schema` and `policies`: what they print, and what they say when something is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from horae.cli import exits, main
from policy.text import answer, instance

TEXT = """\
cluster:
  nodes:
    - {name: a1, gpu_type: v100, gpus: 4}
    - {name: a2, gpu_type: v100, gpus: 4}
jobs:
  - {name: one, gpus: 3, throughput: {v100: 1.0}, work: {total: 100}}
  - {name: two, gpus: {min: 1, max: 8}, throughput: {v100: {1: 1.0, 8: 4.0}}, work: {total: 500}, allocation: {a2: 1}}
  - {name: big, gpus: 50}
policy: {name: max-min, options: {over: job}}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "i.yaml"
    path.write_text(TEXT)
    return str(path)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["decide", *words])
    out = capsys.readouterr()
    assert "Traceback" not in out.err + out.out
    return code, out.out, out.err


def test_json_is_the_documented_answer_and_equal_each_time(capsys: pytest.CaptureFixture[str], file: str) -> None:
    code, out, err = said(capsys, file, "--json")
    assert (code, err) == (0, "")
    assert said(capsys, file, "--json")[1] == out
    decision = answer.from_json(out)
    assert decision.policy == "max-min"
    assert decision.options == {"over": "job"}
    assert decision.allocation == {"one": {"a1": 3}, "two": {"a1": 1, "a2": 4}, "big": {}}


def test_people_get_columns(capsys: pytest.CaptureFixture[str], file: str) -> None:
    _, out, _ = said(capsys, file, "--policy", "afs-l", "--set", "network_packing=true")
    lines = out.splitlines()
    assert lines[0].startswith("afs-l tie=submitted")
    assert "network_packing=True, seed 0" in lines[0]
    assert lines[2].split() == ["JOB", "TENANT", "GPUS", "HELD", "NODES", "WHY", "REASON"]
    assert lines[3].split()[:3] == ["one", "one", "3"]
    assert any(line.startswith("feasible") and line.endswith("yes") for line in lines)
    assert any("infeasible" in line and "no set of healthy nodes" in line for line in lines)
    assert "\x1b" not in out


def test_one_job_explained(capsys: pytest.CaptureFixture[str], file: str) -> None:
    _, out, _ = said(capsys, file, "--explain", "two")
    assert "grew: grows from 1 to 5 GPUs" in out
    _, out, _ = said(capsys, file, "--explain", "two", "--json")
    assert json.loads(out)["reason"]["code"] == "grew"
    code, _, err = said(capsys, file, "--explain", "three")
    assert code == exits.NO_SUCH_JOB
    assert "it has one, two, big" in err


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--policy", "maxmin"), exits.USAGE, "did you mean 'max-min'"),
        (("--set", "ower=job"), exits.USAGE, "its options: over"),
        (("--set", "over=app"), exits.USAGE, "one of tenant, job"),
        (("--set", "over"), exits.USAGE, "KEY=VALUE"),
        (("--solver", "gurobi"), exits.USAGE, "highs or cbc"),
        (("--rounds", "3"), exits.BAD_FILE, "does not work in quanta"),
        (("--rounds", "0"), exits.USAGE, "greater than or equal to 1"),
        (("--bids", "one"), exits.USAGE, "takes no bids"),
        (("--perturb", "nobody"), exits.BAD_FILE, "one of big, one, two"),
        (("--explain", "one", "--rounds", "2"), exits.USAGE, "at a time"),
        (("--batch", "x.jsonl"), exits.USAGE, "line by line"),
    ],
)
def test_wrong_words(
    capsys: pytest.CaptureFixture[str], file: str, words: tuple[str, ...], code: int, says: str
) -> None:
    found, _, err = said(capsys, file, *words)
    assert found == code
    assert says in " ".join(err.replace("│", " ").split())


def test_wrong_options_in_the_file_have_its_line(capsys: pytest.CaptureFixture[str], file: str) -> None:
    Path(file).write_text(TEXT.replace("over: job", "over: nothing"))
    code, _, err = said(capsys, file)
    assert code == exits.BAD_FILE
    assert f"{file}:9: policy.options.over: is none of its values" in err
    Path(file).write_text(TEXT.replace("policy: {name: max-min, options: {over: job}}\n", ""))
    assert "no policy is named" in said(capsys, file)[2]


def test_bad_files(capsys: pytest.CaptureFixture[str], file: str, tmp_path: Path) -> None:
    Path(file).write_text(TEXT.replace("a2: 1", "a9: 1"))
    code, _, err = said(capsys, file)
    assert code == exits.BAD_FILE
    assert f"{file}:7: jobs[1].allocation.a9: no node 'a9'" in err
    assert said(capsys, str(tmp_path / "none"))[0] == exits.BAD_FILE
    assert said(capsys)[0] == exits.USAGE


def test_rounds_of_a_lottery(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "i.json"
    text = "cluster: {nodes: [{name: a, gpu_type: t, gpus: 1}]}\njobs: [{name: x, gpus: 1}, {name: y, gpus: 1}]"
    path.write_text(instance.to_text(instance.parse(text), "json"))
    words = (str(path), "--policy", "lottery", "--rounds", "40", "--json")
    code, out, _ = said(capsys, *words)
    assert code == 0
    fractions = json.loads(out)["fractions"]
    assert fractions["x"] + fractions["y"] == pytest.approx(1.0)
    assert 0 < fractions["x"] < 1
    assert said(capsys, *words)[1] == out
    assert "RAN" in said(capsys, *words[:-1])[1]


def test_bids(capsys: pytest.CaptureFixture[str], file: str) -> None:
    code, out, err = said(capsys, file, "--policy", "themis", "--bids", "two", "--json")
    assert code == 0, err
    bids = json.loads(out)["bids"]
    assert [b["gpus"] for b in bids] == sorted({b["gpus"] for b in bids})
    assert set(bids[0]) == {"gpus", "nodes", "rho"}
    assert "RHO" in said(capsys, file, "--policy", "themis", "--bids", "two")[1]


def test_perturb(capsys: pytest.CaptureFixture[str], file: str) -> None:
    code, out, _ = said(capsys, file, "--perturb", "two", "--json")
    assert code == 0
    judged = json.loads(out)
    assert judged["tenant"] == "two"
    assert {lie["kind"] for lie in judged["lies"]} == {"throughput", "idle", "work", "range", "demand", "split"}
    assert judged["best"]["kind"] == "split"  # over=job: a second job is a second share
    assert "a lie pays" in said(capsys, file, "--perturb", "two")[1]
    assert "no lie of these pays" in said(capsys, file, "--policy", "fifo", "--perturb", "big")[1]


# --- batches -------------------------------------------------------------------------------------------------


def batch(capsys: pytest.CaptureFixture[str], path: Path, lines: list[object]) -> tuple[int, list[Any], str]:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    code, out, err = said(capsys, "--batch", str(path), "--json")
    return code, [json.loads(line) for line in out.splitlines()], err


def test_a_batch_answers_line_by_line(capsys: pytest.CaptureFixture[str], file: str, tmp_path: Path) -> None:
    inline = instance.to_plain(instance.parse(TEXT))
    code, answers, _ = batch(
        capsys,
        tmp_path / "b.jsonl",
        [
            {"instance": file},
            {"instance": "i.yaml", "policy": "fifo", "seed": 3},
            "",
            {"instance": inline, "options": {"over": "tenant"}},
            {"instance": file, "policy": "lottery", "rounds": 2},
        ],
    )
    assert code == 0
    assert [a["policy"] for a in answers] == ["max-min", "fifo", "max-min", "lottery"]
    assert (answers[1]["seed"], answers[2]["options"]) == (3, {"over": "tenant"})
    assert set(answers[3]["fractions"]) == {"one", "two", "big"}


def test_bad_lines_are_answered_and_the_rest_goes_on(
    capsys: pytest.CaptureFixture[str], file: str, tmp_path: Path
) -> None:
    path = tmp_path / "b.jsonl"
    lines: list[object] = [
        {"instance": file},
        "{nonsense",
        {"instance": "nowhere.yaml"},
        {"instance": file, "polcy": "fifo"},
        {"instance": file, "policy": "zzz"},
        {"instance": {"cluster": {}, "jobs": [{"name": "x"}]}},
        {"instance": file, "rounds": 2},
        [1],
        {"instance": file, "policy": "fifo"},
    ]
    code, answers, err = batch(capsys, path, lines)
    assert code == exits.NO
    assert "7 lines" in err
    assert ["error" in a for a in answers] == [False, *[True] * 7, False]
    errors = [a.get("error", "") for a in answers]
    assert f"{path}:2: is not JSON" in errors[1]
    assert "nowhere.yaml: cannot be read" in errors[2]
    assert f"{path}:4: polcy: unknown key" in errors[3]
    assert "no policy 'zzz'" in errors[4]
    assert f"{path}:6: jobs[0].gpus: is missing" in errors[5]


# --- schema and policies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["instance", "config", "decision"])
def test_schemas(capsys: pytest.CaptureFixture[str], form: str) -> None:
    assert main(["schema", form]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["type"] == "object"
    assert schema["properties"]


def test_the_decision_schema_has_the_keys_of_a_decision(capsys: pytest.CaptureFixture[str], file: str) -> None:
    schema = answer.schema()
    plain = json.loads(said(capsys, file, "--json")[1])
    assert set(schema["required"]) <= set(plain) <= set(schema["properties"])
    for part in ("certificate",):
        assert set(plain[part]) == set(schema["properties"][part]["properties"])


def test_policies(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policies", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {"fifo", "max-min", "afs-l"} <= {p["name"] for p in listed}
    assert all(p["summary"] and p["paper"] for p in listed)
    assert main(["policies", "afs-l"]) == 0
    assert "network_packing" in capsys.readouterr().out
    assert main(["policies"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split()[0] == "POLICY"
    assert main(["policies", "zzz"]) == exits.BAD_FILE


@pytest.mark.parametrize("state", ["{turn: 7}", "{carrying: 7}", "{accounts: {one: [1]}}"])
def test_a_state_that_nothing_goes_on_from_has_its_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, state: str
) -> None:
    path = tmp_path / "saved.yaml"
    path.write_text(TEXT.replace("max-min, options: {over: job}", "gavel-max-min") + f"state: {state}\n")
    for more in ([], ["--rounds", "2"]):
        code, _, err = said(capsys, str(path), *more)
        assert code == exits.BAD_FILE
        assert f"{path}:{len(TEXT.splitlines()) + 1}: state" in err
        assert "returned it, or none" in err
