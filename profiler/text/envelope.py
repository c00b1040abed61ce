"""What tools on the way put around a line: taken off before anything reads it, so that no format needs to know.

A container runtime keeps a line as `2024-05-01T10:00:00.1Z stdout F step 1` or as JSON, a shipper puts pod and stream
before it with tabs, a program puts an emoji. The time at which the line was written stays before it where the line is
one of words that may want a clock; rows of tables and bars are left as they were printed.

A line whose decimals were printed with commas (`loss 0,512`, another locale) is read with points. It is one where
such a number cannot be of thousands, and no number has a point.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress

#: Full-width punctuation, as East Asian input methods write it, in the signs that the rules know.
_WIDE = b"\xef\xbc"
_NARROW = tuple((wide.encode(), sign) for wide, sign in zip("：，（）／＝［］％", b":,()/=[]%", strict=True))

_BOXED = b'{"log":'
_BOX = re.compile(
    rb'\{"log": ?("(?:[^"\\]|\\.)*+"), ?"stream": ?"\w+"(?:, ?"attrs": ?[^}]*\})?, ?"time": ?"([^"]{10,40})"\}\s*'
)
#: The same behind the time and the tag of a shipper, with what it added.
_TAGGED_BOX = re.compile(
    rb"(?=[^{]*?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?))[^{]{0,300}"
    rb'\{"log": ?(?P<log>"(?:[^"\\]|\\.)*+"), ?"stream": ?"\w+"[,}].*\Z'
)
_STREAMS = (b"stdout", b"stderr")
_STREAM = re.compile(
    rb"(?:(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,]*(?:Z|[+-]\d\d:?\d\d)?)[ \t]+)?"
    rb"(?:[\w./:-]+\t){0,4}(?:stdout|stderr)(?:\t| [FP] )"
)
_OF_WORDS = re.compile(rb"[\s\[({<\"']*[A-Za-z]")  #: how a line begins that may want a clock
_CLOCK = re.compile(rb"\d\d?:\d\d:\d\d")  #: and how one shows that it has its own
_DIGIT = re.compile(rb"\d")
_EMOJI = b"\xf0\x9f"
_DECORATED = re.compile(rb"\A\s*(?:\xf0\x9f[\x80-\xbf]{2}(?:\xef\xb8\x8f|\xe2\x80\x8d)?[ \t]*)+(?=[A-Za-z0-9\[({<\"'])")
#: Numbers with a comma inside, where numbers with a point may stand: behind a name, a sign or a blank.
_COMMA = re.compile(rb"([:= \t;](?<!\d[:=])[ \t]?\d+),(\d+)(?!\d|[,.:]\d)")
#: One that cannot be of thousands: by its digits, or as a loss.
_NO_THOUSANDS = re.compile(
    rb"[:= \t;](?<!\d[:=])[ \t]?(?:0+,\d|\d+,(?:\d{1,2}|\d{4,})(?!\d|[,.:]\d))"
    rb"|oss(?:[\"']?: ?|[\"']?=| = | )\d,\d{3}(?![\d,.:])"
)
#: What such a loss, and a number below one, look like where all digits are zeros, and where they are not.
_LOSSES = (
    b"oss: 0,0",
    b"oss:0,0",
    b"oss=0,0",
    b"oss = 0,0",
    b"oss 0,0",
    b"oss': 0,0",
    b'oss": 0,0',
    b'oss":0,0',
    b"oss'=0,0",
    b"oss':0,0",
    b'oss"=0,0',
)
_BELOW_ONE = (
    b" 0,",
    b"=0,",
    b":0,",
    b"\t0,",
    b";0,",
)
_POINT = re.compile(rb"\d\.\d")
_ZERO = bytes.maketrans(b"123456789", b"000000000")


def wrapped(block: bytes) -> bool:
    """Whether some line of a block may have something around it."""
    # each text that is looked for costs 0.5 ms a MB, so the one that rules out two is looked for first
    streams = b"std" in block and any(stream in block for stream in _STREAMS)
    return streams or _WIDE in block or _BOXED in block or _EMOJI in block or _may_hold_commas(block)


def _may_hold_commas(block: bytes) -> bool:
    """Whether `_NO_THOUSANDS` may find anything in a block, by literals: stamps and thousands are passed over."""
    zeros = block.translate(_ZERO)
    if b"0,0" not in zeros:
        return False
    if b"0,0000" in zeros or b"0,0" in zeros.replace(b"0,000", b""):
        return _NO_THOUSANDS.search(block) is not None
    return any(text in block for text in _BELOW_ONE) or any(text in zeros for text in _LOSSES)


def plain(raw: bytes) -> bytes:
    """The line as the program printed it, behind the time at which it did where that helps."""
    if _BOXED in raw:
        at = raw.find(_BOXED)
        boxed = _BOX.fullmatch(raw) if at == 0 else _TAGGED_BOX.match(raw)
        if boxed is not None:
            with suppress(ValueError):  # not JSON after all: it stays as it is
                text, stamp = (boxed.group(1), boxed.group(2)) if at == 0 else (boxed.group("log"), boxed.group(1))
                inner = json.loads(text).rstrip("\r\n").rpartition("\r")[2]
                raw = _stamped(stamp, inner.encode("utf-8", "replace"))
    elif any(stream in raw[:200] for stream in _STREAMS):
        around = _STREAM.match(raw)
        if around is not None:
            raw = _stamped(around.group(1) or b"", raw[around.end() :])
    if _WIDE in raw:
        for wide, sign in _NARROW:
            raw = raw.replace(wide, bytes((sign,)))
    if _EMOJI in raw:
        raw = _DECORATED.sub(b"", raw)
    if b"," in raw and _NO_THOUSANDS.search(raw) and not _POINT.search(raw):
        raw = _COMMA.sub(rb"\1.\2", raw)
    return raw


def _stamped(stamp: bytes, inner: bytes) -> bytes:
    wants = stamp and _OF_WORDS.match(inner) and _DIGIT.search(inner) and not _CLOCK.search(inner, 0, 80)
    return stamp + b" " + inner if wants else inner
