"""The live picture: its parts for any width, and the walkable screen at 80x24 and wide."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text
from textual.pilot import Pilot
from textual.widgets import DataTable

from horae.tui import parts
from horae.tui.app import LiveApp
from horae.tui.view import AppView, EventView, JobView, NodeView, TenantView, TrialView, View, palette

VIEW = View(
    cluster="local (3 nodes)",
    policy="max-min",
    mode="enforce",
    wall_s=1_000_000.0,
    nodes=(NodeView("v1", "v100", 4), NodeView("v2", "v100", 4, "drain", 1), NodeView("k1", "k80", 2, "down")),
    tenants=(TenantView("ann", 2.0, 5, 4.5, 300.0, 280.0, 0, 1, 0.9), TenantView("ben", 1.0, 0, 2.5, 100.0, 120.0, 1)),
    jobs=(
        JobView("1", "resnet", "ann", "running", "1:8", {"v1": 4, "v2": 1}, 0, 61, 420, 1000, ((0, 2.3), (420, 0.4))),
        JobView("2", "bert", "ben", "queued", "2:", {}, 5, reason="waits-turn: others are ahead"),
        JobView("3", "probe", "ben", "completed", "1", {}, 6, 12, 90, 90, ended=True),
    ),
    events=tuple(EventView(1_000_000.0 + i, f"happening {i}", "1", "resnet", "ann") for i in range(20)),
    since_s=65.0,
)


def screen(app: LiveApp) -> str:
    """Everything on the screen, as text."""
    return "\n".join("".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips())


async def until(pilot: Pilot[None], true: Callable[[], bool], patience_s: float = 120.0) -> None:
    """Screens draw when they get to it: wait for what must come, not for a time."""
    end = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < end, screen(pilot.app)  # type: ignore[arg-type]
        await pilot.pause(0.05)


def walk(
    view: View, size: tuple[int, int], steps: Callable[[LiveApp, Pilot[None]], Awaitable[None]], **more: object
) -> LiveApp:
    app = LiveApp(lambda: view, lambda job: Text(f"because of {job}"), interval_s=0.05, **more)  # type: ignore[arg-type]

    async def go() -> None:
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: view.policy in screen(app))
            await steps(app, pilot)

    asyncio.run(go())
    return app


SWEEP = AppView(
    "tune",
    "ann",
    "hyperband",
    "1/2 to 3.75",
    1,
    (TrialView("11", "running", 1, 2), TrialView("12", "queued", 0, None), TrialView("13", "completed", 0, 1)),
    "tune-2 0.4",
)


def test_an_app_is_a_line_with_its_trials_the_best_first() -> None:
    line = parts.app_lines(replace(VIEW, apps=(SWEEP,)), 100).plain
    assert line.startswith("tune hyperband  phase 1/2 to 3.75, best 1 go on")
    assert line.index("13✓") < line.index("11 ") < line.index("12 ")
    assert line.rstrip().endswith("best tune-2 0.4")
    assert parts.app_lines(replace(VIEW, apps=(SWEEP,)), 30).cell_len <= 30


@pytest.mark.parametrize("size", [(80, 24), (140, 40)])
def test_apps_stand_on_the_screen_while_there_are_some(size: tuple[int, int]) -> None:
    async def look(app: LiveApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "apps" in screen(app) and "hyperband" in screen(app))
        assert "resnet" in screen(app), "and leave room for the jobs"

    walk(replace(VIEW, apps=(SWEEP,)), size, look)


@pytest.mark.parametrize("size", [(80, 24), (100, 30), (140, 40)])
def test_the_whole_picture_is_on_the_screen(size: tuple[int, int]) -> None:
    async def look(app: LiveApp, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "Quit" in screen(app) and "waits-turn" in screen(app))
        shown = screen(app)
        for word in (
            "horae",
            "max-min",
            "nodes",
            "tenants",
            "jobs",
            "decisions",
            "v1",
            "ann",
            "resnet",
            "bert",
            "Quit",
        ):
            assert word in shown, word
        assert "waits-turn" in shown
        assert "happening 19" in shown
        assert all(len(line) <= size[0] for line in shown.splitlines())
        assert len(shown.splitlines()) == size[1]

    walk(VIEW, size, look)


def test_keys_explain_hide_and_pause() -> None:
    async def press(app: LiveApp, pilot: Pilot[None]) -> None:
        await pilot.press("down", "e")
        await until(pilot, lambda: "because of 2" in screen(app))
        await pilot.press("escape")
        await until(pilot, lambda: "because of 2" not in screen(app))
        assert app.screen_stack[0].query_one(DataTable).row_count == 3
        await pilot.press("f")
        await until(pilot, lambda: app.screen_stack[0].query_one(DataTable).row_count == 2)
        await pilot.press("question_mark")
        await until(pilot, lambda: "where its fair share ends" in screen(app))
        await pilot.press("escape", "p")
        await until(pilot, lambda: app._paused)

    walk(VIEW, (100, 30), press)


def test_the_cursor_stays_on_its_job_when_jobs_come_and_go() -> None:
    now = VIEW

    async def follow(app: LiveApp, pilot: Pilot[None]) -> None:
        await pilot.press("down")
        app.show_view(replace(now, jobs=(JobView("9", "first", "aaa", "running", "1", {"v1": 1}), *now.jobs)))
        await pilot.press("e")
        await until(pilot, lambda: "because of" in screen(app))
        assert "because of 2" in screen(app)

    app = LiveApp(lambda: now, lambda job: Text(f"because of {job}"), interval_s=3600)

    async def go() -> None:
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: now.policy in screen(app))
            await follow(app, pilot)

    asyncio.run(go())


def test_a_failing_source_is_told_and_tried_again() -> None:
    answers: list[View | Exception] = [VIEW, OSError("the arbiter has gone"), VIEW]

    def fetch() -> View:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    app = LiveApp(fetch, lambda _: Text(""), interval_s=3600)

    async def go() -> None:
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: "resnet" in screen(app))
            app._tick()
            await until(pilot, lambda: "the arbiter has gone" in screen(app))
            assert "resnet" in screen(app)
            app._tick()
            await until(pilot, lambda: "the arbiter has gone" not in screen(app))

    asyncio.run(go())


def test_it_ends_by_itself_when_it_is_over() -> None:
    app = LiveApp(lambda: VIEW, lambda _: Text(""), interval_s=0.05, over=lambda view: view is VIEW)

    async def go() -> None:
        async with app.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: not app.is_running)

    asyncio.run(go())
    assert not app.is_running


def test_pictures_are_saved_as_svg(tmp_path: Path) -> None:
    async def save(app: LiveApp, pilot: Pilot[None]) -> None:
        await pilot.press("s")
        await until(pilot, lambda: bool(list(tmp_path.glob("*.svg"))))

    walk(VIEW, (100, 30), save, pictures=tmp_path)
    [picture] = tmp_path.glob("horae-top-*.svg")
    assert "resnet" in picture.read_text()


def test_a_name_of_a_folder_is_no_markup(tmp_path: Path) -> None:
    """Of the one that one is in, or of the socket's."""
    folder = tmp_path / "[bold]a[" / "b]"
    folder.mkdir(parents=True)

    async def save(app: LiveApp, pilot: Pilot[None]) -> None:
        await pilot.press("s")
        await until(pilot, lambda: f"saved {folder}" in "".join(n.message for n in app._notifications))
        await until(pilot, lambda: "[bold]a[/b]" in screen(app))

    walk(VIEW, (200, 30), save, pictures=folder, hint="export X=[bold]a[/b]")
    [picture] = folder.glob("horae-top-*.svg")
    assert "resnet" in picture.read_text()


