"""Real GPUs, as a pretended `nvidia-smi` shows them: who computes there without asking Horae is left alone."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from horae import machine_gpus
from horae.port import JobState, TryLater
from tests.horae.elastic.exec_job import until
from tests.horae.local.cluster import Cluster

Make = Callable[..., Cluster]


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two GPUs; the file that says which processes are on them."""
    computing = tmp_path / "computing"
    computing.write_text("")
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(f"""#!/bin/sh
case $1 in
--query-gpu=index,name) echo '0, NVIDIA H200'; echo '1, NVIDIA H200';;
--query-gpu=*) echo '0, GPU-a, 97'; echo '1, GPU-b, 0';;
--query-compute-apps=*) cat {computing};;
esac
""")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    monkeypatch.setattr(machine_gpus, "EVERY_S", 0.05)
    return computing


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def foreign(cluster: Cluster) -> int:
    return cluster.port.observe().nodes[0].foreign


def start(cluster: Cluster, name: str, gpus: int, epoch: int = 1) -> None:
    """As soon as it is known who computes there."""

    def started() -> bool:
        try:
            cluster.port.start(name, {cluster.options.nodes[0].name: gpus}, epoch)
        except TryLater as later:
            if "is being asked" in later.text:
                return False
            raise
        return True

    until("nvidia-smi was asked", started)


def test_what_a_stranger_computes_on_is_granted_to_nobody_until_he_ends(
    make_cluster: Make, smi: Path, stranger: subprocess.Popen[bytes]
) -> None:
    smi.write_text(f"GPU-a, {stranger.pid}\n")
    cluster = make_cluster(nodes="auto")
    cluster.submit("a")
    with pytest.raises(TryLater, match="1 GPUs free; 2 were granted"):
        start(cluster, "a", 2)
    assert foreign(cluster) == 1
    (note,) = cluster.port.observe().notes
    assert f"GPU 0 of {cluster.options.nodes[0].name} is used by process {stranger.pid}" in note
    start(cluster, "a", 1)
    cluster.wait("a", JobState.RUNNING)
    assert cluster.folder("a").state()["slots"] == {cluster.options.nodes[0].name: [1]}  # type: ignore[index]
    stranger.kill()
    stranger.wait()
    assert foreign(cluster) == 0, "at once, whatever nvidia-smi said last"


def test_a_job_is_no_stranger_where_it_was_granted_and_one_elsewhere(make_cluster: Make, smi: Path) -> None:
    cluster = make_cluster(nodes="auto")
    cluster.submit("a")
    start(cluster, "a", 1)
    cluster.wait("a", JobState.RUNNING)
    pid = cluster.supervisor("a")
    smi.write_text(f"GPU-a, {pid}\n")
    until("its use is seen", lambda: cluster.job("a").gpu_use)
    assert foreign(cluster) == 0
    smi.write_text(f"GPU-a, {pid}\nGPU-b, {pid}\n")
    until("it is seen on another's", lambda: foreign(cluster) == 1)


def test_a_silent_nvidia_smi_holds_up_nobody(make_cluster: Make, smi: Path) -> None:
    cluster = make_cluster(nodes="auto")
    (smi.parent / "bin" / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    cluster.submit("a")
    start(cluster, "a", 2)
    cluster.wait("a", JobState.RUNNING)
    assert foreign(cluster) == 0
