"""Hostile words from every source on every page: none reaches a screen, and JSON escapes them."""

from __future__ import annotations

import io
import json
import re
import sys
import unicodedata
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from horae import visible
from horae.api.client import Client
from horae.api.errors import ApiError
from horae.api.verbs import ApiVerb, Returns
from horae.cli import exits, main
from horae.job_form import read_jobs
from horae.port import LogChunk
from horae.tui import screen
from policy.model import BadInput
from tests.horae.cli.conftest import Horae
from tests.horae.cli.every import COMMANDS, Path_, of
from tests.horae.sim.whatif.by_hand import HEADER
from tests.waiting import eventually

EVIL = "\x1b]0;PWNED\x07\x1b[2J\x9b31m\u202e\u2066\u200b\ufeff\x00\x7f\nfake row\x1b[8mhid\rover[blink]m[/blink]{0}%s=1"
#: What a program switches on, and what a client sends back; no stranger chooses it.
CLOSED = {"id", "state", "health", "kind", "mode", "code", "what", "job", "allocation", "target", "attained", "version"}
STYLE = re.compile(r"\x1b\[[0-9;]*m")
#: A style that no page of ours has.
CONCEALED = "\x1b[8m"
#: How a page that is drawn in place of the one before goes up to its first line.
DRAWN = re.compile(r"\x1b\[(?:\?25[lh]|1A|2K)|\r")
#: What people call, "1" being a job that runs; each command that asks an arbiter is among them.
PAGES: list[Path_] = [
    ("status",), ("status", "--long"), ("status", "--all"), ("status", "--nodes"), ("status", "--tenants"),
    ("status", "-t", "nobody-1"), ("explain", "1"), ("history",), ("history", "1"), ("history", "-t", "nobody-1"),
    ("apps",), ("apps", "two"), ("top", "--once"), ("hold", "1"), ("hold", "1", "2"), ("unhold", "1"),
    ("status", "-o", "%i %j %a %u %P %T %N %R %r"), ("status", "--start"), ("logs", "1"), ("report", "1"),
    ("priority", "1", "2"), ("submit", "--dry-run", "--gpus", "1", "--", "true"),
    ("submit", "--dry-run", "--gpus", "1000", "--", "true"), ("submarine", "job", "list"), ("snapshot",),
    ("config", "show"), ("config", "mode", "main", "enforce"), ("doctor",), ("cancel", "1"), ("wait", "1", "--json"),
    ("wait", "1"), ("attach", "1"), ("release-all", "--yes"),
]  # fmt: skip
#: What prints lines of a log: they are lines.
LINES = ("logs",)


