"""The job_submit module in Lua 5.1 (Slurm's), with a stand-in for Slurm's own table; real daemons: tests/real."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lupa import lua51

from slurm_plugin.comment import parse_tag

MODULE = Path(__file__).parents[2] / "slurm_plugin" / "site" / "horae.lua"
#: what sbatch makes of --mail-type=ALL
MAIL_ALL = 0x50F
#: that slurmctld lists to the module: those that the user may use
PARTITIONS = ("dl", "raw", "old", "second")
NO_VAL, NO_VAL16, NO_VAL64 = 4294967294, 65534, float(2**64 - 2)


class Lua:
    """One slurmctld's Lua: the module loaded with a site's configuration, and what it said to users."""

    def __init__(self, folder: Path, conf: str = "", site: str = "") -> None:
        self.folder, self.said = folder, []
        self.errors: list[str] = []
        self.runtime = lua51.LuaRuntime(unpack_returned_tuples=True)
        table = self.runtime.table_from
        self.runtime.globals().slurm = table(
            {
                "SUCCESS": 0,
                "ERROR": -1,
                "log_user": lambda _form, text: self.said.append(text),
                "log_error": lambda _form, text: self.errors.append(text),
            }
        )
        (folder / "horae.lua").write_text(MODULE.read_text())
        base = f'return {{partitions = {{dl = true}}, spool = "{folder}", stale_s = 60, admins = {{[0] = true}}'
        (folder / "horae_conf.lua").write_text(base + (", " + conf if conf else "") + "}\n")
        self.runtime.execute(site)
        self.runtime.execute(f'local ok, horae = pcall(dofile, "{folder}/horae.lua"); assert(ok, horae); horae.chain()')

    def beat(self, hold: str = "dl", age_s: float = 0) -> None:
        (self.folder / "heartbeat").write_text(f"time {int(time.time() - age_s)}\nhold {hold}\n")

    def submit(self, uid: int = 1000, of_none: str = "", **fields: Any) -> tuple[int, Any]:
        """(return code, the job description after it). `of_none`: marked as that of who names none."""
        default = {
            "partition": "dl", "script": "#!/bin/sh\n", "tres_per_node": "gres:gpu:v100:2", "min_nodes": 2,
            "max_nodes": 2, "num_tasks": NO_VAL, "cpus_per_task": NO_VAL16, "ntasks_per_node": NO_VAL16,
            "min_cpus": NO_VAL, "priority": NO_VAL, "shared": NO_VAL16, "min_mem_per_node": NO_VAL64,
            "het_job_offset": NO_VAL, "begin_time": 0, "comment": "horae:min=1",
            "environment": self.runtime.table_from({}),
        }  # fmt: skip
        job = self.runtime.table_from({**default, **fields})
        flags = {name: {"flag_default": int(name in of_none.split())} for name in PARTITIONS}
        parts = self.runtime.table_from({name: self.runtime.table_from(each) for name, each in flags.items()})
        return int(self.runtime.globals().slurm_job_submit(job, parts, uid)), job

    def modify(self, uid: int, record: dict[str, Any], **fields: Any) -> int:
        return self.modified(uid, record, **fields)[0]

    def modified(self, uid: int, record: dict[str, Any], **fields: Any) -> tuple[int, Any]:
        """(return code, the change after it)"""
        change = self.runtime.table_from(fields)
        record_table = self.runtime.table_from(record)
        return int(self.runtime.globals().slurm_job_modify(change, record_table, None, uid)), change


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Lua]:
    return lambda **more: Lua(tmp_path, **more)


@pytest.fixture
def lua(make: Callable[..., Lua]) -> Lua:
    made = make()
    made.beat()
    return made


def waits(job: Any) -> bool:
    """Whether it waits for the module's begin time."""
    return bool(job.begin_time and job.begin_time > time.time() + 300 * 86400)


