"""Slices under Kerberos where NameNodes share a name: tokens are made out to that name, and are good at all of them.

One of the two NameNodes is away for good: what is tried is that all of Hadoop's clients find such a token.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from horae.lab import default_folder
from horae.port import JobState, attend
from tests.contract.harness import job_in
from tests.contract.waiting import patiently, wait_for
from tests.real.hadoop import ALIVE
from tests.real.kerberos import REALM, Kdc, job_of, running_kdc, secured
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.lab import settings
from yarn_bridge.options import Options
from yarn_bridge.runtimes.slice_shapes import SLICE_KIND
from yarn_bridge.runtimes.slice_tokens import HdfsToken, SliceTokens

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.xdist_group("yarn"), pytest.mark.timeout(900)]

NAME, OTHER = "prod", 9871


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    yield from running_kdc(tmp_path_factory.mktemp("kdc"))


@pytest.fixture(scope="module")
def options(kdc: Kdc, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Options]:
    lab = tmp_path_factory.mktemp("hadoopkrbha-")
    done = threading.Event()
    helper = threading.Thread(target=_activate, args=(kdc, lab, done), daemon=True)
    with pytest.MonkeyPatch.context() as patch:
        _share_a_name(patch)
        helper.start()
        try:
            with secured(kdc, lab) as found:
                (first,) = found.webhdfs
                both = (first, first.replace(str(settings.NN_PORT), str(OTHER)))
                yield replace(found, webhdfs=both, runtime="slices", slice_memory_mib=320)
        finally:
            done.set()
            helper.join()


def _share_a_name(patch: pytest.MonkeyPatch) -> None:
    core, hdfs = settings._core, settings._hdfs

    def with_hdfs(site: settings.Site) -> dict[str, str]:
        plain = hdfs(site)
        for one in ("rpc-address", "http-address"):
            plain[f"dfs.namenode.{one}.{NAME}.nn1"] = plain.pop(f"dfs.namenode.{one}")
        provider = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
        return plain | {
            "dfs.nameservices": NAME,
            f"dfs.ha.namenodes.{NAME}": "nn1,nn2",
            f"dfs.namenode.rpc-address.{NAME}.nn2": f"{site.namenode}:9001",
            f"dfs.namenode.http-address.{NAME}.nn2": f"{site.namenode}:{OTHER}",
            f"dfs.client.failover.proxy.provider.{NAME}": provider,
            "dfs.ha.namenode.id": "nn1",
            "dfs.namenode.shared.edits.dir": f"file://{site.data}/shared-edits",
        }

    patch.setattr(settings, "_core", lambda site: core(site) | {"fs.defaultFS": f"hdfs://{NAME}"})
    patch.setattr(settings, "_hdfs", with_hdfs)


def _activate(kdc: Kdc, lab: Path, done: threading.Event) -> None:
    """The NameNode serves once an administrator says so, which is before the lab is up."""
    conf, cache = lab / "etc/master", kdc.folder / "administrator"
    env = {**kdc.env, "KRB5CCNAME": f"FILE:{cache}", "HADOOP_CONF_DIR": str(conf)}
    keytab = kdc.folder / "hdfs.keytab"
    jars = default_folder() / "hadoop/jars-3.4.2"
    while not done.wait(1.0):
        if not (lab / "run/namenode.pid").exists():
            continue
        subprocess.run(["kinit", "-kt", str(keytab), f"hdfs/lab@{REALM}"], env=env, check=True, timeout=60)
        words = ["java", "-Xmx128m", *settings.JVM, f"-Djdk.net.hosts.file={lab}/hosts"]
        words += ["-cp", f"{conf}:{jars}/*", "org.apache.hadoop.hdfs.tools.DFSHAAdmin"]
        words += ["-transitionToActive", "--forceactive", "nn1"]
        with (lab / "log/haadmin.log").open("ab") as log:
            if (
                subprocess.run(
                    words, env={**os.environ, **env}, stdout=log, stderr=log, timeout=120, check=False
                ).returncode
                == 0
            ):
                return


def test_a_slices_token_is_made_out_to_the_name(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens: list[HdfsToken] = []
    get = SliceTokens.get

    def remember(self: SliceTokens, owner: str) -> HdfsToken:
        tokens.append(get(self, owner))
        return tokens[-1]

    monkeypatch.setattr(SliceTokens, "get", remember)
    port = YarnCluster(options)

    def state() -> JobState | None:
        found = job_in(attend(port).jobs, "named")
        return found.state if found else None

    try:
        patiently(lambda: port.claim("the arbiter"))
        spec = job_of("carol", options, tmp_path)
        spec = replace(spec, command=(*spec.command[:2], "finishes"), checkpoint=f"{spec.checkpoint}-named")
        port.submit("named", spec)
        patiently(lambda: port.start("named", {"n1": 1}, 1))
        wait_for("it finishes", lambda: state() is JobState.COMPLETED, 300.0)
        assert {each.service for each in tokens} == {f"ha-hdfs:{NAME}".encode()}
        wait_for("no slice is left", lambda: not port.manager.apps(kinds=(SLICE_KIND,), states=ALIVE))
    finally:
        port.close()
