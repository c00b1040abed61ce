"""The quick ways of a placement find what the plain ones find, at every step of random days."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from policy.model import EMPTY, Allocation, Job, Snapshot
from policy.places.gangs import need_of
from policy.places.placement import Placer
from tests.policy.crowds import crowd
from tests.policy.worlds import choosy

SEEDS = range(40)


def world(seed: int) -> Snapshot:
    made = crowd(seed, 60)
    return choosy(made, seed) if seed % 3 == 0 else made


def a_day(placer: Placer, jobs: list[Job], rng: Random) -> list[Allocation | None]:
    """What is found when jobs come and go."""
    found: list[Allocation | None] = []
    for _ in range(3):
        for job in rng.sample(jobs, len(jobs)):
            if job.name in placer.taken:
                if rng.random() < 0.5:
                    placer.give_back(job)
                continue
            size = job.gpus.at_most(rng.randint(1, 12)) or job.gpus.min
            place = placer.best(job, size)
            found.append(place)
            if place is not None and placer.could_take(job, place):
                placer.take(job, place)
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_a_gang_on_one_node_is_found_where_the_whole_search_finds_it(seed: int) -> None:
    snapshot, rng = world(seed), Random(seed)
    placer = Placer(snapshot)
    waiting = [job for job in snapshot.jobs if not job.allocation]
    quick = 0
    for job in rng.sample(waiting, len(waiting)):
        size = job.gpus.at_most(rng.randint(1, 8)) or job.gpus.min
        found = placer._on_one_node(job, need_of(job), size, None)
        if found is not None:
            quick += 1
            assert found == placer._search(job, need_of(job), size, None, EMPTY)
        if (place := placer.best(job, size)) is not None and placer.could_take(job, place):
            placer.take(job, place)
    assert quick or not placer.taken.keys() & {job.name for job in waiting}


@pytest.mark.parametrize("seed", SEEDS)
def test_books_by_rack_that_begin_late_say_what_those_from_the_start_say(seed: int) -> None:
    snapshot = world(seed)
    early, late = Placer(snapshot), Placer(snapshot)
    early._classes_by_rack()
    jobs = list(snapshot.jobs)
    assert a_day(early, jobs, Random(seed)) == a_day(late, jobs, Random(seed))
    assert early.taken == late.taken
    books = (early._classes_by_rack(), late._classes_by_rack())
    orders = [[list(racks) for racks in by.values()] for by in books]
    assert orders[0] == orders[1]
    full = [{t: {r: c for r, c in racks.items() if c} for t, racks in by.items()} for by in books]
    assert full[0] == full[1]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_take_on_one_node_leaves_the_books_that_any_other_way_leaves(seed: int) -> None:
    snapshot, rng = world(seed), Random(seed)
    quick, any_way = Placer(snapshot), Placer(snapshot)
    any_way._take_one = any_way._take_any  # type: ignore[method-assign]
    for job in rng.sample(snapshot.jobs, len(snapshot.jobs)):
        place = quick.best(job, job.gpus.at_most(rng.randint(1, 8)) or job.gpus.min)
        if place is None or not quick.could_take(job, place):
            continue
        quick.take(job, place)
        any_way.take(job, place)
        assert quick._nodes == any_way._nodes
        assert quick._by_type == any_way._by_type
        for books in ("taken", "_used", "_stay", "_claims", "_free", "_closed", "_beside", "_racks"):
            assert getattr(quick, books) == getattr(any_way, books)
    assert quick.taken


def twins(seed: int) -> tuple[Snapshot, list[Job], int]:
    """A crowd without caps, and jobs of one kind that wait there, all of them for as many GPUs."""
    made, rng = crowd(seed, 40), Random(seed)
    one = next((job for job in made.jobs if job.cpus_per_gpu is None), replace(made.jobs[0], cpus_per_gpu=None))
    size = one.gpus.at_most(rng.randint(1, 4)) or one.gpus.min
    alike = [replace(one, name=f"twin{i:02}", app=f"twin{i:02}", allocation=EMPTY) for i in range(30)]
    holding = tuple(job for job in made.jobs if job.allocation)
    free = tuple(replace(tenant, cap=None) for tenant in made.tenants)
    return replace(made, jobs=(*holding, *alike), tenants=free), alike, size


@pytest.mark.parametrize("seed", range(60))
def test_jobs_that_are_alike_are_seated_where_each_by_itself_would_be(seed: int) -> None:
    snapshot, alike, size = twins(seed)
    together, each = Placer(snapshot), Placer(snapshot)
    for job in snapshot.jobs[: seed % 5]:  # some who hold something gave it up: of the others' nobody takes any yet
        together.drop(job)
        each.drop(job)
    assert all(map(together.plain, alike))
    seated = together.take_alike(alike, size)
    for job in alike[:seated]:
        place = each.best(job, size)
        assert place is not None and len(place) == 1
        each.take(job, place, sure=True)
    assert seated == len(alike) or each._on_one_node(alike[seated], need_of(alike[seated]), size, None) is None
    assert list(together.taken.items()) == list(each.taken.items())
    assert (together._by_type, together._free, together._used) == (each._by_type, each._free, each._used)
    assert together._classes_by_rack() == each._classes_by_rack()


def test_twins_find_seats_and_run_out_of_them() -> None:
    seats = []
    for seed in range(60):
        snapshot, alike, size = twins(seed)
        seats.append(Placer(snapshot).take_alike(alike, size))
    assert sum(1 < n < 30 for n in seats) > 20
