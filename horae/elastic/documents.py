"""Small documents by path or URL: the gate, its members, acknowledgements, the fence."""

import concurrent.futures
import io
import os
from typing import Any, Callable, List, Optional

from .files import read_bytes, write_atomic

_LIMIT = 1 << 20


def get(url: str) -> Optional[bytes]:
    """The document, None when there is none. Raises OSError when nobody can tell."""
    path = _local(url)
    if path is not None:
        return read_bytes(path, _LIMIT)
    from . import webhdfs

    hdfs, remote = webhdfs.locate(url)
    pieces: List[bytes] = []
    return b"".join(pieces) if hdfs.get(remote, pieces.append) else None


def put(url: str, data: bytes, meanwhile: Callable[[], Any] = int) -> None:
    """Replace the document at once. `meanwhile`: done while its data is on the way, before it takes its name.

    Raises OSError.
    """
    path = _local(url)
    if path is not None:
        meanwhile()
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        write_atomic(path, data)
        return
    from . import webhdfs

    hdfs, remote = webhdfs.locate(url)
    folder, _, name = remote.rpartition("/")
    temporary = "%s/.tmp-%s.%s" % (folder, name, os.urandom(4).hex())
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        sent = pool.submit(hdfs.put, temporary, io.BytesIO(data), len(data))
        meanwhile()
        sent.result()
    hdfs.rename(temporary, remote, overwrite=True)


def size(url: str) -> int:
    """Bytes in the document; 0 when there is none. Raises OSError."""
    path = _local(url)
    if path is not None:
        return os.path.getsize(path) if os.path.exists(path) else 0
    from . import webhdfs

    hdfs, remote = webhdfs.locate(url)
    return hdfs.size(remote)


def append(url: str, data: bytes) -> None:
    """Raises OSError; whether it is there all the same, `size` tells. One writer at a time."""
    path = _local(url)
    if path is not None:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "ab") as file:
            file.write(data)
        return
    from . import webhdfs

    hdfs, remote = webhdfs.locate(url)
    hdfs.append(remote, io.BytesIO(data), len(data))


def _local(url: str) -> Optional[str]:
    if "://" not in url:
        return url
    return url[len("file://") :] if url.startswith("file://") else None
