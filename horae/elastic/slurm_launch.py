"""Ranks on several nodes by srun, with one exit code for all of them.

    python -m horae.elastic.slurm_launch MARK NODES GPUS -- COMMAND     in the batch step: runs srun
    python -m horae.elastic.slurm_launch MARK -- COMMAND                in each task: runs one rank

srun ends all tasks as soon as one exits with anything but 0 (a dead rank would leave its peers waiting for ever),
and 86 is not 0: a rank that checkpointed first would kill the others in the middle of theirs. So a task whose rank
left with 86 leaves MARK and exits 0, and the launcher turns "all well, and MARK" back into 86.
"""

import os
import signal
import socket
import subprocess
import sys
from typing import List, Sequence

from . import protocol

_FORWARDED = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)


def main(arguments: Sequence[str]) -> int:
    split = list(arguments).index("--")
    words, command = list(arguments[:split]), list(arguments[split + 1 :])
    if len(words) == 1:
        return rank(words[0], command)
    mark, nodes, gpus = words
    return launch(mark, int(nodes), int(gpus), command)


def launch(mark: str, nodes: int, gpus: int, command: List[str]) -> int:
    argv = ["srun", "-N", str(nodes), "-n", str(nodes * gpus), "--ntasks-per-node", str(gpus)]
    argv += ["--gres", "gpu:%d" % gpus, "--mem", "0", "--overcommit", "--cpu-bind=none", "--distribution=block"]
    argv += ["--kill-on-bad-exit=1", "--label", "--unbuffered", "--export=ALL"]
    argv += [sys.executable, "-m", "horae.elastic.slurm_launch", mark, "--", *command]
    for number in _FORWARDED:  # they reach srun itself, which shares our process group, and through it every task
        signal.signal(number, _nothing)
    if os.path.exists(mark):
        os.unlink(mark)
    code = subprocess.call(argv)
    _deaf()
    code = 128 - code if code < 0 else code
    return protocol.EXIT_STOPPED if code == 0 and os.path.exists(mark) else code


def rank(mark: str, command: List[str]) -> int:
    """One rank. Signals of the step reach this process; they are passed on, and never kill it."""
    env = dict(os.environ)
    env["RANK"] = env["SLURM_PROCID"]
    env["LOCAL_RANK"] = env["SLURM_LOCALID"]
    env["MASTER_ADDR"] = reachable(env)
    # Until the trainer installs its handler a request must not kill it; the stop file carries the early ones.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        process = subprocess.Popen(command, env=env)
    except OSError as error:
        print("[horae-exec] cannot run %s: %s" % (command[0], error), file=sys.stderr)
        return 126 if isinstance(error, PermissionError) else 127
    for number in _FORWARDED:
        signal.signal(number, lambda received, _frame: process.send_signal(received))
    code = process.wait()
    _deaf()
    if code == protocol.EXIT_STOPPED:
        with open(mark, "ab"):
            return 0
    return 128 - code if code < 0 else code


def reachable(env: "os._Environ[str] | dict[str, str]") -> str:
    """Rank 0's node by name, or, where node names mean nothing to the resolver, by the address srun came from."""
    name = env["MASTER_ADDR"]
    try:
        socket.getaddrinfo(name, None)
        return name
    except OSError:
        return env.get("SLURM_LAUNCH_NODE_IPADDR") or "127.0.0.1"


def _deaf() -> None:
    """On the way out Python restores the default actions, and a late request would kill us; ignored stays ignored."""
    for number in _FORWARDED:
        signal.signal(number, signal.SIG_IGN)


def _nothing(_number: int, _frame: object) -> None:
    """A handler, not SIG_IGN: what is ignored stays ignored over exec, and srun must hear it."""


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
