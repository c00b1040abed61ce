from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from profiler.estimates.curves import accuracy_curve, curve_of, loss_curve, validation_curves
from profiler.model import Kind, LossKind, Value
from tests.profiler.runs_made import point, run


def test_positions_run_through_where_the_counter_does() -> None:
    made = run(point(i, iteration=float(i * 10), loss=5.0 - i) for i in range(1, 4))
    curve = loss_curve(made)
    assert curve is not None
    assert curve.axis == "iteration"
    assert curve.points == ((10.0, 4.0), (20.0, 3.0), (30.0, 2.0))


def test_epochs_that_start_again_are_unrolled_even_when_their_length_changes() -> None:
    rows = [(0, 5, 10), (0, 10, 10), (1, 2, 4), (1, 4, 4), (2, 5, 10)]
    made = run(
        point(i, epoch=float(e), iteration=float(k), iterations=float(n), scope="epoch", loss=9.0 - i)
        for i, (e, k, n) in enumerate(rows)
    )
    curve = loss_curve(made)
    assert curve is not None
    assert [at for at, _ in curve.points] == [5, 10, 12, 14, 19]


def test_a_first_epoch_that_is_not_the_first_leaves_room_for_those_before() -> None:
    made = run(
        (point(i, epoch=4.0, iteration=float(i), iterations=10.0, scope="epoch", loss=1.0) for i in (1, 2)),
        iterations_per_epoch=10.0,
    )
    curve = loss_curve(made)
    assert curve is not None
    assert curve.points[0][0] == 31.0  # epochs count from 1: three whole ones before


def test_ranks_at_one_position_are_averaged() -> None:
    made = run(point(i, iteration=float(i // 4), rank=i % 4, loss=float(i % 4)) for i in range(8))
    curve = loss_curve(made)
    assert curve is not None
    assert curve.points == ((0.0, 1.5), (1.0, 1.5))


def test_ranks_without_a_prefix_may_straggle_by_one_line() -> None:
    text = [(10, 1.0), (10, 3.0), (20, 1.0), (10, 5.0), (20, 2.0), (30, 1.0)]
    assert dict(curve_of((at, None, v) for at, v in text)) == {10: 3.0, 20: 1.5, 30: 1.0}


def test_what_is_trained_again_after_a_resume_replaces_what_was() -> None:
    text = [(k, None, 1.0) for k in range(0, 100, 10)] + [(k, None, 2.0) for k in range(50, 150, 10)]
    curve = dict(curve_of(text))
    assert curve[40] == 1.0
    assert curve[50] == curve[90] == 2.0
    assert len(curve) == 15


def test_parts_are_summed_only_without_a_total() -> None:
    parts = (Value("a", 1.0), Value("b", 2.0))
    curve = loss_curve(run(point(i, iteration=float(i), losses=parts, total=False) for i in range(3)))
    assert curve is not None
    assert (curve.points[0][1], curve.parts) == (3.0, ("a", "b"))
    totalled = loss_curve(run(point(i, iteration=float(i), losses=(Value("t", 9.0), *parts)) for i in range(3)))
    assert totalled is not None
    assert (totalled.points[0][1], totalled.parts) == (9.0, ())


def test_states_of_a_bar_that_were_redrawn_do_not_count() -> None:
    made = run([point(1, iteration=5.0, loss=9.0, redrawn=True), point(1, iteration=10.0, loss=2.0)])
    curve = loss_curve(made)
    assert curve is not None
    assert curve.points == ((10.0, 2.0),)


def test_a_log_of_epochs_alone_has_epochs_for_an_axis() -> None:
    curve = loss_curve(
        run(point(e, Kind.EPOCH, loss=3.0 / e, epoch=float(e), loss_kind=LossKind.EPOCH) for e in (1, 2, 3))
    )
    assert curve is not None
    assert (curve.axis, curve.kind, curve.points[-1]) == ("epoch", LossKind.EPOCH, (3.0, 1.0))


def test_an_evaluation_stands_where_training_was() -> None:
    made = run(
        [
            point(1, iteration=10.0, loss=2.0),
            point(2, Kind.VALIDATION, loss=1.5, iteration=3.0, scope="epoch"),  # counts its own batches
            point(3, iteration=20.0, loss=1.9),
            point(4, Kind.VALIDATION, loss=1.4),
            point(5, Kind.VALIDATION, losses=(), accuracies=(Value("top1", 70.0),)),
        ]
    )
    loss, accuracy = validation_curves(made)
    assert loss is not None
    assert loss.points == ((10.0, 1.5), (20.0, 1.4))
    assert accuracy is not None
    assert accuracy.points == ((20.0, 70.0),)


def test_values_printed_beside_training_are_validation_too() -> None:
    made = run(
        point(
            e,
            Kind.EPOCH,
            epoch=float(e),
            accuracies=(Value("acc", 0.5),),
            validation_losses=(Value("val_loss", 1.0 / e),),
            validation_accuracies=(Value("val_acc", 0.1 * e),),
        )
        for e in (1, 2)
    )
    loss, accuracy = validation_curves(made)
    own = accuracy_curve(made)
    assert loss is not None and accuracy is not None and own is not None
    assert (loss.points[-1], accuracy.points[-1], own.points[-1]) == ((2.0, 0.5), (2.0, 0.2), (2.0, 0.5))


def test_nothing_is_made_of_nothing() -> None:
    empty = run([])
    assert loss_curve(empty) is None
    assert accuracy_curve(empty) is None
    assert validation_curves(empty) == (None, None)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 50),
            st.none() | st.integers(0, 3),
            st.floats(-1e6, 1e6),
        ),
        max_size=80,
    )
)
def test_a_curve_has_ascending_distinct_positions_and_no_value_out_of_range(
    text: list[tuple[int, int | None, float]],
) -> None:
    curve = curve_of((float(at), rank, v) for at, rank, v in text)
    places = [at for at, _ in curve]
    assert places == sorted(set(places)) == sorted({float(at) for at, _, _ in text})
    for at, value in curve:
        own = [v for a, _, v in text if a == at]
        assert min(own) - 1e-6 <= value <= max(own) + 1e-6
