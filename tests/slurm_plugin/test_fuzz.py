"""Damaged inputs for everything that the Slurm adapter reads (`tests/fuzzing.py`): what the commands print, slurmrestd
and the child with pyslurm answer, what users write in comments, the spool's documents and the adapter's own memory.

Rows that a reader lets through are judged as a look judges them: what reads well and breaks later is found too.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import httpx
import pytest

from horae.elastic.stores import checkpoints
from horae.port import PortError
from policy.model import BadInput
from slurm_plugin.clients.command import CommandClient
from slurm_plugin.clients.command_reading import JOB_FIELDS, NODE_FIELDS, ends_of, job_rows_of, node_rows_of, split_of
from slurm_plugin.clients.pyslurm import JOB_NAMES, NODE_NAMES, PyslurmClient
from slurm_plugin.clients.sealed import PLAIN
from slurm_plugin.comment import parse_tag, parse_word
from slurm_plugin.files.spool import Spool
from slurm_plugin.files.transport import Completed, Conversation, LocalFiles
from slurm_plugin.jobs import holdings, state_machine
from slurm_plugin.jobs.record import Grant, Memo, Memories, Stop
from slurm_plugin.jobs.specification import port_id
from slurm_plugin.options import Options, parse_options
from slurm_plugin.records import Facts, JobRow, NodeRow
from tests.fuzzing import Target, attack
from tests.slurm_plugin.boundary import Boundary, job, running
from tests.slurm_plugin.broken import REST, Child, rest
from tests.slurm_plugin.recordings import RECORDED, whole

NOW_S = 1_800_000_000.0
FACTS = Facts("24.11.5", "c", ("dl",), "CR_Core", "priority/basic", frozenset({86}), 300.0, 30.0, True, frozenset())
OPTIONS = Options(partitions=("dl",))
#: fewer than the harness would try: all of these together take a few seconds
COUNT = 120


def judged(rows: Iterable[JobRow], nodes: Iterable[NodeRow] = (), memo: Memo | None = None) -> None:
    """What a look makes of them. A job that cannot be understood costs itself, in these words (`observation.py`)."""
    found = {port_id(row): row for row in rows}
    for name, row in found.items():
        try:
            state_machine.judge(row, memo or Memo(name), FACTS, OPTIONS, NOW_S, lambda: False)
        except (ValueError, ArithmeticError, RecursionError) as error:
            str(error)
    holdings.nodes_of(list(nodes), found, frozenset(found), FACTS)


# --- the commands ---


def _squeue(raw: bytes) -> None:
    odd: list[str] = []
    judged(job_rows_of(raw.decode("utf-8", "replace"), PLAIN, {}, odd).values())


def _sinfo(raw: bytes) -> None:
    judged((), node_rows_of(raw.decode("utf-8", "replace")))


def _config(raw: bytes) -> object:
    return CommandClient(Answering(raw.decode("utf-8", "replace"))).facts().release


class Answering(Boundary):
    """Whatever scontrol is asked, it says this."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def scontrol(self, line: str) -> Completed:
        return Completed(0, self._text, "", 0.0)


def _split(raw: bytes) -> object:
    (row,) = job_rows_of(SPLIT_ROW, PLAIN, {}, []).values()
    return split_of(raw.decode("utf-8", "replace"), row)


def _row(words: dict[str, str]) -> str:
    heading = PLAIN.field.join(JOB_FIELDS) + PLAIN.record + "\n"
    return heading + PLAIN.field.join(words[name] for name in JOB_FIELDS) + PLAIN.record + "\n"


SPLIT_ROW = _row(running(7, "n[1-2]", **{"tres-per-node": "", "tres-per-job": "gres:gpu:3", "NumNodes": "2"}))
SPLIT = (
    b"JobId=7 JobName=x\n   Nodes=n1 CPU_IDs=0-1 Mem=0 GRES=gpu:v100:2(IDX:0-1)\n"
    b"   Nodes=n2 CPU_IDs=0 Mem=0 GRES=gpu:1\n"
)
TOPOLOGY = b"SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[1-2]\nSwitchName=s2 Level=1 LinkSpeed=1 Nodes=n[1-4]\n"
PARTITION = b"PartitionName=dl\n   AllowGroups=ALL JobDefaults=DefCpuPerGPU=4\n"

# --- slurmrestd, pyslurm ---


def _rest(what: str) -> Callable[[bytes], None]:
    headers = {"content-type": "application/json"}

    def read(raw: bytes) -> None:
        client = rest(lambda request: httpx.Response(200, content=raw, headers=headers))
        if what == "jobs":
            judged(client.jobs(["dl"]))
        elif what == "nodes":
            judged((), client.nodes(["dl"]))
        else:
            client.cancel(["1", "2"], "ending them")

    return read


