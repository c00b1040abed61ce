"""The token file that YARN gives a container, written here as Hadoop writes it."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from horae.elastic.stores import webhdfs
from horae.elastic.stores.container_tokens import ENV, hdfs_token, word_of


def number(value: int) -> bytes:
    """Hadoop's variable-length integer, for values up to 65535."""
    if value <= 127:
        return bytes([value])
    return bytes([0x8F, value]) if value <= 255 else bytes([0x8E]) + value.to_bytes(2, "big")


def text(value: bytes) -> bytes:
    return number(len(value)) + value


def token_file(path: Path, *tokens: tuple[bytes, ...], head: bytes = b"HDTS\0") -> Path:
    path.write_bytes(head + number(len(tokens)) + b"".join(text(field) for token in tokens for field in token))
    return path


RM = (b"rm", b"id", b"pw", b"YARN_AM_RM_TOKEN", b"")
LONG = (b"ha-hdfs:nn", b"i" * 300, b"p" * 200, b"HDFS_DELEGATION_TOKEN", b"nn:8020")


def test_the_hdfs_token_is_found_among_others_in_webhdfs_form(tmp_path: Path) -> None:
    path = token_file(tmp_path / "container_tokens", RM, LONG)
    found = hdfs_token(str(path))
    assert "=" not in found
    body = base64.urlsafe_b64decode(found + "=" * (-len(found) % 4))
    assert body == b"".join(text(field) for field in LONG[1:])


def test_where_there_is_none_the_word_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENV, raising=False)
    assert hdfs_token() == ""
    assert hdfs_token(str(token_file(tmp_path / "none", RM))) == ""
    assert hdfs_token(str(token_file(tmp_path / "newer", LONG, head=b"HDTS\1"))) == ""
    cut = tmp_path / "cut"
    cut.write_bytes(token_file(tmp_path / "whole", LONG).read_bytes()[:7])
    assert hdfs_token(str(cut)) == ""
    with pytest.raises(OSError, match="No such file"):
        hdfs_token(str(tmp_path / "missing"))


def test_webhdfs_uses_it_and_a_token_that_was_given_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = token_file(tmp_path / "container_tokens", LONG)
    for name in (webhdfs.ENV_TOKEN, webhdfs.ENV_TOKEN_FILE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(ENV, str(path))
    assert webhdfs._token() == hdfs_token(str(path))
    monkeypatch.setenv(webhdfs.ENV_TOKEN, "given")
    assert webhdfs._token() == "given"


def test_of_several_nameservices_each_gets_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a container has them where fs.defaultFS is a mount table: YARN asks every nameservice behind it."""
    near, far, third = (
        (b"", b"of-" + name, b"pw", b"HDFS_DELEGATION_TOKEN", service)
        for name, service in ((b"near", b"127.0.0.1:8020"), (b"far", b"ha-hdfs:far"), (b"third", b"nn3:9000"))
    )
    values = {"dfs.nameservices": "near,far,third", "dfs.ha.namenodes.far": "a,b",
              "dfs.namenode.rpc-address.near": "localhost:8020", "dfs.namenode.http-address.near": "localhost:9870",
              "dfs.namenode.http-address.far.a": "nn1:9870", "dfs.namenode.http-address.far.b": "nn2:9870",
              "dfs.namenode.rpc-address.third": "nn3:9000", "dfs.namenode.http-address.third": "nn3:9870"}  # fmt: skip
    listed = "".join(f"<property><name>{key}</name><value>{value}</value></property>" for key, value in values.items())
    (tmp_path / "hdfs-site.xml").write_text(f"<configuration>{listed}</configuration>")
    for name in (webhdfs.ENV_TOKEN, webhdfs.ENV_TOKEN_FILE, webhdfs.ENV_ADDRESS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setenv(ENV, str(token_file(tmp_path / "container_tokens", RM, near, far, third)))
    for url, mine in (("hdfs://near/ck", near), ("hdfs://far/ck", far), ("webhdfs://nn2:9870/ck", far),
                      ("hdfs://nn3:9000/ck", third), ("webhdfs://elsewhere:9870/ck", near)):  # fmt: skip
        hdfs, _ = webhdfs.locate(url)
        assert hdfs.identity() == {"delegation": word_of(mine[1:])}, url
