"""Slices under Kerberos: each with a token of its own, and made anew before one of them ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from horae.port import JobState, Never
from tests.yarn_bridge.memory_site import SPEC
from tests.yarn_bridge.slice_site import SliceSite, running
from yarn_bridge.adapter import YarnCluster
from yarn_bridge.jobs.state_machine import RENEWED
from yarn_bridge.runtimes.slice_tokens import HdfsToken


class Tokens:
    """One a call, as a NameNode gives them."""

    def __init__(self) -> None:
        self.got, self.cancelled = list[str](), list[str]()

    def get(self, owner: str) -> HdfsToken:
        self.got.append(owner)
        return HdfsToken(b"identifier", f"password {len(self.got)}".encode(), b"kind", b"nn:8020")

    def cancel(self, token: HdfsToken, owner: str) -> None:
        self.cancelled.append(token.word)

    def close(self) -> None:
        """Nothing is open."""


class SecuredSite(SliceSite):
    """A ResourceManager that remembers what it was given, where tokens live 1,000 s."""

    def __init__(self) -> None:
        self.tokens, self.given, self.refuses, self.diagnostics = Tokens(), list[str](), "", ""
        super().__init__(auth="kerberos", principal="horae@LAB", token_life_s=1000.0)
        submit = self.manager.submit

        def remember(body: Mapping[str, Any], owner: str) -> None:
            if self.refuses:
                raise Never(self.refuses)
            (entry,) = body["am-container-spec"]["credentials"]["tokens"]["entry"]
            self.given.append(entry["value"])
            submit(body, owner)
            key = body["application-id"]
            listed = self.manager.listed
            listed[key] = replace(listed[key], submitted_s=self.now_s, diagnostics=self.diagnostics)

        self.manager.submit = remember  # type: ignore[method-assign]

    def connect(self) -> YarnCluster:
        made: Any = super().connect()
        made._executor.by_slices._tokens = self.tokens
        return made  # type: ignore[no-any-return]


def test_every_slice_has_a_token_of_its_own() -> None:
    """YARN cancels a token with the application that brought it: the others would lose theirs."""
    site = SecuredSite()
    site.port.submit("job", SPEC)
    running(site, {"n1": 1, "n2": 1})
    assert site.tokens.got == ["horae", "horae"]
    assert len(set(site.given)) == 2
    assert site.tokens.cancelled == []
    files = b"".join(site.hdfs.files.values())
    assert not any(word.encode() in files for word in site.given), "a token is written nowhere"


def test_slices_are_made_anew_before_a_token_ends() -> None:
    site = SecuredSite()
    site.port.submit("job", SPEC)
    names = running(site, {"n1": 1})
    # Young: the slice stays, and its token counts for the job, though the other one is younger.
    site.now_s += 300.0
    site.port.reshape("job", {"n1": 1, "n2": 1}, 2)
    site.acknowledge(names, 1, "stopped", 86, step=10.0)
    site.look()
    names = site.register()
    assert site.look().state is JobState.RUNNING
    assert len(site.given) == 2
    # A resize once the oldest has worn: no slice is kept.
    site.now_s += 200.0
    site.port.reshape("job", {"n1": 1, "n2": 2}, 3)
    site.acknowledge(names, 2, "stopped", 86, step=20.0)
    for _ in range(3):
        site.look()
    assert not set(site.manager.living) & set(names)
    names = site.register()
    assert (site.look().state, site.manager.shape) == (JobState.RUNNING, ["n1/1", "n2/2"])
    assert len(site.given) == 4
    # Nobody resizes: it is stopped at a checkpoint.
    site.now_s += 690.0
    assert (site.look().state, site.gate()["state"]) == (JobState.STOPPING, "stop")
    site.acknowledge(names, 3, "stopped", 86, step=40.0)
    seen = site.look()
    assert (seen.state, seen.native, site.manager.shape) == (JobState.STOPPED, RENEWED, [])
    running(site, {"n1": 1}, 4)


def test_the_token_of_a_slice_that_was_refused_is_given_back() -> None:
    site = SecuredSite()
    site.port.submit("job", SPEC)
    site.refuses = "alice may not submit to root.horae"
    with pytest.raises(Never, match="may not submit"):
        site.port.start("job", {"n1": 1}, 1)
    assert (len(site.tokens.got), len(site.tokens.cancelled)) == (1, 1)
    site.refuses = ""
    site.manager.answers_lost = True  # it may have been taken, and then it needs its token
    site.port.start("job", {"n1": 1}, 1)
    assert (len(site.tokens.got), len(site.tokens.cancelled)) == (2, 1)


def test_a_token_that_cannot_be_renewed_is_told_as_that() -> None:
    site = SecuredSite()
    site.port.submit("job", SPEC)
    site.manager.fails, site.diagnostics = (
        True,
        "Failed to renew token: Kind: HDFS_DELEGATION_TOKEN, Service: ha-hdfs:x",
    )
    site.port.start("job", {"n1": 1}, 1)
    for _ in range(6):
        seen = site.look()
    assert seen.state is JobState.LOST
    assert "ha-hdfs:x" in seen.native
    assert "fs.defaultFS" in seen.native
