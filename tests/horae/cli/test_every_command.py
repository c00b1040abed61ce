"""Every command that there is, found by walking the tree of them: help with an example, JSON on success and failure."""

from __future__ import annotations

import getpass
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

from horae.api.client import Client
from horae.cli import exits, main, wait
from tests.horae.cli.conftest import Horae
from tests.horae.cli.every import COMMANDS, WITHOUT, Path_, named
from tests.horae.sim.whatif.by_hand import HEADER
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]
CLUSTER = ("--cluster", "v100:1x4")
SACCT = f"""\
{HEADER}
7|7|ann|vision|COMPLETED|60|60|1000|1600|600|gres/gpu:a100=2|gres/gpu=2|n1
8|8|ben|speech|COMPLETED|90|90|1000|1300|300|gres/gpu:a100=2|gres/gpu=2|n1
"""


#: Words of the required arguments, where "1" is none; and an option without which nothing is done.
WORDS = {
    ("priority",): ["1", "5"],
    ("config", "mode"): ["main", "observe"],
    ("submit",): ["-g", "1", "--", "true"],
    ("release-all",): ["--yes"],
}
SPOKEN = [
    path
    for path, command in COMMANDS.items()
    if path not in (*WITHOUT, ("doctor",)) and any("--socket" in parameter.opts for parameter in command.params)
]
#: Words that only this house uses, or uses in a sense of its own: who meets one in a command's help finds it explained.
HOUSE = (
    "arbiter", "tenant", "app", "gang", "guard", "rho", "lease", "certificate", "snapshot", "pool", "perturb", "grace",
    "instance file", "model key", "envy", "allocation", "bid", "elastic", "rigid", "round", "supervisor",
)  # fmt: skip


#: A job that waits, in the words below.
WAITING = "WAITING"
#: What went well with an arbiter that has a job "1", which is over, and one that waits.
LIVE: tuple[Path_, ...] = (
    ("status",), ("status", "-N"), ("status", "-T"), ("status", "--start"), ("top",), ("apps",),
    ("explain", "1"), ("report", "1"), ("wait", "1"), ("history",), ("priority", WAITING, "3"),
    ("hold", WAITING), ("unhold", WAITING), ("cancel", WAITING), ("snapshot",), ("policies",), ("lab", "list"),
    ("config", "show"), ("config", "init"), ("config", "mode", "main", "observe"), ("doctor",),
    ("release-all", "--yes"), ("submit", "--dry-run", "-g", "1", "--json", "--", "true"),
)  # fmt: skip
#: What went well without one. TRACE, LOG and the like are files that the test makes.
ALONE: tuple[Path_, ...] = (
    ("demo", "--seconds", "5"),
    ("decide", "INSTANCE", "--policy", "max-min"), ("decide", "INSTANCE", "--policy", "themis", "--explain", "JOB"),
    ("decide", "INSTANCE", "--policy", "max-min", "--perturb", "TENANT"),
    ("decide", "INSTANCE", "--policy", "themis", "--bids", "APP"),
    ("profile", "LOG"), ("profile", "LOG", "LOG"), ("profile", "LOG", "--points"), ("profile", "LOG", "--why"),
    ("profile", "--formats"), ("profile", "--explain", "step 10 loss 2.31"),
    ("what-if", "--from-sacct", "SACCT"), ("what-if", "--from-sacct", "SACCT", "--policies", "fifo"),
    ("simulate", "TRACE", *CLUSTER, "--policy", "fifo"),
    ("simulate", "TRACE", *CLUSTER, "--policy", "fifo", "--engine", "arbiter", "--faults", "all"),
    ("compare", "TRACE", *CLUSTER, "--policies", "fifo,srtf", "--out", "FOLDER/compared", "--no-plots"),
    ("reproduce", "--list"), ("reproduce", "gandiva-fair-table-3"),
    ("trace", "describe", "TRACE"), ("trace", "describe", "TRACE", "--out", "FOLDER/described"),
    ("trace", "sample", "TRACE", "2", "--out", "FOLDER/sampled"),
    ("trace", "scale", "TRACE", "2", "--out", "FOLDER/scaled"),
    ("trace", "fit", "TRACE"), ("trace", "fit", "TRACE", "--jobs", "5", "--out", "FOLDER/drawn"),
    ("config", "check", "CONFIG"),
    ("install", "slurm", "SETS"), ("install", "slurm", "SETS", "--yes", "--record", "FOLDER/record"),
    ("uninstall", "slurm", "SETS", "--record", "FOLDER/record"),
    ("uninstall", "slurm", "SETS", "--yes", "--record", "FOLDER/record"),
)  # fmt: skip
#: Whose success is a JSON document, or lines of them, by a test of their own.
ELSEWHERE: dict[Path_, str] = {
    ("submit",): "below", ("attach",): "below", ("serve",): "below", ("logs",): "test_live.py",
    ("lab", "up"): "tests/real", ("lab", "down"): "tests/real", ("lab", "status"): "tests/real",
}  # fmt: skip


