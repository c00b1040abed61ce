"""The documented exit codes, and the words a failure is told in."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from horae import __version__, visible
from policy.errors import BadInput

DONE = 0
NO = 1  #: the answer is no, or some inputs were bad
USAGE = 2
BAD_FILE = 3
NO_SUCH_JOB = 4
NOT_ALLOWED = 5
UNREACHABLE = 6
BUG = 70
INTERRUPTED = 130
#: Of a value that was refused, so much is repeated.
_LONGEST_VALUE = 60


class Failure(Exception):
    """Ends a command with a code of this module. `text` is for a person; `remedy` says what to do."""

    def __init__(self, code: int, text: str, remedy: str = "") -> None:
        self.code, self.text, self.remedy = code, text, remedy
        super().__init__(text)


def explain(error: Exception, arguments: Sequence[str]) -> int:
    """Say on standard error what went wrong and return the exit code for it."""
    if isinstance(error, Failure):
        say(error.text, error.remedy)
        return error.code
    if isinstance(error, BadInput):
        text = error.words(_with_value(error.message, error.field, error.value))
        say(text, "" if error.remedy in text else error.remedy)
        return BAD_FILE
    for refused in (_of_an_installation, _of_a_cluster, _of_a_policy, _from_arbiter):
        if (code := refused(error)) is not None:
            return code
    if isinstance(error, OSError) and error.filename is not None:
        # A path that the user gave: the system's own words name the trouble.
        say(f"{os.fsdecode(error.filename)}: {error.strerror}")
        return NOT_ALLOWED if isinstance(error, PermissionError) else BAD_FILE
    return _bug(error, arguments)


def _of_an_installation(error: Exception) -> int | None:
    """A package that is missing, or that another stands in the place of."""
    if not isinstance(error, ImportError):
        return None
    from horae import extras

    if isinstance(error, ModuleNotFoundError) and extras.is_extra(error):
        say(str(extras.missing(error)))
        return BAD_FILE
    if why := extras.displaced():
        say(str(error), why)
        return BAD_FILE
    return None


def _of_a_cluster(error: Exception) -> int | None:
    """What a cluster refused. Looked up only where one was spoken to."""
    if "horae.port" not in sys.modules:
        return None
    from horae.port import FixConfiguration, PortError, TryLater

    if isinstance(error, TryLater):
        say(error.text, f"try again in {error.retry_after_s:g} s")
        return UNREACHABLE
    if isinstance(error, FixConfiguration):
        say(str(error))
        return UNREACHABLE
    if isinstance(error, PortError):
        say(str(error))
        return NO
    return None


def _of_a_policy(error: Exception) -> int | None:
    """What another package's policy did is not our bug: its author is told where. Looked up only where one ran."""
    if "policy.decide" not in sys.modules:
        return None
    from policy import catalogue
    from policy.decide import PolicyFailed

    if not isinstance(error, PolicyFailed) or catalogue.is_own(entry := catalogue.find(error.policy)):
        return None
    say(str(error), f"it is not one of Horae's: {entry.call}. {_written(error.detail, 'its traceback is in')}")
    return NO


def _from_arbiter(error: Exception) -> int | None:
    """What the arbiter refused, or that there is none. Looked up only where the client was loaded."""
    if "horae.api.client" not in sys.modules:
        return None
    from horae.api.client import Unreachable
    from horae.api.errors import ApiError, Code

    if isinstance(error, Unreachable):
        say(error.text, error.remedy)
        return UNREACHABLE
    if not isinstance(error, ApiError):
        return None
    field = str(error.more.get("field") or "")
    message = _with_value(error.message, field, error.more.get("value"))
    say(f"{field}: {message}" if field else message, error.remedy)
    return {
        Code.BAD_INPUT: BAD_FILE,
        Code.TOO_LARGE: BAD_FILE,
        Code.NO_SUCH_JOB: NO_SUCH_JOB,
        Code.NOT_ALLOWED: NOT_ALLOWED,
        Code.TRY_LATER: UNREACHABLE,
        Code.CONFIGURATION: UNREACHABLE,
        Code.BUG: BUG,
    }.get(error.code, NO)


def _with_value(message: str, field: str, value: object) -> str:
    """With the value that was given for the field, where the message does not say it."""
    if not field or not isinstance(value, str | int | float):
        return message
    text = value if isinstance(value, str) else repr(value)
    if not text or text in message:
        return message
    shown = text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "..."
    return f"{message}, got {shown!r}"


def say(text: str, remedy: str = "") -> None:
    text, remedy = visible.lines(text), visible.lines(remedy)
    red, off = ("\x1b[1;31m", "\x1b[0m") if sys.stderr.isatty() and "NO_COLOR" not in os.environ else ("", "")
    print(f"{red}horae:{off} {text}" + (f"\n       {remedy}" if remedy else ""), file=sys.stderr)


def _bug(error: Exception, arguments: Sequence[str]) -> int:
    import platform
    import traceback

    report = "".join(
        [
            f"horae {__version__}, Python {platform.python_version()}, {platform.platform()}\n",
            f"time: {time.strftime('%Y-%m-%dT%H:%M:%S%z')}\n",
            f"command: horae {' '.join(arguments)}\n\n",
            *traceback.format_exception(error),
        ]
    )
    say(f"this is a bug, sorry: {type(error).__name__}: {error}", _written(report))
    return BUG


def _written(report: str, what: str = "") -> str:
    """Where the report went, in words. A full or read-only disk must not hide the bug itself."""
    import tempfile

    name = f"horae-bug-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    try:
        path = Path(tempfile.gettempdir()) / name
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(report)
    except OSError as error:
        return f"the report could not be written ({error.strerror}); it follows\n{report}"
    return f"{what} {path}" if what else f"please send {path} with the steps that led here"
