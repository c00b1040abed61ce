"""The other end of the socket: the verbs of `verbs.py`, answers as plain JSON data. The command line uses nothing else.

Raises `ApiError` for what the arbiter refuses and `Unreachable` when nobody answers.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from horae import __version__
from horae.api.errors import ApiError, Code, from_answer
from horae.api.verbs import ApiVerb, Returns, Verbs

if TYPE_CHECKING:
    from horae.port import LogChunk
    from policy.model import Seconds

#: Of what a person typed, bytes that are no text.
_NO_TEXT = "backslashreplace"
#: What an arbiter says of a key of a job that it does not know.
_UNKNOWN_KEY = re.compile(r"unknown key '(\w+)'")
#: Where an arbiter's socket is looked for when nobody says, first first.
PLACES = ("$XDG_RUNTIME_DIR/horae/api.sock", "/run/horae/api.sock")


class Unreachable(Exception):
    """No arbiter answers there. `text` and `remedy` are for people."""

    def __init__(self, text: str, remedy: str) -> None:
        self.text, self.remedy = text, remedy
        super().__init__(text)


def find_socket(given: Path | None = None, cluster: str | None = None) -> Path:
    """The socket to call: given, else `$HORAE_SOCKET`, else the first of `PLACES` that exists.

    `cluster`: where several arbiters run on a host, each has a socket of its cluster's kind: `yarn.sock`.
    """
    if given is not None:
        return given
    if named := os.environ.get("HORAE_SOCKET"):
        return Path(named)
    own = [place.replace("api.sock", f"{cluster}.sock") for place in PLACES if cluster is not None]
    for place in (*own, *PLACES):
        path = Path(os.path.expandvars(place))
        if (
            path.is_absolute() and path.exists()
        ):  # without the variable its name would be a folder's, of wherever one is
            return path
    raise Unreachable(
        f"no arbiter found: $HORAE_SOCKET is not set, and there is no {' or '.join(PLACES)}",
        "start one with `horae serve`, try `horae demo`, or say --socket PATH",
    )


class Client(Verbs):
    """A connection a question: short, so that an arbiter that restarts in between is no matter."""

    def __init__(self, socket: Path, timeout_s: Seconds = 30.0) -> None:
        self.socket, self.timeout_s = socket, timeout_s

    # --- beside the verbs themselves ----------------------------------------------------------------------

    def submit(self, jobs: Sequence[Mapping[str, Any]]) -> list[str]:
        """The numbers of the new jobs, in order. All are taken, or none."""
        return list(self.hand_in(jobs)["jobs"])

    def log(self, job: str, *, offset: int = 0) -> Iterator[bytes]:
        """The job's output from `offset` to its present end."""
        return (data for data, _ in self.log_parts(job, offset=offset))

    def log_parts(self, job: str, *, offset: int = 0) -> Iterator[tuple[bytes, int]]:
        """The same, each part with the offset behind it: where to go on later."""
        while True:
            part = self.log_part(job, offset=offset)
            offset = part.next_offset
            if part.data:
                yield part.data, offset
            if part.eof or not part.data:
                return

    def ask(self, verb: ApiVerb, said: Mapping[str, Any]) -> Any:
        path = verb.path.format_map({name: _word(str(value)) for name, value in said.items() if verb.in_path(name)})
        more = {name: value for name, value in said.items() if not verb.in_path(name) and value is not None}
        try:
            answer = self._send(verb.method, path, more)
        except ApiError as error:
            raise self._told(error, verb) from None
        if verb.returns is Returns.BYTES:
            return _log_chunk(answer)
        if verb.returns is not Returns.JSON:
            return answer.body.decode()
        found = self._object(answer)
        return found[verb.under] if verb.under else found

    def _told(self, error: ApiError, verb: ApiVerb) -> ApiError:
        """As it is; or that the arbiter is older, where nothing is at a path that this version has, or a key of a job
        is unknown that this version writes."""
        if error.code is Code.NOT_FOUND and verb.name != "about":
            return self._older(error, f"`{verb.name}`")
        unknown = _UNKNOWN_KEY.match(error.message) if error.code is Code.BAD_INPUT else None
        if unknown is None:
            return error
        from horae.job_form import JobForm

        return self._older(error, f"`{unknown[1]}` of a job") if unknown[1] in JobForm.model_fields else error

    def _older(self, error: ApiError, what: str) -> ApiError:
        text = f"the arbiter at {self.socket} is Horae {self.about()['version']} and does not know {what}"
        remedy = f"this is Horae {__version__}: an arbiter runs the code that it was started with, restart it"
        return ApiError(error.status, error.code, text, remedy=remedy)

    # --- the wire -----------------------------------------------------------------------------------------

    def _object(self, answer: _Answer) -> dict[str, Any]:
        try:
            found = json.loads(answer.body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ApiError(502, Code.BUG, f"{self.socket} answered something that is no arbiter's")
        return found

    def _send(self, method: str, path: str, said: Mapping[str, Any]) -> _Answer:
        body, headers = None, {}
        if method == "POST":
            body, headers = json.dumps(said).encode(), {"Content-Type": "application/json"}
        elif said:
            words = {k: str(v).lower() if isinstance(v, bool) else v for k, v in said.items()}
            path += "?" + urlencode(words, errors=_NO_TEXT)
        connection = _UnixConnection(self.socket, self.timeout_s)
        try:
            with suppress(
                BrokenPipeError, ConnectionResetError
            ):  # what is too large is refused before it is sent whole
                connection.request(method, path, body, headers)
            response = connection.getresponse()
            answer = _Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from None
        finally:
            connection.close()
        if 200 <= answer.status < 300:
            return answer
        try:
            data = json.loads(answer.body)
        except ValueError:
            data = {}
        raise from_answer(answer.status, data if isinstance(data, dict) else {})

    def _unreachable(self, error: Exception) -> Unreachable:
        if isinstance(error, TimeoutError):
            return Unreachable(f"the arbiter at {self.socket} does not answer", "try again; see `horae doctor`")
        if isinstance(error, FileNotFoundError):
            return Unreachable(f"there is no socket {self.socket}", "start an arbiter with `horae serve`")
        if isinstance(error, ConnectionRefusedError):
            return Unreachable(f"no arbiter listens on {self.socket}", "it has ended, its jobs run on: start it again")
        if isinstance(error, PermissionError):
            return Unreachable(f"{self.socket}: permission denied", "ask an operator for access to its folder")
        return Unreachable(f"the arbiter at {self.socket} broke off: {error}", "try again")


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


class _UnixConnection(HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path, timeout_s: Seconds) -> None:
        super().__init__("horae", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        until = time.monotonic() + (self.timeout or 0.0)
        while True:
            try:
                return self.sock.connect(os.fspath(self._path))
            except BlockingIOError:  # others are in line before us: the kernel says so at once, and does not wait
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)


def _log_chunk(answer: _Answer) -> LogChunk:
    from horae.port import LogChunk

    ended = answer.headers["x-end"] == "true"
    return LogChunk(answer.body, int(answer.headers["x-next-offset"]), eof=ended)


def _word(text: str) -> str:
    """One path segment."""
    return quote(text, safe="", errors=_NO_TEXT) or "%00"
