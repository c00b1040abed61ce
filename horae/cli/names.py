"""Names of users and tenants as people type them: one that nobody has is told, never answered by an empty table."""

from __future__ import annotations

import pwd
from typing import TYPE_CHECKING

from horae.cli.exits import NO, Failure

if TYPE_CHECKING:
    from horae.arbiter.requests import answers


def users(said: str, answer: answers.StatusAnswer) -> frozenset[str]:
    """Those of a list with commas, by name or number. Raises Failure for one whom neither this host nor a job knows."""
    owners = {job["owner"] for job in answer["jobs"]}
    found = {word: word if word in owners else _of_host(word) for word in said.split(",")}
    if unknown := [word for word, name in found.items() if name is None]:
        text = f"there is no user {unknown[0]!r}"
        raise Failure(NO, text, "nobody has that name on this host, and no job that waits or runs is theirs")
    return frozenset(name for name in found.values() if name is not None)


def check_tenant(name: str, answer: answers.StatusAnswer) -> None:
    """Raises Failure for a tenant that is in no configuration, has no job, and is no user's own."""
    known = {tenant["name"] for tenant in answer["tenants"]} | {job["tenant"] for job in answer["jobs"]}
    if name not in known and _of_host(name) is None:
        raise Failure(NO, f"there is no tenant {name!r}", f"there are: {', '.join(sorted(known)) or 'none yet'}")


def _of_host(word: str) -> str | None:
    try:
        return pwd.getpwuid(int(word)).pw_name if word.isdecimal() else pwd.getpwnam(word).pw_name
    except (KeyError, OverflowError):
        return None
