"""How easy the house is to read, in figures that may only ever get better.

    python -m supply.house [--json] [--worst N]    what they are; --worst: the functions to take apart next
    python -m supply.house --check                 none is worse than `supply/house.json` allows

Read from the source (`ast`). A code line is one that holds a token of code: no comment, no text of a docstring. The
complexity of a function is one more than its branches: `if`, loops, `except`, conditional expressions, `case`,
comprehensions, their filters, and every further operand of `and` and `or`; what is defined inside it counts for itself.
Ruff's C901 leaves the last three out, and counts less.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
ROOMS = ("horae", "policy", "profiler", "slurm_plugin", "yarn_bridge")
CEILINGS = TREE / "supply" / "house.json"
#: A function above it is one that a reader has to take apart.
COMPLEX = 15
#: A flat list by nature: a file a command.
FLAT = "horae/cli"
MARK = "__init__.py"

BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.match_case)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SILENT = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)


@dataclass(frozen=True)
class Function:
    complexity: int
    name: str
    where: str


def branches(node: ast.AST) -> int:
    """Branches that this one node adds."""
    if isinstance(node, BRANCHES):
        return 1
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    return 0


def own(function: ast.AST) -> Iterator[ast.AST]:
    """Everything inside it but what is defined there."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            yield child
            yield from own(child)


class Module:
    def __init__(self, path: Path) -> None:
        self.path = path.relative_to(TREE)
        self.text = path.read_text()
        self.nodes = list(ast.walk(ast.parse(self.text)))

    @cached_property
    def code_lines(self) -> int:
        said = {line for node in self.nodes for line in _docstring(node)}
        lines: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type not in SILENT:
                lines.update(range(token.start[0], token.end[0] + 1))
        return len(lines - said)

    @cached_property
    def functions(self) -> list[Function]:
        return [
            Function(1 + sum(map(branches, own(node))), node.name, f"{self.path}:{node.lineno}")
            for node in self.nodes
            if isinstance(node, FUNCTIONS)
        ]

    @cached_property
    def classes(self) -> list[str]:
        return [node.name for node in self.nodes if isinstance(node, ast.ClassDef)]


def _docstring(node: ast.AST) -> range:
    if not isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Module)) or ast.get_docstring(node, clean=False) is None:
        return range(0)
    first = node.body[0]
    return range(first.lineno, (first.end_lineno or first.lineno) + 1)


def doubled(modules: list[Module]) -> int:
    """Class names that stand more than once within one top room."""
    names = Counter((module.path.parts[0], name) for module in modules for name in module.classes)
    return sum(count - 1 for count in names.values())


def unmarked(modules: list[Module]) -> int:
    """Folders of modules without an `__init__.py`: what looks for packages, as import contracts do, passes them by."""
    return len({module.path.parent for module in modules} - {m.path.parent for m in modules if m.path.name == MARK})


def figures(modules: list[Module]) -> dict[str, float]:
    code = sum(module.code_lines for module in modules)
    functions = [function for module in modules for function in module.functions]
    folders = Counter(str(module.path.parent) for module in modules)
    return {
        "lines": sum(len(module.text.splitlines()) for module in modules),
        "code_lines": code,
        "modules": len(modules),
        "largest_folder": max(count for folder, count in folders.items() if folder != FLAT),
        "branches_a_hundred_code_lines": round(100 * sum(branches(n) for m in modules for n in m.nodes) / code, 1),
        "nodes_a_code_line": round(sum(len(module.nodes) for module in modules) / code, 2),
        "functions": len(functions),
        "functions_above_15": sum(function.complexity > COMPLEX for function in functions),
        "class_names_doubled": doubled(modules),
        "folders_without_init": unmarked(modules),
    }


def worse(now: dict[str, float], most: dict[str, float]) -> list[str]:
    return [f"{name}: {now[name]:g} now, {most[name]:g} at most" for name in most if now[name] > most[name]]


def main() -> int:
    parser = argparse.ArgumentParser(description="How easy the house is to read, in figures.")
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="the N most complex functions")
    parser.add_argument("--check", action="store_true", help=f"fail where one is worse than {CEILINGS.name} allows")
    args = parser.parse_args()
    modules = [Module(path) for room in ROOMS for path in sorted((TREE / room).rglob("*.py"))]
    now = figures(modules)
    if args.check:
        found = worse(now, json.loads(CEILINGS.read_text()))
        for line in found:
            print(f"supply/house.json: {line}. Take apart what `python -m supply.house --worst 20` names.")
        return 1 if found else 0
    if args.json:
        print(json.dumps(now, indent=2))
        return 0
    for name, value in now.items():
        print(f"{name.replace('_', ' '):32}{value:>10g}")
    everything = [function for module in modules for function in module.functions]
    for function in sorted(everything, key=lambda each: -each.complexity)[: args.worst]:
        print(f"{function.complexity:4}  {function.name:32} {function.where}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
