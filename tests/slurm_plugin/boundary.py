"""Slurm's commands as processes: a small model behind squeue, sinfo, scontrol and sacct, whose answers can be spoilt.

What it prints has the form that the real ones print (recorded answers and a real 22.05 say the same); what it does
with an answer before anybody reads it is up to `spoil`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from horae.port import TryLater
from slurm_plugin.clients.command_reading import JOB_FIELDS
from slurm_plugin.files.transport import Completed, Conversation, Files, LocalFiles

#: squeue's words for a job of one GPU that waits, held by the module
JOB = dict.fromkeys(JOB_FIELDS, "") | {
    "State": "PENDING", "Reason": "JobHeldUser", "RestartCnt": "0", "PriorityLong": "0", "tres-per-node": "gres:gpu:1",
    "NumNodes": "1", "NumCPUs": "1", "tres-alloc": "cpu=1,mem=100M,node=1", "UserName": "ann", "UserID": "1000",
    "Account": "lab", "Partition": "dl", "Name": "train", "WorkDir": "/home/ann", "STDOUT": "/home/ann/out",
    "SubmitTime": "1700000000", "TimeLimit": "1:00:00", "TimeLeft": "1:00:00", "exit_code": "0",
}  # fmt: skip
_NODES = (
    "NODELIST\x1fGRES\x1fGRES_USED\x1fSTATE\x1fSTATECOMPLETE\x1fCPUS(A/I/O/T)\x1fMEMORY\x1fALLOCMEM\x1fACTIVE_FEATURES"
    "\x1fAVAIL\x1fVERSION\x1e\n"
)
_CONFIG = (
    "Configuration data as of 1700000000\nClusterName = lab\nSLURM_VERSION = 24.11.5\nMinJobAge = 300 sec\n"
    "KillWait = 30 sec\nRequeueExitHold = 86\nSlurmUser = slurm(64030)\nPrivateData = {private}\n"
    "AccountingStorageType = accounting_storage/slurmdbd\n"
)
NO_JOB = "slurm_load_jobs error: Invalid job id specified\n"

Spoil = Callable[[str, Completed], Completed]


def job(number: int, **changes: str) -> dict[str, str]:
    words = {"JobArrayID": str(number), "JobID": str(number), "admin_comment": f"horae=n{number},gpus=1,nodes=1"}
    return {**JOB, **words, **changes}


def running(number: int, node: str = "n1", **changes: str) -> dict[str, str]:
    words = {"State": "RUNNING", "Reason": "None", "NodeList": node, "StartTime": "1700000100"}
    return job(number, **words, **changes)


@dataclass
class Boundary:
    """A `Transport`. `spoil` gets the command's name and what it would have answered."""

    jobs: dict[str, dict[str, str]] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)  #: slurmdbd's lines by job
    spoil: Spoil = lambda command, answer: answer
    private: str = "none"
    reservations: str = ""
    dependencies: tuple[str, ...] = ()
    ran: list[Sequence[str]] = field(default_factory=list)
    where: str = "a model"
    files: Files = field(default_factory=LocalFiles)

    def run(
        self,
        argv: Sequence[str],
        timeout_s: float = 30.0,
        stdin: str | None = None,
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> Completed:
        self.ran.append(argv)
        answers: dict[str, Callable[[], str]] = {
            "squeue": lambda: self.waits_for() if "%E" in argv else self._squeue(env["SQUEUE_FORMAT2"], argv),
            "sinfo": self._sinfo,
            "sacct": lambda: "".join(self.ended.get(each, "") for each in argv[argv.index("-j") + 1].split(",")),
            "sacctmgr": lambda: "",
            "id": lambda: "horae\n",
            "scancel": lambda: "",
            "timeout": lambda: "",
        }
        return self.spoil(argv[0], Completed(0, answers[argv[0]](), "", 0.0))

    def open(self, argv: Sequence[str]) -> Conversation:
        return Talk(self)

    def close(self) -> None:
        """Nothing is open."""

    def waits_for(self) -> str:
        """Of jobs in all partitions."""
        return "".join(f"{each}\n" for each in ("(null)", *self.dependencies))

    def _squeue(self, format_: str, argv: Sequence[str] = ()) -> str:
        words = dict(each.split(":", 1) for each in format_.split(","))
        wanted = argv[argv.index("-j") + 1].split(",") if "-j" in argv else list(self.jobs)
        heading = "".join(name.upper() + mark for name, mark in words.items())
        rows = [
            "".join(each[name] + mark for name, mark in words.items()) for at, each in self.jobs.items() if at in wanted
        ]
        return "".join(line + "\n" for line in (heading, *rows))

    def _sinfo(self) -> str:
        node = "\x1fgpu:v100:4\x1fgpu:v100:0\x1fidle\x1fidle\x1f0/16/0/16\x1f64000\x1f0\x1fv100\x1fup\x1f24.11.5\x1e\n"
        return _NODES + "".join(f"n{at}{node}" for at in (1, 2))

    def scontrol(self, line: str) -> Completed:
        """One command of the open scontrol."""
        if found := re.fullmatch(r"show job (\S+)", line):
            known = self.jobs.get(found[1])
            if known is None:
                return Completed(1, "", NO_JOB, 0.0)
            return Completed(0, shown(known), "", 0.0)
        answers = {
            "show config": _CONFIG.format(private=self.private),
            "show partition": "PartitionName=dl\n",
            "show topology": "",
            "show reservation": self.reservations,
        }
        if line.startswith("show assoc_mgr"):
            return Completed(0, "UserName=horae(2000) DefAccount=lab AdminLevel=Operator\n", "", 0.0)
        return Completed(0, answers.get(line, ""), "", 0.0)


def shown(words: Mapping[str, str]) -> str:
    """What `scontrol show job` prints of it."""
    return (
        f"JobId={words['JobID']} JobName={words['Name']}\n   UserId={words['UserName']}({words['UserID']})\n"
        f"   JobState={words['State']} Reason={words['Reason']}\n   Requeue=1 Restarts={words['RestartCnt']}\n"
        f"   SubmitTime={words['SubmitTime']}\n   Partition={words['Partition']}\n"
        f"   Comment={words['Comment']}\n   AdminComment={words['admin_comment']}\n"
    )


class Talk:
    """The open scontrol: what it does not know it says on its error output."""

    def __init__(self, slurm: Boundary) -> None:
        self._slurm, self._out, self._err = slurm, "", ""
        self._dead = False

    def send(self, text: str) -> None:
        for line in text.splitlines():
            if self._dead:
                return
            if line.startswith("show hostnames "):
                self._out += line.removeprefix("show hostnames ") + "\n"
            elif line.startswith("horaemark"):
                self._err += f"invalid keyword: {line}\n"
            else:
                done = self._slurm.spoil("scontrol " + line, self._slurm.scontrol(line))
                self._out, self._err = self._out + done.out, self._err + done.err
                self._dead = not done.out.endswith("\n") and bool(done.out)  # in the middle of a line: it broke

    def receive(self, timeout_s: float) -> tuple[str, str]:
        said = self._out, self._err
        if self._dead and said == ("", ""):
            raise TryLater("scontrol has ended")
        self._out = self._err = ""
        return said

    def close(self) -> None:
        """It ends with us."""


def cut(at: int) -> Callable[[Completed], Completed]:
    """The answer's first `at` characters, and all is said to be well."""
    return lambda answer: replace(answer, out=answer.out[:at])
