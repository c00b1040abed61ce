"""A private Hadoop as plain processes of one user: HDFS, ZooKeeper, a ResourceManager and NodeManagers on this host.

No installation, no Docker, no root, no /etc/hosts: each lab has loopback addresses of its own (127.x.y.*), and
Java's own host file gives every NodeManager a name. GPUs are what a fake nvidia-smi says. All of it is one user's
and believes every `user.name`: for tests and trying out only.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from horae.lab import LabRequest, LabState, processes, say
from policy.model import BadInput
from yarn_bridge.lab import settings
from yarn_bridge.lab.jars import jars, local_framework

_READY_S = 180.0  #: for all daemons together, on a machine that does other things


class PrivateHadoop:
    """One cluster in `folder`. Daemons are found again by their pid files, so another process can end them."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder, self._cache = folder.absolute(), cache.absolute()

    @property
    def made(self) -> bool:
        """Whether there is such a lab, up or not."""
        return (self.folder / "lab.json").is_file()

    def up(self, request: LabRequest) -> LabState:
        if self.status().up:
            return self.status()
        java = _java()
        release = request.release or settings.RELEASES[0]
        libraries = jars(self._cache, release, say)
        self.down()
        for name in ("data", "hosts", "etc", "run", "log"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for name in ("data", "etc", "run", "log"):
            (self.folder / name).mkdir(parents=True)
        facts = {
            "java": java,
            "jars": str(libraries),
            "release": release,
            "net": _free_net(),
            "nodes": [list(kind) for kind in request.node_kinds()],
            "yarn": dict(request.options),
        }
        processes.own(self.folder)
        (self.folder / "lab.json").write_text(json.dumps(facts, indent=1))
        self._configure()
        try:
            self._start_all()
        except BaseException:
            self.down()
            raise
        return self.status()

    def down(self) -> LabState:
        """End every process of this lab, containers and their children too; safe after a crash and twice."""
        pids = self._processes()
        for pid in pids:
            processes.kill(pid)
        deadline = time.monotonic() + 20
        while (left := self._processes()) and time.monotonic() < deadline:
            for pid in left:  # what a dying parent had started meanwhile
                processes.kill(pid)
            time.sleep(0.05)
        (self.folder / "lab.json").unlink(missing_ok=True)
        for path in (self.folder / "data").glob("*"):
            if (path / "logs").is_dir():  # what its containers said, by application
                shutil.rmtree(self.folder / "log" / f"containers-{path.name}", ignore_errors=True)
                (path / "logs").rename(self.folder / "log" / f"containers-{path.name}")
        shutil.rmtree(self.folder / "data", ignore_errors=True)
        return LabState(self.folder.name, False, f"down; its logs are in {self.folder / 'log'}")

    def status(self) -> LabState:
        if not self.made or self._pid("resourcemanager") is None:
            return LabState(self.folder.name, False, "not up")
        try:
            nodes = self._nodes()
        except OSError as error:
            return LabState(self.folder.name, False, f"the ResourceManager does not answer: {type(error).__name__}")
        text = "\n".join(f"{node['nodeHostName']} {node['state']}" for node in nodes)
        return LabState(self.folder.name, bool(nodes), text, self.facts())

    def facts(self) -> dict[str, Any]:
        """Options for `connect`."""
        return {
            "resource_manager": [f"http://{self.master}:{settings.RM_PORT}"],
            "webhdfs": f"http://{self.master}:{settings.NN_PORT}",
            "queue": "horae",
            "user": "horae",
            "env": {"HORAE_HOST": "127.0.0.1"},
            "python": sys.executable,
        }

    @property
    def release(self) -> str:
        return str(self._lab()["release"])

    @property
    def master(self) -> str:
        return f"{self._lab()['net']}.1"

    def demo(self) -> int:
        from yarn_bridge.lab.demo import demo

        return demo(self.facts())

    # --- its daemons, one by one: bad days need that ---

    def start(self, daemon: str) -> None:
        """Start `zookeeper`, `namenode`, `datanode`, `resourcemanager`, or a NodeManager by its node's name."""
        lab = self._lab()
        kinds = {name: (kind, gpus) for name, kind, gpus in lab["nodes"]}
        role = "nodemanager" if daemon in kinds else daemon
        conf = self.folder / "etc" / (daemon if daemon in kinds else "master")
        options = [*settings.JVM, f"-Djdk.net.hosts.file={self.folder}/hosts"]
        env = {**os.environ, "HADOOP_CONF_DIR": str(conf), "JAVA_HOME": str(Path(lab["java"]).parents[1])}
        env["LANG"] = "C.UTF-8"
        if daemon in kinds:
            kind, gpus = kinds[daemon]
            # the application masters' options; their own setting for it refuses every '='
            env |= {"GPU_KIND": kind, "FAKE_GPUS": str(gpus), "JDK_JAVA_OPTIONS": " ".join(options)}
            options = []
        words = [lab["java"], settings.heap(role), *options, f"-Dservice.libdir={lab['jars']}",
                 "-cp", f"{conf}:{lab['jars']}/*", settings.CLASSES[role]]  # fmt: skip
        if role == "zookeeper":
            words.append(str(conf / "zoo.cfg"))
        with (self.folder / "log" / f"{daemon}.log").open("ab") as log:
            process = subprocess.Popen(
                words,
                env=env,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (self.folder / "run" / f"{daemon}.pid").write_text(str(process.pid))

    def kill(self, daemon: str, number: int = signal.SIGKILL) -> None:
        """Signal a daemon and, where that ends it, wait until it is gone."""
        pid = self._pid(daemon)
        if pid is not None:
            processes.end(pid, number)

    def settle(self, yarn: Mapping[str, str]) -> None:
        """More settings in every yarn-site.xml; a daemon has them from its next start on."""
        lab = self._lab()
        lab["yarn"] |= yarn
        (self.folder / "lab.json").write_text(json.dumps(lab, indent=1))
        self._configure()

    def lose_node(self, name: str) -> None:
        """The NodeManager and everything that runs under it are gone at once; nobody is told."""
        self.kill(name)
        for pid in self._processes(f"{self.folder}/data/{name}/"):
            processes.kill(pid)

    def admin(self, tool: str, *words: str) -> str:
        """An administrator's command: `dfsadmin -safemode enter`. Raises BadInput with what it says."""
        lab, conf = self._lab(), self.folder / "etc/master"
        main = {
            "dfsadmin": "org.apache.hadoop.hdfs.tools.DFSAdmin",
            "rmadmin": "org.apache.hadoop.yarn.client.cli.RMAdminCLI",
        }
        argv = [lab["java"], "-Xmx128m", *settings.JVM, f"-Djdk.net.hosts.file={self.folder}/hosts"]
        argv += ["-cp", f"{conf}:{lab['jars']}/*", main[tool], *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_READY_S)
        if done.returncode != 0:
            raise BadInput(f"{tool} {' '.join(words)} fails: {done.stderr.strip()[-400:]}", where=str(self.folder))
        return done.stdout.strip()

    def wait_manager(self) -> None:
        """Until the ResourceManager answers and all nodes that live are registered."""
        names = [name for name, _, _ in self._lab()["nodes"] if self._pid(name) is not None]
        wanted = set(names)

        def ready() -> bool:
            return wanted <= {str(node["nodeHostName"]) for node in self._nodes() if node["state"] == "RUNNING"}

        self._wait("the nodes register", ready, "resourcemanager", *names)

    def wait_hdfs(self) -> None:
        """Until HDFS takes a new file. (The NameNode's own count of DataNodes is ten seconds old.)"""

        def ready() -> bool:
            return self._hdfs("PUT", "/.horae-probe", "CREATE", noredirect="true", overwrite="true") != ""

        self._wait("HDFS takes files", ready, "namenode", "datanode")

    # --- how ---

    def _configure(self) -> None:
        lab = self._lab()
        net = lab["net"]
        hosts = [f"{net}.1 master", f"127.0.0.1 localhost {socket.gethostname()}"]
        site = settings.Site(*(f"{net}.1",) * 4, data=str(self.folder / "data"))
        settings.write_conf(self.folder / "etc/master", site, settings.Daemon(bind=f"{net}.1"), lab["yarn"])
        for index, (name, kind, _gpus) in enumerate(lab["nodes"]):
            address = f"{net}.{index + 11}"
            hosts.append(f"{address} {name}")
            folder = self.folder / "etc" / name
            daemon = settings.Daemon(name, address, kind, str(folder))
            settings.write_conf(folder, site, daemon, lab["yarn"])
        (self.folder / "hosts").write_text("\n".join(hosts) + "\n")

    def _start_all(self) -> None:
        lab = self._lab()
        conf = self.folder / "etc/master"
        words = [lab["java"], "-Xmx128m", *settings.JVM, f"-Djdk.net.hosts.file={self.folder}/hosts"]
        words += [
            "-cp",
            f"{conf}:{lab['jars']}/*",
            settings.CLASSES["namenode"],
            "-format",
            "-nonInteractive",
            "-force",
        ]
        env = {**os.environ, "HADOOP_CONF_DIR": str(conf)}
        with (self.folder / "log/format.log").open("ab") as log:
            formatting = subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.start("zookeeper")
        if formatting.wait() != 0:
            raise BadInput(
                "the NameNode cannot be formatted", where=str(self.folder / "log"), remedy=self._tail("format")
            )
        self.start("namenode")
        self.start("resourcemanager")
        for name, _, _ in lab["nodes"]:
            self.start(name)
        self._wait("the NameNode answers", lambda: self._hdfs("GET", "/", "LISTSTATUS") != "", "namenode")
        self.start("datanode")  # started before the NameNode answers it would sleep ten seconds
        self.wait_hdfs()
        self._prepare(local_framework(Path(lab["jars"])))
        self.wait_manager()

    def _prepare(self, framework: bytes) -> None:
        """What HDFS must hold before jobs come. Each step may be taken twice, and is until it is done."""
        for path, mode in settings.FOLDERS:
            self._change(path, "MKDIRS", permission=mode)
            self._change(path, "SETPERMISSION", permission=mode)
        for user in {"horae", _me()}:
            self._change(f"/user/{user}", "MKDIRS", permission="755")
            self._change(f"/user/{user}", "SETOWNER", owner=user)
        self._wait("the framework is in HDFS", lambda: self._put(settings.FRAMEWORK, framework), "namenode", "datanode")

    def _change(self, path: str, operation: str, **options: str) -> None:
        def done() -> bool:
            self._hdfs("PUT", path, operation, **options)
            return True

        self._wait(f"{operation} of {path}", done, "namenode")

    def _lab(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "lab.json").read_text())
        return found

    def _nodes(self) -> list[dict[str, Any]]:
        url = f"http://{self.master}:{settings.RM_PORT}/ws/v1/cluster/nodes?user.name=horae"
        with _opened("GET", url, timeout_s=5) as answer:
            text = answer.read()
        try:
            said = json.loads(text)
        except ValueError:
            raise ConnectionError("the ResourceManager's answer is not JSON") from None
        return (said["nodes"] or {}).get("node") or []

    def _hdfs(self, method: str, path: str, operation: str, **options: str) -> str:
        """As the user who runs the NameNode: its superuser. What it answers, or where it sends data."""
        query = urlencode({"op": operation, "user.name": _me(), **options})
        url = f"http://{self.master}:{settings.NN_PORT}/webhdfs/v1{quote(path)}?{query}"
        with _opened(method, url, timeout_s=10) as answer:
            return str(answer.headers.get("Location") or answer.read().decode())

    def _put(self, path: str, data: bytes) -> bool:
        datanode = self._hdfs("PUT", path, "CREATE", overwrite="true", permission="644")
        with _opened("PUT", datanode, data, timeout_s=60) as answer:
            return bool(answer.status == 201)

    def _wait(self, what: str, holds: Callable[[], bool], *daemons: str) -> None:
        """Raises BadInput with the last lines of a daemon that ended, or of all when the time is over."""
        deadline = time.monotonic() + _READY_S
        while True:
            with suppress(OSError):
                if holds():
                    return
            dead = [name for name in daemons if self._made_once(name) and self._pid(name) is None]
            if dead or time.monotonic() > deadline:
                shown = "\n".join(f"--- {name}\n{self._tail(name)}" for name in dead or daemons)
                why = f"{dead[0]} ended" if dead else f"not within {_READY_S:g} s"
                raise BadInput(f"{what}: {why}\n{shown}", where=str(self.folder / "log"))
            time.sleep(0.1)

    def _made_once(self, daemon: str) -> bool:
        return (self.folder / "run" / f"{daemon}.pid").exists()

    def _tail(self, daemon: str, lines: int = 15) -> str:
        with suppress(OSError):
            return "\n".join((self.folder / "log" / f"{daemon}.log").read_text(errors="replace").splitlines()[-lines:])
        return "(no log)"

    def _pid(self, daemon: str) -> int | None:
        """The daemon's pid, if it lives and is of this lab."""
        return processes.noted(self.folder / "run" / f"{daemon}.pid", self.folder)

    def _processes(self, mark: str = "") -> list[int]:
        """Everything of this lab: its daemons name its folder, its containers have their folders in it."""
        return list(processes_of(mark or f"{self.folder}/"))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A NameNode's redirect is an answer: data is sent to where it says, once it is known."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _opened(method: str, url: str, data: bytes | None = None, *, timeout_s: float) -> Any:
    """The answer of a daemon of ours: no proxy between. Raises OSError for none, and for a status of 400 or more."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects)
    request = urllib.request.Request(url, data=data, method=method)
    if data is not None:
        request.add_header("Content-Type", "application/octet-stream")
    try:
        return opener.open(request, timeout=timeout_s)
    except urllib.error.HTTPError as answer:
        if answer.code >= 400:
            raise
        return answer  # a redirect that is not followed


def processes_of(mark: str) -> Iterator[int]:
    """Pids, but ours, whose command line or environment holds this text."""
    text = mark.encode()
    for pid in processes.everybody():
        try:
            if pid == os.getpid() or processes.gone(pid):
                continue
            told = processes.environment(pid)
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        # LOCAL_DIRS and LOG_DIRS: set by the NodeManager for what it starts, and by nobody else
        if (text in command and b"java" in command.split(b"\0")[0]) or any(
            word.startswith((b"LOCAL_DIRS=", b"LOG_DIRS=")) and text in word for word in told
        ):
            yield pid


def _java() -> str:
    found = shutil.which("java")
    if found is None:
        raise BadInput("Hadoop needs Java, and there is none on PATH", remedy="apt install openjdk-17-jre-headless")
    return str(Path(found).resolve())


def _free_net() -> str:
    """The first three numbers of loopback addresses on which nobody listens at Hadoop's ports."""
    for _ in range(200):
        net = f"127.{random.randrange(1, 255)}.{random.randrange(1, 255)}"
        try:
            for port in (settings.RM_PORT, settings.NN_PORT, settings.ZK_PORT):
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind((f"{net}.1", port))
            return net
        except OSError:
            continue
    raise BadInput("no free loopback addresses in 127.0.0.0/8", remedy="this lab needs Linux")


def _me() -> str:
    import getpass

    return getpass.getuser()
