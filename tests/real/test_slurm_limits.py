"""A site with limits, fair share and preemption (24.11): granted is not running, and the cluster says why."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from horae.arbiter.service import Arbiter
from horae.config import Config
from horae.port import BlockKind, JobState, attend
from horae.views import watch
from policy.model import BadInput
from slurm_plugin import connect
from tests.contract.driver import Driver
from tests.real.slurm import Containers, slurm_confined, slurm_site, slurm_site_2605, wait_for  # noqa: F401 - fixtures
from tests.real.slurm_driving import PLAIN, containers, edited, harness, job_shown, number, submit, trapped
from tests.real.slurm_harness import SlurmHarness

pytestmark = pytest.mark.real


@pytest.fixture(
    params=[
        "slurm_site",
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("slurm_confined", "slurm_site_2605")),
    ]
)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Driver]:
    """By `make soak` also with jobs in cgroups, memory counted, and a prolog before each start, and on 26.05."""
    made = SlurmHarness(request.getfixturevalue(request.param), tmp_path / "memory", partition="dl")
    driver = Driver(made)
    yield driver
    made.end()


def test_a_limit_blocks_is_told_as_such_and_a_smaller_shape_runs(site: Driver) -> None:
    job = submit(site, "--qos=two")
    site.start(job, {"n1": 4})
    site.until("blocked", lambda: site.job(job).blocked is not None)
    blocked = site.job(job).blocked
    assert blocked is not None
    assert blocked.kind is BlockKind.LIMIT
    assert "QOS" in blocked.text
    site.until("taken back", lambda: site.job(job).state is JobState.QUEUED)
    site.start(job, {"n1": 2}, 2)
    assert site.wait(job, JobState.RUNNING).allocation == {"n1": 2}


@contextmanager
def arbitrated(site: Driver, tmp_path: Path) -> Iterator[Arbiter]:
    """The cluster under a whole arbiter."""
    harness_ = harness(site)
    site.port.close()
    options = {**harness_.cluster.options("dl"), "state": str(tmp_path / "memory"), "blocked_after_s": 12.0}
    config = Config.model_validate({
        "state_dir": str(tmp_path / "arbiter"),
        "cluster": {"adapter": "slurm", "options": options},
        "pools": [{"name": "all", "policy": "max-min", "mode": "enforce", "nodes": "n[1-4]"}],
        "rounds": {"tick_s": 0.3, "busy_s": 0.2, "debounce_s": 0.05},
    })  # fmt: skip
    arbiter = Arbiter(config, connect(config.cluster.options))
    arbiter.start()
    try:
        yield arbiter
    finally:
        arbiter.stop()
        harness_.restart_arbiter()


def held(arbiter: Arbiter, *jobs: str) -> tuple[int, ...]:
    rows = {row.id: sum(row.allocation.values()) for row in watch.jobs(arbiter) if row.state == "running"}
    return tuple(rows.get(job, 0) for job in jobs)


def test_a_limit_of_a_qos_binds_the_jobs_in_it_and_nobody_else(site: Driver, tmp_path: Path) -> None:
    """Two GPUs a user in QOS `two`: a job of that QOS gets two, its tenant's other job all the rest."""
    two, free = submit(site, "--qos=two"), submit(site)
    with arbitrated(site, tmp_path) as arbiter:
        wait_for("each has what binds it lets it have", lambda: held(arbiter, two, free) == (2, 8), 120)
        found = arbiter.snapshot("all").quotas
        assert [(quota.gpus, quota.whom) for quota in found if "two" in quota.name] == [(2, (two,))]
        assert [tenant.cap for tenant in arbiter.snapshot("all").tenants] == [None]


