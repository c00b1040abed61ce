"""What somebody else uses of a node stays his while a job of ours comes or goes beside him."""

from __future__ import annotations

from dataclasses import replace

import pytest

from horae.port import JobState, TryLater, attend
from tests.yarn_bridge.memory_site import SPEC, Site
from yarn_bridge.clients.records import NodeReport
from yarn_bridge.jobs.reading import Others
from yarn_bridge.jobs.room import Held

A_STRANGERS = 1


def foreign(site: Site) -> int:
    return attend(site.port).nodes[0].foreign


def test_a_strangers_gpu_is_not_offered_while_our_gang_forms_beside_it(site: Site) -> None:
    site.yarn.lag["n1"] = A_STRANGERS
    assert foreign(site) == 1
    site.yarn.room = {"n1": 0}  # none of ours is there yet: all that the node tells of is the stranger's
    site.port.submit("job", SPEC)
    site.port.submit("next", replace(SPEC, name="next"))
    site.port.start("job", {"n1": 3}, 1)
    assert foreign(site) == 1
    with pytest.raises(TryLater):
        site.port.start("next", {"n1": 1}, 1)


def test_a_strangers_gpu_is_not_offered_when_our_job_has_left(site: Site) -> None:
    site.yarn.lag["n1"] = A_STRANGERS
    attend(site.port)
    names = site.running({"n1": 3})
    site.now_s += 10.0
    assert foreign(site) == 1
    site.port.checkpoint_and_stop("job", 5.0)
    site.acknowledge(names, 1, "stopped", 86, 1.0)
    for _ in range(3):  # the node has told of all that left, long before our word for it is over
        site.now_s += 1.0
        assert foreign(site) == 1
    assert site.look().state is JobState.STOPPED
    with pytest.raises(TryLater):
        site.port.start("job", {"n1": 4}, 2)
    site.port.start("job", {"n1": 3}, 2)


@pytest.mark.parametrize("ending", [0, 1, 3])
def test_what_a_stranger_takes_the_moment_that_our_gang_ends_is_his(site: Site, ending: int) -> None:
    """All three that our job had are used when it has stopped: by its own containers, as many as still end, or by
    somebody who came. For ten seconds all of them were believed ours, and offered."""
    names = site.running({"n1": 3})
    site.port.checkpoint_and_stop("job", 5.0)
    site.acknowledge(names, 1, "stopped", 86, 1.0)
    site.yarn.lag["n1"], site.yarn.ending["n1"] = 3, ending
    for _ in range(3):
        site.now_s += 1.0
        found = attend(site.port)
    assert found.jobs[0].state is JobState.STOPPED
    assert found.nodes[0].foreign == 3 - ending
    site.port.submit("next", replace(SPEC, name="next"))
    if ending < 3:
        with pytest.raises(TryLater):
            site.port.start("next", {"n1": 2 + ending}, 1)
    site.port.start("next", {"n1": 1 + ending}, 1)


def test_a_stranger_who_leaves_meanwhile_is_seen_once_all_is_settled(site: Site) -> None:
    site.yarn.lag["n1"] = A_STRANGERS
    attend(site.port)
    site.running({"n1": 3})
    site.yarn.lag["n1"] = 0
    site.now_s += 10.0
    assert foreign(site) == 0


def report(gpus: int, cpus: int = 0, memory_mib: int = 0) -> NodeReport:
    found = Site().yarn.nodes()[0]
    return replace(found, gpus_used=gpus, cpus_used=cpus, memory_used_mib=memory_mib)


@pytest.mark.parametrize(
    ("told", "held", "back", "moves", "found"),
    [
        (report(1, 4, 900), Held(3, 3, 300), 0, True, Held(1, 4, 900)),  # ours are not there yet
        (report(3, 6, 1100), Held(3, 3, 300), 0, True, Held(1, 4, 900)),  # two of three are
        (report(4, 7, 1200), Held(3, 3, 300), 0, True, Held(1, 4, 900)),
        (report(4, 7, 1200), Held(), 3, True, Held(1, 7, 1200)),  # given back, and not told of
        (report(1, 4, 900), Held(), 3, False, Held(1, 4, 900)),
        (report(3, 4, 900), Held(1, 1, 100), 0, True, Held(2, 4, 900)),  # somebody else came: he cannot be ours
        (report(0, 0, 0), Held(3, 3, 300), 0, True, Held(0, 0, 0)),  # he left
        (report(3, 3, 300), Held(3, 3, 300), 0, False, Held(0, 0, 0)),  # ours alone, and settled
    ],
)
def test_others_are_what_was_certain_within_what_is_told(
    told: NodeReport, held: Held, back: int, moves: bool, found: Held
) -> None:
    others = Others()
    assert others.look([report(1, 4, 900)], {}, {}, ()) == {told.host: Held(1, 4, 900)}
    returning = {told.host: back} if back else {}
    assert others.look([told], {told.host: held}, returning, {told.host} if moves else ()) == {told.host: found}
    assert others.gpus(told.host) == found.gpus
