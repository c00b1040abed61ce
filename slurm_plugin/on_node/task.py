"""One task of a batch job's step: sets its rank's words, runs the trainer, and tells its end so that its peers live."""

import argparse
import os
import signal
import socket
import time
from typing import Dict, Mapping, Optional, Sequence

from horae.elastic import protocol
from horae.elastic.files import read_ours, write_atomic
from horae.elastic.supervisor.processes import exit_code, send

#: What a start writes: the number of its newest step.
STEP_FILE = "slurm.step"
#: Stands from before a step until its first task begins.
UNBEGUN_FILE = "slurm.unbegun"
#: How long a task that checkpointed tries to say so.
_NOTE_S = 60.0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--slurm-task", action="store_true", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    return task_main(options.command)


def task_main(command: Sequence[str], variables: Optional[Mapping[str, str]] = None) -> int:
    """Be one task: set the rank's words, run the trainer, and say 86 in a way that Slurm lets its peers live."""
    env = dict(os.environ if variables is None else variables)
    env.update(rank_words(env))
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    _begin(env)
    if env["RANK"] == "0":
        _note_step(env)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        try:
            os.execvpe(command[0], list(command), env)
        except OSError as error:
            os.write(2, ("[horae-exec] cannot run %s: %s\n" % (command[0], error)).encode())
            os._exit(127)

    def forward(number: int, _frame: object) -> None:
        send(child, number)

    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, forward)
    _pid, status = os.waitpid(child, 0)
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
        # On the way out Python restores the default actions, and a late request would kill us.
        signal.signal(number, signal.SIG_IGN)
    code = exit_code(status)
    name = note(int(env[protocol.ENV_EPOCH]))
    noted = bool(code) and leave_note(_own(env, name), code)
    return 0 if code == protocol.EXIT_STOPPED and noted else code


def _begin(env: Mapping[str, str]) -> None:
    """Take away, not write: that works on a full disk too, and what a program failed of must not look unbegun."""
    try:
        os.unlink(_own(env, UNBEGUN_FILE))
    except FileNotFoundError:
        return  # another task was first
    except (OSError, KeyError) as error:
        os.write(2, ("[horae-exec] cannot note that this step began: %s\n" % error).encode())


def _note_step(env: Mapping[str, str]) -> None:
    try:
        write_atomic(_own(env, STEP_FILE), env["SLURM_STEP_ID"].encode(), sync=False)
    except (OSError, KeyError) as error:
        os.write(2, ("[horae-exec] cannot note the number of this step: %s\n" % error).encode())


def _own(env: Mapping[str, str], name: str) -> str:
    """A file of the job's own in its folder."""
    return os.path.join(env[protocol.ENV_JOB_DIR], name + env.get(protocol.ENV_SUFFIX, ""))


def note(epoch: int) -> str:
    """Where the tasks of an epoch say how they ended, where that was not 0: a failure, else 86."""
    return ".ended-%d" % epoch


def leave_note(path: str, code: int, patience_s: float = _NOTE_S) -> bool:
    """False where that cannot be written. What a stop needs is tried again for a while: left out, the gang's 0 would
    be a job that has completed, and said by the exit code it would end peers that still write."""
    until = time.monotonic() + (patience_s if code == protocol.EXIT_STOPPED else 0.0)
    told = False
    while True:
        try:
            said = (read_ours(path, 64) or b"").strip()
            if said and said != b"%d" % protocol.EXIT_STOPPED:
                return True  # another task failed before this one
            write_atomic(path, b"%d\n" % code)
            return True
        except OSError as error:
            if not told:
                os.write(2, ("[horae-exec] cannot note the exit code %d: %s\n" % (code, error)).encode())
            told = True
        if time.monotonic() >= until:
            return False
        time.sleep(0.2)


def rank_words(env: Mapping[str, str]) -> Dict[str, str]:
    words = {
        "RANK": env["SLURM_PROCID"],
        "WORLD_SIZE": env["SLURM_NTASKS"],
        "LOCAL_RANK": env["SLURM_LOCALID"],
        "NODE_RANK": env.get("SLURM_NODEID") or "0",
    }
    try:
        socket.getaddrinfo(env["MASTER_ADDR"], None)
    except (OSError, KeyError):
        # Node names need not mean anything to the resolver; srun runs on the first node, where rank 0 is.
        words["MASTER_ADDR"] = env.get("SLURM_LAUNCH_NODE_IPADDR") or "127.0.0.1"
    nodes = int(env.get("SLURM_STEP_NUM_NODES") or env.get("SLURM_NNODES") or 1)
    words["LOCAL_WORLD_SIZE"] = str(int(env["SLURM_NTASKS"]) // max(1, nodes))
    return words
