"""Limits of QOS, associations, users and partitions bind whom they bind in Slurm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from horae.port import JobState, ObservedJob, TryLater
from horae.spec import JobSpec
from policy.model import GpuRange, Quota, Shape
from slurm_plugin.adapter import SlurmCluster
from slurm_plugin.clients.choose import choose
from slurm_plugin.clients.command_reading import most_of, partition_qos
from slurm_plugin.files.transport import Completed
from slurm_plugin.jobs.limits import Bound, QosRules, SiteLimits, licences, read, rules, throttle
from slurm_plugin.jobs.quotas import Quotas, of_arrays, of_licences, throttled
from slurm_plugin.options import Options
from slurm_plugin.records import Facts, JobRow
from tests.slurm_plugin.boundary import Boundary
from tests.slurm_plugin.boundary import job as words
from tests.slurm_plugin.rows import FACTS, ROW

#: `scontrol show assoc_mgr flags=qos,assoc` of 24.11, without what is not read
TOLD = """\
Current Association Manager state

Association Records

ClusterName=c Account=root UserName= Partition= Priority=0 ID=1
    ParentAccount= Lineage=/ DefAssoc=No
    GrpJobs=N(2) GrpJobsAccrue=N(0)
    GrpTRES=cpu=N(2),mem=N(0),gres/gpu=N(3),gres/gpumem=7(0)
    MaxJobs= MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=
    MaxTRESPJ=
ClusterName=c Account=lab UserName= Partition= Priority=0 ID=3
    ParentAccount=root(1) Lineage=/lab/ DefAssoc=No
    GrpJobs=N(2) GrpJobsAccrue=N(0)
    GrpTRES=cpu=N(2),gres/gpu=12(3),gres/gpumem=N(0)
    MaxJobs= MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=
    MaxTRESPJ=
ClusterName=c Account=lab UserName=bob(2002) Partition= Priority=0 ID=5
    ParentAccount= Lineage=/lab/0-bob/ DefAssoc=Yes
    GrpJobs=N(1) GrpJobsAccrue=N(0)
    GrpTRES=cpu=N(0),gres/gpu=N(2)
    MaxJobs=5(1) MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=
    MaxTRESPJ=gres/gpu=3

QOS Records

QOS=normal(1)
    GrpJobs=N(0) GrpJobsAccrue=N(0) GrpSubmitJobs=N(0) GrpWall=N(0.07)
    GrpTRES=cpu=N(0),gres/gpu=N(0)
    MaxTRESPJ=
    Account Limits
      lab
        MaxJobsPA=N(0) MaxJobsAccruePA=N(0) MaxSubmitJobsPA=N(0)
        MaxTRESPA=cpu=N(0),gres/gpu=N(0)
    User Limits
      bob(2002)
        MaxJobsPU=N(0) MaxJobsAccruePU=N(0) MaxSubmitJobsPU=N(0)
        MaxTRESPU=cpu=N(0),gres/gpu=N(0)
QOS=small(3)
    GrpJobs=N(1) GrpJobsAccrue=N(0) GrpSubmitJobs=N(1) GrpWall=N(0.00)
    GrpTRES=cpu=N(1),gres/gpu=4(3),gres/gpumem=N(0)
    MaxTRESPJ=gres/gpu=2
    User Limits
      bob(2002)
        MaxJobsPU=3(2) MaxJobsAccruePU=N(0)
        MaxTRESPU=cpu=N(1),gres/gpu=N(3)
