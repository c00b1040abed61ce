"""The guide for who comes from Submarine, block by block from the page itself, in its order, under an arbiter on a real
Hadoop.

What the page names and nobody has is made: its data, its script, the file of `-f`. `...` stands for the words of its
first command, and memory and cores of a node are as many as are asked for, on paper.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.contract.waiting import wait_for
from tests.real.hadoop import ROOMY, YarnHarness, cluster_of
from tests.real.serving import HORAE, arbiter

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.timeout(3000), pytest.mark.xdist_group("yarn")]

PAGE = (Path(__file__).parents[2] / "docs/howto/submarine.md").read_text()
LONG_S = 600.0
#: Elastic, and told of what Submarine tells; as long as the file `long` is there it does not end.
TRAIN = """import os, sys, time
from horae import elastic
done = [0]
def save(folder):
    open(folder + "/done", "w").write(str(done[0]))
def load(folder):
    done[0] = int(open(folder + "/done").read())
print("told", sys.argv[1:], os.environ["_TASK_TYPE"], "TF_CONFIG" in os.environ, flush=True)
steps = 10**6 if os.path.exists("{mark}") else 20
for step in elastic.Training(steps=steps, global_batch=16, save=save, load=load, log_every_s=0.0):
    time.sleep(0.05)
    done[0] += 1
    step.report(1.0)
"""
FILE = """spec:
  name: by-file
  framework: TensorFlow
configs: {input_path: hdfs:///data/mnist, localizations: ["./train.py:."]}
roles:
  worker:
    replicas: 1
    resources: SIZE
    launch_cmd: python train.py --data %input_path%
"""


class Guide:
    """The page's commands, as a user types them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.blocks = iter(re.findall(r"^```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))

    def words(self, line: str) -> list[str]:
        return shlex.split(line.replace("\\\n", " "))

    def horae(self, *words: str, code: int = 0) -> str:
        done = subprocess.run([*HORAE, *words], cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == code, (words, done.stdout, done.stderr[-3000:])
        return done.stdout if code == 0 else done.stderr

    def named(self, code: str) -> str:
        """What the page's text names, between backquotes."""
        assert f"`{code}`" in PAGE, f"the page does not say {code}"
        return code

    def jobs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.horae("status", "--all", "--json"))["jobs"]
        return found

    def newest(self, name: str) -> dict[str, Any]:
        return max((each for each in self.jobs() if each["name"] == name), key=lambda each: int(each["id"]))

    def until(self, name: str, what: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        wait_for(f"{name} {what}", lambda: holds(self.newest(name)), LONG_S)
        return self.newest(name)


def test_every_command_of_the_guide_in_its_order(
    pytestconfig: pytest.Config,
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = cluster_of("3.4.2", pytestconfig, tmp_path_factory, ROOMY)
    harness, mark = YarnHarness(lab, tmp_path), tmp_path / "long"
    (tmp_path / "train.py").write_text(TRAIN.format(mark=mark))
    put_in_hdfs(harness, "/user/ann/train.py", (tmp_path / "train.py").read_bytes())
    put_in_hdfs(harness, "/data/mnist", b"data")
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"  # where `python` is
    options = {**harness.options, "env": {**harness.options["env"], "PATH": path}}  # type: ignore[dict-item]
    config = {
        "state_dir": str(tmp_path / "state"),
        "cluster": {"adapter": "yarn", "options": options},
        "pools": [{"name": "main", "policy": "max-min", "mode": "enforce", "nodes": "n1"}],
        "api": {"socket": str(tmp_path / "api.sock")},
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    monkeypatch.setenv("HORAE_SOCKET", str(tmp_path / "api.sock"))
    monkeypatch.setenv("HORAE_WEBHDFS", harness.facts["webhdfs"])
    guide = Guide(tmp_path)
    try:
        with arbiter(tmp_path):
            wait_for("the arbiter listens", (tmp_path / "api.sock").exists, LONG_S)
            walk(guide, mark)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{(tmp_path / 'serve.log').read_text(errors='replace')[-3000:]}") from None
    harness.end()


def walk(guide: Guide, mark: Path) -> None:
    command = guide.words(next(guide.blocks))
    assert command[:3] == ["submarine", "job", "run"]
    guide.horae(*command)  # "write `horae` in front of it"
    guide.until("mnist", "ends", lambda job: job["state"] == "completed")
    log = guide.horae("logs", guide.newest("mnist")["id"])
    assert "told ['--data', 'hdfs:///data/mnist', '--out', 'hdfs:///user/ann/mnist'] chief True" in log

    first, second = next(guide.blocks).splitlines()
    before = len(guide.jobs())
    shown = guide.horae(*filled(guide.words(first), command)[1:])
    assert "taken      --num_workers 4" in shown
    assert len(guide.jobs()) == before, "--dry-run hands nothing in"
    (guide.folder / "job.yaml").write_text(FILE.replace("SIZE", "memory=2048M,vcores=1,gpu=1"))
    guide.horae(*guide.words(second)[1:])
    guide.until("by-file", "ends", lambda job: job["state"] == "completed")
    assert "localizations" in FILE and guide.named("--localization ./train.py:.")

    mark.touch()
    (line,) = next(guide.blocks).splitlines()
    guide.horae(*filled(guide.words(line), command)[1:])
    job = guide.until("mnist", "has what there is", lambda job: sum(job["allocation"].values()) == 4)
    assert (job["gpus"]["min"], job["gpus"]["max"]) == (1, 16)
    wait_for("it trains", lambda: "step=" in guide.horae("logs", job["id"]), LONG_S)
    for verb in ("explain", "history"):
        assert guide.horae(*guide.named(f"horae {verb}").split()[1:], job["id"]).strip()
    assert "mnist" in guide.horae(*guide.named("horae submarine job show --name mnist").split()[1:])
    assert "mnist" in guide.horae("submarine", *guide.named("job list").split())
    guide.horae("submarine", *guide.named("job kill --name mnist").split())
    guide.until("mnist", "is killed", lambda job: job["state"] == "cancelled")
    guide.horae(*filled(guide.words(line), command)[1:])
    guide.horae(*guide.named("horae cancel").split()[1:], guide.newest("mnist")["id"])
    guide.until("mnist", "is cancelled", lambda job: job["state"] == "cancelled")

    said = " ".join(next(guide.blocks).split())
    where = re.search(r"job\.yaml:(\d+): .*?'([^']+)'", said)
    assert where is not None
    (guide.folder / "job.yaml").write_text(FILE.replace("SIZE", where[2]))
    assert FILE.splitlines()[int(where[1]) - 1].strip() == "resources: SIZE"
    assert " ".join(guide.horae(*guide.words(second)[1:], code=3).split()) == said
    assert next(guide.blocks, None) is None, "a block that is not run"


def filled(words: list[str], command: list[str]) -> list[str]:
    """With the first command's words for `...`, but for options that stand here: one that stands twice is refused."""
    own, kept = set(words), []
    options = iter(command[3:])
    for name, value in zip(options, options, strict=True):
        kept += [] if name in own else [name, value]
    at = words.index("...")
    return [*words[:at], *kept, *words[at + 1 :]]


def put_in_hdfs(harness: YarnHarness, path: str, data: bytes) -> None:
    query = {"op": "CREATE", "user.name": "root", "noredirect": "true", "overwrite": "true"}
    made = requests.put(f"{harness.facts['webhdfs']}/webhdfs/v1{path}", params=query, timeout=30)
    requests.put(made.json()["Location"], data=data, timeout=30).raise_for_status()