def test_a_gpu_job_is_parked_tagged_and_made_reshapeable(lua: Lua) -> None:
    code, job = lua.submit(cpus_per_task=3, num_tasks=2, min_mem_per_node=2000.0)
    assert (code, waits(job), job.priority, job.requeue) == (0, True, NO_VAL, 1)
    assert re.fullmatch(r"horae=[0-9a-f]{12,},gpus=4,nodes=2,types=v100,cpus=6,mem=2000,part=dl", job.admin_comment)
    assert (job.tres_per_node, job.min_nodes, job.max_nodes, job.num_tasks) == ("gres:gpu:1", 1, 1, 1)
    assert job.environment.HORAE_NONCE in job.admin_comment
    assert str(lua.folder) == job.environment.HORAE_SPOOL
    assert (lua.folder / "events").read_text() == "submit\n"


@pytest.mark.parametrize(
    ("fields", "gpus"),
    [
        ({"tres_per_job": "gres:gpu:8", "tres_per_node": None}, 8),
        ({"tres_per_task": "gres/gpu:2", "tres_per_node": None, "num_tasks": 3}, 6),
        ({"tres_per_node": "gres/gpu"}, 2),
        ({"tres_per_node": "gpu:a100_80:4", "min_nodes": 1}, 4),
        ({"tres_per_node": "gres:gpu:3090:3", "min_nodes": 1}, 3),
        ({"tres_per_job": "gres/gpu:4090=3,gres/gpu:2080ti", "tres_per_node": None}, 4),
    ],
)
def test_every_way_to_ask_for_gpus_is_counted(lua: Lua, fields: dict[str, Any], gpus: int) -> None:
    _, job = lua.submit(**fields)
    assert f",gpus={gpus}," in job.admin_comment


def test_the_releases_own_spelling_is_kept(lua: Lua) -> None:
    assert lua.submit(tres_per_node="gres/gpu:2")[1].tres_per_node == "gres/gpu:1"


def test_the_sites_own_admin_comment_stays_in_front(lua: Lua) -> None:
    assert lua.submit(admin_comment="site text")[1].admin_comment.startswith("site text horae=")


def test_exclusive_is_dropped_and_begin_is_remembered(lua: Lua) -> None:
    _, job = lua.submit(shared=0, begin_time=int(time.time()) + 1000)
    assert job.shared == NO_VAL16
    assert ",begin=" in job.admin_comment


def test_nonces_differ_also_after_a_reload(lua: Lua, make: Callable[..., Lua]) -> None:
    seen = {lua.submit()[1].environment.HORAE_NONCE for _ in range(50)}
    again = make()
    again.beat()
    seen |= {again.submit()[1].environment.HORAE_NONCE for _ in range(50)}
    assert len(seen) == 100


RIGID: dict[str, Any] = {"comment": None}