def asked(words: Path_, waiting: str) -> list[str]:
    found = [waiting if word == WAITING else word for word in words]
    return found if "--json" in found else [*found, "--json"]


def test_what_has_no_json_says_why() -> None:
    lacking = {path for path, command in COMMANDS.items() if not any("--json" in p.opts for p in command.params)}
    assert lacking == set(WITHOUT)


@pytest.mark.parametrize("path", COMMANDS, ids=named)
def test_its_help_ends_with_an_example_of_it(path: Path_, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*path, "--help"]) == 0
    _, example, told = re.sub(r"\s+", " ", capsys.readouterr().out).partition("Example: ")
    assert example
    assert f"horae {named(path)}" in told


def test_a_word_of_the_house_in_any_help_stands_in_the_glossary() -> None:
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    explained = {word.strip() for row in rows for word in row.split(",")}
    used = {
        word
        for command in COMMANDS.values()
        for text in (command.help, *(getattr(p, "help", "") for p in command.params))
        for word in HOUSE
        if re.search(rf"\b{word}s?\b", text or "")
    }
    assert len(used) > len(HOUSE) // 2
    assert used - explained == set()


@pytest.mark.parametrize("path", [path for path in COMMANDS if path not in WITHOUT], ids=named)
def test_wrong_words_are_told_as_one_json_document(path: Path_, horae: Horae) -> None:
    said = horae(*path, "--json", "--no-such-option")
    assert said.code == exits.USAGE
    assert said.json["error"]["code"] == "usage"
    assert said.json["error"]["exit_code"] == exits.USAGE
    assert "--no-such-option" in said.json["error"]["message"]
    assert "--no-such-option" in said.err


@pytest.mark.parametrize("path", SPOKEN, ids=named)
def test_an_arbiter_that_is_not_there_is_told_as_one_json_document(
    path: Path_, tmp_path: Path, horae: Horae, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(wait, "_LOOK_S", 0.0)
    required = ["1" for parameter in COMMANDS[path].params if parameter.required]
    said = horae(*path, "--json", "--socket", str(tmp_path / "none.sock"), *WORDS.get(path, required))
    assert said.code == exits.UNREACHABLE
    assert said.json["error"]["code"] == "unreachable"
    assert said.json["error"]["message"] in said.err.replace("\n       ", "")


def test_no_such_job_is_told_as_one_json_document(site: Client, horae: Horae) -> None:
    for words in (("explain", "9"), ("report", "9"), ("attach", "9"), ("logs", "9"), ("wait", "9"), ("cancel", "9"),
                  ("hold", "9"), ("unhold", "9"), ("priority", "9", "1"), ("history", "9")):  # fmt: skip
        said = horae(words[0], "--json", *words[1:])
        assert (said.code, said.json["error"]["code"]) == (exits.NO_SUCH_JOB, "no-such-job"), words
    said = horae("status", "--json", "9")
    assert (said.code, said.json["jobs"]) == (exits.NO_SUCH_JOB, [])


def test_what_went_well_is_one_json_document(site: Client, horae: Horae, tmp_path: Path) -> None:
    """All that speaks with an arbiter, and whatever needs nothing else."""
    assert horae("submit", "--json", "-g", "1", "--iterations", "5", "--", "true").json == {"jobs": ["1"]}
    eventually(lambda: site.job("1")["ended"])
    waiting = horae("submit", "--json", "-g", "1", "--iterations", "9e9", "-c", "ck", "--", "true").json["jobs"][0]
    done = {named(words): horae(*(waiting if word == WAITING else word for word in words), "--json") for words in LIVE}
    assert {words: said.code for words, said in done.items() if said.code} == {}
    for words, said in done.items():
        assert isinstance(said.json, dict | list), words
    lines = horae("attach", "1", "--json").lines
    assert all(isinstance(json.loads(line), dict) for line in lines)


def test_no_command_is_without_a_success_that_is_tried() -> None:
    tried = {words[: len(path)] for words in (*LIVE, *ALONE) for path in COMMANDS if words[: len(path)] == path}
    assert set(COMMANDS) - set(WITHOUT) - tried == set(ELSEWHERE) - tried


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, ...]]:
    """Word of `ALONE` -> what is typed for it."""
    folder = tmp_path_factory.mktemp("files")
    made = {
        "TRACE": "job,submitted,duration,gpus\na,0,100,2\nb,10,50,4\nc,20,30,1\n",
        "LOG": "".join(f"[horae] step={n}/100 loss={1 / n:.4f} iter_s=0.1000 t={n / 10}\n" for n in range(1, 40)),
        "SACCT": SACCT,
        "CONFIG": f"state_dir: {folder}/state\ncluster: {{adapter: fake}}\n",
    }
    etc = folder / "etc"
    etc.mkdir()
    (etc / "slurm.conf").write_text("ClusterName=c\nSlurmUser=slurm\nPartitionName=gpu Nodes=n[1-4]\n")
    sets = {"partitions": "gpu", "etc": etc, "user": getpass.getuser(), "spool": folder / "spool"}
    sets |= {name: folder / name for name in ("lua", "units", "logrotate", "man", "completion")}
    found: dict[str, tuple[str, ...]] = {name: (str(folder / name),) for name in made}
    for name, text in made.items():
        (folder / name).write_text(text)
    found |= {"INSTANCE": (str(ROOT / "docs/policies/example.yaml"),), "FOLDER": (str(folder),)}
    found["SETS"] = tuple(word for name, value in sets.items() for word in ("--set", f"{name}={value}"))
    jobs = yaml.safe_load((ROOT / "docs/policies/example.yaml").read_text())["jobs"]
    return found | {
        "JOB": (jobs[0]["name"],),
        "TENANT": (jobs[0]["tenant"],),
        "APP": (jobs[0].get("app", jobs[0]["name"]),),
    }


