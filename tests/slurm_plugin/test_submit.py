"""`horae submit --sbatch`: what reaches sbatch, which stands here as a small program at the process boundary."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from horae.cli import main
from horae.spec import JobSpec
from policy.model import BadInput, GpuRange
from slurm_plugin.comment import parse_word
from slurm_plugin.submit import horae_word, script

SBATCH = """#!{python}
import json, os, sys
told = {{"options": sys.argv[1:], "script": sys.stdin.read(), "cwd": os.getcwd()}}
open({folder!r} + "/told.json", "a").write(json.dumps(told) + "\\n")
if "--partition=closed" in sys.argv:
    sys.stderr.write("sbatch: error: horae: leave out --hold: jobs of this partition wait for their GPUs anyway\\n"
                     "sbatch: error: Batch job submission failed: Unspecified error\\n")
    sys.exit(1)
print("4711;lab")
"""
Told = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    tool = tmp_path / "sbatch"
    tool.write_text(SBATCH.format(python=sys.executable, folder=str(tmp_path)))
    tool.chmod(0o755 | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("HORAE_EXEC", "/opt/horae/bin/horae-exec")
    monkeypatch.chdir(tmp_path)

    def read() -> list[dict[str, Any]]:
        path = tmp_path / "told.json"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    return read


def test_a_form_becomes_options_a_word_and_a_script(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["submit", "-g", "1:8", "-c", "ck", "--time-limit", "90m", "--key", "resnet50", "--name", "my job"]
    words += ["-e", "DATA=/a b", "--sbatch=--partition=gpu", "--sbatch=--mail-type=END", "--", "python", "train.py"]
    assert main(words) == 0
    assert capsys.readouterr().out == "Submitted job 4711\n"
    (call,) = told()
    assert call["options"][-3:-1] == ["--partition=gpu", "--mail-type=END"]
    assert {"--requeue", "--open-mode=append", "--gpus=8", "--time=90", "--job-name=my job"} <= set(call["options"])
    word = parse_word(call["options"][-1].removeprefix("--comment="))
    assert word is not None
    assert (word.min, word.max, word.key, word.checkpoint) == (1, 8, "resnet50", f"{call['cwd']}/ck")
    lines = call["script"].splitlines()
    assert lines[1] == "export DATA='/a b'"
    assert lines[-1].startswith("exec /opt/horae/bin/horae-exec --name 'my job' --grace 60 --retries 3 --checkpoint ")
    assert lines[-1].endswith(" -- python train.py")


def test_the_users_own_gpus_and_comment_win(told: Told) -> None:
    own = ["--sbatch=--gres=gpu:v100:2", "--sbatch=--comment=grant 12", "--sbatch=--partition=gpu"]
    assert main(["submit", "-g", "1,2,4", "-c", "ck", *own, "--", "true"]) == 0
    options = told()[0]["options"]
    assert not [option for option in options if option.startswith("--gpus")]
    (comment,) = [option for option in options if option.startswith("--comment")]
    assert comment.startswith("--comment=grant 12 horae:allowed=1/2/4,")


def test_types_go_into_the_word_and_of_a_rigid_job_into_slurms_own_option(told: Told) -> None:
    wish = ["--gpu-type", "v100", "--gpu-type", "a100", "--prefer-gpu-type", "a100", "--forbid-gpu-type", "k80"]
    slurm = ["--sbatch=--partition=gpu", "--", "true"]
    assert main(["submit", "-g", "1:4", "-c", "ck", *wish, *slurm]) == 0
    word = parse_word(told()[-1]["options"][-1].removeprefix("--comment="))
    assert word is not None
    assert (word.types, word.prefer, word.forbid) == (("v100", "a100"), ("a100",), ("k80",))
    assert main(["submit", "-g", "2", "--gpu-type", "v100", *slurm]) == 0
    assert "--gpus=v100:2" in told()[-1]["options"]
    for words in (wish, ["--prefer-gpu-type", "a100"], ["--gpu-type", "v100", "--gpu-type", "a100"]):
        assert main(["submit", "-g", "2", *words, *slurm]) == 3
    assert len(told()) == 2


def test_what_is_carried_of_the_environment_is_sbatchs_to_do(told: Told) -> None:
    assert main(["submit", "-g", "1", "--export", "ALL,A=1", "--sbatch=--partition=gpu", "--", "true"]) == 0
    assert "--export=ALL,A=1" in told()[0]["options"]
    assert "typed" not in told()[0]["script"]


def test_a_job_without_a_checkpoint_is_rigid(told: Told) -> None:
    assert main(["submit", "-g", "1:4", "--sbatch=--partition=gpu", "--", "true"]) == 0
    assert not [option for option in told()[0]["options"] if option.startswith("--comment")]


def test_a_refusal_is_said_in_the_modules_own_words(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "-g", "1", "--sbatch=--partition=closed", "--", "true"]) == 1
    said = capsys.readouterr().err
    assert "leave out --hold" in said
    assert "Unspecified" not in said


def test_many_jobs_are_checked_before_one_is_sent(told: Told, tmp_path: Path) -> None:
    job = {"command": ["true"], "gpus": {"min": 1, "max": 2}, "checkpoint": "ck"}
    (tmp_path / "jobs.json").write_text(json.dumps({"jobs": [job, {**job, "app": "a,b"}]}))
    assert main(["submit", "--file", "jobs.json", "--sbatch=--partition=gpu"]) == 3
    assert told() == []


def test_without_sbatch_the_host_is_named_as_the_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["submit", "-g", "1", "--sbatch=--partition=gpu", "--", "true"]) == 6
    assert "login node" in capsys.readouterr().err


def test_words_that_would_break_the_comment_are_refused() -> None:
    with pytest.raises(BadInput):
        horae_word(JobSpec("j", ("true",), GpuRange(2, 1, 2), model="a b", checkpoint="/ck"))
    assert "'a b'" in script(JobSpec("j", ("echo", "a b"), GpuRange(1, 1, 1), checkpoint="/c k"))


HORAE = str(Path(sys.executable).with_name("horae"))


def called(command: list[str], cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, which the command may become another program in."""
    everything = {**os.environ, **env}
    return subprocess.run(command, env=everything, capture_output=True, text=True, cwd=cwd, check=False)


