"""A private Hadoop as plain processes of one user: HDFS, ZooKeeper, a ResourceManager and NodeManagers on this host.

No installation, no Docker, no root, no /etc/hosts: each lab has loopback addresses of its own (127.x.y.*), and
Java's own host file gives every NodeManager a name. GPUs are what a fake nvidia-smi says. All of it is one user's
and, but for a lab under Kerberos, believes every `user.name`: for tests and trying out only.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from horae.lab import LabRequest, LabState, processes, say
from policy.model import BadInput
from yarn_bridge.lab import kerberos, settings
from yarn_bridge.lab.asked import Daemons, me
from yarn_bridge.lab.jars import fetch_alone, jars, local_framework

#: features of a lab
KERBEROS, STANDBYS, FEDERATION = "kerberos", "standbys", "federation"
#: daemons at the second address, and what they are
_SECOND = {"namenode2": "namenode", "resourcemanager2": "resourcemanager"}
_FIRST_NODE = 11  #: last number of its address
#: folders of a lab beside that of its logs
_MADE = ("data", "etc", "run", "kdc")
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
        if KERBEROS in request.features:
            kerberos.check()
        if {STANDBYS, FEDERATION} <= set(request.features):
            raise BadInput(f"a lab has {STANDBYS} or {FEDERATION}, not both", remedy="leave one out")
        release = request.release or settings.RELEASES[0]
        libraries = jars(self._cache, release, say)
        self.down()
        shutil.rmtree(self.folder / "log", ignore_errors=True)
        for name in ("data", "data/tmp", "etc", "run", "log"):
            (self.folder / name).mkdir(parents=True)
        facts = {
            "java": java,
            "jars": str(libraries),
            "release": release,
            "net": _free_net(),
            "nodes": [list(kind) for kind in request.node_kinds()],
            "yarn": dict(request.options),
            "features": sorted(request.features),
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
        if (kdc := self._pid("kdc")) is not None:
            processes.end(kdc)
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
        for name in _MADE:
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for name in ("hosts", "owner"):
            (self.folder / name).unlink(missing_ok=True)
        return LabState(self.folder.name, False, f"down; its logs are in {self.folder / 'log'}")

    def status(self) -> LabState:
        if not self.made or self._pid("resourcemanager") is None:
            return LabState(self.folder.name, False, "not up")
        try:
            nodes = self._asked.nodes()
        except OSError as error:
            return LabState(self.folder.name, False, f"the ResourceManager does not answer: {type(error).__name__}")
        text = "\n".join(f"{node['nodeHostName']} {node['state']}" for node in nodes)
        if self.kdc is not None:
            text += f"\nwho asks it needs  export KRB5_CONFIG={self.kdc.conf}"
        return LabState(self.folder.name, bool(nodes), text, self.facts())

    def facts(self) -> dict[str, Any]:
        """Options for `connect`. Under Kerberos this process needs `KRB5_CONFIG`, which is set here."""
        hosts = [self.master, *([self._standby] if self._standby else [])]
        namenodes = [f"http://{host}:{settings.NN_PORT}" for host in hosts]
        ticket = {}
        if self.kdc is not None:
            os.environ |= {"KRB5_CONFIG": str(self.kdc.conf)}
            ticket = {"auth": KERBEROS, "principal": kerberos.BRIDGE, "keytab": str(self.kdc.folder / "horae.keytab")}
        return {
            **ticket,
            "resource_manager": [f"http://{host}:{settings.RM_PORT}" for host in hosts],
            "webhdfs": namenodes if self._standby else namenodes[0],
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

    @property
    def _asked(self) -> Daemons:
        return Daemons(self.master, self._standby, self.kdc)

    @property
    def kdc(self) -> kerberos.Kdc | None:
        """Its KDC, where it is under Kerberos."""
        if KERBEROS not in self._lab().get("features", ()):
            return None
        return kerberos.Kdc(self.folder / "kdc", self.master)

    def demo(self) -> int:
        from yarn_bridge.lab.demo import demo

        return demo(self.facts())

    # --- its daemons, one by one: bad days need that ---

    def start(self, daemon: str) -> None:
        """Start `zookeeper`, `namenode`, `datanode`, `resourcemanager`, or a NodeManager by its node's name.

        Also `namenode2` and `resourcemanager2` where there are standbys, and `kdc` under Kerberos.
        """
        if daemon == "kdc":
            assert self.kdc is not None
            self._run(daemon, self.kdc.command(), self.kdc.env)
            return
        lab = self._lab()
        kinds = {name: (kind, gpus) for name, kind, gpus in lab["nodes"]}
        role = "nodemanager" if daemon in kinds else _SECOND.get(daemon, daemon)
        conf = self.folder / "etc" / (daemon if daemon in kinds else "second" if daemon in _SECOND else "master")
        options = self._jvm()
        env = {"HADOOP_CONF_DIR": str(conf), "JAVA_HOME": str(Path(lab["java"]).parents[1])}
        if self.kdc is not None:
            env |= {"KRB5_CONFIG": str(self.kdc.conf)}  # of its shell commands, and of the workers' own tools
        env["LANG"] = "C.UTF-8"
        if daemon in kinds:
            kind, gpus = kinds[daemon]
            # the application masters' options; their own setting for it refuses every '='
            env |= {"GPU_KIND": kind, "FAKE_GPUS": str(gpus), "JDK_JAVA_OPTIONS": " ".join(options)}
            # workers are no Java, and know no node's name
            env["HORAE_NODE_MANAGER"] = f"{lab['net']}.{list(kinds).index(daemon) + _FIRST_NODE}:{settings.NM_WEB_PORT}"
            options = []
        words = [lab["java"], settings.heap(role), *options, f"-Dservice.libdir={lab['jars']}",
                 "-cp", f"{conf}:{lab['jars']}/*", settings.CLASSES[role]]  # fmt: skip
        if role == "zookeeper":
            words.append(str(conf / "zoo.cfg"))
        self._run(daemon, words, env)

    def program(self, name: str, heap_mb: int, conf: Path, artifacts: Sequence[str], *words: str) -> None:
        """Start another program of Hadoop's; under a daemon's name it is in that daemon's place. It ends with the lab.

        `artifacts`: Maven's group:name:version, beside the lab's jars; `words`: options, a class, what that is told.
        """
        lab, more = self._lab(), self.folder / "data" / f"jars-{name}"
        fetch_alone(more, artifacts)
        path = f"{conf}:{more}/*:{lab['jars']}/*"
        command = [lab["java"], f"-Xmx{heap_mb}m", *self._jvm(), f"-Dservice.libdir={lab['jars']}", "-cp", path, *words]
        env = {"HADOOP_CONF_DIR": str(conf), "JAVA_HOME": str(Path(lab["java"]).parents[1])}
        self._run(name, command, env)

    def _run(self, daemon: str, words: list[str], env: Mapping[str, str]) -> None:
        with (self.folder / "log" / f"{daemon}.log").open("ab") as log:
            process = subprocess.Popen(
                words,
                env={**os.environ, **env},
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
            "haadmin": "org.apache.hadoop.hdfs.tools.DFSHAAdmin",
            "rmadmin": "org.apache.hadoop.yarn.client.cli.RMAdminCLI",
        }
        argv = [lab["java"], "-Xmx128m", *self._jvm(), "-cp", f"{conf}:{lab['jars']}/*", main[tool], *words]
        env = {**os.environ, **(self.kdc.login() if self.kdc is not None else {})}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=_READY_S)
        if done.returncode != 0:
            said = done.stderr.strip()[-400:]
            raise BadInput(f"{tool} {' '.join(words)} fails: {said}", where=str(self.folder))
        return done.stdout.strip()

    def wait_manager(self) -> None:
        """Until the ResourceManager answers and all nodes that live are registered."""
        names = [name for name, _, _ in self._lab()["nodes"] if self._pid(name) is not None]
        wanted = set(names)

        def ready() -> bool:
            return wanted <= {str(node["nodeHostName"]) for node in self._asked.nodes() if node["state"] == "RUNNING"}

        self._wait("the nodes register", ready, "resourcemanager", *names)

    def wait_hdfs(self) -> None:
        """Until HDFS takes a new file. (The NameNode's own count of DataNodes is ten seconds old.)"""

        def ready() -> bool:
            return self._asked.hdfs("PUT", "/.horae-probe", "CREATE", noredirect="true", overwrite="true") != ""

        self._wait("HDFS takes files", ready, "namenode", "datanode")

    # --- how ---

    def _configure(self) -> None:
        lab = self._lab()
        net = lab["net"]
        hosts = [f"{net}.1 master", f"127.0.0.1 localhost {socket.gethostname()}"]
        kdc = str(self.kdc.folder) if self.kdc is not None else ""
        site = settings.Site(
            *(f"{net}.1",) * 4,
            data=str(self.folder / "data"),
            standby=self._standby,
            far=self.far,
            kdc=kdc,
            owners=_owners(),
        )
        settings.write_conf(self.folder / "etc/master", site, settings.Daemon(bind=f"{net}.1"), lab["yarn"])
        if self._second:
            second = settings.Daemon(bind=self._second, mine=1)
            settings.write_conf(self.folder / "etc/second", site, second, lab["yarn"])
        for index, (name, kind, _gpus) in enumerate(lab["nodes"]):
            address = f"{net}.{index + _FIRST_NODE}"
            hosts.append(f"{address} {name}")
            folder = self.folder / "etc" / name
            daemon = settings.Daemon(name, address, kind, str(folder))
            settings.write_conf(folder, site, daemon, lab["yarn"])
        (self.folder / "hosts").write_text("\n".join(hosts) + "\n")

    def _start_all(self) -> None:
        lab = self._lab()
        conf = self.folder / "etc/master"
        if self.kdc is not None:
            names = [name for name, _, _ in lab["nodes"]]
            self.kdc.make([self.master, *([self._second] if self._second else []), *names, "localhost"])
            self.start("kdc")
            self._wait("the KDC listens", self._kdc_listens, "kdc")
        formatting = [self._format(conf)] + ([self._format(self.folder / "etc/second")] if self.far else [])
        self.start("zookeeper")
        if {each.wait() for each in formatting} != {0}:
            raise BadInput(
                "the NameNode cannot be formatted", where=str(self.folder / "log"), remedy=self._tail("format")
            )
        self.start("namenode")
        if self.far:
            self.start("namenode2")
        if self._standby:
            shutil.copytree(self.folder / "data/nn1", self.folder / "data/nn2")  # as formatted: they begin alike
            self.start("namenode2")
            self.start("resourcemanager2")
        self.start("resourcemanager")
        for name, _, _ in lab["nodes"]:
            self.start(name)
        if self._standby:
            self._wait("a NameNode is active", self._activate, "namenode", "namenode2")
        self._wait("the NameNode answers", lambda: self._asked.hdfs("GET", "/", "LISTSTATUS") != "", "namenode")
        if self.far:
            self._wait("so does far's", lambda: self._asked.hdfs("GET", "/", "LISTSTATUS", self.far) != "", "namenode2")
        self.start("datanode")  # started before the NameNode answers it would sleep ten seconds
        self.wait_hdfs()
        self._prepare(local_framework(Path(lab["jars"])))
        self.wait_manager()

    def _format(self, conf: Path) -> subprocess.Popen[bytes]:
        lab = self._lab()
        words = [lab["java"], "-Xmx128m", *self._jvm(), "-cp", f"{conf}:{lab['jars']}/*"]
        words += [settings.CLASSES["namenode"], "-format", "-nonInteractive", "-force", "-clusterId", "CID-lab"]
        env = {**os.environ, "HADOOP_CONF_DIR": str(conf)}
        with (self.folder / "log/format.log").open("ab") as log:
            return subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _prepare(self, framework: bytes) -> None:
        """What HDFS must hold before jobs come. Each step may be taken twice, and is until it is done."""
        for path, mode in settings.FOLDERS:
            self._change(path, "MKDIRS", permission=mode)
            self._change(path, "SETPERMISSION", permission=mode)
        if self.far:
            self._change("/", "SETPERMISSION", at=self.far, permission="1777")
        for user in {"horae", me()} | (set(_owners()) if self.kdc is not None else set()):
            self._change(f"/user/{user}", "MKDIRS", permission="755")
            self._change(f"/user/{user}", "SETOWNER", owner=user)
        if self.kdc is not None:
            for user in {me(), kerberos.OWNERS[0]}:
                self._give_keytab(user, self.kdc)
        self._wait(
            "the framework is in HDFS", lambda: self._asked.put(settings.FRAMEWORK, framework), "namenode", "datanode"
        )

    def _change(self, path: str, operation: str, **options: str) -> None:
        def done() -> bool:
            self._asked.hdfs("PUT", path, operation, **options)
            return True

        self._wait(f"{operation} of {path}", done, "namenode")

    def _lab(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "lab.json").read_text())
        return found

    def _give_keytab(self, user: str, kdc: kerberos.Kdc) -> None:
        """As an administrator does for who trains: her service's principal, its keytab in her folder, hers alone."""
        path, data = f"/user/{user}/horae.keytab", kdc.keytab(f"{user}-horae", f"{user}/horae").read_bytes()
        self._wait(f"{path} is in HDFS", lambda: self._asked.put(path, data), "namenode", "datanode")
        self._change(path, "SETOWNER", owner=user)
        self._change(path, "SETPERMISSION", permission="600")

    def _kdc_listens(self) -> bool:
        with socket.create_connection((self.master, kerberos.PORT), 1):
            return True

    def _activate(self) -> bool:
        """The first NameNode, by an administrator's word: it is refused until the NameNodes answer."""
        try:
            self.admin("haadmin", "-transitionToActive", "--forceactive", "nn1")
        except BadInput as error:
            raise ConnectionError(error.message) from None
        return True

    @property
    def _standby(self) -> str:
        """The standbys' address; empty where there are none."""
        return self._second if STANDBYS in self._lab().get("features", ()) else ""

    @property
    def far(self) -> str:
        """The address of the other nameservice's NameNode; empty where there is none."""
        return self._second if FEDERATION in self._lab().get("features", ()) else ""

    @property
    def _second(self) -> str:
        lab = self._lab()
        return f"{lab['net']}.2" if {STANDBYS, FEDERATION} & set(lab.get("features", ())) else ""

    def _jvm(self) -> list[str]:
        """What every Java process of the lab is told: names, and where its temporary files go; no counters in /tmp."""
        options = [*settings.JVM, f"-Djdk.net.hosts.file={self.folder}/hosts"]
        options += [f"-Djava.io.tmpdir={self.folder}/data/tmp", "-XX:-UsePerfData"]
        return [*options, *([f"-Djava.security.krb5.conf={self.kdc.conf}"] if self.kdc is not None else [])]

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


def _owners() -> tuple[str, ...]:
    """For whom the bridge may act, under Kerberos."""
    return tuple(dict.fromkeys((me(), *kerberos.OWNERS)))
