"""Shipped throughput tables: readable by key, sane, and named in the sources."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import horae.tables
from horae.tables import names, table
from horae.tables.make import key_of
from policy.model import BadInput
from policy.text.instance import parse

INSTANCE = "cluster: {nodes: [{name: n, gpu_type: v100, gpus: 4}]}\njobs: [{name: j, gpus: 1, model: MODEL}]"


def test_every_table_has_its_source_and_licence() -> None:
    path = Path(horae.tables.__file__).parent / "SOURCES.tsv"
    rows = {row["table"]: row for row in csv.DictReader(path.read_text().splitlines(), delimiter="\t")}
    assert sorted(rows) == names()
    assert {row["licence"] for row in rows.values()} <= {"MIT", "Apache-2.0"}


@pytest.mark.parametrize("name", names())
def test_rates_are_positive_by_whole_gpus(name: str) -> None:
    for rates in table(name).values():
        for curve in rates.values():
            assert curve and all(n >= 1 and rate > 0 for n, rate in curve.items())


def test_an_instance_uses_a_table_by_key() -> None:
    (job,) = parse(INSTANCE.replace("MODEL", "resnet50@gavel"), tables=table).jobs
    assert job.throughput["v100"][1] == pytest.approx(11.3961)
    assert job.model == "resnet50@gavel"


def test_an_unknown_table_or_model_is_said_with_what_there_is() -> None:
    with pytest.raises(BadInput, match=r"jobs\[0\]\.model.*no throughput table 'nowhere'.*afs, gavel, pollux"):
        parse(INSTANCE.replace("MODEL", "resnet50@nowhere"), tables=table)
    with pytest.raises(BadInput, match="no model 'resnet5000' in the table 'gavel'"):
        parse(INSTANCE.replace("MODEL", "resnet5000@gavel"), tables=table)


@pytest.mark.parametrize(
    ("printed", "key"), [("ResNet-50 (batch size 64)", "resnet50-64"), ("A3C", "a3c"), ("CycleGAN", "cyclegan")]
)
def test_keys_are_short(printed: str, key: str) -> None:
    assert key_of(printed) == key
