"""`horae lab ... slurm`: a mini-cluster of three Slurm generations, in containers or as private processes."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from horae.lab import LabRequest, LabState, default_folder
from policy.model import BadInput
from slurm_plugin.lab import settings
from slurm_plugin.lab.containers import ContainerSlurm
from slurm_plugin.lab.private import PrivateSlurm, slurm_version, unpacked


class SlurmLab:
    releases = tuple(settings.SUITES)
    engines = ("docker", "process")

    def up(self, request: LabRequest) -> LabState:
        if request.engine == "process":
            cache = self._folder(request) / "cache"
            found = "{}.{:02d}".format(*slurm_version(unpacked(cache)))
            if request.release not in {"", found}:
                raise BadInput(
                    f"this host's Slurm is {found}",
                    where="--release",
                    value=request.release,
                    remedy="--engine docker",
                )
            return self._private(request).up(dataclasses.replace(request, release=found))
        return self._containers(request).up(dataclasses.replace(request, release=request.release or "24.11"))

    def down(self, request: LabRequest) -> LabState:
        private = self._private(request)
        if private.made:
            return private.down()
        return self._containers(request).down()

    def status(self, request: LabRequest) -> LabState:
        private = self._private(request)
        return private.status() if private.made else self._containers(request).status()

    def demo(self, request: LabRequest) -> int:
        from slurm_plugin.lab.demo import demo

        if not self.status(request).up:
            self.up(request)
        private = self._private(request)
        return demo(private if private.made else self._containers(request))

    def _folder(self, request: LabRequest) -> Path:
        return request.folder if request.folder != Path() else default_folder() / "slurm"

    def _private(self, request: LabRequest) -> PrivateSlurm:
        return PrivateSlurm(self._folder(request) / f"process-{request.name}", self._folder(request) / "cache")

    def _containers(self, request: LabRequest) -> ContainerSlurm:
        return ContainerSlurm(request.name, self._folder(request) / request.name, _say)


def _say(text: str) -> None:
    print(text, file=sys.stderr)
