"""What people type of jobs, users and tenants: a name that nobody has is told, never answered by an empty table."""

from __future__ import annotations

import pwd
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from horae import job_number
from horae.cli.exits import NO, Failure
from horae.tui import screen

if TYPE_CHECKING:
    from horae.api.client import Client
    from horae.arbiter.requests import answers

T = TypeVar("T")
_MOST_NAMED = 5


def meant(client: Client, word: str, ask: Callable[[str], T]) -> T:
    """What `ask` answers of the job that the caller means: by its number, or by its name where it is the only one of
    theirs. Of several with a name the only one that has not ended is meant; which one, standard error says. A number
    that no job has is never a name. Raises what `ask` does, and ApiError for no such job, with those that may be meant.
    """
    from horae.api.errors import ApiError, Code, no_such_job

    try:
        return ask(word)
    except ApiError as error:
        if error.code not in (Code.NO_SUCH_JOB, Code.NOT_FOUND):  # not found: a name with a slash in it
            raise
    me, jobs = client.about()["you"]["user"], client.status(ended=True, brief=True)["jobs"]
    mine = [job for job in jobs if job["owner"] == me]
    same = [job for job in mine if called(job, word)]
    same = [job for job in same if not job["ended"]] or same
    if not same:
        raise no_such_job(word, likely(word, mine + [job for job in jobs if job["name"] == word]))
    if len(same) > 1:
        wrong = f"{len(same)} jobs of yours are named {word}: {_listed(same)}"
        raise ApiError(404, Code.NO_SUCH_JOB, wrong, remedy="say which, by its number")
    (job,) = same
    screen.note(f"horae: {word} is job {job_number(job['id'])}")
    return ask(job["id"])


def job(client: Client, word: str) -> str:
    """The id of the job that is `meant`."""
    return meant(client, word, client.job)["id"]


def called(job: answers.JobAnswer, word: str) -> bool:
    """Whether people call it so. A number is a job's own: nobody comes between a script and its job by a name."""
    number = job_number(job["id"])
    return word in (job["id"], number) or (job["name"] == word and not job_number(word).isdecimal())


def likely(word: str, jobs: Iterable[answers.JobAnswer]) -> str:
    """A question, by the numbers and names that look much like `word`; "" where none does."""
    from difflib import get_close_matches

    called = {name: job for job in jobs for name in (job_number(job["id"]), job["name"])}
    found = {called[name]["id"]: called[name] for name in get_close_matches(word, called)}
    return f"do you mean {_listed(found.values())}?" if found else ""


def _listed(jobs: Iterable[answers.JobAnswer]) -> str:
    newest = sorted(jobs, key=lambda job: job["submitted_s"], reverse=True)
    shown = []
    for job in newest[:_MOST_NAMED]:
        number = job_number(job["id"])
        shown.append(f"{number} ({job['name']}, {job['state']})")
    if len(newest) > _MOST_NAMED:
        shown.append("...")
    return ", ".join(shown)


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
