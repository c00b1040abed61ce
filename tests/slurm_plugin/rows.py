"""A row of a job, and the facts of its Slurm."""

from __future__ import annotations

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
