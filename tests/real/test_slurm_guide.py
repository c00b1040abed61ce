"""The Slurm guide's installation, block by block from the page itself, in its order, on a bare Debian with systemd; and
its way out, after which every file is what it was."""

from __future__ import annotations

import subprocess
from itertools import islice

import pytest

from tests.real.bare_host import BareHost, bare_host  # noqa: F401 - a fixture
from tests.real.guide import STEPS, Block, blocks
from tests.real.slurm import ONE_HOST, ROOT, wait_for

#: The first time a distribution is unpacked for it; that alone takes minutes where others work too.
pytestmark = [pytest.mark.real, pytest.mark.root, pytest.mark.soak, pytest.mark.timeout(3000)]

#: The site as it is before the guide's first line.
CONF = f"""{ONE_HOST}SlurmctldLogFile=/var/log/slurm/slurmctld.log
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=associations
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
DBD = """AuthType=auth/munge
DbdHost=site
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageLoc=acct
StorageUser=slurm
"""
SITE = f"""cat > /etc/slurm/slurm.conf <<'X'
{CONF}X
cat > /etc/slurm/slurmdbd.conf <<'X'
{DBD}X
chown slurm /etc/slurm/slurmdbd.conf; chmod 600 /etc/slurm/slurmdbd.conf
printf 'AutoDetect=off\\nName=gpu Type=v100 File=/dev/nvidia[0-3]\\n' > /etc/slurm/gres.conf
install -d -o slurm -g slurm /var/lib/slurm/slurmctld /var/log/slurm
install -d /var/spool/slurmd
for each in slurmctld slurmd slurmdbd; do
  install -d /etc/systemd/system/$each.service.d
  printf '[Service]\\nLimitNOFILE=4096\\nLimitMEMLOCK=65536\\nLimitSTACK=8388608\\nDelegate=no\\n' \\
    > /etc/systemd/system/$each.service.d/small.conf
done
mariadb -e "create database acct; create user slurm@localhost identified via unix_socket"
mariadb -e "grant all on acct.* to slurm@localhost"
useradd -m alice
systemctl daemon-reload
systemctl enable --now slurmdbd
"""

JOB = """#!/bin/bash
trap 'exit 86' USR1
while :; do sleep 0.1; done
"""
#: Every file where Horae, Slurm and the site's accounts could leave one, and what is in it
_WHERE = "/etc /usr /opt /shared /var/lib/horae /var/spool /srv /root -path /var/spool/slurmd -prune -o"
FILES = (
    f"find {_WHERE} -type f -print0 2>/dev/null | sort -z | xargs -0 sha256sum; "
    f"find {_WHERE} -type l -printf '%p %l\\n' 2>/dev/null | sort"
)
ACCOUNTS = "cat /etc/passwd; sacctmgr -nP show assoc format=account,user; sacctmgr -nP show user"


def commands(text: str) -> list[str]:
    return [line.strip() for line in text.rpartition("then run:\n")[2].splitlines()]


def test_every_step_of_the_guide_in_its_order_and_its_way_out(bare_host: BareHost) -> None:  # noqa: F811
    host, page = bare_host, blocks()
    steps = iter(STEPS)

    def found(step: str) -> Block:
        """The page's next block."""
        block = next(page)
        assert step == next(steps) == block.text.split()[0]
        return block

    def follow(step: str) -> str:
        """That, as it stands."""
        block = found(step)
        if block.kind == "yaml":
            host.must(f"cat > {block.title} <<'X'\n{block.text}X")
            return ""
        return host.must(block.text)

    host.must(SITE)
    wait_for("slurmdbd answers", lambda: host.try_("sacctmgr -n show cluster")[0] == 0, 60)
    host.must("sacctmgr -i add cluster c; sacctmgr -i add account lab; sacctmgr -i add user alice account=lab")
    host.must("systemctl enable --now slurmctld slurmd")
    wait_for("Slurm is up", lambda: "idle" in host.try_("sinfo -h -o %T")[1], 60)
    before = host.must(FILES), host.must(ACCOUNTS)

    block = found("make")
    made = subprocess.run(["bash", "-ec", block.text], cwd=ROOT, check=True, capture_output=True, text=True)
    archive = ROOT / made.stdout.split()[-1]
    host.put(archive, f"/tmp/{archive.name}")
    follow("tar")
    follow("/opt/horae/bin/python")
    assert host.must("/shared/horae/bin/horae-exec --help", "alice")
    assert "+local horae_ok" in follow("useradd"), "the diff"
    told = commands(follow("horae"))
    shown = [line for block in islice(blocks(), 5, 8) if block.kind == "sh" for line in block.text.splitlines()]
    assert [line for line in told if not line.startswith("#")] == shown, "the page and the program say the same"
    follow("install")
    follow("cluster:")
    wait_for("slurmctld is back", lambda: "idle" in host.try_("sinfo -h -o %T")[1], 60)
    doctor = follow("systemctl")
    assert "fail" not in doctor

    def shows(text: str, *argv: str) -> None:
        wait_for(f"{argv} shows {text}", lambda: text in host.try_(" ".join(argv), "alice")[1], 120)

    shows("gpu", "horae", "status", "--nodes")
    follow("sed")
    shows("gpu", "horae", "status", "--nodes")
    host.must(f"cat > /home/alice/job.sh <<'X'\n{JOB}X")
    words = "cd /home/alice && sbatch --parsable --gres=gpu:1"
    elastic, rigid = (host.must(f"{words} {more} job.sh", "alice") for more in ("--comment=horae:min=1,max=4", ""))
    for job in (elastic, rigid):
        wait_for("Horae starts it", lambda job=job: host.must(f"squeue -h -j {job} -o %T") == "RUNNING", 120)  # type: ignore[misc]
        wait_for("it is told why", lambda job=job: host.try_(f"horae explain {job}", "alice")[0] == 0, 60)  # type: ignore[misc]
    waits = host.must(f"{words} --exclusive job.sh", "alice")
    host.must(f"sleep 2; scontrol show job {waits} | grep -q PENDING")

    leaving = found("horae")
    code, said = host.try_(leaving.text)
    assert (code, said.count("its job runs")) == (1, 2), said
    assert "horae" not in host.must("scontrol show config | grep -i -e JobSubmitPlugins -e EpilogSlurmctld")
    wait_for("it is Slurm's own", lambda: "BeginTime" not in host.must(f"squeue -h -j {waits} -o %r"), 30)
    for job in (elastic, rigid):
        assert host.must(f"squeue -h -j {job} -o %T") == "RUNNING", "who runs, runs on"
    host.must("scancel -u alice")
    wait_for("all have ended", lambda: host.must("squeue -h") == "", 60)
    host.must(leaving.text.splitlines()[-1])
    follow("rm")
    assert (next(page, None), next(steps, None)) == (None, None), "a block that is not run"
    assert host.must(ACCOUNTS) == before[1]
    left = set(host.must(FILES).splitlines()) ^ set(before[0].splitlines())
    assert {line for line in left if not line.endswith("-")} == set(), "but useradd's own copies: /etc/passwd-"
    assert host.try_("systemctl cat horae")[0] != 0
