"""Where HDFS is for who hands in a local file, and what is said when it cannot go there."""

from __future__ import annotations

import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from policy.model import BadInput
from yarn_bridge.clients.http import KERBEROS, SIMPLE
from yarn_bridge.submarine.upload import access, archived, upload
from yarn_bridge.submarine.values import Localization


def conf(folder: Path, core: dict[str, str], hdfs: dict[str, str]) -> dict[str, str]:
    for name, values in (("core-site.xml", core), ("hdfs-site.xml", hdfs)):
        text = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in values.items())
        (folder / name).write_text(f"<configuration>{text}</configuration>")
    return {"HADOOP_CONF_DIR": str(folder)}


def test_hdfs_is_where_hadoops_own_files_say(tmp_path: Path) -> None:
    plain = access(conf(tmp_path, {"fs.defaultFS": "hdfs://nn:8020"}, {}), "ann")
    assert (plain.urls, plain.user, plain.auth) == (("http://nn:9870",), "ann", SIMPLE)
    told = access(conf(tmp_path, {"fs.defaultFS": "hdfs://nn:8020"}, {"dfs.namenode.http-address": "nn:50070"}), "ann")
    assert told.urls == ("http://nn:50070",)
    pair = {
        "dfs.ha.namenodes.prod": "a, b", "dfs.http.policy": "HTTPS_ONLY",
        "dfs.namenode.https-address.prod.a": "nn1:9871", "dfs.namenode.https-address.prod.b": "nn2:9871",
    }  # fmt: skip
    secure = {"fs.defaultFS": "hdfs://prod", "hadoop.security.authentication": "Kerberos"}
    both = access(conf(tmp_path, secure, pair), "ann")
    assert (both.urls, both.auth) == (("https://nn1:9871", "https://nn2:9871"), KERBEROS)
    assert access({"HORAE_WEBHDFS": "http://x:1, http://y:1"}, "ann").urls == ("http://x:1", "http://y:1")


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"nothing says where that is.*hdfs:///"):
        access({}, "ann")
    with pytest.raises(BadInput, match="cannot be read"):
        access({"HADOOP_CONF_DIR": str(tmp_path / "none")}, "ann")
    with pytest.raises(BadInput, match="is not here"):
        upload([Localization("hdfs:///a", "a", upload=str(tmp_path / "none"))], "ann")
    assert upload([], "ann") == [], "nothing to put: nobody is asked where"


def test_a_folder_becomes_an_archive_of_it(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("1")
    data = b"".join(archived(tmp_path / "data"))
    assert zipfile.ZipFile(BytesIO(data)).read("x") == b"1"
    assert b"".join(archived(tmp_path / "data" / "x")) == b"1"
