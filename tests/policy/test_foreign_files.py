"""Files as strangers write them: what a policy remembers, forecasts, names. Each is decided, or refused with its place.

What single values may be is in `test_instance.py` and `test_bounds.py`; here is what only shows once somebody decides.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from policy import catalogue
from policy.decide import decide
from policy.model import BadInput
from policy.parts.forecast import check
from policy.text.instance import parse
from policy.trials import rounds

NAMES = sorted(catalogue.entries())
BUSY: dict[str, Any] = {
    "now": 5000.0,
    "cluster": {"nodes": [{"name": n, "gpu_type": t, "gpus": 4} for n, t in (("a", "k80"), ("b", "v100"))]},
    "jobs": [
        {
            "name": f"j{i}", "tenant": f"t{i % 2}", "gpus": 3 if i % 3 else {"min": 1, "max": 4}, "submitted": i,
            "work": {"total": 1e6}, "throughput": {"k80": 1.0, "v100": 2.0 + i},
        }
        for i in range(6)
    ],
}  # fmt: skip


def with_(**more: Any) -> str:
    return json.dumps({**BUSY, **more}, indent=1)


def remembered(policy: str) -> dict[str, Any]:
    """What a policy remembers of the busy cluster, a while into it."""
    first = decide(parse(with_()), policy)
    later = [{**job, "allocation": first.allocation[job["name"]]} for job in BUSY["jobs"]]
    again = decide(parse(with_(jobs=later, state=first.state, now=5010.0)), policy)
    return dict(again.state)


@cache
def anew(policy: str) -> tuple[dict[str, dict[str, int]], dict[str, float]]:
    """What a policy that remembers nothing answers, and who runs in which part of its first rounds."""
    fresh = parse(with_(now=5020.0))
    ran = dict(rounds.run(fresh, 3, policy).fractions) if catalogue.find(policy).quantum else {}
    return {name: dict(place) for name, place in decide(fresh, policy).allocation.items()}, ran


@pytest.mark.parametrize("other", ["afs-p", "gavel-max-min", "gandiva", "themis", "gandiva-fair"])
def test_what_one_policy_remembers_is_nothing_to_another(other: str) -> None:
    """A snapshot of an arbiter, asked what another policy would do: as that one would begin, and go on over rounds."""
    saved = parse(with_(state=remembered(other), policy={"name": other}, now=5020.0))
    for policy in NAMES:
        if policy != other:
            assert decide(saved, policy).allocation == anew(policy)[0], policy
    for policy in ("gavel-fifo", "oef-noncooperative", "lottery"):
        assert rounds.run(saved, 3, policy).fractions == anew(policy)[1], policy


def odd(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every key that is remembered, as another kind of value."""
    return {f"{key}={value!r}": {**state, key: value} for key in state for value in (7, "x", [1], {"j1": 1}, None)}


@pytest.mark.parametrize("policy", NAMES)
def test_a_state_of_other_kinds_is_gone_on_from_or_refused(policy: str) -> None:
    for what, state in odd({**remembered(policy), "carrying": {}}).items():
        text = with_(state=state, policy={"name": policy})
        try:
            decision = decide(parse(text, "x.json"))
        except BadInput as refused:
            assert refused.field.split(".")[0] == "state" and refused.remedy, what
        else:
            assert decision.certificate.feasible, what


CARRYING: list[tuple[Any, str]] = [
    (5, "state.carrying"),
    ({"j1": 5}, "state.carrying.j1"),
    ({"j1": {"from": {}}}, "state.carrying.j1.to"),
    ({"j1": {"from": {}, "to": {"a": -1}}}, "state.carrying.j1.to.a"),
    ({"j1": {"from": {}, "to": {"a": "3"}}}, "state.carrying.j1.to.a"),
    ({"j1": {"from": {}, "to": {}, "leases": {"a": 3}}}, "state.carrying.j1.leases.a"),
    ({"j1": {"from": {}, "to": {}, "more": 1}}, "state.carrying.j1.more"),
]


