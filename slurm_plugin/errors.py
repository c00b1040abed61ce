"""Slurm's error sentences -> what the caller does next: wait, drop it, or mend the site.

Sentences are Slurm's own (`slurm_strerror`); the table is by meaning and the first match wins. What is not in it
is `TryLater`: a job must never be dropped because of a sentence that nobody has seen before.
"""

from __future__ import annotations

import re

from horae.port import FixConfiguration, Never, PortError, TryLater

_AWAY = re.compile(
    r"Unable to contact slurm controller|Socket timed out|Connection refused|Communication|"
    r"backup controller in standby|Zero Bytes were transmitted|Unexpected message received|"
    r"Connection timed out|Transport endpoint|Broken pipe|rate limit",
    re.IGNORECASE,
)
_BUSY = re.compile(r"Resource temporarily unavailable|try again", re.IGNORECASE)
_GONE = re.compile(r"Invalid job id|Job has already finished|already completing or completed", re.IGNORECASE)
_RIGHTS = re.compile(r"Access/permission denied|Invalid user id|User's group not permitted|not allowed", re.IGNORECASE)
_AUTH = re.compile(r"Protocol authentication error|munge|authentication|credential", re.IGNORECASE)
_VERSION = re.compile(r"Incompatible versions of client and server|Invalid RPC version", re.IGNORECASE)
_DISABLED = re.compile(r"Requested operation is presently disabled", re.IGNORECASE)
_SETUP = re.compile(r"Unable to establish configuration source|Could not establish a configuration", re.IGNORECASE)
#: of an update that is made all the same (26.05): the job stays pending until its partition can hold it
_MADE = re.compile(r"Requested partition configuration not available now", re.IGNORECASE)


class Gone(Never):
    """Slurm does not know this job (any more)."""


class ControllerAway(TryLater):
    """slurmctld itself does not answer, or wants to be asked less: everything waits, whatever client it goes by."""


def port_error(text: str, doing: str) -> PortError:
    """The error for Slurm's sentence `text`, met while `doing` something (a verb phrase for people)."""
    sentence = _tidy(text)
    said = f"{doing}: {sentence}" if sentence else f"{doing}: Slurm gave no reason"
    if _AWAY.search(sentence):
        return ControllerAway(said, retry_after_s=5.0)
    if _BUSY.search(sentence):
        return TryLater(said, retry_after_s=5.0)
    if _GONE.search(sentence):
        return Gone(said)
    if _SETUP.search(sentence):
        return FixConfiguration(said, "set SLURM_CONF, or install slurm.conf on this host")
    if _VERSION.search(sentence):
        return FixConfiguration(said, "the Slurm commands on this host are newer than slurmctld")
    if _RIGHTS.search(sentence):
        return FixConfiguration(said, "give Horae's account AdminLevel=Operator, see `horae doctor slurm`")
    if _AUTH.search(sentence):
        return FixConfiguration(said, "check munge (or the token) and the clocks of this host and slurmctld's")
    if _DISABLED.search(sentence):
        return FixConfiguration(said, "the job has Requeue=0, or its partition is gone from slurm.conf")
    return TryLater(said)


def is_refusal(text: str) -> bool:
    """Whether Slurm, which said this, did not do what it was asked."""
    return any(line.strip() and not _MADE.search(line) for line in text.splitlines())


def _tidy(text: str) -> str:
    lines = (re.sub(r"^\w+: (?:error: |fatal: )?", "", line.strip()) for line in text.splitlines())
    return "; ".join(line for line in lines if line)
