"""Clients without a daemon: which goes first, what happens when one is away, tokens, the pace, REST's words."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from horae.port import FixConfiguration, PortError, TryLater
from policy.model import BadInput
from slurm_plugin.clients import versions
from slurm_plugin.clients.base import CannotSay, ClientAway, OneByOne, Operation
from slurm_plugin.clients.command import scontrol
from slurm_plugin.clients.command_reading import split_of
from slurm_plugin.clients.pace import Pace, site_limit
from slurm_plugin.clients.rest import RestClient, body_of
from slurm_plugin.clients.rest_reading import exit_status, job_state, task_numbers
from slurm_plugin.clients.routes import Batch, Routes
from slurm_plugin.clients.tokens import FileTokens, ScontrolTokens
from slurm_plugin.errors import ControllerAway, Gone
from slurm_plugin.options import parse_options
from slurm_plugin.writes import Change, Write, hold, release, requeue_hold, update
from tests.slurm_plugin.answers import Answer, Scripted, rest, serving
from tests.slurm_plugin.rows import ROW

SHAPE = Change(True, nodes=2, tasks=2, cpus_per_task=3, cpus=6, node_list=("n1", "n2"), gpus_per_node=4, limit_min=90)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


FIRST_CAN = (Operation.JOBS, Operation.UPDATE, Operation.RELEASE, Operation.SIGNAL)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pair(clock: Clock) -> tuple[Scripted, Scripted, Routes]:
    first, command = Scripted("first", FIRST_CAN), Scripted("command")
    routes = Routes([command, first], Pace(), dict.fromkeys(Operation, ("first",)), clock)
    return first, command, routes


def test_each_operation_goes_by_the_first_that_can(pair: tuple[Scripted, Scripted, Routes]) -> None:
    first, command, routes = pair
    routes.jobs(["dl"])
    routes.nodes(["dl"])
    routes.write([update("1", SHAPE), release("1"), hold("1"), requeue_hold("2"), release("4_2"), release("3")], "x")
    assert first.said == ["jobs", "update 1 release 1", "release 3"]
    assert command.said == ["nodes", "hold 1 requeuehold 2 release 4_2"]
    chosen = {choice.operation: choice for choice in routes.choices()}
    assert chosen[Operation.JOBS].client == "first"
    assert (chosen[Operation.HOLD].client, chosen[Operation.HOLD].why) == ("command", "first has no hold")


@pytest.mark.parametrize(("asked", "not_now"), [(requeue_hold, "COMPLETING"), (hold, "RUNNING")])
def test_a_job_that_has_come_to_another_state_since_is_left_by_every_client(
    clock: Clock, asked: Callable[[str], Write], not_now: str
) -> None:
    """A requeue of one that completes by now crashes slurmctld before 26.05.4; a hold of one that runs by now takes
    its usage out of slurmdbd's reports."""
    stand = "JobId={} JobName=x\n   JobState={} Reason=None\n   Comment=   JobState=COMPLETING\n"
    for name in ("slurmrestd", "pyslurm", "command"):
        client, command = Scripted(name), Scripted("command", (Operation.FACTS,))
        for each in (client, command):
            each.stand = {"1": stand.format(1, not_now), "2": stand.format(2, "PENDING"), "4": ""}
        routes = Routes([client, command], Pace(), {Operation.FACTS: ("command",)}, clock)
        batches = [Batch((asked(job),), f"asking {job}") for job in ("1", "2", "4")]
        errors = routes.write_each(batches)
        assert [type(error) for error in errors] == [TryLater, type(None), type(None)]
        assert not_now.lower() in str(errors[0])
        assert [said for said in client.said if said != "standing"] == [f"{asked('2')} {asked('4')}"]
        command.fails = client.fails = TryLater("slow")
        assert [str(error) for error in routes.write_each(batches)] == ["slow"] * 3, "nothing is written unseen"


