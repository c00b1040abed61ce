"""`horae lab demo hadoop`: one elastic training on real daemons, grown, moved, shrunk and suspended.

In a lab of containers it runs on the gateway: `python3 -m yarn_bridge.lab.demo OPTIONS-AS-JSON`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from horae.lab.trainer import TRAINER, shapes
from horae.port import ClusterPort, JobState, ObservedJob, PortError, attend
from horae.spec import JobSpec
from policy.model import BadInput, GpuRange
from yarn_bridge import connect


def demo(facts: Mapping[str, Any]) -> int:
    """Submits, then grows, moves and shrinks the job as an arbiter does; 0 when all of it worked.

    `facts`: options for `connect`. It keeps to a folder of its own, since an arbiter may serve the lab as well.
    """
    port = connect({**facts, "folder": "/user/horae/demo"})
    port.claim("demo")
    job = f"demo-{int(time.time())}"
    checkpoint = facts["webhdfs"].replace("http:", "webhdfs:") + f"/user/horae/checkpoints/{job}"
    command = (facts["python"], "-c", TRAINER)
    spec = JobSpec(job, command, GpuRange(1, 1, 8), checkpoint=checkpoint, memory_per_gpu=256 << 20, grace_s=30.0)
    try:
        port.submit(job, spec)
        return _play(port, job)
    except BaseException:
        with suppress(PortError):  # its GPUs are for whoever comes next
            port.cancel(job)
        raise
    finally:
        port.close()


def _play(port: ClusterPort, job: str) -> int:
    places = shapes(attend(port).nodes)
    for epoch, shape in enumerate(places, start=1):
        began = time.monotonic()
        if epoch == 1:
            port.start(job, shape, epoch)
        else:
            port.reshape(job, shape, epoch)
        _wait(port, job, _runs(epoch))
        print(f"running on {dict(shape)} after {time.monotonic() - began:.2f} s", flush=True)
        _trained(port, job, epoch)
    began = time.monotonic()
    port.checkpoint_and_stop(job, 30.0)
    seen = _wait(port, job, lambda seen: seen.state is JobState.STOPPED)
    step = seen.checkpoint.step if seen.checkpoint else 0
    print(f"suspended after {time.monotonic() - began:.2f} s, checkpoint in HDFS at step {step:g}")
    port.cancel(job)
    _wait(port, job, lambda seen: seen.state is JobState.CANCELLED)
    starts = [line for line in _log(port, job).splitlines() if "start step=" in line]
    print("its own log says:", *starts, sep="\n  ")
    return 0 if len(starts) == len(places) else os.EX_SOFTWARE


def _runs(epoch: int) -> Callable[[ObservedJob], bool]:
    return lambda seen: seen.state is JobState.RUNNING and seen.epoch == epoch


def _log(port: ClusterPort, job: str) -> str:
    data, offset = b"", 0
    while True:
        chunk = port.read_log(job, offset)
        data, offset = data + chunk.data, chunk.next_offset
        if chunk.eof:
            return data.decode(errors="replace")


def _trained(port: ClusterPort, job: str, epoch: int) -> None:
    """Until its log tells of steps of this epoch."""

    def told(_seen: ObservedJob) -> bool:
        return any("] step=" in line and f" epoch={epoch} " in line for line in _log(port, job).splitlines())

    _wait(port, job, told)


def _wait(port: ClusterPort, job: str, holds: Callable[[ObservedJob], bool], limit_s: float = 120.0) -> ObservedJob:
    deadline = time.monotonic() + limit_s
    while True:
        for seen in attend(port).jobs:
            if seen.id == job and holds(seen):
                return seen
        if time.monotonic() > deadline:
            raise TimeoutError(f"{job} does not get on within {limit_s:g} s")
        time.sleep(0.2)


def main(words: list[str]) -> int:
    try:
        return demo(json.loads(words[0]))
    except (BadInput, PortError, TimeoutError) as error:
        print(f"horae: {error}", file=sys.stderr)
        return os.EX_SOFTWARE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
