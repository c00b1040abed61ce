"""What a user asks for: the specification of one job, the same in every interface and on every cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from policy.model import EMPTY, Bytes, GpuRange, Gpus, GpuType, IterationsPerSecond, Seconds, Shape, TypeChoice

#: in `JobSpec.extra`: a mark of a job whose command does not say all that it runs, so that it shares no profile unasked
OWN_PROFILE = "own_profile"
#: and why a job that its user made elastic is not elastic as things are, and what would change that
STAYS, ENDS_STAY = "stays", "ends_stay"
#: Programs and modules that start the ranks of a gang.
_LAUNCHERS = ("mpirun", "mpiexec", "torchrun", "accelerate", "deepspeed", "horovodrun")
_LAUNCHER_MODULES = ("torch.distributed.run", "torch.distributed.launch")
#: Programs that only start another one.
_STARTERS = re.compile(
    r"python[\d.]*|pypy\d?|bash|sh|env|exec|nice|numactl|srun|horae-exec|time|uv|poetry|conda|apptainer|singularity|"
    + "|".join(_LAUNCHERS)
)
_STARTER_WORDS = {"run", "launch", "exec", "-u", "-m", "-O", "--", *_LAUNCHER_MODULES}


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One gang of workers. `command` is run once a worker (one worker a GPU) under `horae-exec`.

    `workers` says otherwise, of a rigid job: so many, who share `gpus` evenly, each on a node of its own. With no GPU
    at all nothing is decided about it: the cluster itself runs it as soon as it is handed in.

    A job is elastic when it can be stopped and resumed (`checkpoint` is not None) and its range allows more
    than one size. `elastic` False: started once at its requested size, never stopped by us.
    """

    name: str
    command: tuple[str, ...]
    gpus: GpuRange
    owner: str = ""  #: the operating-system user on whose behalf it runs; set by the API from the caller
    tenant: str = ""  #: default: the owner
    app: str = ""  #: default: an app of its own
    cwd: str = ""
    env: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    typed: str | None = None  #: its owner's file with the environment, umask and limits of where it was handed in
    elastic: bool = True
    checkpoint: str | None = None  #: folder or URL of its checkpoints; None: cannot be resumed
    gpu_types: tuple[GpuType, ...] = ()  #: types it may run on; empty: any
    prefer_types: tuple[GpuType, ...] = ()  #: where there is room on these, before others
    forbid_types: tuple[GpuType, ...] = ()  #: types it never runs on
    cpus_per_gpu: float | None = None
    memory_per_gpu: Bytes | None = None
    model: str | None = None  #: key under which profiles are shared
    iterations: float | None = None  #: total work, if the user knows it
    throughput: Mapping[GpuType, Mapping[int, IterationsPerSecond]] = field(default_factory=lambda: EMPTY)
    grace_s: Seconds = 60.0  #: how long it may take to checkpoint and leave
    time_limit_s: Seconds | None = None  #: running time over all its starts
    workers: int | None = None  #: None: as many as GPUs
    retries: int = 3  #: failures (not resizes) after which it is failed for good
    shape: Shape | None = None  #: what a rigid job keeps of its own request on the cluster; None: only its count
    extra: Mapping[str, str] = field(default_factory=lambda: EMPTY)  #: adapter's own options, e.g. sbatch's
    priority: int = 0  #: among the jobs of its tenant, when it was handed in; higher stands earlier in line

    @property
    def without_gpus(self) -> bool:
        return self.gpus.max == 0

    @property
    def gpus_a_worker(self) -> Gpus:
        return 1 if self.workers is None else self.gpus.requested // self.workers

    @property
    def type_choice(self) -> TypeChoice | None:
        """Its user's word on GPU types; None: any will do."""
        if not (self.gpu_types or self.prefer_types or self.forbid_types):
            return None
        return TypeChoice(self.gpu_types, self.prefer_types, self.forbid_types)

    def runs_on(self, gpu_type: GpuType) -> bool:
        choice = self.type_choice
        return choice is None or choice.allows(gpu_type)


def program_of(command: Sequence[str]) -> tuple[str, list[str]]:
    """The file name of what is run, without what starts it (an interpreter, a launcher), and its arguments."""
    _, words = _parted(command)
    if not words:
        return PurePosixPath(command[0]).name if command else "nothing", []
    return PurePosixPath(words[0]).name, words[1:]


def launcher_of(command: Sequence[str]) -> str:
    """What of it starts the ranks of a gang by itself, as torchrun does; "": nothing that is known."""
    for word in _parted(command)[0]:
        name = PurePosixPath(word).name
        if name in _LAUNCHERS or word in _LAUNCHER_MODULES:
            return name
    return ""


def _parted(command: Sequence[str]) -> tuple[list[str], list[str]]:
    """(what starts it, without its options; what is run, with its arguments)."""
    starters: list[str] = []
    words, module = list(command), False
    while words and not (module and words[0] not in _STARTER_WORDS):
        word = words[0]
        option = word.startswith("-") and word not in _STARTER_WORDS
        if not option and not _starts(word):
            break
        module = word == "-m"
        words.pop(0)
        if not option:
            starters.append(word)
        elif "=" not in word and words and not words[0].startswith("-") and not _looks_like_script(words[0]):
            words.pop(0)  # the option's value
    return starters, words


def _starts(word: str) -> bool:
    assigns = "=" in word and word.split("=", maxsplit=1)[0].isidentifier()
    return assigns or word in _STARTER_WORDS or _STARTERS.fullmatch(PurePosixPath(word).name) is not None


def _looks_like_script(word: str) -> bool:
    return word.endswith((".py", ".sh")) or _STARTERS.fullmatch(PurePosixPath(word).name) is not None
