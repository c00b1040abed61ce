"""The other end of the socket: one method a question, answers as plain JSON data. The command line uses nothing else.

Raises `ApiError` for what the arbiter refuses and `Unreachable` when nobody answers.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from horae.api.errors import ApiError, Code, from_answer

if TYPE_CHECKING:
    from policy.model import Seconds

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
        if path.exists():
            return path
    raise Unreachable(
        f"no arbiter found: $HORAE_SOCKET is not set, and there is no {' or '.join(PLACES)}",
        "start one with `horae serve`, try `horae demo`, or say --socket PATH",
    )


class Client:
    """A connection a question: short, so that an arbiter that restarts in between is no matter."""

    def __init__(self, socket: Path, timeout_s: Seconds = 30.0) -> None:
        self.socket, self.timeout_s = socket, timeout_s

    # --- questions ----------------------------------------------------------------------------------------

    def about(self) -> dict[str, Any]:
        return self._object("GET", "/v1/about")

    def status(self, *, ended: bool = False, losses: bool = False, starts: bool = False) -> dict[str, Any]:
        """Jobs, nodes, tenants, pools and alerts; `ended`: also jobs that ended, `losses`: with loss curves,
        `starts`: with estimated starts."""
        return self._object("GET", "/v1/status", params={"ended": ended, "losses": losses, "starts": starts})

    def job(self, job: str) -> dict[str, Any]:
        return self._object("GET", f"/v1/jobs/{_word(job)}")

    def report(self, job: str) -> dict[str, Any]:
        """What became of its GPU time: GPU-s held, trained and in starts and stops; what would have been better."""
        return self._object("GET", f"/v1/jobs/{_word(job)}/report")

    def explain(self, job: str) -> dict[str, Any]:
        return self._object("GET", f"/v1/jobs/{_word(job)}/explain")

    def history(
        self, *, job: str | None = None, after: int | None = None, since_s: Seconds | None = None, limit: int = 1000
    ) -> list[dict[str, Any]]:
        """Events, oldest first; `after`: newer than this number, `since_s`: in the last so many seconds."""
        params = {"job": job, "after": after, "since_s": since_s, "limit": limit}
        found = self._object("GET", "/v1/history", params={k: v for k, v in params.items() if v is not None})
        return list(found["events"])

    def log(self, job: str, *, offset: int = 0) -> Iterator[bytes]:
        """The job's output from `offset` to its present end."""
        return (data for data, _ in self.log_parts(job, offset=offset))

    def log_parts(self, job: str, *, offset: int = 0) -> Iterator[tuple[bytes, int]]:
        """The same, each part with the offset behind it: where to go on later."""
        while True:
            response = self._send("GET", f"/v1/jobs/{_word(job)}/log", params={"offset": offset})
            offset = int(response.headers["x-next-offset"])
            if response.body:
                yield response.body, offset
            if response.headers["x-end"] == "true" or not response.body:
                return

    def snapshot(self, pool: str | None = None) -> str:
        """The instance file of what the policy sees now."""
        return self._send("GET", "/v1/snapshot", params={} if pool is None else {"pool": pool}).body.decode()

    def config(self) -> dict[str, Any]:
        return self._object("GET", "/v1/config")

    def metrics(self) -> str:
        return self._send("GET", "/metrics").body.decode()

    def apps(self) -> list[dict[str, Any]]:
        """Apps with their schedulers, phases and trials."""
        return list(self._object("GET", "/v1/apps")["apps"])

    # --- an app's own agent (horae.apps.agent plays the whole part) ---------------------------------------

    def register_agent(self, app: str) -> dict[str, Any]:
        return self._object("POST", "/v1/agents", json_body={"app": app})

    def leave_agent(self, app: str) -> dict[str, Any]:
        return self._object("POST", "/v1/agents/leave", json_body={"app": app})

    def offer(self, app: str, *, after: int = 0, wait_s: Seconds = 0.0) -> dict[str, Any]:
        """The app's jobs and, under `offer`, the open offer newer than `after`; waits up to `wait_s` for it."""
        return self._object("GET", "/v1/agents/offer", params={"app": app, "after": after, "wait_s": wait_s})

    def agent_instance(self, app: str) -> str:
        """What the app's agent may see of the policy's picture: an instance file."""
        return self._send("GET", "/v1/agents/instance", params={"app": app}).body.decode()

    def bid(self, app: str, offer: int, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Rows as `horae decide --bids` prints them. Raises ApiError for a table that is late or cannot be."""
        return self._object("POST", "/v1/agents/bid", json_body={"app": app, "offer": offer, "bids": list(rows)})

    def win(self, app: str, offer: int, *, wait_s: Seconds = 0.0) -> dict[str, Any]:
        """What came of the offer for the app, once `settled` is true."""
        return self._object("GET", "/v1/agents/win", params={"app": app, "offer": offer, "wait_s": wait_s})

    # --- requests -----------------------------------------------------------------------------------------

    def submit(self, jobs: Sequence[Mapping[str, Any]]) -> list[str]:
        """The numbers of the new jobs, in order. All are taken, or none."""
        return list(self.hand_in(jobs)["jobs"])

    def hand_in(self, jobs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The same: `jobs`, and `notes` where something is to be said of them at once."""
        return self._object("POST", "/v1/jobs", json_body={"jobs": list(jobs)})

    def dry_run(self, jobs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What would become of them if they were handed in now, and what the others would lose by it."""
        return self._object("POST", "/v1/dry-run", json_body={"jobs": list(jobs)})

    def cancel(self, job: str, why: str = "") -> dict[str, Any]:
        return self._object("POST", f"/v1/jobs/{_word(job)}/cancel", json_body={"why": why})

    def hold(self, job: str, why: str = "") -> dict[str, Any]:
        return self._object("POST", f"/v1/jobs/{_word(job)}/hold", json_body={"why": why})

    def unhold(self, job: str) -> dict[str, Any]:
        return self._object("POST", f"/v1/jobs/{_word(job)}/unhold", json_body={})

    def prioritise(self, job: str, priority: int, *, across: bool = False) -> dict[str, Any]:
        body = {"priority": priority, "across": across}
        return self._object("POST", f"/v1/jobs/{_word(job)}/priority", json_body=body)

    def mode(self, pool: str, mode: str) -> dict[str, Any]:
        return self._object("POST", f"/v1/pools/{_word(pool)}/mode", json_body={"mode": mode})

    def release_all(self, why: str = "") -> dict[str, Any]:
        return self._object("POST", "/v1/release-all", json_body={"why": why})

    # --- the wire -----------------------------------------------------------------------------------------

    def _object(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        try:
            found = json.loads(self._send(method, path, **more).body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ApiError(502, Code.BUG, f"{self.socket} answered something that is no arbiter's")
        return found

    def _send(
        self, method: str, path: str, *, params: Mapping[str, Any] | None = None, json_body: Any = None
    ) -> _Answer:
        if params:
            path += "?" + urlencode({k: str(v).lower() if isinstance(v, bool) else v for k, v in params.items()})
        body = None if json_body is None else json.dumps(json_body).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
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


def _word(text: str) -> str:
    """One path segment."""
    return quote(text, safe="") or "%00"