def test_a_client_that_is_away_is_left_alone_for_longer_and_longer(
    pair: tuple[Scripted, Scripted, Routes], clock: Clock
) -> None:
    first, command, routes = pair
    first.fails = ClientAway("nobody listens")
    for _ in range(600):
        before = len(command.said)
        routes.jobs([])
        assert len(command.said) == before + 1, "the round is not lost"
        notes = routes.notes()
        assert len(notes) == 1
        assert "first is away" in notes[0]
        clock.now_s += 1.0
    assert first.tried < 20, "once a minute in the end"
    first.fails = None
    clock.now_s += 60.0
    routes.jobs([])
    assert first.said == ["jobs"]
    assert routes.notes() == []
    assert {choice.operation: choice.client for choice in routes.choices()}[Operation.JOBS] == "first"


def test_a_write_of_unknown_fate_is_not_sent_again(pair: tuple[Scripted, Scripted, Routes]) -> None:
    first, command, routes = pair
    first.fails = ClientAway("no answer in time", unknown=True)
    with pytest.raises(TryLater):
        routes.write([release("1")], "x")
    assert command.said == []
    routes.write([release("1")], "x")  # asked again by the next round, by the client that works
    assert command.said == ["release 1"]


def test_batches_go_step_by_step_together_and_the_first_that_fails_ends_only_its_own(
    pair: tuple[Scripted, Scripted, Routes],
) -> None:
    first, command, routes = pair
    refused = Gone("no such job")
    first.refuses["update 2"] = command.refuses["hold 5"] = refused
    starts = [Batch((update(job, SHAPE), release(job)), f"starting {job}") for job in ("1", "2", "3", "4_1")]
    answers = routes.write_each([*starts, Batch((hold("5"),), "fence"), Batch((hold("6"), release("6")), "x")])
    assert answers == [None, refused, None, None, refused, None]
    assert first.said == ["update 1 update 2 update 3", "release 1 release 3 release 6"]
    assert command.said == ["update 4_1", "standing", "hold 5 hold 6", "release 4_1"]
    assert routes.write_each([]) == []


def test_batches_wait_together_while_slurmctld_is_away(pair: tuple[Scripted, Scripted, Routes], clock: Clock) -> None:
    first, _, routes = pair
    first.fails = ControllerAway("Socket timed out")
    batches = [Batch((release(job),), job) for job in "123"]
    assert [type(error) for error in routes.write_each(batches)] == [ControllerAway] * 3
    tried = first.tried
    assert [type(error) for error in routes.write_each(batches)] == [TryLater] * 3
    assert first.tried == tried, "nobody was asked"
    first.fails, first.refuses = None, {"release 2": ControllerAway("Socket timed out")}
    clock.now_s += 5.0
    assert [error is None for error in routes.write_each(batches)] == [True, False, True]
    first.refuses = {}
    assert isinstance(routes.write_each(batches)[0], TryLater), "one of them saw it away: a pause for all"


def test_writes_one_by_one_stop_where_the_way_ends() -> None:
    done: list[str] = []

    class Client(OneByOne):
        def _write(self, write: Write, doing: str) -> None:
            if write.job in failing:
                raise failing[write.job]
            done.append(write.job)

    writes = [(release(job), "x") for job in "1234"]
    failing: dict[str, PortError] = {"2": Gone("2"), "3": ClientAway("away")}
    assert Client().write_each(writes) == [None, failing["2"], failing["3"], failing["3"]]
    assert done == ["1"]
    failing = {"1": ClientAway("away")}
    with pytest.raises(ClientAway):
        Client().write_each(writes)


def test_an_answer_that_one_cannot_give_is_asked_of_the_next(pair: tuple[Scripted, Scripted, Routes]) -> None:
    first, command, routes = pair
    first.fails = CannotSay("cut off")
    routes.jobs([])
    assert command.said == ["jobs"]
    first.fails = None
    routes.jobs([])
    assert first.said == ["jobs"], "it is not away"


