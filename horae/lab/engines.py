"""A lab with two engines: containers where a Docker engine answers, else plain processes of the caller.

Which of them runs is seen from what is there, so `status`, `demo` and `down` need not be told.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Protocol

from horae.lab import LabRequest, LabState, default_folder, say
from policy.model import BadInput

DOCKER, PROCESS = "docker", "process"


class Cluster(Protocol):
    """A lab on one engine."""

    def up(self, request: LabRequest) -> LabState: ...

    def down(self) -> LabState: ...

    def status(self) -> LabState: ...

    def demo(self) -> int: ...


class Private(Cluster, Protocol):
    """Of plain processes."""

    @property
    def made(self) -> bool:
        """Whether there is such a lab, up or not."""
        ...


class TwoEngines(ABC):
    """The lab of one kind. A kind says where its clusters are (`private`, `docked`) and which release is meant."""

    kind = ""
    releases: tuple[str, ...] = ()
    engines: tuple[str, ...] = (DOCKER, PROCESS)
    features: tuple[str, ...] = ()  #: that a lab of plain processes has when it is asked for

    @abstractmethod
    def private(self, request: LabRequest) -> Private: ...

    @abstractmethod
    def docked(self, request: LabRequest) -> Cluster: ...

    def release(self, request: LabRequest, chosen: str) -> str:
        """The release to make with this engine. Raises BadInput for one that cannot be had."""
        wanted = request.release or self.releases[0]
        if wanted not in self.releases:
            remedy = f"one of {', '.join(self.releases)}"
            raise BadInput(f"no lab of {self.kind} {wanted}", where="--release", value=wanted, remedy=remedy)
        return wanted

    def up(self, request: LabRequest) -> LabState:
        self._check(request)
        chosen = self._chosen(request)
        cluster = self.private(request) if chosen == PROCESS else self.docked(request)
        return cluster.up(dataclasses.replace(request, engine=chosen, release=self.release(request, chosen)))

    def down(self, request: LabRequest) -> LabState:
        return self._there(request).down()

    def status(self, request: LabRequest) -> LabState:
        return self._there(request).status()

    def demo(self, request: LabRequest) -> int:
        if not self.status(request).up:
            self.up(request)
        return self._there(request).demo()

    def folder(self, request: LabRequest) -> Path:
        return request.folder if request.folder != Path() else default_folder() / self.kind

    def _there(self, request: LabRequest) -> Cluster:
        private = self.private(request)
        return private if private.made else self.docked(request)

    def _check(self, request: LabRequest) -> None:
        for each in sorted(request.features):
            if each not in self.features:
                raise BadInput(f"a lab of {self.kind} has none of that", where=f"--{each}", remedy="leave it out")
            if request.engine == DOCKER:
                raise BadInput("is not there in containers", where=f"--{each}", remedy=f"--engine {PROCESS}")

    def _chosen(self, request: LabRequest) -> str:
        if request.engine or request.features:
            return request.engine or PROCESS
        if self.private(request).made:
            return PROCESS
        from horae.lab import engine  # docker-py is there where containers are made, not in them

        try:
            engine.engine(say)
        except BadInput as error:
            say(f"{error.message}: plain processes instead of containers")
            return PROCESS
        return DOCKER
