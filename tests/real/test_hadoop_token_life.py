"""A job that outlives its HDFS token, on a Hadoop under Kerberos where tokens live two minutes.

As a service, and as slices: there the oldest slice's token is the job's.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from horae.port import JobState, ObservedJob, attend
from horae.spec import JobSpec
from policy.model import GpuRange
from tests.contract.harness import starts_in, steps_in
from tests.real.hadoop import wait_for
from tests.real.kerberos import options_of, secured
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.clients.records import App
from yarn_bridge.jobs.state_machine import RENEW_WHEN_MOVED, RENEWED
from yarn_bridge.jobs.token_life import SETTING
from yarn_bridge.options import SERVICES, SLICES, Options
from yarn_bridge.runtimes.service_runtime import KIND
from yarn_bridge.runtimes.slice_shapes import SLICE_KIND

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.xdist_group("yarn")]

TRAINER = Path(__file__).parents[1] / "contract" / "trainer.py"
LIFE_S, RENEW_S = 120.0, 60.0


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Options]:
    life = {SETTING: f"{LIFE_S * 1000:.0f}", "dfs.namenode.delegation.token.renew-interval": f"{RENEW_S * 1000:.0f}"}
    with secured(tmp_path_factory.mktemp("hadooplife-"), life) as lab:
        yield options_of(lab)


@pytest.mark.parametrize(("runtime", "kind"), [(SERVICES, KIND), (SLICES, SLICE_KIND)])
def test_a_job_runs_on_and_grows_after_its_first_token_has_ended(
    options: Options, tmp_path: Path, runtime: str, kind: str
) -> None:
    name = f"long-{runtime}"
    shutil.copy(TRAINER, tmp_path / "trainer.py")
    tmp_path.chmod(0o755)
    url = options.webhdfs[0].replace("http:", "webhdfs:")
    spec = JobSpec(
        name=name,
        command=(sys.executable, str(tmp_path / "trainer.py"), "trains", "0.1"),
        gpus=GpuRange(requested=1, min=1, max=4),
        owner="alice",
        checkpoint=f"{url}/user/alice/{name}-checkpoints",
        memory_per_gpu=256 << 20,
        grace_s=30.0,
    )
    port = YarnCluster(replace(options, runtime=runtime, slice_memory_mib=320))

    def job() -> ObservedJob:
        return next(each for each in attend(port).jobs if each.id == name)

    def application() -> App:
        """Whose token is the job's."""
        found = port.manager.apps(kinds=(kind,), states=("ACCEPTED", "RUNNING"))
        return min(found, key=lambda each: (each.submitted_s, each.id))

    def started(epoch: int) -> bool:
        """Its program, under this epoch."""
        return job().state is JobState.RUNNING and any(each.epoch == epoch for each in starts_in(log()))

    def log() -> bytes:
        return port.read_log(name, 0, 1 << 26).data

    try:
        port.claim("the arbiter")
        port.submit(name, spec)
        port.start(name, {"n1": 1}, 1)
        wait_for("it runs", lambda: started(1), 300.0)
        first = application()

        # Nobody asks: the bridge stops it at a checkpoint while its token still lives, and says why.
        wait_for("it is stopped for a new token", lambda: job().state is JobState.STOPPED, LIFE_S + 60.0)
        stopped = job()
        assert stopped.native == RENEWED
        assert stopped.exit_code == 86
        assert stopped.checkpoint is not None
        assert time.time() < first.submitted_s + LIFE_S, "the checkpoint was written with a living token"
        assert time.time() > first.submitted_s + RENEW_S, "which YARN had renewed"
        port.start(name, {"n1": 1}, 2)
        wait_for("it runs on", lambda: started(2), 300.0)
        second = application()
        assert second.id != first.id

        # Past the end of the first token it is given more GPUs, and they come.
        wait_for("the first token ends", lambda: time.time() > first.submitted_s + LIFE_S + 1.0, LIFE_S)
        wait_for("it runs or was renewed", lambda: job().state in (JobState.RUNNING, JobState.STOPPED), 120.0)
        young = time.time() < second.submitted_s + RENEW_WHEN_MOVED * LIFE_S
        grown = {"n1": 1, "n2": 2}
        if job().state is JobState.RUNNING:
            port.reshape(name, grown, 3)
        else:  # a machine so slow that the second token has worn as well
            port.start(name, grown, 3)
        wait_for("it has grown", lambda: started(3), 300.0)
        assert job().allocation == grown
        assert (application().id == second.id) <= young, "what was old was made anew, not kept"

        starts, steps = starts_in(log()), steps_in(log())
        assert [(each.epoch, each.world) for each in starts] == [(1, 1), (2, 1), (3, 3)]
        assert starts[1].step == stopped.checkpoint.step
        assert steps == sorted(set(steps)), "no step was done twice, though it was stopped twice"
        port.cancel(name)
        wait_for("it is cancelled", lambda: job().state is JobState.CANCELLED, 180.0)
    finally:
        port.close()
