"""Text that a person wrote (YAML or JSON) -> validated values, with the line of every value at hand.

One reader for every file form of Horae: instances, the site's configuration, traces' cluster files. A file form
is a pydantic model derived from `Form`; `load` reads the text, `fit` validates it, and everything that is wrong
becomes one `BadInput` with file, line, field, value and remedy. Nothing here knows what the values mean.

YAML is read by the rules of YAML 1.2 (`policy/text/yaml12.py`). A merge of aliases that grows without bound, bottomless
nesting and a second document are errors.

Lines are looked up only when something is wrong: reading costs no more than the parser itself.
"""

from __future__ import annotations

import difflib
import json
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from policy.model import BadInput
from policy.text import files, jsontext, yaml12

#: Where a value stands: keys and positions from the root.
Place = tuple[str | int, ...]

#: Values that aliases may expand to before the text is refused.
MOST_VALUES = 5_000_000
#: Lists and mappings within one another. PyYAML's C parser does not survive unlimited nesting.
MOST_LEVELS = jsontext.MOST_LEVELS
#: Mistakes of one text whose lines are looked up; of the others only the number is told.
MOST_MISTAKES = 20


# --- reading -----------------------------------------------------------------------------------------------


@dataclass
class Document:
    """What a text says, and where. `value` is plain: mappings, lists, text, numbers, booleans, None."""

    value: Any
    where: str
    text: str = field(repr=False, default="")
    first_line: int = 1  #: line of the text's first line in `where` (a line of a JSONL file)
    json: bool = False  #: it was read as JSON
    _tree: Any = field(default=None, repr=False)

    def line(self, place: Place) -> int | None:
        """The line where the value at `place` stands, or that of the nearest thing around it that exists."""
        if self.json and self.text:
            return self.text.count("\n", 0, jsontext.offset_of(self.text, place)) + self.first_line
        if self._tree is None and self.text:
            try:
                self._tree = yaml.compose(self.text.expandtabs(1), Loader=yaml12.Loader)
            except (yaml.YAMLError, RecursionError):
                self._tree = None
        if self._tree is None:
            return self.first_line if self.first_line > 1 else None
        node = self._tree
        best = node.start_mark.line
        for step in place:
            child = _child(node, step)
            if child is None:
                break
            best, node = child
        return int(best) + self.first_line

    def bad(self, place: Place, message: str, *, value: object = None, remedy: str = "") -> BadInput:
        """The error that says `message` about the value at `place`."""
        return BadInput(
            message, where=self.where, line=self.line(place), field=name_of(place), value=value, remedy=remedy
        )


def _child(node: Any, step: str | int) -> tuple[int, Any] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(step):
                return key.start_mark.line, value
    elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step].start_mark.line, node.value[step]
    return None


def name_of(place: Place) -> str:
    """`jobs[3].gpus.min` for ("jobs", 3, "gpus", "min")."""
    out = ""
    for step in place:
        word = step if isinstance(step, int) or len(step) <= 80 else f"{step[:77]}..."
        out += f"[{word}]" if isinstance(step, int) else (f".{word}" if out else str(word))
    return out


def load_file(path: str | Path) -> Document:
    """Read one file (`-`: standard input). Raises BadInput, also for what the file system refuses."""
    where = str(path)
    try:
        with files.opened(path) as file:
            raw = file.read()
    except OSError as error:
        raise BadInput(
            f"cannot be read: {error.strerror or error}", where=where, remedy="check the path and its permissions"
        ) from error
    return load(raw, "<standard input>" if where == "-" else where)


def load(text: str | bytes, where: str, *, first_line: int = 1, json_only: bool = False) -> Document:
    """Read YAML or JSON. A name that says neither is read as JSON when it is JSON, else as YAML."""
    document = Document(None, where, _decode(text, where, first_line), first_line)
    if json_only or where.endswith((".json", ".jsonl")):
        _load_json(document)
    elif where.endswith((".yaml", ".yml")) or document.text.lstrip()[:1] != "{":
        document.value = _load_yaml(document)
    else:
        try:
            _load_json(document)
        except BadInput as no_json:
            try:
                document.value = _load_yaml(document)  # `{name: a}` is YAML
            except BadInput:
                raise no_json from None
    _check_characters(document)
    return document


def _decode(text: str | bytes, where: str, first_line: int) -> str:
    if isinstance(text, str):
        return text
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text[: error.start].count(b"\n") + first_line
        raise BadInput("is not UTF-8 text", where=where, line=line, remedy="save the file as UTF-8") from error


def _load_json(document: Document) -> None:
    try:
        document.value, document.json = jsontext.loads(document.text), True
    except jsontext.Refused as error:
        line = None if error.offset is None else document.text.count("\n", 0, error.offset) + document.first_line
        raise BadInput(error.message, where=document.where, line=line, remedy=error.remedy) from error


