"""What a refusal looks like: one JSON form for every failure.

    {"error": {"code": "bad-input", "message": "...", "field": "gpus.min", "value": 0, "remedy": "..."}}

Codes are a closed set, so that scripts may switch on them. Light: the command line imports it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from horae.port import FixConfiguration, PortError, TryLater
from policy.model import BadInput


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


def no_such_job(job: str) -> ApiError:
    return ApiError(404, Code.NO_SUCH_JOB, f"there is no job {job}", remedy="`horae status --all` lists the jobs")


def not_allowed(what: str, remedy: str = "") -> ApiError:
    return ApiError(403, Code.NOT_ALLOWED, what, remedy=remedy or "ask its owner or an operator")


def body(code: Code, message: str, **more: Any) -> dict[str, Any]:
    """The JSON form; empty entries are left out."""
    return {"error": {"code": code.value, "message": message, **{k: v for k, v in more.items() if v not in (None, "")}}}


def as_error(error: BaseException) -> ApiError | None:
    """The refusal for an exception that was foreseen, None for a bug."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, BadInput):
        more = {"field": error.field, "line": error.line, "value": shown(error.value)}
        return ApiError(422, Code.BAD_INPUT, error.message, remedy=error.remedy, **more)
    if isinstance(error, TryLater):
        return ApiError(503, Code.TRY_LATER, error.text, retry_after_s=error.retry_after_s)
    if isinstance(error, FixConfiguration):
        return ApiError(503, Code.CONFIGURATION, error.text, remedy=error.remedy)
    if isinstance(error, PortError):
        return ApiError(409, Code.REFUSED, error.text)
    return None


def shown(value: object, most: int = 200) -> Any:
    """A value that can be sent back: short, and JSON."""
    if value is None or isinstance(value, bool | int):
        return value
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= most else text[:most] + "..."


def from_answer(status: int, data: Mapping[str, Any]) -> ApiError:
    """The other direction, for the client."""
    found = dict(data.get("error", {}))
    try:
        code = Code(found.pop("code", "bug"))
    except ValueError:
        code = Code.BUG
    message = str(found.pop("message", f"the arbiter answered {status}"))
    return ApiError(status, code, message, remedy=str(found.pop("remedy", "")), **found)
