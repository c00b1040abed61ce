"""The settings that Hadoop's daemons run with, as they tell them themselves (`/conf`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from horae.port import PortError
from yarn_bridge.clients.http import HttpClient


@dataclass(frozen=True, slots=True)
class Settings:
    """One daemon's. `why`: the sentence for people where they cannot be read; then `values` is empty."""

    values: Mapping[str, str]
    why: str = ""

    def get(self, name: str, default: str = "") -> str:
        return self.values.get(name, default)

    def on(self, name: str) -> bool:
        return self.get(name).lower() == "true"

    def number(self, name: str, default: int = 0) -> int:
        """Hadoop's numbers, with its suffixes of time (s, m, h, d) in milliseconds."""
        text = self.get(name).strip().lower()
        for suffix, factor in (("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)):
            if text.endswith(suffix) and text.removesuffix(suffix).isdigit():
                return int(text.removesuffix(suffix)) * factor
        return int(text) if text.lstrip("-").isdigit() else default


def settings_of(http: HttpClient, name: str) -> Settings:
    """Never raises: a daemon may keep them to administrators, or not be reachable from here."""
    try:
        found = http.ask("GET", "/conf").get(f"reading the settings of {name}", "properties")
    except PortError as error:
        return Settings({}, error.text)
    if not isinstance(found, list):
        return Settings({}, f"{name} does not tell its settings")
    return Settings({str(each["key"]): str(each.get("value") or "") for each in found})


def setting_of(http: HttpClient, name: str, key: str) -> Settings:
    """One of them: all settings of a daemon are some hundred kilobytes. Never raises; unset is no fault."""
    try:
        answer = http.ask("GET", "/conf", query={"name": key, "format": "json"})
        if answer.status == 404 and answer.data is None:  # as it says of a key that it does not know
            return Settings({})
        found = answer.get(f"reading {key} of {name}", "property")
    except PortError as error:
        return Settings({}, error.text)
    if not isinstance(found, dict) or found.get("key") != key:
        return Settings({}, f"{name} does not tell its settings")
    return Settings({key: str(found.get("value") or "")})
