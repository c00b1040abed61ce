"""The HDFS delegation token that YARN gives to every container of a secured cluster.

$HADOOP_TOKEN_FILE_LOCATION names Hadoop's own binary file: "HDTS", a version byte (0), then for each token its alias,
identifier, password, kind and service, each with its length before it. WebHDFS takes the last four as one word.
Numbers are Hadoop's: one byte for small ones, else a byte that says how many follow.
"""

import base64
import os
from typing import Callable, Collection, List, Optional, Sequence, Tuple

ENV = "HADOOP_TOKEN_FILE_LOCATION"
KIND = b"HDFS_DELEGATION_TOKEN"


def hdfs_token(path: Optional[str] = None, services: "Callable[[], Collection[str]]" = tuple) -> str:
    """As WebHDFS takes it in `delegation=`; empty where there is none. Raises OSError for an unreadable file.

    `services`: as whose it is wanted, where there are several, one for each nameservice; else the first is taken.
    """
    path = path or os.environ.get(ENV, "")
    if not path:
        return ""
    with open(path, "rb") as file:
        data = file.read()
    found = [fields for fields in _tokens(data) if fields[2] == KIND]
    if len(found) > 1:
        wanted = {service.encode() for service in services()}
        found.sort(key=lambda fields: fields[3] not in wanted)
    return word_of(found[0]) if found else ""


def word_of(fields: Sequence[bytes]) -> str:
    """Identifier, password, kind and service as one word: Hadoop's "URL string"."""
    body = b"".join(_number(len(field)) + field for field in fields)
    return base64.urlsafe_b64encode(body).decode().rstrip("=")


def fields_of(data: bytes, at: int, count: int) -> Tuple[List[bytes], int]:
    """So many fields from there on, and where the next one begins. Raises IndexError past the end."""
    found = []
    for _ in range(count):
        size, at = _read_number(data, at)
        if size < 0 or at + size > len(data):
            raise IndexError("the data ends within a field")
        found.append(data[at : at + size])
        at += size
    return found, at


def _tokens(data: bytes) -> List[Tuple[bytes, ...]]:
    """(identifier, password, kind, service) of each token; none in a format that is not known."""
    if data[:5] != b"HDTS\0":
        return []
    found: List[Tuple[bytes, ...]] = []
    try:
        count, at = _read_number(data, 5)
        for _ in range(count):
            fields, at = fields_of(data, at, 5)
            found.append(tuple(fields[1:]))
    except IndexError:
        return []
    return found


def _read_number(data: bytes, at: int) -> Tuple[int, int]:
    """A length and where what follows it begins. Raises IndexError past the end."""
    first = data[at] - 256 if data[at] > 127 else data[at]
    if first >= -112:
        return first, at + 1
    size = -112 - first
    if at + 1 + size > len(data):
        raise IndexError("the file ends within a number")
    return int.from_bytes(data[at + 1 : at + 1 + size], "big"), at + 1 + size


def _number(value: int) -> bytes:
    if value <= 127:
        return bytes([value])
    body = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([256 - 112 - len(body)]) + body