def test_slurmctld_away_is_asked_less_and_less_and_at_once_when_it_is_back(
    pair: tuple[Scripted, Scripted, Routes], clock: Clock
) -> None:
    first, command, routes = pair
    first.fails = command.fails = ControllerAway("Socket timed out")
    asked, refused = 0, 0
    for _ in range(600):  # a minute of an impatient caller
        with pytest.raises(TryLater) as raised:
            routes.jobs([])
        if isinstance(raised.value, ControllerAway):
            asked += 1
        else:
            refused += 1
            assert 0 < raised.value.retry_after_s <= 5.0
        clock.now_s += 0.1
    assert asked <= 18
    assert refused > 500
    first.fails = None
    clock.now_s += 5.0
    routes.jobs([])
    routes.jobs([])
    assert first.said == ["jobs", "jobs"]


def test_the_pace_lets_a_burst_pass_and_bounds_the_rest(clock: Clock) -> None:
    pace = Pace(10.0, 20.0, clock, clock.sleep)
    for _ in range(20):
        pace.spend()
    assert clock.now_s == 1000.0
    for _ in range(100):
        pace.spend()
    assert clock.now_s == pytest.approx(1010.0)
    assert pace.requests == 120
    assert pace.waited_s == pytest.approx(10.0)
    assert pace.rate() == pytest.approx(2.0, abs=0.1)
    clock.now_s += 100.0
    assert pace.rate() == 0.0
    pace.bound(2.0, 5.0)
    began = clock.now_s
    for _ in range(15):
        pace.spend()
    assert clock.now_s - began == pytest.approx(7.5), "nothing is saved up for new bounds"


@pytest.mark.parametrize(
    ("parameters", "limit"),
    [
        ("", None), ("enable_configless,idle_on_node_suspend", None),
        ("rl_enable", (2.0, 30.0)),
        ("enable_configless,rl_enable,rl_bucket_size=50,rl_refill_rate=10,rl_refill_period=5", (2.0, 50.0)),
        ("rl_enable,rl_refill_rate=x", (2.0, 30.0)),
    ],
)  # fmt: skip
def test_slurmctlds_own_rate_limit_is_read(parameters: str, limit: tuple[float, float] | None) -> None:
    assert site_limit(parameters) == limit


# --- tokens ---


def jwt(user: str, end_s: float) -> str:
    body = base64.urlsafe_b64encode(json.dumps({"exp": end_s, "iat": 1, "sun": user}).encode()).decode().rstrip("=")
    return f"aGVhZA.{body}.c2ln"


def test_a_token_of_our_own_is_renewed_before_it_ends_and_once_when_it_is_refused(clock: Clock) -> None:
    asked: list[str] = []

    def ask(line: str) -> str:
        asked.append(line)
        return f"SLURM_JWT={jwt('horae', clock.now_s + 3600)}\n"

    tokens = ScontrolTokens(ask, clock)
    assert tokens.headers()["X-SLURM-USER-NAME"] == "horae"
    tokens.headers()
    assert asked == ["token lifespan=3600"]
    clock.now_s += 3500
    tokens.headers()
    assert len(asked) == 2
    assert not tokens.refused(), "a fresh one was refused: more would not help"
    clock.now_s += 60
    assert tokens.refused()
    assert len(asked) == 3


def test_no_token_is_a_client_that_is_away() -> None:
    def refuse(line: str) -> str:
        raise FixConfiguration("Access denied")

    for ask in (refuse, lambda line: "scontrol: unknown word"):
        with pytest.raises(ClientAway) as raised:
            ScontrolTokens(ask).headers()
        assert "token" in raised.value.text