def _check_characters(document: Document) -> None:
    """Refuse halves of characters (lone surrogates): escapes can write them, no file, journal or screen takes them."""
    if re.search(r"\\[uU](?:0000)?[dD][89a-fA-F]|[\ud800-\udfff]", document.text) is None:
        return
    waiting: list[tuple[Place, Any]] = [((), document.value)]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, dict):
            for key, inner in value.items():
                if isinstance(key, str) and not _whole(key):
                    raise document.bad(place, "a key holds half of a character", remedy="write it as UTF-8 text")
                waiting.append(((*place, key), inner))
        elif isinstance(value, list):
            waiting += [((*place, i), inner) for i, inner in enumerate(value)]
        elif isinstance(value, str) and not _whole(value):
            raise document.bad(place, "holds half of a character", value=value, remedy="write it as UTF-8 text")


def _whole(text: str) -> bool:
    return re.search("[\ud800-\udfff]", text) is None


def _load_yaml(document: Document) -> Any:
    try:
        _check_nesting(document)
        value = yaml.load(document.text, Loader=yaml12.Loader)
        if "*" in document.text:
            _check_aliases(value, document.where)
        return value
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error).split("\n")[0]
        line = None if mark is None else mark.line + document.first_line
        if mark is None and (position := getattr(error, "position", None)) is not None:
            line = document.text[:position].count("\n") + document.first_line
        raise BadInput(
            f"is not YAML: {problem}", where=document.where, line=line, remedy="mend the YAML here"
        ) from error
    except RecursionError as error:
        raise BadInput("is nested too deeply", where=document.where, remedy="flatten it") from error
    except ValueError as error:
        raise BadInput(f"holds a value that cannot be read: {error}", where=document.where) from error


