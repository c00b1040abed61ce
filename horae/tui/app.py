"""The walkable picture: the parts of `parts.py` on one screen, refreshed, with a cursor on the jobs.

Works from 80x24 up; from 120 columns on, nodes and tenants stand beside the jobs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from rich.markup import escape
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.css.query import NoMatches
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Static
from textual.worker import get_current_worker

from horae.elastic.files import saved
from horae.tui import parts
from horae.tui.view import View
from policy.model import Seconds

#: From this width on there is room for two columns.
WIDE = 120


class Page(ModalScreen[None]):
    """A page of text over the picture; any of its keys closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,e,question_mark", "app.pop_screen", "Back"),
    ]

    def __init__(self, title: str, body: Text) -> None:
        super().__init__()
        self._title, self._body = title, body

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="page") as frame:
            frame.border_title = escape(self._title)
            frame.border_subtitle = "Esc: back"
            yield Static(self._body)


class LiveApp(App[None]):
    """Shows what `fetch` returns, every `interval_s`.

    `explain(job)` answers the text of a job's page. `over(view)` true ends the picture by itself. What `fetch` or
    `explain` raises is shown as words on the screen, and the next refresh tries again.
    """

    CSS = """
    Screen { background: #101418; layout: vertical; }
    #title { height: 1; background: #1b222a; }
    #upper { height: auto; }
    .part { border-top: solid #34414e; border-title-color: #8fa3b5; border-title-style: bold; padding: 0 1; }
    #nodes, #tenants { height: auto; }
    #apps { height: auto; max-height: 7; }
    #jobs { height: 1fr; background: #101418; padding: 0; scrollbar-size-horizontal: 0; }
    #jobs > .datatable--header { background: #101418; color: #8fa3b5; text-style: bold; }
    #jobs > .datatable--cursor { background: #26313c; }
    #events { height: auto; }
    Footer { background: #1b222a; }
    .-wide #upper { layout: horizontal; }
    .-wide #nodes, .-wide #tenants { width: 1fr; }
    Page { align: center middle; background: #101418 60%; }
    #page { width: 90%; max-width: 110; height: auto; max-height: 90%; background: #1b222a;
            border: round #4c9be8; border-title-color: #4c9be8; padding: 1 2; }
    """

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012 - not a ClassVar in textual
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,escape", "quit", "Quit"),
        Binding("e,enter", "explain", "Explain", priority=False),
        Binding("f", "finished", "Ended jobs"),
        Binding("p", "pause", "Pause"),
        Binding("s", "save", "Save picture"),
        Binding("question_mark", "legend", "Legend", key_display="?"),
    ]

    def __init__(
        self,
        fetch: Callable[[], View],
        explain: Callable[[str], Text],
        *,
        interval_s: Seconds = 1.0,
        over: Callable[[View], bool] = lambda _: False,
        pictures: Path | None = None,
        hint: str = "",
    ) -> None:
        """`hint`: a line that other terminals need, shown beside the decisions."""
        super().__init__()
        self._hint = hint
        self._fetch, self._explain, self._over = fetch, explain, over
        self._interval_s = interval_s
        self._pictures = Path.cwd() if pictures is None else pictures
        self._view: View | None = None
        self._paused = False
        self._with_ended = True

    def compose(self) -> ComposeResult:
        yield Static(" horae ", id="title")
        nodes, tenants = Static(id="nodes", classes="part"), Static(id="tenants", classes="part")
        apps = Static(id="apps", classes="part")
        jobs: DataTable[Text] = DataTable(
            id="jobs", classes="part", cursor_type="row", cursor_foreground_priority="renderable"
        )
        events = Static(id="events", classes="part")
        nodes.border_title, jobs.border_title = "nodes", "jobs"
        tenants.border_title, events.border_title = "tenants", "decisions"
        if self._hint:
            events.border_title = escape(f"decisions · {self._hint}")
        apps.border_title, apps.display = "apps", False
        yield Container(nodes, tenants, id="upper")
        yield from (apps, jobs, events)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one(DataTable).focus()
        self.set_interval(self._interval_s, self._tick)
        self._tick()

    def _tick(self) -> None:
        if not self._paused:
            self._load()

    @work(thread=True, exclusive=True)
    def _load(self) -> None:
        try:
            view = self._fetch()
        except Exception as error:  # noqa: BLE001 - the screen is where every failure is told
            self._on_screen(self._complain, str(error))
            return
        self._on_screen(self.show_view, view)

    def _on_screen(self, draw: Callable[..., object], *values: object) -> None:
        """From a thread: `draw(*values)` where the screen lives, unless it has been left meanwhile."""
        if self.is_running and not get_current_worker().is_cancelled:
            with suppress(NoMatches):  # it is being taken down right now
                self.call_from_thread(draw, *values)

    def _complain(self, words: str) -> None:
        since = "" if self._view is None else f", shown: {time.strftime('%H:%M:%S', time.localtime(self._view.wall_s))}"
        self.query_one("#title", Static).update(Text(f" {words}{since}", style="bold white on #a33"))

    def show_view(self, view: View) -> None:
        """Draw `view`; ends the application when it is over."""
        self._view = view
        self._draw()
        if self._over(view):
            self.exit()

    def on_resize(self) -> None:
        if self._view is not None:
            self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        view, width, height = self._view, self.size.width, self.size.height
        if view is None or not self.screen_stack or not self.screen_stack[0].query("#title"):
            return  # not there yet, or not any more
        base = self.screen_stack[0]
        wide = width >= WIDE
        side = (width // 2 if wide else width) - 3
        base.query_one("#title", Static).update(parts.title(view, width))
        base.query_one("#nodes", Static).update(parts.node_map(view, side, max(height // 4, 3)))
        base.query_one("#tenants", Static).update(parts.tenant_lines(view, side))
        apps = base.query_one("#apps", Static)
        apps.display = bool(view.apps)
        apps.update(parts.app_lines(view, width - 3))
        lines = 4 if height < 30 else 4 + (height - 24) // 3
        base.query_one("#events", Static).update(parts.event_lines(view, width - 3, lines))
        self._draw_jobs(base.query_one(DataTable), view, width)

    def _draw_jobs(self, table: DataTable[Text], view: View, width: int) -> None:
        jobs = [j for j in parts.shown_jobs(view) if self._with_ended or not j.ended]
        cursor, chosen, scroll = table.cursor_row, self._chosen(), table.scroll_y
        table.clear(columns=True)
        table.cell_padding = 0
        header, rows = parts.job_rows(view, jobs, width - 1)
        for index, title in enumerate(header):
            table.add_column(title, key=str(index))
        for job, cells in zip(jobs, rows, strict=True):
            table.add_row(*cells, key=job.id)
        if jobs:
            names = [j.id for j in jobs]
            table.move_cursor(row=names.index(chosen) if chosen in names else min(cursor, len(names) - 1))
            table.scroll_to(y=scroll, animate=False)

    def _chosen(self) -> str | None:
        table = self.screen_stack[0].query_one(DataTable)
        if not table.row_count:
            return None
        return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value

    # --- keys ---------------------------------------------------------------------------------------------

    def on_data_table_row_selected(self) -> None:
        self.action_explain()

    def action_explain(self) -> None:
        chosen = self._chosen()
        if chosen is not None and len(self.screen_stack) == 1:
            self._open(chosen)

    @work(thread=True, exclusive=True, group="explain")
    def _open(self, job: str) -> None:
        try:
            body = self._explain(job)
        except Exception as error:  # noqa: BLE001 - told on the page
            body = Text(str(error), style="red")
        self._on_screen(self.push_screen, Page(f"job {job}", body))

    def action_finished(self) -> None:
        self._with_ended = not self._with_ended
        self._draw()

    def action_pause(self) -> None:
        self._paused = not self._paused
        self.notify("paused: p goes on" if self._paused else "going on")

    def action_save(self) -> None:
        path = self._pictures / f"horae-top-{time.strftime('%H%M%S')}.svg"
        try:
            with saved(path) as beside:
                Path(beside).write_text(self.export_screenshot(title="horae top"))
        except OSError as error:
            self.notify(f"{path}: {error.strerror}", severity="error", markup=False)
        else:
            self.notify(f"saved {path}", markup=False)

    def action_legend(self) -> None:
        if len(self.screen_stack) == 1:
            self.push_screen(Page("legend", Text(LEGEND)))


LEGEND = """\
nodes    a cell is a GPU: the job that holds it, on its tenant's colour
         ·  free    ▒  not ours    ×  node down    yellow: draining

tenants  bar      GPUs held; ┃ where its fair share ends
         6/8.2    held now / owed now
         52%/53%  of all GPU time so far / of what was owed
         rho      finish-time fairness of its worst app;
                  1 or less: as good as a part of its own

apps     trials of a sweep, the best first: coloured run, yellow wait,
         × ended early, ✓ ran to the end

jobs     PD waits    CF starts     R  runs    SG stopping   S stopped
         CD done     F  failed     CA cancelled             NF lost
         the curve is the training loss

keys     up/down choose    e Enter explain    f ended jobs
         p pause           s save as SVG      q quit
"""
