"""Answers of slurmrestd and of helpers, as a test breaks them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

from horae.port import TryLater
from slurm_plugin.clients.rest import RestClient

REST = json.loads((Path(__file__).parent / "recorded/24.11/rest-v0.0.42.json").read_text())


def rest(answer: Callable[[httpx.Request], httpx.Response]) -> RestClient:
    def serve(request: httpx.Request) -> httpx.Response:
        if "/v0.0.42/" not in request.url.path:
            return httpx.Response(404)
        return httpx.Response(200, json=REST["ping"]) if "ping" in request.url.path else answer(request)

    return RestClient("http://rest", transport=httpx.MockTransport(serve))


class Child:
    """The child with pyslurm: each line that it hears is answered as told."""

    def __init__(self, answer: Mapping[str, Any] | str) -> None:
        self._answer, self._out = answer, '{"id": 0, "ok": "25.11"}\n'

    def send(self, text: str) -> None:
        number = json.loads(text)["id"]
        if isinstance(self._answer, str):
            self._out += self._answer.replace("@", str(number))
        else:
            self._out += json.dumps({"id": number, **self._answer}) + "\n"

    def receive(self, timeout_s: float) -> tuple[str, str]:
        said, self._out = self._out, ""
        if not said:
            raise TryLater("it has ended")
        return said, ""

    def close(self) -> None:
        """It has."""