@pytest.mark.parametrize(
    ("limit", "asked", "called"),
    [
        ("GrpTRES=gres/gpu:v100=2", "--gres=gpu:v100:1", "v100 GPUs of QOS bound"),
        pytest.param(
            "MaxTRESPerUser=mem=250", "--mem=100", "memory of QOS bound of user alice", marks=pytest.mark.soak
        ),
    ],
)
def test_a_limit_on_a_type_or_on_memory_binds_as_one_on_gpus(
    site: Driver, tmp_path: Path, limit: str, asked: str, called: str
) -> None:
    """Two GPUs, by what goes with each; who asked for nothing of it gets all the rest."""
    cluster = containers(site)
    cluster.run("sacctmgr", "-i", "add", "qos", "bound", *limit.split())
    cluster.run("sacctmgr", "-i", "modify", "user", "alice", "set", "qos+=bound")
    try:
        two, free = submit(site, "--qos=bound", asked), submit(site)
        with arbitrated(site, tmp_path) as arbiter:
            wait_for("each has what binds it lets it have", lambda: held(arbiter, two, free) == (2, 8), 120)
            found = {quota.name: (quota.gpus, quota.whom) for quota in arbiter.snapshot("all").quotas}
            assert found[called] == (2, (two,))
            cluster.run("scancel", number(two), number(free))
            wait_for("both are over", lambda: not cluster.run("squeue", "-h", "-j", f"{number(two)},{number(free)}"))
    finally:
        cluster.run("sacctmgr", "-i", "delete", "qos", "bound")


def test_a_qos_may_go_before_the_partitions_and_multiply_the_associations_limits(site: Driver, tmp_path: Path) -> None:
    """`OverPartQOS` and `LimitFactor`, which slurmctld shows to nobody: of a partition's 2 GPUs, the QOS's own 7 and
    twice the association's 3 the job has 6, as from Slurm alone."""
    cluster = containers(site)
    for words in (
        "add qos narrow MaxTRESPerUser=gres/gpu=2",
        "add qos wide MaxTRESPerUser=gres/gpu=7 Flags=OverPartQOS LimitFactor=2",
        "modify user alice set qos+=wide",
        "modify user alice set GrpTRES=gres/gpu=3",
    ):
        cluster.run("sacctmgr", "-i", *words.split())
    cluster.run("scontrol", "update", "PartitionName=dl", "QOS=narrow")
    try:
        job = submit(site, "--qos=wide")
        with arbitrated(site, tmp_path) as arbiter:
            wait_for("it has what binds it lets it have", lambda: held(arbiter, job) == (6,), 120)
            cluster.run("scancel", number(job))
            wait_for("it is over", lambda: not cluster.run("squeue", "-h", "-j", number(job)))
    finally:
        cluster.run("scontrol", "update", "PartitionName=dl", "QOS=")
        cluster.run("sacctmgr", "-i", "modify", "user", "alice", "set", "GrpTRES=gres/gpu=-1")
        cluster.run("sacctmgr", "-i", "delete", "qos", "narrow,wide")


@pytest.mark.parametrize(
    ("limits", "most", "shape"),
    [
        ("MaxTRESPerNode=gres/gpu=1", "", [1, 1, 1, 1]),
        pytest.param("MaxTRESPerNode=gres/gpu=3 MaxTRESPerJob=node=2", "", [3, 3], marks=pytest.mark.soak),
        pytest.param("MaxTRESPerUser=node=1", "", [4], marks=pytest.mark.soak),
        pytest.param("Flags=PartitionMaxNodes", "2", [4, 4, 4, 4], marks=pytest.mark.soak),
        pytest.param("Priority=1", "2", [4, 4], marks=pytest.mark.soak),
    ],
)
def test_a_limit_on_nodes_or_on_gpus_of_a_node_is_planned_with(
    site: Driver, tmp_path: Path, limits: str, most: str, shape: list[int]
) -> None:
    """The first grant is one that Slurm starts, and as large as the limit lets it be. `most`: the partition's."""
    cluster = containers(site)
    cluster.run("sacctmgr", "-i", "add", "qos", "nodes", *limits.split())
    cluster.run("sacctmgr", "-i", "modify", "user", "alice", "set", "qos+=nodes")
    cluster.run("scontrol", "update", "PartitionName=dl", f"MaxNodes={most or 'UNLIMITED'}")
    try:
        job = harness(site).submit_script(PLAIN, "--gres=gpu:1", "--time=60", "--comment=horae:max=16", "--qos=nodes")
        with arbitrated(site, tmp_path) as arbiter:
            wait_for("it has all that binds it lets it have", lambda: held(arbiter, job) == (sum(shape),), 120)
            record = arbiter.view(lambda core: core.ledger.jobs[job])
            assert sorted(record.allocation.values()) == shape
            assert record.epoch == 1, "nothing else was tried before"
            cluster.run("scancel", number(job))
            wait_for("it is over", lambda: not cluster.run("squeue", "-h", "-j", number(job)))
    finally:
        cluster.run("scontrol", "update", "PartitionName=dl", "MaxNodes=UNLIMITED")
        cluster.run("sacctmgr", "-i", "delete", "qos", "nodes")


