"""`horae submarine job run` against a living arbiter."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from horae.api.client import Client, Unreachable
from horae.cli import submarine, wait
from tests.horae.cli.conftest import Horae
from tests.waiting import eventually

RUN = (
    "submarine", "job", "run", "-name", "mnist", "--num_workers", "2", "--input_path=hdfs:///in", "-worker_resources",
    "memory=1G,vcores=1,gpu=1", "--worker_launch_cmd", "python train.py --in %input_path%",
)  # fmt: skip


def test_a_submarine_command_becomes_a_job(site: Client, horae: Horae) -> None:
    said = horae(*RUN, "--max_workers", "4", "--tenant", "vision", "--env", "A=b", "--insecure")
    assert (said.code, said.out) == (0, "Submitted job 1\n")
    assert "--insecure: the arbiter authenticates" in said.err
    job = site.job("1")
    assert (job["name"], job["tenant"], job["command"][2]) == ("mnist", "vision", "python train.py --in hdfs:///in")
    assert job["gpus"] == {"requested": 2, "min": 1, "max": 4}
    assert job["env"] == {"A": "b", "HORAE_FRAMEWORK": "tensorflow"}


@pytest.mark.parametrize(
    "launcher",
    [
        "java -cp /opt/hadoop/etc:/opt/job/submarine-all.jar org.apache.submarine.client.cli.Cli",
        "/usr/bin/java -Xmx1g org.apache.submarine.client.cli.Cli",
        "yarn jar path-to/hadoop-yarn-applications-submarine-3.2.0.jar",
        "submarine",
    ],
)
def test_submarines_own_launchers_stay_in_front_of_it(site: Client, horae: Horae, launcher: str) -> None:
    said = horae("submarine", *launcher.split(), *RUN[1:], "--dry-run", "--json")
    assert said.json == horae(*RUN, "--dry-run", "--json").json
    listed = horae("submarine", *launcher.split(), "job", "list")
    assert (listed.code, listed.out) == (0, "")


def test_a_dry_run_hands_nothing_in(site: Client, horae: Horae) -> None:
    said = horae(*RUN, "--dry-run", "--queue", "gpu")
    assert said.code == 0
    assert "command:\n- bash\n- -c\n- python train.py --in hdfs:///in\n" in said.out
    assert "yarn.queue: gpu" in said.out
    assert "taken      --num_workers 2" in said.out
    as_json = horae(*RUN, "--dry_run", "--json").json
    assert as_json["job"]["gpus"] == 2
    assert {"option": "--num_workers", "value": "2"}.items() <= as_json["options"][1].items()
    assert site.status(ended=True)["jobs"] == []


def test_waiting_ends_with_the_job(site: Client, horae: Horae, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horae.cli.wait._LOOK_S", 0.02)

    def cancel() -> None:
        eventually(lambda: site.status()["jobs"])
        site.cancel("1")

    other = threading.Thread(target=cancel)
    other.start()
    said = horae(*RUN, "--wait_job_finish", "--verbose")
    other.join()
    assert (said.code, said.lines) == (1, ["Submitted job 1", "Job 1 cancelled"])
    assert "taken      --worker_launch_cmd" in said.err


def test_waiting_outlasts_an_arbiter_that_is_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wait, "_LOOK_S", 0.0)
    answers: list[str | Unreachable] = ["running", Unreachable("away", ""), Unreachable("away", ""), "completed"]

    class Answers:
        def job(self, number: str) -> dict[str, Any]:
            answer = answers.pop(0)
            if isinstance(answer, Unreachable):
                raise answer
            return {"state": answer, "ended": answer == "completed"}

    assert submarine._wait(Answers(), "7") == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("Job 7 completed\n", "waiting for the arbiter: away\n")
    monkeypatch.setattr(wait, "_PATIENCE_S", -1.0)
    answers = [Unreachable("away", "")]
    with pytest.raises(Unreachable):
        submarine._wait(Answers(), "7")


def test_json_names_the_job(site: Client, horae: Horae) -> None:
    assert horae(*RUN, "--json").json["jobs"] == ["1"]


def test_mistakes_are_told_without_an_arbiter(horae: Horae, tmp_path: Path) -> None:
    said = horae(*RUN, "--tensorboard", "--strict")
    assert said.code == 3
    assert "--tensorboard" in said.err and "--without tensorboard" in said.err
    file = tmp_path / "job.yaml"
    file.write_text("spec:\n  nam: x\n")
    said = horae("submarine", "job", "run", "-f", str(file))
    assert said.code == 3
    assert f"{file}:2: spec.nam: is no key of a Submarine file" in said.err
    for words in (("job", "frob"), ("job", "show"), ("job", "kill", "--frob")):
        said = horae("submarine", *words)
        assert (said.code, "horae submarine" in said.err) == (3, True)
    assert horae(*RUN, "--socket", str(tmp_path / "none")).code == 6


def test_jobs_are_shown_listed_and_killed_by_their_name(site: Client, horae: Horae) -> None:
    for _ in range(2):
        assert horae(*RUN).code == 0
    eventually(lambda: len(site.status()["jobs"]) == 2)
    assert [row["job"] for row in horae("submarine", "job", "list", "--json").json["jobs"]] == ["1", "2"]
    assert horae("submarine", "job", "list").lines[0].split()[-1] == "mnist"
    shown = horae("submarine", "job", "show", "-name", "mnist", "--json").json
    assert (shown["job"], shown["name"]) == ("2", "mnist"), "of two the newest that lives"
    said = horae("submarine", "job", "kill", "--name=mnist")
    assert (said.code, said.out) == (0, "Job 2 (mnist) is ended\n")
    eventually(lambda: site.job("2")["state"] == "cancelled")
    assert "state    cancelled" not in horae("submarine", "job", "show", "--name", "mnist").out, "the first lives"
    none = horae("submarine", "job", "kill", "--name", "other")
    assert (none.code, "no job of this name" in none.err) == (3, True)


def test_help_lists_every_option(horae: Horae) -> None:
    said = horae("submarine", "job", "run", "--help")
    assert said.code == 0
    assert "-f (since 0.5): taken" in said.out
    assert "--max_workers (Horae's own): taken" in said.out


def test_what_only_yarn_has_is_refused_elsewhere(site: Client, horae: Horae) -> None:
    said = horae(*RUN, "--queue", "gpu")
    assert said.code == 3
    assert "are for YARN, and this arbiter's cluster is fake" in said.err
    assert site.status(ended=True)["jobs"] == []