def test_a_token_file_is_read_again_when_it_changed(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "token"
    path.write_text(f"SLURM_JWT={jwt('horae', clock.now_s + 60)}\n")
    tokens = FileTokens(str(path), clock)
    first = tokens.headers()["X-SLURM-USER-TOKEN"]
    assert not tokens.refused()
    clock.now_s += 100
    with pytest.raises(ClientAway, match="expired"):
        tokens.headers()
    new = tmp_path / "new"
    new.write_text(jwt("other", clock.now_s + 60))
    os.replace(new, path)  # noqa: PTH105 - as a site's renewer does it
    assert tokens.headers()["X-SLURM-USER-NAME"] == "other"
    assert tokens.headers()["X-SLURM-USER-TOKEN"] != first
    path.unlink()
    with pytest.raises(ClientAway, match="rest_token_file"):
        tokens.headers()


# --- slurmrestd's words ---


def test_the_newest_version_that_both_know_is_used() -> None:
    assert rest(serving("v0.0.36", "v0.0.40", "v0.0.41", "v0.0.42")).describe().startswith("v0.0.42 of Slurm 24.11.5")
    assert rest(serving("v0.0.44", "v0.0.45", "v0.0.99")).describe().startswith("v0.0.45")
    with pytest.raises(ClientAway, match=r"v0\.0\.38"):
        rest(serving("v0.0.36")).describe()


def test_what_a_version_cannot_do_is_left_to_others() -> None:
    old = rest(serving("v0.0.38"))
    for write in (release("1"), hold("1"), requeue_hold("1"), update("1", SHAPE)):
        with pytest.raises(CannotSay):
            old.write([write], "x")
    assert old.lacks(Operation.JOBS) == ""
    assert "pin" in old.lacks(Operation.UPDATE)
    assert not old.fits(release("4_2")), "a task of an array"
    assert not old.fits(update("1", Change(node_list=()))), "an empty list clears nothing"
    assert old.fits(update("1", SHAPE))


def test_an_update_that_slurm_makes_and_comments_on_is_made() -> None:
    """26.05, of a job that its partition cannot hold now. What it says beside that is an error all the same."""
    failed, sentence = "Job update requested failed", "Requested partition configuration not available now"
    comment = {"description": failed, "error_number": 2015, "error": sentence, "source": "slurm_update_job2()"}

    def told(*errors: dict[str, object]) -> RestClient:
        body = {"errors": list(errors)}
        return rest(serving("v0.0.45", then=lambda _: httpx.Response(422, json=body)))

    told(comment).write([update("7", SHAPE)], "starting 7")
    told({"description": sentence}).write([update("7", SHAPE)], "starting 7")
    for others in ([{"error": "Access/permission denied"}], [{"error_number": 2015}], [comment, {}], ["what"]):
        with pytest.raises(PortError):
            told(*others).write([update("7", SHAPE)], "starting 7")  # type: ignore[arg-type]


def test_an_upgraded_slurmrestd_is_asked_for_its_version_again() -> None:
    served = ["v0.0.42"]

    def answer(request: httpx.Request) -> httpx.Response:
        return serving(*served, then=lambda _: httpx.Response(200, json={"jobs": [], "errors": []}))(request)

    client = rest(answer)
    client.jobs([])
    served[:] = ["v0.0.45"]
    client.jobs([])
    assert client.describe().startswith("v0.0.45")


def said(number: int, sentence: str, status: int = 500) -> Answer:
    body = {"errors": [{"error_number": number, "error": sentence, "description": "it failed"}], "warnings": []}
    return serving("v0.0.45", then=lambda _: httpx.Response(status, json=body))


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (said(2017, "Invalid job id specified", 404), Gone),
        (said(2002, "Access/permission denied"), FixConfiguration),
        (said(7000, "Unable to contact slurm controller (connect failure)"), ControllerAway),
        (said(11, "Resource temporarily unavailable"), TryLater),
        (said(1007, "Protocol authentication error", 511), ClientAway),
        (serving("v0.0.45", then=lambda _: httpx.Response(502, text="bad gateway")), ClientAway),
        (serving("v0.0.45", then=lambda _: httpx.Response(401, text="Authentication failure")), ClientAway),
    ],
)
def test_errors_in_bodies_say_what_to_do_next(answer: Answer, kind: type[PortError]) -> None:
    with pytest.raises(PortError) as raised:
        rest(answer).write([release("7")], "releasing 7")
    assert type(raised.value) is kind
    assert "releasing 7" in raised.value.text