class Answered(Boundary):
    """Where the child with pyslurm answers this to whatever it is asked."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def open(self, argv: Sequence[str]) -> Conversation:
        return Child(self._text)


def _pyslurm(what: str) -> Callable[[bytes], None]:
    def read(raw: bytes) -> None:
        client = PyslurmClient(Answered(raw.decode("utf-8", "replace") + "\n"), "python", timeout_s=0.2)
        if what == "jobs":
            judged(client.jobs(["dl"]))
        else:
            judged((), client.nodes(["dl"]))

    return read


PY_JOB = dict.fromkeys(JOB_NAMES) | {
    "id": 1, "state": "RUNNING", "state_reason": "None", "allocated_nodes": "n[1-2]", "gres_per_node": {"gres/gpu": 2},
    "num_nodes": 2, "cpus": 2, "memory": 100, "user_name": "ann", "user_id": 1000, "partition": "dl", "time_limit": 60,
    "start_time": 5, "end_time": 9, "exit_code": 0, "exit_code_signal": 0, "dependencies": {"afterok": [1, 2]},
    "comment": "horae:min=1,max=8", "admin_comment": "horae=n1,gpus=4", "array_id": 1, "array_tasks_waiting": "1,3-4",
}  # fmt: skip
PY_NODE = ["n1", {"gpu:v100": 4}, {"gpu": 2}, "MIXED+DRAIN", 16, 14, 1000, 500, ["v100"], ["dl"], "26.05.5"]
assert len(PY_NODE) == len(NODE_NAMES)


def _reply(rows: list[object]) -> bytes:
    return json.dumps({"id": 1, "ok": rows}).encode()


# --- what users write ---


def _word(raw: bytes) -> None:
    text = raw.decode("utf-8", "surrogateescape")
    tag = parse_tag(text)
    assert tag is None or tag.nonce.isalnum()
    judged(job_rows_of(_row(job(1, Comment=text.replace("\x1e", "").replace("\x1f", ""))), PLAIN, {}, []).values())
    parse_word(text)


def _spool(name: str) -> Callable[[bytes], None]:
    def read(raw: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            spool = Spool(LocalFiles(), folder)
            spool.prepare()
            home = Path(folder, "jobs", "1.n1")
            entry = home / "ckpt" / checkpoints.name_of(10, 2)
            entry.mkdir(parents=True)
            if name != "slurm.exec":
                (home / "slurm.exec").write_text(json.dumps({"epoch": 2, "checkpoint": str(home / "ckpt")}))
            ((entry if name == checkpoints.MANIFEST else home) / name).write_bytes(raw)
            account = spool.account("1.n1", os.getuid())
            assert account.epoch >= 0
            spool.newest_checkpoint("1.n1", os.getuid())
            assert all(text.isprintable() for text in spool.odd.values())

    return read


def _claim(raw: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "claim").write_bytes(raw)
        Spool(LocalFiles(), folder).claimed()


STATE = {
    "epoch": 2, "state": "stopped", "pid": 7, "allocation": {"n1": 2}, "slots": 2, "since_s": 1.0, "exit_code": 86,
    "checkpoint": {"epoch": 2, "step": 10, "time_s": 5.0}, "failures": 0, "ran_s": 5.0, "dropped_bytes": 0,
}  # fmt: skip

# --- the adapter's own memory ---

ROW = _row(running(1))


def _memories(raw: bytes) -> None:
    """A line that is no memo is left out with a note, and what is taken can be used."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "memos").write_bytes(raw)
        memories = Memories(Path(folder))
        for memo in memories.all():
            judged(job_rows_of(ROW, PLAIN, {}, []).values(), memo=memo)
            memories.put(memo)
        memories.put(Memo("9", released=True))


def _memo_lines() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        memories = Memories(Path(folder))
        grant = Grant(1, 0, ("n1", "n2"), 2, 5.0, started=True, began_s=6.0)
        memories.put(Memo("1.n1", (grant,), Stop(7.0, 30.0, 0), limits=(60.0, None), blocked=("resources", "x")))
        memories.put(Memo("2.n2", (grant, Grant(2, 1, ("n1",), 1, 9.0)), left=(("n1",), 4.0), limit_s=60.0))
        memories.forget("2.n2")
        return Path(folder, "memos").read_bytes()


def _options(raw: bytes) -> object:
    value = json.loads(raw)
    return parse_options(value) if isinstance(value, dict) else None


