"""Clients of Slurm that answer as they are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx

from horae.port import PortError
from slurm_plugin.clients.base import Operation
from slurm_plugin.clients.rest import RestClient
from slurm_plugin.records import End, Facts, JobRow, NodeRow
from slurm_plugin.writes import Write


class Scripted:
    """A client that fails as it is told and writes down what it was asked."""

    def __init__(self, name: str, can: Sequence[Operation] = tuple(Operation)) -> None:
        self.name, self._can = name, can
        self.odd: list[str] = []
        self.said: list[str] = []
        self.tried = 0
        self.fails: PortError | None = None
        self.refuses: dict[str, PortError] = {}
        self.stand: dict[str, str] = {}  #: what slurmctld has of jobs

    def lacks(self, operation: Operation) -> str:
        return "" if operation in self._can else f"{self.name} has no {operation}"

    def fits(self, write: Write) -> bool:
        return self.name == "command" or "_" not in write.job

    def describe(self) -> str:
        return self.name

    def _told(self, what: str) -> None:
        self.tried += 1
        if self.fails is not None:
            raise self.fails
        self.said.append(what)

    def jobs(self, partitions: Sequence[str]) -> list[JobRow]:
        self._told("jobs")
        return []

    def nodes(self, partitions: Sequence[str]) -> list[NodeRow]:
        self._told("nodes")
        return []

    def those(self, ids: Sequence[str]) -> Mapping[str, JobRow]:
        self._told("those")
        return {}

    def standing(self, ids: Sequence[str]) -> Mapping[str, str]:
        self._told("standing")
        return {each: self.stand.get(each, "") for each in ids}

    def facts(self) -> Facts:
        raise AssertionError("not asked here")

    def write(self, writes: Sequence[Write], doing: str) -> None:
        self._told(" ".join(map(str, writes)))

    def write_each(self, writes: Sequence[tuple[Write, str]]) -> list[PortError | None]:
        self._told(" ".join(str(write) for write, _ in writes))
        return [self.refuses.get(str(write)) for write, _ in writes]

    def signal(self, ids: Sequence[str], name: str, doing: str) -> dict[str, PortError]:
        self._told("signal " + " ".join(ids))
        return {}

    def cancel(self, ids: Sequence[str], doing: str) -> dict[str, PortError]:
        self._told("cancel " + " ".join(ids))
        return {each: self.refuses[f"cancel {each}"] for each in ids if f"cancel {each}" in self.refuses}

    def ended(self, ids: Sequence[str]) -> Mapping[str, End]:
        return {}

    def close(self) -> None:
        self.said.append("closed")


Answer = Callable[[httpx.Request], httpx.Response]


def rest(answer: Answer, tokens: Any = None) -> RestClient:
    return RestClient("http://rest:6820", tokens, transport=httpx.MockTransport(answer))


def serving(*known: str, then: Answer | None = None) -> Answer:
    def answer(request: httpx.Request) -> httpx.Response:
        version = request.url.path.split("/")[2]
        if version not in known:
            return httpx.Response(404, text="not found")
        if request.url.path.rstrip("/").endswith("ping"):
            return httpx.Response(200, json={"meta": {"slurm": {"release": "24.11.5"}}, "errors": []})
        assert then is not None
        return then(request)

    return answer