"""


def job(row: JobRow, held: int = 0, most: int = 8) -> ObservedJob:
    state = JobState.RUNNING if held else JobState.QUEUED
    return ObservedJob(
        row.id, state, allocation={"n1": held} if held else {}, spec=JobSpec("t", (), GpuRange(1, 1, most))
    )


def looked(rows: dict[str, JobRow], held: dict[str, int], site: SiteLimits | None = None) -> dict[str, Quota]:
    quotas = Quotas()
    quotas.took(site or read(TOLD))
    jobs = {name: job(row, held.get(name, 0)) for name, row in rows.items()}
    return {quota.name: quota for quota in quotas.look(jobs, rows, FACTS)}


BOB = replace(ROW, user="bob", account="lab", qos="small")
ALICE = replace(ROW, user="alice", account="lab", qos="normal")
RUNS = {"state": "RUNNING", "nodes": ("n1",)}


def test_what_slurm_says_is_read() -> None:
    site = read(TOLD)
    assert site.qos["small"].group.gpus == Bound(4, 3)
    assert site.qos["small"].users["bob"].jobs == Bound(3, 2)
    assert site.qos["small"].job.gpus == Bound(2)
    assert site.qos["normal"].group.gpus == Bound(None, 0)
    assert site.associations["lab", "", ""].group.gpus == Bound(12, 3)
    assert site.associations["lab", "", ""].parent == "root"
    assert site.associations["lab", "bob", ""].jobs == Bound(5, 1)
    assert read("") == read("slurm_load_assoc error") == SiteLimits()


def test_bobs_qos_binds_bobs_jobs_in_it_alone() -> None:
    rows = {"1": replace(BOB, id="1", **RUNS), "2": replace(BOB, id="2"), "3": replace(ALICE, id="3")}  # type: ignore[arg-type]
    found = looked(rows, {"1": 2})
    # 3 GPUs and 2 jobs of the QOS run, 2 GPUs and 1 job of them ours: what is left of it is 3 GPUs, 2 jobs
    assert found["QOS small"] == Quota("QOS small", ("1", "2"), gpus=3)
    assert found["QOS small of user bob"] == Quota("QOS small of user bob", ("1", "2"), jobs=2)
    assert found["GPUs of one job, 2"].gpus == 2
    assert [name for name, quota in found.items() if "3" in quota.whom] == ["account lab"]


def test_a_limit_of_a_qos_takes_the_place_of_the_associations() -> None:
    found = looked({"1": replace(BOB, id="1"), "2": replace(BOB, id="2", qos="normal")}, {})
    assert found["account lab"].whom == ("2",)
    assert found["jobs of user bob in account lab"].whom == ("2",)
    assert (found["GPUs of one job, 1"].gpus, found["GPUs of one job, 2"].gpus) == (2, 3)


def test_a_partitions_qos_goes_before_the_jobs() -> None:
    assert partition_qos("PartitionName=dl\n   QoS=small\nPartitionName=raw\n   QoS=N/A\n") == {"dl": "small"}
    quotas, rows = Quotas(), {"3": replace(ALICE, id="3")}
    quotas.took(read(TOLD))
    facts = replace(FACTS, partition_qos={"dl": "small"})
    found = quotas.look({"3": job(rows["3"])}, rows, facts)
    assert [quota.name for quota in found] == ["GPUs of one job, 3", "QOS small"]


#: `sacctmgr -nP show qos format=name,flags,limitfactor` of 24.11
RULES = "normal||\nsmall|DenyOnLimit,OverPartQOS|2.000000\nodd|OverPartQOS,NotAll\n|x|1\n"


def test_flags_and_factors_of_qos_are_read() -> None:
    assert rules(RULES) == {"normal": QosRules(), "small": QosRules(before_partition=True, factor=2.0)}
    assert rules("") == rules("sacctmgr: error: slurmdbd is away") == {}


def test_a_qos_may_go_before_the_partitions() -> None:
    """`OverPartQOS`: of what both limit its own counts."""
    text = TOLD.replace("QOS=normal(1)", "QOS=wide(4)\n    GrpTRES=gres/gpu=9(0)\nQOS=normal(1)")
    quotas, row = Quotas(), replace(BOB, id="1")
    quotas.took(read(text))
    facts = replace(FACTS, partition_qos={"dl": "wide"})

    def group() -> dict[str, int | None]:
        return {quota.name: quota.gpus for quota in quotas.look({"1": job(row)}, {"1": row}, facts)}

    assert (group()["QOS wide"], group().get("QOS small")) == (9, None)
    quotas.told(rules(RULES))
    assert (group().get("QOS wide"), group()["QOS small"]) == (None, 4 - 3)


def test_a_qos_multiplies_what_associations_are_limited_to() -> None:
    """`LimitFactor`, of GPUs and what goes with them; not of jobs, nor its own."""
    quotas, row = Quotas(), replace(BOB, id="1", qos="normal")
    quotas.took(read(TOLD))
    quotas.told(rules("normal||1.500000\nsmall||7"))
    found = {quota.name: quota for quota in quotas.look({"1": job(row)}, {"1": row}, FACTS)}
    assert found["account lab"].gpus == 18 - 3
    assert found["jobs of user bob in account lab"].jobs == 5 - 1
    assert found["GPUs of one job, 1"].gpus == 4


#: of 24.11
ON_NODES = """\
ClusterName=c Account=lab UserName=bob(2002) Partition= Priority=0 ID=5
    GrpTRES=cpu=N(0),node=N(1),gres/gpu=N(2)
    MaxTRESPJ=node=6
    MaxTRESPN=gres/gpu=4
