"""What `horae install slurm` leaves on a host that systemd runs (22.05, one node): the unit, its log, its page."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from horae.lab import LabRequest, engine
from slurm_plugin.lab.containers import ContainerSlurm
from tests.real.slurm import ROOT, wait_for, worker_name

pytestmark = [pytest.mark.real, pytest.mark.root, pytest.mark.soak]

IMAGE = """FROM horae-slurm:22.05
RUN apt-get update && apt-get install -y --no-install-recommends systemd man-db logrotate && rm -rf /var/lib/apt/lists/*
"""
#: systemd wants a hierarchy of cgroups of its own, and slurmd GPUs
BEGIN = """for i in 0 1 2 3; do mknod -m 666 /dev/nvidia$i c 1 3; done
umount -l /sys/fs/cgroup/systemd && mount -t cgroup -o none,name=systemd none /sys/fs/cgroup/systemd
exec /lib/systemd/systemd
"""
CONF = """ClusterName=c
SlurmctldHost=site
SlurmUser=slurm
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
MailProg=/bin/true
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
NodeName=site CPUs=8 RealMemory=4000 Gres=gpu:v100:4 State=UNKNOWN
PartitionName=dl Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
SITE = f"""cat > /etc/slurm/slurm.conf <<'X'
{CONF}X
printf 'AutoDetect=off\\nName=gpu Type=v100 File=/dev/nvidia[0-3]\\n' > /etc/slurm/gres.conf
install -d -o slurm -g slurm /var/lib/slurm/slurmctld /var/log/slurm
install -d /var/spool/slurmd /opt/horae/bin /etc/horae
head -c 1024 /dev/urandom > /etc/munge/munge.key
chown -R munge:munge /etc/munge /var/log/munge /var/lib/munge && chmod 400 /etc/munge/munge.key
for each in slurmctld slurmd; do
  install -d /etc/systemd/system/$each.service.d
  printf '[Service]\\nLimitNOFILE=4096\\nLimitMEMLOCK=65536\\nLimitSTACK=8388608\\nDelegate=no\\n' \\
    > /etc/systemd/system/$each.service.d/small.conf
done
systemctl daemon-reload && systemctl restart munge slurmctld slurmd
ln -s {sys.prefix}/bin/horae {sys.prefix}/bin/horae-exec /opt/horae/bin/
cat > /etc/horae/config.yaml <<'X'
state_dir: /var/lib/horae
cluster: {{adapter: slurm, options: {{partitions: [dl], spool: /var/spool/horae, state: /var/lib/horae/memory}}}}
pools: [{{name: dl, policy: max-min, mode: enforce}}]
rounds: {{decide_s: 120}}
api: {{socket: /run/horae/api.sock}}
X
"""
JOB = """#!/bin/bash
trap 'exit 86' USR1
while :; do sleep 0.05; done
"""


class Host:
    """A container with systemd as its first process; Horae's checkout and its environment are seen read-only."""

    def __init__(self, container: Any) -> None:
        self._container = container

    def try_(self, script: str) -> tuple[int, str]:
        done = self._container.exec_run(["bash", "-c", script], environment={"LC_ALL": "C"})
        return int(done.exit_code), done.output.decode(errors="replace")

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


def test_installed_verified_started_killed_stopped_and_taken_away(host: Host) -> None:
    host.must(SITE)
    wait_for("Slurm is up", lambda: "idle" in host.try_("sinfo -h -o %T")[1], 120)
    before = host.must("cat /etc/slurm/slurm.conf")
    said = host.must("/opt/horae/bin/horae install slurm --set partitions=dl --set user=slurm --yes")
    commands = [line.strip() for line in said.rpartition("then run:\n")[2].splitlines()]
    assert "systemctl daemon-reload" in commands
    host.must("\n".join(line for line in commands if not line.startswith("horae doctor")))

    assert host.try_("systemd-analyze verify /etc/systemd/system/horae.service") == (0, "")
    exposure = host.must("systemd-analyze security horae.service | tail -1")
    assert float(exposure.partition("horae.service: ")[2].split()[0]) < 2.5, exposure
    rotation = host.must("logrotate -d /etc/logrotate.d/horae 2>&1")
    assert "error" not in rotation
    assert host.must("man --warnings -l /usr/local/share/man/man1/horae.1 2>&1 >/dev/null") == ""

    host.must("systemctl start horae")  # back only when it has told that it is ready
    assert host.is_("ActiveState", "active")
    assert host.is_("StatusText", "slurm 22.05.8 (c)")
    assert host.must("stat -c '%a %U' /var/lib/horae") == "700 slurm"
    host.must(f"cat > /tmp/job.sh <<'X'\n{JOB}X")
    job = host.must("cd /tmp && runuser -u alice -- sbatch --parsable --gres=gpu:1 --comment=horae:min=1 job.sh")

    def state() -> str:
        return host.must(f"squeue -h -t all -j {job} -o %T")

    wait_for("the service starts it", lambda: state() == "RUNNING", 240)
    pid = host.must("systemctl show horae -p MainPID --value")
    host.must(f"kill -9 {pid}")
    wait_for("it is started again", lambda: host.is_("NRestarts", "1") and host.is_("ActiveState", "active"), 240)
    host.must("systemctl stop horae")
    assert host.is_("Result", "success")
    assert state() == "RUNNING", "the arbiter's end is no job's end"

    host.must("printf 'pools: 7\\n' > /etc/horae/config.yaml; systemctl start horae || true")
    wait_for("a wrong file ends it", lambda: host.is_("ActiveState", "failed"), 120)
    assert host.is_("ExecMainStatus", "3"), "and it is not started again and again"
    host.must("sh /etc/horae/slurm/release-all.sh")
    host.must("/opt/horae/bin/horae uninstall slurm --yes && scontrol reconfigure")
    assert host.must("cat /etc/slurm/slurm.conf") == before
    assert host.try_("test -e /etc/systemd/system/horae.service")[0] == 1
