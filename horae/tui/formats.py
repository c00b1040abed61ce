"""`status --format`: squeue's letters, over a job as the API tells it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from horae import job_number, visible
from horae.tui import forms, screen
from policy.errors import BadInput

if TYPE_CHECKING:
    from policy.model import Seconds

Job = Mapping[str, Any]


#: Codes of decisions that give GPUs: what keeps such a job is another thing.
_GIVES = ("granted", "kept", "grew", "shrank", "moved")


def reason(job: Job) -> str:
    """Why it does not run: the decision's code where that is what keeps it, and a sentence."""
    keeps = job["code"] not in (None, *_GIVES) and not job["ended"] and job["state"] == "queued"
    code = f"{job['code']}: " if keeps else ""
    return f"{code}{job['why']}" if job["why"] else ""


def place(job: Job) -> str:
    """The nodes, or in parentheses why there are none."""
    if sum(job["allocation"].values()):
        return forms.allocation(job["allocation"])
    return f"({reason(job)})" if reason(job) else ""


def stamp(wall_s: Seconds | None) -> str:
    """As squeue writes a time; `N/A` for one that is not known."""
    return "N/A" if wall_s is None else time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(wall_s))


def _done(job: Job) -> str:
    return f"{min(job['step'] / job['total'], 1.0):.0%}" if job["step"] is not None and job["total"] else "-"


#: letter -> (head, text)
LETTERS: dict[str, tuple[str, Callable[[Job], str]]] = {
    "i": ("JOBID", lambda j: job_number(j["id"])),
    "j": ("NAME", lambda j: j["name"]),
    "a": ("TENANT", lambda j: j["tenant"]),
    "u": ("USER", lambda j: j["owner"]),
    "P": ("POOL", lambda j: j["pool"]),
    "t": ("ST", lambda j: screen.LETTERS.get(j["state"], str(j["state"]))),
    "T": ("STATE", lambda j: j["state"].upper()),
    "b": ("GPUS", lambda j: str(sum(j["allocation"].values()))),
    "G": ("RANGE", lambda j: j["range"]),
    "D": ("NODES", lambda j: str(len(j["allocation"]))),
    "N": ("NODELIST", lambda j: forms.allocation(j["allocation"])),
    "R": ("NODELIST(REASON)", place),
    "r": ("REASON", reason),
    "M": ("TIME", lambda j: forms.duration(j["ran_s"])),
    "L": ("TIME_LEFT", lambda j: forms.duration(j["time_left_s"])),
    "V": ("SUBMIT_TIME", lambda j: stamp(j["submitted_s"])),
    "S": ("START_TIME", lambda j: stamp(j.get("start_s"))),
    "p": ("DONE", _done),
    "Q": ("PRIORITY", lambda j: f"{j['priority']}{'!' * (j['precedence'] > 0)}"),
    "e": ("EXIT", lambda j: "-" if j["exit_code"] is None else str(j["exit_code"])),
}
_FIELD = re.compile(r"%(\.?)(\d{0,4})(.?)")


@dataclass(frozen=True, slots=True)
class Pattern:
    text: str

    def header(self) -> str:
        return self._filled(lambda head, _: head)

    def line(self, job: Job) -> str:
        return self._filled(lambda _, make: visible.neutral(make(job)))

    def _filled(self, text: Callable[[str, Callable[[Job], str]], str]) -> str:
        def one(found: re.Match[str]) -> str:
            right, width, letter = found.groups()
            shown = text(*LETTERS[letter])
            if not width:
                return shown
            return shown[: int(width)].rjust(int(width)) if right else shown[: int(width)].ljust(int(width))

        return _FIELD.sub(one, self.text)


def read(text: str) -> Pattern:
    """`%[[.]width]letter` and what stands between. Raises BadInput."""
    found = list(_FIELD.finditer(text))
    wrong = [field[0] for field in found if field[3] not in LETTERS]
    if wrong or not found:
        raise BadInput(
            "is no field" if wrong else "names no field",
            field="--format",
            value=wrong[0] if wrong else text,
            remedy=f"write %[[.]width]letter with a letter of {' '.join(LETTERS)}",
        )
    return Pattern(text)
