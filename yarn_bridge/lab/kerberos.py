"""A KDC of a lab's own, and what Hadoop's files say under Kerberos. Nothing outside the lab's folder is touched.

Services' principals have a fixed second part (`rm/lab@LAB`), so that no host name decides who is who; the web
servers' are named after the address under which they are asked. Whoever speaks to the lab has `KRB5_CONFIG` set to
its `krb5.conf`.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Collection
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from policy.model import BadInput

REALM = "LAB"
PORT = 8888  #: at the lab's own address
BRIDGE = f"horae@{REALM}"  #: who the arbiter is
ADMINISTRATOR = f"hdfs/lab@{REALM}"  #: HDFS's superuser
#: whom the bridge may act for, beside who brings the lab up; carol has no keytab
OWNERS = ("alice", "carol")
#: the ResourceManager makes its own of it, which heeds doAs and delegation tokens; the proxy-user filter no tokens
FILTER = "org.apache.hadoop.security.AuthenticationFilterInitializer"
_TOOLS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_REMEDY = "apt install krb5-kdc krb5-admin-server krb5-user libkrb5-dev gcc; pip install 'horae[kerberos]'"


class Kdc:
    """One realm at one address, and its keytabs, in `folder`."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self._address = folder, address

    @property
    def conf(self) -> Path:
        return self.folder / "krb5.conf"

    @property
    def env(self) -> dict[str, str]:
        return {"KRB5_CONFIG": str(self.conf), "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf")}

    def command(self) -> list[str]:
        return [_tool("krb5kdc"), "-n"]

    def make(self, hosts: Collection[str], ticket: str = "1h") -> None:
        """The realm, and the keytabs of Hadoop's daemons, whose web servers are asked at `hosts`. Raises BadInput."""
        check()
        self.folder.mkdir(mode=0o700)
        address = f"{self._address}:{PORT}"
        self.conf.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_realm = false\n dns_lookup_kdc = false\n"
            f" dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n forwardable = true\n"
            f" ticket_lifetime = {ticket}\n[realms]\n {REALM} = {{\n  kdc = {address}\n }}\n"
        )
        (self.folder / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = {address}\n kdc_tcp_listen = {address}\n[realms]\n"
            f" {REALM} = {{\n  database_name = {self.folder}/principal\n  key_stash_file = {self.folder}/stash\n"
            f"  acl_file = {self.folder}/kadm5.acl\n  max_life = 10h\n"
            f"  supported_enctypes = aes256-cts:normal aes128-cts:normal\n }}\n"
        )
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", secrets.token_urlsafe(16))
        for name in ("hdfs", "dn", "rm", "nm"):
            self.keytab(name, f"{name}/lab")
        self.keytab("http", *(f"HTTP/{host}" for host in hosts))
        self.keytab("horae", "horae")
        (self.folder / "secret").write_text(secrets.token_urlsafe(16))

    def keytab(self, name: str, *principals: str, life: str = "") -> Path:
        """Make the principals, where they are not there yet, and one keytab with all of them."""
        path = self.folder / f"{name}.keytab"
        for principal in principals:
            life_words = ["-maxlife", life] if life else []
            with suppress(subprocess.CalledProcessError):  # it is there already
                self._run("kadmin.local", "-q", " ".join(["addprinc", "-randkey", *life_words, f"{principal}@{REALM}"]))
            self._run("kadmin.local", "-q", f"ktadd -norandkey -k {path} {principal}@{REALM}")
        return path

    def login(self) -> dict[str, str]:
        """The environment in which a client of Hadoop's is HDFS's administrator."""
        cache = f"FILE:{self.folder / 'administrator'}"
        env = {"KRB5_CONFIG": str(self.conf), "KRB5CCNAME": cache}
        self._run("kinit", "-c", cache, "-kt", str(self.folder / "hdfs.keytab"), ADMINISTRATOR)
        return env

    def _run(self, tool: str, *words: str) -> None:
        env = {**os.environ, **self.env}
        subprocess.run([_tool(tool), *words], env=env, check=True, capture_output=True, timeout=60)


def check() -> None:
    """Raises BadInput where this machine cannot make a realm or ask with a ticket."""
    for tool in _TOOLS:
        _tool(tool)
    if not all(find_spec(name) for name in ("gssapi", "requests_gssapi")):
        raise BadInput("the lab is asked with tickets, and there is no Kerberos client", remedy=_REMEDY)


def _tool(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if found is None:
        raise BadInput(f"a lab under Kerberos needs {name}, and there is none on this host", remedy=_REMEDY)
    return found


# --- what the files say; `folder`: of the KDC ---


def core(folder: str, owners: Collection[str]) -> dict[str, str]:
    return {
        "hadoop.security.authentication": "kerberos",
        "hadoop.security.authorization": "true",
        "hadoop.http.filter.initializers": FILTER,
        "hadoop.http.authentication.type": "kerberos",
        "hadoop.http.authentication.kerberos.principal": "*",
        "hadoop.http.authentication.kerberos.keytab": f"{folder}/http.keytab",
        "hadoop.http.authentication.signature.secret.file": f"{folder}/secret",
        "hadoop.proxyuser.horae.hosts": "*",
        "hadoop.proxyuser.horae.users": ",".join(owners),
        "hadoop.proxyuser.rm.hosts": "*",
        "hadoop.proxyuser.rm.groups": "*",
    }


def hdfs(folder: str) -> dict[str, str]:
    return {
        "dfs.block.access.token.enable": "true",
        "ignore.secure.ports.for.testing": "true",
        "dfs.namenode.kerberos.principal": ADMINISTRATOR,
        "dfs.namenode.keytab.file": f"{folder}/hdfs.keytab",
        "dfs.datanode.kerberos.principal": f"dn/lab@{REALM}",
        "dfs.datanode.keytab.file": f"{folder}/dn.keytab",
        "dfs.web.authentication.kerberos.principal": "*",
        "dfs.web.authentication.kerberos.keytab": f"{folder}/http.keytab",
    }


def yarn(folder: str) -> dict[str, str]:
    found = {}
    for daemon, name in (("resourcemanager", "rm"), ("nodemanager", "nm")):
        found[f"yarn.{daemon}.principal"] = f"{name}/lab@{REALM}"
        found[f"yarn.{daemon}.keytab"] = f"{folder}/{name}.keytab"
        found[f"yarn.{daemon}.webapp.spnego-principal"] = "*"
        found[f"yarn.{daemon}.webapp.spnego-keytab-file"] = f"{folder}/http.keytab"
    return found