def test_a_change_of_shape_mails_nobody(site: Driver) -> None:
    """With --mail-type=ALL plain Slurm writes "Failed, ExitCode 86" and "Began" at each."""
    cluster = containers(site)
    with edited(site, "MailProg=/bin/true", "MailProg=/etc/slurm/mail.sh"):
        program = cluster.lab.folder / "etc/mail.sh"
        program.write_text('#!/bin/sh\necho "$*" >> /tmp/mails\n')
        program.chmod(0o755)
        cluster.run("sh", "-c", ": > /tmp/mails; chmod 666 /tmp/mails")
        job = submit(site, "--mail-type=ALL")
        for epoch, nodes in enumerate(({"n1": 1}, {"n2": 2}, {"n3": 1}), start=1):
            site.start(job, nodes, epoch)
            site.wait(job, JobState.RUNNING)
            trapped(site, job, epoch)
            if epoch < 3:
                site.stop(job, 60.0)
                site.wait(job, JobState.STOPPED)
        site.cancel(job)
        site.wait(job, JobState.CANCELLED)

        def written() -> list[str]:
            return re.findall(r"Job_id=\d+ Name=\S+ (\w+)", cluster.run("cat", "/tmp/mails"))

        wait_for("its end is told", lambda: "Ended" in written())
        assert written() == ["Began", "Ended"]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("limit", "where", "reason"),
    [
        ("GrpTRESMins=gres/gpu=30", "qos", "GRESMinutes"),
        ("MaxJobsPerUser=1", "qos", "MaxJobs"),
        ("MaxWall=30", "qos", "MaxWall"),
        ("GrpTRES=gres/gpu=2", "account", "GrpGRES"),
    ],
)
def test_each_kind_of_limit_blocks_and_is_told(site: Driver, limit: str, where: str, reason: str) -> None:
    """GPU-minutes with `safe`, jobs a user, the wall time that the job asks for, and GPUs of an account."""
    cluster, name = containers(site), limit.partition("=")[0].lower()
    change = f"add qos {name} {limit}" if where == "qos" else f"modify account lab set {limit}"
    cluster.run("sacctmgr", "-i", *change.split())
    try:
        options = []
        if where == "qos":
            cluster.run("sacctmgr", "-i", "modify", "user", "alice", "set", f"qos+={name}")
            options = [f"--qos={name}"]
        if reason == "MaxJobs":
            first = submit(site, *options)
            site.start(first, {"n2": 1})
            site.wait(first, JobState.RUNNING)
        job = submit(site, *options)
        site.start(job, {"n1": 4})

        def blocked() -> bool:
            seen = site.job(job).blocked
            return seen is not None and reason in seen.text

        site.until("blocked", blocked)
        seen = site.job(job).blocked
        assert seen is not None
        assert seen.kind is BlockKind.LIMIT
        site.until("taken back", lambda: site.job(job).state is JobState.QUEUED)
        assert "JobState=PENDING" in job_shown(site, job)
    finally:
        if where == "account":
            cluster.run("sacctmgr", "-i", "modify", "account", "lab", "set", "GrpTRES=gres/gpu=-1")


