"""Metrics of stores for Prometheus: `REGISTRY.register(StoreCollector(app=store))`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from roost.batching.stats import BUCKETS, Histogram, Stats
from roost.store.store import AsyncStore, Store

COUNTERS = {
    "batches": ("roost_store_batches", "Transactions that were committed."),
    "operations": ("roost_store_operations", "Operations in them."),
    "retries": ("roost_store_retries", "Transactions that were undone and run again."),
    "overlaps": ("roost_store_overlaps", "Operations of a declaration that is not the stored one."),
    "reconnects": ("roost_store_reconnects", "Connections that were lost, or left, and replaced."),
    "moves": ("roost_store_moves", "Changes of the server, of several that the URL names."),
    "lookups": ("roost_store_lookups", "Lost COMMITs whose outcome was looked up."),
    "unknown": ("roost_store_unknown_outcomes", "Calls whose outcome could not be looked up."),
}
WAITS = {"waits": "lock", "slow": "row", "outages": "server"}
SIZES = (1, 14)  # the exponents of the first and the last power of two that is a bound
MICROS = (6, 26)


class StoreCollector(Collector):
    """Collects the metrics of this process's stores, each with its name as the label `store`."""

    def __init__(self, **stores: Store | AsyncStore) -> None:
        self._stores = stores

    def collect(self) -> Iterator[Metric]:
        """Yield each metric, with a sample for each store."""
        found = {name: store.stats() for name, store in self._stores.items()}
        for field, (metric, help_text) in COUNTERS.items():
            counter = CounterMetricFamily(metric, help_text, labels=["store"])
            for name, stats in found.items():
                counter.add_metric([name], getattr(stats, field))
            yield counter
        waits = CounterMetricFamily("roost_store_waits", "What was waited for.", labels=["store", "cause"])
        for name, stats in found.items():
            for field, cause in WAITS.items():
                waits.add_metric([name, cause], getattr(stats, field))
        yield waits
        yield _histogram("roost_store_batch_operations", "Operations of a transaction.", found, "sizes", SIZES, 1)
        yield _histogram("roost_store_call_seconds", "From the call to its COMMIT.", found, "micros", MICROS, 1e-6)


def _histogram(
    metric: str, help_text: str, found: dict[str, Stats], field: str, bounds: tuple[int, int], unit: float
) -> Metric:
    made = HistogramMetricFamily(metric, help_text, labels=["store"])
    for name, stats in found.items():
        histogram: Histogram = getattr(stats, field)
        below = list(accumulate(histogram.counts))
        buckets = [(str(float(f"{(2**n - 1) * unit:.9g}")), float(below[n])) for n in range(bounds[0], bounds[1] + 1)]
        made.add_metric([name], [*buckets, ("+Inf", float(below[BUCKETS - 1]))], sum_value=histogram.total * unit)
    return made
