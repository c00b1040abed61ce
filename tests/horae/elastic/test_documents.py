"""Documents over WebHDFS, kept in extended attributes."""

from __future__ import annotations

from typing import Any

import pytest

from horae.elastic.stores import attributes, documents
from tests.horae.elastic.hdfs_server import Hdfs


def test_documents_are_replaced_at_once(hdfs: Hdfs) -> None:
    url = f"webhdfs://{hdfs.host}/jobs/j/gate"
    assert documents.get(url) is None
    documents.put(url, b"one")
    documents.put(url, b"two")
    assert documents.get(url) == b"two"
    assert (hdfs.files, {name for name in hdfs.folders if "gate" in name}) == ({}, {"/jobs/j/gate"})


def test_a_document_is_made_in_the_folder_whose_stamp_shall_tell(hdfs: Hdfs) -> None:
    base = f"webhdfs://{hdfs.host}/jobs/j"
    made = []
    serve = hdfs.serve

    def watched(to: Any, query: dict[str, str], path: str, body: bytes, *, data: bool) -> None:
        made.extend([path] if query["op"] == "MKDIRS" else [])
        serve(to, query, path, body, data=data)

    hdfs.serve = watched  # type: ignore[method-assign]
    documents.put(f"{base}/acks/w-1", b"{}", at=base)
    documents.put(f"{base}/acks/w-2", b"{}", at=base)
    assert [path.rpartition(".")[0] or path for path in made] == [
        "/jobs/j/.tmp-w-1",
        "/jobs/j/acks",
        "/jobs/j/.tmp-w-2",
    ]
    assert documents.get(f"{base}/acks/w-1") == documents.get(f"{base}/acks/w-2") == b"{}"


@pytest.mark.parametrize("size", [0, 1, attributes.PIECE, attributes.PIECE + 1, attributes.PIECE * attributes.MOST])
def test_a_document_of_any_size_comes_back_whole(hdfs: Hdfs, size: int) -> None:
    data = bytes(number * 7 % 251 for number in range(size))
    documents.put(f"webhdfs://{hdfs.host}/gate", data)
    assert documents.get(f"webhdfs://{hdfs.host}/gate") == data


def test_a_document_that_is_too_long_is_refused_and_the_old_one_stays(hdfs: Hdfs) -> None:
    url = f"webhdfs://{hdfs.host}/gate"
    documents.put(url, b"old")
    with pytest.raises(OSError, match="a document of 245761 bytes; HDFS's attributes hold 245760"):
        documents.put(url, b"x" * 245761)
    assert (documents.get(url), len(hdfs.attributes)) == (b"old", 1)


def test_a_folder_without_attributes_is_no_document(hdfs: Hdfs) -> None:
    hdfs.folders.add("/gate")
    assert documents.get(f"webhdfs://{hdfs.host}/gate") is None
