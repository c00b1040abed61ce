"""Why a job ended as it did, by the end of its own output: the line that tells most, what it means, what helps. Pure.

For its owner and operators alone: a line of a log is private.
"""

from __future__ import annotations

import errno
import os
import re
import signal

from horae.elastic import protocol
from horae.views.cause import Cause
from profiler.model import FailureKind
from profiler.text import failures

#: Bytes at the end of a log that are looked at, and characters of a line that are shown.
LOOKED_AT = 256 << 10
_SHOWN = 300

_RANK = re.compile(r"^\d+: ")
#: Where the last attempt of a program begins: what stands before is another attempt's.
_BEGINS = re.compile(r"^\[horae\] start step=|^\[horae-exec\] .*again in ")
_ERRNO = re.compile(r"(?:(\S+).*?: )?\[Errno -?\d+\] ([^:]+)(?:: b?'(.*)')?")
_NOT_STARTED = re.compile(r"^\[horae-exec\] cannot (?:start: |run )(.*)")
_LEFT = re.compile(r"^\[horae-exec\] killed (\d+) process(?:es)? that the trainer left behind")
_NOT_SAVED = "[horae] the final checkpoint could not be written"
_FOLDER = re.compile(r"^\[horae-exec\] finds a folder, and no program, at (.*); folder ")
#: The interpreter that a script's first line names, as the supervisor tells it.
_BY = re.compile(r"^\[horae-exec\] runs .* by (\S+) in ")
#: A carriage return in a name, as the supervisor, env and bash show it.
_CARRIAGE_RETURN = re.compile(r"\\r(?:$|['’])")
_NCCL = re.compile(
    r"\bNCCL\b.*(?:error|timeout|timed out|abort|WARN)|nccl(?:System|Internal|Remote|UnhandledCuda)Error"
    r"|Watchdog caught collective operation timeout|Gloo connect\w* .*fail",
    re.IGNORECASE,
)
#: Of processes that read or prepare data for it: PyTorch's, Hugging Face's, Python's own pools'.
_WORKER = re.compile(
    r"DataLoader worker \(pid.*\) (?:is killed by signal|exited unexpectedly)"
    r"|subprocesses has abruptly died|BrokenProcessPool: "
)
_SHARED_MEMORY = re.compile(r"workers are out of shared memory|insufficient shared memory", re.IGNORECASE)
_TRACEBACK = "Traceback (most recent call last)"
#: The last line of a traceback: an exception's name, at the margin.
_RAISED = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning|Iteration|Timeout)\b.*|^[\w.]+: \S.*")
#: The same of a script that could not be compiled: it never ran, so nothing was on the stack.
_UNREADABLE = re.compile(r"^(?:SyntaxError|IndentationError|TabError)\b")
_NO_SCRIPT = re.compile(r".*can't open file '(.*)': \[Errno \d+\] (.*)")
#: The SDK's line of progress: what stands before it was survived.
_PROGRESS = "[horae] step="
_NO_PROGRAM = re.compile(r"(?i)command not found|No such file or directory|can't open file|not found$")

_MEANS = {
    FailureKind.OUT_OF_MEMORY: (
        "it ran out of memory",
        "a smaller batch a GPU (max_micro_batch), more GPUs, or --memory where it is the machine's",
    ),
    FailureKind.NO_SPACE: ("a disk or a quota was full", "room where it writes: checkpoints, logs, caches"),
    FailureKind.NAN_LOSS: ("its loss was no number any more", "a smaller learning rate, or an earlier checkpoint"),
    FailureKind.NODE_FAILURE: ("its log says that its node failed", "another node: tell an operator of it"),
    FailureKind.TIME_LIMIT: ("its log says that its time was over", "a longer --time-limit"),
}
_KILLED = "more --memory where it was short of it; an operator finds in the kernel's log of its node whether it was"
#: Where no kind of failure is known, by signs of their own: what it means, and what helps; the most telling first.
_SIGNS = (
    (
        _SHARED_MEMORY,
        "the shared memory of its node or container (/dev/shm) was full",
        "fewer num_workers, more room in /dev/shm, or torch.multiprocessing.set_sharing_strategy('file_system')",
    ),
    (
        _WORKER,
        "a process of its own, which reads its data, died",
        "fewer num_workers, or more --memory: most often the kernel ended it, out of memory",
    ),
    (
        re.compile(r"^[\w.]*Error: .*(?i:address already in use|EADDRINUSE)"),
        "a port that it would listen on is taken on its node",
        "another port; or `python ...` without torchrun or accelerate launch: Horae has started the ranks already",
    ),
    (
        re.compile(r"^\S+\.cuh?:\d+: .*Assertion `.*` failed"),
        "a check inside a CUDA kernel failed, most often of an index or a label",
        "ids below the size of the embedding, labels below the number of classes; CUDA_LAUNCH_BLOCKING=1 shows where",
    ),
    (
        re.compile(r"Duplicate GPU detected"),
        "two of its ranks use the same GPU",
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before a GPU is used: each rank sees all of its job's",
    ),
    (
        _NCCL,
        "its ranks lost each other (NCCL)",
        "NCCL_DEBUG=INFO shows which rank; often one rank failed first for another reason, or the network did",
    ),
)


