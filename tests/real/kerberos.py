"""A private Hadoop under Kerberos, with a KDC of its own: for the soak run.

Everything of the simple lab stays; the KDC's principals, the secured settings of all daemons and a lab that asks
with a ticket come on top. Service principals have a fixed second part, so that no host name decides who is who.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from horae.lab import LabRequest, default_folder
from horae.spec import JobSpec
from policy.model import EMPTY, GpuRange
from yarn_bridge.clients.hdfs import Hdfs
from yarn_bridge.clients.spnego import Spnego
from yarn_bridge.lab import private, settings
from yarn_bridge.options import Options, parse_options

REALM = "LAB"
#: the ResourceManager makes its own of it, which heeds doAs and delegation tokens; the proxy-user filter no tokens
FILTER = "org.apache.hadoop.security.AuthenticationFilterInitializer"
TOOLS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")


@dataclass
class Kdc:
    """One realm on a free port of this host."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def conf(self) -> Path:
        return self.folder / "krb5.conf"

    def start(self, ticket: str = "1h") -> None:
        self.conf.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_realm = false\n dns_lookup_kdc = false\n"
            f" dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n forwardable = true\n"
            f" ticket_lifetime = {ticket}\n[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{self.port}\n }}\n"
        )
        (self.folder / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{self.port}\n kdc_tcp_listen = 127.0.0.1:{self.port}\n[realms]\n"
            f" {REALM} = {{\n  database_name = {self.folder}/principal\n  key_stash_file = {self.folder}/stash\n"
            f"  acl_file = {self.folder}/kadm5.acl\n  max_life = 10h\n"
            f"  supported_enctypes = aes256-cts:normal aes128-cts:normal\n }}\n"
        )
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master-of-the-lab")
        with (self.folder / "kdc.log").open("wb") as log:
            self.process = subprocess.Popen([_tool("krb5kdc"), "-n"], env=self.env, stdout=log, stderr=log)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "KRB5_CONFIG": str(self.conf), "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf")}

    def keytab(self, name: str, *principals: str, life: str = "") -> Path:
        """Make the principals, where they are not there yet, and one keytab with all of them."""
        path = self.folder / f"{name}.keytab"
        for principal in principals:
            life_words = ["-maxlife", life] if life else []
            with suppress(subprocess.CalledProcessError):
                self._run("kadmin.local", "-q", " ".join(["addprinc", "-randkey", *life_words, f"{principal}@{REALM}"]))
            self._run("kadmin.local", "-q", f"ktadd -norandkey -k {path} {principal}@{REALM}")
        return path

    def _run(self, tool: str, *words: str) -> None:
        subprocess.run([_tool(tool), *words], env=self.env, check=True, capture_output=True, timeout=60)


def _tool(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"there is no {name} on this host: apt install krb5-kdc krb5-admin-server krb5-user")
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def secured(
    kdc: Kdc,
    folder: Path,
    hdfs: Mapping[str, str] = EMPTY,
    yarn: Mapping[str, str] = EMPTY,
    release: str = "",
) -> Iterator[Options]:
    """A cluster of two nodes under Kerberos, homes for alice and carol, a keytab in alice's; the bridge's options.

    `hdfs`, `yarn`: settings that hdfs-site.xml and yarn-site.xml get on top.
    """
    with pytest.MonkeyPatch.context() as patch:
        secure(kdc, patch, hdfs)
        lab = private.PrivateHadoop(folder, default_folder() / "hadoop")
        try:
            lab.up(LabRequest(name="krb", nodes=2, gpus=(("v100", 4),), release=release, options=yarn))
            keytab = kdc.keytab("horae", "horae")
            who = {"auth": "kerberos", "principal": f"horae@{REALM}", "keytab": str(keytab)}
            found = parse_options({**lab.facts(), **who})
            _home(found, kdc)
            yield found
        finally:
            lab.down()


def _home(options: Options, kdc: Kdc) -> None:
    """Homes for alice and carol, as HDFS's administrator makes them, and in alice's her services' keytab."""
    administrator = replace(options, principal=f"hdfs/lab@{REALM}", keytab=str(kdc.folder / "hdfs.keytab"), user="hdfs")
    hdfs = Hdfs(administrator.access(administrator.webhdfs), dict(options.hdfs_names))
    for owner in ("alice", "carol"):
        hdfs.make_folder(f"/user/{owner}")
        hdfs.set_owner(f"/user/{owner}", owner)
    keytab = kdc.keytab("alice", "alice/horae")
    mine = Hdfs(options.access(options.webhdfs), dict(options.hdfs_names)).as_user("alice")
    mine.write("/user/alice/horae.keytab", keytab.read_bytes())
    mine.set_permission("/user/alice/horae.keytab", "600")


