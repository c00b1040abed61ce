"""The file of `-f`, of Submarine 0.5 and 0.6 -> the same options as the command line gives.

Keys are written as the manual does (`launch_cmd`) or as the original's reader also took them (`launchCmd`). Values are
texts, as they were there: `1.10` is not 1.1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import yaml

from policy.model import BadInput
from policy.text import yaml12
from policy.text.textform import Document, load_file
from yarn_bridge.submarine.given import Given, Wanted
from yarn_bridge.submarine.table import BY_NAME, OPTIONS, Takes, yaml_place

ROLES = ("worker", "ps", "scheduler")
#: place in the file -> option
_PLACES = {
    tuple(_snake.split(".")): option
    for option in OPTIONS
    if option.yaml
    for _snake in [re.sub(r"[A-Z]", lambda m: "_" + m.group().lower(), yaml_place(option))]
}
_SECTIONS = ("spec", "configs", "scheduling", "roles", "security", "tensor_board")
#: Read by the original and never used: said, not obeyed.
_JOB_TYPE = ("spec", "job_type")
_UNUSED = ("localizations", "mounts")


class _Texts(yaml12.Loader):
    """Every scalar as it is written, whatever it is called; aliases and merges (`<<`) as YAML has them."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {"<": yaml12.Loader.yaml_implicit_resolvers["<"]}


for _kind in ("bool", "float", "int", "null", "timestamp"):
    _Texts.add_constructor(f"tag:yaml.org,2002:{_kind}", _Texts.construct_scalar)


def read(path: str, wanted: Wanted) -> dict[str, dict[str, str]]:
    """Add the file's options to `wanted`; returns the environment of single roles. Raises BadInput."""
    document = load_file(path)
    if not isinstance(document.value, dict):
        raise BadInput(
            "is not a Submarine file", where=document.where, remedy="it has the sections spec, configs and roles"
        )
    # The same text again, every scalar as it is written.
    tree = yaml.load(document.text, Loader=_Texts)
    role_env: dict[str, dict[str, str]] = {}
    _walk(document, tree, (), (), wanted, role_env)
    for section in ("spec", "configs", "roles"):
        if section not in tree:
            raise BadInput(
                f"has no section {section!r}",
                where=document.where,
                remedy="a Submarine file has spec, configs and roles",
            )
    return role_env


def _walk(
    document: Document,
    node: Any,
    place: tuple[str, ...],
    written: tuple[str, ...],
    wanted: Wanted,
    role_env: dict[str, dict[str, str]],
) -> None:
    if not isinstance(node, Mapping):
        raise document.bad(written, "is not a mapping", value=node, remedy="keys and values below it")
    for key, value in node.items():
        here, spelled = (*place, snake(str(key))), (*written, str(key))
        option = _PLACES.get(here)
        if here == ("tensor_board",):
            wanted.add(_given(document, "tensorboard", "true", spelled))
            if value != "":
                _walk(document, value, here, spelled, wanted, role_env)
        elif option is not None:
            _take(document, option.name, value, spelled, wanted)
        elif here in (("configs", "mounts"), *((("roles", role, each)) for role in ROLES for each in _UNUSED)):
            why = "was read by Submarine and never used"
            unused = document.bad(
                spelled,
                why,
                value=value,
                remedy="take it out, or write what it was meant to do under configs.localizations",
            )
            if wanted.has("strict"):
                raise unused
            wanted.idle.append((unused.field, str(value), f"no effect: it {why}"))
        elif here == _JOB_TYPE:
            continue  # a label: Submarine ran every type alike
        elif len(here) == 3 and here[0] == "roles" and here[2] == "envs" and here[1] in ROLES:
            role_env[here[1]] = dict(_pairs(document, value, spelled))
        elif here in (("tensor_board",), *((("roles", role)) for role in ROLES)) or here in [(s,) for s in _SECTIONS]:
            if value != "":
                _walk(document, value, here, spelled, wanted, role_env)
        else:
            raise document.bad(spelled, "is no key of a Submarine file", remedy=_known_keys(place))


def _take(document: Document, name: str, value: Any, spelled: tuple[str, ...], wanted: Wanted) -> None:
    option = BY_NAME[name]
    if value == "":
        return  # an empty key is no value, there and here
    if name == "env":
        for key, text in _pairs(document, value, spelled):
            wanted.add(_given(document, name, f"{key}={text}", (*spelled, key)))
        return
    if option.takes is Takes.VALUES:
        if not isinstance(value, list):
            raise document.bad(spelled, "is not a list", value=value, remedy="a line with a dash for each")
        for number, each in enumerate(value):
            wanted.add(_given(document, name, _text(document, each, (*spelled, number)), (*spelled, number)))
        return
    text = _text(document, value, spelled)
    if option.takes is Takes.NOTHING:
        if text.lower() not in ("true", "false"):
            raise document.bad(spelled, "is neither true nor false", value=text, remedy="write true or false")
        if text.lower() == "false":
            return
        text = "true"
    wanted.add(_given(document, name, text, spelled))


def _pairs(document: Document, value: Any, spelled: tuple[str | int, ...]) -> list[tuple[str, str]]:
    if not isinstance(value, Mapping):
        raise document.bad(spelled, "is not a mapping", value=value, remedy="NAME: value, a line for each")
    return [(str(key), _text(document, each, (*spelled, str(key)))) for key, each in value.items()]


def _text(document: Document, value: Any, spelled: tuple[str | int, ...]) -> str:
    if not isinstance(value, str):
        raise document.bad(spelled, "is not one value", value=value, remedy="a text or a number")
    return value


def _given(document: Document, name: str, value: str, spelled: tuple[str | int, ...]) -> Given:
    made = document.bad(spelled, "")
    return Given(BY_NAME[name], value, made.field, document.where, made.line)


def snake(key: str) -> str:
    """`launchCmd` and `launch_cmd` are one key."""
    return re.sub(r"(?<=[a-z0-9])[A-Z]", lambda m: "_" + m.group().lower(), key)


def _known_keys(place: tuple[str, ...]) -> str:
    below = {known[len(place)] for known in _PLACES if known[: len(place)] == place and len(known) > len(place)}
    if not place:
        below |= set(_SECTIONS)
    if len(place) == 2 and place[0] == "roles":
        below.add("envs")
    return "it has " + ", ".join(sorted("tensorBoard" if each == "tensor_board" else each for each in below))