QOS=gpu(4)
    GrpTRES=node=5(2)
    MaxTRESPJ=
    MaxTRESPN=gres/gpu=2
    User Limits
      bob(2002)
        MaxTRESPU=node=3(1)
QOS=one(5)
    MaxTRESPJ=node=1
    MaxTRESPN=
"""


def on_nodes(*kinds: str, facts: Facts = FACTS, told: str = "", **changes: Any) -> dict[str, tuple[int | None, ...]]:
    """By QOS: most GPUs, nodes, and GPUs of a node."""
    quotas = Quotas()
    quotas.took(read(ON_NODES))
    quotas.told(rules(told))
    rows = {kind: replace(BOB, id=kind, qos=kind, **changes) for kind in kinds}
    found = quotas.look({kind: job(row) for kind, row in rows.items()}, rows, facts, {"n1": 4, "n2": 4, "n3": 8})
    return {
        quota.whom[0]: (quota.gpus, quota.nodes, quota.gpus_per_node)
        for quota in found
        if quota.name.startswith("nodes of one job")
    }


def test_limits_on_nodes_and_on_gpus_of_a_node_bind_each_job() -> None:
    """The QOS's before the association's; a partition's `MaxNodes` beside them, unless the QOS goes over that."""
    assert on_nodes("gpu", "one", "other") == {"gpu": (6, 3, 2), "one": (4, 1, 4), "other": (12, 6, 4)}
    assert most_of(
        "MaxNodes", "PartitionName=dl\n   MaxNodes=2 MaxTime=1\nPartitionName=raw\n   MaxNodes=UNLIMITED\n"
    ) == {"dl": 2}
    facts = replace(FACTS, most_nodes={"dl": 2})
    assert on_nodes("gpu", "other", facts=facts) == {"gpu": (4, 2, 2), "other": (8, 2, 4)}
    assert on_nodes("gpu", facts=facts, told="gpu|PartitionMaxNodes|") == {"gpu": (6, 3, 2)}


def test_the_fewest_gpus_of_a_job_are_known() -> None:
    quotas, row = Quotas(), replace(BOB, id="1", qos="big")
    quotas.took(read("QOS=big(4)\n    MaxTRESPJ=\n    MinTRESPJ=cpu=4,gres/gpu=2\n"))
    assert quotas.look({"1": job(row)}, {"1": row}, FACTS) == (Quota("fewest GPUs of one job, 1", ("1",), least=2),)


def test_limits_on_nodes_are_no_plan_for_a_job_whose_nodes_slurm_chooses() -> None:
    own = "horae=abc,gpus=2,nodes=1,shape=own,per=2,fixed=1"
    assert on_nodes("gpu", admin_comment=own) == {}


def test_a_limit_on_the_nodes_that_jobs_are_on_together_is_one_on_their_gpus() -> None:
    """Those of the largest: how many more would only be granted to be taken back. Nobody gives up what he holds."""
    quotas = Quotas()
    quotas.took(read("QOS=few(4)\n    GrpTRES=cpu=N(1),node=2(1)\n    MaxTRESPJ=\n"))
    own = "horae=abc,gpus=2,nodes=1,shape=own,per=2,fixed=1"
    rows = {number: replace(BOB, id=number, qos="few", admin_comment=own) for number in ("1", "2")}

    def told(held: int, **node_gpus: int) -> tuple[Quota, ...]:
        return quotas.look({"1": job(rows["1"], held), "2": job(rows["2"])}, rows, FACTS, node_gpus)

    assert told(0, n1=4, n2=4, n3=8) == (Quota("GPUs on the nodes of QOS few", ("1", "2"), 12),)
    assert told(14, n1=4, n2=4, n3=8) == (Quota("GPUs on the nodes of QOS few", ("1", "2"), 14),)
    assert told(0) == (), "what nodes there are is not known"


