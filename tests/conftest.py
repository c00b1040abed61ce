"""What every test of the suite obeys.

* A test marked `root` acts as several users: it is skipped, with that reason, unless root runs it.
* A test marked `real` needs a daemon, a browser or a framework. Where it is missing the test is skipped; under
  CI=true or HORAE_REAL=1, where `tests/real/setup` installs everything, a skip is a failure; so is one of a `root`
  test that root runs there.
* The first of them that needs a cluster waits until its images are made, on a machine that others use too, and all
  tests of that cluster fail with it: it has longer than others before it counts as hung.
* A test marked `soak` runs only when soak tests are asked for; then the same holds for it.
* Ctrl-C means what it means in a terminal: a run in the background of a shell inherits an ignored SIGINT, and would
  hand it on to every program that a test starts and interrupts.
* Generated cases are the same in every run, so that a failure is the change's and not the dice's; `make soak` runs
  the same tests on new cases (HORAE_RANDOM=1).
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Generator
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.run import MARKED

# How long generating takes says something about the machine, and nothing about what is tested.
UNTIMED: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}
settings.register_profile("repeatable", derandomize=True, database=None, **UNTIMED)
settings.register_profile("random", **UNTIMED)
settings.load_profile("random" if os.environ.get("HORAE_RANDOM") == "1" else "repeatable")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: How long a real test may take, its cluster's first start in it, where the test does not say itself.
REAL_TIMEOUT_S = 1800

REAL = os.environ.get("CI") == "true" or os.environ.get("HORAE_REAL") == "1"


class Aloud:
    """Tells a failure when it happens: a run of everything takes long enough to begin mending meanwhile."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.getplugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.write_line(f"\nFAILED {report.nodeid} ({report.when}, {report.duration:.0f} s)")
            terminal.write_line(report.longreprtext[-1500:])


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # that is one of the processes that xdist starts
        config.pluginmanager.register(Aloud(config), "aloud")


@pytest.fixture(autouse=True)
def logging_as_at_first() -> Generator[None, None, None]:
    """A test that runs a command in this process leaves loggers behind that write to its captured, closed stderr."""
    yield
    structlog.reset_defaults()


def soaking(config: pytest.Config) -> bool:
    """Whether soak tests are asked for."""
    return names_soak(config.getoption("-m") or "")


def names_soak(marks: str) -> bool:
    """Whether an expression for -m asks for them: `make test` says `not soak`."""
    return re.search(r"(?<!\bnot )\bsoak\b", marks) is not None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    soak = soaking(config)
    for path in {item.path for item in items if {"real", "root"} & {mark.name for mark in item.iter_markers()}}:
        if not MARKED.search(path.read_text()):
            raise pytest.UsageError(f"{path}: mark its tests in the module itself, `make test` looks for them there")
    for item in items:
        if item.get_closest_marker("root") and os.getuid() != 0:
            item.add_marker(pytest.mark.skip(reason="acts as several users: root only (`make test` as root runs it)"))
        if item.get_closest_marker("real") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(REAL_TIMEOUT_S))
        if item.get_closest_marker("soak") and not soak:
            item.add_marker(pytest.mark.skip(reason="soak: `make soak` runs it"))


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests of one `xdist_group` share a cluster, so one process must run them: pytest-xdist tells that by a test's
    name, which it changes where pytest 9.2 does not look any more, and brought up a cluster for each of its processes.
    """
    groups = sorted(str(mark.args[0]) for mark in item.iter_markers("xdist_group"))
    named = getattr(item, "id", None)  # older ones have none, and need no help
    if groups and named is not None and getattr(item.config.option, "loadgroup", False):
        item._id = type(named).parse(f"{item.nodeid}@{'_'.join(groups)}")  # type: ignore[attr-defined]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    left_out = item.get_closest_marker("soak") and not soaking(item.config)
    must = item.get_closest_marker("real") or (item.get_closest_marker("root") and os.getuid() == 0)
    if REAL and report.skipped and must and not left_out and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"a test was skipped where it must run: {_reason(report.longrepr)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if REAL and report.skipped and "real" in collector.path.parts:
        report.outcome = "failed"
        report.longrepr = f"a module of `real` tests was skipped where it must run: {_reason(report.longrepr)}"
    return report


def _reason(longrepr: object) -> str:
    return str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr)
