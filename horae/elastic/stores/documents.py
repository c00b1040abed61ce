"""Small documents by path or URL: the gate, its members, acknowledgements, the fence; and texts that only grow."""

import io
import os
from typing import Any, Callable, Optional

from ..files import read_bytes, write_atomic

_LIMIT = 1 << 20


def get(url: str) -> Optional[bytes]:
    """The document, None when there is none. Raises OSError when nobody can tell."""
    path = _local(url)
    if path is not None:
        return read_bytes(path, _LIMIT)
    from . import webhdfs

    hdfs, remote = webhdfs.locate(url)
    return hdfs.document(remote)


def put(url: str, data: bytes, at: str = "", private: bool = False) -> None:
    """Replace the document at once. `at`: the URL of a folder whose stamp shall tell of it (default: its own folder's).
    `private`: for its writer alone to read.

    Raises OSError.
    """
    path = _local(url)
    if path is not None:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        write_atomic(path, data, mode=0o600 if private else 0o644)
        return
    from . import webhdfs

    hdfs, remote = webhdfs.locate(url)
    folder = webhdfs.locate(at)[1] if at else remote.rpartition("/")[0]
    hdfs.keep_document(remote, data, folder, "700" if private else "755")


def size(url: str) -> int:
    """Bytes in the document; 0 when there is none. Raises OSError."""
    path = _local(url)
    if path is not None:
        return os.path.getsize(path) if os.path.exists(path) else 0
    from . import webhdfs

    hdfs, remote = webhdfs.locate(url)
    return hdfs.size(remote)


def append(url: str, data: bytes, sent: Callable[[], Any] = int) -> None:
    """Raises OSError; whether it is there all the same, `size` tells. One writer at a time.

    `sent`: called once it is on its way, whatever becomes of this process.
    """
    path = _local(url)
    if path is not None:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "ab") as file:
            file.write(data)
        sent()
        return
    from . import webhdfs

    hdfs, remote = webhdfs.locate(url)
    hdfs.append(remote, io.BytesIO(data), len(data), sent)


def _local(url: str) -> Optional[str]:
    if "://" not in url:
        return url
    return url[len("file://") :] if url.startswith("file://") else None
