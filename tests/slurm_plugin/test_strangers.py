"""Whatever is asked of the adapter, and in whatever order: no command to Slurm names a job that the module did not tag.

Random jobs of the site's users and of ours, random moments of their lives, every verb of the port with anybody's id.
The same under an arbiter, for the pools where it only looks: tests/horae/arbiter/test_hands_off.py.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from horae.port import ClusterPort, PortError
from slurm_plugin.adapter import SlurmCluster
from slurm_plugin.clients.choose import choose
from slurm_plugin.files.transport import Completed
from slurm_plugin.options import Options
from tests.slurm_plugin.boundary import Boundary, job

OURS, THEIRS = range(1, 6), range(11, 18)
#: As a user may write them, where the module's own word would be believed
FORGED = {"Comment": "horae=n{0},gpus=4 horae:min=1,max=8", "Name": "horae=n{0},gpus=4", "Account": "horae=n{0}"}
STATES = (
    "PENDING",
    "RUNNING",
    "COMPLETING",
    "FAILED",
    "COMPLETED",
    "CANCELLED",
    "SPECIAL_EXIT",
    "PREEMPTED",
    "NODE_FAIL",
)
TAGS = (
    "gpus=1,nodes=1",
    "gpus=1,nodes=1,shape=own",
    "gpus=2,nodes=1,shape=own,beside=raw,list=dl/raw",
    "gpus=1,part=dl",
)
#: What stands before the numbers of the jobs that a command is about
_NAMED = re.compile(
    r"(?:^(?:release|hold|requeue|requeuehold|suspend|resume|top|notify)\s+\S*?|\bjobid=)([\d_,\[\]-]+)", re.I
)


@dataclass
class Watched(Boundary):
    """Keeps what it was told to change."""

    changes: list[str] = field(default_factory=list)

    def scontrol(self, line: str) -> Completed:
        if not line.startswith("show "):
            self.changes.append(line)
        found = super().scontrol(line)
        return (
            Completed(0, found.out + "PriorityType = priority/multifactor\n", "", 0.0)
            if line == "show config"
            else found
        )

    def run(
        self,
        argv: Sequence[str],
        timeout_s: float = 30.0,
        stdin: str | None = None,
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> Completed:
        if "scancel" in argv:
            self.changes.append(
                "jobid=" + ",".join(word for word in argv[argv.index("scancel") :] if word[0].isdigit())
            )
            self.ran.append(argv)
            return Completed(0, "", "", 0.0)
        return super().run(argv, timeout_s, stdin, env)

    def named(self) -> Iterator[tuple[int, str]]:
        for line in self.changes:
            numbers = re.findall(r"(?<!_)\b\d+", " ".join(_NAMED.findall(line)))
            assert numbers, f"a command that names nobody: {line}"
            yield from ((int(number), line) for number in numbers)


class World:
    def __init__(self, folder: Path, dice: random.Random) -> None:
        self.dice, self.slurm = dice, Watched()
        options = Options(partitions=("dl",), spool=str(folder / "spool"), state=str(folder / "memory"))
        self.port = SlurmCluster(options, self.slurm, choose(options, self.slurm))
        self.port.claim("us")
        for number in (*OURS, *THEIRS):
            self.slurm.jobs[str(number)] = self.one(number)

    def one(self, number: int) -> dict[str, str]:
        dice, state = self.dice, self.dice.choice((*STATES, "PENDING", "RUNNING", "RUNNING"))
        words = {
            "State": state,
            "Reason": dice.choice(
                ["None", "JobHeldUser", "JobHeldAdmin", "BeginTime", "Resources", "QOSMaxGRESPerUser"]
            ),
            "RestartCnt": str(dice.randrange(3)),
            "PriorityLong": str(dice.choice([0, 0, 1, 4294901759])),
            "Partition": dice.choice(["dl", "dl", "raw", "dl,raw"]),
            "EligibleTime": dice.choice(["", "1700000000", "1731622400", "1900000000"]),
            "PreemptTime": dice.choice(["", "", "1700000500"]),
            "Dependency": dice.choice(["", "", "afterok:1(unfulfilled)"]),
            "exit_code": dice.choice(["0", "86:0", "1:0", "0:9"]),
            "EndTime": dice.choice(["", "1700000900"]),
        }
        if number in OURS:
            words["admin_comment"] = f"site=word horae=n{number},{dice.choice(TAGS)}"
            words["Comment"] = dice.choice(["", "horae:min=1,max=4"])
        else:
            words["admin_comment"] = dice.choice(["", "site=word", "nohorae=n1,gpus=1", "horae-n1,gpus=1"])
            words |= {name: text.format(number) for name, text in FORGED.items() if dice.random() < 0.5}
        if state in {"RUNNING", "COMPLETING"}:
            words |= {"NodeList": dice.choice(["n1", "n2"]), "StartTime": "1700000100"}
        return job(number, **words)

    def moves(self) -> None:
        """Time goes by: jobs of both come, change and go, and some numbers are another's now."""
        for number in (*OURS, *THEIRS):
            if self.dice.random() < 0.4:
                self.slurm.jobs[str(number)] = self.one(number)
            elif self.dice.random() < 0.1:
                self.slurm.jobs.pop(str(number), None)

    def ids(self) -> list[str]:
        """Of anybody's jobs, as they are and as somebody might call them."""
        number = self.dice.choice((*OURS, *THEIRS))
        known = [seen.id for seen in self.port._observer.jobs.values()] + [due.job for due in self.port._shown_due()]
        return self.dice.sample([str(number), f"{number}.n{number}", f"{number}.", *known], 2)

    def does(self) -> None:
        """One verb, or a look with all that it finds to be done, and more."""
        port, dice, ids = self.port, self.dice, self.ids()
        where = {dice.choice(["n1", "n2"]): dice.randrange(1, 5)}
        deeds = [
            lambda: port.start(ids[0], where, dice.randrange(1, 9)),
            lambda: port.start_many([(each, where, dice.randrange(1, 9)) for each in ids]),
            lambda: port.reshape(ids[0], where, dice.randrange(1, 9)),
            lambda: port.checkpoint_and_stop(ids[0], dice.choice([0.0, 60.0])),
            lambda: port.stop_many([(each, 0.0) for each in ids]),
            lambda: port.cancel(ids[0]),
            lambda: port.cancel_many(ids),
            lambda: port.release(ids[0]),
            lambda: port.release_many(ids),
            port.release_rest,
            lambda: port.set_order(ids),
            lambda: port.set_reason(ids[0], "why"),
            lambda: port.follow_up([*ids, *(due.job for due in port.observe().due)]),
            lambda: port.follow_up([due.job for due in port.observe().due]),
            port.heartbeat,
            lambda: port.read_log(ids[0], 0),
        ]
        with suppress(PortError):
            dice.choice(deeds)()


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 32))
@example(seed=0)
def test_no_command_names_a_strangers_job(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    world = World(tmp_path_factory.mktemp("world"), random.Random(seed))
    for _ in range(8):
        world.port.observe()
        for _ in range(4):
            world.does()
        world.moves()
    strangers = {number: line for number, line in world.slurm.named() if number in THEIRS}
    assert strangers == {}


def test_the_commands_of_these_days_are_many(tmp_path: Path) -> None:
    """The test above has something to see: jobs of ours are named, by every kind of command."""
    verbs, numbers = set[str](), set[int]()
    for seed in range(12):
        world = World(tmp_path / str(seed), random.Random(seed))
        for _ in range(8):
            world.port.observe()
            for _ in range(4):
                world.does()
            world.moves()
        verbs |= {line.split()[0] for line in world.slurm.changes}
        verbs |= {argv[0] for argv in world.slurm.ran if "scancel" in argv}
        numbers |= {number for number, _ in world.slurm.named()}
    assert {"update", "release", "hold", "scancel", "timeout"} <= verbs
    assert numbers == set(OURS)


def test_every_verb_of_the_port_is_among_them() -> None:
    """A verb that is added is added here too."""
    verbs = {name for name in vars(ClusterPort) if not name.startswith("_")}
    extra = {name for name in vars(SlurmCluster) if name.endswith("_many") or name in {"follow_up", "release_rest"}}
    source = Path(__file__).read_text()
    looks = {"capabilities", "observe", "close", "submit", "claim"}
    assert {name for name in (verbs | extra) - looks if f"port.{name}" not in source} == set()
