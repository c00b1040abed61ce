"""The token that slurmrestd asks for (JWT): from a file that the site renews, or by `scontrol token` for ourselves.

A token names its user (`sun`) and its end (`exp`); both are read, never checked: that is slurmctld's. One is renewed
before it ends, and once more when it is refused all the same (a new key, clocks apart).
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from horae.port import PortError
from slurm_plugin.clients.base import ClientAway

LIFESPAN_S = 3600
_EARLY_S = 120.0


class Tokens(Protocol):
    def headers(self) -> Mapping[str, str]:
        """For the next request. Raises ClientAway when there is no token that could be valid."""
        ...

    def refused(self) -> bool:
        """slurmctld refused the last one; True when another one will be given now."""
        ...


class NoToken:
    """A unix socket: slurmrestd knows by itself who is there."""

    def headers(self) -> Mapping[str, str]:
        return {}

    def refused(self) -> bool:
        return False


class FileTokens:
    """A file with the token, alone or as `SLURM_JWT=...`; read again whenever it has changed."""

    def __init__(self, path: str, now_s: Callable[[], float] = time.time) -> None:
        self._path, self._now_s = Path(path), now_s
        self._mark: tuple[int, int] | None = None
        self._token = ""

    def headers(self) -> Mapping[str, str]:
        self._read()
        end_s = claims(self._token).get("exp")
        if isinstance(end_s, int | float) and end_s < self._now_s():
            raise ClientAway(f"the token in {self._path} has expired: whatever writes it has stopped")
        return headers_of(self._token)

    def refused(self) -> bool:
        before = self._token
        self._mark = None
        self._read()
        return self._token != before

    def _read(self) -> None:
        try:
            stat = self._path.stat()
            mark = (stat.st_mtime_ns, stat.st_ino)
            if mark != self._mark:
                self._token = self._path.read_text().strip().removeprefix("SLURM_JWT=")
                self._mark = mark
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not text"
            raise ClientAway(f"cannot read rest_token_file {self._path}: {why}") from error
        if not self._token:
            raise ClientAway(f"rest_token_file {self._path} is empty")


class ScontrolTokens:
    """`scontrol token lifespan=...`: for our own account, as long as the commands work."""

    def __init__(self, ask: Callable[[str], str], now_s: Callable[[], float] = time.time) -> None:
        self._ask, self._now_s = ask, now_s
        self._token, self._end_s, self._made_s = "", 0.0, 0.0

    def headers(self) -> Mapping[str, str]:
        if self._now_s() > self._end_s - _EARLY_S:
            self._make()
        return headers_of(self._token)

    def refused(self) -> bool:
        if self._now_s() - self._made_s < 5.0:  # a fresh one is refused: more of them help nobody
            return False
        self._make()
        return True

    def _make(self) -> None:
        try:
            answer = self._ask(f"token lifespan={LIFESPAN_S}")
        except PortError as error:
            raise ClientAway(f"no token for slurmrestd: {error.text}") from error
        token = answer.strip().rpartition("SLURM_JWT=")[2].split("\n")[0].strip()
        if token.count(".") != 2:
            raise ClientAway("no token for slurmrestd: `scontrol token` gave none (is AuthAltTypes=auth/jwt set?)")
        self._token, self._made_s = token, self._now_s()
        self._end_s = self._made_s + LIFESPAN_S


def headers_of(token: str) -> Mapping[str, str]:
    user = claims(token).get("sun")
    name = {"X-SLURM-USER-NAME": user} if isinstance(user, str) and user.isprintable() else {}
    return {**name, "X-SLURM-USER-TOKEN": token}


def claims(token: str) -> Mapping[str, Any]:
    """What a JWT says of itself, unchecked; empty when it is none."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        found = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
