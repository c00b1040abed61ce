"""What the doctor says of the ways to Slurm, without a daemon."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import httpx

from horae.doctor import Verdict
from slurm_plugin.adapter import SlurmCluster
from slurm_plugin.clients.pace import Pace
from slurm_plugin.clients.routes import Routes
from slurm_plugin.site import doctor
from tests.slurm_plugin.test_clients import Scripted, rest, serving
from tests.slurm_plugin.test_reading import FACTS


def said(warnings: list[Any], status: int = 200) -> dict[str, tuple[Verdict, str]]:
    body = {"nodes": [], "errors": [], "warnings": warnings}
    client = rest(serving("v0.0.45", then=lambda _: httpx.Response(status, json=body)))
    cluster = SimpleNamespace(client=Routes([client, Scripted("command")], Pace()), facts=lambda: FACTS)
    return {check.name: (check.verdict, check.text) for check in doctor._clients(cast(SlurmCluster, cluster))}


def test_what_slurmrestd_warns_of_is_a_warning() -> None:
    found = said([{"description": "unknown flag BLA"}])
    assert found["slurmrestd warns"] == (Verdict.WARN, "unknown flag BLA")
    assert found["client slurmrestd"][0] is Verdict.OK
    assert "slurmrestd warns" not in said([])


def test_a_slurmrestd_that_answers_no_reads_is_a_client_that_fails() -> None:
    found = said([], status=502)
    assert found["client slurmrestd"][0] is Verdict.WARN
    assert "slurmrestd warns" not in found