@pytest.mark.parametrize(("carrying", "field"), CARRYING)
def test_what_is_being_carried_out_has_a_form(carrying: Any, field: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse(with_(state={"carrying": carrying}), "x.json")
    assert (refused.value.field, refused.value.where) == (field, "x.json") and refused.value.line


CURVE = {"asymptote": 0.1, "scale": 5.0}
FORECASTS: list[tuple[str, dict[str, float], str]] = [
    ("magic", CURVE, "law"),
    ("power", CURVE, "parameters"),
    ("inverse", {"s": 100.0}, "parameters"),
    ("inverse", {**CURVE, "s": 0.0}, "parameters.s"),
    ("shifted-power", {**CURVE, "s": -1.0, "p": 0.5}, "parameters.s"),
    ("power", {**CURVE, "p": -1e30}, "parameters.p"),
    ("power", {**CURVE, "p": 1e30}, "parameters.p"),
    ("exponential", {**CURVE, "s": 1e-300}, "parameters.s"),
    ("inverse-quadratic", {**CURVE, "s": 1.0, "t": 0.0}, "parameters.t"),
    ("constant", {**CURVE, "origin": 1e29}, "parameters.origin"),
]


@pytest.mark.parametrize(("law", "parameters", "field"), FORECASTS)
def test_a_forecast_that_is_no_curve_is_refused(law: str, parameters: dict[str, float], field: str) -> None:
    jobs = [{**BUSY["jobs"][0], "loss_forecast": {"law": law, "parameters": parameters}}]
    with pytest.raises(BadInput) as refused:
        parse(with_(jobs=jobs), "x.json")
    assert refused.value.field == f"jobs[0].loss_forecast.{field}" and refused.value.remedy and refused.value.line


@pytest.mark.parametrize("policy", ["optimus", "slaq", "themis"])
@pytest.mark.parametrize("done", [0.0, 1e15])
def test_at_the_bounds_of_a_curve_there_is_an_answer(policy: str, done: float) -> None:
    ends = [
        {"law": law, "parameters": {"asymptote": -1e30, "scale": 1e30, "origin": origin, "s": s, "t": s, "p": p}}
        for law in ("inverse", "inverse-quadratic", "exponential", "power", "shifted-power", "log-power",
                    "stretched-exponential", "inverse-log", "constant")
        for origin in (-1e15, 1e15) for s in (1e-15, 1e18) for p in (0.0, 10.0)
    ]  # fmt: skip
    ends.append({"law": "power", "parameters": {"iterations": 700.0}})
    jobs = [
        {**BUSY["jobs"][0], "name": f"j{i}", "app": f"a{i % 2}", "loss_forecast": end, "loss": [[1, 2], [2, 1.5]],
         "work": {"total": None if i % 3 else max(done, 1.0), "done": done}}
        for i, end in enumerate(ends)
    ]  # fmt: skip
    apps = [{"name": "a0", "scheduler": "curve-stopping"}]
    snapshot = parse(with_(jobs=jobs, apps=apps))
    for job in snapshot.jobs:
        assert job.loss_forecast is not None
        check(job.loss_forecast)
    assert decide(snapshot, policy).certificate.feasible


NAMED = [
    *("j", "J", "j ", " j", "j\u200b", "\u00e9", "e\u0301", "\u0430", "a", "1", "01", "1.0", "null", "no", "a/b"),
    *("../a", "\u2603" * 40, "x" * 256, "--json", "\u202eabc"),
]


@pytest.mark.parametrize("policy", ["themis", "gandiva-fair", "oef-cooperative", "gavel-max-min", "drf"])
def test_names_that_look_alike_are_two(policy: str) -> None:
    jobs = [{"name": name, "tenant": name, "gpus": 1, "throughput": {"\u00e9": 1.0, "e\u0301": 2.0}} for name in NAMED]
    nodes = [{"name": name, "gpu_type": ("\u00e9", "e\u0301")[i % 2], "gpus": 1} for i, name in enumerate(NAMED)]
    decision = decide(parse(json.dumps({"cluster": {"nodes": nodes}, "jobs": jobs})), policy)
    assert set(decision.allocation) == set(NAMED) == {n for place in decision.allocation.values() for n in place}