CLUSTER = ("--cluster", "v100:1x4")
INSTANCE = {"cluster": {"nodes": [{"name": "n1", "gpu_type": "v100", "gpus": 4}]}}
JOB = {"name": "a", "tenant": "t", "gpus": 1, "submitted": 0}
SACCT_ROW = "{0}|{0}|ann|{1}|COMPLETED|60|60|1000|1600|600|gres/gpu:a100=2|gres/gpu=2|n1"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def poisoned(value: Any, key: str = "") -> Any:
    if key in CLOSED:
        return value
    if isinstance(value, dict):
        return {k: poisoned(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [poisoned(v, key) for v in value]
    return f"{value}{EVIL}" if isinstance(value, str) else value


def reaches(text: str) -> set[str]:
    """The characters in `text` that a screen would obey or hide."""
    rest = STYLE.sub("", text).replace("\n", "")
    return {c for c in rest if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")}


#: What people call on files that others wrote: `hostile_files` names them, INTO is a folder for answers.
ALONE: list[Path_] = [
    ("decide", "INSTANCE", "--policy", "max-min"), ("decide", "NAMES", "--policy", "max-min"),
    ("simulate", "TRACE", *CLUSTER, "--policy", "fifo", "--skip-bad"), ("trace", "describe", "TRACE", "--skip-bad"),
    ("trace", "sample", "TRACE", "3", "--skip-bad"), ("trace", "scale", "TRACE", "2", "--skip-bad"),
    ("trace", "fit", "TRACE", "--skip-bad"), ("trace", "fit", "TRACE", "--jobs", "3", "--skip-bad"),
    ("compare", "TRACE", *CLUSTER, "--policies", "fifo", "--skip-bad", "--out", "INTO/compared", "--no-plots"),
    ("what-if", "--from-sacct", "SACCT", "--skip-bad", "--html", "INTO/report.html"),
    ("profile", "LOG"), ("profile", "LOG", "--why"), ("profile", "LOG", "LOG"),
    ("profile", "--explain", f"loss {EVIL} 1"),
    ("profile", "LOG", "--plot", "INTO/picture.png"), ("config", "check", "CONFIG"),
]  # fmt: skip
#: Who reads nothing that a stranger wrote.
OWN = {
    ("demo",): "its own jobs",
    ("serve",): "its log is JSON, or read by the one who wrote the configuration",
    ("completion",): "a script for a shell",
    ("schema",): "our own forms",
    ("policies",): "what is installed",
    ("config", "init"): "an example",
    ("install",): "the site's own files, shown by whoever is about to change them",
    ("uninstall",): "the same",
    ("lab",): "a cluster of one's own",
    ("reproduce",): "our own figures",
}


@pytest.fixture
def evil_files(tmp_path: Path) -> dict[str, str]:
    """Hostile words wherever each form takes text. INSTANCE is refused for them, NAMES has those that may stand."""
    seen = EVIL.replace("\x00", "")
    cell = seen.replace("\n", " ").replace("\r", " ")
    made = {
        "INSTANCE": json.dumps({**INSTANCE, "jobs": [{**JOB, "name": seen}]}),
        "NAMES": json.dumps({**INSTANCE, "jobs": [{**JOB, "name": "[blink]m[/blink]{0}%s=1"}]}),
        "TRACE": "job,submitted,duration,gpus,tenant,model\n"
        + "".join(f'"{n}{cell}",{n},100,1,"t{cell}","m{cell}"\n' for n in range(5))
        + f'"x{seen}","{seen}",1,1,t,m\n',
        "SACCT": "\n".join([HEADER, SACCT_ROW.format(7, cell), SACCT_ROW.format(8, f"<b>{cell}"), f"{cell}|x"]) + "\n",
        "LOG": "".join(f"step {n} $$loss: {1 / n:.3f} {seen}\n" for n in range(1, 40)) + f"ValueError: {seen}\n",
        "CONFIG": json.dumps({"state_dir": f"{tmp_path}/{seen}", "cluster": {"adapter": "fake"}}),
    }
    found = {"INTO": str(tmp_path)}
    for name, text in made.items():
        (tmp_path / name).write_text(text)
        found[name] = str(tmp_path / name)
    return found


def test_each_command_that_asks_none_is_tried_or_says_why_not() -> None:
    rest = set(COMMANDS) - {of(words) for words in (*PAGES, *ALONE)}
    assert {path for path in rest if path not in OWN and path[:1] not in OWN} == set()


@pytest.mark.parametrize("words", ALONE, ids=lambda words: " ".join(words)[:40].replace(EVIL, ""))
@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
def test_no_file_hands_on_what_a_screen_obeys(
    evil_files: dict[str, str], monkeypatch: pytest.MonkeyPatch, words: Path_, terminal: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    copied = words[:2] in (("trace", "sample"), ("trace", "scale"))
    typed = [evil_files.get(word, word.replace("INTO", evil_files["INTO"])) for word in words]
    out, err = (Terminal(), Terminal()) if terminal else (io.TextIOWrapper(io.BytesIO()), io.StringIO())
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    code = main(typed)
    out.flush()
    shown = out.getvalue() if isinstance(out, Terminal) else out.buffer.getvalue().decode()
    text = err.getvalue() + ("" if copied and not terminal else shown)
    assert code in (exits.DONE, exits.NO, exits.BAD_FILE), text
    assert CONCEALED not in text
    assert not reaches(text)
    assert copied or not [line for line in STYLE.sub("", text).splitlines() if line.startswith("fake row")]
    for page in Path(evil_files["INTO"]).glob("*.html"):
        found = page.read_text()
        assert not reaches(found)
        assert "<b>" not in found.partition("<h2>Waiting by account")[2]


@pytest.fixture
def evil_site(site: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
    """The arbiter's answers, and what it refuses, with hostile words behind every text, whatever is asked."""
    evil = {"name": "evil", "command": ["x", EVIL.replace("\x00", "")], "gpus": 1, "iterations": 1e6}
    site.submit([evil, *({"name": n, "command": ["x"], "gpus": 1000, "app": "two"} for n in ("one", "other"))])
    eventually(lambda: site.job("1")["state"] == "running")
    real = Client.ask

    def ask(self: Client, verb: ApiVerb, said: Mapping[str, Any]) -> Any:
        try:
            answer = real(self, verb, said)
        except ApiError as error:
            error.message, error.remedy = f"{error.message}{EVIL}", f"{error.remedy}{EVIL}"
            raise
        if verb.returns is Returns.BYTES:
            return LogChunk(answer.data + EVIL.encode(), answer.next_offset, eof=answer.eof)
        return poisoned(answer) if verb.returns is Returns.JSON else answer

    monkeypatch.setattr(Client, "ask", ask)
    return site


def test_each_command_that_asks_an_arbiter_is_among_the_pages() -> None:
    """But the one that is the arbiter."""
    asking = {path for path, command in COMMANDS.items() if any("--socket" in p.opts for p in command.params)}
    assert {of(words) for words in PAGES} - asking == {("submarine",)}  # whose options are Submarine's own
    assert asking - {of(words) for words in PAGES} == set()


@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
def test_no_page_hands_on_what_a_screen_obeys(
    evil_site: Client, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    told = {}
    for words in PAGES:
        out, err = (Terminal(), Terminal()) if terminal else (io.StringIO(), io.StringIO())
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        code = main(list(words))
        text = out.getvalue() + err.getvalue()
        if words[0] == "attach" and terminal:
            text = DRAWN.sub("", text)
        told[words] = STYLE.sub("", text)
        assert code != exits.BUG, text
        assert CONCEALED not in text, words
        assert not reaches(text), f"{words}: {reaches(text)!r}"
        rows = [line for line in told[words].splitlines() if line.startswith("fake row")]
        assert words[0] in LINES or not rows, words
    assert any(r"\x1b]0;PWNED" in text.replace("\n", "") for text in told.values())
    assert "[blink]m[/blink]{0}%s=1" in told["priority", "1", "2"]


def test_json_escapes_them_and_means_the_same(evil_site: Client, horae: Horae) -> None:
    for words in (("status", "--all"), ("explain", "1"), ("history",), ("apps",)):
        said = horae(*words, "--json")
        assert said.out.isascii()
        assert not reaches(said.out), words
        assert words == ("apps",) or EVIL in json.dumps(said.json, ensure_ascii=False) or "PWNED" in said.out


def test_what_only_an_error_or_a_note_says_is_neutral_too(
    horae: Horae, capsys: pytest.CaptureFixture[str], site: Client
) -> None:
    for words in (("explain", EVIL.replace("\x00", "")), ("submit", "--gpus", "1", "--name", EVIL, "--", "x")):
        said = horae(*words)
        assert said.code
        assert not reaches(said.out + said.err), words
    screen.note(EVIL)
    assert not reaches(capsys.readouterr().err)


@pytest.mark.parametrize("field", ["name", "app", "tenant", "model", "checkpoint", "cwd"])
@pytest.mark.parametrize(
    "bad", ["\x1b[2J", "\x9b", "\u202e", "\u2066", "\u200b", "\ufeff", "\n", "\x7f", "\u2028", "\U000e0041"]
)
def test_no_new_name_holds_them(field: str, bad: str) -> None:
    job = {"command": ["x"], "gpus": 1, field: f"a{bad}b"}
    with pytest.raises(BadInput) as refused:
        read_jobs(json.dumps(job), "body.json")
    assert refused.value.field == field
    assert not reaches(str(refused.value))


def test_words_of_every_language_stay_as_they_are() -> None:
    for text in ("résumé", "日本語", "עברית", "café e\u0301", "Ωμέγα", "😀", "n[1-4]:4 → 8"):
        assert visible.neutral(text) == text
        assert visible.hidden(text) is None


def test_what_is_said_on_standard_error_is_guarded_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever writes it: a message of ours, a library's warning, a log line."""

    def run(arguments: list[str]) -> int:
        print(EVIL, file=sys.stderr)
        warnings.warn(EVIL, stacklevel=1)
        return 0

    monkeypatch.setattr("horae.cli.app.run", run)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", lambda text, *_, **__: sys.stderr.write(f"{text}\n"))
        main(["status"])
    said = capsys.readouterr().err
    assert said.count(r"\x1b]0;PWNED\x07\x1b[2J\x9b31m\u202e\u2066") == 2
    assert not reaches(said)


def test_the_guard_lets_styles_pass_and_nothing_else() -> None:
    out = Terminal()
    visible.Guarded(out).write("\x1b[1;31mred\x1b[0m \x1b[2J\x1b]0;x\x07\tend\n")
    assert out.getvalue() == "\x1b[1;31mred\x1b[0m \\x1b[2J\\x1b]0;x\\x07\tend\n"
