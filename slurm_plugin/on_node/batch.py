"""`horae-exec` as the parent of a batch job's trainer under Slurm.

    #!/bin/bash
    #SBATCH --requeue --open-mode=append
    exec horae-exec --checkpoint ckpt/ -- python train.py

`exec`, because Slurm signals the batch script's own process. One `srun` starts one task a GPU over the shape that
the job has *now*; each task is a small process of ours (`task.py`) that turns Slurm's words into a rank's. A
task's exit codes and signals need care:

* Slurm kills a step at the first task that exits with anything but 0, also with 86 while its peers still write. A
  task that leaves with 86 therefore says so in a file beside the fence and exits 0; any other failure ends all.
* USR1 reaches the tasks at different times, and before their handlers exist: it is ignored until then.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Callable, Collection, List, Mapping, Optional, Sequence

from horae import elastic
from horae.elastic import protocol
from horae.elastic.files import read_ours, write_atomic
from horae.elastic.supervisor import start, tasks
from horae.elastic.supervisor.gang import Member
from horae.elastic.supervisor.jobfolder import JobFolder
from horae.elastic.supervisor.processes import keep
from horae.elastic.supervisor.run import Run, Unusable
from horae.elastic.supervisor.shape import free_ports, new_secret
from horae.elastic.supervisor.spool import Spool
from horae.elastic.supervisor.supervisor import STOP_SIGNALS, Supervisor

from .task import STEP_FILE, UNBEGUN_FILE, note

#: Frozen at submission, or meant for the batch script alone: srun would obey them instead of the present shape.
STALE = (
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_NTASKS_PER_SOCKET",
    "SLURM_NTASKS_PER_CORE",
    "SLURM_NTASKS_PER_GPU",
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
    "SLURM_DISTRIBUTION",
)
#: What the arbiter wrote beside the fence: {epoch, restarts}, which restart of the job the newest epoch is.
_GRANT_FILE = "slurm.json"
#: What the arbiter reads: that a supervisor lives, whether Slurm's signals reach it, where its checkpoints are.
_EXEC_FILE = "slurm.exec"
#: What a start writes: the numbers of steps of runs that may still be alive.
_AVOIDED_FILE = "slurm.avoided"
_MOST_AVOIDED = 8  #: the newest
#: Of a job with `--export=NONE`, as some sites would have it, srun passes nothing on either, if it is not told to.
_EXPORT = "--export=ALL"
#: How long Slurm may take for a step that does nothing.
_PROBE_S = 60.0
#: How long a job that has checkpointed waits to be requeued.
_STAY_S = 120.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """None of its own: Slurm says everything."""


def run(options: argparse.Namespace) -> int:
    found = Shape(os.environ)
    if os.environ.get(tasks.SERVERS):
        raise Unusable("%s: servers beside the ranks are for YARN and one machine, not for Slurm" % tasks.SERVERS)
    folder = start.open_folder(options.folder or job_folder(os.environ, found))
    if ungranted(folder, found):
        sys.stderr.write("[horae-exec] restart %d was granted by nobody: it waits, held\n" % found.restarts)
        return protocol.EXIT_STOPPED
    # A node whose slurmd died may still hold the lock of an older run. The fence keeps that one from writing; it
    # must not keep this one from running.
    lock = folder.take_lock()
    epoch = epoch_of(folder, found)
    hosts = host_names(found.node_list)
    env = start.trainer_environment(options, folder, epoch, folder.file(protocol.EPOCH_FILE))
    avoided = left_steps(folder)

    def gang() -> "List[Member]":
        forget_end(folder, epoch)
        pass_over(avoided, probe_step)
        expect(folder)
        return members(options.command, env, os.getcwd(), found, hosts)

    part = start.run_of(options, epoch, gang)
    part.allocation = dict.fromkeys(hosts, found.gpus_per_node)
    part.translate = lambda code: translate(folder, epoch, code)
    part.begun = lambda: not os.path.exists(folder.file(UNBEGUN_FILE))
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # the arbiter may signal as soon as it reads this
    announce(folder, epoch, is_batch_shell(), part.checkpoint)
    keep(STOP_SIGNALS)
    say = "an older run of this job still holds its lock; it may not write any more" if lock is None else ""
    while True:
        code = run_once(part, folder, say)
        say = "asked to leave, and then to stay: its trainer goes on from the checkpoint"
        if code != protocol.EXIT_STOPPED or not said_of_stop(folder, "withdrawn", epoch):
            return start.over(code)


def run_once(part: Run, folder: JobFolder, say: str) -> int:
    """The gang until it is over, and what follows a checkpoint, in the present allocation."""
    supervisor = Supervisor(part, folder, Spool(folder.file(protocol.LOG_FILE), echo=1))
    if say:
        supervisor.say(say)
    code = supervisor.run()
    if code == protocol.EXIT_STOPPED and asked_to_stay(folder, part.epoch):
        stay(folder, part.epoch, lambda: supervisor.dismissed)
    return code


class Shape:
    """The allocation of the restart that runs now."""

    def __init__(self, env: Mapping[str, str]) -> None:
        """Raises ValueError outside a batch job, with the variable that is missing."""
        self.job = _needed(env, "SLURM_JOB_ID")
        if env.get("SLURM_ARRAY_JOB_ID") and env.get("SLURM_ARRAY_TASK_ID"):
            self.job = "%s_%s" % (env["SLURM_ARRAY_JOB_ID"], env["SLURM_ARRAY_TASK_ID"])
        self.nodes = int(_needed(env, "SLURM_JOB_NUM_NODES"))
        self.node_list = _needed(env, "SLURM_JOB_NODELIST")
        self.gpus_per_node = int(env.get("SLURM_GPUS_ON_NODE") or 1)
        self.restarts = int(env.get("SLURM_RESTART_COUNT") or 0)

    @property
    def world(self) -> int:
        return self.nodes * self.gpus_per_node


def job_folder(env: Mapping[str, str], shape: Shape) -> str:
    """Where the arbiter looks for this job; a folder in the user's home without an arbiter, where the spool is not seen
    on this node, and of a job that was handed back to Slurm before the arbiter granted it anything and made it one."""
    if env.get(protocol.ENV_JOB_DIR):
        return env[protocol.ENV_JOB_DIR]
    name = shape.job
    if env.get("HORAE_SPOOL") and env.get("HORAE_NONCE"):
        name = "%s.%s" % (shape.job, env["HORAE_NONCE"])
        given = os.path.join(env["HORAE_SPOOL"], "jobs", name)
        try:
            os.makedirs(given, exist_ok=True)
            return given
        except OSError:
            pass
    cluster = env.get("SLURM_CLUSTER_NAME") or "slurm"
    return os.path.join(os.path.expanduser("~"), ".horae", "jobs", "%s-%s" % (cluster, name))


def epoch_of(folder: JobFolder, shape: Shape) -> int:
    """The epoch of this restart: the arbiter's, where its note is about this restart; else the restart's number.

    Without an arbiter the fence is written here. A first run in a used folder is another job's under the same
    number (Slurm gives numbers out again): its fence is not ours.
    """
    grant = _grant(folder)
    if grant is not None:
        epoch, restarts = grant
        if restarts == shape.restarts:
            return epoch
        # Requeued behind the arbiter's back: no newer fence exists, this run is the newest all the same.
        return epoch if shape.restarts > restarts else epoch - 1
    epoch = shape.restarts + 1
    if folder.epoch() < epoch or shape.restarts == 0:
        folder.write_epoch(epoch)
    return epoch


def ungranted(folder: JobFolder, shape: Shape) -> bool:
    """Whether this restart is nobody's: the cluster requeued the job and the arbiter was away. Its old nodes may be
    others' by now, and an older run may still write; where the arbiter says that exit code 86 is held, that is what
    such a start ends with, before it does anything."""
    data = read_ours(os.path.join(folder.path, _GRANT_FILE), 4096)
    try:
        value = json.loads(data.decode()) if data is not None else {}
        return value.get("fenced") is True and shape.restarts > int(value["restarts"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def is_batch_shell() -> bool:
    """Whether this process is what Slurm signals: `exec horae-exec ...`. Asked before the keeper comes between."""
    try:
        with open("/proc/%d/comm" % os.getppid()) as file:
            return file.read().startswith("slurmstepd")
    except OSError:
        return False


def announce(folder: JobFolder, epoch: int, direct: bool, checkpoint: Optional[str]) -> None:
    """A signal to a batch shell without a trap for it would end the job: the arbiter sends none where not `direct`."""
    words = {"epoch": epoch, "direct": direct, "checkpoint": checkpoint, "host": socket.gethostname()}
    write_atomic(folder.file(_EXEC_FILE), json.dumps(words).encode() + b"\n", sync=False)


def host_names(node_list: str) -> "List[str]":
    """Raises OSError when scontrol cannot be run."""
    answer = subprocess.run(
        ["scontrol", "show", "hostnames", node_list], stdout=subprocess.PIPE, check=False, universal_newlines=True
    )
    names = answer.stdout.split()
    if not names:
        raise OSError("scontrol show hostnames %s: nothing came back" % node_list)
    return names


def members(
    command: Sequence[str], env: Mapping[str, str], cwd: str, shape: Shape, hosts: Sequence[str]
) -> "List[Member]":
    """One srun for the whole gang. The batch script runs on its first node, so a port free here is rank 0's."""
    port = free_ports("")
    fresh = {key: value for key, value in env.items() if key not in STALE}
    fresh.update(
        {
            "MASTER_ADDR": hosts[0],
            "MASTER_PORT": str(port),
            protocol.ENV_PORT: str(port + 1),
            protocol.ENV_SECRET: new_secret(),
            protocol.ENV_NODES: json.dumps(dict.fromkeys(hosts, shape.gpus_per_node)),
        }
    )
    argv = ["srun", _EXPORT, "-N", str(shape.nodes), "-n", str(shape.world)]
    argv += ["--ntasks-per-node", str(shape.gpus_per_node), "--gres", "gpu:%d" % shape.gpus_per_node, "--mem", "0"]
    argv += ["--cpu-bind=none", "--distribution=block", "--overcommit", "--kill-on-bad-exit=1", "--unbuffered"]
    if shape.world > 1:
        argv.append("--label")
    argv += [sys.executable, os.path.dirname(os.path.abspath(elastic.__file__)), "--slurm-task", "--"]
    return [Member(argv + list(command), fresh, cwd, rank=0, program=command)]