@pytest.mark.parametrize(
    ("fields", "shape"),
    [
        ({}, "gpus=4,nodes=2,types=v100,shape=own,per=2,fixed=1"),
        ({"cpus_per_task": 3, "ntasks_per_node": 4},
         "gpus=4,nodes=2,types=v100,cpus=24,shape=own,per=2,fixed=1,nodecpus=12"),
        ({"min_nodes": NO_VAL, "ntasks_per_node": 4, "num_tasks": 12},
         "gpus=6,nodes=3,types=v100,cpus=12,shape=own,per=2,fixed=1,nodecpus=4"),
        ({"min_nodes": NO_VAL}, "gpus=2,nodes=1,types=v100,shape=own,per=2,fixed=1"),
        ({"min_nodes": NO_VAL, "tres_per_node": None, "tres_per_job": "gres:gpu:8"}, "gpus=8,nodes=1,shape=own"),
        ({"min_nodes": NO_VAL, "tres_per_node": None, "tres_per_task": "gres:gpu:1", "num_tasks": 4},
         "gpus=4,nodes=1,cpus=4,shape=own"),
        ({"min_nodes": NO_VAL, "num_tasks": 33, "cpus_per_task": 2},
         "gpus=2,nodes=1,types=v100,cpus=66,shape=own,per=2,fixed=1,nodecpus=2"),
        ({"min_nodes": 1, "max_nodes": 1, "num_tasks": 4, "cpus_per_task": 2},
         "gpus=2,nodes=1,types=v100,cpus=8,shape=own,per=2,fixed=1,nodecpus=8"),
        ({"min_nodes": 1, "max_nodes": 3, "num_tasks": 33},
         "gpus=2,nodes=1,types=v100,cpus=33,shape=own,per=2,fixed=1"),
        ({"tres_per_node": None, "tres_per_socket": "gres:gpu:1", "sockets_per_node": 2},
         "gpus=4,nodes=2,shape=own,per=2,fixed=1"),
        ({"shared": 0, "features": "ib&nvme"},
         "gpus=4,nodes=2,types=v100,shape=own,per=2,fixed=1,alone=1,features=ib/nvme"),
        ({"features": "[rack1*2]"}, "gpus=4,nodes=2,types=v100,shape=own,per=2,fixed=1"),
        ({"features": "[v100|k80]"}, "gpus=4,nodes=2,types=v100,shape=own,per=2,fixed=1"),
        ({"features": "a100|h100", "req_nodes": "n[1-3,7],x4", "exc_nodes": "n9"},
         "gpus=4,nodes=2,types=v100,shape=own,per=2,fixed=1,any=a100/h100,on=n[1-3/7]/x4,off=n9"),
        # Slurm counts GPUs by the tasks
        ({"tres_per_node": None, "num_tasks": 8, "ntasks_per_gpu": 3},
         "gpus=3,nodes=2,cpus=8,shape=own,fixed=1,tasks=8"),
        ({"tres_per_node": None, "ntasks_per_gpu": 1}, "gpus=2,nodes=2,shape=own,fixed=1"),
        # a node for itself comes with all its GPUs, also where none is asked for
        ({"tres_per_node": None, "shared": 0}, "gpus=2,nodes=2,shape=own,per=1,fixed=1,alone=1"),
        ({"tres_per_node": "gres:gpu:0", "shared": 0}, "gpus=2,nodes=2,shape=own,per=1,fixed=1,alone=1"),
        ({"req_nodes": "n" * 241}, "gpus=4,nodes=2,types=v100,shape=own,per=2,fixed=1"),
        ({"script": "#!/bin/sh\n#SBATCH --deadline=now+1hour\ntrue\n"},
         "gpus=4,nodes=2,types=v100,shape=own,per=2,fixed=1,held=1"),
        ({"script": "#!/bin/sh\n\n  # my job\n#SBATCH -c 2 --deadl now+1hour\n"},
         "gpus=4,nodes=2,types=v100,shape=own,per=2,fixed=1,held=1"),
        ({"script": "#!/bin/sh\ntrue\n#SBATCH --deadline=now+1hour\n"},
         "gpus=4,nodes=2,types=v100,shape=own,per=2,fixed=1"),
    ],
)  # fmt: skip
def test_a_rigid_job_keeps_all_that_it_asks_for(lua: Lua, fields: dict[str, Any], shape: str) -> None:
    before = dict(lua.submit(partition="raw", **RIGID, **fields)[1].items())
    code, job = lua.submit(**RIGID, **fields)
    after = dict(job.items())
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)} - {"partition", "environment"}
    what = "priority" if shape.endswith("held=1") else "begin_time"
    assert (code, changed) == (0, {"admin_comment", what}), "nothing but the tag, and what it waits for"
    assert job.priority == 0 or waits(job)
    assert job.admin_comment.partition(",")[2] == f"{shape},part=dl"


@pytest.mark.parametrize("fields", [{"req_nodes": "n1"}, {"exc_nodes": "n1"}, {"features": "v100|k80"}])
def test_a_rigid_job_may_choose_its_nodes(lua: Lua, fields: dict[str, Any]) -> None:
    assert lua.submit(**RIGID, **fields)[0] == 0
    assert not lua.said


@pytest.mark.parametrize(
    "fields",
    [
        {"partition": "raw"},
        {"tres_per_node": None},
        {"tres_per_node": None, "shared": 2},
        {"partition": None},
        {"comment": None, "reservation": "x"},
    ],
)
def test_other_jobs_are_not_touched(lua: Lua, fields: dict[str, Any]) -> None:
    code, job = lua.submit(**fields)
    assert (code, job.priority, job.admin_comment) == (0, NO_VAL, None)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"script": None, "immediate": 1}, "--immediate"),
        ({"partition": "raw,dl"}, "one partition"),
        ({"priority": 0}, "--hold"),
        ({"req_nodes": "n1"}, "--nodelist"),
        ({"exc_nodes": "n1"}, "--exclude"),
        ({"reservation": "course"}, "--reservation"),
        ({"features": "v100"}, "--constraint"),
        ({"comment": "horae:mni=2"}, "mni"),
        ({"comment": "note horae:min=two"}, "min=two"),
        ({"comment": "horae:min=4,max=2"}, "above"),
        ({"comment": "horae:allowed=1/2,max=2"}, "allowed"),
        ({"comment": "horae:allowed=1/x"}, "list"),
    ],
)
def test_what_cannot_be_honoured_is_refused_in_one_sentence(lua: Lua, fields: dict[str, Any], words: str) -> None:
    code, _ = lua.submit(**fields)
    assert code == -1
    assert len(lua.said) == 1
    assert words in lua.said[0]


