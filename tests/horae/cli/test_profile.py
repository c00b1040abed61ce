"""`horae profile` as a user meets it: table, JSON, exit codes, live, and errors in words."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from horae.cli import main
from profiler.runs import log_files

LOG = "".join(f"step {i}/100 loss {1 / i:.4f} 0.5 s/step\n" for i in range(1, 51))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text(LOG)
    return path


def test_table(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line a run, under a head."""
    assert main(["profile", str(log)]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[:5] == ["FILE", "RUN", "FORMAT", "POSITION", "EPOCH"]
    assert row.split()[:6] == [str(log), "1", "generic", "50/100", "-", "0.5"]


def test_json_of_one_and_of_many(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One log is an object, several are a list in their order; --points adds the curve."""
    assert main(["profile", "--json", "--points", str(log)]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["file"], body["bytes"], body["lines"]) == (str(log), len(LOG), 50)
    (run,) = body["runs"]
    assert run["iterations"] == {"first": 1, "last": 50, "total": 100, "scope": "run", "unit": "iteration"}
    assert run["loss"]["points"][0] == [1, 1]
    assert len(run["loss"]["points"]) == 50
    other = tmp_path / "other.log"
    other.write_text("nothing here\n")
    assert main(["profile", "--json", str(log), str(other)]) == 1
    both = json.loads(capsys.readouterr().out)
    assert [b["file"] for b in both] == [str(log), str(other)]
    assert "points" not in both[0]["runs"][0]["loss"]
    assert both[1]["runs"] == []


def test_what_the_user_tells(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """GPUs, type and key are copied where the log is silent."""
    assert main(["profile", "--json", "--gpus", "8", "--gpu-type", "a100", "--model-key", "gpt", str(log)]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["gpus"], run["gpu_type"], run["model_key"]) == (8, "a100", "gpt")


def test_standard_input(log: Path) -> None:
    """A dash reads what is piped in."""
    command = [sys.executable, "-c", "from horae.cli import main; raise SystemExit(main())", "profile", "--json", "-"]
    done = subprocess.run(command, input=LOG.encode(), capture_output=True, check=True, timeout=300)
    assert json.loads(done.stdout)["runs"][0]["iterations"]["last"] == 50


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    """Which rule reads a line, and how; or that none does."""
    assert main(["profile", "--explain", "iter 100: loss 4.1234, time 253.12ms, mfu 38.21%"]) == 0
    out = capsys.readouterr().out
    assert "nanogpt/" in out and "0.25312" in out
    assert main(["profile", "--explain", "hello"]) == 1
    assert main(["profile", "--json", "--explain", "step 3 loss 0.5"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rule"], found["reads"]["loss"]) == ("generic/pairs", 0.5)


def test_formats(capsys: pytest.CaptureFixture[str]) -> None:
    """The formats that have rules, each with what prints it."""
    assert main(["profile", "--formats", "--json"]) == 0
    formats = {f["format"]: f for f in json.loads(capsys.readouterr().out)}
    assert {"keras", "megatron", "mllog"} <= set(formats)
    assert all(f["title"] for f in formats.values())


def test_plot(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A picture of each log."""
    picture = tmp_path / "out.png"
    assert main(["profile", "--plot", str(picture), str(log)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    empty = tmp_path / "empty.log"
    empty.write_text("nothing\n")
    assert main(["profile", "--plot", str(picture), str(log), str(empty)]) == 1
    assert (tmp_path / "out-1.png").exists() and (tmp_path / "out-2.png").exists()
    capsys.readouterr()


def test_a_name_of_a_log_is_no_formula(log: Path, tmp_path: Path) -> None:
    """Whose log it is names it: a picture's title is not read as mathematics."""
    named, picture = tmp_path / r"a$\bad{$.log", tmp_path / "out.png"
    named.write_bytes(log.read_bytes())
    assert main(["profile", "--plot", str(picture), str(named)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_name_of_a_log_is_no_markup(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is it read as styles by a live table."""
    folder = tmp_path / "[bold]["
    folder.mkdir()
    named, out = folder / "x].log", io.StringIO()
    named.write_bytes(log.read_bytes())
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(time, "sleep", _interrupt)
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.chdir(tmp_path)
    assert main(["profile", "--follow", "[bold][/x].log"]) == 130
    assert "[bold][/x].log" in out.getvalue()


def test_a_name_of_a_long_log_is_no_markup(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor by the bar of one that takes a while."""
    named, err = tmp_path / "[link=x][bold]y[dim].log", io.StringIO()
    named.write_bytes(log.read_bytes())
    monkeypatch.setattr(err, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setattr("horae.cli.profile._LONG", 0)
    monkeypatch.setenv("COLUMNS", "400")
    assert main(["profile", str(named)]) == 0
    assert "[link=x][bold]y[dim].log" in err.getvalue()


def _interrupt(_seconds: float) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 2, "no logs given"),
        (["none-*.log"], 3, "no file matches"),
        (["--rules", "none.yaml", "x"], 3, "none.yaml"),
        (["--follow", "-"], 2, "--follow needs files"),
    ],
)
def test_mistakes(arguments: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every mistake is told in words, with its exit code."""
    assert main(["profile", *arguments]) == code
    assert says in capsys.readouterr().err


def test_bad_rules_name_the_line(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A site's rule file that is wrong: file, line, remedy."""
    rules = tmp_path / "site.yaml"
    rules.write_text("format: mine\nrules:\n  - name: a\n    kind: trian\n")
    assert main(["profile", "--rules", str(rules), str(log)]) == 3
    assert f"{rules}:4: kind: unknown kind 'trian'" in capsys.readouterr().err


def test_damaged_archive_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What could not be unpacked is said beside what could be read."""
    import gzip

    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(os.urandom(4000).hex().encode() + b"\n" + LOG.encode() * 30)[:-9])
    assert main(["profile", str(path)]) == 0
    assert "damaged" in capsys.readouterr().err


def test_follow(log: Path) -> None:
    """Live: each change is a JSON object on a line, until interrupted."""
    command = [
        sys.executable,
        "-c",
        "from horae.cli import main; raise SystemExit(main())",
        "profile",
        "--json",
        "--follow",
    ]
    process = subprocess.Popen([*command, "--every", "0.05", str(log)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["runs"][0]["iterations"]["last"] == 50
        with log.open("a") as f:
            f.write("step 51/100 loss 0.0111 0.5 s/step\n")
        assert json.loads(process.stdout.readline())["runs"][0]["iterations"]["last"] == 51
        process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + 240
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        assert process.returncode == 130
        assert b"Traceback" not in process.stderr.read()  # type: ignore[union-attr]
    finally:
        process.kill()
        process.communicate()


def peak_kib(log: Path) -> int:
    """Peak memory of a process of its own that profiles the log."""
    command = [sys.executable, "-c", "from horae.cli import main; raise SystemExit(main())", "profile", str(log)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux")
def test_memory_does_not_grow_with_the_log(log: Path, tmp_path: Path) -> None:
    """Twenty megabytes of bars and steps take little more than fifty lines."""
    long = tmp_path / "long.log"
    with long.open("w") as file:
        for epoch in range(1, 300):
            file.write(f"Epoch {epoch}/300\n")
            for i in range(1, 501):
                file.write(f"\r{i:3d}/500 [{'=' * (i // 25)}>{'.' * (20 - i // 25)}] - ETA: 3s - loss: {1 / i:.4f} ")
                file.write("- accuracy: 0.5000 - a_part_loss: 0.1234 - other_part_loss: 0.4321")
            file.write("\n")
    assert long.stat().st_size > 18e6
    assert peak_kib(long) - peak_kib(log) < 14 * 1024


def test_a_pipe_that_nobody_writes_is_waited_for_with_a_word(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [str(Path(sys.executable).with_name("horae")), "profile", str(pipe)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert f"{pipe} is a pipe: it is read until its writers have ended" in process.stderr.readline()
    pipe.write_text(LOG)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0 and "50/100" in out, err


def write_into(pipe: Path) -> None:
    with suppress(BrokenPipeError):
        pipe.write_text(LOG)


@pytest.mark.parametrize("asked", ["FOLDER", "FOLDER/*.log"])
def test_a_name_in_a_folder_that_becomes_a_pipe_is_not_waited_for(
    asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever may write into the folder swaps it between the listing and the opening; the next log is read."""
    swapped, other = tmp_path / "a.log", tmp_path / "b.log"
    swapped.write_text(LOG)
    other.write_text(LOG)
    find = log_files.find

    def found_and_swapped(names: Iterable[str]) -> list[str]:
        found = find(names)
        swapped.unlink()
        os.mkfifo(swapped)
        threading.Thread(target=write_into, args=(swapped,), daemon=True).start()
        return found

    monkeypatch.setattr(log_files, "find", found_and_swapped)
    main(["profile", "--json", asked.replace("FOLDER", str(tmp_path))])
    of_pipe, of_file = json.loads(capsys.readouterr().out)
    assert (of_pipe["file"], of_pipe["runs"]) == (str(swapped), [])
    assert "it is no file any more" in of_pipe["warnings"][0]
    assert of_file["runs"][0]["iterations"]["last"] == 50
