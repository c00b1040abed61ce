"""slurmrestd: the REST interface, over TCP with a token (JWT) or over a unix socket.

The newest version of the interface that slurmrestd and `versions.REST` both know is used, found by asking `ping`
from the newest down, and again when it is gone (slurmrestd was upgraded). Errors and warnings come in the body, with
Slurm's own sentences; a body is believed over the status. Reads are one request whatever the queue's length.

Facts: a task of an array cannot be updated by its name (`ARRAY_TASK`); an empty `required_nodes` clears nothing; a
begin time in the past means now, which spares us the difference of clocks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import structlog

from horae.port import FixConfiguration, PortError, TryLater
from horae.untrusted import printable
from slurm_plugin.clients import versions
from slurm_plugin.clients.base import CannotSay, ClientAway, Kept, OneByOne, Operation
from slurm_plugin.clients.pace import Pace
from slurm_plugin.clients.rest_reading import job_rows, node_rows
from slurm_plugin.clients.tokens import NoToken, Tokens
from slurm_plugin.errors import Gone, is_refusal, port_error
from slurm_plugin.records import End, Facts, JobRow, NodeRow
from slurm_plugin.writes import Change, Verb, Write

log = structlog.get_logger("horae.slurm")

_AUTHENTICATION = 1007  #: ESLURM "Protocol authentication error": a token that ended, or is of another key
_UNSPECIFIED = -1  #: what v0.0.38 says instead
_COST = {"/nodes/": 2}  #: requests to slurmctld behind one of ours, as sdiag counts them
_WARNINGS = 100  #: different ones that are told
_MOST_BYTES = 1 << 30  #: of an answer: some hundred thousand jobs
_MOST_S = 120.0  #: that an answer may take to come
_ALREADY_GONE = frozenset({2017, 2021})  #: invalid job id; job/step already completing or completed
_NOT_NOW = frozenset({2020})  #: "can not be altered now": delivered all the same, or its next observation tells


class RestClient(OneByOne):
    name = "slurmrestd"

    def __init__(
        self,
        url: str,
        tokens: Tokens | None = None,
        timeout_s: float = 30.0,
        pace: Pace | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """`url`: http://HOST:PORT, https://..., or unix:/PATH of its socket."""
        self._url, self._tokens, self._pace = url, tokens or NoToken(), pace or Pace()
        if url.startswith("unix:"):
            transport = transport or httpx.HTTPTransport(uds=url.removeprefix("unix:"))
            url = "http://localhost"
        self._http = httpx.Client(base_url=url, timeout=timeout_s, transport=transport, trust_env=False)
        self._version = ""
        self._served = ""  #: Slurm's own version, as it says
        self._lock = threading.Lock()
        self._kept = Kept()
        self.odd: list[str] = []
        self.warnings: list[str] = []  #: each once, as slurmrestd's answers said them

    # --- what it can ---

    def lacks(self, operation: Operation) -> str:
        if operation in versions.REST_LACKS:
            return versions.REST_LACKS[operation]
        if not self._version:
            return ""  # not known before the first request
        known = versions.REST[self._version]
        return "" if operation in known.can else known.lacks[operation]

    def fits(self, write: Write) -> bool:
        if "_" in write.job:
            return False
        change = write.change
        return change is None or (change.mail is None and (change.node_list is None or bool(change.node_list)))

    def describe(self) -> str:
        version = self._negotiated()
        return f"{version} of Slurm {self._served or '?'} at {self._url}"

    # --- reads ---

    def jobs(self, partitions: Sequence[str]) -> list[JobRow]:
        found = self._listed("jobs")
        return self._kept.again(job_rows(found, partitions, time.time(), self.odd))

    def nodes(self, partitions: Sequence[str]) -> list[NodeRow]:
        found = self._listed("nodes")
        try:
            return node_rows(found, partitions)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise ClientAway(f"reading the nodes: slurmrestd tells one in words unknown here: {error!r}") from error

    def _listed(self, what: str) -> list[Any]:
        """A list that must be there, if only empty: an answer without it says nothing about any job."""
        found = self._ask("GET", f"/{what}/", f"reading the {what}").get(what)
        if not isinstance(found, list):
            raise ClientAway(f"reading the {what}: slurmrestd answered without any list of them")
        return found

    def facts(self) -> Facts:
        raise FixConfiguration(versions.REST_LACKS[Operation.FACTS], "let the command line do it")

    def ended(self, ids: Sequence[str]) -> Mapping[str, End]:
        raise FixConfiguration(versions.REST_LACKS[Operation.ENDED], "let the command line do it")

    def those(self, ids: Sequence[str]) -> Mapping[str, JobRow]:
        raise FixConfiguration(versions.REST_LACKS[Operation.FACTS], "let the command line do it")

    def standing(self, ids: Sequence[str]) -> Mapping[str, str]:
        raise FixConfiguration(versions.REST_LACKS[Operation.FACTS], "let the command line do it")

    # --- writes ---

    def _write(self, write: Write, doing: str) -> None:
        self._check(Operation(write.verb.value))
        if write.verb is Verb.REQUEUE_HOLD:
            self._ask("GET", f"/job/{write.job}/requeue?Hold", doing)
        else:
            self._ask("POST", f"/job/{write.job}", doing, body_of(write))

    def signal(self, ids: Sequence[str], name: str, doing: str) -> dict[str, PortError]:
        self._check(Operation.SIGNAL)
        return self._end(ids, {"signal": name, "flags": ["BATCH_JOB"]}, doing)

    def cancel(self, ids: Sequence[str], doing: str) -> dict[str, PortError]:
        self._check(Operation.CANCEL)
        return self._end(ids, {}, doing)

    def close(self) -> None:
        self._http.close()

    # --- how ---

    def _check(self, operation: Operation) -> None:
        """Before the first request it is not known what the other side can."""
        self._negotiated()
        if why := self.lacks(operation):
            raise CannotSay(why)

    def _end(self, ids: Sequence[str], how: Mapping[str, Any], doing: str) -> dict[str, PortError]:
        """Signals or ends many jobs by one request; each has its own status. Who is gone already is no error."""
        answer = self._ask("DELETE", "/jobs/", doing, {"jobs": list(ids), **how})
        errors: dict[str, PortError] = {}
        for status in answer.get("status") or ():
            (error,) = _entries(status.get("error"))[:1] or [{}]
            code = _number_of(error, "code")
            if code and code not in _ALREADY_GONE | _NOT_NOW:
                found = port_error(str(error.get("message") or error.get("string") or ""), doing)
                named = {str(status.get(key)) for key in ("step_id", "job_id", "array_job_id")}.intersection(ids)
                errors |= dict.fromkeys(named or ids, found)
        return errors

    def _ask(self, method: str, path: str, doing: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        for attempt in (1, 2):
            version = self._negotiated()
            self._pace.spend(_COST.get(path, 1))
            answer = self._send(method, f"/slurm/{version}{path}", body)
            if answer.status_code == 404 and not _is_json(answer) and attempt == 1:
                self._version = ""  # slurmrestd serves other versions than it did
                continue
            parsed = _parsed(answer)
            if _refused(answer, parsed, version) and attempt == 1 and self._tokens.refused():
                continue
            break
        if _refused(answer, parsed, version):
            raise ClientAway(f"{doing}: slurmrestd refuses our token ({answer.status_code})")
        self._heed(parsed, path)
        errors = parsed.get("errors") or ()
        if refusals := [error for error in errors if is_refusal(_sentence(error))]:
            raise _error(refusals[0], doing)
        if answer.status_code != 200 and not errors:
            raise ClientAway(f"{doing}: slurmrestd answers {answer.status_code}", unknown=method != "GET")
        return parsed

    def _heed(self, answer: Mapping[str, Any], path: str) -> None:
        """Warnings of an answer go to the log, each once: rounds repeat them."""
        for each in _entries(answer.get("warnings")):
            text = printable(str(each.get("description") or each.get("error") or each))
            if text not in self.warnings and len(self.warnings) < _WARNINGS:
                self.warnings.append(text)
                log.warning("slurmrestd warns", text=text, asked=path)

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None) -> httpx.Response:
        headers = dict(self._tokens.headers())
        try:
            with self._http.stream(method, path, json=body, headers=headers, follow_redirects=False) as answer:
                return httpx.Response(answer.status_code, headers=_plain(answer), content=self._whole(answer))
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise ClientAway(f"slurmrestd at {self._url} cannot be reached: {error}") from error
        except httpx.TimeoutException as error:
            raise ClientAway(f"slurmrestd at {self._url} gave no answer in time", unknown=method != "GET") from error
        except httpx.TransportError as error:
            raise ClientAway(f"slurmrestd at {self._url}: {error}", unknown=method != "GET") from error

    def _whole(self, answer: httpx.Response) -> bytes:
        """The body, however it comes: no more, and for no longer, than a queue can need."""
        until, kept = time.monotonic() + _MOST_S, bytearray()
        for piece in answer.iter_bytes():
            kept += piece
            if len(kept) > _MOST_BYTES or time.monotonic() > until:
                raise ClientAway(f"slurmrestd at {self._url} answers with too much, or too slowly", unknown=True)
        return bytes(kept)

    def _negotiated(self) -> str:
        """The version in use; asked for when there is none yet."""
        with self._lock:
            if self._version:
                return self._version
            for version in versions.REST:
                self._pace.spend()
                answer = self._send("GET", f"/slurm/{version}/ping{'' if version == 'v0.0.38' else '/'}", None)
                if answer.status_code == 404:
                    continue
                parsed = _parsed(answer)
                if answer.status_code == 401:
                    if self._tokens.refused():
                        answer = self._send("GET", f"/slurm/{version}/ping/", None)
                        parsed = _parsed(answer)
                    if answer.status_code == 401:
                        raise ClientAway("slurmrestd refuses our token (401)")
                self._served = str(_slurm(parsed).get("release") or "")
                self._version = version
                return version
            known = ", ".join(versions.REST)
            raise ClientAway(f"slurmrestd at {self._url} serves none of the versions {known}")