def test_an_interactive_job_is_srun_on_this_terminal(tmp_path: Path) -> None:
    tool = tmp_path / "srun"
    tool.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\nsys.exit(7)\n")
    tool.chmod(0o755)
    words = ["-i", "-g", "2", "--gpu-type", "v100", "--time-limit", "4h", "-e", "A=b c", "--export", "NONE"]
    command = [HORAE, "submit", *words, "--sbatch=--partition=gpu", "--", "jupyter", "lab"]
    done = called(command, tmp_path, PATH=f"{tmp_path}:/usr/bin:/bin")
    assert done.returncode == 7, done.stderr
    assert json.loads(done.stdout) == [
        "--pty", "--ntasks=1", "--job-name=interactive", f"--chdir={tmp_path}", "--gpus=v100:2", "--time=240",
        "--export=NONE", "--partition=gpu", "env", "A=b c", "jupyter", "lab",
    ]  # fmt: skip


def test_what_no_session_can_be_is_refused_there_too(tmp_path: Path) -> None:
    for words, env, says in (
        (["-g", "1:4"], {}, "is a range"),
        (["--wait"], {}, "is not for --interactive"),
        ([], {"SLURM_JOB_ID": "17"}, "you are in a job already"),
        ([], {}, "there is no srun on this host"),
    ):
        command = [HORAE, "submit", "-i", "--sbatch=--partition=gpu", *words]
        done = called(command, tmp_path, PATH=str(tmp_path), **env)
        assert done.returncode != 0 and says in done.stderr, done.stderr
