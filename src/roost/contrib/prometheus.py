"""Metrics of stores and of structures for Prometheus: `REGISTRY.register(StoreCollector(app=store))`."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import accumulate
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from roost.batching.stats import BUCKETS, Histogram, Stats
from roost.catalog.catalog import listed
from roost.catalog.measure import Count, Measure, measure, oldest_snapshot
from roost.errors import Invalid, Missing, StatementFailed
from roost.store.store import AsyncStore, Store
from roost.structures.plan import Context
from roost.structures.registry import from_definition, plan_for

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

GAUGES = {
    "keys": ("roost_structure_keys", "Keys of a structure."),
    "rows": ("roost_structure_rows", "Rows of a structure."),
    "bytes": ("roost_structure_bytes", "Bytes of its tables and indexes; of a cache with bounds, of keys and values."),
    "bound": ("roost_structure_bound_ratio", "The part of its room that is taken, from 0 to 1."),
    "backlog": ("roost_expired_backlog_rows", "Expired rows that later writes will delete."),
    "dead": ("roost_dead_rows", "Versions of rows that VACUUM has not yet removed (PostgreSQL)."),
}
SNAPSHOT = ("roost_oldest_snapshot_seconds", "Age of the oldest snapshot of a transaction (PostgreSQL).")
SECONDS = 5.0  # for all that is read at once


class StructureCollector(Collector):
    """Collects how full the structures of a store's database are, each with its name as the label `structure`.

    It reads up to 10,000 rows of each by an index, whenever it is asked: let one process of all report them. Beyond
    that a number is the database's own estimate; what is not known has no sample.
    """

    def __init__(self, store: Store | AsyncStore) -> None:
        self._store = store

    def collect(self) -> Iterator[Metric]:
        try:
            found, age = self._store._core.glance(self._measured, SECONDS, alone=True)
        except Missing:  # there is no database, or no catalog, yet
            found, age = {}, None
        for field, (metric, help_text) in GAUGES.items():
            gauge = GaugeMetricFamily(metric, help_text, labels=["structure"])
            for name, measured in found.items():
                value = getattr(measured, field)
                if value is not None:
                    gauge.add_metric([name], value.n if isinstance(value, Count) else value)
            yield gauge
        snapshot = GaugeMetricFamily(*SNAPSHOT)
        if age is not None:
            snapshot.add_metric([], age)
        yield snapshot

    def _measured(self, context: Context) -> Generator[Any, Any, tuple[dict[str, Measure], float | None]]:
        dialect = self._store._core.engine.dialect
        found = {}
        for name, _, definition in (yield from listed(self._store._core.known.catalog)):
            try:
                plan = plan_for(from_definition(definition), dialect)
            except Invalid:  # `check` reports it
                continue
            try:
                found[name] = yield from measure(plan, context)
            except (
                Missing
            ) as error:  # a table of a structure that is there: an error, where no metrics would be silence
                raise StatementFailed(str(error)) from error
        return found, (yield from oldest_snapshot(dialect))


class StoreCollector(Collector):
    """Collects the metrics of this process's stores, each with its name as the label `store`."""

    def __init__(self, **stores: Store | AsyncStore) -> None:
        self._stores = stores

    def collect(self) -> Iterator[Metric]:
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