def test_an_empty_cluster_is_a_picture_too() -> None:
    async def look(app: LiveApp, pilot: Pilot[None]) -> None:
        assert "0/0" in screen(app)
        await pilot.press("e", "f")

    walk(View("nothing", "fifo", "observe", 0.0), (80, 24), look)


# --- parts -------------------------------------------------------------------------------------------------


def test_a_job_that_cannot_write_checkpoints_stands_out() -> None:
    running = replace(VIEW.jobs[0], trouble="no checkpoint")
    _, rows = parts.job_rows(VIEW, [running, VIEW.jobs[1]], 120)
    assert "no checkpoint v1:4" in rows[0][-1].plain
    assert "no checkpoint" not in rows[1][-1].plain


@given(
    nodes=st.lists(st.tuples(st.sampled_from(["v100", "k80"]), st.integers(0, 16)), max_size=60),
    width=st.integers(40, 200),
)
def test_the_node_map_fits_whatever_the_cluster(nodes: list[tuple[str, int]], width: int) -> None:
    found = tuple(NodeView(f"n{i}", kind, gpus) for i, (kind, gpus) in enumerate(nodes))
    jobs = (JobView("1", "j", "ann", "running", "1", {n.name: n.gpus for n in found[::2]}),)
    drawn = parts.node_map(View("c", "p", "m", 0.0, nodes=found, jobs=jobs), width, 6)
    lines = drawn.plain.split("\n")
    assert len(lines) <= max(6, 1)
    widest = max((n.gpus for n in found), default=0) * 3 + 20
    assert all(len(line.rstrip()) <= max(width, widest) for line in lines)


def test_each_gpu_shows_its_job_and_what_is_not_ours() -> None:
    drawn = parts.node_map(VIEW, 80).plain
    assert re.search(r"v1 ( 1 ){4}", drawn)
    assert re.search(r"v2  1  ▒  ·  · ", drawn)
    assert re.search(r"k1 ( × ){2}", drawn)


def test_a_tenants_bar_ends_at_what_it_holds_and_is_marked_where_it_should() -> None:
    ann, ben = parts.tenant_lines(VIEW, 80).plain.split("\n")
    assert ann.count("█") > 0 == ben.count("█")
    assert "┃" in ann
    assert "┃" in ben
    assert re.search(r"5/4.5 +75%/70% +rho 0.9", ann)


@pytest.mark.parametrize("width", [79, 99, 100, 139, 220])
def test_job_rows_fit_the_width(width: int) -> None:
    header, rows = parts.job_rows(VIEW, parts.shown_jobs(VIEW), width)
    for line in (header, *rows):
        assert sum(cell.cell_len for cell in line) <= width
    assert header[-1].plain.startswith("NODELIST")


@given(st.lists(st.floats(-1e6, 1e6), max_size=300), st.integers(1, 40))
def test_sparklines_are_as_long_as_they_may_be(values: list[float], width: int) -> None:
    line = parts.sparkline(values, width)
    assert len(line) == min(width, len(values))
    assert set(line) <= set(parts.SPARKS)


def test_a_falling_loss_falls_on_the_screen() -> None:
    line = parts.sparkline([2.3 * 0.97**i for i in range(200)], 20)
    assert list(line) == sorted(line, reverse=True)
    assert (line[0], line[-1]) == ("█", "▁")


def test_colours_stay_with_tenants() -> None:
    few, more = palette(["b", "a"]), palette(["a", "b", "c"])
    assert few == {k: more[k] for k in few}
    assert len(set(palette(map(str, range(8))).values())) == 8
