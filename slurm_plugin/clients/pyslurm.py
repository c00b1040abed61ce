"""pyslurm in a child process of its own (`pyslurm_child.py`), by one line a request and one a reply.

The child runs wherever the commands run (here, behind the prefix, over SSH), under the Python named by the option
`pyslurm`, which must have a pyslurm built for that host's libslurm. A child that dies, hangs or cannot start is a
client that is away: the next one does its part, and a new child is tried later.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from horae.port import FixConfiguration, PortError
from slurm_plugin.clients import versions
from slurm_plugin.clients.base import CannotSay, ClientAway, Kept, OneByOne, Operation
from slurm_plugin.clients.pace import Pace
from slurm_plugin.clients.rest_reading import known_uid, task_numbers, whole
from slurm_plugin.errors import Gone, is_refusal, port_error
from slurm_plugin.files.transport import Conversation, Transport
from slurm_plugin.records import BadRecord, End, Facts, JobRow, NodeRow, expand, gpu_count, gpus
from slurm_plugin.writes import Change, Write

START_S = 90.0  #: libslurm itself waits a minute for a slurm.conf that is not there
_UNCOUNTED = "pyslurm sees no GPUs in use without AccountingStorageTRES=gres/gpu"
_GONE = frozenset({2017, 2021})
JOB_NAMES = tuple(
    """id array_id array_task_id array_tasks_waiting state state_reason requeue_count priority allocated_nodes
    gres_per_node gpus num_nodes cpus memory comment admin_comment user_name user_id account qos partition name
    working_directory command standard_output dependencies submit_time eligible_time start_time end_time preempt_time
    time_limit exit_code exit_code_signal is_requeueable""".split()
)
NODE_NAMES = tuple(
    """name configured_gres allocated_gres state total_cpus idle_cpus real_memory allocated_memory active_features
    partitions slurm_version""".split()
)

#: Runs the child's source without the folder that we are in among its modules'. Not by `-P`: its Python may be older.
_APART = "import sys; sys.path[:] = [folder for folder in sys.path if folder]; exec(sys.argv[1])"


class PyslurmClient(OneByOne):
    name = "pyslurm"

    def __init__(
        self,
        transport: Transport,
        python: str,
        timeout_s: float = 30.0,
        pace: Pace | None = None,
        counted: Callable[[], bool] = lambda: True,
    ) -> None:
        """`counted`: whether slurmctld counts GPUs as trackable resources, the only place where pyslurm sees them."""
        self._transport, self._python, self._timeout_s = transport, python, timeout_s
        self._counted, self._uncounted = counted, False
        self._pace = pace or Pace()
        self._child: Conversation | None = None
        self._version = ""
        self._asked = 0
        self._rest = ""  #: what came after the last whole line
        self._lock = threading.Lock()
        self._kept = Kept()
        self.odd: list[str] = []

    # --- what it can ---

    def lacks(self, operation: Operation) -> str:
        if operation is Operation.NODES and self._uncounted:
            return _UNCOUNTED
        return versions.PYSLURM_LACKS.get(operation, "")

    def fits(self, write: Write) -> bool:
        change = write.change or Change()
        return write.job.isdigit() and change.mail is None and change.partitions is None

    def describe(self) -> str:
        with self._lock:
            self._started()
        return f"pyslurm {self._version} by {self._python} on {self._transport.where}"

    # --- reads ---

    def jobs(self, partitions: Sequence[str]) -> list[JobRow]:
        found = self._listed("reading the jobs", 1, op="jobs", names=JOB_NAMES)
        wanted = frozenset(partitions)
        rows = list[JobRow]()
        for values in found:
            try:
                job = dict(zip(JOB_NAMES, values, strict=True))
                if not wanted or wanted & set(str(job["partition"] or "").split(",")):
                    rows += _rows(job, time.time())
            except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
                self.odd.append(f"pyslurm: a job was set aside: {type(error).__name__}: {str(error)[:80]}")
        return self._kept.again(rows)

    def nodes(self, partitions: Sequence[str]) -> list[NodeRow]:
        if not self._counted():
            self._uncounted = True
            raise CannotSay(_UNCOUNTED)
        found = self._listed("reading the nodes", 2, op="nodes", names=NODE_NAMES)
        wanted = frozenset(partitions)
        rows = []
        for values in found:
            try:
                node = dict(zip(NODE_NAMES, values, strict=True))
                if not wanted or wanted & set(node["partitions"] or ()):
                    rows.append(node_row(node))
            except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
                raise ClientAway(f"reading the nodes: pyslurm tells one in words unknown here: {error!r}") from error
        return rows

    def facts(self) -> Facts:
        raise FixConfiguration(versions.PYSLURM_LACKS[Operation.FACTS], "let the command line do it")

    def ended(self, ids: Sequence[str]) -> Mapping[str, End]:
        raise FixConfiguration(versions.PYSLURM_LACKS[Operation.ENDED], "let the command line do it")

    def those(self, ids: Sequence[str]) -> Mapping[str, JobRow]:
        raise FixConfiguration(versions.PYSLURM_LACKS[Operation.FACTS], "let the command line do it")

    def standing(self, ids: Sequence[str]) -> Mapping[str, str]:
        raise FixConfiguration(versions.PYSLURM_LACKS[Operation.FACTS], "let the command line do it")

    # --- writes ---

    def _write(self, write: Write, doing: str) -> None:
        self._ask(doing, 1, op="write", job=int(write.job), verb=write.verb.value)

    def signal(self, ids: Sequence[str], name: str, doing: str) -> dict[str, PortError]:
        if not all(each.isdigit() for each in ids):
            raise CannotSay("pyslurm signals no task of an array by its name")
        errors: dict[str, PortError] = {}
        for each in ids:
            try:
                self._ask(doing, 1, op="signal", job=int(each), signal=name)
            except ClientAway:
                raise
            except PortError as error:
                errors[each] = error
        return errors

    def cancel(self, ids: Sequence[str], doing: str) -> dict[str, PortError]:
        if not all(each.isdigit() for each in ids):
            raise CannotSay("pyslurm ends no task of an array by its name")
        self._ask(doing, len(ids), op="cancel", jobs=[int(each) for each in ids])
        return {}

    def close(self) -> None:
        with self._lock:
            self._end()

    # --- how ---

    def _ask(self, doing: str, cost: int, **request: Any) -> Any:
        self._pace.spend(cost)
        with self._lock:
            self._started()
            self._asked += 1
            reply = self._reply({"id": self._asked, **request}, request["op"] not in {"jobs", "nodes"})
        if "error" not in reply:
            return reply.get("ok")
        number = reply.get("number")
        if isinstance(number, int) and number in _GONE:
            if request["op"] in {"signal", "cancel"}:
                return None  # it ended meanwhile: the next observation tells
            raise Gone(f"{doing}: {reply['error']}")
        if is_refusal(str(reply["error"])):
            raise port_error(str(reply["error"]), doing)
        return None

    def _listed(self, doing: str, cost: int, **request: Any) -> list[Any]:
        found = self._ask(doing, cost, **request)
        if not isinstance(found, list):
            raise ClientAway(f"{doing}: the child with pyslurm answered without any list")
        return found

    def _started(self) -> None:
        if self._child is not None:
            return
        source = files(__package__).joinpath("pyslurm_child.py").read_text()
        try:
            self._child = self._transport.open([self._python, "-u", "-c", _APART, source])
            self._rest = ""
            first = self._line(START_S, 0)
        except PortError as error:
            self._end()
            raise ClientAway(f"no child with pyslurm by {self._python}: {error.text}") from error
        if "ok" not in first:
            self._end()
            raise ClientAway(f"no pyslurm in {self._python}: {first.get('error')}")
        self._version = str(first["ok"])

    def _reply(self, request: Mapping[str, Any], changes: bool) -> dict[str, Any]:
        child = self._child
        assert child is not None
        try:
            child.send(json.dumps(request) + "\n")
            return self._line(self._timeout_s, request["id"])
        except PortError as error:
            self._end()
            raise ClientAway(f"the child with pyslurm: {error.text}", unknown=changes) from error

    def _line(self, timeout_s: float, number: int) -> dict[str, Any]:
        """The reply with that number. Raises a PortError when it does not come, or is none."""
        child = self._child
        assert child is not None
        deadline, said = time.monotonic() + timeout_s, ""
        while "\n" not in self._rest:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise ClientAway(f"no answer for {timeout_s:.0f} s {said.strip()[-200:]}".strip())
            out, err = child.receive(left_s)
            self._rest, said = self._rest + out, said + err
        line, _, self._rest = self._rest.partition("\n")
        try:
            reply = json.loads(line)
        except (ValueError, RecursionError):
            reply = None
        if not isinstance(reply, dict) or reply.get("id") != number:
            raise ClientAway(f"not an answer: {line[:100]!r}")
        return reply

    def _end(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None


def _rows(job: Mapping[str, Any], now_s: float) -> list[JobRow]:
    number, array, task = whole(job["id"]), job["array_id"], job["array_task_id"]
    if array and job["array_tasks_waiting"]:
        return [job_row(job, f"{array}_{each}", number, now_s) for each in task_numbers(job["array_tasks_waiting"])]
    return [job_row(job, f"{array}_{task}" if array and task is not None else str(number), number, now_s)]


def job_row(job: Mapping[str, Any], name: str, number: int, now_s: float) -> JobRow:
    limit_s = whole(job["time_limit"]) * 60.0 if isinstance(job["time_limit"], int) else None
    nodes = expand(job["allocated_nodes"])
    reason = job["state_reason"]
    ended = job["state"] not in {"PENDING", "RUNNING", "CONFIGURING", "SUSPENDED", "SPECIAL_EXIT", "REQUEUE_HOLD"}
    end_s = _time(job["end_time"]) if ended or limit_s is not None else None
    return JobRow(
        id=name,
        slurm_id=number,
        state=str(job["state"]),
        reason=None if reason in {None, "None"} else str(reason),
        restarts=whole(job["requeue_count"]),
        priority=whole(job["priority"]),
        nodes=nodes,
        gpus_per_node=_gpus(job["gres_per_node"]),
        gpus_total=None,
        num_nodes=whole(job["num_nodes"] or 1),
        num_cpus=whole(job["cpus"] or 1),
        alloc_memory=whole(job["memory"]) << 20 if nodes and job["memory"] else None,
        comment=_said(job["comment"]),
        admin_comment=_said(job["admin_comment"]),
        user=_said(job["user_name"]),
        uid=known_uid(job["user_id"]),
        account=_text(job["account"]),
        qos=_text(job["qos"]),
        partition=_said(job["partition"]),
        name=_said(job["name"]),
        cwd=_said(job["working_directory"]),
        command=_text(job["command"]),
        stdout=_text(job["standard_output"]),
        dependency=_dependency(job["dependencies"]),
        submit_s=_time(job["submit_time"]),
        eligible_s=_time(job["eligible_time"]),
        start_s=_time(job["start_time"]),
        end_s=end_s,
        preempt_s=_time(job["preempt_time"]),
        limit_s=limit_s,
        left_s=max(end_s - now_s, 0.0) if job["state"] == "RUNNING" and end_s else limit_s,
        exit_status=(whole(job["exit_code"]) << 8) | whole(job["exit_code_signal"]),
        requeue=job["is_requeueable"] is not False,
    )


def node_row(node: Mapping[str, Any]) -> NodeRow:
    return NodeRow(
        name=str(node["name"]),
        gpu_types=gpus(_gres(node["configured_gres"])),
        used=_gpus({"gpu": (node["allocated_gres"] or {}).get("gpu", 0)}) or 0,
        state=str(node["state"]).lower(),
        cpus_idle=whole(node["idle_cpus"]),
        cpus_total=whole(node["total_cpus"]),
        memory=whole(node["real_memory"]) << 20,
        memory_used=whole(node["allocated_memory"]) << 20,
        features=tuple(map(str, node["active_features"] or ("",))),
        registered=node["slurm_version"] is not None,
    )


def _gres(named: Any) -> str:
    """{"gpu:v100": 4} -> gpu:v100:4."""
    return ",".join(f"{name}:{count}" for name, count in named.items()) if isinstance(named, dict) else ""


def _gpus(named: Any) -> int | None:
    return gpu_count(_gres(named))


def _dependency(found: Any) -> str | None:
    """{"afterok": [1, 2]} -> afterok:1:2, as squeue would say it without its remarks."""
    if not isinstance(found, dict):
        return str(found) if found else None
    kinds = ((kind, ids) for kind, ids in found.items() if isinstance(ids, list) and ids)
    return ",".join(f"{kind}:{':'.join(map(str, ids))}" for kind, ids in kinds) or None


def _said(raw: Any) -> str:
    return _text(raw) or ""


def _text(value: Any) -> str | None:
    """Raises BadRecord: what is no text would be taken for one until somebody reads it."""
    if value is not None and not isinstance(value, str):
        raise BadRecord(f"{str(value)[:40]!r} stands where a text should")
    return value


def _time(value: Any) -> float | None:
    return float(whole(value)) if isinstance(value, int) and value else None
