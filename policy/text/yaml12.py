"""YAML by the rules of 1.2's core schema, on PyYAML's C parser.

Those of 1.1 change what people write without a word. Here `no` and `on` stay text (they are node names somewhere),
`010` is ten, `1:30` is text, `1e3` is a number, and a key that stands twice is an error.
"""

from __future__ import annotations

import re
import typing
from typing import Any

import yaml

_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BASE_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


#: Keys that the merges (`<<`) of one text may bring together. Merges of merges multiply.
MOST_MERGED = 200_000
_MERGE = "tag:yaml.org,2002:merge"


class Loader(_BASE):  # type: ignore[misc]
    """PyYAML's safe loader with YAML 1.2's core schema, without repeated keys and with bounded merges."""

    yaml_implicit_resolvers: typing.ClassVar[dict[str, Any]] = {}

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._merged = 0

    def flatten_mapping(self, node: Any) -> None:
        if any(key.tag == _MERGE for key, _ in node.value):
            self._merged += _keys(node, {})
            if self._merged > MOST_MERGED:
                raise yaml.constructor.ConstructorError(
                    None, None, f"its merges bring together more than {MOST_MERGED} keys", node.start_mark
                )
        super().flatten_mapping(node)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            try:
                known = key in seen
            except TypeError as error:
                raise yaml.constructor.ConstructorError(
                    None, None, "a list or a mapping cannot be a key", key_node.start_mark
                ) from error
            if known:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def _keys(node: Any, known: dict[int, int]) -> int:
    """How many keys a mapping has once its merges are carried out; each mapping is counted once."""
    if id(node) not in known:
        known[id(node)] = 0  # a merge of itself brings nothing
        total = 0
        for key, value in node.value:
            if key.tag != _MERGE:
                total += 1
            elif isinstance(value, yaml.SequenceNode):
                total += sum(_keys(v, known) for v in value.value if isinstance(v, yaml.MappingNode))
            elif isinstance(value, yaml.MappingNode):
                total += _keys(value, known)
        known[id(node)] = total
    return known[id(node)]


class Dumper(_BASE_DUMPER):  # type: ignore[misc]
    """Quotes whatever YAML 1.1 or 1.2 would not read back as text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_RESOLVERS: tuple[tuple[str, str, str], ...] = (
    ("tag:yaml.org,2002:bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("tag:yaml.org,2002:null", r"^(?:~|null|Null|NULL|)$", "~nN\0"),
    ("tag:yaml.org,2002:int", r"^[-+]?[0-9]+$", "-+0123456789"),
    (
        "tag:yaml.org,2002:float",
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        "-+0123456789.",
    ),
    ("tag:yaml.org,2002:merge", r"^<<$", "<"),
)
for _tag, _pattern, _first in _RESOLVERS:
    _firsts = [c if c != "\0" else "" for c in _first]
    Loader.add_implicit_resolver(_tag, re.compile(_pattern), _firsts)
    Dumper.add_implicit_resolver(_tag, re.compile(_pattern), _firsts)


def _construct_int(loader: Any, node: Any) -> int:
    return int(loader.construct_scalar(node))


def _construct_float(loader: Any, node: Any) -> float:
    text = loader.construct_scalar(node).lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)