def test_a_job_that_began_between_two_reads_is_not_taken_for_anothers() -> None:
    """Slurm counts it already, the read of jobs does not show it yet: others would be shrunk for it."""
    quotas = Quotas()
    rows = {"1": replace(BOB, id="1")}
    jobs = {"1": job(rows["1"])}
    quotas.took(read(TOLD.replace("gres/gpu=4(3)", "gres/gpu=4(0)")))
    assert next(q for q in quotas.look(jobs, rows, FACTS) if q.name == "QOS small").gpus == 4
    quotas.took(read(TOLD))
    assert next(q for q in quotas.look(jobs, rows, FACTS) if q.name == "QOS small").gpus == 4
    quotas.took(read(TOLD))  # it stays: another's
    assert next(q for q in quotas.look(jobs, rows, FACTS) if q.name == "QOS small").gpus == 1


def test_so_many_tasks_of_an_array_run_as_its_user_says() -> None:
    tag = "horae=abc,gpus=1,nodes=1,atonce=2"
    rows = {task: replace(ROW, id=task, admin_comment=tag) for task in ("7_1", "7_2", "8_1")}
    rows |= {"9": replace(ROW, id="9"), "7_3": replace(ROW, id="7_3", admin_comment=tag, state="COMPLETED")}
    jobs = {name: job(row) for name, row in rows.items()}
    jobs["7_3"] = replace(jobs["7_3"], state=JobState.COMPLETED)
    assert of_arrays(jobs, rows) == (
        Quota("tasks of array 7 at a time", ("7_1", "7_2"), None, 2),
        Quota("tasks of array 8 at a time", ("8_1",), None, 2),
    )


def test_a_changed_number_of_tasks_at_a_time_counts() -> None:
    tag = "horae=abc,gpus=1,nodes=1,atonce=2"
    rows = {f"{array}_1": replace(ROW, id=f"{array}_1", admin_comment=tag) for array in (7, 8, 9)}
    jobs = {name: job(row) for name, row in rows.items()}
    assert throttled(jobs, rows) == ("7", "8", "9")
    shown = "JobId=7 ArrayJobId=7 ArrayTaskId=3-30%5 {}JobName=x ArrayTaskThrottle=9 y\n"
    now = {"7": throttle(shown.format("ArrayTaskThrottle=5 ")), "8": throttle(shown.format(""))}
    assert now == {"7": 5, "8": None}
    assert [(quota.whom, quota.jobs) for quota in of_arrays(jobs, rows, now)] == [(("7_1",), 5), (("9_1",), 2)]


def test_jobs_run_as_there_are_licences_for() -> None:
    """As `scontrol show licenses` of 22.05 and 24.11 tells them."""
    told = licences(
        "LicenseName=matlab\n    Total=9 Used=5 Free=4 Reserved=0 Remote=no\n"
        "LicenseName=a@db\n    Total=0 Used=0 Free=0 Reserved=0 Remote=yes\n"
    )
    assert told == {"matlab": Bound(9, 5), "a@db": Bound(0, 0)}
    tags = {"1": "matlab:2", "2": "matlab:3/none:1", "3": "a@db:1"}
    rows = {name: replace(ROW, id=name, admin_comment=f"horae=abc,gpus=1,lic={what}") for name, what in tags.items()}
    rows["1"] = replace(rows["1"], **RUNS)  # type: ignore[arg-type]
    jobs = {name: job(row, held=int(name == "1")) for name, row in rows.items()}
    assert of_licences(jobs, rows, told) == (
        Quota("licences of matlab", ("1", "2"), None, 3),  # 9 but for the 3 that others use, two and more a job
        Quota("licences of a@db", ("3",), None, 0),
    )


#: of 24.11: a user of whom slurmctld has no job in a QOS is not in it
CPUS = """\
QOS=gpu(4)
    GrpJobs=N(0) GrpJobsAccrue=N(0) GrpSubmitJobs=N(0) GrpWall=N(0.00)
    GrpTRES=cpu=40(10),gres/gpu=N(4)
    MaxTRESPJ=cpu=12
    User Limits
      bob(2002)
        MaxJobsPU=N(1) MaxJobsAccruePU=N(0)
        MaxTRESPU=cpu=16(6),gres/gpu=4(2)
"""