def _check_nesting(document: Document) -> None:
    """Refuse text that nests deeper than MOST_LEVELS. A bound that costs little settles nearly every text."""
    depth = deepest = 0
    for bracket in re.finditer(r"[\[\]{}]", document.text):
        depth += 1 if bracket[0] in "[{" else -1
        deepest = max(deepest, depth)
        depth = max(depth, 0)
    # A block level needs a column more than the one around it (a list may share its key's).
    columns = max((len(m[0]) for m in re.finditer(r"^[ \-?:]+", document.text, re.MULTILINE)), default=0)
    if deepest + 2 * columns < MOST_LEVELS:
        return
    depth = 0
    for event in yaml.parse(document.text, Loader=yaml12.Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MOST_LEVELS:
                line = event.start_mark.line + document.first_line if event.start_mark else None
                raise BadInput("is nested too deeply", where=document.where, line=line, remedy="flatten it")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _check_aliases(value: Any, where: str) -> None:
    """Refuse aliases that contain themselves or that expand beyond MOST_VALUES."""
    sizes: dict[int, int] = {}
    open_now: set[int] = set()

    def size(v: Any) -> int:
        if not isinstance(v, dict | list):
            return 1
        if id(v) in open_now:
            raise BadInput("an alias contains itself", where=where, remedy="write the values out")
        if id(v) not in sizes:
            open_now.add(id(v))
            sizes[id(v)] = 1 + sum(size(x) for x in (v.values() if isinstance(v, dict) else v))
            open_now.discard(id(v))
        return sizes[id(v)]

    if size(value) > MOST_VALUES:
        raise BadInput("its aliases expand without bound", where=where, remedy="write the values out")


# --- validating --------------------------------------------------------------------------------------------


class Form(BaseModel):
    """Base of every file form: unknown keys are errors that list the known ones; text is not taken for a number."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, populate_by_name=False)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            known = cls.keys()
            for key in data:
                if key not in known:
                    raise PydanticCustomError("unknown_key", "unknown key", {"key": str(key), "known": sorted(known)})
        return data

    @classmethod
    def keys(cls) -> frozenset[str]:
        """The keys that a text may hold."""
        cached: frozenset[str] | None = cls.__dict__.get("_keys_cache")
        if cached is None:
            cached = frozenset(f.alias or n for n, f in cls.model_fields.items())
            type.__setattr__(cls, "_keys_cache", cached)
        return cached


F = TypeVar("F", bound=BaseModel)


def fit(form: type[F], document: Document, at: Place = ()) -> F:
    """What stands at a place of `document` as a value of `form`; the first thing that is wrong, in the order of the
    text, is raised."""
    value = document.value
    for step in at:
        value = value[step]
    if not isinstance(value, dict):
        what = "empty" if value is None else f"{_kind(value)}, not a mapping of keys to values"
        raise document.bad(at, f"is {what}", value=value, remedy=f"it needs the keys {', '.join(_required(form))}")
    try:
        return form.model_validate(value)
    except ValidationError as error:
        # A name for what is raised would make a circle with this frame, and keep all that was sent.
        raise _first(document, at, error.errors(include_url=False)) from error
    except RecursionError as error:
        raise BadInput("is nested too deeply", where=document.where, remedy="flatten it") from error


def _first(document: Document, at: Place, problems: Sequence[ErrorDetails]) -> BadInput:
    found = [_explain(document, at, problem) for problem in problems[:MOST_MISTAKES]]
    first = min(found, key=lambda bad: bad.line or 0)
    if len(problems) == 1:
        return first
    return BadInput(
        first.message + f" [and {len(problems) - 1} more]",
        where=first.where,
        line=first.line,
        field=first.field,
        value=first.value,
        remedy=first.remedy,
    )


def _required(form: type[BaseModel]) -> list[str]:
    return [f.alias or n for n, f in form.model_fields.items() if f.is_required()] or sorted(form.model_fields)


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "a boolean"
    names = {
        str: "text",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "a mapping",
        type(None): "nothing",
    }
    return names.get(type(value), type(value).__name__)


_MAPPING = ("must be a mapping of keys to values, not {kind}", "")
#: What pydantic calls a problem -> what is said of it, and what to do.
_WORDS: Mapping[str, tuple[str, str]] = {
    "string_type": ("must be text, not {kind}", "put it in quotes"),
    "int_type": ("must be a whole number, not {kind}", "write digits only"),
    "int_from_float": ("must be a whole number, not {value}", "write digits only"),
    "float_type": ("must be a number, not {kind}", "write a number, without quotes or unit"),
    "bool_type": ("must be true or false, not {kind}", "write true or false"),
    "finite_number": ("must be a finite number", "write a number"),
    "list_type": ("must be a list, not {kind}", ""),
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
}


def _explain(document: Document, at: Place, problem: ErrorDetails) -> BadInput:
    place: Place = (*at, *(step for step in problem["loc"] if step != "[key]"))
    context: Mapping[str, Any] = problem.get("ctx") or {}
    value = problem.get("input")
    kind, said = problem["type"], problem["msg"]
    if kind == "unknown_key":
        key, known = context["key"], context["known"]
        near = difflib.get_close_matches(key, known, n=1)
        remedy = (f"did you mean {near[0]!r}? " if near else "") + "known keys: " + ", ".join(known)
        return document.bad((*place, key), f"unknown key {key!r}", remedy=remedy)
    if kind == "missing":
        return document.bad(place, "is missing", remedy="add it")
    if kind in _WORDS:
        message, remedy = _WORDS[kind]
        message = message.format(kind=_kind(value), value=value)
    elif kind == "literal_error":
        message, remedy = "is none of the values it can have", f"one of {context.get('expected', '')}"
    elif (demand := re.sub(r"^(?:Input|String|List|Dictionary|Value) should ", "must ", said)) != said:
        message, remedy = demand, "correct the value"
    else:
        message, remedy = said.removeprefix("Value error, "), str(context.get("remedy", ""))
    shown = "" if value is None or isinstance(value, dict | list) else f" (it is {_short(value)})"
    return document.bad(place, message + shown, value=value, remedy=remedy)


def _short(value: object) -> str:
    text = brief(value)
    return text if len(text) <= 60 else text[:57] + "..."


class _Brief(reprlib.Repr):
    """`repr` that costs what it shows, whatever it is of."""

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if x.bit_length() < 4096 else f"a number of about {x.bit_length() * 3 // 10} digits"


_BRIEF = _Brief()
_BRIEF.maxstring = _BRIEF.maxother = 300
_BRIEF.maxlevel, _BRIEF.maxdict, _BRIEF.maxlist = 3, 6, 10


def brief(value: object) -> str:
    """`value` as Python would write it, cut where it is long or deep."""
    return _BRIEF.repr(value)


def wrong(message: str, remedy: str = "", **context: str | int | float) -> PydanticCustomError:
    """The error that a form's own validator raises: becomes a BadInput at its place, with this remedy."""
    escaped = message.replace("{", "(").replace("}", ")")
    return PydanticCustomError("wrong", escaped, {"remedy": remedy, **context})


# --- printing -----------------------------------------------------------------------------------------------


def to_json(value: Any, *, indent: int | None = None) -> str:
    """One canonical JSON text: keys in the order given, no NaN, not escaped beyond need, a newline at the end."""
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent, separators=separators) + "\n"


def to_yaml(value: Any) -> str:
    """One canonical YAML text: inner values on one line, keys in the order given."""
    return str(
        yaml.dump(
            value, Dumper=yaml12.Dumper, sort_keys=False, default_flow_style=None, width=10**6, allow_unicode=True
        )
    )


def one_of(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
