"""A policy in one file of its author's: `decide`, and what an entry of the catalogue says, in capitals beside it.

    \"""Shortest first.\"""                               the summary
    OPTIONS = (Option("most", int, 9, "jobs at once"),)   any field of `policy.contract.Entry`: IDLE, NEEDS, PAPER, ...
    def decide(snapshot, options, context): ...

What stands in capitals is read without running anything, and the file runs where the policy is asked: an arbiter that
only hands it on to its policies' process never runs it.
"""

from __future__ import annotations

import ast
import errno
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from policy.contract import Entry, Option, Policy
from policy.errors import BadInput
from policy.text import files

SUFFIX = ".py"
MOST_BYTES = 1 << 20
_MOST_LINKS = 40  #: the kernel's
_KINDS: Mapping[str, type] = {kind.__name__: kind for kind in (bool, int, float, str)}
#: What a file may say of itself: in capitals, but what it is called and how. A policy in a file takes no bids.
_SAID = {
    field.name.upper(): (field.name, str if field.default is MISSING else type(field.default))
    for field in fields(Entry)
    if field.name not in ("name", "call", "bids")
}


def is_file(name: str) -> bool:
    """Whether a policy of this name is one in a file: it says where."""
    return "/" in name or name.endswith(SUFFIX)


def changed_by_others(file: Path) -> Path | None:
    """The file, or the folder or link on the way to it, that others than root and ourselves can change; None: there is
    none. Raises OSError."""
    whole = file.absolute()
    for _ in range(_MOST_LINKS + 1):
        for part in reversed((whole, *whole.parents)):
            found = part.lstat()
            if _others_change(found):
                return part
            if stat.S_ISLNK(found.st_mode):
                whole = part.parent / part.readlink() / whole.relative_to(part)
                break
        else:
            return None
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(file))


def _others_change(found: os.stat_result) -> bool:
    if found.st_uid not in (0, os.geteuid()):
        return True
    if stat.S_ISLNK(found.st_mode):
        return False
    sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    return not sticky and bool(found.st_mode & 0o022)


def read(path: Path, *, believed: bool = True) -> OwnFile:
    """`believed`: the caller says so. What root runs, and what is not believed, may be changed by nobody else. Raises
    BadInput."""
    try:
        whole = Path(os.path.realpath(path, strict=True))  # no link that is followed later than it is looked at
        part = None if believed and os.geteuid() != 0 else changed_by_others(path)
        with files.opened(whole) as stream:
            source = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise _bad(
            path, f"cannot be read: {error.strerror}", "a file that may be read, with a function decide"
        ) from None
    if part is not None:
        raise _bad(path, f"{part} can be changed by others", f"chown root {part}; chmod go-w {part}")
    if len(source) > MOST_BYTES:
        raise _bad(path, f"is larger than {MOST_BYTES >> 20} MiB", "a policy, and no data")
    return OwnFile(str(path), source)


@dataclass(frozen=True)
class OwnFile:
    name: str  #: its absolute path
    source: bytes

    @cached_property
    def entry(self) -> Entry:
        """Raises BadInput with the line."""
        try:
            tree = ast.parse(self.source, self.name)
        except (SyntaxError, ValueError) as error:
            raise _bad(self.name, f"is no Python: {error}", "mend it", getattr(error, "lineno", None)) from None
        if not any(isinstance(node, ast.FunctionDef) and node.name == "decide" for node in tree.body):
            raise _bad(self.name, "has no function decide", "def decide(snapshot, options, context): ...")
        summary = (ast.get_docstring(tree) or "A policy in a file.").splitlines()[0]
        said: dict[str, Any] = {"summary": summary, "paper": "-", "section": "-"}
        for name, value in (pair for node in tree.body for pair in _assigned(node)):
            if name in _SAID:
                said[_SAID[name][0]] = self._value(name, value)
        return Entry(self.name, call=f"{self.name}:decide", **said)

    def _value(self, name: str, node: ast.expr) -> Any:
        try:
            value, kind = _literal(node), _SAID[name][1]
            if not isinstance(value, kind):
                raise TypeError(f"it is {type(value).__name__}, not {kind.__name__}")
            if name == "OPTIONS":
                _check(value)
            return tuple(map(_idle, value)) if name == "IDLE" else value
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            remedy = "literals, and Option(name, kind, default, text), as in docs/policy-author.md"
            raise _bad(self.name, f"{name} cannot be read without running it: {error}", remedy, node.lineno) from None

    @cached_property
    def function(self) -> Policy:
        """Runs the file, once."""
        module = ModuleType(f"a_policy_in_a_file_{abs(hash(self.name))}")
        module.__file__ = self.name
        sys.modules[module.__name__] = module
        exec(compile(self.source, self.name, "exec"), module.__dict__)
        found: Policy = module.__dict__["decide"]
        return found


def _assigned(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    for target in targets:
        if isinstance(target, ast.Name) and isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            yield target.id, node.value


def _check(options: Any) -> None:
    for option in options:
        if not isinstance(option, Option):
            raise TypeError(f"{option!r} is no Option")
        option.check(option.default)


def _idle(name: str) -> str:
    from policy.idle import Idle  # not before it is asked for: an arbiter's configuration is read without it

    return Idle(name)


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        return _KINDS[node.id]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Option":
        return Option(*map(_literal, node.args), **{str(k.arg): _literal(k.value) for k in node.keywords})
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(map(_literal, node.elts))
    return ast.literal_eval(node)


def _bad(path: object, message: str, remedy: str, line: int | None = None) -> BadInput:
    place = str(path) if line is None else f"{path}:{line}"
    return BadInput(f"{place}: {message}", field="policy.name", value=str(path), remedy=remedy)
