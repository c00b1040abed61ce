"""From what `horae-exec` was told to one start: its folder, its trainer's environment, its rules."""

import argparse
import os
import signal
from typing import Callable, Dict, List

from .. import protocol
from . import shape
from .gang import Member
from .jobfolder import JobFolder, own_suffix
from .run import Run, Unusable, apply_extra, checkpoint_url
from .supervisor import STOP_SIGNALS


def over(code: int) -> int:
    """The end is written down: a late request must not change the exit code. (On the way out Python restores the
    default actions; an ignored signal stays ignored.)"""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    return code


def run_of(options: argparse.Namespace, epoch: int, members: Callable[[], List[Member]]) -> Run:
    run = Run(options.name or os.path.basename(options.command[0]), epoch, members)
    run.checkpoint = None if options.checkpoint is None else checkpoint_url(options.checkpoint, os.getcwd())
    run.grace_s = options.grace
    run.retries = options.retries
    apply_extra(
        run,
        {
            protocol.EXTRA_SELF_CHECKPOINTING: options.self_checkpointing,
            protocol.EXTRA_STOP_SIGNAL: options.stop_signal,
        },
    )
    return run


def trainer_environment(options: argparse.Namespace, folder: JobFolder, epoch: int, fence: str) -> Dict[str, str]:
    env = shape.plain_environment({})
    checkpoint = None if options.checkpoint is None else checkpoint_url(options.checkpoint, os.getcwd())
    name = options.name or os.path.basename(options.command[0])
    env.update(shape.trainer_environment(name, folder.path, epoch, checkpoint, fence, options.grace))
    env[protocol.ENV_SUFFIX] = folder.suffix
    return env


def open_folder(path: str) -> JobFolder:
    os.makedirs(path, exist_ok=True)
    return JobFolder(path, own_suffix(path))


def hold(folder: JobFolder) -> None:
    """Take the folder's lock for as long as this process lives."""
    if folder.take_lock() is None:
        raise Unusable("%s: another supervisor holds its lock" % folder.path)
