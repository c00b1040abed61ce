"""The mini-cluster of containers, by docker-py: db, dbd, ctl, rest and a container a node, on its own network.

Nothing needs --privileged. Names are `horae-LAB-ROLE`; everything carries the lab's label. The lab's folder on the
host holds /etc/slurm (`etc`) and /shared (`shared`); the controller runs sshd for the accounts alice, bob and
horae (Operator), which is how the adapter reaches it from the host.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from docker.errors import NotFound
from docker.types import Mount

from horae.lab import LabRequest, LabState, containers, engine
from policy.model import BadInput
from slurm_plugin.lab import settings

SPOOL = "/shared/horae/spool"
HORAE_UID, SLURM_UID = 2003, 64030
Say = Callable[[str], None]


class ContainerSlurm:
    def __init__(self, name: str, folder: Path, say: Say) -> None:
        self.name, self.folder, self._say = name, folder.absolute(), say
        self._client: Any = None

    @property
    def client(self) -> Any:
        if self._client is None:
            self._client = engine.engine(self._say)
        return self._client

    def up(self, request: LabRequest) -> LabState:
        running = self.status()
        if running.up:
            return running
        if request.release not in settings.SUITES:
            raise BadInput(
                f"no release {request.release}", where="--release", remedy=f"one of {', '.join(settings.SUITES)}"
            )
        engine.clean(self.client, self.name)
        image = self.image(request.release)
        database = engine.build(self.client, containers("slurm"), "Dockerfile.db", "horae-slurm-db", {}, self._say)
        self._configure(request)
        network = self.client.networks.create(f"horae-{self.name}", labels=engine.labels(self.name, kind="slurm"))
        self._run(network.name, "db", database, [])
        self._run(network.name, "dbd", image, ["dbd"])
        self._run(network.name, "ctl", image, ["ctl"], {"WITH_DBD": "1"})
        self._run(network.name, "rest", image, ["rest"])
        for node, _, _ in request.node_kinds():
            self._run(network.name, node, image, ["node"], *self._confined(request))
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

    def down(self) -> LabState:
        removed = engine.clean(self.client, self.name)
        shutil.rmtree(self.folder, ignore_errors=True)
        return LabState(self.name, False, f"down; {removed} containers, networks and volumes removed")

    def status(self) -> LabState:
        try:
            controller = self.container("ctl")
        except NotFound:
            return LabState(self.name, False, "not up")
        if controller.status != "running":
            return LabState(self.name, False, f"its controller is {controller.status}")
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

    # --- pieces: bad days need them ---

    def container(self, role: str) -> Any:
        return self.client.containers.get(f"horae-{self.name}-{role}")

    def address(self, role: str) -> str:
        container = self.container(role)
        networks = container.attrs["NetworkSettings"]["Networks"]
        return str(next(iter(networks.values()))["IPAddress"])

    def exec(self, role: str, argv: Sequence[str], user: str = "root", **env: str) -> tuple[int, str]:
        """(exit code, stdout and stderr together) of a command in a container."""
        done = self.container(role).exec_run(list(argv), user=user, environment={"LC_ALL": "C", **env})
        return int(done.exit_code), done.output.decode(errors="replace")

    def must(self, role: str, argv: Sequence[str], user: str = "root", **env: str) -> str:
        code, text = self.exec(role, argv, user, **env)
        if code != 0:
            raise BadInput(f"{' '.join(argv)} in {role} ends with {code}: {text.strip()[:400]}", where=self.name)
        return text.strip()

    # --- how ---

    def _confined(self, request: LabRequest) -> tuple[dict[str, str], Mapping[str, Any]]:
        """Environment and rights of a node's container. Raises BadInput where Slurm cannot make cgroups in it."""
        if "proctrack/cgroup" not in request.options.get("isolation", ""):
            return {}, {}
        version = str(self.client.info().get("CgroupVersion"))
        if version != "1":
            raise BadInput(f"Docker has cgroups of version {version} here, the lab makes those of version 1",
                           where="isolation", remedy="leave it out: jobs are then not confined")  # fmt: skip
        return {"CGROUPS": "1"}, settings.CGROUP_RIGHTS

    def _run(
        self, network: str, role: str, image: str, command: list[str], env: dict[str, str] | None = None,
        rights: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        mounts = []
        if role != "db":
            mounts = [
                Mount("/etc/slurm", str(self.folder / "etc"), type="bind"),
                Mount("/shared", str(self.folder / "shared"), type="bind"),
            ]
        full = f"horae-{self.name}-{role}"
        container = self.client.containers.create(
            image, command, name=full, hostname=role, init=True, detach=True, mounts=mounts,
            labels=engine.labels(self.name, kind="slurm", role=role), environment=env or {}, **rights,
        )  # fmt: skip
        bridge = self.client.networks.get("bridge")
        bridge.disconnect(container)
        self.client.networks.get(network).connect(container, aliases=[role])
        container.start()

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
        settings.carry_supervisor(folder / "shared/horae")
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
        deadline = time.monotonic() + 60
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
        deadline = time.monotonic() + 30
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
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:  # slurmctld learns of the new Operator by slurmdbd's push
            code, _ = self.exec("ctl", ["scontrol", "show", "assoc_mgr", "users=horae"], "root")
            _, text = self.exec("ctl", ["scontrol", "show", "assoc_mgr", "users=horae", "flags=users"])
            if code == 0 and "Operator" in text:
                return
            time.sleep(0.2)
        raise BadInput("slurmctld does not learn of the Operator", where=self.name)
