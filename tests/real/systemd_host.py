"""A Debian host that a real systemd runs: a container in which the checkout and its environment are seen read-only."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from horae.lab import LabRequest, engine
from horae.lab.docked import run_in
from slurm_plugin.lab.containers import ContainerSlurm
from tests.real.slurm import ROOT, wait_for, worker_name

__all__ = ["Host", "host"]

IMAGE = """FROM horae-slurm:22.05
RUN apt-get update && apt-get install -y --no-install-recommends systemd man-db logrotate && rm -rf /var/lib/apt/lists/*
"""
#: systemd wants a hierarchy of cgroups of its own, and slurmd GPUs
BEGIN = """for i in 0 1 2 3; do mknod -m 666 /dev/nvidia$i c 1 3; done
umount -l /sys/fs/cgroup/systemd && mount -t cgroup -o none,name=systemd none /sys/fs/cgroup/systemd
exec /lib/systemd/systemd
"""


class Host:
    """A container with systemd as its first process; Horae's checkout and its environment are seen read-only."""

    def __init__(self, container: Any) -> None:
        self._container = container

    def try_(self, script: str) -> tuple[int, str]:
        return run_in(self._container, ["bash", "-c", script])

    def must(self, script: str) -> str:
        code, text = self.try_(f"set -e\n{script}")
        assert code == 0, text[-3000:]
        return text.strip()

    def is_(self, name: str, value: str, unit: str = "horae") -> bool:
        return self.must(f"systemctl show {unit} -p {name} --value") == value


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    if sys.base_prefix != "/usr" or sys.version_info[:2] != (3, 11):
        pytest.skip("needs the checkout's environment on Debian 12's own Python, which the container has too")
    lab = ContainerSlurm(f"sd-{worker_name()}", tmp_path / "lab", lambda text: None)
    if str(lab.client.info().get("CgroupVersion")) != "1":
        pytest.skip("this systemd in a container needs cgroups of version 1")
    request = LabRequest(name=lab.name, release="22.05")
    lab.image(request.release)
    lab.client.images.build(fileobj=io.BytesIO(IMAGE.encode()), tag="horae-slurm-systemd", rm=True, forcerm=True)
    engine.clean(lab.client, lab.name)
    folders = {str(ROOT), sys.prefix}
    container = lab.client.containers.run(
        "horae-slurm-systemd", ["--cgroup", "--mount", "bash", "-ec", BEGIN], entrypoint="unshare", hostname="site",
        detach=True, labels=engine.labels(lab.name, kind="slurm"), environment={"container": "docker"},
        cap_add=["SYS_ADMIN"], security_opt=["seccomp=unconfined", "apparmor=unconfined"],
        tmpfs={"/run": "", "/run/lock": ""}, volumes={path: {"bind": path, "mode": "ro"} for path in folders},
    )  # fmt: skip
    try:
        made = Host(container)
        wait_for("systemd is up", lambda: made.try_("systemctl is-system-running")[1].strip()
                 in {"running", "degraded"}, 120)  # fmt: skip
        yield made
    finally:
        engine.clean(lab.client, lab.name)