# Slurm counts a job's steps from 0 in each of its runs. On a node that hung and wakes up, the old run's `srun` hears
# that its node had failed, and has its step ended: by a number that is the new run's by then.


def left_steps(folder: JobFolder) -> "List[int]":
    """Numbers of steps that runs may still have which did not say how they ended; before this start says anything."""
    avoided = _numbers(folder.file(_AVOIDED_FILE))
    before = folder.state()
    if before is None or before.get("state") in protocol.State.FINAL:
        return avoided
    last = [number for number in _numbers(folder.file(STEP_FILE))[:1] if number not in avoided]
    avoided = (avoided + last)[-_MOST_AVOIDED:]
    if last:
        write_atomic(folder.file(_AVOIDED_FILE), b" ".join(b"%d" % each for each in avoided), sync=False)
    return avoided


def pass_over(avoided: Collection[int], probe: "Callable[[], Optional[int]]") -> None:
    """Steps that do nothing, until the next one's number is none of these. `probe` runs one: the number that it had,
    None where that cannot be known, and the hazard has to be borne."""
    while avoided:
        number = probe()
        if number is None or number + 1 not in avoided:
            return


def expect(folder: JobFolder) -> None:
    """Say that no task has begun. A step that slurmctld refuses (busy, or just begun anew) is none of the program's
    failures; where this cannot be said, every failure is."""
    try:
        write_atomic(folder.file(UNBEGUN_FILE), b"", sync=False)
    except OSError as error:
        os.write(2, ("[horae-exec] a step that is refused will not be tried again: %s\n" % error).encode())


