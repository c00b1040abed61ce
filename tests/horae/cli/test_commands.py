"""Commands against a living arbiter: what they print, their JSON, their exit codes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from horae.api.arbiter import ArbiterBackend
from horae.api.client import Client
from horae.api.peers import user_name
from horae.api.privacy import access
from horae.cli import exits
from policy.text import instance
from tests.horae.cli.conftest import Horae
from tests.waiting import eventually

ME = user_name(os.getuid())
ENDLESS = ("--iterations", "100000", "--checkpoint", "ck", "--", "python", "train.py")


def running(site: Client, job: str) -> None:
    eventually(lambda: site.job(job)["state"] == "running")


def test_submit_hands_in_what_the_options_say(
    site: Client, horae: Horae, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = horae(
        "submit", "-g", "1,2,4", "-t", "vision", "--app", "sweep", "--key", "resnet", "--name", "r50", "-c", "ck",
        "--iterations", "500", "--grace", "2:00", "--time-limit", "1-0", "--retries", "1", "-e", "A=b=c",
        "--gpu-type", "v100", "--", "python", "train.py", "--gpus", "x", "--help",
    )  # fmt: skip
    assert (said.code, said.out) == (0, "Submitted job 1\n")
    job = site.job("1")
    assert (job["name"], job["tenant"], job["app"], job["model"], job["owner"]) == (
        "r50",
        "vision",
        "sweep",
        "resnet",
        ME,
    )
    assert job["command"] == ["python", "train.py", "--gpus", "x", "--help"]
    assert job["gpus"] == {"requested": 4, "min": 1, "max": 4, "allowed": [1, 2, 4]}
    assert (job["cwd"], job["checkpoint"], job["env"]) == (str(tmp_path), str(tmp_path / "ck"), {"A": "b=c"})
    assert job["total"] == 500


def test_a_folder_that_was_removed_is_no_bug(
    site: Client, horae: Horae, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that a shell is still in: after `git clean`, or a checkout of another branch."""
    removed = tmp_path / "removed"
    removed.mkdir()
    monkeypatch.chdir(removed)
    removed.rmdir()
    one = ("-g", "1", "--", "true")
    for words in (one, ("--dry-run", *one), ("-i", *one), ("--cwd", ".", *one), ("-c", "ck", *one), ("-f", "j.yaml")):
        said = horae("submit", *words)
        assert said.code == exits.BAD_FILE, said
        assert said.err == "horae: the folder that you are in is not there any more\n       cd into another one\n"
    assert horae("submit", "-g", "1", "--cwd", str(tmp_path), "--", "true").out == "Submitted job 1\n"


def test_submit_says_what_each_gpu_brings_along(site: Client, horae: Horae) -> None:
    assert horae("submit", "-g", "1", "--memory", "16G", "--cpus", "2.5", *ENDLESS).code == 0
    running(site, "1")
    (job,) = horae("snapshot", "--json").json["jobs"]
    assert (job["memory"]["per_gpu"], job["cpus"]["per_gpu"]) == (16 << 30, 2.5)
    for words in (("--memory", "lots"), ("--cpus", "0")):
        assert horae("submit", "-g", "1", *words, "--", "true").code == 3


def test_submit_chooses_types_and_explain_says_where_a_preference_was_not_followed(site: Client, horae: Horae) -> None:
    type_of = {node["name"]: node["gpu_type"] for node in site.status()["nodes"]}
    first, other = dict.fromkeys(type_of.values())
    horae("submit", "-g", "2", "--prefer-gpu-type", other, "--forbid-gpu-type", "a100", *ENDLESS)
    running(site, "1")
    assert {type_of[node] for node in site.job("1")["allocation"]} == {other}
    horae("submit", "-g", "1", "--forbid-gpu-type", other, *ENDLESS)
    running(site, "2")
    jobs = horae("snapshot", "--json").json["jobs"]
    assert [job["gpu_types"] for job in jobs] == [{"prefer": [other], "forbid": ["a100"]}, {"forbid": [other]}]
    horae("submit", "-g", "1", "--prefer-gpu-type", "a100", *ENDLESS)
    running(site, "3")
    told = [cause for cause in site.explain("3")["causes"] if cause["what"] == "type"]
    assert [cause["text"].partition(" and runs on ")[0] for cause in told] == ["it prefers GPUs of a100"]
    assert told[0]["text"].endswith("no node of its pool has those")
    horae("submit", "-g", "1", "--forbid-gpu-type", first, "--forbid-gpu-type", other, *ENDLESS)
    eventually(lambda: "that it may run on (never on" in horae("explain", "4").out)
    for words in (("--gpu-type", first, "--forbid-gpu-type", first), ("--gpu-type", first, "--prefer-gpu-type", other)):
        assert horae("submit", "-g", "1", *words, *ENDLESS).code == 3


