"""Make the pictures of the documentation from a real demo: docs/images/top.svg and account.svg.

    python docs/images/make.py [--at 26] [--seconds 90]

The play runs as in `horae demo`; after `--at` seconds the live picture is drawn into a file instead of a terminal.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import re
import threading
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from horae.demo import page
from horae.demo.cluster import stage
from horae.demo.playing import Play
from horae.demo.scenario import Framework, scenario
from horae.tui.app import LiveApp
from horae.tui.view import View

HERE = Path(__file__).resolve().parent
SIZE = (118, 32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at", type=float, default=26.0)
    parser.add_argument("--seconds", type=float, default=90.0)
    options = parser.parse_args()
    play = scenario(options.seconds)
    with stage(play, "max-min") as built:
        asked = threading.Event()
        running = Play(built, play, Framework.NUMPY, options.seconds, "max-min", asked)
        running.start()
        asked.wait(options.at)
        write("top.svg", asyncio.run(picture(running.picture())))
        running.over.wait()
        summary = running.end()
    write("account.svg", account(summary))


async def picture(view: View) -> str:
    app = LiveApp(lambda: view, lambda _: Text(), interval_s=3600)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause(1.0)
        return app.export_screenshot(title="make demo")


def account(summary: dict[str, Any]) -> str:
    console = Console(record=True, width=SIZE[0], file=io.StringIO(), force_terminal=True, color_system="truecolor")
    page.show(summary, console)
    return console.export_svg(title="make demo, the last page")


def write(name: str, svg: str) -> None:
    """Without the web font: the documentation is read offline, and any monospaced font does."""
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace("Fira Code", "DejaVu Sans Mono")
    (HERE / name).write_text(svg)
    print(f"written: {name}")


if __name__ == "__main__":
    main()
