"""What tools on the way put around a line: taken off before anything reads it, so that no format needs to know.

A container runtime keeps a line as `2024-05-01T10:00:00.1Z stdout F step 1` or as JSON, a shipper puts pod and stream
before it with tabs. The time at which the line was written stays before it where the
line is one of words that may want a clock; rows of tables and bars are left as they were printed.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress

#: Full-width punctuation, as East Asian input methods write it, in the signs that the rules know.
_WIDE = b"\xef\xbc"
_NARROW = tuple((wide.encode(), sign) for wide, sign in zip("：，（）／＝［］％", b":,()/=[]%", strict=True))

_BOXED = b'{"log":"'
_BOX = re.compile(rb'\{"log":("(?:[^"\\]|\\.)*+"),"stream":"\w+"(?:,"attrs":[^}]*\})?,"time":"([^"]{10,40})"\}\s*')
_STREAMS = (b"stdout", b"stderr")
_STREAM = re.compile(
    rb"(?:(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,]*(?:Z|[+-]\d\d:?\d\d)?)[ \t]+)?"
    rb"(?:[\w./:-]+\t){0,4}(?:stdout|stderr)(?:\t| [FP] )"
)
_OF_WORDS = re.compile(rb"[\s\[({<\"']*[A-Za-z]")  #: how a line begins that may want a clock
_CLOCK = re.compile(rb"\d\d?:\d\d:\d\d")  #: and how one shows that it has its own
_DIGIT = re.compile(rb"\d")


def wrapped(block: bytes) -> bool:
    """Whether some line of a block may have something around it."""
    # each text that is looked for costs 0.5 ms a MB, so the one that rules out two is looked for first
    streams = b"std" in block and any(stream in block for stream in _STREAMS)
    return streams or _WIDE in block or _BOXED in block


def plain(raw: bytes) -> bytes:
    """The line as the program printed it, behind the time at which it did where that helps."""
    if raw.startswith(_BOXED):
        boxed = _BOX.fullmatch(raw)
        if boxed is not None:
            with suppress(ValueError):  # not JSON after all: it stays as it is
                inner = json.loads(boxed.group(1)).rstrip("\r\n").rpartition("\r")[2]
                raw = _stamped(boxed.group(2), inner.encode("utf-8", "replace"))
    elif any(stream in raw[:200] for stream in _STREAMS):
        around = _STREAM.match(raw)
        if around is not None:
            raw = _stamped(around.group(1) or b"", raw[around.end() :])
    if _WIDE in raw:
        for wide, sign in _NARROW:
            raw = raw.replace(wide, bytes((sign,)))
    return raw


def _stamped(stamp: bytes, inner: bytes) -> bytes:
    wants = stamp and _OF_WORDS.match(inner) and _DIGIT.search(inner) and not _CLOCK.search(inner, 0, 80)
    return stamp + b" " + inner if wants else inner
