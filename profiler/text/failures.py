"""Lines that say why a run ended. Each kind is a few texts that only a failure prints."""

from __future__ import annotations

import re

from profiler.model import Failure, FailureKind

K = FailureKind

#: (literal that every such line holds, pattern of the whole, kind). The literal is searched in the line without its
#: digits, so it holds none. First match wins: the more telling first.
_SIGNS: tuple[tuple[str, str, FailureKind], ...] = (
    ("CUDA out of memory", r"CUDA out of memory", K.OUT_OF_MEMORY),
    ("OutOfMemoryError", r"OutOfMemoryError", K.OUT_OF_MEMORY),
    ("CUDA_ERROR_OUT_OF_MEMORY", r"^(?!.*(?i:failed to allocate )).*CUDA_ERROR_OUT_OF_MEMORY", K.OUT_OF_MEMORY),
    ("ResourceExhaustedError", r"ResourceExhaustedError", K.OUT_OF_MEMORY),
    (  # not where JAX takes less then, and goes on
        "RESOURCE_EXHAUSTED",
        r"^(?!.*\.cc:\d+\] .*Failed to allocate device memory).*RESOURCE_EXHAUSTED.*(?:memory|OOM|allocat)",
        K.OUT_OF_MEMORY,
    ),
    ("OOM when allocating", r"OOM when allocating", K.OUT_OF_MEMORY),
    ("oom-kill", r"oom-kill|oom_kill", K.OUT_OF_MEMORY),
    ("oom_kill", r"oom_kill", K.OUT_OF_MEMORY),
    ("OOM Killed", r"OOM Killed", K.OUT_OF_MEMORY),
    ("OOMKilled", r"OOMKilled", K.OUT_OF_MEMORY),
    ("OUT_OF_MEMORY", r"\bOUT_OF_MEMORY\b", K.OUT_OF_MEMORY),
    ("Out of memory: Kill", r"Out of memory: Kill", K.OUT_OF_MEMORY),
    (
        "out of memory",
        r"^(?!.*(?:[Ff]ailed to allocate |ran out of memory trying))"
        r".*(?i:(?:hip|cuda|cudnn|cudaMalloc|gpu|host|device).{0,40}out of memory)",
        K.OUT_OF_MEMORY,
    ),
    ("MemoryError", r"^\s*(?:[\w.]+\.)?(?:_ArrayMemoryError|MemoryError)\b", K.OUT_OF_MEMORY),
    ("DefaultCPUAllocator", r"DefaultCPUAllocator: (?:can't|not enough) ", K.OUT_OF_MEMORY),
    ("memory limit", r"(?i)exceeded .{0,20}memory limit|memory limit exceeded", K.OUT_OF_MEMORY),
    ("beyond the 'PHYSICAL' memory", r"running beyond the 'PHYSICAL' memory", K.OUT_OF_MEMORY),
    ("No space left on device", r"No space left on device", K.NO_SPACE),
    ("Disk quota exceeded", r"Disk quota exceeded", K.NO_SPACE),
    ("ENOSPC", r"\bENOSPC\b", K.NO_SPACE),
    ("DUE TO TIME LIMIT", r"DUE TO TIME LIMIT", K.TIME_LIMIT),
    ("time limit", r"(?i)(?:job|walltime|exceeded).{0,30}time limit", K.TIME_LIMIT),
    ("walltime", r"(?i)walltime.{0,30}exceeded|exceeded.{0,30}walltime", K.TIME_LIMIT),
    ("DeadlineExceeded", r"DeadlineExceeded", K.TIME_LIMIT),
    ("NODE FAILURE", r"NODE FAILURE", K.NODE_FAILURE),
    ("NODE_FAIL", r"\bNODE_FAIL\b", K.NODE_FAILURE),
    ("Node failure", r"(?i)node failure", K.NODE_FAILURE),
    ("node failure", r"(?i)node failure", K.NODE_FAILURE),
    ("lost node", r"(?i)\blost node\b", K.NODE_FAILURE),
    ("fell off the bus", r"GPU has fallen off the bus|fell off the bus", K.NODE_FAILURE),
    ("fallen off the bus", r"GPU has fallen off the bus", K.NODE_FAILURE),
    ("uncorrectable ECC", r"uncorrectable ECC error", K.NODE_FAILURE),
    ("CANCELLED AT", r"\*\*\* .*CANCELLED AT", K.KILLED),
    ("DUE TO PREEMPTION", r"DUE TO PREEMPTION", K.KILLED),
    ("Killed", r"^\s*(?:.*\bline \S+:\s+\S+ )?Killed(?:\s|$)|: task .*: Killed|signal \S+ \(Killed\)", K.KILLED),
    ("SIGKILL", r"\bSIGKILL\b", K.KILLED),
    (
        "SIGTERM",
        # not where a launcher ends the processes beside the one that failed
        r"(?i)^(?!.*\bclosing signal)"
        r".*(?:(?:received|got|signal|killed|terminated|exception).{0,40}SIGTERM|SIGTERM.{0,30}received)",
        K.KILLED,
    ),
    (
        "signal ",
        r"exited on signal|(?:killed|terminated) by signal|died with <Signals|Caught signal",
        K.KILLED,
    ),
    ("death signal", r"[Rr]eceived \S+ death signal", K.KILLED),
    ("Signals.", r"died with <Signals\.", K.KILLED),
    ("Segmentation fault", r"Segmentation fault", K.KILLED),
    ("core dumped", r"core dumped", K.KILLED),
    ("KeyboardInterrupt", r"KeyboardInterrupt", K.KILLED),
    ("Terminated", r"^\s*(?:.*\bline \S+:\s+\S+ )?Terminated\b(?! at \w)|: Terminated$", K.KILLED),
    ("Container killed", r"Container killed", K.KILLED),
    ("ChildFailedError", r"ChildFailedError", K.TRACEBACK),
    ("Traceback (most recent call last)", r"Traceback \(most recent call last\)", K.TRACEBACK),
    ("DataLoader worker", r"DataLoader worker .* is killed by signal", K.KILLED),
    ("unhandled cuda error", r"(?i)unhandled (?:cuda|system) error", K.TRACEBACK),
    ("CUDA error", r"RuntimeError: CUDA error", K.TRACEBACK),
    ("terminate called", r"terminate called (?:after throwing|without)", K.TRACEBACK),
    ("NaN loss", r"(?i)(?:NaN loss|loss (?:is|became|was|diverged).{0,10}nan)", K.NAN_LOSS),
    ("NanLossDuringTrainingError", r"NanLossDuringTrainingError", K.NAN_LOSS),
    ("Loss is ", r"(?i)loss is (?:nan|inf)\b.*(?:stop|exit|abort|terminat)", K.NAN_LOSS),
)
_COMPILED = tuple((literal, re.compile(pattern), kind) for literal, pattern, kind in _SIGNS)
LONGEST = 2000  #: characters of a line that are looked at, and
_SHOWN = 300  #: that are kept


#: Parts of the literals, so few that asking for them costs little.
GATES = (
    *(
        "emory",
        "rror",
        "MEM",
        "EXHAUST",
        "OOM",
        "oom",
        "space left",
        "quota",
        "ENOSPC",
        "imit",
        "LIMIT",
        "alltime",
    ),
    *(
        "xceeded",
        "FAIL",
        "ailure",
        "lost node",
        "the bus",
        " ECC",
        "CANCELLED",
        "PREEMPT",
        "illed",
        "SIG",
        "ignal",
    ),
    *(
        "fault",
        "dumped",
        "Interrupt",
        "erminate",
        "Traceback",
        "CPUAlloc",
        "NaN loss",
        "Loss is ",
        "DataLoader worker",
    ),
)


def suspects(key: str) -> bool:
    """Whether a line (without its digits) may say a failure: the cheap test, behind the gates."""
    return any(literal in key for literal, _, _ in _SIGNS)


def find(text: str, line: int) -> Failure | None:
    """The failure that a line tells, or None."""
    text = text[:LONGEST]
    for _, pattern, kind in _COMPILED:
        if pattern.search(text):
            return Failure(kind, line, text.strip()[:_SHOWN])
    return None
