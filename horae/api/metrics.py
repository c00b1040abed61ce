"""Numbers for Prometheus, made from one status at every scrape. Everything begins with `horae_`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from horae import __version__


def render(status: Mapping[str, Any]) -> str:
    """The text form of all metrics of `status`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Status(status))
    return generate_latest(registry).decode()


class _Status(Collector):
    def __init__(self, status: Mapping[str, Any]) -> None:
        self._status = status

    def collect(self) -> Iterable[Metric]:
        status = self._status
        yield InfoMetricFamily("horae_arbiter", "The arbiter.", {"version": __version__, "cluster": status["cluster"]})
        yield from _gpus(status)
        yield from _jobs(status)
        yield from _tenants(status)
        decisions = CounterMetricFamily("horae_decisions", "Decisions taken.", labels=["pool", "policy"])
        for pool in status["pools"]:
            decisions.add_metric([pool["name"], pool["policy"]], pool["decisions"])
        yield decisions
        alerts = GaugeMetricFamily("horae_alerts", "Things an operator should know.")
        alerts.add_metric([], len(status["alerts"]))
        yield alerts


def _gpus(status: Mapping[str, Any]) -> Iterable[Metric]:
    gpus = GaugeMetricFamily("horae_gpus", "GPUs by what holds them.", labels=["gpu_type", "state"])
    counts: Counter[tuple[str, str]] = Counter()
    for node in status["nodes"]:
        kind, held, foreign = node["gpu_type"], node["held"], node["foreign"]
        counts[kind, "held"] += held
        counts[kind, "foreign"] += foreign
        rest = max(node["gpus"] - held - foreign, 0)
        counts[kind, "idle" if node["health"] == "up" else node["health"]] += rest
    for (kind, state), number in sorted(counts.items()):
        gpus.add_metric([kind, state], number)
    yield gpus


def _jobs(status: Mapping[str, Any]) -> Iterable[Metric]:
    unused = GaugeMetricFamily("horae_gpus_unused", "GPUs that jobs hold and do not use.", labels=["tenant"])
    counts = Counter[str]()
    private = set()  # of a tenant, not all is known to who asks: less would be a wrong number
    for job in status["jobs"]:
        counts[job["tenant"]] += job.get("unused_gpus", 0)
        if "unused_gpus" not in job:
            private.add(job["tenant"])
    for tenant in sorted(counts.keys() - private):
        unused.add_metric([tenant], counts[tenant])
    yield unused
    jobs = GaugeMetricFamily("horae_jobs", "Jobs by state.", labels=["tenant", "state"])
    for (tenant, state), number in sorted(Counter((j["tenant"], j["state"]) for j in status["jobs"]).items()):
        jobs.add_metric([tenant, state], number)
    yield jobs
    resizes = CounterMetricFamily("horae_resizes", "Times that remembered jobs were stopped to be resized.")
    resizes.add_metric([], sum(j["resizes"] for j in status["jobs"]))
    yield resizes


def _tenants(status: Mapping[str, Any]) -> Iterable[Metric]:
    for key, name, words in (
        ("held", "horae_tenant_gpus", "GPUs a tenant holds."),
        ("fair", "horae_tenant_fair_gpus", "GPUs a tenant is owed now."),
        ("gpu_s", "horae_tenant_gpu_seconds", "GPU time of a tenant's remembered jobs."),
    ):
        gauge = GaugeMetricFamily(name, words, labels=["tenant"])
        for tenant in status["tenants"]:
            gauge.add_metric([tenant["name"]], tenant[key])
        yield gauge