def body_of(write: Write) -> dict[str, Any]:
    """A write as slurmrestd takes it, v0.0.41 and later."""
    if write.verb is Verb.HOLD:
        return {"hold": True}
    if write.verb is Verb.RELEASE:
        return {"hold": False}
    change = write.change or Change()
    body: dict[str, Any] = {}
    if change.start_now:
        body["begin_time"] = _number(1)
    elif change.start_s is not None:
        body["begin_time"] = _number(int(change.start_s))
    if change.nodes is not None:
        body |= {"minimum_nodes": change.nodes, "maximum_nodes": change.nodes}
    for key, plain in (
        ("tasks", change.tasks),
        ("cpus_per_task", change.cpus_per_task),
        ("minimum_cpus", change.cpus),
        ("site_factor", change.site_factor),
        ("partition", None if change.partitions is None else ",".join(change.partitions)),
        ("required_nodes", list(change.node_list) if change.node_list else None),
        ("tres_per_node", None if change.gpus_per_node is None else f"gres/gpu:{change.gpus_per_node}"),
        ("memory_per_node", None if change.memory_mb is None else _number(change.memory_mb)),
        ("time_limit", None if change.limit_min is None else _number(change.limit_min)),
    ):
        if plain is not None:
            body[key] = plain
    return body