def test_a_stop_frees_the_limit_at_once(site: Driver) -> None:
    first, second = submit(site, "--qos=two"), submit(site, "--qos=two")
    site.start(first, {"n1": 2})
    site.wait(first, JobState.RUNNING)
    time.sleep(0.3)
    site.stop(first, 60.0)
    site.wait(first, JobState.STOPPED)
    site.start(second, {"n2": 2})
    assert site.wait(second, JobState.RUNNING).allocation == {"n2": 2}


def test_a_preempted_job_comes_back_held_and_is_lost_not_stopped(site: Driver) -> None:
    job = submit(site)
    site.start(job, {"n1": 4})
    site.wait(job, JobState.RUNNING)
    urgent = containers(site).submit(
        "#!/bin/bash\nexec sleep 30\n", "--partition=urgent", "--gres=gpu:2", "--nodelist=n1", "--time=5"
    )
    try:
        seen = site.wait(job, JobState.LOST, JobState.STOPPED)
        assert seen.state in {JobState.LOST, JobState.STOPPED}
        shown = containers(site).run("scontrol", "show", "job", number(job))
        assert "Priority=0" in shown, "it would start again by itself in its old shape"
        site.start(job, {"n2": 1}, 2)
        assert site.wait(job, JobState.RUNNING).allocation == {"n2": 1}
    finally:
        containers(site).run("scancel", urgent)


def test_a_granted_job_is_first_although_a_bigger_one_waits_for_its_node(site: Driver) -> None:
    """Slurm keeps n4 for the job ahead of ours, which waits for all four nodes: behind it ours would never start."""
    cluster = containers(site)
    forever = "#!/bin/bash\nexec sleep 900\n"
    taken = cluster.submit(forever, "--partition=raw", "--gres=gpu:1", "--nodes=3", "--nodelist=n[1-3]", "--time=60")
    wait_for("it runs", lambda: "JobState=RUNNING" in cluster.run("scontrol", "show", "job", taken))
    ahead = cluster.submit(forever, "--partition=raw", "--gres=gpu:4", "--nodes=4", "--time=60")
    try:
        cluster.run("scontrol", "update", f"jobid={ahead}", "Priority=4000000")
        wait_for("it waits", lambda: "Resources" in cluster.run("squeue", "-h", "-j", ahead, "-o", "%r"), 60)
        job = submit(site)
        site.start(job, {"n4": 1})
        assert site.wait(job, JobState.RUNNING).allocation == {"n4": 1}
        site.patient(lambda: site.port.release(job))
        shown = "squeue", "-h", "-j", number(job), "-o", "%Q"
        wait_for("it is one of many again", lambda: int(cluster.run(*shown)) < 4_000_000)
    finally:
        cluster.run("scancel", taken, ahead)


