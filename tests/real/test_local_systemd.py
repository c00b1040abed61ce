"""The unit of the page on one machine, under a real systemd: whatever becomes of the arbiter, users' jobs run on."""

from __future__ import annotations

import re
import sys

import pytest

from tests.real.slurm import wait_for
from tests.real.systemd_host import ROOT, Host, host  # noqa: F401 - a fixture

pytestmark = [pytest.mark.real, pytest.mark.root, pytest.mark.soak]

PAGE = ROOT / "docs" / "howto" / "one-machine.md"
JOB = "import time\nwhile True: time.sleep(0.1)\n"


def block(first: str) -> str:
    """The block of the page that begins with these words."""
    found = re.search(rf"^```\w*\n({re.escape(first)}.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, first
    return found[1]


def test_the_arbiter_is_stopped_killed_and_started_again_and_no_job_ends(host: Host) -> None:  # noqa: F811
    config = block("# /etc/horae/config.yaml").replace("account: horae}", "account: horae, nodes: 'v100:1x2'}")
    assert "nodes:" in config
    host.must(f"install -d /etc/horae /opt/horae/bin && ln -s {sys.prefix}/bin/horae /opt/horae/bin/")
    host.must("userdel horae; useradd --create-home olga; id alice")  # the image brings a `horae` of Slurm's
    host.must(block("useradd").splitlines()[0])
    host.must(f"cat > /etc/horae/config.yaml <<'X'\n{config}X")
    host.must(f"cat > /etc/systemd/system/horae.service <<'X'\n{block('# /etc/systemd/system/horae.service')}X")
    assert host.try_("systemd-analyze verify /etc/systemd/system/horae.service") == (0, "")
    host.must("systemctl daemon-reload && systemctl start horae")  # back only when it has told that it is ready
    main = host.must("systemctl show horae -p MainPID --value")
    assert host.must(f"stat -c %U /proc/{main}") == "horae"
    assert re.search(r"^CapEff:\s+0+$", host.must(f"cat /proc/{main}/status"), re.MULTILINE)

    host.must(f"cat > /tmp/job.py <<'X'\n{JOB}X")
    told = "cd /tmp && runuser -u alice -- /opt/horae/bin/horae"
    job = host.must(
        f"{told} submit --gpus 1 --checkpoint /tmp/alice -- python3 /tmp/job.py | grep -o '[0-9]*' | head -1"
    )

    def pids() -> str:
        return host.try_("pgrep -u alice -f '^python3 /tmp/job.py'")[1]

    wait_for("it runs", lambda: bool(pids()), 120)
    before = pids()
    host.must("systemctl restart horae")
    wait_for("the arbiter is back", lambda: host.is_("ActiveState", "active"), 120)
    assert pids() == before, "restarted"
    host.must("kill -9 $(systemctl show horae -p MainPID --value)")
    wait_for("killed, it comes again", lambda: host.is_("NRestarts", "1") and host.is_("ActiveState", "active"), 120)
    assert pids() == before, "killed"
    host.must("systemctl stop horae")
    assert pids() == before, "stopped"
    host.must("systemctl start horae")
    host.must(f"{told} cancel {job}")
    wait_for("what was cancelled after all that ends", lambda: not pids(), 120)
