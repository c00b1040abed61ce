"""Hadoop's site files: read their properties, and put values in without touching anything else of the text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from policy.model import BadInput


def properties(text: str, where: str) -> dict[str, str]:
    """Raises BadInput for what is not a site file."""
    try:
        root = ET.fromstring(text)
    except ET.ParseError as error:
        raise BadInput(f"is not XML: {error}", where=where, line=error.position[0]) from None
    found = {}
    for each in root.iter("property"):
        name = (each.findtext("name") or "").strip()
        found[name] = (each.findtext("value") or "").strip()
    return found


def merged(text: str, values: Mapping[str, str]) -> str:
    """The text with these values: those that differ are replaced where they stand, new ones go to the end."""
    added = []
    for key, value in values.items():
        pattern = rf"(<name>\s*{re.escape(key)}\s*</name>\s*<value>)(.*?)(</value>)"
        found = re.search(pattern, text, re.DOTALL)
        if found is None:
            added.append(f"  <property><name>{escape(key)}</name><value>{escape(value)}</value></property>\n")
        elif _listed(found[2]) != _listed(escape(value)):
            text = text[: found.start(2)] + escape(value) + text[found.end(2) :]
    head, end, tail = text.rpartition("</configuration>")
    return head + "".join(added) + end + tail


def remedy(file: str, values: Mapping[str, str]) -> str:
    """What an administrator puts where, in one line."""
    shown = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in values.items())
    return f"{file}: {shown}"


def _listed(value: str) -> list[str]:
    """Order and blanks in a list of names mean nothing."""
    return sorted(part.strip() for part in value.split(","))