@pytest.mark.parametrize("fields", [{"script": None}, {"script": "", "comment": None}])
def test_srun_and_salloc_wait_as_they_are(lua: Lua, fields: dict[str, Any]) -> None:
    code, job = lua.submit(**fields)
    assert (code, waits(job), job.tres_per_node) == (0, True, "gres:gpu:v100:2")
    assert "shape=own" in job.admin_comment
    assert job.partition == "dl"


@pytest.mark.parametrize("fields", [{}, {"script": None}, {"priority": 0}, {"begin_time": time.time() + 864_000}])
def test_of_a_list_of_partitions_the_others_have_it_as_it_is(lua: Lua, fields: dict[str, Any]) -> None:
    for _ in range(2):
        code, job = lua.submit(**RIGID, **fields, partition="raw,dl,old")
        assert (code, job.partition, waits(job)) == (0, "raw,old", False)
        assert job.priority == fields.get("priority", NO_VAL)
        tag = parse_tag(job.admin_comment)
        assert tag is not None
        assert (tag.beside, tag.partitions, tag.own_shape) == (("raw", "old"), ("raw", "dl", "old"), True)
    assert (lua.folder / "beside").read_text() == "raw\nold\n"


def test_words_that_are_no_partitions_are_not_noted(lua: Lua) -> None:
    """Slurm looks whether there is such a partition only after the module: what it will refuse must leave nothing."""
    for number in range(300):
        lua.submit(**RIGID, partition=f"dl,none{number}{'x' * 200}")
    lua.submit(**RIGID, partition="dl,none,raw")
    assert (lua.folder / "beside").read_text() == "raw\n"


def test_a_list_of_ours_alone_waits_for_its_turn(make: Callable[..., Lua]) -> None:
    lua = make(conf="partitions = {dl = true, second = true}")
    lua.beat(hold="dl,second")
    _, job = lua.submit(**RIGID, partition="dl,second")
    assert (job.partition, waits(job), "beside=" in job.admin_comment) == ("dl,second", True, False)


def test_an_elastic_job_is_not_restarted_by_slurm_before_all_others(lua: Lua) -> None:
    flag = 1 << 43
    assert lua.submit(bitflags=flag)[0] == 0, "a release without it"
    lua.runtime.globals().slurm.EXPEDITED_REQUEUE = flag
    for bitflags, code in ((0, 0), (flag >> 1, 0), (flag + 3, -1)):
        assert lua.submit(bitflags=bitflags)[0] == code
        assert lua.submit(**RIGID, bitflags=bitflags)[0] == 0
    assert "--requeue=expedite" in lua.said[0]


def test_a_job_that_waits_beside_is_not_moved_by_its_owner(lua: Lua) -> None:
    record = {"partition": "raw", "admin_comment": "horae=1,gpus=1,shape=own,beside=raw,list=dl/raw", "priority": 5}
    assert lua.modify(1000, record, partition="dl") == -1
    assert lua.modify(1000, record, priority=0) == 0


def test_a_hold_of_its_users_stands_beside_ours(lua: Lua) -> None:
    code, job = lua.submit(priority=0, comment=None)
    assert (code, job.priority, waits(job)) == (0, 0, True)
    assert "held=1" not in job.admin_comment


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [("interactive", {"script": None}, "sbatch"), ("heterogeneous", {"het_job_offset": 0}, "heterogeneous")],
)
def test_a_site_may_let_interactive_and_heterogeneous_jobs_pass_or_refuse_them(
    make: Callable[..., Lua], name: str, fields: dict[str, Any], words: str
) -> None:
    lua = make(conf=f'{name} = "pass"')
    lua.beat()
    code, job = lua.submit(**fields)
    assert (code, job.priority, job.begin_time, job.admin_comment) == (0, NO_VAL, 0, None)
    lua = make(conf=f'{name} = "refuse"')
    lua.beat()
    assert lua.submit(**fields)[0] == -1
    assert words in lua.said[0]


