"""Quick frozen values are what dataclasses make, made another way."""

import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace

import pytest

from policy import bounds
from policy.model import GpuRange, Job, Node, Reason, Shape, Slowdown, Tenant, Work
from policy.records import altered, quick


@dataclass(frozen=True, slots=True)
class Slow:
    name: str
    gpus: int = 1
    by_type: dict[str, int] = field(default_factory=dict)


@quick
@dataclass(frozen=True, slots=True)
class Fast:
    name: str
    gpus: int = 1
    by_type: dict[str, int] = field(default_factory=dict)


@pytest.mark.parametrize("given", [("a",), ("a", 2), ("a", 2, {"k80": 1})])
def test_same_fields_whoever_makes_it(given: tuple) -> None:
    slow, fast = Slow(*given), Fast(*given)
    assert type(fast) is Fast
    assert [getattr(fast, f.name) for f in fields(Fast)] == [getattr(slow, f.name) for f in fields(Slow)]
    assert repr(fast) == repr(slow).replace("Slow", "Fast")
    assert fast == Fast(**{f.name: getattr(slow, f.name) for f in fields(Slow)})


def test_defaults_are_each_its_own() -> None:
    assert Fast("a").by_type is not Fast("a").by_type


def test_frozen() -> None:
    made = Fast("a")
    with pytest.raises(FrozenInstanceError):
        made.gpus = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del made.gpus
    assert not hasattr(made, "__dict__")


@pytest.mark.parametrize("wrong", [(), ("a", 1, {}, "more")])
def test_refuses_what_a_dataclass_refuses(wrong: tuple) -> None:
    for kind in (Slow, Fast):
        with pytest.raises(TypeError):
            kind(*wrong)


@pytest.mark.parametrize(
    "value",
    [
        Job("a", "t", "a", GpuRange(1, 1, None), work=Work(5.0, 1.0), gpu_types=None),
        Node("n", "v100", 8),
        Tenant("t", 2.0),
        Shape(nodes=2),
        Slowdown(),
    ],
)
def test_values_of_the_model_keep_their_habits(value: object) -> None:
    again = replace(value)  # type: ignore[type-var]
    assert again == value and altered(value) == value and altered(value) is not value
    assert pickle.loads(pickle.dumps(Work(5.0, 1.0))) == Work(5.0, 1.0)


def test_altered_is_replace() -> None:
    job = Job("a", "t", "a", GpuRange(2, 1, 4), work=Work(10.0))
    for changes in ({"allocation": {"n": 2}}, {"name": "b", "work": Work(3.0)}, {}):
        assert altered(job, **changes) == replace(job, **changes)
    with pytest.raises(KeyError):
        altered(job, nothing=1)


def test_takes_only_what_it_can_make() -> None:
    @dataclass(slots=True)
    class Late:
        name: str

        def __post_init__(self) -> None:
            self.name = self.name.upper()

    with pytest.raises(TypeError, match="Late"):
        quick(Late)


NAN, INF = float("nan"), float("inf")
JOB = Job("a", "t", "a", GpuRange(2, 1, 4), work=Work(10.0), throughput={"k80": {1: 1.0}}, attained={"k80": 3.0})


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"submitted_s": NAN}, {"submitted_s": -INF}, {"work": Work(None, NAN)}, {"work": Work(1e-9)},
        {"work": Work(1e16)}, {"work": Work(INF)}, {"work": Work(0.0)}, {"cpus_per_gpu": NAN},
        {"memory_per_gpu": 1 << 62}, {"restart_cost_s": INF}, {"attained": {"k80": NAN}},
        {"throughput": {"k80": {1: NAN}}},
        {"throughput": {"k80": {1: 1e-12}}}, {"gpus": GpuRange(1, 1, 10**9)}, {"slowdown": Slowdown(1.0, INF, 1.0)},
        {"loss": ((1.0, NAN),)}, {"work": Work(-1.0)}, {"work": Work(-1e16)},
    ],
)  # fmt: skip
def test_bounds_known_before_are_bounds(changes: dict) -> None:
    """Whoever was looked at before."""
    known = bounds.Known()
    job = replace(JOB, **changes)
    for one in (JOB, job, JOB, job, replace(job)):
        assert known.problem(one) == bounds.problem(one)


def test_a_reason_is_quick_too() -> None:
    from policy.model import Code

    assert Reason(Code.KEPT, "x").numbers == {} and Reason(Code.KEPT, "x") == Reason(Code.KEPT, "x", {}, "")
