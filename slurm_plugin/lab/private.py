"""A private Slurm as plain processes of one user: no installation, no Docker, no systemd; a second to 8 idle nodes.

Debian's packages of the host's own release are unpacked into a cache (nothing is installed), or the Slurm on PATH
is used where there is one. All daemons run as the calling user, whose jobs are the only ones it can run; nodes are
several slurmd on this host, GPUs are device nodes that exist everywhere (no cgroups guard them).
"""

from __future__ import annotations

import getpass
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sysconfig
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from horae.elastic import carry
from horae.lab import LabRequest, LabState, processes
from policy.model import BadInput
from slurm_plugin.lab import settings

_PACKAGES = (
    "slurmctld", "slurmd", "slurm-client", "slurmrestd", "slurmdbd", "slurm-wlm-basic-plugins", "slurm-wlm-plugins",
    "slurm-wlm-jwt-plugin", "munge",
)  # fmt: skip
_PORTS = (11000, 20000)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx")


class PrivateSlurm:
    """One cluster in `folder`. Daemons are found again by their pid files, so another process can end them."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder, self._cache = folder.absolute(), cache.absolute()

    @property
    def made(self) -> bool:
        """Whether there is such a lab, up or not."""
        return (self.folder / "lab.json").is_file()

    @property
    def spool(self) -> Path:
        return self.folder / "spool"

    def up(self, request: LabRequest) -> LabState:
        if self.status().up:
            return self.status()
        for name in ("etc/horae", "run", "log", "state", "slurmd", "spool"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        processes.own(self.folder)
        root = unpacked(self._cache)
        base, kept = _free_ports(request.nodes + 1)
        try:
            self._configure(request, root, base)
            (self.folder / "lab.json").write_text(json.dumps({"root": str(root), "nodes": request.nodes}))
            self._start_munge()
            self.start_controller()
            for name, _, _ in request.node_kinds():
                self.start_node(name)
            self._wait_idle(request.nodes)
        finally:
            for each in kept:
                each.close()
        return self.status()

    def down(self) -> LabState:
        run = self.folder / "run"
        processes.end_all([pid for path in sorted(run.glob("*.pid")) if (pid := self._alive(path)) is not None])
        self._kill_steps()
        (self.folder / "lab.json").unlink(missing_ok=True)
        return LabState(self.folder.name, False, f"down; its logs are in {self.folder}")

    def status(self) -> LabState:
        if not self.made or self._alive(self.folder / "run" / "slurmctld.pid") is None:
            return LabState(self.folder.name, False, "not up")
        done = self.run(["sinfo", "-h", "-N", "-p", "dl", "-o", "%N %T"], check=False)
        text = done.stdout.strip() or done.stderr.strip()
        return LabState(self.folder.name, done.returncode == 0, text, self.facts())

    def facts(self) -> dict[str, Any]:
        """Options for `connect`."""
        return {
            "partitions": ["dl"],
            "spool": str(self.spool),
            "state": str(self.folder / "memory"),
            "env": self.env(),
        }

    def submit(self, script: str, files: Mapping[str, str], options: Sequence[str]) -> str:
        """sbatch as the one user; the job's id. Files go to the shared folder."""
        shared = self.folder / "shared"
        shared.mkdir(exist_ok=True)
        return settings.submit(
            shared, str(shared), str(self.folder / "horae/bin/horae-exec"), script, files,
            lambda path: self.run(["sbatch", "--parsable", f"--chdir={shared}", *options, path]).stdout.strip(),
        )  # fmt: skip

    def demo(self) -> int:
        from slurm_plugin.lab.demo import demo

        return demo(self)

    # --- its daemons, one by one: bad days need that ---

    def start_controller(self, *options: str) -> None:
        self.run(["slurmctld", *options])

    def start_node(self, name: str, *options: str) -> None:
        self.run(["slurmd", "-N", name, *options, "-d", str(self._sbin() / "slurmstepd")])

    def kill(self, daemon: str, number: int = signal.SIGKILL) -> None:
        """End `slurmctld` or `slurmd-n1` and wait until it is gone."""
        pid = self._alive(self.folder / "run" / f"{daemon}.pid")
        if pid is not None:
            processes.end(pid, number)

    def lose_node(self, name: str) -> None:
        """slurmd and everything that ran on this node are gone at once; slurmctld is not told."""
        self.kill(f"slurmd-{name}")
        self._kill_steps(name)

    def run(self, argv: list[str], check: bool = True, **more: Any) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            argv, env={**os.environ, **self.env()}, capture_output=True, text=True, check=False, **more
        )
        if check and done.returncode != 0:
            raise BadInput(f"{' '.join(argv[:2])} fails: {done.stderr.strip()[:400]}", where=str(self.folder))
        return done

    def env(self) -> dict[str, str]:
        root = Path(json.loads((self.folder / "lab.json").read_text())["root"])
        env = {"SLURM_CONF": str(self.folder / "etc" / "slurm.conf")}
        if root != Path("/"):
            libraries = _libraries(root)
            env["PATH"] = f"{root}/usr/bin:{root}/usr/sbin:{os.environ.get('PATH', '/usr/bin:/bin')}"
            env["LD_LIBRARY_PATH"] = f"{libraries}:{libraries}/slurm-wlm"
        return env

    # --- how ---

    def _configure(self, request: LabRequest, root: Path, base: int) -> None:
        """`base`: the controller's port; the nodes' follow."""
        host = socket.gethostname().split(".")[0]
        first = base + 1
        extra = {}
        for hosts, _, _ in settings.kinds(request):
            count = len([name for name, *_ in request.node_kinds() if name in _expanded(hosts)])
            ports = f"[{first}-{first + count - 1}]" if count > 1 else str(first)
            extra[hosts] = f"NodeHostname={host} NodeAddr=127.0.0.1 Port={ports}"
            first += count
        lab = self.folder
        release = slurm_version(root)
        values = {
            "CLUSTER": request.name.replace("-", "_"),
            "CONTROLLER": f"{host}(127.0.0.1)",
            "CONTROLLER_PORT": str(base),
            "SLURM_USER": getpass.getuser(),
            "AUTH_INFO": f"AuthInfo=socket={lab}/run/munge.socket",
            "JWT_KEY": f"{lab}/etc/jwt.key",
            "STATE": f"{lab}/state",
            "SLURMD_SPOOL": f"{lab}/slurmd/%n",
            "RUN": f"{lab}/run",
            "LOG": f"{lab}/log",
            "PLUGIN_DIR": f"PluginDir={_libraries(root)}/slurm-wlm" if root != Path("/") else "",
            "SELECT": "CR_Core",
            "ISOLATION": settings.NO_CGROUPS,
            "ACCOUNTING": "AccountingStorageType=accounting_storage/none",
            "SCHEDULING": settings.SWIFT,
            "NODES": settings.node_lines(request, settings.MEMORY_MB, extra),
            "PARTITIONS": settings.partition_lines(request),
        }
        conf = settings.fill("slurm.conf.in", values).replace("SlurmdUser=root", f"SlurmdUser={getpass.getuser()}")
        etc = lab / "etc"
        (etc / "slurm.conf").write_text(conf + request.options.get("slurm.conf", ""))
        (etc / "gres.conf").write_text(settings.gres_conf(request, _DEVICES))
        if release >= (23, 2):
            (etc / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        (etc / "job_submit.lua").write_text(settings.fill("job_submit.lua", {"HORAE_LUA": f"{etc}/horae"}))
        module = Path(__file__).resolve().parent.parent / "site" / "horae.lua"
        shutil.copy(module, etc / "horae" / "horae.lua")
        (etc / "horae" / "horae_conf.lua").write_text(settings.lua_conf(str(self.spool), (os.getuid(), 0)))
        carry.carry(str(lab / "horae"))
        for name, size in (("munge.key", 1024), ("jwt.key", 32)):
            key = etc / name
            if not key.exists():
                key.touch(0o600)
                key.write_bytes(os.urandom(size))

    def _start_munge(self) -> None:
        run, lab = self.folder / "run", self.folder
        self.run(
            ["munged", "--force", f"--socket={run}/munge.socket", f"--key-file={lab}/etc/munge.key",
             f"--pid-file={run}/munged.pid", f"--log-file={lab}/log/munged.log", f"--seed-file={run}/munge.seed"],
        )  # fmt: skip

    def _wait_idle(self, nodes: int) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            done = self.run(["sinfo", "-h", "-N", "-p", "dl", "-o", "%T"], check=False)
            if done.stdout.split().count("idle") == nodes:
                return
            time.sleep(0.1)
        raise BadInput("the nodes do not come up", where=str(self.folder / "log"), remedy="read the logs there")

    def _sbin(self) -> Path:
        root = Path(json.loads((self.folder / "lab.json").read_text())["root"])
        return root / "usr" / "sbin"

    def _alive(self, pid_file: Path) -> int | None:
        """The pid in the file, if it is a process of this lab."""
        return processes.noted(pid_file, self.folder)

    def _kill_steps(self, node: str | None = None) -> None:
        """slurmstepd and what it started outlive slurmd; they carry our SLURM_CONF, and jobs their node's name. Until
        none is left: what is being killed may still have begun another process, or be about to write."""
        deadline = time.monotonic() + 60
        while (found := self._steps_and_jobs(node)) and time.monotonic() < deadline:
            for pid in found:
                processes.kill(pid)
            time.sleep(0.02)

    def _steps_and_jobs(self, node: str | None) -> list[int]:
        """Steps first: they must not tell how their job died."""
        conf = f"SLURM_CONF={self.folder}/etc/slurm.conf".encode()
        steps, jobs = [], []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                environment = processes.environment(int(path.name))
                command = (path / "cmdline").read_bytes()
            except OSError:
                continue
            if conf not in environment:
                continue
            if b"slurmstepd" in command and (node is None or _steps_of(int(path.name), node)):
                steps.append(int(path.name))
            elif (f"SLURMD_NODENAME={node}".encode() if node else b"SLURM_JOB_ID") in b"\0".join(environment):
                jobs.append(int(path.name))
        return [*steps, *jobs]


def _steps_of(step: int, node: str) -> bool:
    """Whether this slurmstepd has a child on that node."""
    try:
        children = Path(f"/proc/{step}/task/{step}/children").read_text().split()
        mark = f"SLURMD_NODENAME={node}".encode()
        return any(mark in Path(f"/proc/{child}/environ").read_bytes().split(b"\0") for child in children)
    except OSError:
        return False


def unpacked(cache: Path) -> Path:
    """The root of Slurm's programs: `/` when installed, else Debian's packages unpacked in `cache`, once."""
    if shutil.which("slurmctld") and shutil.which("slurmd") and shutil.which("munged"):
        return Path("/")
    root = cache / "slurm-root"
    if (root / "usr/sbin/slurmctld").exists():
        return root
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise BadInput("no slurmctld on PATH, and no apt to get it by", remedy="install Slurm, or use --engine docker")
    debs = cache / "debs"
    (debs / "partial").mkdir(parents=True, exist_ok=True)
    fetch = [
        "apt-get",
        "install",
        "-y",
        "-q",
        "--download-only",
        "--no-install-recommends",
        "-o",
        "Debug::NoLocking=1",
    ]
    fetch += ["-o", f"Dir::Cache::archives={debs}", "--reinstall", *_PACKAGES]
    done = subprocess.run(fetch, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BadInput(f"apt-get cannot download Slurm: {done.stderr.strip()[:300]}", remedy="run apt-get update first")
    part = cache / f"slurm-root.{os.getpid()}"
    for deb in sorted(debs.glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(deb), str(part)], check=True)
    for name in ("slurmctld", "slurmd", "slurmstepd"):
        # Run under the names with `-wlm` they do not know what they are, and drop every GRES silently.
        if not (part / "usr/sbin" / name).exists():
            (part / "usr/sbin" / name).symlink_to(f"{name}-wlm")
    try:
        part.rename(root)
    except OSError:  # another process was first
        shutil.rmtree(part, ignore_errors=True)
    return root


def slurm_version(root: Path) -> tuple[int, int]:
    program = root / "usr/sbin/slurmctld" if root != Path("/") else Path("slurmctld")
    libraries = _libraries(root)
    env: Mapping[str, str] = {**os.environ, "LD_LIBRARY_PATH": f"{libraries}:{libraries}/slurm-wlm"}
    text = subprocess.run([str(program), "-V"], env=env, capture_output=True, text=True, check=True).stdout
    major, minor = text.split()[-1].split(".")[:2]
    return int(major), int(minor)


def _libraries(root: Path) -> Path:
    return root / "usr/lib" / (sysconfig.get_config_var("MULTIARCH") or "x86_64-linux-gnu")


def _expanded(hosts: str) -> set[str]:
    from slurm_plugin.records import expand

    return set(expand(hosts))


def _free_ports(count: int) -> tuple[int, list[socket.socket]]:
    """The first of `count` consecutive ports that nobody has, below those of trainings
    (`horae.elastic.supervisor.shape`), and
    what keeps them from other labs that look for some, until it is closed: Slurm may bind them meanwhile."""
    for _ in range(200):
        base = random.randrange(*_PORTS) - count
        kept: list[socket.socket] = []
        try:
            for port in range(base, base + count):
                kept.append(socket.socket())
                kept[-1].bind(("127.0.0.1", port))
                kept[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Slurm's own does
            return base, kept
        except OSError:
            for each in kept:
                each.close()
    raise BadInput("no free ports between {} and {}".format(*_PORTS))