@pytest.mark.parametrize("age_s", [61, -61, 10_000])
def test_a_stale_heartbeat_stops_all_holding_and_refusing(lua: Lua, age_s: float) -> None:
    lua.beat(age_s=age_s)
    assert not waits(lua.submit()[1])
    assert lua.submit(script=None, immediate=1)[0] == 0
    record = {"partition": "dl", "admin_comment": "horae=1,gpus=1"}
    assert lua.modify(1000, record, priority=100) == 0


def test_no_heartbeat_or_a_broken_one_is_a_stale_one(lua: Lua) -> None:
    (lua.folder / "heartbeat").write_bytes(b"\x00time soon\n")
    assert not waits(lua.submit()[1])
    (lua.folder / "heartbeat").unlink()
    assert not waits(lua.submit()[1])


def test_only_partitions_that_the_arbiter_holds_are_held(lua: Lua) -> None:
    lua.beat(hold="other")
    assert not waits(lua.submit()[1])


@pytest.mark.parametrize(
    "change",
    [
        {"priority": NO_VAL + 1, "begin_time": 0},  # scontrol release, as 24.11 sends it
        {"priority": 4294967295 - 5},
        {"nice": 2147483648 + 10},
        {"partition": "raw"},
        {"requeue": 0},
        {"begin_time": 300},  # from now
        {"min_nodes": 4},
        {"tres_per_node": "gres:gpu:4"},
        {"tres_per_task": "gres:gpu:4"},
        {"tres_per_socket": "gres:gpu:4"},
        {"req_nodes": "n1"},
    ],
)
def test_the_owner_cannot_change_what_we_decide(lua: Lua, change: dict[str, Any]) -> None:
    if change.get("begin_time"):  # the tests were collected long ago
        change = {"begin_time": time.time() + change["begin_time"]}
    record = {"partition": "dl", "admin_comment": "horae=1,gpus=1"}
    assert lua.modify(1000, {**record, "partition": "raw,dl"}, **{"partition": "raw,dl", **change}) == -1
    assert lua.modify(1000, record, **change) == -1
    assert lua.modify(0, record, **change) == 0
    stranger = {"partition": "dl", "admin_comment": "other", "tres_per_node": "gres:gpu:1"}
    assert lua.modify(1000, stranger, **change) == 0


ELSEWHERE = {"partition": "raw", "tres_per_node": "gres:gpu:2", "script": "#!/bin/sh\n", "het_job_id": 0}


@pytest.mark.parametrize(
    ("record", "change"),
    [
        (ELSEWHERE, {"partition": "dl"}),
        (ELSEWHERE, {"partition": "raw,dl"}),
        ({**ELSEWHERE, "admin_comment": "horae=1,gpus=2,shape=own,part=dl"}, {"partition": "dl"}),  # handed back
        ({**ELSEWHERE, "partition": "dl", "tres_per_node": None}, {"tres_per_job": "gres:gpu:4"}),
        ({**ELSEWHERE, "partition": "dl", "resv_name": "class"}, {"reservation": ""}),
    ],
)
def test_no_owner_brings_a_waiting_job_past_all_who_wait(
    lua: Lua, record: dict[str, Any], change: dict[str, Any]
) -> None:
    assert lua.modify(1000, record, **change) == -1
    assert "--partition=dl" in lua.said[0]
    assert lua.modify(0, record, **change) == 0, "an administrator's move stands"
    lua.beat(age_s=1000)
    assert lua.modify(1000, record, **change) == 0


