"""A row of a job, the facts of its Slurm, and what is judged of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from horae.port import JobState
from slurm_plugin.jobs.record import Grant, Memo
from slurm_plugin.jobs.state_machine import Judgement, judge
from slurm_plugin.options import Options
from slurm_plugin.records import Facts, JobRow

NOW = 1_000_000.0


FACTS = Facts("24.11.5", "c", ("dl",), "CR_Core", "priority/basic", frozenset({86}), 300.0, 30.0, True, frozenset())


ROW = JobRow(
    id="7", slurm_id=7, state="PENDING", reason="JobHeldUser", restarts=0, priority=0, nodes=(), gpus_per_node=1,
    gpus_total=None, num_nodes=1, num_cpus=1, alloc_memory=None, comment="horae:min=1,max=4",
    admin_comment="horae=abc,gpus=2,nodes=1", user="ann", uid=1000, account="lab", qos=None, partition="dl", name="t",
    cwd="/home/ann", command=None, stdout=None, dependency=None, submit_s=NOW - 100, eligible_s=None, start_s=None,
    end_s=None, preempt_s=None, limit_s=3600.0, left_s=None, exit_status=None,
)  # fmt: skip

OPTIONS = Options(partitions=("dl",))
GRANT = Grant(epoch=1, restarts=0, nodes=("n1",), per_node=2, at_s=NOW - 1)
RAN = replace(GRANT, started=True, began_s=NOW - 50)
RUNNING: dict[str, Any] = {"state": "RUNNING", "reason": None, "priority": 9, "nodes": ("n1",), "start_s": NOW - 50}
OWN = "horae=abc,gpus=4,nodes=2,types=v100,cpus=24,mem=2000,shape=own,per=2,fixed=1,nodecpus=12,alone=1,features=ib"
PARKED: dict[str, Any] = {
    "admin_comment": OWN, "priority": 9, "reason": "BeginTime", "eligible_s": NOW + 366 * 86400.0, "comment": "",
    "num_nodes": 2, "gpus_per_node": 2,
}  # fmt: skip


def look(memo: Memo | None = None, facts: Facts = FACTS, options: Options = OPTIONS, **changes: Any) -> Judgement:
    return judge(replace(ROW, **changes), memo or Memo("7.abc"), facts, options, NOW)


def shown(verdict: Judgement) -> tuple[JobState, str]:
    assert verdict.job is not None
    return verdict.job.state, " ".join(write.verb for step in verdict.steps for write in step.writes)
