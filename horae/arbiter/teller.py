"""What an operator should know, also on the terminal or in the log of `horae serve`: each alert once, and its end."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from horae.journal.ledger import Alert
from policy.model import EMPTY

log = structlog.get_logger("horae.arbiter")


class Teller:
    """Compares what is wrong now with what was told. The core's thread calls it, so it looks at little."""

    def __init__(self) -> None:
        self._told: Mapping[str, str] = EMPTY

    def look(self, alerts: Mapping[str, Alert], stalled: str | None) -> None:
        if not alerts and stalled is None and not self._told:
            return
        now = {what: alert.text for what, alert in alerts.items()}
        if stalled is not None:
            now["journal"] = stalled
        for what, text in now.items():
            if self._told.get(what) != text:
                remedy = alerts[what].remedy if what in alerts else ""
                log.warning(f"alert: {_plain(text)}", **({"remedy": _plain(remedy)} if remedy else {}))
        for what, text in self._told.items():
            if what not in now:
                log.info(f"no longer: {_plain(text)}")
        self._told = now


def _plain(text: str) -> str:
    """What a cluster or a job said never commands a terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)
