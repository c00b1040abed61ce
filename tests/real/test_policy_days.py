"""A day of arrivals under each policy by its name, on a real Slurm and a real YARN: what it decides is carried out.

In every run one of Themis, OEF (cooperative), Gandiva-fair and AFS-P on Slurm, by turns, and OEF on YARN; all 26 on
both in `make soak`.
Judged by the arbiter's journal and the trainers' own logs (`tests/real/daybook.py`), never by how long a thing took.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any

import pytest

from horae.api.client import Client
from horae.journal import JobRecord, Journal
from horae.journal.reading import FILE
from horae.journal.store import rebuilt
from horae.port import JobState
from horae.sweeps import sweep as sweeps
from policy.text.textform import load, to_yaml
from tests.conftest import soaking
from tests.contract.harness import starts_in, steps_in
from tests.real import daybook, policy_day
from tests.real.hadoop import YarnHarness, hadoop_342  # noqa: F401 - a fixture
from tests.real.policy_day import DAY, POLICIES, QUANTUM_S, Arrival, turn
from tests.real.serving import arbiter
from tests.real.slurm import Private, clear_partition, fresh_partition, private_slurm, wait_for  # noqa: F401
from yarn_bridge.lab.private import PrivateHadoop

pytestmark = pytest.mark.real


def all_but(now: str) -> list[object]:
    """Every policy; all but `now` wait for `make soak`."""
    return [p if p == now else pytest.param(p, marks=pytest.mark.soak) for p in POLICIES]


@pytest.fixture
def length(pytestconfig: pytest.Config) -> float:
    return 1.0 if soaking(pytestconfig) else policy_day.SHORT


@pytest.mark.parametrize("policy", all_but(turn()))
def test_a_day_on_slurm(private_slurm: Private, tmp_path: Path, policy: str, length: float) -> None:  # noqa: F811
    partition = fresh_partition(private_slurm)
    options = {**private_slurm.options(partition), "state": str(tmp_path / "memory")}
    play = Play(policy, "slurm", tmp_path, length, {"n4": ("v100", 4), "n5": ("k80", 4)})
    play.configure("slurm", {**options, "env": dict(options["env"])})
    here, there = private_slurm.shared()
    (here / f"{partition}.py").write_text(play.trainer())

    def submit(arrival: Arrival) -> None:
        asked, least, most = arrival.gpus
        script = (
            f"#!/bin/bash\nexec {private_slurm.tool()} --checkpoint {there}/{partition}-{arrival.name} -- "
            f"python3 {there}/{partition}.py {arrival.steps}\n"
        )
        word = f"--comment=horae:min={least},max={most},app={arrival.app},iters={arrival.steps}"
        private_slurm.submit(
            script, f"--partition={partition}", f"--gres=gpu:{asked}", word, f"--account={arrival.tenant}",
            f"--job-name={arrival.name}", f"--output={there}/{partition}-{arrival.name}.out", "--open-mode=append",
        )  # fmt: skip

    def ready() -> bool:
        beat = private_slurm.lab.spool / "heartbeat"
        return beat.exists() and partition in beat.read_text()

    try:
        play.run(ready, submit)
    finally:
        clear_partition(private_slurm, partition)
    play.judge(lambda record: (here / f"{partition}-{record.spec.name}.out").read_bytes())


@pytest.mark.xdist_group("yarn")
@pytest.mark.parametrize("policy", all_but(policy_day.ON_YARN))
def test_a_day_on_yarn(hadoop_342: PrivateHadoop, tmp_path: Path, policy: str, length: float) -> None:  # noqa: F811
    harness = YarnHarness(hadoop_342, tmp_path)
    play = Play(policy, "yarn", tmp_path, length, {"n2": ("v100", 4), "n3": ("k80", 4)})
    play.configure("yarn", {**harness.options, "memory_mib": 256})
    (tmp_path / "train.py").write_text(play.trainer())
    client = Client(tmp_path / "api.sock")
    command = [sys.executable, str(tmp_path / "train.py")]
    folder = harness.facts["webhdfs"].replace("http:", "webhdfs:") + f"/user/horae/{tmp_path.parent.name}-{policy}"

    def submit(arrival: Arrival) -> None:
        asked, least, most = arrival.gpus
        job = {
            "name": arrival.name,
            "tenant": arrival.tenant,
            "command": [*command, str(arrival.steps)],
            "gpus": {"requested": asked, "min": least, "max": most},
            "iterations": arrival.steps,
            "checkpoint": f"{folder}/{arrival.name}",
        }
        if arrival.app != "tune":
            client.submit([job])
        elif arrival.name == "tune-0":
            told = to_yaml(policy_day.sweep(command, f"{folder}/{{job}}", length))
            client.submit(sweeps.read(load(told, "tune.yaml")))

    try:
        play.run((tmp_path / "api.sock").exists, submit)
        # Not `still`: GPUs that a job of ours has just given back are in use until the NodeManager's next heartbeat,
        # and are taken for another's meanwhile, so that a policy may answer twice.
        trials = {a.name for a in DAY if a.app == "tune"}
        play.judge(lambda record: harness.log(record.id), trials, still=False)
    finally:
        harness.end()


class Play:
    """One day: who comes when is played, and what became of it is judged."""

    def __init__(
        self, policy: str, cluster: str, folder: Path, length: float, nodes: Mapping[str, tuple[str, int]]
    ) -> None:
        """`nodes`: (GPU type, GPUs) by name."""
        self.policy, self.cluster, self.folder = policy, cluster, folder
        self.day, self.quantum_s = policy_day.day(length), QUANTUM_S * length
        self.types = {name: kind for name, (kind, _) in nodes.items()}
        self.capacity = {name: count for name, (_, count) in nodes.items()}

    def trainer(self) -> str:
        return policy_day.trainer(self.types)

    def configure(self, adapter: str, options: Mapping[str, Any]) -> None:
        config = {
            "state_dir": str(self.folder / "state"),
            "cluster": {"adapter": adapter, "options": dict(options)},
            "api": {"socket": str(self.folder / "api.sock")},
            **policy_day.configuration(self.policy, ",".join(self.types), self.quantum_s),
        }
        (self.folder / "config.yaml").write_text(json.dumps(config))

    def run(self, ready: Callable[[], bool], submit: Callable[[Arrival], None]) -> None:
        try:
            with arbiter(self.folder):
                wait_for("the arbiter is ready", ready)
                for arrival in self.day:
                    time.sleep(arrival.after_s)
                    submit(arrival)
                wait_for("all jobs have ended", self.all_ended, 600)
        except AssertionError as error:
            told = (self.folder / "serve.log").read_text(errors="replace")[-3000:]
            raise AssertionError(f"{error}\n{told}") from None

    def records(self) -> list[JobRecord]:
        """As the arbiter's journal has them now."""
        return list(rebuilt(self.folder / "state" / FILE).jobs.values())

    def all_ended(self) -> bool:
        time.sleep(0.5)  # a look costs the reading of the whole journal
        records = self.records()
        return len(records) == len(self.day) and all(record.ended is not None for record in records)

    def judge(self, log: Callable[[JobRecord], bytes], trials: Set[str] = frozenset(), *, still: bool = True) -> None:
        """Every job did its steps once, each tenant received what was decided, the policy answered always and, where
        things are `still`, nothing swung. `trials`: those that a sweep's scheduler may end: all but one, and not those
        that a policy which runs one after the other let finish before there was another to compare with."""
        journal = Journal(self.folder / "state")
        events = journal.history()
        journal.close()
        book = daybook.read(events, self.types, self.capacity, self.quantum_s)
        daybook.tell(self.policy, self.cluster, book)
        for record in self.records():
            starts, steps = starts_in(log(record)), steps_in(log(record))
            assert steps == list(range(1, len(steps) + 1)), f"{record.spec.name} left a step out, or did one twice"
            assert [start.epoch for start in starts] == sorted({start.epoch for start in starts})
            if record.ended is JobState.COMPLETED:
                assert len(steps) == record.spec.iterations
            else:
                assert (record.ended, record.spec.name in trials) == (JobState.CANCELLED, True), record.end_text
        ended = Counter(record.ended for record in self.records())
        assert ended[JobState.CANCELLED] <= max(len(trials) - 1, 0)
        assert not book.failed
        assert not (still and book.swings)
        for name, tenant in book.tenants.items():
            most = sum(a.gpus[2] for a in self.day if a.tenant == name)
            assert abs(tenant.other) <= QUANTUM_S * most, (name, tenant)
