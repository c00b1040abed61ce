"""A job's owner may mount a file system of his own over his folder, or over a file in it (FUSE), which never answers,
perhaps. It costs his job alone, which can still be cancelled."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from horae.local.adapter import LocalCluster
from horae.port import JobState, PortError
from tests.horae.local.cluster import Cluster

pytestmark = pytest.mark.root

LIBC = ctypes.CDLL(None, use_errno=True)
FUSE = Path("/dev/fuse")
BIND, DETACH = 4096, 2


@contextmanager
def mounted(over: Path, kind: str) -> Iterator[None]:
    """`another`: it holds what its owner likes. `silent`: whoever opens anything there waits until this is over."""
    server = os.open(FUSE if kind == "silent" else os.devnull, os.O_RDWR)
    source, fstype, flags, options = b"another", b"tmpfs", 0, ""
    if kind == "silent":
        rootmode = "40000" if over.is_dir() else "100000"
        fstype, options = b"fuse", f"fd={server},rootmode={rootmode},user_id=1,group_id=1,allow_other"
    elif not over.is_dir():
        end = over.parent / "end"
        end.write_text(json.dumps({"epoch": 1, "state": "completed", "exit_code": 0}))
        source, flags = os.fsencode(end), BIND
    try:
        if LIBC.mount(source, os.fsencode(over), fstype, flags, options.encode()):
            raise OSError(ctypes.get_errno(), "cannot mount", str(over))
        try:
            yield
        finally:
            LIBC.umount2(os.fsencode(over), DETACH)
    finally:
        os.close(server)  # what still waits there gets an error


@pytest.mark.parametrize("where", ["", "state.json", "output.log"])
@pytest.mark.parametrize("kind", ["another", *(["silent"] if FUSE.exists() else [])])
def test_what_is_mounted_in_a_jobs_folder_is_not_entered(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, kind: str, where: str
) -> None:
    monkeypatch.setattr("horae.local.upkeep.PRESS_S", 0.3)
    cluster.running("mine", "import time; print('runs', flush=True); time.sleep(600)", {"v100-1": 2})
    cluster.running("other", "import time; time.sleep(600)", {"v100-2": 1})
    over = cluster.state / "jobs" / "mine" / where
    with mounted(over, kind):
        for port in (cluster.port, LocalCluster(cluster.options)):
            seen = {job.id: job for job in port.observe().jobs}
            assert seen["other"].state is JobState.RUNNING
            assert (seen["mine"].state.holds, dict(seen["mine"].allocation)) == (True, {"v100-1": 2})
            assert ("mounted there" in seen["mine"].native) == (where != "output.log")
        if where != "state.json":
            with pytest.raises(PortError, match="mounted there"):
                cluster.port.read_log("mine", 0)
        cluster.port.cancel("mine")
        assert dict(cluster.wait_state("mine", JobState.CANCELLED).allocation) == {}
