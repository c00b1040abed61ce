"""What a refusal looks like: one JSON form for every failure.

    {"error": {"code": "bad-input", "message": "...", "field": "gpus.min", "value": 0, "remedy": "..."}}

Codes are a closed set, so that scripts may switch on them. Light: the command line imports it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

_LONGEST = 200  #: characters of what was typed that are repeated


class Code(StrEnum):
    BAD_INPUT = "bad-input"
    NO_SUCH_JOB = "no-such-job"
    NOT_FOUND = "not-found"
    NOT_ALLOWED = "not-allowed"
    TOO_LARGE = "too-large"
    REFUSED = "refused"  #: never possible: the request must change
    TRY_LATER = "try-later"
    CONFIGURATION = "configuration"  #: an operator must mend something
    BUG = "bug"


class ApiError(Exception):
    """A refusal with a status of HTTP and a code of ours."""

    def __init__(self, status: int, code: Code, message: str, *, remedy: str = "", **more: Any) -> None:
        self.status, self.code, self.message, self.remedy, self.more = status, code, message, remedy, more
        super().__init__(message)


def no_such_job(job: str, remedy: str = "") -> ApiError:
    text = f"there is no job {job[:_LONGEST]}" + "..." * (len(job) > _LONGEST)
    return ApiError(404, Code.NO_SUCH_JOB, text, remedy=remedy or "`horae status --all` lists the jobs")


def body(code: Code, message: str, **more: Any) -> dict[str, Any]:
    """The JSON form; empty entries are left out."""
    return {"error": {"code": code.value, "message": message, **{k: v for k, v in more.items() if v not in (None, "")}}}


def from_answer(status: int, data: Mapping[str, Any]) -> ApiError:
    """The other direction, for the client."""
    found = dict(data.get("error", {}))
    try:
        code = Code(found.pop("code", "bug"))
    except ValueError:
        code = Code.BUG
    message = str(found.pop("message", f"the arbiter answered {status}"))
    return ApiError(status, code, message, remedy=str(found.pop("remedy", "")), **found)