def test_what_is_carried_is_for_one_machine_and_slurm(site: Client, horae: Horae) -> None:
    said = horae("submit", "-g", "1", "--export", "ALL", "--", "true")
    assert said.code == 3
    assert "--env NAME=VALUE" in said.err


def test_a_refusal_repeats_the_value_that_was_given(horae: Horae) -> None:
    said = horae("submit", "-g", "abc", "--", "true")
    assert said.code == 3
    assert "--gpus: not a number of GPUs, got 'abc'" in said.err
    long = horae("submit", "-g", "x" * 5000, "--", "true")
    assert len(long.err) < 300


def test_submit_goes_to_the_kind_of_cluster_that_was_named(site: Client, horae: Horae) -> None:
    assert horae("submit", "-g", "1", "--cluster", "fake", "--", "true").code == 0
    said = horae("submit", "-g", "1", "--cluster", "yarn", "--", "true")
    assert said.code == 3
    assert "--cluster: the arbiter at" in said.err and "is that of another cluster: fake" in said.err
    assert horae("submit", "-g", "1", "--cluster", "yarn", "--sbatch", "x", "--", "true").code == 3
    assert len(site.status(ended=True)["jobs"]) == 1


def test_submit_takes_a_file_and_options_win_over_it(site: Client, horae: Horae, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(
        "jobs:\n- {command: [a], gpus: 1, checkpoint: ck}\n- {command: [b], gpus: {min: 1, max: 4}, name: bee}\n"
    )
    said = horae("submit", "--file", str(file), "--tenant", "speech", "--json")
    assert said.json == {"jobs": ["1", "2"]}
    assert site.job("1")["checkpoint"] == str(tmp_path / "ck")
    assert site.job("1")["cwd"] == str(tmp_path)
    assert {site.job(j)["tenant"] for j in ("1", "2")} == {"speech"}
    assert site.job("2")["name"] == "bee"


def test_submit_refuses_with_place_and_remedy_and_takes_nothing(site: Client, horae: Horae, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text("jobs:\n- {command: [a], gpus: 1}\n- {command: [b], gpuss: 1}\n")
    said = horae("submit", "--file", str(file))
    assert said.code == 3
    assert f"{file}:3" in said.err
    assert "'gpus'" in said.err
    for words, part in (
        (("--gpus", "0", "--", "a"), "--gpus"),
        (("--gpus", "1", "--grace", "soon", "--", "a"), "--grace"),
        (("--gpus", "1", "-e", "AB", "--", "a"), "--env"),
        (("--gpus", "1"), "command"),
        (("--", "a"), "gpus"),
    ):
        said = horae("submit", *words)
        assert said.code == 3
        assert part in said.err
    assert horae("submit", "--file", str(tmp_path / "none.yaml")).code == 3
    assert site.status(ended=True)["jobs"] == []


def test_submit_tells_who_would_start_ranks_twice(site: Client, horae: Horae) -> None:
    for gpus, command, word in (
        ("2", "torchrun --nproc_per_node=2 train.py", "torchrun"),
        ("1:4", "env A=1 python -m torch.distributed.run train.py", "torch.distributed.run"),
        ("2:", "/opt/env/bin/accelerate launch train.py", "accelerate"),
        ("2", "conda run --no-capture-output -n mine torchrun train.py", "torchrun"),
        ("1", "torchrun train.py", ""),  # one rank, however it is started
        ("2", "python train.py --launcher torchrun", ""),
        ("2", "bash torchrun.sh", ""),
    ):
        said = horae("submit", "-g", gpus, "--", *command.split())
        assert said.code == 0 and said.out.startswith("Submitted job ")
        assert (f"{word} starts ranks by itself" in said.err) if word else said.err == ""


def test_status_looks_like_squeue(site: Client, horae: Horae) -> None:
    for tenant in ("vision", "speech"):
        horae("submit", "-g", "8", "-t", tenant, "--name", f"on-{tenant}", *ENDLESS)
    horae("submit", "-g", "4", "-t", "speech", *ENDLESS)
    running(site, "2")
    eventually(lambda: "(" in horae("status").lines[3])
    said = horae("status")
    assert said.lines[0].split() == [
        "JOBID",
        "NAME",
        "TENANT",
        "USER",
        "ST",
        "GPUS",
        "RANGE",
        "TIME",
        "NODELIST(REASON)",
    ]
    first = said.lines[1].split()
    assert first[:7] == ["1", "on-vision", "vision", ME, "R", "8", "8"]
    assert re.fullmatch(r"n\[[\d,-]+\]:4", first[-1])
    assert said.lines[3].split()[4:6] == ["PD", "0"]
    assert "(" in said.lines[3]
    assert "\x1b" not in said.out
    assert [line.split()[0] for line in horae("status", "-t", "speech", "--noheader").lines] == ["2", "3"]
    assert [line.split()[0] for line in horae("status", "-s", "PD", "--noheader").lines] == ["3"]
    assert [line.split()[0] for line in horae("status", "1", "3", "--noheader").lines] == ["1", "3"]
    assert "GPU_TIME" in horae("status", "--long").lines[0]
    assert horae("status", "1", "77").code == 4
    assert horae("status", "-s", "sleeping").code == 2
    answer = horae("status", "--json").json
    assert [j["state"] for j in answer["jobs"]] == ["running", "running", "queued"]
    assert isinstance(answer["jobs"][0]["ran_s"], float)


def test_status_shows_nodes_like_sinfo_and_tenants_with_shares(site: Client, horae: Horae) -> None:
    horae("submit", "-g", "2", "-t", "vision", *ENDLESS)
    running(site, "1")
    said = horae("status", "--nodes")
    assert said.lines[0].split() == ["POOL", "STATE", "NODES", "TYPE", "GPUS(A/I/O/T)", "NODELIST"]
    rows = [line.split() for line in said.lines[1:]]
    assert {row[1] for row in rows} == {"mix", "idle"}
    counts = [tuple(map(int, row[4].split("/"))) for row in rows]
    assert [sum(c) for c in zip(*counts, strict=True)] == [2, 14, 0, 16]
    tenants = {line.split()[0]: line.split() for line in horae("status", "--tenants").lines[1:]}
    assert tenants["vision"][1:4] == ["2", "2", "2"]
    assert tenants["speech"][2] == "0"


def test_status_shows_operators_the_notes_below_the_table(
    site: Client, horae: Horae, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = ArbiterBackend.about
    unread = [f"{n}: what its folder says is not believed" for n in range(23)]
    monkeypatch.setattr(ArbiterBackend, "about", lambda self: {**about(self), "notes": unread})
    said = horae("status", "--nodes")
    assert said.err.splitlines()[0] == "note: 0: what its folder says is not believed"
    assert said.err.splitlines()[20:] == ["note: and 3 more, which --json shows"]
    assert "note" not in said.out
    assert horae("status", "--nodes", "--json").json["notes"] == unread
    horae("submit", "-g", "16", "-t", "vision", *ENDLESS)
    running(site, "1")
    horae("submit", "-g", "4", "-t", "speech", *ENDLESS)
    eventually(lambda: "note: pool main: sharing incentive fails for speech" in horae("status", "--tenants").err)
    monkeypatch.setattr(access, "whole", lambda *_: False)  # who is no operator
    assert "note" not in horae("status", "--nodes").err + horae("status", "--tenants").err


def test_explain_gives_causes_and_numbers(site: Client, horae: Horae) -> None:
    horae("submit", "-g", "16", *ENDLESS)
    running(site, "1")
    horae("submit", "-g", "4", *ENDLESS)
    eventually(lambda: site.explain("2")["causes"] and site.job("2")["code"])
    said = horae("explain", "2")
    assert said.code == 0
    assert "holds    no GPUs" in said.out
    assert "policy" in said.out
    answer = horae("explain", "2", "--json").json
    assert answer["causes"][0]["text"]
    assert answer["headline"].startswith("job 2 is")
    assert "GPUs on" in horae("explain", "1", "--log").out
    assert horae("explain", "99").code == 4


def test_history_tells_a_jobs_life(site: Client, horae: Horae) -> None:
    horae(
        "submit", "-g", "1", "-t", "vision", "--name", "short", "--iterations", "5", "-c", "ck", "--", "python", "t.py"
    )
    eventually(lambda: site.job("1")["state"] == "completed")
    said = horae("history", "1")
    assert said.lines[0].split() == ["TIME", "JOBID", "NAME", "EVENT", "WHAT"]
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d +1 short +submitted", said.lines[1])
    kinds = [e["kind"] for e in horae("history", "1", "--json").json["events"]]
    assert [k for k in kinds if k in ("submitted", "intent", "ended")] == ["submitted", "intent", "intent", "ended"]
    assert len(horae("history", "-n", "2").lines) == 3
    assert len(horae("history", "-t", "speech").lines) == 1
    assert "short" in horae("history", "--since", "1h").out
    assert horae("history", "9").code == 4
    assert horae("history", "--since", "often").code == 3


def test_history_follows_until_interrupted(site: Client, tmp_path: Path) -> None:
    run = "import sys; from horae.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", run, "history", "-f", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        site.submit([{"command": ["x"], "gpus": 1, "name": "late"}])
        while "late" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130


def test_cancel_ends_some_and_tells_the_rest(site: Client, horae: Horae) -> None:
    for _ in range(2):
        horae("submit", "-g", "1", *ENDLESS)
    running(site, "2")
    said = horae("cancel", "1", "--why", "wrong data")
    assert (said.code, said.out) == (0, "job 1: is being ended\n")
    eventually(lambda: site.job("1")["state"] == "cancelled")
    assert "wrong data" in horae("history", "1").out
    said = horae("cancel", "2", "44")
    assert said.code == 1
    assert "44: there is no job 44" in said.err
    assert horae("cancel", "44").code == 4
    assert horae("cancel").code == 2


def test_a_snapshot_replays(site: Client, horae: Horae, tmp_path: Path) -> None:
    horae("submit", "-g", "1:4", *ENDLESS)
    running(site, "1")
    file = tmp_path / "now.yaml"
    assert horae("snapshot", "-o", str(file)).code == 0
    assert [j.name for j in instance.read(str(file)).jobs] == ["1"]
    assert horae("snapshot", "--json").json["jobs"][0]["name"] == "1"
    assert horae("snapshot", "--pool", "nowhere").code == 3
    full = horae("snapshot", "-o", "/dev/full")
    assert full.code == 3 and "No space left on device" in full.err


def test_release_all_asks_first(site: Client, horae: Horae, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    assert horae("release-all").code == 1
    assert site.status()["pools"][0]["mode"] == "enforce"
    said = horae("release-all", "--yes")
    assert (said.code, said.out) == (0, "0 jobs are being handed back; mode is observe\n")
    assert site.status()["pools"][0]["mode"] == "observe"


def test_top_once_is_plain(site: Client, horae: Horae) -> None:
    horae("submit", "-g", "8", "-t", "vision", "--name", "on-vision", *ENDLESS)
    running(site, "1")
    said = horae("top", "--once")
    assert said.code == 0
    assert "\x1b" not in said.out
    assert "8/16 GPUs" in said.lines[0]
    assert "on-vision" in said.out
    assert "NODELIST(REASON)" in said.out
    assert horae("top", "--json").json["jobs"][0]["losses"] is not None


def test_without_an_arbiter_commands_say_so(horae: Horae, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HORAE_SOCKET", str(tmp_path / "none.sock"))
    for words in (("status",), ("top", "--once"), ("explain", "1"), ("history",), ("cancel", "1"), ("snapshot",)):
        said = horae(*words)
        assert said.code == 6
        assert "horae serve" in said.err


def test_job_numbers_complete(site: Client, horae: Horae, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(11):
        horae("submit", "-g", "1", *ENDLESS)
    monkeypatch.setenv("_HORAE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "horae explain 1")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert sorted(horae().out.split()) == ["1", "10", "11"]
    monkeypatch.setenv("HORAE_SOCKET", "/nowhere")
    assert horae().out.split() == []


# --- configuration, doctor, serve --------------------------------------------------------------------------


def test_the_example_configuration_is_valid(horae: Horae, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(horae("config", "init").out)
    said = horae("config", "check", str(file))
    assert said.code == 0
    assert "max-min, observe" in said.out
    shown = yaml.safe_load(horae("config", "show", str(file)).out)
    assert shown["guards"]["min_run_s"] == 60.0
    assert horae("config", "show", str(file), "--json").json == shown


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cluster: {adapter: local, options: {state: s}}\npools:\n- {policy: fiffo}\n", ("pools[0].policy", "fifo")),
        ("cluster: {adapter: local}\nrounds: {tick: 3}\n", (":2", "tick_s")),
        ("cluster:\n", ("cluster",)),
        ("a: [", ("YAML",)),
        ("cluster: {adapter: local}\nguards: {gain: -1}\n", ("guards.gain", ":2")),
    ],
)
def test_a_wrong_configuration_is_told(horae: Horae, tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    for command in (("config", "check"), ("serve",)):
        said = horae(*command, str(file))
        assert said.code == 3
        for word in (str(file), *words):
            assert word in said.err or command == ("serve",)


def test_an_example_of_an_adapter_that_is_not_there_is_refused(horae: Horae) -> None:
    said = horae("config", "init", "--adapter", "slrum")
    assert (said.code, said.out) == (3, "")
    assert "did you mean 'slurm'?" in said.err


@pytest.mark.parametrize("adapter", ["local", "slurm", "yarn"])
def test_the_example_of_each_adapter_is_complete_and_observes(horae: Horae, tmp_path: Path, adapter: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(horae("config", "init", "--adapter", adapter).out)
    said = horae("config", "check", str(file))
    assert said.code == 0, said.err
    shown = yaml.safe_load(horae("config", "show", str(file)).out)
    assert [pool["mode"] for pool in shown["pools"]] == ["observe"]
    options = shown["cluster"]["options"]
    needed = {"local": {"state", "nodes"}, "slurm": {"spool", "hold"}, "yarn": {"resource_manager", "webhdfs"}}
    assert needed[adapter] <= set(options)
    assert options.get("hold", False) is False


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cluster: {adapter: slrum}\n", ("cluster.adapter", "did you mean 'slurm'?")),
        ("cluster: {adapter: slurm, options: {partition: [gpu]}}\n", ("cluster.options.partition", "partitions")),
        ("cluster: {adapter: yarn, options: {}}\n", ("cluster.options.resource_manager", "http://rm1:8088")),
        ("cluster: {adapter: local, options: {state: s, nodes: 'v100:2x'}}\n", ("cluster.options.nodes", "v100:2x4")),
        ("cluster: {adapter: local}\n", ("cluster.options.state",)),
        (
            "cluster: {adapter: local, options: {state: s}}\npools: [{policy: max-min, options: {ovr: job}}]\n",
            ("pools[0].options.ovr", "its options: "),
        ),
    ],
)
def test_what_cannot_run_is_not_fine(horae: Horae, tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    """What `serve` and `doctor` would refuse, `config check` refuses, and `serve` too before anything is opened."""
    file = tmp_path / "config.yaml"
    file.write_text(f"state_dir: {tmp_path}/state\n{text}")
    said = horae("config", "check", str(file))
    assert said.code == 3
    for word in (str(file), *words):
        assert word in said.err
    assert horae("serve", str(file)).code == 3


def test_a_pool_without_a_mode_observes(horae: Horae, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    for pools in ("", "pools: [{name: gpu}]\n"):
        file.write_text(f"cluster: {{adapter: local, options: {{state: s}}}}\n{pools}")
        assert "max-min, observe" in horae("config", "check", str(file)).out


def test_the_running_configuration_is_shown(site: Client, horae: Horae) -> None:
    assert horae("config", "show", "--json").json["tenants"][0]["name"] == "vision"
    assert horae("config", "mode", "main", "advise").code == 0
    assert site.status()["pools"][0]["mode"] == "advise"
    assert horae("config", "mode", "main", "boldly").code == 3


def test_doctor_finds_what_is_wrong_and_names_the_remedy(
    horae: Horae, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HORAE_SOCKET", str(tmp_path / "none.sock"))
    file = tmp_path / "config.yaml"
    good = {
        "state_dir": str(tmp_path / "state"),
        "cluster": {"adapter": "fake"},
        "pools": [{"mode": "enforce", "policy": "fifo"}],
    }
    file.write_text(yaml.safe_dump(good))
    said = horae("doctor", str(file), "--json")
    assert (said.code, said.json["ok"]) == (0, True)
    found = {c["name"]: c for c in said.json["checks"]}
    assert "16 GPUs" in found["cluster"]["text"]
    assert found["arbiter"]["verdict"] == "warn"
    file.write_text(yaml.safe_dump({**good, "cluster": {"adapter": "fake", "options": {"start_ss": 1}}}))
    said = horae("doctor", str(file))
    assert said.code == 1
    assert "start_s" in said.out
    file.write_text(yaml.safe_dump({**good, "pools": [{"mode": "enforce", "policy": "fifo", "nodes": "n[1-9]"}]}))
    said = horae("doctor", str(file))
    assert said.code == 0
    assert "n5" in said.out


@pytest.mark.parametrize(
    ("adapter", "options", "remedy"),
    [
        ("slurm", {"path": "/nowhere"}, "install Slurm's client commands on this host, or set `path`"),
        ("yarn", {"resource_manager": ["http://127.0.0.1:9"], "webhdfs": ["http://127.0.0.1:9"], "user": "horae"},
         "check that it runs and that cluster.options names it as it is"),
    ],
)  # fmt: skip
def test_doctor_says_once_how_a_cluster_that_is_not_there_is_found(
    horae: Horae, tmp_path: Path, adapter: str, options: dict[str, Any], remedy: str
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({"cluster": {"adapter": adapter, "options": options}, "state_dir": str(tmp_path)}))
    checks = horae("doctor", str(file), "--json").json["checks"]
    failing = [c for c in checks if c["verdict"] == "fail"]
    assert failing
    for check in failing:
        assert check["remedy"].startswith(remedy)
        assert remedy not in check["text"]


def test_doctor_asks_the_running_arbiter(site: Client, horae: Horae) -> None:
    found = {c["name"]: c for c in horae("doctor", "--json").json["checks"]}
    assert found["arbiter"]["verdict"] == "ok"


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s")


def test_serve_until_it_is_told_to_stop(short: Path, horae: Horae, monkeypatch: pytest.MonkeyPatch) -> None:
    file, socket = short / "config.yaml", short / "a.sock"
    file.write_text(
        yaml.safe_dump({
            "state_dir": str(short / "state"), "cluster": {"adapter": "fake"},
            "pools": [{"mode": "enforce", "policy": "fifo"}],
            "api": {"socket": str(socket)},
        })
    )  # fmt: skip
    command = [sys.executable, "-c", "import sys; from horae.cli import main; sys.exit(main())", "serve", str(file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        monkeypatch.setenv("HORAE_SOCKET", str(socket))
        eventually(lambda: socket.exists() and horae("status").code == 0)
        second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert second.returncode in (1, 6)
        assert "another arbiter works on" in second.stderr
        assert horae("status").code == 0
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said
    assert "Traceback" not in said
    assert not socket.exists()
    assert horae("status").code == 6


# --- apps --------------------------------------------------------------------------------------------------

SWEEP = """
name: tune
command: [train, --lr, "{lr}"]
gpus: 1
checkpoint: ck/{job}
parameters: {lr: [0.1, 0.2, 0.4]}
scheduler: {kind: successive-halving, iterations: 10, eta: 3}
"""


def test_a_sweep_is_an_app_with_trials(horae: Horae, site: Client, tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(SWEEP)
    assert horae("submit", "--sweep", str(file)).lines == [f"Submitted job {i}" for i in (1, 2, 3)]
    header, row = horae("apps").lines
    assert header.split()[:3] == ["APP", "TENANT", "SCHEDULER"]
    assert row.split()[0] == "tune"
    assert "successive-halving" in row
    (app,) = horae("apps", "--json").json["apps"]
    assert [t["name"] for t in app["trials"]] == ["tune-0", "tune-1", "tune-2"]
    assert [t["parameters"]["lr"] for t in app["trials"]] == [0.1, 0.2, 0.4]
    page = horae("apps", "tune")
    assert page.code == 0
    assert "lr=0.4" in page.out
    for name in (app["name"], "tune"):  # its trials train on meanwhile: only what stays is compared
        (found,) = horae("apps", name, "--json").json["apps"]
        assert [(t["id"], t["parameters"]) for t in found["trials"]] == [
            (t["id"], t["parameters"]) for t in app["trials"]
        ]
    assert "app tune (successive-halving)" in horae("explain", "2").out
    nothing = horae("apps", "nothing")
    assert (nothing.code, nothing.out) == (4, "")
    assert "there is no app nothing" in nothing.err


def test_without_apps_the_table_is_only_its_header(horae: Horae, site: Client) -> None:
    assert len(horae("apps").lines) == 1
    assert horae("apps", "--json").json == {"apps": []}


def test_a_job_is_moved_in_line(horae: Horae, site: Client) -> None:
    first, second = (site.submit([{"command": ["train"], "gpus": 1, "priority": n}])[0] for n in (0, 3))
    assert site.job(second)["priority"] == 3
    moved = horae("priority", first, second, "-5")
    assert moved.lines == [f"job {job}: priority is -5, among its tenant's jobs" for job in (first, second)]
    assert horae("priority", first, "7", "--json").json["jobs"][first]["text"].startswith("priority is 7")
    assert horae("status", "-o", "%i %Q").lines[1:] == [f"{first} 7", f"{second} -5"]
    assert horae("priority", first, "1", "--across").lines == [f"job {first}: precedence is 1, among all jobs"]
    assert horae("status", "-o", "%i %Q").lines[1] == f"{first} 7!"
    assert horae("priority", first, "101").code == 3
    assert horae("priority", first, "urgent").code == 2
    assert horae("priority", "5").code == 2
    assert horae("priority", "4711", "1").code == 4


def test_what_a_tenant_used_of_its_budget_stands_beside_it(horae: Horae, site: Client) -> None:
    site.submit([{"command": ["train"], "gpus": 1}])
    header, *rows = horae("status", "--tenants").lines
    assert "BUDGET" in header and rows
    tenants = horae("status", "--tenants", "--json").json["tenants"]
    assert all(tenant["budget"] is None for tenant in tenants)


def test_a_report_says_what_became_of_the_gpu_time(horae: Horae, site: Client) -> None:
    job = site.submit([{"command": ["train"], "gpus": 1}])[0]
    said = horae("report", job)
    assert said.lines[0].startswith(f"job {job} train") and "GPU-hours in" in said.lines[1]
    found = horae("report", job, "--json").json
    assert found["whole"] and found["held_gpu_s"] >= found["trained_gpu_s"] >= 0
    assert horae("report", "4711").code == 4


def test_a_held_job_waits_until_it_is_let_go(horae: Horae, site: Client) -> None:
    job = site.submit([{"command": ["train"], "gpus": 1, "checkpoint": "ck"}])[0]
    assert horae("hold", job, "--why", "lunch").lines == [f"job {job}: is held"]
    told = horae("explain", job).out
    assert "lunch" in told
    assert f"horae unhold {job}" in told, "what it says to type must be there to type"
    assert horae("unhold", job, "--json").json["jobs"][job]["text"] == "is not held"
    both = horae("hold", job, "4711")
    assert both.code == 1
    assert "4711: there is no job 4711" in both.err
    assert horae("unhold", "4711").code == 4