def cause(log: bytes, exit_code: int | None, job: str = "JOB") -> Cause | None:
    """Of a job that ended with `exit_code`: what the end of its `log` says; None where there is no log, or nothing to
    say of an end that is well. `job`: what a person types for it."""
    lines = _last_attempt([_RANK.sub("", line) for line in log.decode(errors="replace").splitlines() if line.strip()])
    if exit_code == 0:
        return _ended_well(lines)
    if not lines:
        return None
    text, line, change = _told(lines, exit_code)
    said = f": {line.strip()[:_SHOWN]}" if line else ""
    numbers = {"exit_code": exit_code} if exit_code is not None else {}
    return Cause("log", f"{text}{said}", numbers, change.format(job=job))


def _ended_well(lines: list[str]) -> Cause | None:
    """What its owner has to know of a job that completed."""
    if (lost := next((line for line in lines if _NOT_SAVED in line), None)) is not None:
        text = f"all its steps are done, and its last checkpoint is not written: {lost.strip()[:_SHOWN]}"
        return Cause("log", text, {"exit_code": 0}, "room in its checkpoint folder, and the job once more")
    if (left := next(filter(None, map(_LEFT.match, lines)), None)) is not None:  # it went to the background
        text = f"its program ended while {left[1]} of its processes still ran, and they were ended with it"
        helps = "a program that waits for what it starts: no `&`, nohup or setsid, or `wait` at its end"
        return Cause("log", text, {"exit_code": 0}, helps)
    return None


def _last_attempt(lines: list[str]) -> list[str]:
    begins = max((n for n, line in enumerate(lines[:-1]) if _BEGINS.search(line)), default=0)
    return lines[begins:]


def _told(lines: list[str], exit_code: int | None) -> tuple[str, str, str]:
    """(what it means, the line, what helps), the most telling first."""
    # A program that ran can print such a line too; it ends with these codes only where it was not started.
    refused = next(filter(None, map(_NOT_STARTED.match, lines)), None) if exit_code in (126, 127) else None
    if refused is not None:
        return _by_first_line(lines) or _not_started(refused[1])
    return _known(_not_survived(lines)) or _told_by_code(lines, exit_code)


def _not_survived(lines: list[str]) -> list[str]:
    """Without what stands before its last progress, where an exception came later."""
    since = max((n for n, line in enumerate(lines) if line.startswith(_PROGRESS)), default=-1) + 1
    later = lines[since:]
    return later if any(_TRACEBACK in line for line in later) and _raised(later) else lines


def _known(lines: list[str]) -> tuple[str, str, str] | None:
    """By the signs of failures that are known."""
    signs = [(sign.kind, line) for line in lines if (sign := failures.find(line, 0)) is not None]
    for kind, (means, change) in _MEANS.items():
        if told := [line for known, line in signs if known is kind]:
            return means, next(filter(_RAISED.match, told), told[0]), change  # rather than the statement that raised it
    for pattern, means, change in _SIGNS:
        if (line := next(filter(pattern.search, lines), None)) is not None:
            return means, line, change
    if any(kind is FailureKind.TRACEBACK for kind, _ in signs) and (raised := _raised(lines)):
        return "its program raised", raised, "`horae logs {job}` shows the traceback"
    return None


#: Programs that only a shell has, or has as a function of its own.
_SHELLS = frozenset(
    ". alias cd conda eval exec export mamba micromamba ml module set source spack ulimit unset".split()
)
_ASSIGNS = re.compile(r"[A-Za-z_]\w*=")
_NOT_STARTED_HELPS = {
    os.strerror(errno.EACCES): "`chmod +x` for the file, or its interpreter before it: `-- bash FILE`",
    os.strerror(errno.ENOEXEC): "a first line such as `#!/bin/sh`, or its interpreter before it: `-- bash FILE`",
}