@pytest.mark.parametrize(
    ("record", "change"),
    [
        (ELSEWHERE, {"partition": "old"}),
        (ELSEWHERE, {"tres_per_node": "gres:gpu:4"}),
        ({**ELSEWHERE, "tres_per_node": None}, {"partition": "dl"}),  # no GPUs
        ({**ELSEWHERE, "het_job_id": 7}, {"partition": "dl"}),
        (ELSEWHERE, {"partition": "dl", "reservation": "class"}),
        ({**ELSEWHERE, "resv_name": "class"}, {"partition": "dl"}),
        ({**ELSEWHERE, "partition": "dl"}, {"tres_per_node": "gres:gpu:4"}),  # of before an arbiter lived
    ],
)
def test_what_no_submission_would_hold_its_owner_may_change(
    lua: Lua, record: dict[str, Any], change: dict[str, Any]
) -> None:
    assert lua.modify(1000, record, **change) == 0


def test_who_waits_in_no_queue_of_ours_may_come_from_anywhere(make: Callable[..., Lua]) -> None:
    lua = make(conf='interactive = "pass"')
    lua.beat()
    assert lua.modify(1000, {**ELSEWHERE, "script": None}, partition="dl") == 0
    assert lua.modify(1000, ELSEWHERE, partition="dl") == -1


def test_tasks_by_the_gpu_and_the_partition_are_noted(lua: Lua) -> None:
    for both in ({"ntasks_per_gpu": 2}, {"tres_per_node": "gres/gpu:2", "tres_per_task": "gres/gpu=1"}):
        tag = parse_tag(lua.submit(**{**RIGID, **both}, num_tasks=8)[1].admin_comment)
        assert tag is not None
        assert (tag.tasks, tag.partition) == (8, "dl")
    tag = parse_tag(lua.submit(**RIGID, ntasks_per_gpu=NO_VAL16, num_tasks=8, partition="raw,dl")[1].admin_comment)
    assert tag is not None
    assert (tag.tasks, tag.partition) == (None, "dl")


def test_the_partition_of_who_names_none_is_the_one_of_now(lua: Lua) -> None:
    """An administrator may make another the default without a word to anybody."""
    assert not waits(lua.submit(**RIGID, partition=None, of_none="raw")[1])
    assert waits(lua.submit(**RIGID, partition=None, of_none="dl")[1])
    for _ in range(2):  # slurmctld takes the old one's mark away only later
        assert not waits(lua.submit(**RIGID, partition=None, of_none="dl raw")[1])
    assert not waits(lua.submit(**RIGID, partition=None, of_none="raw")[1])
    assert waits(lua.submit(**RIGID, partition=None, of_none="dl raw")[1])


def test_a_job_of_a_scrontab_is_slurms_own(lua: Lua) -> None:
    """Slurm begins it again after each end: who gave it a time and let it go would have it run without a pause."""
    code, job = lua.submit(**RIGID, cron_job=True, begin_time=int(time.time()) + 60)
    assert (code, job.admin_comment, waits(job)) == (0, None, False)
    assert lua.submit(cron_job=True)[0] == -1
    assert "scrontab" in lua.said[-1]


@pytest.mark.parametrize("held", ["", ",held=1"])
def test_a_rigid_job_is_its_owners_to_hold(lua: Lua, held: str) -> None:
    record = {"partition": "dl", "admin_comment": f"horae=1,gpus=1,shape=own{held}", "priority": 5}
    taken = 0 if not held else -1
    for change in ({"priority": 0}, {"priority": NO_VAL + 1, "begin_time": 0}, {"nice": 2147483648 + 10}):
        assert lua.modify(1000, record, **change) == taken
    assert lua.modify(1000, {**record, "priority": 0}, nice=2147483648 + 10) == -1, "Slurm would release it"


@pytest.mark.parametrize("held", ["", ",held=1"])
@pytest.mark.parametrize(
    ("change", "size"),
    [
        ({"requeue": 0}, False),
        ({"features": "v100"}, False),
        ({"req_nodes": "n1"}, False),
        ({"exc_nodes": "n1"}, False),
        ({"min_nodes": 1, "max_nodes": 1}, True),
        ({"num_tasks": 2}, True),
        ({"tres_per_node": "gres:gpu:4"}, True),
    ],
)
def test_where_a_rigid_job_may_run_is_its_owners_to_say_and_its_size_once_it_runs(
    lua: Lua, held: str, change: dict[str, Any], size: bool
) -> None:
    """As in plain Slurm, that makes a running one smaller and never larger. A small one that waits would have its turn,
    and start as a large one."""
    record = {"partition": "dl", "admin_comment": f"horae=1,gpus=1,shape=own{held}", "priority": 5}
    for state in (None, 0, 0x100):
        assert lua.modify(1000, {**record, "job_state": state}, **change) == (-1 if size else 0)
    assert lua.modify(1000, {**record, "job_state": 1}, **change) == 0
    assert lua.modify(1000, {**record, "admin_comment": "horae=1,gpus=1", "job_state": 1}, **change) == -1
    for past in ({"begin_time": time.time() + 300}, {"partition": "raw"}):
        assert lua.modify(1000, record, **{**change, **past}) == -1


