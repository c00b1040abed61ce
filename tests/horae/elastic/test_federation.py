"""Where a path of a federated HDFS is: by nameservices and mount tables of the client's own configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from horae.elastic.stores import checkpoints, webhdfs
from horae.elastic.stores.federation import client_conf, namenodes, unmounted
from horae.elastic.stores.store import open_store
from tests.horae.elastic.hdfs_server import Hdfs

SERVICES = {
    "fs.defaultFS": "viewfs://shop",
    "dfs.nameservices": "ns1, ns2",
    "dfs.ha.namenodes.ns1": "a,b",
    "dfs.namenode.http-address.ns1.a": "nn1:9870",
    "dfs.namenode.http-address.ns1.b": "nn2:9870",
    "dfs.namenode.http-address.ns2": "nn3:9870",
    "dfs.namenode.rpc-address.ns2": "nn3:8020",
}
TABLE = "fs.viewfs.mounttable.shop."
MOUNTS = {
    f"{TABLE}link./user": "hdfs://ns1/user",
    f"{TABLE}link./user/alice/big": "hdfs://ns2/big/",
    f"{TABLE}link./bucket": "s3a://bucket/x",
}

CIRCLE = {f"fs.viewfs.mounttable.{one}.linkMergeSlash": f"viewfs://{two}/y" for one, two in ("ab", "ba")}


def site(folder: Path, core: dict[str, str], hdfs: dict[str, str], include: str = "") -> None:
    for name, values in (("core-site.xml", core), ("hdfs-site.xml", hdfs)):
        listed = "".join(f"<property><name>{k}</name><value>{v}</value></property>\n" for k, v in values.items())
        top = f'<configuration xmlns:xi="http://www.w3.org/2001/XInclude">{include if name[0] == "c" else ""}\n'
        (folder / name).write_text(f"{top}{listed}</configuration>\n")


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("viewfs://shop/user/bob/ckpt", "hdfs://ns1/user/bob/ckpt"),
        ("viewfs:///user/bob", "hdfs://ns1/user/bob"),
        ("viewfs://shop/user/alice/big/x", "hdfs://ns2/big/x"),
        ("viewfs://shop/user/alice/bigger", "hdfs://ns1/user/alice/bigger"),
        ("viewfs://shop/user", "hdfs://ns1/user"),
        ("viewfs://shop/bucket/y", "s3a://bucket/x/y"),
        ("hdfs://ns2/data", "hdfs://ns2/data"),
    ],
)
def test_mount_points(url: str, found: str) -> None:
    assert unmounted(url, {**SERVICES, **MOUNTS}) == found


def test_merged_roots_fallbacks_and_tables_of_an_hdfs_name() -> None:
    merged = {"fs.viewfs.mounttable.one.linkMergeSlash": "hdfs://ns2/"}
    assert unmounted("viewfs://one/a/b", merged) == "hdfs://ns2/a/b"
    rest = {**MOUNTS, f"{TABLE}linkFallback": "hdfs://ns1/rest"}
    assert unmounted("viewfs://shop/other/a", rest) == "hdfs://ns1/rest/other/a"
    assert unmounted("hdfs://shop/user/x", MOUNTS) == "hdfs://ns1/user/x"


@pytest.mark.parametrize(
    ("url", "conf", "why"),
    [
        ("viewfs://other/a", MOUNTS, r"no mount table fs\.viewfs\.mounttable\.other\."),
        ("viewfs://shop/nowhere", MOUNTS, "nothing is mounted there"),
        ("viewfs://a/x", CIRCLE, "lead to each other"),
    ],
)
def test_what_is_not_mounted_is_told_and_not_guessed(url: str, conf: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        unmounted(url, conf)


def test_namenodes_of_a_nameservice() -> None:
    assert namenodes("ns1", SERVICES) == ["http://nn1:9870", "http://nn2:9870"]
    assert namenodes("nn3:8020", SERVICES) == namenodes("ns2", SERVICES) == ["http://nn3:9870"]
    assert namenodes("ns3", SERVICES) == namenodes("", SERVICES) == []
    secure = {"dfs.http.policy": "HTTPS_ONLY", "dfs.nameservices": "s", "dfs.namenode.https-address.s": "n:9871"}
    assert namenodes("s", secure) == ["https://n:9871"]


def test_a_checkpoint_goes_to_the_nameservice_that_its_address_names(
    hdfs: Hdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every hdfs:// address went to $HORAE_WEBHDFS, whatever nameservice it named."""
    base = hdfs.url.replace("webhdfs://", "").partition("/")[0]
    core = {"fs.defaultFS": "viewfs://shop"}
    (tmp_path / "mounts.xml").write_text(
        f"<configuration><property><name>{TABLE}link./c</name><value>hdfs://ns2/ckpt</value></property></configuration>"
    )
    services = {"dfs.nameservices": "ns2", "dfs.namenode.http-address.ns2": base}
    site(tmp_path, core, services, '<xi:include href="mounts.xml"/>')
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("HORAE_WEBHDFS", "http://127.0.0.1:1")
    for url in ("viewfs://shop/c/one", "hdfs://ns2/ckpt/one"):
        store = open_store(url)
        step = len(checkpoints.marks(store)) + 1
        checkpoints.write(store, step, 1, {}, lambda folder: (Path(folder) / "m").write_bytes(b"w"), lambda: None)
    assert [each.step for each in checkpoints.marks(open_store("viewfs://shop/c/one"))] == [2, 1]
    assert "/ckpt/one" in hdfs.folders


def test_the_default_nameservice_is_where_the_site_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a gateway, say, which the client's configuration does not know."""
    site(tmp_path, {}, {**SERVICES, "fs.defaultFS": "hdfs://ns1"})
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("HORAE_WEBHDFS", "https://knox:8443/gateway/default")
    assert list(webhdfs.locate("hdfs://ns1/a")[0].bases) == ["https://knox:8443/gateway/default"]
    assert list(webhdfs.locate("hdfs://ns2/a")[0].bases) == ["http://nn3:9870"]
    assert list(webhdfs.locate("hdfs://elsewhere:8020/a")[0].bases) == ["https://knox:8443/gateway/default"]


def test_a_configuration_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "core-site.xml").write_text("<configuration><property>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(ValueError, match=r"core-site\.xml cannot be read"):
        client_conf()