def _by_first_line(lines: list[str]) -> tuple[str, str, str] | None:
    """Of what was not started, what the first line of its log shows."""
    if (folder := next(filter(None, map(_FOLDER.match, lines)), None)) is not None:
        return f"its program is a folder: {folder[1]}", "", "the program that is meant, after `--`"
    by = next((found[1] for found in map(_BY.match, lines) if found), "")
    return _WINDOWS if _CARRIAGE_RETURN.search(by) else None


_WINDOWS = (
    "its script's lines end as on Windows (CR LF), so the interpreter that it names has a name with a CR at its end",
    "",
    "`sed -i 's/\\r$//' FILE`, or dos2unix",
)


def _not_started(told: str) -> tuple[str, str, str]:
    """`pyhton x.py: [Errno 2] No such file or directory: b'/bin/pyhton'`, in words."""
    means, helps = "its program could not be started", "the program's full path, and its first line"
    found = _ERRNO.fullmatch(told)
    if found is None:
        return means, told, helps
    program, what, file = found[1] or found[3] or "", found[2], found[3] or ""
    if what.startswith(protocol.NO_FOLDER):
        return f"{what}: {file}", "", "--cwd with a folder that is there on its node, and that its owner may enter"
    command = told.partition(": [Errno ")[0]
    if " " in command and file.endswith(command):
        return f"its whole command is one word, {command!r}", "", "no quotes around it, or `-- sh -c '...'` for a shell"
    if _ASSIGNS.match(program):
        return f"{program} sets a variable, as a shell does", "", f"`--env {program}`, or `-- env {program} ...`"
    if what == os.strerror(errno.ENOENT) and program.partition("/")[0] and file.rpartition("/")[2] == program:
        path = "`which` says it where it is known; or `horae submit` in the shell that knows it, whose PATH a job has"
        if program in _SHELLS:
            helps = f"`-- bash -lc '{program} ... && python train.py'`, or say it in the shell before `horae submit`"
            return f"{program} is no program: a shell has it, or a function of one", "", helps
        return f"there is no program {program} in its PATH", "", f"its full path: {path}"
    return means, f"{what}: {file or program}", _NOT_STARTED_HELPS.get(what, helps)


def _told_by_code(lines: list[str], exit_code: int | None) -> tuple[str, str, str]:
    """The same, where no line says what happened."""
    own = [line for line in lines if not line.startswith(("[horae-exec]", _PROGRESS))]
    if exit_code is not None and exit_code > 128:
        return (_by_signal(exit_code - 128), "", _KILLED if exit_code - 128 == signal.SIGKILL else "")
    if exit_code in (126, 127):
        return _not_found(own)
    if exit_code == 2 and (lost := next(filter(None, map(_NO_SCRIPT.match, own)), None)) is not None:
        helps = "its path, as it is seen from the folder where the job runs (`--cwd`, else where it was handed in)"
        return "its script cannot be read", f"{lost[2]}: {lost[1]}", helps
    if own and _UNREADABLE.match(own[-1]):
        return "its script is not valid Python", own[-1], "`horae logs {job}` shows where"
    if not own:
        return "it printed nothing", "", ""
    return "the last that it printed", own[-1], "`horae logs {job}` shows all of it"


def _not_found(own: list[str]) -> tuple[str, str, str]:
    line = next((line for line in reversed(own) if _NO_PROGRAM.search(line)), own[-1] if own else "")
    if _CARRIAGE_RETURN.search(line):
        return _WINDOWS
    return "a program was not found, or may not be run", line, "its full path: a job has not your shell's aliases"


def _raised(lines: list[str]) -> str:
    """The exception of the last traceback."""
    begin = max((n for n, line in enumerate(lines) if _TRACEBACK in line), default=-1)
    return next((line for line in lines[begin + 1 :] if _RAISED.match(line)), "")


def _by_signal(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if number == signal.SIGKILL:
        return (
            f"it was killed ({name}), not by Horae: by the kernel where the machine or its limit ran out of memory,"
            " or by somebody who may"
        )
    if number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGABRT, signal.SIGFPE):
        return f"its program crashed ({name}): a fault of a library, a driver or compiled code"
    return f"it was ended by {name}, not by Horae: somebody who may, or the program itself, sent it"