def test_a_refused_token_is_renewed_once() -> None:
    tokens = iter(["old", "new"])

    class Fresh:
        now = next(tokens)

        def headers(self) -> Mapping[str, str]:
            return {"X-SLURM-USER-TOKEN": self.now}

        def refused(self) -> bool:
            self.now = next(tokens)
            return True

    def answer(request: httpx.Request) -> httpx.Response:
        if request.headers["X-SLURM-USER-TOKEN"] == "old":
            return httpx.Response(511, json={"errors": [{"error_number": 1007, "error": "Protocol ..."}]})
        return httpx.Response(200, json={"jobs": [], "errors": []})

    assert rest(serving("v0.0.45", then=answer), Fresh()).jobs([]) == []


@pytest.mark.parametrize("unknown", [True, False])
def test_whether_a_write_may_have_been_done_is_told(unknown: bool) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("slow") if unknown else httpx.ConnectError("refused")

    with pytest.raises(ClientAway) as raised:
        rest(serving("v0.0.45", then=answer)).write([release("7")], "releasing 7")
    assert raised.value.unknown is unknown


def test_many_are_ended_by_one_request_and_each_has_its_own_answer() -> None:
    asked: list[Any] = []
    codes = {"1": 0, "2": 2017, "3": 2020, "4": 2021}

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((request.method, json.loads(request.content)))
        status = [
            {"step_id": job, "error": {"code": codes[job], "message": f"code {codes[job]}"}}
            for job in asked[-1][1]["jobs"]
        ]
        return httpx.Response(200, json={"status": status, "errors": []})

    client = rest(serving("v0.0.45", then=answer))
    assert client.cancel(["1", "2", "3", "4"], "cancelling") == {}
    assert client.signal(["1", "2"], "USR1", "stopping") == {}
    assert asked[0] == ("DELETE", {"jobs": ["1", "2", "3", "4"]})
    assert asked[1][1] == {"jobs": ["1", "2"], "signal": "USR1", "flags": ["BATCH_JOB"]}
    codes["1"] = 2002
    assert set(client.signal(["1", "3"], "USR1", "stopping")) == {"1"}
    assert isinstance(client.cancel(["1", "2"], "cancelling").get("1"), TryLater)


def test_what_slurmrestd_warns_of_is_logged_once() -> None:
    body = {"jobs": [], "errors": [], "warnings": [{"description": "unknown flag BLA", "source": "parser"}, "bare"]}
    client = rest(serving("v0.0.45", then=lambda _: httpx.Response(200, json=body)))
    with capture_logs() as logged:
        client.jobs([])
        client.jobs([])
    assert [entry["text"] for entry in logged] == ["unknown flag BLA", "bare"]
    assert {entry["log_level"] for entry in logged} == {"warning"}
    assert client.warnings == ["unknown flag BLA", "bare"]


def test_a_shape_in_the_words_of_each_client() -> None:
    assert scontrol(update("7", SHAPE)) == (
        "update jobid=7 StartTime=now NumNodes=2-2 NumTasks=2 CpusPerTask=3 NumCPUs=6 ReqNodeList=n[1-2] "
        "Gres=gpu:4 TimeLimit=90"
    )
    assert scontrol(update("7", Change(node_list=(), site_factor=0))) == "update jobid=7 ReqNodeList= SiteFactor=0"
    assert scontrol(requeue_hold("4_2")) == "requeuehold 4_2"
    body = body_of(update("7", SHAPE))
    assert body["required_nodes"] == ["n1", "n2"]
    assert (body["minimum_nodes"], body["maximum_nodes"], body["tres_per_node"]) == (2, 2, "gres/gpu:4")
    assert body["time_limit"]["number"] == 90
    assert body["begin_time"]["number"] < time.time() - 1000, "the past is now, whatever the clocks"
    assert (body_of(hold("7")), body_of(release("7"))) == ({"hold": True}, {"hold": False})
    assert body_of(update("7", Change(site_factor=0))) == {"site_factor": 0}


