"""`horae install slurm` on a running Slurm with a job_submit script of its own, which knows nothing of Horae."""

from __future__ import annotations

import getpass
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from horae.doctor import Verdict
from horae.lab import LabRequest
from horae.port import JobState, attend
from policy.model import BadInput
from slurm_plugin import connect
from slurm_plugin.lab.private import PrivateSlurm
from slurm_plugin.site.doctor import checks
from tests.contract.harness import steps_in
from tests.real.serving import HORAE, arbiter, trainer
from tests.real.slurm import (
    CACHE,
    Private,
    clear_partition,
    fresh_partition,
    private_slurm,  # noqa: F401 - a fixture
    wait_for,
)

pytestmark = pytest.mark.real

PLAIN = "#!/bin/bash\ntrap 'exit 86' USR1\nwhile :; do sleep 0.05; done\n"
SITE_LUA = """-- the site's own rules
function slurm_job_submit(job_desc, part_list, submit_uid)
  if job_desc.name == "forbidden" then
    slurm.log_user("the site says no")
    return slurm.ERROR
  end
  return slurm.SUCCESS
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) return slurm.SUCCESS end
return slurm.SUCCESS
"""


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[PrivateSlurm]:
    """A Slurm as its site made it: no module, no exit code, no epilog of ours."""
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm/owner").write_text(str(os.getpid()))
    lab = PrivateSlurm(tmp_path / "slurm", CACHE)
    try:
        lab.up(LabRequest(name="bare", nodes=2))
    except BadInput as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"no private Slurm here: {error}")
    conf = lab.folder / "etc/slurm.conf"
    conf.write_text(re.sub(r"RequeueExitHold=.*\n", "", conf.read_text()))
    for path in (lab.folder / "etc/horae").iterdir():
        path.unlink()
    (lab.folder / "etc/job_submit.lua").write_text(SITE_LUA)
    lab.run(["scontrol", "reconfigure"])
    yield lab
    lab.run(["scancel", "--signal=KILL", "--full", f"--user={getpass.getuser()}"], check=False)
    lab.down()


