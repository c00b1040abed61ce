"""`horae lab ... slurm`: a mini-cluster of three Slurm generations, in containers or as private processes."""

from __future__ import annotations

from horae.lab import LabRequest, say
from horae.lab.engines import PROCESS, TwoEngines
from policy.model import BadInput
from slurm_plugin.lab import settings
from slurm_plugin.lab.containers import ContainerSlurm
from slurm_plugin.lab.private import PrivateSlurm, slurm_version, unpacked


class SlurmLab(TwoEngines):
    kind = "slurm"
    releases = tuple(settings.SUITES)

    def private(self, request: LabRequest) -> PrivateSlurm:
        folder = self.folder(request)
        return PrivateSlurm(folder / f"process-{request.name}", folder / "cache")

    def docked(self, request: LabRequest) -> ContainerSlurm:
        return ContainerSlurm(request.name, self.folder(request) / request.name, say)

    def release(self, request: LabRequest, chosen: str) -> str:
        if chosen != PROCESS:
            return request.release or "24.11"
        found = "{}.{:02d}".format(*slurm_version(unpacked(self.folder(request) / "cache")))
        if request.release not in {"", found}:
            raise BadInput(
                f"this host's Slurm is {found}", where="--release", value=request.release, remedy="--engine docker"
            )
        return found
