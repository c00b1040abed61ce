"""What a stranger writes, in every place of every route: refused in words or taken as text, never a bug, never obeyed.

The places are those of the OpenAPI document: a route or a field that is added is tried without a line here.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from horae import visible
from horae.api.client import Client
from horae.api.routes import openapi
from tests.horae.api.conftest import Build, Caller, build
from tests.waiting import eventually

__all__ = ["build"]

#: As text in JSON, in a path or in a query.
WORDS = [
    "", " ", "-1", "1e308", "1e400", "nan", "inf", "9" * 4000, "../../etc/shadow", "/proc/self/mem", "/dev/zero",
    "\x1b]0;owned\x07", "\u202egnp.exe", "\x00", "a\nb", "\ud83d\ude00", "é" * 1000, "%s{0}{job.__class__}", "';--",
]  # fmt: skip
#: As JSON, in a body.
RAW = [
    b"null", b"true", b"-1", b"0", b"1e308", b"-1e308", b"1e400", b"NaN", b"Infinity", b"9" * 5000, b"[]", b"{}",
    b"[[]]", b'{"a": {"a": 1}}', b'"\\ud800"', b'{"x": 1, "x": 2}', b"[1e308, 1e308]",
]  # fmt: skip
#: What costs its reader most, once a route.
LARGE = [b"[" * 100_000, b'{"a":' * 100_000, b'"' + b"x" * (1 << 20) + b'"', b"[" + b"1," * 500_000 + b"1]"]
#: What is right in every other field.
RIGHT = {"command": ["true"], "gpus": 1, "app": "a", "offer": 1, "bids": [], "mode": "enforce", "priority": -1}
#: A field is tried with one value of so many.
EACH = 6
LONGEST_ANSWER = 1 << 16


def places() -> Iterator[tuple[str, str, Mapping[str, Any], dict[str, Any]]]:
    """Method, path, the route and the fields of its body."""
    document = openapi()
    for path, ways in document["paths"].items():
        for method, route in ways.items():
            sent = route.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            fields = dict(sent.get("properties", {}))
            if "jobs" in fields:
                fields |= sent["$defs"]["JobForm"]["properties"]
            yield method.upper(), path, route, fields


def asked(path: str, route: Mapping[str, Any]) -> Iterator[str]:
    """With some of the words in each place of the path and of the query, every one in some."""
    for number, place in enumerate(route.get("parameters", ())):
        for word in WORDS[number % 2 :: 2]:
            told = quote(word, safe="", errors="replace")
            if place["in"] == "path":
                yield path.replace(f"{{{place['name']}}}", told or "%00")
            else:
                others = "".join(f"&{o['name']}=1" for o in route["parameters"] if o["required"] and o is not place)
                yield f"{path.replace('{job}', '1')}?{place['name']}={told}{others}"


def bodies(fields: Mapping[str, Any]) -> Iterator[bytes]:
    """With some of those values in each field, every one in some, and in what holds others."""
    values = [*RAW, *(json.dumps(word).encode() for word in WORDS)]
    for number, field in enumerate(fields):
        right = {name: value for name, value in RIGHT.items() if name in fields and name != field}
        others = json.dumps(right)[1:-1].encode()
        for value in (*(LARGE if number == 0 else ()), *values[number % EACH :: EACH]):
            for held in (b"%b", b"[%b]", b'{"require": [%b]}') if field in ("command", "gpu_types") else (b"%b",):
                yield b"{%b%b: %b}" % (others + b", " if others else b"", json.dumps(field).encode(), held % value)


class Wire:
    """One connection, as long as it lasts."""

    def __init__(self, client: Client) -> None:
        self._path = str(client.socket)
        self._open()

    def _open(self) -> None:
        self._connection = http.client.HTTPConnection("x", timeout=300)
        self._connection.sock = socket.socket(socket.AF_UNIX)
        self._connection.sock.settimeout(60)
        self._connection.sock.connect(self._path)

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        self._connection.request(method, path, body)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.will_close:
            self._open()
        return answer.status, text


def ill(method: str, status: int, text: bytes) -> str:
    """What is wrong with an answer; "": nothing."""
    if status >= 500 and status != 503:
        return "a bug"
    if len(text) > LONGEST_ANSWER and method == "POST":
        return "too long"
    if status >= 400:
        error = json.loads(text).get("error", {})
        if not (error.get("code") and error.get("message")):
            return "says nothing"
    return ""


def test_a_strangers_words_are_refused_or_are_text(build: Build, caller: Caller) -> None:
    client = build(tenants=[], operators=["ben"])
    caller.becomes("ben")
    client.submit([{"command": ["true"], "gpus": 1, "iterations": 1e9}])
    eventually(lambda: client.job("1")["state"] == "running")
    wire, told, tried = Wire(client), [], 0
    for method, path, route, fields in places():
        filled = path.replace("{job}", "1").replace("{pool}", "main")
        requests = [(each, None) for each in asked(path, route)] if method == "GET" else []
        requests += [(each, b"{}") for each in asked(path, route)] if method == "POST" else []
        # A dry run is sent what a submission is, and read by the same reader.
        requests += [(filled, body) for body in bodies(fields) if path != "/v1/dry-run"]
        for where, body in requests:
            tried += 1
            status, text = wire.ask(method, where, body)
            if why := ill(method, status, text):
                told.append(f"{why}: {method} {where[:80]} {(body or b'')[:80]!r}: {status} {text[:200]!r}")
    assert not told, "\n".join(told[:20])
    assert tried > 300
    for job in client.status(ended=True)["jobs"]:
        assert visible.hidden(job["name"] + job["tenant"] + job["app"]) is None
