"""An explanation as text: for `horae explain`, the page in `horae top`, and the demo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from horae import job_number, visible
from horae.tui import forms, screen

if TYPE_CHECKING:
    from rich.text import Text

    from horae.arbiter.requests import answers


def page(answer: answers.ExplanationAnswer) -> Text:
    """The explanation as text, for the terminal and for the page in `horae top`."""
    from rich.text import Text

    answer = visible.deep(answer)
    held = sum(answer["allocation"].values())
    text = Text()
    text.append(f"job {job_number(answer['id'])} ", "bold").append(f"{answer['name']}")
    text.append(f"  {answer['tenant']}  {answer['state']}", screen.STATE_STYLES.get(answer["state"], ""))
    text.append(f"\n{'holds':<9}{_gpus(held)}")
    text.append(f" on {forms.allocation(answer['allocation'])}" if held else "")
    text.append(f"   of {answer['range']} that it can use")
    text.append(_to_come(answer))
    starts = answer["starts"]
    ran, many = forms.duration(answer["ran_s"]), "" if starts == 1 else "s"
    text.append(f"\n{'ran':<9}{ran} in {starts} start{many}")
    if answer["time_left_s"] is not None:
        text.append(f", {forms.duration(answer['time_left_s'])} left of its time limit")
    if answer["step"] and answer["total"]:
        text.append(f", {answer['step'] / answer['total']:.0%} done")
    for cause in answer["causes"]:
        text.append(f"\n\n{cause['what']:<8} ", "bold cyan").append(cause["text"])
        numbers = _numbers(cause.get("numbers", {}))
        if numbers:
            text.append(f"\n{'':9}{numbers}", "dim")
        if cause.get("change"):
            text.append(f"\n{'':9}to change it: {cause['change']}", "italic")
    if answer["ahead"]:
        text.append("\n\nahead    ", "bold cyan").append(f"{len(answer['ahead'])}: {_ahead(answer)}")
    if answer["policy"]:
        ago = forms.duration(answer["decided_ago_s"])
        text.append(f"\n\npolicy {answer['policy']}, last decision {ago} ago", "dim")
    return text


def _to_come(answer: answers.ExplanationAnswer) -> str:
    """What it is to have, where that is another thing; in a pool that is only advised, by advice."""
    if answer["target"] is None or answer["target"] == answer["allocation"] or answer["ended"]:
        return ""
    wanted = sum(answer["target"].values())
    where = f" on {forms.allocation(answer['target'])}" if wanted else ""
    advice = any(cause["what"] == "advice" for cause in answer["causes"])
    return f"\n{'advised ' if advice else 'is to have'} {_gpus(wanted)}{where}"


def _ahead(answer: answers.ExplanationAnswer) -> str:
    ahead = answer.get("ahead_jobs", ())
    named = [f"{job_number(job['id'])} {job['name']} ({job['tenant']})" for job in ahead]
    return ", ".join((named or [job_number(job) for job in answer["ahead"]])[:12])


def _gpus(number: int) -> str:
    return f"{number} GPU{'' if number == 1 else 's'}" if number else "no GPUs"


#: Moments, in s of the clock: a cause's words say when.
_MOMENTS = ("at_s", "from_s", "to_s", "leave_s", "lease_ends_s")


def _numbers(numbers: dict[str, Any]) -> str:
    shown = []
    for key, value in numbers.items():
        if key in _MOMENTS or isinstance(value, bool) or not isinstance(value, int | float | str):
            continue
        shown.append(f"{key} {value if isinstance(value, str) else forms.number(float(value), 4)}")
    return "  ".join(shown)
