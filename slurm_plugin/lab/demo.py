"""`horae lab demo slurm`: one elastic training on real daemons, through every shape a small cluster has."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from horae.lab.trainer import TRAINER, shapes
from horae.port import ClusterPort, JobState, ObservedJob, attend
from slurm_plugin import connect

_SCRIPT = "#!/bin/bash\nexec @TOOL@ --checkpoint @SHARED@/demo-$SLURM_JOB_ID -- python3 @SHARED@/demo.py\n"


class Cluster(Protocol):
    def facts(self) -> Mapping[str, Any]:
        """Options for `connect`."""
        ...

    def submit(self, script: str, files: Mapping[str, str], options: Sequence[str]) -> str:
        """sbatch as a user, after writing `files` to the shared folder; `@SHARED@` and `@TOOL@` are filled in."""
        ...


def demo(lab: Cluster) -> int:
    """Submits as a user does, then grows, moves and shrinks the job as an arbiter does; 0 when all of it worked."""
    port = connect(lab.facts())
    port.claim("demo")
    port.heartbeat()
    try:
        options = ["--partition=dl", "--gres=gpu:1", "--comment=horae:min=1,max=8,app=demo", "--open-mode=append"]
        number = lab.submit(_SCRIPT, {"demo.py": TRAINER}, options)
        job = _wait(port, number, JobState.QUEUED)
        print(f"job {number} arrived, held by the Lua module")
        places = shapes(attend(port).nodes)
        for epoch, shape in enumerate(places, start=1):
            began = time.monotonic()
            port.start(job.id, shape, epoch)
            _wait(port, number, JobState.RUNNING)
            print(f"running on {dict(shape)} after {time.monotonic() - began:.2f} s")
            time.sleep(3)
            began = time.monotonic()
            port.checkpoint_and_stop(job.id, 20)
            seen = _wait(port, number, JobState.STOPPED)
            step = seen.checkpoint.step if seen.checkpoint else 0
            print(f"  stopped after {time.monotonic() - began:.2f} s, checkpoint at step {step:g}")
        port.cancel(job.id)
        _wait(port, number, JobState.CANCELLED)
        starts = [line for line in port.read_log(job.id, 0).data.decode().splitlines() if "start step=" in line]
        print("its own log says:", *starts, sep="\n  ")
        return 0 if len(starts) >= len(places) else 1
    finally:
        port.close()


def _wait(port: ClusterPort, number: str, state: JobState, limit_s: float = 60.0) -> ObservedJob:
    deadline = time.monotonic() + limit_s
    while True:
        for job in attend(port).jobs:
            if job.id.split(".")[0] == number and job.state is state:
                return job
        if time.monotonic() > deadline:
            raise TimeoutError(f"job {number} is not {state} after {limit_s:g} s")
        time.sleep(0.1)
