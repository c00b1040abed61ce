"""Damaged inputs for everything that the YARN bridge reads (`tests/fuzzing.py`): answers of ResourceManager, Services
API, WebHDFS and NodeManagers over a real connection, documents in HDFS, and the files that logs are aggregated in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from horae import spec_json
from horae.port import BlockKind, PortError
from horae.spec import JobSpec
from horae.untrusted import Unbelievable
from policy.model import BadInput, GpuRange
from tests.fuzzing import Target, attack
from tests.yarn_bridge.aggregated import FILES, Memory
from tests.yarn_bridge.aggregated import recorded as aggregated
from tests.yarn_bridge.fake import Fake, Reply, recorded, serving
from tests.yarn_bridge.reads import GOOD, Reads
from yarn_bridge.clients.queues import queues
from yarn_bridge.clients.records import App, ClusterInfo
from yarn_bridge.jobs import reading, user_files
from yarn_bridge.jobs.record import Phase, Record, Worker, decode_kept, encode_kept, gate_document
from yarn_bridge.logs import javastream
from yarn_bridge.logs.aggregated import entries
from yarn_bridge.logs.source import _files, _living
from yarn_bridge.options import Options, parse_options

#: fewer than the harness would try: all of these together take a few seconds
COUNT = 60
OPTIONS = Options(resource_manager=("http://rm:8088",), webhdfs=("http://nn:9870",))
SPEC = JobSpec("job", ("true",), GpuRange(1, 1, 4), owner="ann", checkpoint="/ckpt", grace_s=5.0)
RECORD = Record(
    "job", "ann", "horae-job", 1.0, Phase.OPEN, epoch=2, granted=2, allocation=(("n1", 2),),
    workers=(Worker("container_1", "n1", "n1.site", 4000), Worker("container_2", "n1")), components=(("n1", "on-n1"),),
    next=(3, (("n2", 1),)), checkpoint=(1, 2.0, 3.0), blocked=(next(iter(BlockKind)).value, "full"), stop_s=4.0,
)  # fmt: skip


class Wire:
    """A web server that says the damaged bytes to whatever it is asked, and the clients that ask."""

    fake: Fake
    reads: Reads


@pytest.fixture(scope="module", autouse=True)
def wire() -> Iterator[None]:
    with ExitStack() as stack:
        Wire.fake = stack.enter_context(serving(lambda asked: Reply(500)))
        Wire.reads = Reads(Wire.fake)
        yield


def _asked(call: Callable[[], object]) -> Callable[[bytes], object]:
    def read(raw: bytes) -> object:
        Wire.fake.answers = lambda asked: Reply(200, raw)
        Wire.fake.asked.clear()
        return call()

    return read


def _read(name: str) -> Callable[[bytes], object]:
    def call() -> None:
        found = Wire.reads.all()[name]()
        if name == "nodes":
            reading.nodes_of(found, {}, {}, OPTIONS)
        elif name == "scheduler":
            queues(found)
        elif name == "apps":
            assert all(isinstance(app, App) for app in found)

    return _asked(call)


def _info() -> ClusterInfo:
    return Wire.reads.manager.info()


def _metrics() -> object:
    return Wire.reads.manager.metrics()


def _body(lane: str, name: str) -> bytes:
    return json.dumps(recorded(lane)[name]["response"]).encode()


def _logs(raw: bytes) -> None:
    for entry in entries(Memory(raw)):
        for piece in entry.pieces:
            assert len(piece) <= 1 << 16


def _kept(raw: bytes) -> None:
    """A record that is taken can be told to workers and shown."""
    record = decode_kept(raw)
    gate_document(record)
    encode_kept(record)
    reading.observed(record, SPEC, ())


def _gate(raw: bytes) -> None:
    record = user_files.gate_record(raw, "gate")
    gate_document(record)
    reading.observed(record, SPEC, ())


def _old_spec(raw: bytes) -> str:
    spec = user_files.old_spec(raw, "spec")
    spec_json.encode(spec)
    return user_files.agrees(RECORD, spec, "job", "ann")


def _text(value: object) -> bytes:
    return json.dumps(value).encode()


def _options(raw: bytes) -> object:
    value = json.loads(raw)
    return parse_options(value) if isinstance(value, dict) else None


SEEDS: dict[str, list[bytes]] = {name: [_text(value)] for name, value in GOOD.items()}
SEEDS["nodes"].append(_body("3.4.2", "nodes"))
SEEDS["apps"].append(_body("3.4.2", "apps-types"))
SEEDS["scheduler"] = [_body("3.4.2", "scheduler"), _body("3.4.2-fair", "scheduler")]
SEEDS["service"] = [json.dumps({**recorded("3.4.2")["svc-stable"]["response"], "name": "s"}).encode()]
MEMBER = _text({"host": "n1.site", "port": 4000})
ACK = _text({"epoch": 2, "exit_code": 86, "state": "stopped", "text": "x", "time_s": 5.0,
             "checkpoint": {"epoch": 2, "step": 10, "time_s": 4.0}})  # fmt: skip
LOGS = _text({"containerLogsInfo": [{"logAggregationType": "LOCAL", "containerLogInfo": [{"fileName": "stdout"}]}]})
LIVING = (
    b"Container: container_1 on n1\nLogAggregationType: LOCAL\n====\n"
    b"LogType:stdout\nLogLength:5\nLogContents:\nhello\nEnd"
)
JAVA = bytes.fromhex("aced0005") + b"sr\x00\x01A" + bytes(8) + b"\x02\x00\x01L\x00\x01at\x00\x01Bxpt\x00\x03abc"


def _index() -> bytes:
    """The serialized index of a recorded file."""
    data = aggregated("3.4.2-ifile-none")
    size = int.from_bytes(data[-36:-32], "big")
    return data[-36 - size : -36]


TARGETS = [
    *(Target(f"yarn-{name}", _read(name), (PortError, Unbelievable, BadInput), SEEDS[name], count=COUNT)
      for name in sorted(GOOD)),
    Target("yarn-info", _asked(_info), (PortError,), [_body("3.4.2", "info")], count=COUNT),
    Target("yarn-metrics", _asked(_metrics), (PortError,), [_body("3.4.2", "metrics")], count=COUNT),
    Target("webhdfs-usage", _asked(lambda: Wire.reads.hdfs.usage("/x")), (PortError,),
           [_text({"ContentSummary": {"length": 1, "spaceConsumed": 3, "fileCount": 1, "directoryCount": 1,
                                      "quota": -1, "spaceQuota": 5}})], count=COUNT),
    Target("nodemanager-logs", _asked(lambda: _files(Wire.reads.manager.http, "container_1", "a")), (PortError,),
           [LOGS], count=COUNT),
    Target("nodemanager-log", _asked(lambda: b"".join(_living(Wire.reads.manager.http, "container_1", "stdout", "a"))),
           (PortError,), [LIVING], count=COUNT),
    Target("hdfs-record", _kept, (ValueError,), [encode_kept(RECORD), encode_kept(replace(RECORD, next=None))],
           count=3 * COUNT, known=[b"[" * 100_000]),
    Target("hdfs-gate", _gate, (Unbelievable,), [_text({"record": json.loads(encode_kept(RECORD))})], count=3 * COUNT),
    Target("hdfs-spec", _old_spec, (Unbelievable,), [spec_json.encode(SPEC)],
           count=2 * COUNT),
    Target("hdfs-kept-spec", spec_json.decode, (ValueError,), [spec_json.encode(SPEC)], count=2 * COUNT,
           known=[b"[" * 100_000]),
    Target("hdfs-member", lambda raw: user_files.member(raw, "container_1"), (), [MEMBER], count=2 * COUNT),
    Target("hdfs-ack", lambda raw: user_files.ack(raw, "container_1"), (), [ACK], count=2 * COUNT),
    Target("aggregated-logs", _logs, (BadInput,), [aggregated(name) for name in FILES], count=4 * COUNT),
    Target("java-stream", lambda raw: javastream.load(raw, "index", 0), (BadInput,), [_index(), JAVA],
           [b"sr", b"t\x00\x01x", b"q\x00\x7e\x00\x00", b"xp", b"w\xff", b"z\xff\xff\xff\xff"], 4 * COUNT),
    Target("yarn-options", _options, (BadInput, ValueError, RecursionError),
           [_text({"resource_manager": ["http://rm:8088"], "webhdfs": "http://nn:9870", "cpus": 2, "gang_s": 9.0,
                   "env": {"A": "b"}, "auth": "simple", "doas": False})], count=COUNT),
]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_whatever_the_input_it_is_read_or_refused(target: Target) -> None:
    attack(target)


@pytest.mark.soak
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_for_as_long_as_it_is_let(target: Target) -> None:
    attack(target, soak=True)