@pytest.mark.parametrize("change", [{"comment": "horae:max=2"}, {"name": "x"}, {"time_limit": 10, "begin_time": 0}])
def test_the_owner_may_change_the_rest(lua: Lua, change: dict[str, Any]) -> None:
    assert lua.modify(1000, {"partition": "dl", "admin_comment": "horae=1,gpus=1"}, **change) == 0


def test_an_error_of_ours_refuses_managed_jobs_and_lets_others_pass(lua: Lua) -> None:
    lua.runtime.execute("io.open = function() error('disk on fire') end")
    assert lua.submit()[0] == -1
    assert "internal error" in lua.said[0]
    assert "disk on fire" in lua.errors[0]
    code, job = lua.submit(partition="raw")
    assert (code, job.priority) == (0, NO_VAL)


def test_the_sites_script_comes_first_and_its_refusal_stands(make: Callable[..., Lua]) -> None:
    lua = make(site="function slurm_job_submit(jd) jd.seen = 1; if jd.bad then return -7 end return 0 end")
    lua.beat()
    code, job = lua.submit()
    assert (code, job.seen, waits(job)) == (0, 1, True)
    code, job = lua.submit(bad=True)
    assert (code, job.priority) == (-7, NO_VAL)


@pytest.mark.parametrize("field", ["comment", "name"])
@pytest.mark.parametrize("text", ["a\x1fb", "x\x1e\ny", "a\tb", "\x1b[2J", "a\nb", "\x7f", "\u009b1m"])
def test_control_characters_are_refused_by_the_option_that_holds_them(lua: Lua, field: str, text: str) -> None:
    code, job = lua.submit(**{field: text})
    assert (code, job.priority) == (-1, NO_VAL)
    assert f"--{'comment' if field == 'comment' else 'job-name'} holds a control character" in lua.said[0]
    assert lua.modify(1000, {"partition": "dl", "admin_comment": "horae=1,gpus=1"}, **{field: text}) == -1
    assert lua.submit(partition="raw", **{field: text})[0] == 0, "other partitions are the site's own business"


def test_letters_of_any_language_are_none(lua: Lua) -> None:
    assert lua.submit(comment="für Müller, 実験 №7", name="été_²")[0] == 0


@pytest.mark.parametrize(
    "word", ["min=" + "9" * 5000, "max=1000001", "grace=99999999", "allowed=1/" + "9" * 400, "min=²"]
)
def test_numbers_without_bounds_are_refused(lua: Lua, word: str) -> None:
    assert lua.submit(comment=f"horae:{word}")[0] == -1
    assert "number" in lua.said[0] or "list" in lua.said[0]


@pytest.mark.parametrize("comment", ["", "horae:min=1"])
def test_what_else_slurm_counts_is_noted(lua: Lua, comment: str) -> None:
    tag = parse_tag(lua.submit(array_inx="1-9%2", licenses="foo:3,bar@db", comment=comment)[1].admin_comment)
    assert tag is not None
    assert (tag.at_once, tag.licences) == (2, (("foo", 3), ("bar@db", 1)))
    tag = parse_tag(lua.submit(array_inx="1-9", licenses="foo|bar", comment=comment)[1].admin_comment)
    assert tag is not None
    assert (tag.at_once, tag.licences) == (None, ())