@pytest.mark.parametrize("words", ALONE, ids=named)
def test_what_went_well_without_an_arbiter_is_one_json_document(
    words: Path_, horae: Horae, files: dict[str, tuple[str, ...]]
) -> None:
    typed = []
    for word in words:
        typed += files.get(word, (word.replace("FOLDER", files["FOLDER"][0]),))
    said = horae(*typed, "--json")
    assert said.code == exits.DONE, said.err
    assert isinstance(said.json, dict | list)


def test_the_answers_to_a_batch_are_lines_of_json(
    horae: Horae, files: dict[str, tuple[str, ...]], tmp_path: Path
) -> None:
    question = {"instance": files["INSTANCE"][0], "policy": "fifo"}
    batch = tmp_path / "questions.jsonl"
    batch.write_text(2 * (json.dumps(question) + "\n"))
    said = horae("decide", "--batch", str(batch), "--json")
    assert said.code == exits.DONE, said.err
    assert len(said.lines) == 2 and all(isinstance(json.loads(line), dict) for line in said.lines)


def test_a_serving_arbiter_logs_lines_of_json_only(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    socket = Path(tempfile.mkdtemp(prefix="horae-")) / "a.sock"
    config.write_text(f"state_dir: {tmp_path}/state\ncluster: {{adapter: fake}}\napi: {{socket: {socket}}}\n")
    code = "import sys; from horae.cli import main; sys.exit(main())"
    with (tmp_path / "out").open("wb") as out, (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", code, "serve", str(config), "--json"], stdout=out, stderr=log, cwd=ROOT
        )
    try:
        eventually(lambda: process.poll() is not None or b"serves" in (tmp_path / "log").read_bytes())
    finally:
        process.terminate()
        assert process.wait(60) == exits.DONE, (tmp_path / "log").read_text()
        shutil.rmtree(socket.parent)
    lines = (tmp_path / "log").read_text().splitlines()
    told = [json.loads(line) for line in lines]
    assert [line["socket"] for line in told if line["event"] == "horae serves"] == [str(socket)]
    assert (tmp_path / "out").read_bytes() == b""


def test_an_arbiter_that_says_that_it_serves_can_be_stopped(tmp_path: Path) -> None:
    """A signal in the moment after that word killed it, and it ended with nothing closed and an odd exit code."""
    config = tmp_path / "config.yaml"
    socket = Path(tempfile.mkdtemp(prefix="horae-")) / "a.sock"
    config.write_text(f"state_dir: {tmp_path}/state\ncluster: {{adapter: fake}}\napi: {{socket: {socket}}}\n")
    code = """
import os, signal, sys
from horae.cli import main
from horae.tui import screen

def stop_at_once(text):
    os.write(1, text.encode())
    os.kill(os.getpid(), signal.SIGTERM)

screen.note = stop_at_once
sys.exit(main())
"""
    try:
        command = [sys.executable, "-c", code, "serve", str(config)]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=300)
    finally:
        shutil.rmtree(socket.parent)
    assert (ended.returncode, b"horae serves" in ended.stdout) == (exits.DONE, True), ended.stderr


def test_a_question_that_nobody_answers_is_told_as_one_json_document(
    site: Client, horae: Horae, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    said = horae("release-all", "--json")
    assert (said.code, said.json["error"]["code"]) == (exits.NO, "no")
    assert "--yes" in said.json["error"]["remedy"]