SPLIT = (
    "JobId=41 ArrayJobId=40 ArrayTaskId=3 JobName=a NodeList=n[1-3] JOB_GRES=gpu:v100:5 "
    "Nodes=n[1-2] CPU_IDs=0 Mem=0 GRES=gpu:v100:2(IDX:0-1) Nodes=n3 CPU_IDs=0 Mem=0 GRES=gpu:v100:1(IDX:0)\n"
)


def test_how_a_total_is_split_is_read_from_scontrol() -> None:
    row = replace(ROW, id="40_3", nodes=("n1", "n2", "n3"), gpus_per_node=None, gpus_total=5)
    assert split_of(SPLIT, row) == (("n1", 2), ("n2", 2), ("n3", 1))


@pytest.mark.parametrize(
    "said",
    [
        "JobName=x Nodes=n9 CPU_IDs=0 Mem=0 GRES=gpu:4 NodeList=n[1-2]",
        "JobName=x Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:4 " + SPLIT,
        SPLIT.replace("gpu:v100:1(", "gpu:v100:3("),
        "Comment=\nJobId=41 Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:" + "9" * 5000,
    ],
)
def test_a_split_that_does_not_fit_the_job_is_not_believed(said: str) -> None:
    """Its user's name and comment stand in the same answer."""
    row = replace(ROW, id="40_3", nodes=("n1", "n2", "n3"), gpus_per_node=None, gpus_total=5)
    assert split_of(said, row) == ()


def test_lists_of_array_tasks() -> None:
    assert task_numbers("1,3-6%2") == [1, 3, 4, 5, 6]
    assert task_numbers("0-8:4") == [0, 4, 8]
    with pytest.raises(CannotSay):
        task_numbers("1,3,5,7,9,11,...")


def test_states_and_exit_codes_of_any_version() -> None:
    assert job_state("RUNNING") == "RUNNING"
    assert job_state(["PENDING", "SPECIAL_EXIT"]) == "SPECIAL_EXIT"
    assert job_state(["RUNNING", "COMPLETING"]) == "COMPLETING"
    assert exit_status(86 << 8) == 86 << 8
    number: Callable[[int], Any] = lambda value: {"set": True, "infinite": False, "number": value}  # noqa: E731
    assert exit_status({"return_code": number(7), "signal": {"id": {"set": False}}}) == 7 << 8
    assert exit_status({"return_code": {"set": False}, "signal": {"id": number(9)}}) == 9


def test_every_operation_of_the_table_has_a_way_or_a_reason() -> None:
    for name, known in versions.REST.items():
        missing = set(Operation) - known.can - set(versions.REST_LACKS)
        assert set(known.lacks) == missing, name


# --- options ---


def wrong() -> Iterator[tuple[dict[str, Any], str]]:
    yield {"client": "rest"}, "client"
    yield {"client": "slurmrestd"}, "client"
    yield {"client": "pyslurm"}, "client"
    yield {"rest_url": "rest:6820"}, "rest_url"
    yield {"rest_url": "unix:run/slurmrestd"}, "rest_url"
    yield {"requests_per_s": 0}, "requests_per_s"


@pytest.mark.parametrize(("options", "field"), list(wrong()))
def test_a_wrong_option_is_named_with_its_remedy(options: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInput) as raised:
        parse_options(options, "cluster.slurm")
    assert raised.value.field == field
    assert raised.value.remedy or field == "requests_per_s"


def test_right_options() -> None:
    for url in ("http://ctl:6820", "https://rest.site.org/slurm", "unix:/run/slurmrestd/s.socket", "http://[::1]:6820"):
        assert parse_options({"client": "slurmrestd", "rest_url": url}, "x").rest_url == url
