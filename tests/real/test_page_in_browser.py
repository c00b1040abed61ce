"""The page of `horae what-if` in a real browser: as a director sees it on a screen and on a phone, by day and by night.

The page stands in a frame as wide as the screen; a script beside it measures, and the browser prints what it found.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from horae.sim.whatif.page import page

pytestmark = pytest.mark.real

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NOBODY = "http://127.0.0.1:9/picture.png"
#: WCAG's least contrast of text.
CONTRAST = 4.5

FRAME = """<!doctype html><meta name=color-scheme content="light dark"><body style="margin:0">
<iframe id=page src="page.html" style="border:0;width:{wide}px;height:4000px"></iframe><script>
const parts = colour => colour.match(/[0-9.]+/g).map(Number);
const light = colour => parts(colour).slice(0, 3).map(v => v / 255)
  .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((sum, v, at) => sum + v * [.2126, .7152, .0722][at], 0);
onload = () => {{
  const there = document.getElementById("page"), within = there.contentDocument, own = there.contentWindow;
  const behind = element => {{
    for (; element; element = element.parentElement) {{
      const [, , , a = 1] = parts(own.getComputedStyle(element).backgroundColor);
      if (a) return own.getComputedStyle(element).backgroundColor;
    }}
    return "rgb(255,255,255)";
  }};
  const contrast = element => {{
    const style = own.getComputedStyle(element);
    const two = [style[element.closest("svg") ? "fill" : "color"], behind(element)].map(light);
    return (Math.max(...two) + .05) / (Math.min(...two) + .05);
  }};
  const words = [...within.querySelectorAll("body *")].filter(element =>
    [...element.childNodes].some(node => node.nodeType === 3 && /\\w/.test(node.data)));
  const outside = text => {{
    const [mine, whole] = [text, text.closest("svg")].map(element => element.getBoundingClientRect());
    return mine.left < whole.left || mine.right > whole.right || mine.bottom > whole.bottom;
  }};
  document.title = JSON.stringify({{
    wide: own.innerWidth,
    needs: within.documentElement.scrollWidth,
    dark: own.matchMedia("(prefers-color-scheme:dark)").matches,
    bars: [...within.querySelectorAll("svg rect")].filter(bar => bar.getBoundingClientRect().width >= 1).length,
    smallest: Math.min(...[...within.querySelectorAll("svg text")].map(text => text.getBoundingClientRect().height)),
    cut: [...within.querySelectorAll("svg text")].filter(outside).map(text => text.textContent),
    faint: words.filter(element => contrast(element) < {contrast}).map(element => element.textContent),
    loaded: own.performance.getEntriesByType("resource").map(entry => entry.name),
  }});
}};
</script>"""


def seen(html: str, folder: Path, wide: int, *, dark: bool = False) -> tuple[dict[str, Any], list[str]]:
    """What a browser finds on the page at this width, and what its console says."""
    if BROWSER is None:
        pytest.skip("no chromium here: tests/real/setup installs it")
    (folder / "page.html").write_text(html, encoding="utf-8")
    (folder / "frame.html").write_text(FRAME.format(wide=wide, contrast=CONTRAST), encoding="utf-8")
    done = subprocess.run(
        [
            BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
            "--enable-logging=stderr", f"--user-data-dir={folder / 'profile'}", "--window-size=1400,900",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}", "--virtual-time-budget=5000", "--dump-dom",
            (folder / "frame.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    title = re.search("<title>(.*?)</title>", done.stdout, re.DOTALL)
    assert title is not None, done.stderr
    return json.loads(unescape(title[1])), re.findall(r".*CONSOLE.*", done.stderr)


def answer() -> dict[str, Any]:
    """Of three accounts, one with a name that no screen holds and one whose name is markup."""
    waits = {"vision": 3600.0, "<img src=x onerror=alert(1)>": 90.0, "a-" + "very-" * 20 + "long-account": 86400.0}
    accounts = {name: {"jobs": 12345, "gpu_hours": 10.0, "wait_mean": wait} for name, wait in waits.items()}
    sizes = {size: {"jobs": 7, "wait_mean": 60.0 * int(size)} for size in ("1", "8", "1024")}
    spread = {"mean": 3000.0, "median": 60.0, "p95": 90000.0}
    played = {"wait": spread, "jct": spread, "rho": {"max": 12.5}, "by_account": accounts, "by_size": sizes}
    band = {**played, "resizes": 123456, "band": {"wait_mean": [1000.0, 90000.0]}}
    return {
        "history": {
            "jobs": 54321, "gpu_jobs": 37035, "skipped": {"no gpus": 17286}, "gpu_hours": 1234567.0, "wait": spread,
            "utilisation": 0.71, "by_account": accounts, "by_size": sizes,
            "by_state": {"COMPLETED": 900000.0, "FAILED": 200000.0, "TIMEOUT": 134567.0},
        },
        "cluster": {"gpus": 1024, "from": "dump"},
        "replay": {"policy": "fifo-backfill", "note": "jobs wait as they did", "resizes": 0, **played},
        "policies": {"afs-l": band, "gavel-finish-time": band},
        "levers": {"the order": {"what": "the shortest first", **band}, "no time limits at all": {"what": "-", **band}},
        "assumptions": ["a job's work is the time that all its incarnations ran"],
    }  # fmt: skip


@pytest.mark.parametrize("dark", [False, True], ids=["by day", "by night"])
@pytest.mark.parametrize("wide", [1280, 390], ids=["screen", "phone"])
def test_all_of_it_can_be_read(wide: int, dark: bool, tmp_path: Path) -> None:
    found, said = seen(page(answer(), "dump.txt"), tmp_path, wide, dark=dark)
    assert (found["wide"], found["dark"]) == (wide, dark)
    assert found["needs"] <= wide  # wide tables and plots scroll within themselves
    assert found["bars"] == 2 * 3 * 3 + 3 * 2  # accounts and sizes, as it was and by two policies; replay, levers
    assert found["smallest"] >= 10
    assert found["cut"] == []
    assert found["faint"] == []
    assert found["loaded"] == []
    assert said == []


def test_the_watch_is_awake(tmp_path: Path) -> None:
    """What the test above would tell of a worse page."""
    worse = (
        f'<img src="{NOBODY}"><p style="color:#eee;width:900px">faint</p><svg width=90><text y=9 x=80>cut</text></svg>'
    )
    html = page(answer(), "dump.txt").replace("</body>", f"{worse}<script>console.error('lost')</script></body>")
    found, said = seen(html, tmp_path, 390)
    assert found["needs"] > 390
    assert (found["loaded"], found["faint"], found["cut"]) == ([NOBODY], ["faint"], ["cut"])
    assert any("lost" in line for line in said)
