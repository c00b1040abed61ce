"""Lines that say why a run ended. Each kind is a few texts that only a failure prints."""

from __future__ import annotations

import re

from profiler.points import Failure, FailureKind

K = FailureKind

#: (literal that every such line holds, pattern of the whole, kind). The literal is searched in the line without its
#: digits, so it holds none. First match wins: the more telling first.
_SIGNS: tuple[tuple[bytes, str, FailureKind], ...] = (
    (b"CUDA out of memory", r"CUDA out of memory", K.OUT_OF_MEMORY),
    (b"OutOfMemoryError", r"OutOfMemoryError", K.OUT_OF_MEMORY),
    (b"CUDA_ERROR_OUT_OF_MEMORY", r"^(?!.*failed to allocate ).*CUDA_ERROR_OUT_OF_MEMORY", K.OUT_OF_MEMORY),
    (b"ResourceExhaustedError", r"ResourceExhaustedError", K.OUT_OF_MEMORY),
    (b"RESOURCE_EXHAUSTED", r"RESOURCE_EXHAUSTED.*(?:memory|OOM|allocat)", K.OUT_OF_MEMORY),
    (b"OOM when allocating", r"OOM when allocating", K.OUT_OF_MEMORY),
    (b"oom-kill", r"oom-kill|oom_kill", K.OUT_OF_MEMORY),
    (b"oom_kill", r"oom_kill", K.OUT_OF_MEMORY),
    (b"OOM Killed", r"OOM Killed", K.OUT_OF_MEMORY),
    (b"OOMKilled", r"OOMKilled", K.OUT_OF_MEMORY),
    (b"OUT_OF_MEMORY", r"\bOUT_OF_MEMORY\b", K.OUT_OF_MEMORY),
    (b"Out of memory: Kill", r"Out of memory: Kill", K.OUT_OF_MEMORY),
    (
        b"out of memory",
        r"^(?!.*(?:failed to allocate |ran out of memory trying)).*(?i:(?:hip|cuda|cudnn|cudaMalloc|gpu|host|device).{0,40}out of memory)",
        K.OUT_OF_MEMORY,
    ),
    (b"MemoryError", r"^\s*(?:[\w.]+\.)?(?:_ArrayMemoryError|MemoryError)\b", K.OUT_OF_MEMORY),
    (b"DefaultCPUAllocator", r"DefaultCPUAllocator: (?:can't|not enough) ", K.OUT_OF_MEMORY),
    (b"memory limit", r"(?i)exceeded .{0,20}memory limit|memory limit exceeded", K.OUT_OF_MEMORY),
    (b"beyond the 'PHYSICAL' memory", r"running beyond the 'PHYSICAL' memory", K.OUT_OF_MEMORY),
    (b"No space left on device", r"No space left on device", K.NO_SPACE),
    (b"Disk quota exceeded", r"Disk quota exceeded", K.NO_SPACE),
    (b"ENOSPC", r"\bENOSPC\b", K.NO_SPACE),
    (b"DUE TO TIME LIMIT", r"DUE TO TIME LIMIT", K.TIME_LIMIT),
    (b"time limit", r"(?i)(?:job|walltime|exceeded).{0,30}time limit", K.TIME_LIMIT),
    (b"walltime", r"(?i)walltime.{0,30}exceeded|exceeded.{0,30}walltime", K.TIME_LIMIT),
    (b"DeadlineExceeded", r"DeadlineExceeded", K.TIME_LIMIT),
    (b"NODE FAILURE", r"NODE FAILURE", K.NODE_FAILURE),
    (b"NODE_FAIL", r"\bNODE_FAIL\b", K.NODE_FAILURE),
    (b"Node failure", r"(?i)node failure", K.NODE_FAILURE),
    (b"node failure", r"(?i)node failure", K.NODE_FAILURE),
    (b"lost node", r"(?i)\blost node\b", K.NODE_FAILURE),
    (b"fell off the bus", r"GPU has fallen off the bus|fell off the bus", K.NODE_FAILURE),
    (b"fallen off the bus", r"GPU has fallen off the bus", K.NODE_FAILURE),
    (b"uncorrectable ECC", r"uncorrectable ECC error", K.NODE_FAILURE),
    (b"CANCELLED AT", r"\*\*\* .*CANCELLED AT", K.KILLED),
    (b"DUE TO PREEMPTION", r"DUE TO PREEMPTION", K.KILLED),
    (b"Killed", r"^\s*(?:.*\bline \S+:\s+\S+ )?Killed(?:\s|$)|: task .*: Killed|signal \S+ \(Killed\)", K.KILLED),
    (b"SIGKILL", r"\bSIGKILL\b", K.KILLED),
    (
        b"SIGTERM",
        r"(?i)(?:received|got|signal|killed|terminated|exception).{0,40}SIGTERM|SIGTERM.{0,30}received",
        K.KILLED,
    ),
    (b"signal ", r"exited on signal|killed by signal|died with <Signals|Caught signal|terminated by signal", K.KILLED),
    (b"Signals.", r"died with <Signals\.", K.KILLED),
    (b"Segmentation fault", r"Segmentation fault", K.KILLED),
    (b"core dumped", r"core dumped", K.KILLED),
    (b"KeyboardInterrupt", r"KeyboardInterrupt", K.KILLED),
    (b"Terminated", r"^\s*(?:.*\bline \S+:\s+\S+ )?Terminated\b|: Terminated$", K.KILLED),
    (b"Container killed", r"Container killed", K.KILLED),
    (b"ChildFailedError", r"ChildFailedError", K.TRACEBACK),
    (b"Traceback (most recent call last)", r"Traceback \(most recent call last\)", K.TRACEBACK),
    (b"DataLoader worker", r"DataLoader worker .* is killed by signal", K.KILLED),
    (b"unhandled cuda error", r"(?i)unhandled (?:cuda|system) error", K.TRACEBACK),
    (b"CUDA error", r"RuntimeError: CUDA error", K.TRACEBACK),
    (b"terminate called", r"terminate called (?:after throwing|without)", K.TRACEBACK),
    (b"NaN loss", r"(?i)(?:NaN loss|loss (?:is|became|was|diverged).{0,10}nan)", K.NAN_LOSS),
    (b"NanLossDuringTrainingError", r"NanLossDuringTrainingError", K.NAN_LOSS),
    (b"Loss is ", r"(?i)loss is (?:nan|inf)\b.*(?:stop|exit|abort|terminat)", K.NAN_LOSS),
)
_COMPILED = tuple((literal, re.compile(pattern), kind) for literal, pattern, kind in _SIGNS)
LONGEST = 2000  #: characters of a line that are looked at, and
_SHOWN = 300  #: that are kept


def suspects(key: bytes) -> bool:
    """Whether a line (without its digits) may say a failure: the cheap test."""
    return any(literal in key for literal, _, _ in _SIGNS)


def find(text: str, line: int) -> Failure | None:
    """The failure that a line tells, or None."""
    text = text[:LONGEST]
    for _, pattern, kind in _COMPILED:
        if pattern.search(text):
            return Failure(kind, line, text.strip()[:_SHOWN])
    return None