def _number(number: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": number}


def _plain(answer: httpx.Response) -> list[tuple[str, str]]:
    """Headers of a body that is unpacked already."""
    packing = {"content-encoding", "content-length", "transfer-encoding"}
    return [(name, value) for name, value in answer.headers.items() if name.lower() not in packing]


def _is_json(answer: httpx.Response) -> bool:
    return "json" in answer.headers.get("content-type", "")


def _parsed(answer: httpx.Response) -> dict[str, Any]:
    if not _is_json(answer):
        return {}
    try:
        found = answer.json()
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {**found, **{key: _entries(found.get(key)) for key in ("errors", "status")}}


def _entries(found: Any) -> list[Mapping[str, Any]]:
    """A list of objects, whatever stands there: one in other words is an entry that says so."""
    entries = found if isinstance(found, list) else [found] if found else []
    return [each if isinstance(each, Mapping) else {"error": str(each)} for each in entries]


def _number_of(error: Mapping[str, Any], key: str) -> int:
    """Slurm's number of an error; 0 where none is told."""
    found = error.get(key)
    return found if isinstance(found, int) else 0


def _refused(answer: httpx.Response, parsed: Mapping[str, Any], version: str) -> bool:
    numbers = {_number_of(error, "error_number") for error in parsed.get("errors") or ()}
    if version == "v0.0.38" and _UNSPECIFIED in numbers:
        return True
    return answer.status_code == 401 or _AUTHENTICATION in numbers


def _sentence(error: Mapping[str, Any]) -> str:
    """Slurm's own; the error's description where there is no such sentence."""
    return str(error.get("error") or error.get("description") or "Slurm gave no reason")


def _error(error: Mapping[str, Any], doing: str) -> TryLater | Exception:
    if _number_of(error, "error_number") in _ALREADY_GONE:
        return Gone(f"{doing}: {_sentence(error)}")
    return port_error(_sentence(error), doing)


def _slurm(body: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = body.get("meta")
    found = (meta.get("slurm") or meta.get("Slurm")) if isinstance(meta, Mapping) else None
    return found if isinstance(found, Mapping) else {}
