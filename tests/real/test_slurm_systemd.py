"""What `horae install slurm` leaves on a host that systemd runs (22.05, one node): the unit, its log, its page."""

from __future__ import annotations

import sys

import pytest

from tests.real.slurm import ONE_HOST, wait_for
from tests.real.systemd_host import Host, host  # noqa: F401 - a fixture

pytestmark = [pytest.mark.real, pytest.mark.root, pytest.mark.soak]

CONF = f"""{ONE_HOST}SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
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


def test_installed_verified_started_killed_stopped_and_taken_away(host: Host) -> None:  # noqa: F811
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
