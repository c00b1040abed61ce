"""Damaged inputs for parsers: whatever the bytes, the parser answers or refuses in its own words, soon and small.

A parser is one entry (`Target`): how it is called, what it may raise, and a few inputs that it takes. A test module
makes its list and hands each entry to `attack`:

    TARGETS = [Target("instance", lambda raw: parse(raw, "a.yaml"), (BadInput,), [b"jobs: []"])]

    @pytest.mark.parametrize("target", TARGETS, ids=str)
    def test_damaged(target: Target) -> None:
        attack(target)                       # the corpus, then COUNT inputs, the same in every run

    @pytest.mark.soak
    @pytest.mark.parametrize("target", TARGETS, ids=str)
    def test_damaged_for_long(target: Target) -> None:
        attack(target, soak=True)            # HORAE_FUZZ_S seconds with new dice

What is checked of every input: nothing is raised but what `refuses` names; the call ends within LONGEST_S; the
process's address space grows by `megabytes` at most while it runs. An input that fails is kept in `.cache/fuzz` and
belongs, once the parser is mended, into `tests/corpus/NAME`, which every run tries first.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

TREE = Path(__file__).resolve().parent.parent
CORPUS = TREE / "tests" / "corpus"
FOUND = TREE / ".cache" / "fuzz"

#: Inputs of one target in every run.
COUNT = 250
#: Longest that one input may take on the slowest machine; what loops or is quadratic takes far longer.
LONGEST_S = 30
#: Inputs are cut here: what is longer is the size limit's affair, which has tests of its own.
LONGEST_BYTES = 1 << 16


@dataclass(frozen=True)
class Target:
    """One parser. `read` takes the damaged bytes; what it returns is not looked at."""

    name: str
    read: Callable[[bytes], object]
    refuses: tuple[type[Exception], ...]  #: its own words for a bad input
    seeds: Sequence[bytes]  #: inputs that it takes
    words: Sequence[bytes] = ()  #: what its grammar is made of
    count: int = COUNT
    megabytes: int = 1024
    known: Sequence[bytes] = field(default=())  #: hostile inputs by hand, tried before the damaged ones

    def __str__(self) -> str:
        return self.name


class Late(BaseException):
    """An input took longer than LONGEST_S. No parser catches this."""


def attack(target: Target, *, soak: bool = False) -> None:
    """Try the corpus, the known inputs and damaged ones. Raises AssertionError with the first that is not borne."""
    for raw in target.seeds:
        _tried(target, raw, good=True)
    for path in sorted((CORPUS / target.name).glob("*")):
        _tried(target, path.read_bytes())
    for raw in target.known:
        _tried(target, raw)
    for raw in damaged(target, soak=soak):
        _tried(target, raw)


def damaged(target: Target, *, soak: bool = False) -> Iterator[bytes]:
    """Damaged inputs: the same `count` in every run, or new ones for as long as HORAE_FUZZ_S says (300 s)."""
    new = soak or os.environ.get("HORAE_RANDOM") == "1"
    dice = random.Random(None if new else target.name)
    until = time.monotonic() + float(os.environ.get("HORAE_FUZZ_S", "300"))
    made = 0
    while time.monotonic() < until if soak else made < target.count:
        made += 1
        yield _damage(dice.choice(list(target.seeds)), target, dice)[:LONGEST_BYTES]


def _tried(target: Target, raw: bytes, *, good: bool = False) -> None:
    try:
        with bounded(target.megabytes):
            target.read(raw)
    except target.refuses as error:
        if good:
            raise AssertionError(f"{target.name} refuses what it should take: {error}") from error
        str(error).encode("utf-8", "backslashreplace")  # it can be told
    except (Late, Exception) as error:
        where = _kept(target, raw)
        raise AssertionError(
            f"{target.name}: {type(error).__name__}: {str(error)[:300]}\nfor {raw[:200]!r} ({len(raw)} bytes, "
            f"{where}); when it is mended, keep the input in tests/corpus/{target.name}"
        ) from error


@contextmanager
def bounded(megabytes: int, seconds: int = LONGEST_S) -> Iterator[None]:
    """Raises Late after `seconds`, and lets the process take so much more memory only (else: MemoryError)."""

    def late(_signal: int, _frame: FrameType | None) -> None:
        raise Late(f"longer than {seconds} s")

    before = resource.getrlimit(resource.RLIMIT_AS)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    old = signal.signal(signal.SIGALRM, late)
    left_s, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    resource.setrlimit(resource.RLIMIT_AS, (size + (megabytes << 20), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.signal(signal.SIGALRM, old)
        signal.setitimer(signal.ITIMER_REAL, left_s)  # the time limit of the whole test goes on


def _kept(target: Target, raw: bytes) -> str:
    path = FOUND / target.name / hashlib.sha256(raw).hexdigest()[:16]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)
    except OSError as error:
        return f"not kept: {error.strerror}; whole: {raw!r}"
    return f"kept as {path}"


# --- damage ------------------------------------------------------------------------------------------------

#: Values that a form may not expect at a place.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63, 2**64, 10**400, -(10**400), 0.1, -0.0, 5e-324, 1e308, -1e308,
    "", " ", "0", "1", "9" * 400, "9" * 400 + "G", "1e999", "²", "٣", "\ud800", "\udfff x", "\x00", "\x1b[2J",
    "\x1b]0;x\x07", "\x9b31m", "\u202eabc", "\u2066a\u2069", "\ufeff", "\n", "a\nb", "a" * 5000, "../../etc/passwd",
    "/", "{", "{{", "{0}", "%s", "<<", "*a", "&a", "!!python/object:os.system", "=", "~", "no", "1:30", "v100-1",
    [], [[]], [None], {}, {"": ""}, {"a": {"b": {}}}, {"1": 1.0}, ["a"] * 300, list(range(300)),
)  # fmt: skip

#: Texts that stand for no value at all.
TOKENS: tuple[bytes, ...] = (
    b"NaN", b"Infinity", b"-Infinity", b"1e999", b"1" * 5000, b"0" * 500 + b"1", b"1e-999", b"[" * 300,
    b"{\"a\":" * 300,
    b"\"\\ud800\"", b"\"\\u202e\"", b"\xff\xfe", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x00", b"\x1b", b"\xc2\x9b",
    b"\xef\xbb\xbf", b"\r", b"\r\n", b"\n", b"\t", b",", b":", b"\"", b"'", b"\\", b"]", b"}", b"<<: *a\n", b"&a [*a]",
    b"---\n", b"...\n", b"%YAML 9.9\n", b"? ", b"- - - - ", b"!!binary |", b"#", b"|", b">", b"\"a\":1,\"a\":2",
)  # fmt: skip


def _damage(seed: bytes, target: Target, dice: random.Random) -> bytes:
    """`seed` with one to four damages; half of those that are JSON are damaged as values, not as bytes."""
    raw = seed
    for _ in range(dice.choice((1, 1, 1, 2, 2, 4))):
        value = _as_json(raw)
        if value is not None and dice.random() < 0.6:
            raw = json.dumps(_value_damaged(value, dice)).encode("utf-8", "surrogatepass")
        else:
            raw = _bytes_damaged(raw, target, dice)
    return raw


def _as_json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _value_damaged(value: Any, dice: random.Random) -> Any:
    """`value` with another one somewhere in it."""
    if not isinstance(value, dict | list) or not value or dice.random() < 0.12:
        return dice.choice(VALUES)
    if isinstance(value, list):
        at = dice.randrange(len(value))
        how = dice.random()
        if how < 0.1:
            return value[:at] + value[at + 1 :]
        if how < 0.2:
            return value[: at + 1] * 3
        return [*value[:at], _value_damaged(value[at], dice), *value[at + 1 :]]
    key = dice.choice(list(value))
    how = dice.random()
    if how < 0.1:
        return {k: v for k, v in value.items() if k != key}
    if how < 0.2:
        other = dice.choice(VALUES)
        return {(str(other) if k == key else k): v for k, v in value.items()}
    if how < 0.3:
        return {**value, str(dice.choice(VALUES)): dice.choice(VALUES)}
    return {**value, key: _value_damaged(value[key], dice)}


def _bytes_damaged(raw: bytes, target: Target, dice: random.Random) -> bytes:
    at = dice.randrange(len(raw) + 1)
    to = min(at + dice.choice((1, 1, 2, 8, 40)), len(raw))
    how = dice.randrange(7)
    if how == 0:  # cut out
        return raw[:at] + raw[to:]
    if how == 1:  # cut off
        return raw[:at]
    if how == 2:  # twice and more
        return raw[:at] + raw[at:to] * dice.choice((2, 3, 100)) + raw[to:]
    if how == 3:  # another byte
        return raw[:at] + bytes([dice.randrange(256)]) + raw[at + 1 :]
    if how == 4:  # a word of the grammar, or one that no grammar has
        word = dice.choice([*target.words, *TOKENS])
        return raw[:at] + word + raw[dice.choice((at, to)) :]
    if how == 5:  # a number becomes another
        return _number_damaged(raw, dice)
    other = dice.choice(list(target.seeds))  # the end of another
    return raw[:at] + other[dice.randrange(len(other) + 1) :]


def _number_damaged(raw: bytes, dice: random.Random) -> bytes:
    digits = [i for i, byte in enumerate(raw) if 48 <= byte <= 57]
    if not digits:
        return raw + b"1"
    begin = end = dice.choice(digits)
    while end < len(raw) and 48 <= raw[end] <= 57:
        end += 1
    words = (
        b"0",
        b"-1",
        b"1e308",
        b"5e-324",
        b"-5",
        b"9" * 19,
        b"9" * 400,
        b"1" * 5000,
        b"0.5",
        b"NaN",
        b".inf",
        b"1e999",
    )
    return raw[:begin] + dice.choice(words) + raw[end:]
