"""The short way from plain words to a command: `horae status -t vision` without what typer needs for it.

Typer hands every word to pydantic, which takes three times as long to load as all else that `horae status` needs. A
command whose options are flags, texts and paths needs none of that. What is not plain (help, a mistake, a word that two
could claim, a kind of option not known here) is typer's: this says None, and nothing was done.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

from typer.models import ArgumentInfo, OptionInfo

#: Annotation -> what one of its words becomes.
_PLAIN: Mapping[Any, Callable[[str], Any]] = {str | None: str, Path | None: Path}


def values(function: Callable[..., Any], words: Sequence[str]) -> dict[str, Any] | None:
    """What `function` is to be called with; None: ask typer."""
    found: dict[str, Any] = {}
    flags: dict[str, str] = {}
    texts: dict[str, tuple[str, Callable[[str], Any]]] = {}
    rest = ""
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        kind, info = get_args(hints[name])[:2]
        found[name] = parameter.default
        if isinstance(info, ArgumentInfo) and kind == list[str] | None and not rest:
            rest = name
        elif not isinstance(info, OptionInfo) or info.callback or info.parser or info.prompt:
            return None
        elif kind is bool and parameter.default is False and not info.envvar:
            flags |= dict.fromkeys(_names(info), name)
        elif kind in _PLAIN and parameter.default is None:
            texts |= dict.fromkeys(_names(info), (name, _PLAIN[kind]))
            if isinstance(info.envvar, str) and (told := os.environ.get(info.envvar)):
                found[name] = _PLAIN[kind](told)
        else:
            return None
    waiting = iter(words)
    plain: list[str] = []
    for word in waiting:
        if word in flags:
            found[flags[word]] = True
        elif word in texts:
            name, made = texts[word]
            value = next(waiting, "-")
            if value.startswith("-"):
                return None
            found[name] = made(value)
        elif word.startswith("-") or not rest:
            return None
        else:
            plain.append(word)
    if plain:
        found[rest] = plain
    return found


def _names(info: OptionInfo) -> Sequence[str]:
    """As they are typed; nothing where typer would make them of the parameter's name, or a flag has two sides."""
    names = info.param_decls or ()
    return [] if any("/" in name for name in names) else [name for name in names if name.startswith("-")]
