"""The mini-cluster of containers, by docker-py: db, dbd, ctl, rest and a container a node, on its own network.

The lab's folder on the host holds /etc/slurm (`etc`) and /shared (`shared`); the controller runs sshd for the
accounts alice, bob and horae (Operator), which is how the adapter reaches it from the host.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from horae.elastic import carry
from horae.lab import LabRequest, LabState, containers, engine
from horae.lab.docked import DockedLab
from policy.model import BadInput
from slurm_plugin.lab import settings

SPOOL = "/shared/horae/spool"
HORAE_UID, SLURM_UID = 2003, 64030


class ContainerSlurm(DockedLab):
    kind = "slurm"

    def up(self, request: LabRequest) -> LabState:
        running = self.status()
        if running.up:
            return running
        if request.release not in settings.SUITES:
            raise BadInput(
                f"no release {request.release}", where="--release", remedy=f"one of {', '.join(settings.SUITES)}"
            )
        from docker.types import Mount

        engine.clean(self.client, self.mark)
        image = self.image(request.release)
        database = engine.build(self.client, containers("slurm"), "Dockerfile.db", "horae-slurm-db", {}, self._say)
        self._configure(request)
        network = self._network()
        self._run(network, "db", database, [])
        shared = [
            Mount("/etc/slurm", str(self.folder / "etc"), type="bind"),
            Mount("/shared", str(self.folder / "shared"), type="bind"),
        ]
        self._run(network, "dbd", image, ["dbd"], mounts=shared)
        self._run(network, "ctl", image, ["ctl"], {"WITH_DBD": "1"}, shared)
        self._run(network, "rest", image, ["rest"], mounts=shared)
        for node, _, _ in request.node_kinds():
            env, rights = self._confined(request)
            self._run(network, node, image, ["node"], env, shared, **rights)
        self._wait_idle(request.nodes)
        self._accounts()
        return self.status()

    def image(self, release: str) -> str:
        suite = settings.SUITES[release]
        for base in (suite, "bookworm"):
            engine.ensure_base(self.client, base, self._say)
        return engine.build(
            self.client, containers("slurm"), "Dockerfile", f"horae-slurm:{release}", {"SUITE": suite}, self._say
        )

    def status(self) -> LabState:
        controller = self._state_of("ctl")
        if controller != "running":
            return LabState(self.name, False, f"its controller is {controller}" if controller else "not up")
        code, text = self.exec("ctl", ["sinfo", "-h", "-N", "-p", "dl", "-o", "%N %T %G"])
        return LabState(self.name, code == 0, text.strip(), self.facts())

    def facts(self) -> dict[str, Any]:
        """Options for `connect` from the host, and where the REST interface is."""
        return {
            "partitions": ["dl"],
            "spool": SPOOL,
            "state": str(self.folder / "memory"),
            "ssh": f"horae@{self.address('ctl')}",
            "ssh_key": str(self.folder / "etc/secret/ssh/user_key"),
            "ssh_known_hosts": str(self.folder / "known_hosts"),
        }

    def submit(self, script: str, files: Mapping[str, str], options: Sequence[str], user: str = "alice") -> str:
        """sbatch as a user of the lab; the job's id. Files go to the shared folder."""
        return settings.submit(
            self.folder / "shared", "/shared", "/shared/horae/bin/horae-exec", script, files,
            lambda path: self.must("ctl", ["sbatch", "--parsable", "--chdir=/shared", *options, path], user=user),
        )  # fmt: skip

    def demo(self) -> int:
        from slurm_plugin.lab.demo import demo

        return demo(self)

    # --- how ---

    def _confined(self, request: LabRequest) -> tuple[dict[str, str], Mapping[str, Any]]:
        """Environment and rights of a node's container. Raises BadInput where Slurm cannot make cgroups in it."""
        if "proctrack/cgroup" not in request.options.get("isolation", ""):
            return {}, settings.NODE_RIGHTS
        version = str(self.client.info().get("CgroupVersion"))
        if version != "1":
            raise BadInput(f"Docker has cgroups of version {version} here, the lab makes those of version 1",
                           where="isolation", remedy="leave it out: jobs are then not confined")  # fmt: skip
        return {"CGROUPS": "1"}, settings.CGROUP_RIGHTS

    def _configure(self, request: LabRequest) -> None:
        folder = self.folder
        shutil.rmtree(folder, ignore_errors=True)
        for name in ("etc/secret/ssh", "etc/horae", "shared/horae/spool"):
            (folder / name).mkdir(parents=True)
        (folder / "shared").chmod(0o1777)
        values = {
            "CLUSTER": request.name.replace("-", "_"), "CONTROLLER": "ctl", "CONTROLLER_PORT": "6817",
            "SLURM_USER": "slurm", "AUTH_INFO": "", "JWT_KEY": "/run/slurm/jwt.key", "STATE": "/var/lib/slurm",
            "SLURMD_SPOOL": "/var/spool/slurmd", "RUN": "/run/slurmctld", "LOG": "/var/log/slurm", "PLUGIN_DIR": "",
            "SELECT": request.options.get("select", "CR_Core"),
            "ISOLATION": request.options.get("isolation", settings.NO_CGROUPS),
            "ACCOUNTING": "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=dbd\n"
            + request.options.get("accounting", "AccountingStorageTRES=gres/gpu"),
            "SCHEDULING": request.options.get("scheduling", settings.SWIFT),
            "NODES": settings.node_lines(request, 16000),
            "PARTITIONS": request.options.get("partitions") or settings.partition_lines(request),
        }  # fmt: skip
        etc = folder / "etc"
        conf = settings.fill("slurm.conf.in", values).replace("/run/slurmctld/slurmd-%n.pid", "/run/slurmd.pid")
        (etc / "slurm.conf").write_text(conf + request.options.get("slurm.conf", ""))
        (etc / "gres.conf").write_text(settings.gres_conf(request))
        if request.release != "22.05" and "isolation" not in request.options:
            (etc / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        elif "cgroup.conf" in request.options:
            (etc / "cgroup.conf").write_text(request.options["cgroup.conf"])
        shutil.copy(containers("slurm") / "conf/slurmdbd.conf.in", etc / "slurmdbd.conf.in")
        (etc / "job_submit.lua").write_text(settings.fill("job_submit.lua", {"HORAE_LUA": "/etc/slurm/horae"}))
        site = Path(__file__).resolve().parent.parent / "site"
        shutil.copy(site / "horae.lua", etc / "horae/horae.lua")
        lua = settings.lua_conf(SPOOL, (0, SLURM_UID, HORAE_UID))
        (etc / "horae/horae_conf.lua").write_text(lua)
        for name, size in (("munge.key", 1024), ("jwt.key", 32)):
            (etc / "secret" / name).write_bytes(secrets.token_bytes(size))
        self._keys(etc / "secret/ssh")
        carry.carry(str(folder / "shared/horae"))
        try:
            os.chown(folder / "shared/horae/spool", HORAE_UID, SLURM_UID)
            (folder / "shared/horae/spool").chmod(0o2775)
        except PermissionError:
            (folder / "shared/horae/spool").chmod(0o777)

    def _keys(self, folder: Path) -> None:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        for name in ("host_key", "user_key"):
            key = Ed25519PrivateKey.generate()
            private = key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
            )
            public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
            (folder / name).touch(0o600)
            (folder / name).write_bytes(private)
            (folder / f"{name}.pub").write_bytes(public + b"\n")

    def _wait_idle(self, nodes: int) -> None:
        deadline = time.monotonic() + 180
        text = ""
        while time.monotonic() < deadline:
            code, text = self.exec("ctl", ["sinfo", "-h", "-N", "-p", "dl", "-o", "%T"])
            if code == 0 and text.split().count("idle") == nodes:
                return
            time.sleep(0.2)
        logs = self.container("ctl").logs(tail=20).decode(errors="replace")
        raise BadInput(f"the cluster does not come up: {text.strip()}\n{logs}", where=self.name)

    def _accounts(self) -> None:
        """An account, its users, and Horae's Operator; slurmdbd needs a moment before it takes them."""
        lines = (
            "add account lab Description=lab Organization=lab\nadd user alice,bob account=lab\n"
            "add user horae account=lab adminlevel=Operator\n"
        )
        deadline = time.monotonic() + 120
        while True:
            code, text = self.exec("ctl", ["sh", "-c", f"printf '{lines}' | sacctmgr -i"])
            _, users = self.exec("ctl", ["sacctmgr", "-nP", "show", "user", "horae", "format=adminlevel"])
            if "Operator" in users:
                break
            if time.monotonic() > deadline:
                raise BadInput(f"sacctmgr does not take the accounts ({code}): {text.strip()[:300]}", where=self.name)
            time.sleep(0.3)
        host_key = (self.folder / "etc/secret/ssh/host_key.pub").read_text().strip()
        (self.folder / "known_hosts").write_text(f"{self.address('ctl')} {host_key}\n")
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:  # slurmctld learns of the new Operator by slurmdbd's push
            code, _ = self.exec("ctl", ["scontrol", "show", "assoc_mgr", "users=horae"], "root")
            _, text = self.exec("ctl", ["scontrol", "show", "assoc_mgr", "users=horae", "flags=users"])
            if code == 0 and "Operator" in text:
                return
            time.sleep(0.2)
        raise BadInput("slurmctld does not learn of the Operator", where=self.name)