@pytest.mark.parametrize("way", ["port", "script"])
def test_order_moves_pending_jobs_by_their_site_factor_alone(site: Driver, tmp_path: Path, way: str) -> None:
    """Mode `order`: nothing is held; the jobs are Slurm's own, and it starts them in our order. Leaving leaves nothing
    on them, and what others gave to others."""
    cluster = containers(site)
    cluster.run("rm", "-f", "/shared/horae/spool/heartbeat")
    full = cluster.submit("#!/bin/bash\nexec sleep 300\n", "--partition=raw", "--gres=gpu:4", "--nodes=4", "--time=60")
    wait_for("it runs", lambda: "JobState=RUNNING" in cluster.run("scontrol", "show", "job", full))
    asked = "--gpus-per-node=4 --ntasks-per-gpu=1 --nodelist=n[1-4] --time=60"  # 24.11 loses such tasks at each update
    by_task = asked.replace("--ntasks-per-gpu=1", "--gpus-per-task=1 --ntasks=16").split()  # and those
    array = [*asked.split(), "--array=2-4%1"]
    made = [cluster.submit(PLAIN, "--partition=dl", *words) for words in (by_task, array, array, asked.split())]
    *jobs, beside = made
    cluster.run("scontrol", "update", f"jobid={beside}", "SiteFactor=777", "NumTasks=16")

    def theirs() -> list[dict[str, str]]:
        kept = ("NumTasks", "ReqNodeList", "EligibleTime", "NumNodes", "TresPerNode")
        shown = [re.findall(r"(\S+?)=(\S+)", cluster.run("scontrol", "show", "job", job)) for job in jobs]
        return [{name: value for name, value in words if name in kept} for words in shown]

    wait_for("Slurm has looked at all", lambda: "Unknown" not in {each["EligibleTime"] for each in theirs()})
    whole = theirs()
    assert {each["NumTasks"] for each in whole} == {"16"}
    port = connect({**cluster.options("dl"), "hold": False, "state": str(tmp_path / "order")})
    try:
        assert port.capabilities().order_lever == "SiteFactor"

        def factors() -> list[int]:
            """What each has over a job beside them that nobody orders: fair share moves all alike, at any time."""
            shown = cluster.run("squeue", "-h", "-j", ",".join(made), "-O", "ArrayJobID:20,PriorityLong:20").split()
            found = dict(zip(shown[::2], map(int, shown[1::2]), strict=True))
            return [found[job] - found[beside] for job in jobs]

        port.claim("order")
        seen = [job.id for job in attend(port).jobs if job.state is JobState.QUEUED]
        assert sorted({job.partition("_")[0] for job in seen}) == sorted(made)
        wanted = [job for number in reversed(jobs) for job in seen if job.partition("_")[0] == number]
        before = factors()
        port.set_order(wanted)

        def ordered() -> bool:
            first, second, third = factors()
            return first + 10 <= second <= third - 10

        wait_for("they are ordered", ordered)
        assert theirs() == whole
        port.set_order(wanted)
        attend(port)
        if way == "port":
            for job in wanted:
                port.release(job)
        else:
            script = Path(__file__).parents[2] / "slurm_plugin/site/release-all.sh"
            (cluster.shared()[0] / script.name).write_bytes(script.read_bytes())
            cluster.run("sh", f"/shared/{script.name}", cluster.options("dl")["spool"])
        wait_for(
            "the factor is gone with the job",
            lambda: all(abs(now - then) < 5 for now, then in zip(factors(), before, strict=True)),
        )
        assert theirs() == whole
    finally:
        port.close()
        cluster.run("scancel", full, *made)


def test_a_maintenance_reservation_blocks_its_nodes(site: Driver) -> None:
    containers(site).run(
        "scontrol", "create", "reservation", "ReservationName=fix", "Nodes=n1", "StartTime=now", "Duration=10",
        "Flags=MAINT", "Users=root",
    )  # fmt: skip
    try:
        wait_for("the node shows it", lambda: site.node("n1").health.value == "drain")
        job = submit(site)
        site.start(job, {"n1": 1})
        site.until("blocked", lambda: site.job(job).blocked is not None)
        blocked = site.job(job).blocked
        assert blocked is not None
        assert blocked.kind is BlockKind.NODE
        site.start(job, {"n2": 1}, 2)
        site.wait(job, JobState.RUNNING)
    finally:
        containers(site).run("scontrol", "delete", "ReservationName=fix")


