"""What tests of real Slurm do to it beside the port."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from tests.contract.driver import Driver
from tests.contract.waiting import wait_for
from tests.real.slurm import Containers
from tests.real.slurm_harness import SlurmHarness

PLAIN = "#!/bin/bash\ntrap 'exit 86' USR1\necho trapped\nwhile :; do sleep 0.05; done\n"


ELASTIC = "--comment=horae:min=1,max=8"


def harness(driver: Driver) -> SlurmHarness:
    assert isinstance(driver.harness, SlurmHarness)
    return driver.harness


def containers(driver: Driver) -> Containers:
    cluster = harness(driver).cluster
    assert isinstance(cluster, Containers)
    return cluster


def submit(driver: Driver, *options: str) -> str:
    return harness(driver).submit_script(PLAIN, "--gres=gpu:1", "--time=60", ELASTIC, *options)


def number(job: str) -> str:
    return job.split(".", maxsplit=1)[0]


def job_shown(driver: Driver, job: str) -> str:
    return harness(driver).cluster.run("scontrol", "show", "job", number(job))


def waits_for_us(driver: Driver, job: str) -> bool:
    """Whether Slurm does not start it by itself: its begin time is months away, or it is held."""
    shown = job_shown(driver, job)
    eligible = re.search(r"EligibleTime=(\d\S+)", shown)
    assert eligible is not None, shown
    return "Priority=0" in shown or datetime.fromisoformat(eligible[1]) > datetime.now() + timedelta(days=100)


@contextmanager
def edited(driver: Driver, old: str, new: str) -> Iterator[None]:
    """slurm.conf, edited and read again by Slurm; put back afterwards."""
    conf = containers(driver).lab.folder / "etc/slurm.conf"
    before = conf.read_text()
    assert old in before
    conf.write_text(before.replace(old, new))
    containers(driver).run("scontrol", "reconfigure")
    try:
        yield
    finally:
        conf.write_text(before)
        containers(driver).run("scontrol", "reconfigure")
        wait_for("nodes are back", lambda: all(node.health.value == "up" for node in driver.observe().nodes))


def trapped(driver: Driver, job: str, starts: int = 1) -> None:
    """Waits until its script has set its trap, which may be long after Slurm shows it running."""
    driver.until("its trap is set", lambda: driver.log(job).count(b"trapped") >= starts)