@pytest.mark.parametrize("partition", ["dl", "raw"])
@pytest.mark.parametrize("forged", ["horae=a,gpus=64,shape=own", "horahorae=e=a,gpus=64", "x horae=horae=a,gpus=64"])
def test_no_users_tag_is_left_standing(lua: Lua, partition: str, forged: str) -> None:
    """Of jobs that the module does not take too: an administrator may move them to a partition of ours."""
    code, job = lua.submit(partition=partition, tres_per_node=None, admin_comment=forged)
    assert (code, parse_tag(job.admin_comment)) == (0, None)


def test_a_type_of_digits_alone_is_a_type(lua: Lua) -> None:
    tag = parse_tag(lua.submit(tres_per_node="gres:gpu:3090:2", comment="")[1].admin_comment)
    assert tag is not None
    assert (tag.types, tag.gpus, tag.per_node) == (("3090",), 4, 2)


def test_a_hold_of_its_users_stands_beside_a_deadline(lua: Lua) -> None:
    script = "#!/bin/sh\n#SBATCH --deadline=now+1hour\n"
    for priority, held in ((0, False), (NO_VAL, True)):
        _, job = lua.submit(script=script, comment="", priority=priority)
        tag = parse_tag(job.admin_comment)
        assert (job.priority, tag is not None and tag.held) == (0, held)


def test_a_tag_that_stands_there_already_is_not_taken_for_ours(lua: Lua) -> None:
    _, job = lua.submit(admin_comment="horae=forged,gpus=64 kept")
    tag = parse_tag(job.admin_comment)
    assert tag is not None
    assert (tag.nonce, tag.gpus) == (job.environment.HORAE_NONCE, 4)
    assert "kept" in job.admin_comment


def test_what_an_elastic_jobs_user_wants_mails_about_is_noted(tmp_path: Path) -> None:
    lua = Lua(tmp_path)
    lua.beat()
    for comment, mail, noted in (("horae:min=1", MAIL_ALL, MAIL_ALL), ("horae:min=1", 0, 0), ("", MAIL_ALL, 0)):
        _, job = lua.submit(comment=comment, mail_type=mail)
        tag = parse_tag(job.admin_comment)
        assert tag is not None
        assert tag.mail == noted
        assert job.mail_type == mail, "Slurm itself keeps it"


HOUR = 3600
DAY = 24 * HOUR


@pytest.mark.parametrize("shape", ["", ",shape=own"])
def test_a_start_time_well_ahead_is_its_owners_to_give(lua: Lua, shape: str) -> None:
    record = {"partition": "dl", "admin_comment": f"horae=1,gpus=1{shape}", "priority": 5}
    for ahead_s in (HOUR, 160 * DAY):
        asked = int(time.time()) + ahead_s
        code, change = lua.modified(1000, record, begin_time=asked)
        assert (code, change.begin_time) == (0, asked)
    for ahead_s in (30, 300, 175 * DAY, 400 * DAY):
        assert lua.modify(1000, record, begin_time=int(time.time()) + ahead_s) == -1
        assert "start time" in lua.said[-1]


@pytest.mark.parametrize("shape", ["", ",shape=own"])
def test_to_start_at_once_is_to_wait_for_its_turn(lua: Lua, shape: str) -> None:
    record = {"partition": "dl", "admin_comment": f"horae=1,gpus=1{shape}", "priority": 5}
    for ahead_s in (None, 0, 3):  # a clock of a login node may be ahead
        asked = 5 if ahead_s is None else int(time.time()) + ahead_s
        code, change = lua.modified(1000, record, begin_time=asked)
        assert code == 0
        assert waits(change)
    later = {**record, "admin_comment": f"horae=1,gpus=1,begin={int(time.time()) + HOUR}{shape}"}
    assert lua.modify(1000, later, begin_time=5) == -1, "the arbiter waits for what stands in its tag"
    assert "--begin" in lua.said[-1]
    held = {**record, "admin_comment": f"horae=1,gpus=1{shape},held=1"}
    assert lua.modified(1000, held, begin_time=5)[1].begin_time == 5, "a begin time after its deadline would be refused"
    beside = {**record, "partition": "raw", "admin_comment": "horae=1,gpus=1,shape=own,beside=raw,list=raw/dl"}
    assert lua.modified(1000, beside, begin_time=5)[1].begin_time == 5, "where it waits it is Slurm's own"
    assert lua.modified(0, record, begin_time=5)[1].begin_time == 5, "an administrator's stands"
