"""The words of a command line -> options, as the originals' parser (commons-cli's GnuParser) took them.

`--name x`, `-name x`, `--name=x` and `-name=x` are the same; `-fjob.yaml` is `-f job.yaml`. The word after an option
that takes a value is its value, whatever it begins with, unless it is itself an option. Double quotes around a value
are taken off. Two kindnesses of the original are kept in part only, because they lose what people wrote: words that
belong to no option are refused behind an option's one value, and an option that stands twice always is.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from policy.model import BadInput
from yarn_bridge.submarine.given import Given, Wanted
from yarn_bridge.submarine.table import ALIASES, BY_NAME, Option, Takes

_FILE_ENDS = (".yaml", ".yml", ".json")


def parse(words: Sequence[str]) -> Wanted:
    """The options of `job run WORDS`. Raises BadInput."""
    wanted = Wanted()
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            continue
        if not word.startswith("-") or word == "-":
            error = _stray(word, wanted)
            if _may_be_lost(wanted):
                wanted.strays.append((word, error))
                continue
            raise error
        option, attached = _known(word)
        if option is None:
            raise _unknown(word)
        if option.takes is Takes.NOTHING:
            wanted.add(_flag(option, attached, word))
            if at < len(words) and words[at].lower() in ("true", "false"):
                # The original parsed this word and threw it away.
                if words[at].lower() == "false":
                    raise BadInput(
                        "takes no value: Submarine ignored this word and switched it on",
                        field=f"--{option.name}",
                        value=words[at],
                        remedy="leave the option out",
                    )
                at += 1
            continue
        if attached is None:
            if at >= len(words) or _is_option(words[at]):
                raise BadInput("has no value", field=f"--{option.name}", remedy=f"write --{option.name} VALUE")
            attached = words[at]
            at += 1
        wanted.add(Given(option, unquoted(attached), _field(option)))
    return wanted


def unquoted(text: str) -> str:
    """Without the double quotes around it, where they are a pair of their own."""
    if len(text) >= 2 and text[0] == text[-1] == '"' and '"' not in text[1:-1]:
        return text[1:-1]
    return text


def _known(word: str) -> tuple[Option | None, str | None]:
    """The option that a word names, and the value attached to it."""
    name = word[2:] if word.startswith("--") else word[1:]
    found = _by_name(name)
    if found is not None:
        return found, None
    head, equals, tail = name.partition("=")
    if equals and (found := _by_name(head)) is not None:
        return found, tail
    if word.startswith("-f") and (word.endswith(_FILE_ENDS) or "/" in word):
        return BY_NAME["f"], word[2:]
    return None, None


def _by_name(name: str) -> Option | None:
    return BY_NAME.get(ALIASES.get(name, name))


def _is_option(word: str) -> bool:
    return word.startswith("-") and _known(word)[0] is not None


def _flag(option: Option, attached: str | None, word: str) -> Given:
    if attached is not None and attached.lower() != "true":
        raise BadInput("takes no value", field=f"--{option.name}", value=word, remedy=f"write --{option.name} alone")
    return Given(option, "true", _field(option))


def _field(option: Option) -> str:
    return f"-{option.name}" if option.name == "f" else f"--{option.name}"


def _stray(word: str, wanted: Wanted) -> BadInput:
    last = wanted.items[-1] if wanted.items else None
    if last is not None and last.option.takes is not Takes.NOTHING:
        remedy = f"put quotes around the value of {last.field} if this word is part of it"
    else:
        remedy = "take it out, or put the option before it that it belongs to"
    return BadInput(f"{word!r} belongs to no option", field="job run", value=word, remedy=remedy)


def _may_be_lost(wanted: Wanted) -> bool:
    """Behind one value a stray word is the rest of it, and what people meant: it is refused. Behind a list (--conf) or
    a flag Submarine lost no more than the word."""
    return bool(wanted.items) and wanted.items[-1].option.takes is not Takes.VALUE


def _unknown(word: str) -> BadInput:
    name = word.lstrip("-").partition("=")[0]
    near = difflib.get_close_matches(name, [*BY_NAME, *ALIASES], n=1)
    remedy = f"did you mean --{near[0]}?" if near else "`horae submarine job run --help` lists all of them"
    return BadInput("is no option of Submarine's job run", field=word.partition("=")[0], value=word, remedy=remedy)