def horae(*words: str) -> str:
    argv = [*HORAE, *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {str(p): (p.read_bytes(), p.stat().st_mode) for p in sorted(folder.rglob("*")) if p.is_file()}


def submit(lab: PrivateSlurm, *options: str) -> str:
    (lab.folder / "job.sh").write_text(PLAIN)
    argv = ["sbatch", "--parsable", f"--chdir={lab.folder}", "--gres=gpu:1", *options, str(lab.folder / "job.sh")]
    return lab.run(argv).stdout.strip()


def state(lab: PrivateSlurm, job: str) -> str:
    return lab.run(["squeue", "-h", "-t", "all", "-j", job, "-o", "%T %r"]).stdout.strip()


def nodes(lab: PrivateSlurm) -> list[str]:
    """Their states; none while slurmctld does not answer."""
    return lab.run(["sinfo", "-hN", "-p", "dl", "-o", "%T"], check=False).stdout.split()


def run_what_it_says(lab: PrivateSlurm, commands: Sequence[str]) -> None:
    """The commands that installing ends with, as the administrator runs them (systemd and the doctor apart)."""
    for command in commands:
        if command == "systemctl restart slurmctld":
            lab.kill("slurmctld", signal.SIGTERM)
            lab.start_controller()
            wait_for("nodes are back", lambda: nodes(lab) == ["idle", "idle"])
        elif not command.startswith(("systemctl", "horae doctor")):
            lab.run(["sh", "-c", command])


def test_installed_on_a_running_slurm_and_taken_away_again(bare: PrivateSlurm, tmp_path: Path) -> None:
    etc, root, record = bare.folder / "etc", tmp_path / "root", str(tmp_path / "installed.json")
    before = files(etc)
    words = [f"etc={etc}", f"lua={etc}/horae", f"spool={tmp_path}/spool", "partitions=dl", f"user={getpass.getuser()}"]
    words += [f"{name}={root}/{name}" for name in ("units", "logrotate", "man", "completion")]
    options = [word for pair in words for word in ("--set", pair)]

    shown = horae("install", "slurm", *options)
    assert "+local horae_ok" in shown
    assert files(etc) == before, "the dry run wrote something"
    answer = json.loads(horae("install", "slurm", *options, "--yes", "--json", "--record", record))
    run_what_it_says(bare, answer["commands"])
    assert "nothing to change" in horae("install", "slurm", *options)

    config = {"partitions": ["dl"], "spool": f"{tmp_path}/spool", "env": bare.env()}
    findings = checks(config)
    assert [finding for finding in findings if finding.verdict is Verdict.FAIL] == []
    assert next(f for f in findings if f.name == "exit code 86").verdict is Verdict.OK
    port = connect(config)
    try:
        port.claim("here")
        port.heartbeat()
        with pytest.raises(BadInput, match="the site says no"):
            submit(bare, "--partition=dl", "--job-name=forbidden")
        number = submit(bare, "--partition=dl", "--comment=horae:min=1,max=2")
        wait_for("it waits for us", lambda: state(bare, number) == "PENDING BeginTime")
        other = submit(bare, "--partition=raw", "--comment=horae:min=1")
        wait_for("others' partitions are as ever", lambda: state(bare, other).startswith("RUNNING"))
        job = next(found for found in attend(port).jobs if found.id.startswith(number + "."))
        noticed = port.noticed()
        port.start(job.id, {"n2": 2}, 1)

        def seen() -> JobState:
            return next(found for found in attend(port).jobs if found.id == job.id).state

        wait_for("it runs", lambda: seen() is JobState.RUNNING)
        port.checkpoint_and_stop(job.id, 60.0)
        wait_for("it stopped", lambda: seen() is JobState.STOPPED)
        wait_for("the epilog woke us", lambda: port.noticed() != noticed)
        port.release(job.id)
    finally:
        port.close()
    subprocess.run(["sh", str(etc / "horae/release-all.sh"), f"{tmp_path}/spool"],
                   env={**os.environ, **bare.env()}, check=True)  # fmt: skip

    horae("uninstall", "slurm", "--yes", "--record", record)
    assert files(etc) == before
    assert files(root) == {}
    bare.run(["scontrol", "reconfigure"])
    free = submit(bare, "--partition=dl")
    assert "JobHeld" not in state(bare, free)
    with pytest.raises(BadInput, match="the site says no"):
        submit(bare, "--partition=dl", "--job-name=forbidden")


def test_a_submission_wakes_an_arbiter_that_would_not_look_for_an_hour(
    private_slurm: Private,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Handed in by `horae submit --sbatch`, which asks no arbiter: it hears of the job by the Lua module's note."""
    partition = fresh_partition(private_slurm)
    options = {**private_slurm.options(partition), "state": str(tmp_path / "memory")}
    config = {
        "state_dir": str(tmp_path / "state"),
        "cluster": {"adapter": "slurm", "options": {**options, "env": dict(options["env"])}},
        "pools": [{"name": "main", "policy": "max-min", "mode": "enforce", "nodes": "n[1-2]"}],
        "rounds": {"tick_s": 3600, "busy_s": 3600},
        "api": {"socket": str(tmp_path / "api.sock")},
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    here, there = private_slurm.shared()
    (here / f"{partition}.py").write_text(trainer(150))
    try:
        with arbiter(tmp_path):
            beat = private_slurm.lab.spool / "heartbeat"
            wait_for("the first heartbeat", lambda: beat.exists() and partition in beat.read_text())
            out = here / f"{partition}-w.out"
            words = ["submit", "-g", "1:4", "-c", f"{there}/{partition}-w", f"--sbatch=--partition={partition}"]
            words += [f"--sbatch=--output={out}", "--", "python3", f"{there}/{partition}.py"]
            environment = {**os.environ, **private_slurm.lab.env(), "HORAE_EXEC": private_slurm.tool()}
            done = subprocess.run(
                [*HORAE, *words], env=environment, cwd=here, check=True, capture_output=True, text=True
            )
            number = done.stdout.split()[-1]
            assert "horae:min=1,max=4" in private_slurm.run("scontrol", "show", "job", number)
            wait_for("it trains", lambda: out.exists() and len(steps_in(out.read_bytes())) > 3, 120)
    finally:
        clear_partition(private_slurm, partition)
        print((tmp_path / "serve.log").read_text()[-2000:])
