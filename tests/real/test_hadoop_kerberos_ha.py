"""Kerberos, two NameNodes and two ResourceManagers, with jobs on them while the active ones are killed.

The arbiter serves with the configuration of the guide, whose names alone are the lab's. Slices then have tokens made
out to the NameNodes' shared name, with one of the two away for good: that all of Hadoop's clients find such a token.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from horae.port import JobState, attend
from tests.contract.harness import job_in, starts_in, steps_in
from tests.contract.waiting import patiently, wait_for
from tests.real.hadoop import ALIVE
from tests.real.kerberos import job_of, options_of, secured
from tests.real.serving import HORAE, arbiter, trainer
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.lab import standbys
from yarn_bridge.lab.private import STANDBYS, PrivateHadoop
from yarn_bridge.runtimes.slice_shapes import SLICE_KIND
from yarn_bridge.runtimes.slice_tokens import HdfsToken, SliceTokens

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.xdist_group("yarn")]

GUIDE = Path(__file__).parents[2] / "docs/howto/yarn-site.md"
STEPS, LONG_S = 5000, 600.0


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateHadoop]:
    with secured(tmp_path_factory.mktemp("hadoopkrbha-"), nodes=1, features=frozenset({STANDBYS})) as found:
        yield found


def guides_config() -> dict[str, Any]:
    """The whole file of the guide."""
    (found,) = re.findall(r"```yaml\n(# /etc/horae/config\.yaml\n.*?auth: kerberos.*?)```", GUIDE.read_text(), re.S)
    made: dict[str, Any] = yaml.safe_load(found)
    return made


def test_jobs_live_through_the_loss_of_a_namenode_and_a_manager(lab: PrivateHadoop, tmp_path: Path) -> None:
    facts, config = lab.facts(), guides_config()
    options = config["cluster"]["options"]
    assert set(options) >= {"auth", "principal", "keytab", "resource_manager", "webhdfs", "queue"}
    options |= {**facts, "folder": f"/user/horae/{tmp_path.name}", "memory_mib": 256}
    config["pools"][0]["mode"] = "enforce"
    config |= {
        "state_dir": str(tmp_path / "state"),
        "api": {"socket": str(tmp_path / "api.sock")},
        "guards": {"min_run_s": 5.0, "gain": 0, "restarts_per_hour": 1000, "restart_cost_s": 1.0},
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    (tmp_path / "train.py").write_text(trainer(STEPS, 0.2))
    namenodes = ",".join(each.partition("://")[2] for each in facts["webhdfs"])

    def horae(verb: str, *words: str) -> str:
        argv = [*HORAE, verb, "--socket", str(tmp_path / "api.sock"), *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(name: str) -> None:
        """Who submits has neither ticket nor password: the kernel tells the arbiter who it is."""
        words = ["--gpus", "1:4", "--name", name, "--iterations", str(STEPS)]
        words += ["--checkpoint", f"webhdfs://{namenodes}/tmp/{tmp_path.name}-{name}"]
        horae("submit", *words, "--", sys.executable, str(tmp_path / "train.py"))

    def jobs() -> dict[str, str]:
        return {each["name"]: each["id"] for each in all_jobs(horae)}

    def log(name: str) -> bytes:
        done = subprocess.run(
            [*HORAE, "logs", "--socket", str(tmp_path / "api.sock"), jobs()[name]], capture_output=True, check=False
        )
        return done.stdout  # nothing while HDFS changes over

    def steps(name: str) -> list[int]:
        return steps_in(log(name))

    try:
        with arbiter(tmp_path):
            wait_for("the arbiter listens", (tmp_path / "api.sock").exists, LONG_S)
            submit("a")
            wait_for("a trains", lambda: len(steps("a")) > 5, LONG_S)
            lab.kill("resourcemanager")
            lab.kill("namenode")
            lab.admin("haadmin", "-transitionToActive", "--forceactive", "nn2")
            before = len(steps("a"))
            wait_for("a trains on", lambda: len(steps("a")) > before, LONG_S)
            submit("b")
            wait_for("b trains, for which a gave GPUs up", lambda: len(steps("b")) > 5, LONG_S)
            found = steps("a")
            assert found == sorted(set(found)), "no step was done twice"
            assert [each.world for each in starts_in(log("a"))][:1] == [4]
            for name in ("a", "b"):
                horae("cancel", jobs()[name])
            wait_for("both have ended", lambda: all(each["ended"] for each in all_jobs(horae)), LONG_S)
    except AssertionError as error:
        told = (tmp_path / "serve.log").read_text(errors="replace")[-3000:]
        raise AssertionError(f"{error}\n{told}") from None


def all_jobs(horae: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(horae("status", "--all", "--json"))["jobs"]
    return found


def test_a_slices_token_is_made_out_to_the_name(
    lab: PrivateHadoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.kill("namenode")
    lab.admin("haadmin", "-transitionToActive", "--forceactive", "nn2")
    options = replace(options_of(lab), runtime="slices", slice_memory_mib=320)
    tokens: list[HdfsToken] = []
    get = SliceTokens.get

    def remember(self: SliceTokens, owner: str) -> HdfsToken:
        tokens.append(get(self, owner))
        return tokens[-1]

    monkeypatch.setattr(SliceTokens, "get", remember)
    port = YarnCluster(options)

    def state() -> JobState | None:
        found = job_in(attend(port).jobs, "named")
        return found.state if found else None

    try:
        patiently(lambda: port.claim("the arbiter"))
        spec = job_of("carol", options, tmp_path)
        spec = replace(spec, command=(*spec.command[:2], "finishes"), checkpoint=f"{spec.checkpoint}-named")
        port.submit("named", spec)
        patiently(lambda: port.start("named", {"n1": 1}, 1))
        wait_for("it finishes", lambda: state() is JobState.COMPLETED, LONG_S)
        assert {each.service for each in tokens} == {f"ha-hdfs:{standbys.NAME}".encode()}
        wait_for("no slice is left", lambda: not port.manager.apps(kinds=(SLICE_KIND,), states=ALIVE))
    finally:
        port.close()
