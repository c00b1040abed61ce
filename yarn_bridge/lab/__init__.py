"""`horae lab ... hadoop`: a mini-cluster of HDFS and YARN, in containers or as private processes."""

from __future__ import annotations

from horae.lab import LabRequest, say
from horae.lab.engines import Cluster, TwoEngines
from yarn_bridge.lab import settings
from yarn_bridge.lab.private import FEDERATION, KERBEROS, STANDBYS, PrivateHadoop


class HadoopLab(TwoEngines):
    kind = "hadoop"
    releases = settings.RELEASES
    features = (KERBEROS, STANDBYS, FEDERATION)

    def private(self, request: LabRequest) -> PrivateHadoop:
        return PrivateHadoop(self.folder(request) / f"process-{request.name}", self.folder(request))

    def docked(self, request: LabRequest) -> Cluster:
        from yarn_bridge.lab.containers import ContainerHadoop

        folder = self.folder(request)
        return ContainerHadoop(request.name, folder / f"docker-{request.name}", say, folder)
