"""Silence is not absence: whatever becomes of an answer on its way, no read says that something is gone.

Every read of the adapter, over a web server that cuts, empties, garbles, refuses or redirects what was recorded on a
real Hadoop. The outcome is an error that says wait, or what the whole answer said; never `Gone`, None or nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from horae.port import PortError
from horae.untrusted import Unbelievable
from tests.yarn_bridge.fake import Fake, Reply, recorded, serving
from tests.yarn_bridge.reads import GOOD, Reads
from yarn_bridge.clients.errors import Gone


@pytest.fixture(scope="module")
def wire() -> Iterator[tuple[Fake, Reads]]:
    with ExitStack() as stack:
        fake: Fake = stack.enter_context(serving(lambda asked: Reply(500)))
        yield fake, Reads(fake)


def spoken(call: Callable[[], Any]) -> Any:
    """What it said, or the error that says wait; fails for absence and for anything else raised."""
    try:
        found = call()
    except Gone as error:
        pytest.fail(f"gone: {error}")
    except (PortError, Unbelievable) as error:
        return error
    assert found not in (None, [], {}, ()), f"absent: {found!r}"
    return found


@pytest.mark.parametrize("read", GOOD)
def test_the_whole_answer_is_read(wire: tuple[Fake, Reads], read: str) -> None:
    fake, reads = wire
    fake.answers = lambda asked: Reply(200, GOOD[read])
    assert not isinstance(spoken(reads.all()[read]), PortError)


HTML = "<html><head><title>Error 404 Not Found</title></head><body>Not Found</body></html>"
BROKEN = (
    Reply(200), Reply(200, "{}"), Reply(200, "null"), Reply(200, "[]"), Reply(200, "0"), Reply(200, HTML), Reply(404),
    Reply(404, HTML), Reply(404, "{}"), Reply(403, HTML), Reply(401), Reply(500), Reply(502, HTML), Reply(503, "{}"),
    Reply(429), Reply(drop=True), Reply(200, "This is standby RM. Redirecting to the current active RM: http://x"),
    Reply(302, HTML, {"Location": "http://127.0.0.1:1/login"}), Reply(307, None, {"Location": "http://127.0.0.1:1/"}),
    Reply(307), Reply(204), Reply(301, "{}"),
    Reply(200, {"RemoteException": {"exception": "StandbyException", "message": "not supported in state standby"}}),
    Reply(403, {"RemoteException": {"exception": "StandbyException", "message": "not supported in state standby"}}),
    Reply(200, {"RemoteException": {"exception": "AccessControlException", "message": "Permission denied"}}),
    Reply(200, b"\x00\xff" * 50), Reply(200, "[" * 100_000), Reply(200, '{"nodes": ' + "9" * 5000 + "}"),
)  # fmt: skip


@pytest.mark.parametrize("at", range(len(BROKEN)))
@pytest.mark.parametrize("read", GOOD)
def test_a_broken_answer_says_wait(wire: tuple[Fake, Reads], read: str, at: int) -> None:
    fake, reads = wire
    if (read, BROKEN[at].body) == ("containers", "{}"):
        return  # so Hadoop writes that there are none
    fake.answers = lambda asked: BROKEN[at]
    assert isinstance(spoken(reads.all()[read]), PortError | Unbelievable)


KINDS: tuple[object, ...] = (5, -1, 1e308, float("inf"), True, "x", "²", [], [[]], {"a": {}}, "9" * 400, 10**400)


@st.composite
def hurt(draw: st.DrawFn, text: str) -> bytes:
    """A cut, a stretch of noise, or one value that is of another kind: no node, and no word of it, taken away."""
    data = text.encode()
    how = draw(st.sampled_from(["cut", "noise", "kind"]))
    at = draw(st.integers(0, len(data) - 1))
    if how == "cut":
        return data[:at]
    if how == "noise":
        return data[:at] + draw(st.binary(min_size=1, max_size=6)) + data[at + draw(st.integers(0, 6)) :]
    return json.dumps(_replaced(json.loads(text), draw)).encode()


def _replaced(value: Any, draw: st.DrawFn) -> Any:
    inner = sorted(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    if not inner or draw(st.integers(0, 3)) == 0:
        # An empty list where Hadoop writes a list of none is what Hadoop says.
        return draw(st.sampled_from([kind for kind in KINDS if kind != [] or not isinstance(value, list)]))
    at = draw(st.sampled_from(list(inner)))
    made = dict(value) if isinstance(value, dict) else list(value)
    made[at] = _replaced(value[at], draw)
    return made


@pytest.mark.parametrize("read", GOOD)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_makes_an_answer_say_that_something_is_gone(
    wire: tuple[Fake, Reads], read: str, data: st.DataObject
) -> None:
    fake, reads = wire
    body = data.draw(hurt(json.dumps(GOOD[read])))
    fake.answers = lambda asked: Reply(200, body)
    if read == "document" and b'"user.horae.0"' not in body:
        return  # attributes of somebody else's are no document of ours
    spoken(reads.all()[read])


def test_what_the_daemon_itself_says_is_absent_is_absent(wire: tuple[Fake, Reads]) -> None:
    fake, reads = wire
    told = {"RemoteException": {"exception": "FileNotFoundException", "message": "File does not exist: /x"}}
    fake.answers = lambda asked: Reply(404, told)
    assert (reads.hdfs.status("/x"), reads.hdfs.entries("/x"), reads.hdfs.document("/x")) == (None, [], None)
    fake.answers = lambda asked: Reply(404, recorded("3.4.2")["svc-404"]["response"])
    assert reads.services.get("s", "a") is None
    for body in ({"apps": {}}, {"apps": None}):
        fake.answers = lambda asked, body=body: Reply(200, body)
        assert reads.manager.apps() == []