def test_a_limit_on_cpus_binds_the_gpus_that_go_with_them() -> None:
    own = "horae=abc,gpus=2,nodes=1,cpus=12,shape=own,per=2,fixed=1,nodecpus=12"
    rigid = replace(BOB, id="1", qos="gpu", admin_comment=own, num_cpus=12)
    spec = JobSpec("t", (), GpuRange(1, 1, 8), cpus_per_gpu=4.0)
    rows = {"1": rigid, "2": replace(BOB, id="2", qos="gpu"), "3": replace(BOB, id="3", qos="gpu", num_cpus=4, **RUNS)}  # type: ignore[arg-type]
    jobs = {"1": replace(job(rigid), spec=replace(spec, gpus=GpuRange(2, 2, 2), cpus_per_gpu=None))}
    jobs |= {name: replace(job(rows[name], held=int(name == "3")), spec=spec) for name in ("2", "3")}
    quotas = Quotas()
    quotas.took(read(CPUS))
    found = {quota.name: quota for quota in quotas.look(jobs, rows, FACTS)}
    # 10 CPUs are used, 4 by ours: of 40 the others leave 34, and four go with each GPU of whoever needs the fewest
    assert found["CPUs of QOS gpu"] == Quota("CPUs of QOS gpu", ("1", "2", "3"), gpus=8)
    assert found["CPUs of QOS gpu of user bob"].gpus == (16 - 2) // 4
    assert found["QOS gpu of user bob"].gpus == 4 - 1
    assert "QOS gpu" not in found
    assert [found[f"GPUs of one job, {name}"].gpus for name in "23"] == [3, 3]
    assert "GPUs of one job, 1" not in found, "12 CPUs are what it asks for"


def test_nobody_is_to_give_up_what_he_holds_for_a_count_of_cpus() -> None:
    """What goes with a GPU may have changed since it started."""
    row = replace(BOB, id="1", qos="gpu", num_cpus=6, **RUNS)  # type: ignore[arg-type]
    holds = replace(job(row, held=6), spec=JobSpec("t", (), GpuRange(1, 1, 8), cpus_per_gpu=8.0))
    quotas = Quotas()
    quotas.took(read(CPUS))
    found = {quota.name: quota.gpus for quota in quotas.look({"1": holds}, {"1": row}, FACTS)}
    assert found["CPUs of QOS gpu"] == 6


#: of 24.11 with AccountingStorageTRES=gres/gpu:a100
BESIDE = """\
QOS=gpu(4)
    GrpTRES=cpu=N(10),mem=65536(24576),gres/gpu=N(6),gres/gpu:a100=8(5),gres/gpu:v100=N(1)
    MaxTRESPJ=mem=32768,gres/gpu:a100=2
    User Limits
      bob(2002)
        MaxTRESPU=mem=N(8192),gres/gpu=N(2),gres/gpu:a100=3(2)
"""


def beside(**specs: JobSpec) -> dict[str, Quota]:
    """The quotas of waiting jobs, beside one of 2 a100 and 8 GiB that runs."""
    rows = {name: replace(BOB, id=name, qos="gpu") for name in specs}
    rows["runs"] = replace(BOB, id="runs", qos="gpu", alloc_memory=8 << 30, **RUNS)  # type: ignore[arg-type]
    jobs = {name: replace(job(rows[name]), spec=spec) for name, spec in specs.items()}
    jobs["runs"] = replace(job(rows["runs"], held=2), spec=JobSpec("t", (), GpuRange(2, 2, 2), gpu_types=("a100",)))
    quotas = Quotas()
    quotas.took(read(BESIDE))
    return {quota.name: quota for quota in quotas.look(jobs, rows, FACTS)}


def test_a_limit_on_gpus_of_a_type_binds_who_asked_for_that_type() -> None:
    wide = JobSpec("t", (), GpuRange(1, 1, 8))
    found = beside(any=wide, a100=replace(wide, gpu_types=("a100",)), either=replace(wide, gpu_types=("a100", "v100")))
    assert found["a100 GPUs of QOS gpu"] == Quota("a100 GPUs of QOS gpu", ("a100", "runs"), gpus=8 - 3)
    assert found["a100 GPUs of QOS gpu of user bob"] == Quota(
        "a100 GPUs of QOS gpu of user bob", ("a100", "runs"), gpus=3
    )
    assert {name: quota.gpus for name, quota in found.items() if "one job" in name} == {"GPUs of one job, a100": 2}