def test_maintenance_that_is_planned_is_known_and_nothing_is_begun_that_would_meet_it(site: Driver) -> None:
    words = ["StartTime=now+20minutes", "Duration=10", "Nodes=n1", "Flags=MAINT", "Users=root"]
    containers(site).run("scontrol", "create", "reservation", "ReservationName=plan", *words)
    try:
        site.until("it is known", lambda: [away.name for away in site.observe().away] == ["plan"])
        assert site.node("n1").health.value == "up"
        long, short = submit(site), submit(site, "--time=5")
        before = job_shown(site, long)
        site.start(long, {"n1": 1})
        blocked = site.job(long).blocked
        assert blocked is not None
        assert (blocked.kind, blocked.text[:40]) == (BlockKind.NODE, "n1: reserved for maintenance in Slurm in")
        assert job_shown(site, long) == before, "Slurm is not asked for what it does not do"
        site.start(long, {"n2": 1}, 2)
        site.start(short, {"n1": 1})
        site.wait(long, JobState.RUNNING)
        site.wait(short, JobState.RUNNING)
    finally:
        containers(site).run("scontrol", "delete", "ReservationName=plan")


def test_licences_block_as_slurm_counts_them_and_a_stop_gives_them_back(site: Driver) -> None:
    first, second = submit(site, "--licenses=matlab:2"), submit(site, "--licenses=matlab:2")
    site.start(first, {"n1": 1})
    site.wait(first, JobState.RUNNING)
    site.start(second, {"n2": 1})
    site.until("blocked", lambda: site.job(second).blocked is not None)
    blocked = site.job(second).blocked
    assert blocked is not None
    assert "Licenses" in blocked.text
    site.until("taken back", lambda: site.job(second).state is JobState.QUEUED)
    site.stop(first, 60.0)
    site.wait(first, JobState.STOPPED)
    site.start(second, {"n2": 1}, 2)
    site.wait(second, JobState.RUNNING)


def test_a_reservation_of_others_blocks_and_who_may_use_it_is_slurms_own(site: Driver) -> None:
    words = ["StartTime=now", "Duration=60", "Nodes=n1"]
    containers(site).run("scontrol", "create", "reservation", "ReservationName=bobs", "Users=bob", *words)
    try:
        wait_for("the node shows it", lambda: site.node("n1").health.value == "drain")
        other = submit(site)
        site.start(other, {"n1": 1})
        site.until("blocked", lambda: site.job(other).blocked is not None)
        containers(site).run("scontrol", "update", "ReservationName=bobs", "Users=bob,alice")
        words = ["--partition=dl", "--gres=gpu:1", "--time=10", "--reservation=bobs"]
        own = containers(site).submit(PLAIN, *words)
        wait_for(
            "Slurm starts it", lambda: containers(site).run("squeue", "-h", "-j", own, "-o", "%T%N") == "RUNNINGn1"
        )
        site.until("the rest of the node is not ours either", lambda: site.node("n1").foreign == 1)
        assert site.node("n1").health.value == "drain"
        assert own not in {number(job.id) for job in site.observe().jobs}
        with pytest.raises(BadInput, match="--reservation"):
            containers(site).submit(PLAIN, *words, "--comment=horae:min=1")
    finally:
        containers(site).run("scancel", "--reservation=bobs")
        wait_for("nobody has it", lambda: containers(site).run("squeue", "-h", "-R", "bobs", "-t", "R,CG") == "")
        containers(site).run("scontrol", "delete", "ReservationName=bobs")


def test_exclusive_takes_no_more_than_it_was_granted(site: Driver) -> None:
    job = submit(site, "--exclusive")
    site.start(job, {"n1": 1})
    site.wait(job, JobState.RUNNING)
    beside = submit(site)
    site.start(beside, {"n1": 2})
    assert site.wait(beside, JobState.RUNNING).allocation == {"n1": 2}
    shown = containers(site).run("scontrol", "-d", "show", "job", number(job))
    assert "gres/gpu=1" in shown.partition("AllocTRES=")[2].splitlines()[0]


