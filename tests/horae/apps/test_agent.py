"""An agent's own half of the conversation, with a stand-in for the arbiter's API."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from horae.api.client import Client
from horae.apps.agent import Call

CLUSTER = "schema: 1\ncluster: {nodes: [{name: a, gpu_type: v, gpus: 4}]}\npolicy: {name: themis}\n"
JOB = "jobs: [{name: j, tenant: me, app: me/own, gpus: {min: 1, max: 4}, throughput: {v: 1.0}, work: {total: 10%s}}]\n"


class Arbiter:
    def __init__(self, instance: str) -> None:
        self.instance = instance

    def agent_instance(self, app: str) -> str:
        return self.instance


def call(instance: str, gpus: int = 4) -> Call:
    client = cast(Client, Arbiter(instance))
    nodes: dict[str, dict[str, Any]] = {"a": {"gpu_type": "v", "rack": None}}
    return Call("me/own", 1, time.monotonic() + 5, {"a": gpus}, nodes, (), client)


def test_its_table_has_the_rows_that_fit_the_offer() -> None:
    assert [row["gpus"] for row in call(CLUSTER + JOB % "").table()] == [1, 2, 3, 4]
    assert [row["gpus"] for row in call(CLUSTER + JOB % "", gpus=2).table()] == [1, 2]


@pytest.mark.parametrize("jobs", ["jobs: []\n", JOB % ", done: 10"])
def test_an_app_that_has_ended_since_the_call_bids_nothing(jobs: str) -> None:
    assert call(CLUSTER + jobs).table() == []
