"""The documented exit codes, and the words a failure is told in."""

from __future__ import annotations

import errno
import os
import re
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

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
#: What a failure as JSON calls them.
WORDS = {
    NO: "no",
    USAGE: "usage",
    BAD_FILE: "bad-input",
    NO_SUCH_JOB: "no-such-job",
    NOT_ALLOWED: "not-allowed",
    UNREACHABLE: "unreachable",
    BUG: "bug",
}
#: Of a value that was refused, so much is repeated.
_LONGEST_VALUE = 60


class Failure(Exception):
    """Ends a command with a code of this module. `text` is for a person; `remedy` says what to do."""

    def __init__(self, code: int, text: str, remedy: str = "") -> None:
        self.code, self.text, self.remedy = code, text, remedy
        super().__init__(text)


class Told(NamedTuple):
    """A failure in words, and the code to end with."""

    code: int
    text: str
    remedy: str = ""
    field: str = ""


def explain(error: Exception, arguments: Sequence[str]) -> int:
    """Say on standard error what went wrong, as JSON on standard output too where that was asked for and nothing else
    stands there, and return the exit code for it."""
    told = _told(error, arguments)
    say(told.text, told.remedy)
    if wants_json(arguments) and not getattr(sys.stdout, "written", False):
        from horae.tui import screen

        said = {name: text for name, text in (("field", told.field), ("remedy", told.remedy)) if text}
        screen.emit_json({"error": {"code": WORDS[told.code], "message": told.text, **said, "exit_code": told.code}})
    return told.code


def unwritten(error: OSError, arguments: Sequence[str]) -> int:
    """Standard output, or standard error, takes no more."""
    # Python would say so again when it flushes at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):  # the reader of our output (head, less) has left
        return DONE
    return explain(Failure(BAD_FILE, f"the output cannot be written: {error.strerror}"), arguments)


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether `--json` stands among them; what follows `--` is a program's."""
    return "--json" in arguments[: arguments.index("--") if "--" in arguments else None]


def _told(error: Exception, arguments: Sequence[str]) -> Told:
    if isinstance(error, Failure):
        return Told(error.code, error.text, error.remedy)
    if isinstance(error, BadInput):
        text = error.words(_with_value(error.message, error.field, error.value))
        return Told(BAD_FILE, text, "" if error.remedy in text else error.remedy, error.field)
    for refused in (_of_an_installation, _of_a_cluster, _of_a_policy, _from_arbiter, _of_the_words, _of_the_folder):
        if (told := refused(error)) is not None:
            return told
    if isinstance(error, OSError) and error.filename is not None:
        # A path that the user gave: the system's own words name the trouble.
        code = NOT_ALLOWED if isinstance(error, PermissionError) else BAD_FILE
        return Told(code, f"{os.fsdecode(error.filename)}: {error.strerror}")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        return Told(BAD_FILE, f"a file cannot be read or written whole: {error.strerror}")
    return _bug(error, arguments)


def _of_an_installation(error: Exception) -> Told | None:
    """A package that is missing, or that another stands in the place of."""
    if not isinstance(error, ImportError):
        return None
    from horae import extras

    if isinstance(error, ModuleNotFoundError) and extras.is_extra(error):
        return Told(BAD_FILE, str(extras.missing(error)))
    why = extras.displaced()
    return Told(BAD_FILE, str(error), why) if why else None


def _of_a_cluster(error: Exception) -> Told | None:
    """What a cluster refused. Looked up only where one was spoken to."""
    if "horae.port" not in sys.modules:
        return None
    from horae.port import FixConfiguration, PortError, TryLater

    if isinstance(error, TryLater):
        return Told(UNREACHABLE, error.text, f"try again in {error.retry_after_s:g} s")
    if isinstance(error, PortError):
        return Told(UNREACHABLE if isinstance(error, FixConfiguration) else NO, str(error))
    return None


def _of_a_policy(error: Exception) -> Told | None:
    """What another package's policy did is not our bug: its author is told where. Looked up only where one ran."""
    if "policy.decide" not in sys.modules:
        return None
    from policy import catalogue
    from policy.decide import PolicyFailed

    if not isinstance(error, PolicyFailed) or catalogue.is_own(entry := catalogue.find(error.policy)):
        return None
    where = _written(error.detail, "its traceback is in")
    return Told(NO, str(error), f"it is not one of Horae's: {entry.call}. {where}")