def test_a_heterogeneous_job_is_left_to_slurm(site: Driver) -> None:
    site.port.heartbeat()
    argv = ["sbatch", "--parsable", "-p", "dl", "--gres=gpu:1", "-t5", ":", "-p", "dl", "--gres=gpu:2", "-t5"]
    code, text = containers(site).lab.exec("ctl", [*argv, "--wrap", "true"], user="alice")
    assert code == 0, text
    leader = text.strip().partition(";")[0]
    try:
        assert "HetJobOffset=1" in containers(site).run("scontrol", "show", "job", leader)
        assert "horae=" not in containers(site).run("scontrol", "show", "job", leader)
        assert leader not in {number(job.id) for job in site.observe().jobs}
    finally:
        containers(site).run("scancel", leader)


def test_observing_and_advising_leave_the_controllers_state_as_it_was(site: Driver, tmp_path: Path) -> None:
    """The whole arbiter, a round after the other, in both modes: every job, node and partition, before and after."""
    cluster = containers(site)
    running, queued = submit(site), submit(site)
    site.start(running, {"n1": 1})
    site.wait(running, JobState.RUNNING)
    free = cluster.submit("#!/bin/bash\nexec sleep 300\n", "--partition=raw", "--gres=gpu:1", "--time=60")
    wait_for("it runs", lambda: "JobState=RUNNING" in cluster.run("scontrol", "show", "job", free))

    wait_for("nothing else moves", lambda: not cluster.run("squeue", "-h", "-a", "-t", "CG,CF"))
    jobs = [number(running), number(queued), free]

    def controller() -> list[str]:
        text = "".join(cluster.run("scontrol", "-o", "show", what) for what in ("node", "partition", "reservation"))
        text += "".join(cluster.run("scontrol", "-o", "show", "job", job) for job in jobs)
        moving = r"\b(RunTime|LastBusyTime|CPULoad|FreeMem|LastSchedEval|SchedNodeList|Priority)=\S*|Scheduler=\S+"
        return sorted(set(re.sub(moving, "", text).split()))

    spool = cluster.shared()[0] / "horae/spool"

    def written() -> dict[str, float]:
        """What only an arbiter that acts writes: the claim, grants and fences, requests to stop."""
        names = ("claim", "jobs/*/epoch", "jobs/*/slurm.json", "jobs/*/stop", "jobs/*/cancel", "reasons/*")
        return {str(path): path.stat().st_mtime for name in names for path in spool.glob(name)}

    def ordered() -> dict[str, int]:
        """Priorities that were given; this site's Slurm weighs the others by itself, each minute, up to 11,000."""
        told = cluster.run("squeue", "-h", "-p", "dl", "-O", "JobID:20,PriorityLong:20")
        rows = [line.split() for line in told.splitlines()]
        return {job: int(priority) for job, priority in rows if int(priority) > 1 << 20}

    given = ordered()
    assert given, "the granted job's"
    for mode in ("observe", "advise"):
        before, files = controller(), written()
        _rounds(cluster, tmp_path, mode, {running, queued})
        assert controller() == before, mode
        assert written() == files, mode
    assert ordered() == given
    cluster.run("scancel", free)


def _rounds(cluster: Containers, folder: Path, mode: str, jobs: set[str]) -> None:
    """An arbiter in this mode, until it has seen the jobs and, where it is to advise, decided."""
    options = {**cluster.options("dl"), "state": str(folder / f"memory-{mode}")}
    config = Config.model_validate({
        "state_dir": str(folder / mode),
        "cluster": {"adapter": "slurm", "options": options},
        "pools": [{"name": "all", "policy": "max-min", "mode": mode, "nodes": "n[1-4]"}],
        "rounds": {"tick_s": 0.3, "busy_s": 0.2, "debounce_s": 0.05},
    })  # fmt: skip
    arbiter = Arbiter(config, connect(config.cluster.options))
    arbiter.start()
    try:
        wait_for("it knows the jobs", lambda: {row.id for row in watch.jobs(arbiter)} >= jobs, 60)
        if mode == "advise":
            wait_for("it decided", lambda: arbiter.decision("all") is not None, 60)
    finally:
        arbiter.stop()
