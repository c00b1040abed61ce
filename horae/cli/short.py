"""The short way from plain words to a command: `horae status -t vision` without what typer needs for it.

Typer hands every word to pydantic, which takes three times as long to load as all else that `horae status` needs. A
command whose options are flags, texts and paths needs none of that. What is not plain (help, a mistake, a word that two
could claim, a kind of option not known here) is typer's: this says None, and nothing was done.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args, get_type_hints

from typer.models import ArgumentInfo, OptionInfo

#: Annotation -> what one of its words becomes.
_PLAIN: Mapping[Any, Callable[[str], Any]] = {str | None: str, Path | None: Path}


def values(function: Callable[..., Any], words: Sequence[str]) -> dict[str, Any] | None:
    """What `function` is to be called with; None: ask typer."""
    options = _options(function)
    return None if options is None else _read(options, words)


@dataclass
class _Options:
    """What a function takes from the command line, all of it plain."""

    values: dict[str, Any] = field(default_factory=dict)  #: by parameter: its default, or what the environment says
    flags: dict[str, str] = field(default_factory=dict)  #: option -> parameter
    texts: dict[str, tuple[str, Callable[[str], Any]]] = field(default_factory=dict)
    rest: str = ""  #: the parameter that takes the words that are no option; "": none does


def _options(function: Callable[..., Any]) -> _Options | None:
    """None: one of them is not plain."""
    found = _Options()
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        kind, info = get_args(hints[name])[:2]
        found.values[name] = parameter.default
        if isinstance(info, ArgumentInfo) and kind == list[str] | None and not found.rest:
            found.rest = name
        elif not isinstance(info, OptionInfo) or not _option(found, name, kind, info):
            return None
    return found


def _option(found: _Options, name: str, kind: Any, info: OptionInfo) -> bool:
    """Take it up; False: it is not plain."""
    default = found.values[name]
    if info.callback or info.parser or info.prompt:
        return False
    if kind is bool and default is False and not info.envvar:
        found.flags |= dict.fromkeys(_names(info), name)
        return True
    if kind not in _PLAIN or default is not None:
        return False
    found.texts |= dict.fromkeys(_names(info), (name, _PLAIN[kind]))
    if isinstance(info.envvar, str) and (told := os.environ.get(info.envvar)):
        found.values[name] = _PLAIN[kind](told)
    return True


def _read(options: _Options, words: Sequence[str]) -> dict[str, Any] | None:
    found = dict(options.values)
    waiting = iter(words)
    plain: list[str] = []
    for word in waiting:
        if word in options.flags:
            found[options.flags[word]] = True
        elif word in options.texts:
            name, made = options.texts[word]
            value = next(waiting, "-")
            if value.startswith("-"):
                return None
            found[name] = made(value)
        elif word.startswith("-") or not options.rest:
            return None
        else:
            plain.append(word)
    if plain:
        found[options.rest] = plain
    return found


def _names(info: OptionInfo) -> Sequence[str]:
    """As they are typed; nothing where typer would make them of the parameter's name, or a flag has two sides. Until
    typer has read it, the first one stands where other callers give a default."""
    said = [info.default, *(info.param_decls or ())]
    names = [name for name in said if isinstance(name, str) and name.startswith("-")]
    return [] if "/" in "".join(names) else names
