"""The report as one HTML page that loads nothing: words, tables, and plots as inline SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from horae.visible import neutral

COLOURS = ("#4a6572", "#d9822b", "#2b8a6e", "#a23b72", "#5c6bc0", "#8d6e63")
#: Accounts in a plot: the largest; the JSON has all.
MOST_BARS = 12
#: Letters of a bar's name: what there is room for, in any font.
MOST_LETTERS = 22
#: What a site's director calls lost: it ended without a result, or with part of one.
LOST = (
    "FAILED",
    "TIMEOUT",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "CANCELLED",
    "PREEMPTED",
    "BOOT_FAIL",
    "DEADLINE",
    "REQUEUED",
    "LOST",
)
STYLE = """
body{font:16px/1.5 system-ui,sans-serif;color:#222;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.7rem;margin-bottom:0}h2{font-size:1.2rem;margin-top:2.2rem}
.key{display:flex;flex-wrap:wrap;gap:1rem;margin:1.2rem 0}
.key div{background:#f2f5f7;padding:.7rem 1rem;border-radius:6px}
.key b{display:block;font-size:1.4rem}.wide{overflow-x:auto}table{border-collapse:collapse;margin:.6rem 0}
td,th{padding:.25rem .8rem;text-align:right;border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}
.note{color:#555;font-size:.92rem}
@media(prefers-color-scheme:dark){body{background:#16191c;color:#ddd}.key div{background:#242a2f}svg text{fill:#ddd}
svg rect,.legend span{filter:brightness(1.4)}td,th{border-color:#444}.note{color:#aaa}}
"""


def page(answer: dict[str, Any], name: str) -> str:
    """The answer of `horae what-if`; `name`: of the dump or the state folder, for the title."""
    past, cluster = answer["history"], answer["cluster"]
    policies = answer.get("policies", {})
    parts = [
        f"<h1>What the GPUs did: {_shown(name)}</h1>",
        _key(past, cluster),
        _waiting(
            "Waiting by account", past["by_account"], answer, "by_account", lambda n: -past["by_account"][n]["jobs"]
        ),
        _waiting("Waiting by size of job (GPUs)", past["by_size"], answer, "by_size", int),
        _hours(past),
    ]
    if policies:
        parts += [_policies(answer), _levers(answer), _assumed(answer)]
    else:
        parts.append(
            "<p class=note>No policy was asked for: <code>--policies afs-l,themis</code> replays these jobs.</p>"
        )
    body = "\n".join(part for part in parts if part)
    return (
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width,initial-scale=1">'
        f"<title>GPUs of {_shown(name)}</title><style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _key(past: dict[str, Any], cluster: dict[str, Any]) -> str:
    taken = "as given" if cluster["from"] == "given" else "the most ever held at once"
    skipped = ", ".join(f"{n:,} {_shown(why)}" for why, n in past["skipped"].items() if n) or "none left aside"
    cells = [
        (f"{past['gpu_jobs']:,}", f"jobs on GPUs, of {past['jobs']:,} ({skipped})"),
        (f"{cluster['gpus']:,.10g}", f"GPUs, {taken}"),
        (f"{past['gpu_hours']:,.0f}", f"GPU-hours, {past['utilisation']:.0%} of the cluster"),
        (_time(past["wait"]["mean"]), f"mean wait; half waited less than {_time(past['wait']['median'])}"),
        (_time(past["wait"]["p95"]), "wait of the unluckiest twentieth, at least"),
    ]
    return "<div class=key>" + "".join(f"<div><b>{big}</b>{small}</div>" for big, small in cells) + "</div>"


def _waiting(title: str, past: dict[str, Any], answer: dict[str, Any], part: str, order: Any) -> str:
    names = sorted(past, key=order)[:MOST_BARS]
    if part == "by_size":
        names.sort(key=int)
    if not names:
        return ""
    series = [("as it was", {n: past[n]["wait_mean"] for n in names})]
    for policy, of in answer.get("policies", {}).items():
        series.append((policy, {n: of[part][n]["wait_mean"] for n in names if n in of[part]}))
    more = f"<p class=note>The {MOST_BARS} with most jobs.</p>" if len(past) > MOST_BARS else ""
    counts = {n: _short(n, f" ({past[n]['jobs']:,})") for n in names}
    return f"<h2>{title}</h2>{_bars(names, counts, series)}<p class=note>Mean wait; in brackets, jobs.</p>{more}"


def _hours(past: dict[str, Any]) -> str:
    states = past["by_state"]
    lost = {state: hours for state, hours in states.items() if state in LOST and hours}
    whole = past["gpu_hours"]
    idle = whole / past["utilisation"] - whole if past["utilisation"] else 0.0
    rows = [(f"jobs that ended {state}", hours) for state, hours in sorted(lost.items(), key=lambda one: -one[1])]
    rows.append(("idle, while the cluster was there", idle))
    share = sum(lost.values()) / whole if whole else 0.0
    body = "".join(
        f"<tr><td>{_shown(name)}<td>{hours:,.0f}<td>{hours / (whole + idle) if whole else 0:.1%}"
        for name, hours in rows
    )
    return (
        f"<h2>GPU-hours wasted</h2><p>{share:.0%} of the GPU-hours went to jobs that did not complete.</p>"
        f"<div class=wide><table><tr><th>GPU-hours<th>hours<th>of the cluster's time{body}</table></div>"
    )


def _policies(answer: dict[str, Any]) -> str:
    rows = [(f"replay of what happened ({answer['replay']['policy']})", answer["replay"], None)]
    rows += [(name, of, of["band"]["wait_mean"]) for name, of in answer["policies"].items()]
    body = "".join(
        f"<tr><td>{_shown(name)}<td>{_time(of['wait']['mean'])}"
        f"<td>{'' if band is None else f'{_time(band[0])} to {_time(band[1])}'}"
        f"<td>{_time(of['wait']['p95'])}<td>{_time(of['jct']['mean'])}<td>{of['rho']['max']:.2f}<td>{of['resizes']:,}"
        for name, of, band in rows
    )
    return (
        "<h2>The same jobs under other policies</h2><div class=wide><table>"
        "<tr><th>policy<th>mean wait<th>over the assumptions"
        f"<th>95th percentile<th>mean time to completion<th>worst rho<th>resizes{body}</table></div>"
        f"<p class=note>{_shown(answer['replay']['note'])}.</p>"
    )


def _levers(answer: dict[str, Any]) -> str:
    levers = answer.get("levers")
    if not levers:
        return ""
    played = {"replay": answer["replay"], **levers}
    series = [
        (words, {name: of[time]["mean"] for name, of in played.items()})
        for words, time in (("mean wait for the first GPUs", "wait"), ("mean time to completion", "jct"))
    ]
    bars = _bars(list(played), {name: _short(name) for name in played}, series)
    what = "".join(f"<li><b>{_shown(n)}</b>: {_shown(of['what'])}</li>" for n, of in levers.items())
    note = "A policy that stops jobs starts many at once and none sooner to its end: look at both times."
    return f"<h2>What each lever alone would have changed</h2>{bars}<p class=note>{note}</p><ul>{what}</ul>"


def _assumed(answer: dict[str, Any]) -> str:
    return "<h2>Assumed</h2><ul>" + "".join(f"<li>{_shown(words)}</li>" for words in answer["assumptions"]) + "</ul>"


def _bars(names: Sequence[str], labels: dict[str, str], series: Sequence[tuple[str, dict[str, float]]]) -> str:
    """Horizontal bars, grouped by name; every bar with its time written out."""
    height, gap, left, right = 16, 10, 190, 560
    most = max((v for _, values in series for v in values.values()), default=0.0) or 1.0
    out, y = [], 6
    for name in names:
        middle = y + height * len(series) / 2 + 5
        out.append(f'<text x="{left - 8}" y="{middle:g}" text-anchor="end">{_shown(labels[name])}</text>')
        for number, (_, values) in enumerate(series):
            if name in values:
                wide = max(1.0, values[name] / most * (right - left))
                colour = COLOURS[number % len(COLOURS)]
                out.append(f'<rect x="{left}" y="{y}" width="{wide:.1f}" height="{height - 2}" fill="{colour}"/>')
                out.append(f'<text x="{left + wide + 6:.1f}" y="{y + 12}" font-size="12">{_time(values[name])}</text>')
            y += height
        y += gap
    legend = _legend(series) if len(series) > 1 else ""
    return (
        f"{legend}<div class=wide>"
        f'<svg viewBox="0 0 680 {y}" width="680" role="img" font-family="system-ui,sans-serif" font-size="13">'
        + "".join(out)
        + "</svg></div>"
    )


def _legend(series: Iterable[tuple[str, Any]]) -> str:
    words = (
        f'<span style="color:{COLOURS[n % len(COLOURS)]}">&#9632;</span> {_shown(name)}'
        for n, (name, _) in enumerate(series)
    )
    return f"<p class=legend>{'&ensp; '.join(words)}</p>"


def _shown(text: str) -> str:
    """Of a dump or a file's name: neither markup, nor what turns round or hides what stands beside it."""
    return escape(neutral(text))


def _short(name: str, more: str = "") -> str:
    """The name, cut where it is too long, and what is told behind it."""
    room = MOST_LETTERS - len(more)
    return (name if len(name) <= room else name[: room - 1] + "…") + more


def _time(seconds: float) -> str:
    """`3.4 h`: two digits are enough for a director."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if abs(seconds) >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
