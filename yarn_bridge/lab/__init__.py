"""`horae lab ... hadoop`: a mini-cluster of HDFS and YARN on this machine, as private processes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from horae.lab import LabRequest, LabState, default_folder
from policy.model import BadInput
from yarn_bridge.lab import settings
from yarn_bridge.lab.private import PrivateHadoop


class HadoopLab:
    releases = settings.RELEASES
    engines = ("process",)

    def up(self, request: LabRequest) -> LabState:
        release = request.release or self.releases[0]
        if release not in self.releases:
            raise BadInput(
                f"no lab of Hadoop {release}",
                where="--release",
                value=release,
                remedy=f"one of {', '.join(self.releases)}",
            )
        return self._private(request).up(dataclasses.replace(request, release=release))

    def down(self, request: LabRequest) -> LabState:
        return self._private(request).down()

    def status(self, request: LabRequest) -> LabState:
        return self._private(request).status()

    def demo(self, request: LabRequest) -> int:
        from yarn_bridge.lab.demo import demo

        if not self.status(request).up:
            self.up(request)
        return demo(self._private(request))

    def _private(self, request: LabRequest) -> PrivateHadoop:
        folder = request.folder if request.folder != Path() else default_folder() / "hadoop"
        return PrivateHadoop(folder / f"process-{request.name}", folder)
