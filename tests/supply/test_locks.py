"""The checks of what comes from others see what they are for, and the bill of materials says what the locks say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from supply import imports, locks, sbom


def test_the_locks_fit() -> None:
    assert list(locks.check()) == []


def test_every_line_of_a_lock_is_a_version_with_hashes_and_no_server() -> None:
    for name in ("lock.txt", "slurm.txt", "build.txt"):
        assert all(pin.hashes and pin.version for pin in locks.read(locks.HERE / name))
        assert "://" not in (locks.HERE / name).read_text()


def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    text = locks.PROJECT.read_text()
    assert old in text
    path = tmp_path / "pyproject.toml"
    path.write_text(text.replace(old, new))
    monkeypatch.setattr(locks, "PROJECT", path)


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('"uvicorn>=0.29",', '"uvicorn>=0.29", "left-pad",', "lock.txt has no left-pad"),
        ('"uvicorn>=0.29",', '"uvicorn>=9999",', "lock.txt has uvicorn"),
        ('"uvicorn>=0.29",', "", "has uvicorn, which pyproject.toml does not ask for"),
    ],
)
def test_a_lock_that_does_not_fit_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, fault: str
) -> None:
    project(tmp_path, monkeypatch, old, new)
    assert any(fault in each for each in locks.check())


@pytest.mark.parametrize(
    "line", ["--index-url https://example.org/simple", "numpy>=1", "a @ https://example.org/a.whl"]
)
def test_what_is_not_pinned_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "lock.txt"
    path.write_text(f"# by hand\n{line}\n")
    with pytest.raises(ValueError, match=r"lock.txt:2: not a pinned version"):
        locks.read(path)


def test_lines_for_one_python_have_no_markers_and_one_version() -> None:
    for python in locks.PYTHONS:
        lines = list(locks.select(locks.HERE / "slurm.txt", python, "x86_64"))
        names = [line.partition("==")[0] for line in lines]
        assert len(names) == len(set(names))
        assert not any(";" in line for line in lines)
        assert all(re.fullmatch(r"\S+==\S+( --hash=sha256:[0-9a-f]{64})+", line) for line in lines)


def test_an_undeclared_import_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for room in imports.ROOMS:
        (tmp_path / room).mkdir()
    (tmp_path / "policy/new.py").write_text("import networkx\nimport numpy\n\n\ndef f():\n    import requests\n")
    (tmp_path / "slurm_plugin/new.py").write_text("import requests\nimport httpx\n")
    monkeypatch.setattr(imports, "TREE", tmp_path)
    found = list(imports.check())
    assert any(each.startswith("policy/new.py:1: imports networkx") for each in found)
    assert any(each.startswith("policy/new.py:6: imports requests") for each in found)
    assert any(each.startswith("slurm_plugin/new.py:1: imports requests") for each in found)
    assert not any("new.py" in each and ("numpy" in each or "httpx" in each) for each in found)
    assert "pyproject.toml: fastapi is declared, and nothing imports it" in found


def test_the_bill_of_materials_says_what_the_locks_say() -> None:
    made = sbom.bill()
    assert json.dumps(made, sort_keys=True) == json.dumps(sbom.bill(), sort_keys=True)
    components = {each["bom-ref"]: each for each in made["components"]}
    pins = {
        sbom.purl(pin.name, pin.version): pin for n in ("lock.txt", "build.txt") for pin in locks.read(locks.HERE / n)
    }
    assert set(components) == set(pins)
    for reference, each in components.items():
        assert [each["content"] for each in each["hashes"]] == pins[reference].hashes
    scopes = {each["name"]: each["scope"] for each in made["components"]}
    assert (scopes["numpy"], scopes["requests"], scopes["pytest"]) == ("required", "optional", "excluded")
    known = {*components, made["metadata"]["component"]["bom-ref"]}
    for edge in made["dependencies"]:
        assert {edge["ref"], *edge["dependsOn"]} <= known
    needs = {edge["ref"].rpartition("@")[0]: edge["dependsOn"] for edge in made["dependencies"]}
    assert any(each.startswith("pkg:pypi/starlette@") for each in needs["pkg:pypi/fastapi"])
