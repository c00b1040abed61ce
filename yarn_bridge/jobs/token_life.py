"""How long the HDFS tokens of this cluster live, as the bridge must reckon with it."""

from __future__ import annotations

from collections.abc import Callable

from yarn_bridge.clients.http import KERBEROS, HttpClient
from yarn_bridge.clients.settings import Settings, settings_of
from yarn_bridge.options import Options

SETTING = "dfs.namenode.delegation.token.max-lifetime"
#: Hadoop's own, where the NameNode says nothing
DEFAULT_S = 7 * 86_400.0
#: asked again this often: a site may change it at a restart
_AGAIN_S, _AFTER_FAILURE_S = 3600.0, 300.0


def told(settings: Settings) -> float:
    """Seconds, of the NameNode's own settings."""
    return settings.number(SETTING, int(DEFAULT_S * 1000)) / 1000.0


class TokenLife:
    def __init__(self, options: Options, clock: Callable[[], float]) -> None:
        self._options, self._clock = options, clock
        self._http: HttpClient | None = None
        self._known_s, self._next_s = DEFAULT_S, float("-inf")

    def seconds(self) -> float:
        """0: for ever. A NameNode that does not answer leaves what was known."""
        if self._options.token_life_s or self._options.auth != KERBEROS:
            return self._options.token_life_s
        if self._clock() >= self._next_s:
            if self._http is None:
                self._http = HttpClient(self._options.access(self._options.webhdfs), "NameNode")
            found = settings_of(self._http, "the NameNode")
            if not found.why:
                self._known_s = told(found)
            self._next_s = self._clock() + (_AFTER_FAILURE_S if found.why else _AGAIN_S)
        return self._known_s

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