def test_a_limit_on_memory_binds_the_gpus_that_go_with_it() -> None:
    """The owner's --mem, for each GPU; of who has said nothing of it Slurm knows more than we."""
    spec = JobSpec("t", (), GpuRange(1, 1, 8))
    own = replace(spec, gpus=GpuRange(4, 4, 4), shape=Shape(nodes=1, memory_per_node=64 << 30))
    found = beside(eight=replace(spec, memory_per_gpu=8 << 30), said=spec, own=own)
    # 24 GiB are used, 8 by ours: of 64 the others leave 48
    assert found["memory of QOS gpu"] == Quota("memory of QOS gpu", ("eight", "own"), gpus=48 // 8)
    assert (found["GPUs of one job, eight"].gpus, found["GPUs of one job, own"].gpus) == (4, 2)
    assert "GPUs of one job, said" not in found


def test_what_runs_keeps_what_it_holds_of_a_lower_limit() -> None:
    row = replace(BOB, id="1", qos="gpu", **RUNS)  # type: ignore[arg-type]
    holds = replace(job(row, held=5), spec=JobSpec("t", (), GpuRange(1, 1, 8), gpu_types=("a100",)))
    quotas = Quotas()
    quotas.took(read(BESIDE))
    found = {quota.name: quota.gpus for quota in quotas.look({"1": holds}, {"1": row}, FACTS)}
    assert found["a100 GPUs of QOS gpu of user bob"] == 5


class Limited(Boundary):
    """A site that enforces limits; `bound` are the users that slurmctld has jobs of."""

    reads = 0

    def scontrol(self, line: str) -> Completed:
        done = super().scontrol(line)
        if line == "show config":
            return replace(done, out=done.out + "AccountingStorageEnforce = associations,limits\n")
        if line.startswith("show assoc_mgr flags=qos"):
            self.reads += 1
            users = {words["UserName"] for words in self.jobs.values()}
            each = "".join(f"      {user}(7)\n        MaxTRESPU=gres/gpu=2(0)\n" for user in sorted(users))
            return replace(done, out=f"QOS=small(3)\n    GrpTRES=gres/gpu=N(0)\n    User Limits\n{each}")
        return done


def test_a_users_first_job_in_a_qos_is_planned_by_his_limit(tmp_path: Path) -> None:
    """Slurm tells of it from then on. The limits of half a minute ago would have it granted what Slurm holds back."""
    slurm = Limited({"1": words(1, UserName="ann", QOS="small")})
    options = Options(partitions=("dl",), spool=str(tmp_path / "spool"), state=str(tmp_path / "memory"))
    port = SlurmCluster(options, slurm, choose(options, slurm))
    port.claim("me")
    assert [quota.name for quota in port.observe().quotas] == ["QOS small of user ann"]
    slurm.jobs["2"] = words(2, UserName="bob", QOS="small")
    assert [quota.name for quota in port.observe().quotas] == ["QOS small of user ann", "QOS small of user bob"]
    slurm.jobs["3"] = words(3, UserName="bob", QOS="small")
    assert [len(quota.whom) for quota in port.observe().quotas] == [1, 2]
    assert slurm.reads == 2, "once for each that is new"


@dataclass
class NoDatabase(Limited):
    """slurmdbd is away, and sacctmgr waits for it."""

    patience_s: list[float] = field(default_factory=list)

    def run(self, argv: Sequence[str], timeout_s: float = 30.0, *more: Any, **named: Any) -> Completed:
        if argv[0] == "sacctmgr":
            self.patience_s.append(timeout_s)
            raise TryLater("sacctmgr did not answer")
        return super().run(argv, timeout_s, *more, **named)


def test_a_database_that_is_away_is_hardly_waited_for(tmp_path: Path) -> None:
    """Nothing else is seen meanwhile, and what slurmctld tells is planned with."""
    slurm = NoDatabase({"1": words(1, UserName="ann", QOS="small")})
    options = Options(partitions=("dl",), spool=str(tmp_path / "spool"), state=str(tmp_path / "memory"))
    port = SlurmCluster(options, slurm, choose(options, slurm))
    port.claim("me")
    seen = port.observe()
    assert [quota.name for quota in seen.quotas] == ["QOS small of user ann"]
    assert "sacctmgr did not answer" in seen.notes
    slurm.jobs["2"] = words(2, UserName="bob", QOS="small")
    assert len(port.observe().quotas) == 2
    assert len(slurm.patience_s) == 1
    assert slurm.patience_s[0] <= 5.0


#: of 24.11, with jobs of 2 GPUs and an hour
MINUTES = """\
QOS=gpu(4)
    GrpTRES=cpu=N(2),gres/gpu=N(2)
    GrpTRESMins=cpu=N(9),gres/gpu=1000(400)
    GrpTRESRunMins=cpu=N(120),gres/gpu={ahead}(120)
    MaxTRESMinsPJ={one}
    User Limits
      bob(2002)
        MaxTRESPU=gres/gpu=N(2)
        MaxTRESRunMinsPU=gres/gpu=420(120)
"""


def by_minutes(*hours: float | None, enforced: str = "safe", ahead: str = "N", one: str = "") -> dict[str, int | None]:
    """The quotas of jobs that wait, with these limits, beside one of 2 GPUs that runs."""
    rows = {"0": replace(BOB, id="0", qos="gpu", num_cpus=2, **RUNS)}  # type: ignore[arg-type]
    runs = job(rows["0"], held=2)
    assert runs.spec is not None
    jobs = {"0": replace(runs, time_left_s=60.0, spec=replace(runs.spec, elastic=False))}
    for number, limit in enumerate(hours, start=1):
        rows[str(number)] = replace(BOB, id=str(number), qos="gpu")
        left_s = None if limit is None else limit * 3600.0
        jobs[str(number)] = replace(job(rows[str(number)]), time_left_s=left_s)
    quotas = Quotas()
    quotas.took(read(MINUTES.format(ahead=ahead, one=one)))
    facts = replace(FACTS, enforced=frozenset({"limits", enforced}))
    return {quota.name: quota.gpus for quota in quotas.look(jobs, rows, facts)}


def test_a_start_has_to_be_able_to_use_up_its_time() -> None:
    """As Slurm holds it back: QOSGrpGRESMinutes, and QOSMaxGRESRunMinsPerUser."""
    found = by_minutes(1.0, 2.0)
    assert found["GPU minutes of QOS gpu"] == 2 + (1000 - 400 - 120) // 60
    assert found["GPU minutes of QOS gpu of user bob"] == 2 + (420 - 120) // 60
    assert (found["GPUs of one job, 1"], found["GPUs of one job, 2"]) == (5, 2)
    assert "GPUs of one job, 0" not in found, "it runs, and asks for no more"


def test_minutes_that_are_not_used_up_bind_nobody_where_the_site_is_not_safe() -> None:
    assert "GPU minutes of QOS gpu" not in by_minutes(1.0, enforced="qos")
    assert by_minutes(1.0, enforced="qos", ahead="300")["GPU minutes of QOS gpu"] == 2 + (300 - 120) // 60
    assert by_minutes(1.0, one="gres/gpu=240")["GPUs of one job, 1"] == 4
    assert by_minutes(1.0, one="gres/gpu=30")["GPUs of one job, 1"] == 0
    assert by_minutes(None)["GPU minutes of QOS gpu"] == 2 + 480, "without a limit it is Slurm's to say"


def test_of_what_was_left_jobs_that_began_since_have_their_part_already() -> None:
    """Limits are read twice a minute: what was left then was granted again and again, and held back by Slurm. What ends
    meanwhile gives back its part."""
    quotas, facts = Quotas(), replace(FACTS, enforced=frozenset({"limits", "safe"}))
    quotas.took(read(MINUTES.format(ahead="N", one="")))
    rows = {number: replace(BOB, id=number, qos="gpu", **RUNS) for number in ("0", "1", "2")}  # type: ignore[arg-type]

    def most(*held: int) -> int | None:
        jobs = {
            number: replace(job(rows[number], each), time_left_s=3600.0)
            for number, each in zip("012", held, strict=True)
        }
        found = quotas.look(jobs, rows, facts)
        return next(quota.gpus for quota in found if quota.name == "GPU minutes of QOS gpu")

    by_then = 2 + (1000 - 400 - 120) // 60
    assert [most(2, 0, 0), most(2, 8, 0), most(0, 8, 0), most(0, 0, 0)] == [by_then] * 4
    assert most(2, 8, 4) == 14, "nobody gives up what he holds"


def test_nothing_is_started_with_no_minutes_left() -> None:
    used = MINUTES.format(ahead="N", one="").replace("1000(400)", "1000(1000)")
    quotas, row = Quotas(), replace(BOB, id="1", qos="gpu")
    quotas.took(read(used))
    found = quotas.look({"1": replace(job(row), time_left_s=3600.0)}, {"1": row}, FACTS)
    assert next(quota.gpus for quota in found if quota.name == "GPU minutes of QOS gpu") == 0
