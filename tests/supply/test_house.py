"""The figures of the house are counted as they are described, and a worse one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from supply import house

SOURCE = '''\
"""A docstring is
no code."""


class Door:
    """Nor is this."""

    # Nor this.
    def opens(self, keys, locked):
        if locked and keys and keys[0]:
            return [key for key in keys if key if key.fits]

        def inner():
            return 1 if keys else 2

        for key in keys:
            try:
                key.turn()
            except OSError:
                pass
        return inner
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> house.Module:
    monkeypatch.setattr(house, "TREE", tmp_path)
    path = tmp_path / "room" / "doors.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    return house.Module(path)


def test_code_lines_are_neither_comments_nor_docstrings_nor_empty(module: house.Module) -> None:
    assert module.code_lines == 12


def test_operands_filters_and_handlers_are_branches_and_what_is_inside_counts_for_itself(module: house.Module) -> None:
    # 1, if, two further operands, comprehension, two filters, for, except; and 1, conditional expression
    assert [(each.name, each.complexity) for each in module.functions] == [("opens", 9), ("inner", 2)]


def test_a_folder_of_modules_that_is_no_package_counts(module: house.Module) -> None:
    assert house.unmarked([module]) == 1
    (house.TREE / module.path).with_name("__init__.py").write_text("")
    assert house.unmarked([module, house.Module((house.TREE / module.path).with_name("__init__.py"))]) == 0


def test_a_class_name_that_stands_twice_in_a_room_counts(module: house.Module) -> None:
    assert house.doubled([module]) == 0
    assert house.doubled([module, module]) == 1


def test_what_is_worse_is_named_with_both_numbers() -> None:
    assert house.worse({"a": 3, "b": 2}, {"a": 2, "b": 2}) == ["a: 3 now, 2 at most"]
