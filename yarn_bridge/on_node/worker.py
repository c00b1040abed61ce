"""A YARN worker: it stays, trains at each opening of its gate, and ends with the work or when the gate closes."""

import argparse
import os
import signal
from typing import Callable, Dict, List, Sequence

from horae.elastic import protocol
from horae.elastic.supervisor import start, tasks
from horae.elastic.supervisor.gang import Member
from horae.elastic.supervisor.processes import keep
from horae.elastic.supervisor.run import Unusable, check_servers
from horae.elastic.supervisor.spool import Spool
from horae.elastic.supervisor.supervisor import STOP_SIGNALS, Supervisor

from . import own_gpus
from .gate import Gate, comes_back
from .mirror import Mirror, Together


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gate", metavar="URL", help="stay, and train whenever this gate opens (YARN)")
    parser.add_argument("--member", help="this worker's name at the gate")
    parser.add_argument("--log", metavar="URL", help="with --gate: rank 0's output is copied there, a file an epoch")


def run(options: argparse.Namespace) -> int:
    if not options.member:
        raise Unusable("--gate needs --member, this worker's name")
    folder = start.open_folder(options.folder or ".horae")
    start.hold(folder)
    keep(STOP_SIGNALS)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)  # at the gate they end it
    spool = Spool(folder.file(protocol.LOG_FILE), echo=1)

    def say(text: str) -> None:
        spool.write(("[horae-exec] %s\n" % text).encode(errors="replace"))

    gpus = options.gpus or 1
    gate = Gate(options.gate, options.member, gpus, say)
    gate.register()
    own_gpus.heed(options.member, gpus, say)
    epoch, mirror = 0, None
    while True:
        opening = gate.wait(after=epoch)
        if mirror is not None:
            mirror.await_end()  # side by side with the wait; the spool goes on, and what forks has one thread
        if opening is None:
            say("the gate is closed")
            return 0
        epoch = opening.epoch
        folder.write_epoch(epoch)
        folder.withdraw_stop()
        env = start.trainer_environment(options, folder, epoch, gate.fence)
        check_servers(env)
        part = start.run_of(options, epoch, _at(opening.members, options, env))
        part.retries = 0  # the whole gang must start over, not this worker alone: that is the arbiter's to say
        part.allocation = opening.allocation
        if tasks.servers(env):
            part.all_done = gate.all_done(opening)
        watch = gate.watch(opening, folder)
        mirror = None
        if options.log and opening.position == 0:
            mirror = Mirror(spool.path, "%s/%08d" % (options.log.rstrip("/"), epoch))
        part.watch = watch if mirror is None else Together.of(watch, mirror)
        supervisor = Supervisor(part, folder, spool, last=False)
        code = supervisor.run()
        own = code if supervisor.exit_code is None else supervisor.exit_code
        stays = comes_back(supervisor.state)
        if mirror is not None:
            # Whoever hears of the end may take this container away.
            mirror.finish()
            (mirror.await_sent if stays else mirror.await_end)()
        gate.acknowledge(epoch, supervisor.state, own, supervisor.marks.newest, supervisor.native)
        if not stays:
            return start.over(code)


def _at(
    members: Callable[[Sequence[str], Dict[str, str], str, str], List[Member]],
    options: argparse.Namespace,
    env: Dict[str, str],
) -> Callable[[], List[Member]]:
    return lambda: members(options.command, env, os.getcwd(), options.member)