MEMOS = _memo_lines()
SQUEUE = [whole(RECORDED / release / "squeue.txt", JOB_FIELDS).encode() for release in ("22.05", "26.05")]
SINFO = [whole(RECORDED / "24.11" / "sinfo.txt", NODE_FIELDS).encode()]
SACCT = (
    b"1|COMPLETED|0:0|10|17|horae=n1,gpus=1\n2|CANCELLED by 0|0:15|11|18|\n3_4|OUT_OF_MEMORY|0:125|12|Unknown|seen\n"
)
MARKS = [
    b"\x1f",
    b"\x1e\n",
    b"n[1-99999]",
    b"n[1-9]x[1-9]",
    b"gpu:v100:4(S:0-1)",
    b"horae:",
    b"horae=n1,gpus=4",
    b"(null)",
]
STATUS = {"status": [{"error": {"code": 2017, "message": "x"}, "job_id": 1, "step_id": "1"}], "errors": []}

TARGETS = [
    Target("squeue", _squeue, (PortError,), [*SQUEUE, SPLIT_ROW.encode()], MARKS, COUNT),
    Target("sinfo", _sinfo, (PortError,), SINFO, MARKS, COUNT),
    Target("sacct", lambda raw: ends_of(raw.decode("utf-8", "replace")), (), [SACCT], MARKS, COUNT),
    Target("scontrol-config", _config, (PortError,),
           [(RECORDED / "24.11" / "config.txt").read_bytes(), (RECORDED / "22.05" / "config.txt").read_bytes()],
           [TOPOLOGY, PARTITION, b"RequeueExitHold = 1-99999999999", b"MinJobAge =\n", b"SLURM_VERSION = x\n"], COUNT,
           known=[b"SLURM_VERSION = 24.11.5\nMinJobAge = \nKillWait =\n", b"SLURM_VERSION = ", b"SLURM_VERSION = 24"]),
    Target("scontrol-topology", _config, (PortError,), [b"SLURM_VERSION = 24.11.5\n" + TOPOLOGY + PARTITION], MARKS,
           COUNT),
    Target("scontrol-split", _split, (), [SPLIT], MARKS, COUNT),
    Target("slurmrestd-jobs", _rest("jobs"), (PortError,), [json.dumps(REST["jobs"]).encode()], count=COUNT),
    Target("slurmrestd-nodes", _rest("nodes"), (PortError,), [json.dumps(REST["nodes"]).encode()], count=COUNT),
    Target("slurmrestd-status", _rest("status"), (PortError,), [json.dumps({**STATUS, "status": []}).encode()],
           [json.dumps(STATUS).encode()], COUNT,
           known=[json.dumps({"errors": [word]}).encode() for word in ("x", None)]),
    Target("pyslurm-jobs", _pyslurm("jobs"), (PortError,), [_reply([list(PY_JOB.values())])], count=COUNT),
    Target("pyslurm-nodes", _pyslurm("nodes"), (PortError,), [_reply([PY_NODE])], count=COUNT),
    Target("comment", _word, (BadInput,),
           [b"horae:min=1,max=8,app=s,key=r,types=v100/a100,iters=4000,grace=90,ckpt=/scratch/me",
            b"x horae=6f1c,gpus=4,nodes=2,types=v100,cpus=16,mem=64000,shape=own,per=2,fixed=1,features=ib/nvme",
            b"horae:allowed=1/2/4"], MARKS),
    Target("spool-state", _spool("state.json"), (), [json.dumps(STATE).encode()], count=COUNT),
    Target("spool-exec", _spool("slurm.exec"), (), [b'{"epoch": 2, "direct": true, "checkpoint": "/tmp"}'],
           count=COUNT),
    Target("spool-manifest", _spool(checkpoints.MANIFEST), (),
           [json.dumps({"format": 1, "files": {"a": {"size": 1, "blake2b": "x"}}, "check": "0"}).encode()],
           count=COUNT),
    Target("spool-claim", _claim, (), [b'{"token": "me", "host": "h", "pid": 1, "time_s": 1.0}'], count=COUNT),
    Target("memories", _memories, (PortError,), [MEMOS, MEMOS.splitlines(keepends=True)[0]], count=2 * COUNT,
           known=[MEMOS.replace(b"9.0", b'"x"'), MEMOS.replace(b"0.0", b"[]"), b"[" * 100_000 + b"\n"]),
    Target("slurm-options", _options, (BadInput, ValueError, RecursionError),
           [json.dumps({"partitions": ["dl"], "spool": "/s", "client": "command", "env": {"A": "b"}, "timeout_s": 30.0,
                        "hold": True, "ssh": "a@b:22", "rest_url": "http://h:1"}).encode()], count=COUNT),
]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_whatever_the_input_it_is_read_or_refused(target: Target) -> None:
    attack(target)


@pytest.mark.soak
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_for_as_long_as_it_is_let(target: Target) -> None:
    attack(target, soak=True)