def probe_step() -> Optional[int]:
    argv = ["srun", _EXPORT, "-N1", "-n1", "--overcommit", "--mem=0", "--gres=none", "sh", "-c", "echo $SLURM_STEP_ID"]
    fresh = {key: value for key, value in os.environ.items() if key not in STALE}
    try:
        answer = subprocess.run(
            argv, env=fresh, stdout=subprocess.PIPE, check=True, universal_newlines=True, timeout=_PROBE_S
        )
        return int(answer.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        os.write(2, ("[horae-exec] the next step's number is not known: %s\n" % error).encode())
        return None


def _numbers(path: str) -> "List[int]":
    words = (read_ours(path, 256) or b"").split()
    return [int(word) for word in words if word.isdigit() and len(word) < 10]


def forget_end(folder: JobFolder, epoch: int) -> None:
    """What the gang before said of its end, which this start's next one has not come to: beside an older failure no
    task says that it stopped, and the gang's 0 would be a job that has completed. Raises OSError."""
    try:
        os.unlink(folder.file(note(epoch)))
    except FileNotFoundError:
        pass


def translate(folder: JobFolder, epoch: int, code: int) -> int:
    """srun's exit code as the gang's: 0 is 86 when the tasks said so, and of several failures the first counts.

    (srun reports the highest code, which is that of the tasks Slurm killed because of the first.)
    """
    said = (read_ours(folder.file(note(epoch)), 64) or b"").strip()
    if not said.isdigit() or (code == 0) != (int(said) == protocol.EXIT_STOPPED):
        return code
    return int(said)


def asked_to_stay(folder: JobFolder, epoch: int) -> bool:
    """Whether the stop file says that the batch job must not end by itself (see `stay`)."""
    return said_of_stop(folder, "epoch", epoch) and said_of_stop(folder, "stay", True)


def said_of_stop(folder: JobFolder, name: str, value: object) -> bool:
    """Whether the stop file says so. `withdrawn`: the epoch that was asked to leave and may not be requeued any more;
    a request that comes later is written over it."""
    try:
        request = json.loads((read_ours(folder.file(protocol.STOP_FILE), 4096) or b"").decode())
    except ValueError:
        return False
    return isinstance(request, dict) and request.get(name) == value


def stay(folder: JobFolder, epoch: int, dismissed: Callable[[], bool], patience_s: float = _STAY_S) -> None:
    """Wait, after the checkpoint, until the arbiter requeues the job: Slurm sends TERM, and the job is over.

    For sites and jobs where exit code 86 would count as a failure: dependents would start, or never would. When
    nobody comes, or a newer start of the job lives, it ends all the same: an idle job must not keep its GPUs.
    `dismissed`: whether the TERM came already, before this listened for it.
    """
    left: List[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: left.append(number))
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # a late repetition of the request
    until = time.monotonic() + patience_s
    while not left and not dismissed() and time.monotonic() < until and folder.epoch() <= epoch:
        if not asked_to_stay(folder, epoch):
            return
        time.sleep(0.2)


def _grant(folder: JobFolder) -> "Optional[tuple[int, int]]":
    data = read_ours(os.path.join(folder.path, _GRANT_FILE), 4096)
    if data is None:
        return None
    try:
        value = json.loads(data.decode())
        return int(value["epoch"]), int(value["restarts"])
    except (ValueError, KeyError, TypeError):
        return None


def _needed(env: Mapping[str, str], name: str) -> str:
    if not env.get(name):
        raise ValueError("%s is not set: this is not a Slurm batch job" % name)
    return env[name]
