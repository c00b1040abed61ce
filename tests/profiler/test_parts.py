"""Losses that are parts: on lines of their own, and of reinforcement learning, where no sum is the loss."""

from __future__ import annotations

from tests.profiler.others import read


def _box(rows: list[tuple[str, object]]) -> str:
    edge = "-" * 39 + "\n"
    return edge + "".join(f"| {name:<22} | {value:<10} |\n" for name, value in rows) + edge


def test_an_actor_and_a_critic_have_no_loss_together() -> None:
    boxes = [
        _box([
            ("   fps", 500 + k),
            ("   total_timesteps", 2048 * (k + 1)),
            ("   actor_loss", -10.0 - k),
            ("   critic_loss", 3.0 - 0.3 * k),
        ])
        for k in range(6)
    ]  # fmt: skip
    (run,) = read("".join(boxes))
    assert run["loss"] is None
    assert run["iterations"]["last"] == 2048 * 6
    assert run["throughput"]["median"] == 502.5


def test_policy_and_value_on_one_line_keep_their_counter_and_are_no_loss() -> None:
    (run,) = read("".join(f"step {k * 10} policy_loss {-0.1 * k:.2f} value_loss {2 - 0.1 * k:.2f}\n" for k in range(8)))
    assert run["loss"] is None
    assert run["iterations"]["last"] == 70


def test_beside_their_whole_they_are_its_parts() -> None:
    lines = (f"step {k} loss {3 - 0.1 * k:.2f} policy_loss {1 - 0.1 * k:.2f} value_loss 2.00\n" for k in range(8))
    (run,) = read("".join(lines))
    assert run["loss"]["last"] == [7, 2.3]


def test_parts_on_lines_of_their_own_are_summed() -> None:
    (run,) = read("".join(f"step {k * 10}\n  loss_cls: {3 - k / 10}\n  loss_box: {2 - k / 10}\n" for k in range(8)))
    assert run["loss"]["parts"] == ["loss_cls", "loss_box"]
    assert run["loss"]["first"] == [0, 5]
    assert run["loss"]["n"] == 8