def _from_arbiter(error: Exception) -> Told | None:
    """What the arbiter refused, or that there is none. Looked up only where the client was loaded."""
    if "horae.api.client" not in sys.modules:
        return None
    from horae.api.client import Unreachable
    from horae.api.errors import ApiError, Code

    if isinstance(error, Unreachable):
        return Told(UNREACHABLE, error.text, error.remedy)
    if not isinstance(error, ApiError):
        return None
    field = str(error.more.get("field") or "")
    message = _with_value(error.message, field, error.more.get("value"))
    code = {
        Code.BAD_INPUT: BAD_FILE,
        Code.TOO_LARGE: BAD_FILE,
        Code.NO_SUCH_JOB: NO_SUCH_JOB,
        Code.NOT_ALLOWED: NOT_ALLOWED,
        Code.TRY_LATER: UNREACHABLE,
        Code.CONFIGURATION: UNREACHABLE,
        Code.BUG: BUG,
    }.get(error.code, NO)
    return Told(code, f"{field}: {message}" if field else message, error.remedy, field)


def _of_the_words(error: Exception) -> Told | None:
    """What the command line itself refuses, where it was asked not to say it alone."""
    words = getattr(error, "format_message", None)
    return None if words is None else Told(USAGE, words(), "`--help` shows the options")


def _of_the_folder(error: Exception) -> Told | None:
    """The one that the caller is in, which somebody removed: it is not found, and has no name."""
    if not isinstance(error, FileNotFoundError) or error.filename is not None:
        return None
    try:
        Path.cwd()
    except FileNotFoundError:
        return Told(BAD_FILE, "the folder that you are in is not there any more", "cd into another one")
    return None


def _with_value(message: str, field: str, value: object) -> str:
    """With the value that was given for the field, where the message does not say it."""
    if not field or not isinstance(value, str | int | float):
        return message
    text = value if isinstance(value, str) else repr(value)
    # A letter or two stand in any sentence: they are told when they stand there as a value.
    said = re.search(rf"(?<!\w){re.escape(text)}(?!\w)", message) is not None  # and not as a part of another word
    if not text or repr(value) in message or (len(text) > 2 and said):
        return message
    shown = text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "..."
    return f"{message}, got {shown!r}"


def say(text: str, remedy: str = "") -> None:
    text, remedy = visible.below(text), visible.below(remedy)
    red, off = ("\x1b[1;31m", "\x1b[0m") if sys.stderr.isatty() and "NO_COLOR" not in os.environ else ("", "")
    with suppress(visible.Unwritten):  # the exit code alone tells it then
        print(f"{red}horae:{off} {text}" + (f"\n       {remedy}" if remedy else ""), file=sys.stderr)


def _bug(error: Exception, arguments: Sequence[str]) -> Told:
    import platform
    import traceback

    report = "".join(
        [
            f"horae {__version__}, Python {platform.python_version()}, {platform.platform()}\n",
            f"time: {time.strftime('%Y-%m-%dT%H:%M:%S%z')}\n",
            f"command: horae {_without_values(arguments)}\n\n",
            *traceback.format_exception(error),
        ]
    )
    return Told(BUG, f"this is a bug, sorry: {type(error).__name__}: {error}", _written(report))


def _without_values(arguments: Sequence[str]) -> str:
    """A command line as others may see it: which command it is, and its options by their names. The rest may be
    anything of whose it is: a program with its keys, names, paths."""
    shown: list[str] = []
    for word in arguments:
        name = re.match(r"--[a-z-]+|-[A-Za-z]", word)
        if name is not None:
            shown.append(name[0])
        elif not shown and re.fullmatch("[a-z-]+", word):
            shown.append(word)
        else:
            shown.append("...")
        if word == "--":
            break
    return " ".join(shown)


def _written(report: str, what: str = "") -> str:
    """Where the report went, in words. A full or read-only disk must not hide the bug itself."""
    import tempfile

    name = f"horae-bug-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    try:
        path = Path(tempfile.gettempdir()) / name
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", errors="backslashreplace") as file:
            file.write(report)
    except OSError as error:
        return f"the report could not be written ({error.strerror}); it follows\n{report}"
    return f"{what} {path}" if what else f"please send {path} with the steps that led here"
