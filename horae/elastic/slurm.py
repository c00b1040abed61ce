"""One start under Slurm: where its job folder is, its epoch, its fresh shape, and how its ranks are launched.

A job's environment is frozen at submission. SLURM_NTASKS, SLURM_GPUS_PER_NODE and their kin keep the first shape's
values over every restart, and srun obeys them; they are dropped here, and the shape is what Slurm renews:
SLURM_JOB_NODELIST, SLURM_GPUS_ON_NODE, CUDA_VISIBLE_DEVICES.

On one node the ranks are children of the supervisor; on several, srun starts one task a GPU (`slurm_launch`).
"""

import json
import os
import socket
import subprocess
import sys
from typing import Any, Dict, List, Mapping, Optional, Sequence

from . import protocol, shape
from .files import read_bytes, write_atomic
from .gang import Member
from .jobfolder import JobFolder

#: Frozen at submission, wrong after the first reshape.
STALE = (
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_TASKS_PER_NODE",
    "SLURM_GPUS",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_TASK",
    "SLURM_GPUS_PER_SOCKET",
    "SLURM_CPUS_PER_TASK",
    "SLURM_CPUS_PER_GPU",
    "SLURM_TRES_PER_TASK",
    "SLURM_MEM_PER_NODE",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_GPU",
)
EPOCH_FILE = "slurm.json"  #: adapter: which epoch belongs to which restart count
EXEC_FILE = "slurm.exec"  #: supervisor: it lives, and whether Slurm's signal to the batch shell reaches it


class NotSlurm(Exception):
    """This process is not the batch script of a Slurm job, or not of one with GPUs."""


class Place:
    """What Slurm says about this start."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.job_id = env.get("SLURM_JOB_ID", "")
        if not self.job_id:
            raise NotSlurm("there is no SLURM_JOB_ID: `horae-exec -- COMMAND` is for sbatch scripts")
        self.restarts = _number(env.get("SLURM_RESTART_COUNT"), 0)
        self.nodes = hostnames(env.get("SLURM_JOB_NODELIST", ""))
        self.gpus = _number(env.get("SLURM_GPUS_ON_NODE"), 0)
        visible = env.get("CUDA_VISIBLE_DEVICES") or env.get("SLURM_JOB_GPUS") or ""
        self.devices = [item for item in visible.split(",") if item and not item.startswith("NoDev")]
        if self.gpus < 1 or not self.nodes:
            raise NotSlurm("Slurm gave this job no GPUs (SLURM_GPUS_ON_NODE is not set)")
        task = env.get("SLURM_ARRAY_TASK_ID")
        self.name = "%s_%s" % (env["SLURM_ARRAY_JOB_ID"], task) if task else self.job_id

    @property
    def allocation(self) -> Dict[str, int]:
        return dict.fromkeys(self.nodes, self.gpus)

    @property
    def world(self) -> int:
        return self.gpus * len(self.nodes)


def hostnames(nodelist: str) -> List[str]:
    """`n[1-2]` -> names, by Slurm's own expansion; a plain name needs none."""
    if not nodelist:
        return []
    if "[" not in nodelist and "," not in nodelist:
        return [nodelist]
    done = subprocess.run(
        ["scontrol", "show", "hostnames", nodelist], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False
    )
    if done.returncode != 0:
        raise NotSlurm("scontrol cannot expand %s: %s" % (nodelist, done.stderr.decode(errors="replace").strip()))
    return done.stdout.decode().split()


def job_folder(env: Mapping[str, str], place: Place) -> JobFolder:
    """The arbiter's folder of this job, or one under the user's home where there is no spool to write to."""
    spool, nonce = env.get("HORAE_SPOOL"), env.get("HORAE_NONCE")
    name = "%s.%s" % (place.name, nonce) if nonce else place.name
    if spool:
        path = os.path.join(spool, "jobs", name)
        if os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK):
            return JobFolder(path)
    path = os.path.join(os.path.expanduser("~"), ".cache", "horae", "slurm", name)
    os.makedirs(path, mode=0o700, exist_ok=True)
    return JobFolder(path)


def epoch_of(folder: JobFolder, place: Place) -> int:
    """The arbiter's number of this start; one more than the restarts where the arbiter had no part in it.

    The fence is raised to it: what is left of an older start on a lost node may write no checkpoint any more.
    """
    known = _json(folder.file(EPOCH_FILE))
    if known.get("restarts") == place.restarts and isinstance(known.get("epoch"), int):
        epoch = int(known["epoch"])
    else:
        epoch = max(folder.epoch(), place.restarts + 1)
    if folder.epoch() < epoch:
        try:
            folder.write_epoch(epoch)
        except OSError as error:
            print("horae-exec: cannot raise the fence: %s" % error, file=sys.stderr)
    return epoch


def is_batch_shell() -> bool:
    """Whether Slurm's signals to the batch shell reach this process: `exec horae-exec ...`."""
    return _name_of(os.getppid()).startswith("slurmstepd")


def announce(folder: JobFolder, epoch: int, direct: bool, checkpoint: str) -> None:
    """Tell the arbiter that a supervisor lives, whether it is the batch shell, and where its checkpoints are."""
    words = {
        "epoch": epoch,
        "direct": direct,
        "checkpoint": checkpoint,
        "host": socket.gethostname(),
        "pid": os.getpid(),
    }
    write_atomic(folder.file(EXEC_FILE), json.dumps(words).encode() + b"\n", sync=False)


def fresh(env: Mapping[str, str]) -> Dict[str, str]:
    """The environment without what an earlier shape left in it."""
    return {key: value for key, value in env.items() if key not in STALE}


def members(place: Place, folder: JobFolder, epoch: int, command: Sequence[str], env: Dict[str, str]) -> List[Member]:
    """The gang: ranks on this node, or one srun that starts them on all."""
    cwd = os.getcwd()
    if len(place.nodes) == 1:
        slots: Any = {place.nodes[0]: place.devices} if len(place.devices) == place.gpus else None
        return shape.local_members(command, env, cwd, place.allocation, slots)
    port = _port(place)
    env = dict(env)
    env.update(
        {
            "WORLD_SIZE": str(place.world),
            "LOCAL_WORLD_SIZE": str(place.gpus),
            "MASTER_ADDR": place.nodes[0],
            "MASTER_PORT": str(port),
            protocol.ENV_PORT: str(port + 1),
            protocol.ENV_NODES: json.dumps(place.allocation),
        }
    )
    launch = [sys.executable, "-m", "horae.elastic.slurm_launch", folder.file("left.%d" % epoch)]
    return [Member([*launch, str(len(place.nodes)), str(place.gpus), "--", *command], env, cwd, 0)]


def _port(place: Place) -> int:
    """Below Linux's ephemeral range, another one for each start; the same on every node without asking."""
    return 20000 + 2 * ((_number(place.job_id, 0) * 31 + place.restarts) % 6000)


def _number(text: Optional[str], default: int) -> int:
    return int(text) if text and text.isdigit() else default


def _json(path: str) -> Dict[str, Any]:
    try:
        value = json.loads((read_bytes(path) or b"{}").decode())
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _name_of(pid: int) -> str:
    try:
        with open("/proc/%d/comm" % pid) as file:
            return file.read().strip()
    except OSError:
        return ""