def secure(kdc: Kdc, patch: pytest.MonkeyPatch, more_hdfs: Mapping[str, str] = EMPTY) -> None:
    """From now on a lab that is made is under Kerberos, with `horae` as the bridge that may act for alice and carol."""
    keys = {name: kdc.keytab(name, f"{name}/lab") for name in ("hdfs", "dn", "rm", "nm")}
    secret = kdc.folder / "secret"
    secret.write_text("a secret of the lab")
    http = kdc.folder / "http.keytab"
    core, hdfs, yarn = settings._core, settings._hdfs, settings._yarn

    def with_core(site: settings.Site) -> dict[str, str]:
        # The web servers' principal is named after the address under which they are asked.
        if not http.exists():
            kdc.keytab("http", f"HTTP/{site.manager}", "HTTP/localhost")
        return core(site) | {
            "hadoop.security.authentication": "kerberos",
            "hadoop.security.authorization": "true",
            "hadoop.http.filter.initializers": FILTER,
            "hadoop.http.authentication.type": "kerberos",
            "hadoop.http.authentication.kerberos.principal": "*",
            "hadoop.http.authentication.kerberos.keytab": str(http),
            "hadoop.http.authentication.signature.secret.file": str(secret),
            "hadoop.proxyuser.horae.hosts": "*",
            "hadoop.proxyuser.horae.users": "alice,carol",
            "hadoop.proxyuser.rm.hosts": "*",
            "hadoop.proxyuser.rm.groups": "*",
        }

    def with_hdfs(site: settings.Site) -> dict[str, str]:
        return hdfs(site) | {
            **more_hdfs,
            "dfs.block.access.token.enable": "true",
            "ignore.secure.ports.for.testing": "true",
            "dfs.namenode.kerberos.principal": f"hdfs/lab@{REALM}",
            "dfs.namenode.keytab.file": str(keys["hdfs"]),
            "dfs.datanode.kerberos.principal": f"dn/lab@{REALM}",
            "dfs.datanode.keytab.file": str(keys["dn"]),
            "dfs.web.authentication.kerberos.principal": "*",
            "dfs.web.authentication.kerberos.keytab": str(http),
        }

    def with_yarn(site: settings.Site, daemon: settings.Daemon) -> dict[str, str]:
        return yarn(site, daemon) | {
            "yarn.resourcemanager.principal": f"rm/lab@{REALM}",
            "yarn.resourcemanager.keytab": str(keys["rm"]),
            "yarn.resourcemanager.webapp.spnego-principal": "*",
            "yarn.resourcemanager.webapp.spnego-keytab-file": str(http),
            "yarn.nodemanager.principal": f"nm/lab@{REALM}",
            "yarn.nodemanager.keytab": str(keys["nm"]),
            "yarn.nodemanager.webapp.spnego-principal": "*",
            "yarn.nodemanager.webapp.spnego-keytab-file": str(http),
        }

    patch.setattr(settings, "_core", with_core)
    patch.setattr(settings, "_hdfs", with_hdfs)
    patch.setattr(settings, "_yarn", with_yarn)
    patch.setattr(settings, "JVM", (*settings.JVM, f"-Djava.security.krb5.conf={kdc.conf}"))
    patch.setenv("KRB5_CONFIG", str(kdc.conf))
    # The lab's own questions go with the ticket of HDFS's administrator.
    auth = Spnego(f"hdfs/lab@{REALM}", str(keys["hdfs"]))
    patch.setattr(private, "requests", _asking(auth))


def _asking(auth: Spnego) -> SimpleNamespace:
    def ask(method: str, url: str, params: Mapping[str, str] | None = None, **more: Any) -> requests.Response:
        plain = {key: value for key, value in (params or {}).items() if key != "user.name"}
        return requests.request(method, url.replace("?user.name=horae", ""), params=plain, auth=auth, **more)

    return SimpleNamespace(
        RequestException=requests.RequestException,
        request=ask,
        get=lambda url, **more: ask("GET", url, **more),
        put=lambda url, **more: ask("PUT", url, **more),
    )


def running_kdc(folder: Path) -> Iterator[Kdc]:
    """Skips where Python has no Kerberos; asked for by soak tests, which then fails under CI."""
    pytest.importorskip("gssapi", reason="pip install 'horae[kerberos]' (needs libkrb5-dev)")
    for tool in TOOLS:
        _tool(tool)
    kdc = Kdc(folder, free_port())
    kdc.start()
    deadline = time.monotonic() + 90
    try:
        while True:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", kdc.port), 1).close()
                break
            assert time.monotonic() < deadline, (folder / "kdc.log").read_text()
            time.sleep(0.05)
        yield kdc
    finally:
        kdc.stop()


TRAINER = Path(__file__).parents[1] / "contract" / "trainer.py"


def job_of(owner: str, options: Options, folder: Path) -> JobSpec:
    shutil.copy(TRAINER, folder / "trainer.py")
    folder.chmod(0o755)
    url = options.webhdfs[0].replace("http:", "webhdfs:")
    return JobSpec(
        name="krb",
        command=(sys.executable, str(folder / "trainer.py"), "trains"),
        gpus=GpuRange(requested=1, min=1, max=4),
        owner=owner,
        checkpoint=f"{url}/user/{owner}/krb-checkpoints",
        memory_per_gpu=256 << 20,
        grace_s=30.0,
    )
