"""The other end of the socket: one method a question, answers as plain JSON data. The command line uses nothing else.

Raises `ApiError` for what the arbiter refuses and `Unreachable` when nobody answers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from horae.api.errors import ApiError, Code, from_answer
from policy.model import Seconds

#: Where an arbiter's socket is looked for when nobody says, first first.
PLACES = ("/run/horae/api.sock", "/var/lib/horae/api.sock")


class Unreachable(Exception):
    """No arbiter answers there. `text` and `remedy` are for people."""

    def __init__(self, text: str, remedy: str) -> None:
        self.text, self.remedy = text, remedy
        super().__init__(text)


def find_socket(given: Path | None = None) -> Path:
    """The socket to call: given, else `$HORAE_SOCKET`, else the first of `PLACES` that exists."""
    if given is not None:
        return given
    if named := os.environ.get("HORAE_SOCKET"):
        return Path(named)
    for place in PLACES:
        if Path(place).exists():
            return Path(place)
    raise Unreachable(
        f"no arbiter found: neither $HORAE_SOCKET is set nor does {' or '.join(PLACES)} exist",
        "start one with `horae serve`, try `horae demo`, or say --socket PATH",
    )


class Client:
    def __init__(self, socket: Path, timeout_s: Seconds = 30.0) -> None:
        self.socket = socket
        transport = httpx.HTTPTransport(uds=str(socket))
        self._http = httpx.Client(transport=transport, base_url="http://horae", timeout=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # --- questions ----------------------------------------------------------------------------------------

    def about(self) -> dict[str, Any]:
        return self._object("GET", "/v1/about")

    def status(self, *, ended: bool = False, losses: bool = False) -> dict[str, Any]:
        """Jobs, nodes, tenants, pools and alerts; `ended`: also jobs that ended, `losses`: with loss curves."""
        return self._object("GET", "/v1/status", params={"ended": ended, "losses": losses})

    def job(self, job: str) -> dict[str, Any]:
        return self._object("GET", f"/v1/jobs/{_word(job)}")

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
        while True:
            response = self._send("GET", f"/v1/jobs/{_word(job)}/log", params={"offset": offset})
            if response.content:
                yield response.content
            offset = int(response.headers["x-next-offset"])
            if response.headers["x-end"] == "true" or not response.content:
                return

    def snapshot(self, pool: str | None = None) -> str:
        """The instance file of what the policy sees now."""
        return self._send("GET", "/v1/snapshot", params={} if pool is None else {"pool": pool}).text

    def config(self) -> dict[str, Any]:
        return self._object("GET", "/v1/config")

    def metrics(self) -> str:
        return self._send("GET", "/metrics").text

    # --- requests -----------------------------------------------------------------------------------------

    def submit(self, jobs: Sequence[Mapping[str, Any]]) -> list[str]:
        """The numbers of the new jobs, in order. All are taken, or none."""
        return list(self._object("POST", "/v1/jobs", json={"jobs": list(jobs)})["jobs"])

    def cancel(self, job: str, why: str = "") -> dict[str, Any]:
        return self._object("POST", f"/v1/jobs/{_word(job)}/cancel", json={"why": why})

    def hold(self, job: str, why: str = "") -> dict[str, Any]:
        return self._object("POST", f"/v1/jobs/{_word(job)}/hold", json={"why": why})

    def unhold(self, job: str) -> dict[str, Any]:
        return self._object("POST", f"/v1/jobs/{_word(job)}/unhold", json={})

    def mode(self, pool: str, mode: str) -> dict[str, Any]:
        return self._object("POST", f"/v1/pools/{_word(pool)}/mode", json={"mode": mode})

    def release_all(self, why: str = "") -> dict[str, Any]:
        return self._object("POST", "/v1/release-all", json={"why": why})

    # --- the wire -----------------------------------------------------------------------------------------

    def _object(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        found = self._send(method, path, **more).json()
        if not isinstance(found, dict):
            raise ApiError(502, Code.BUG, f"{self.socket} answered something that is no arbiter's")
        return found

    def _send(self, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **more)
        except httpx.TimeoutException:
            raise Unreachable(
                f"the arbiter at {self.socket} does not answer in time", "try again; see `horae doctor`"
            ) from None
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None
        if response.is_success:
            return response
        try:
            data = response.json()
        except ValueError:
            data = {}
        raise from_answer(response.status_code, data if isinstance(data, dict) else {})

    def _unreachable(self, error: httpx.HTTPError) -> Unreachable:
        cause: BaseException = error
        while cause.__cause__ is not None or cause.__context__ is not None:
            cause = cause.__cause__ or cause.__context__ or cause
        if isinstance(cause, FileNotFoundError):
            return Unreachable(f"there is no socket {self.socket}", "start an arbiter with `horae serve`")
        if isinstance(cause, ConnectionRefusedError):
            return Unreachable(
                f"no arbiter listens on {self.socket}", "it has ended; running jobs run on. Start it again"
            )
        if isinstance(cause, PermissionError):
            return Unreachable(f"{self.socket}: permission denied", "ask an operator for access to its folder")
        return Unreachable(f"the arbiter at {self.socket} broke off: {cause}", "try again")


def _word(text: str) -> str:
    """One path segment."""
    from urllib.parse import quote

    return quote(text, safe="") or "%00"
