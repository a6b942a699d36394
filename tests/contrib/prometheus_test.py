"""What a store counts, and how full its structures are, as Prometheus reads it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

import roost
from roost.contrib.prometheus import StoreCollector, StructureCollector
from roost.contrib.windows import Windows
from roost.server.http import Metrics
from tests.faults.messages import committing
from tests.proxy import Cut, Proxy
from tests.suite.shapes import Egg, Visit, baskets, by_hand, likes, pageviews, visits


def exposed(collector: Collector) -> dict[tuple[str, ...], float]:
    """Every sample, by its name and the values of its labels."""
    registry = CollectorRegistry()
    registry.register(collector)
    return {
        (
            sample.name.removeprefix("roost_").removeprefix("store_"),
            *[text for _, text in sorted(sample.labels.items())],
        ): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


def samples(**stores: roost.Store | roost.AsyncStore) -> dict[tuple[str, ...], float]:
    return exposed(StoreCollector(**stores))


def measured(store: roost.Store | roost.AsyncStore) -> dict[tuple[str, ...], float]:
    """Every sample of how full structures are, by its name and structure."""
    return exposed(StructureCollector(store))


def test_calls_and_batches_are_counted_by_their_size_and_time(url: str) -> None:
    async def awaited() -> dict[tuple[str, ...], float]:
        async with roost.AsyncStore(url) as store:
            await asyncio.gather(*[store.run(pageviews.add("/")) for _ in range(40)])
            return samples(web=store)

    with roost.Store(url) as store:
        store.create(pageviews)
        for _ in range(3):
            store.run(pageviews.add("/"))
        store.run_all(*[pageviews.add("/")] * 40)
        store.run(pageviews.total("/"))
        found = samples(app=store)
        assert found["operations_total", "app"] == 44
        assert found["batches_total", "app"] == found["batch_operations_count", "app"] == 5
        assert found["batch_operations_sum", "app"] == 44
        assert found["batch_operations_bucket", "1.0", "app"] == 4
        assert found["batch_operations_bucket", "31.0", "app"] == 4
        assert found["batch_operations_bucket", "63.0", "app"] == 5
        assert found["call_seconds_count", "app"] == found["call_seconds_bucket", "+Inf", "app"] == 5
        assert 0 < found["call_seconds_sum", "app"] < 60
        again = asyncio.run(awaited())
    assert again["call_seconds_count", "web"] == again["operations_total", "web"] == 40
    assert again["batches_total", "web"] < 40


def test_what_befalls_a_connection_is_counted(server_url: str) -> None:
    with Proxy(urlsplit(server_url).port or 0) as proxy, roost.Store(proxy.url(server_url), timeout=20) as store:
        store.create(pageviews, visits)
        store.run(pageviews.add("/"))
        before = samples(app=store)
        assert before["reconnects_total", "app"] == before["lookups_total", "app"] == 0
        proxy.arm(committing(server_url), Cut.AFTER)  # of a single write: its COMMIT
        store.run(pageviews.add("/"))
        found = samples(app=store)
        assert found["reconnects_total", "app"] == found["lookups_total", "app"] == 1
        assert found["unknown_outcomes_total", "app"] == found["moves_total", "app"] == 0
        assert store.run(pageviews.total("/")) == 2
        for number, read in enumerate((pageviews.total("/"), visits.latest(7))):
            store.run(read)
            proxy.arm(0, Cut.BEFORE)  # of a single read
            store.run(read)
            assert samples(app=store)["reconnects_total", "app"] == 2 + number


def test_an_outcome_that_cannot_be_looked_up_is_counted(server_url: str) -> None:
    with Proxy(urlsplit(server_url).port or 0) as proxy, roost.Store(proxy.url(server_url), timeout=1) as store:
        store.create(pageviews)
        store.run(pageviews.add("/"))
        proxy.arm(committing(server_url), Cut.AFTER, again=0, endless=True)
        with pytest.raises(roost.OutcomeUnknown):
            store.run(pageviews.add("/"))
        found = samples(app=store)
        assert found["unknown_outcomes_total", "app"] == 1
        assert found["waits_total", "server", "app"] == 1
        proxy.disarm()
        assert store.run(pageviews.total("/")) in (1, 2)


def test_how_full_structures_are(any_url: str) -> None:
    sessions = roost.Cache("sessions", max_items=4, max_bytes=1_000)
    online = roost.Set("online", key=int, member=int, keep_for=3600)
    views = roost.Counter("views", window="hour", keep=2, slots=1)
    hits: Windows[str] = Windows("hits")
    with roost.Store(any_url) as store:
        assert measured(store).keys() <= {("oldest_snapshot_seconds",)}
        store.create(visits, baskets, likes, pageviews, sessions, online, views, hits)
        store.run_all(hits.hit("ada", 60), hits.take("bob", 5, 60))
        store.run_all(*[visits.push(Visit(uid, n)) for uid in (5, 6) for n in range(uid)])
        store.run_all(*[baskets.add(Egg(1, n)) for n in range(6)], likes.add(7, "ada", "bob"), views.add("/"))
        store.run_all(*[sessions.set(f"k{n}", b"12345678") for n in range(3)], online.add(1, 2, 3))
        found = measured(store)
        assert found["structure_keys", "visits"] == 2
        assert found["structure_rows", "visits"] == 10
        assert found["structure_bound_ratio", "visits"] == 1
        assert found["structure_rows", "baskets"] == 6
        assert found["structure_bound_ratio", "baskets"] == 0.5
        assert found["structure_rows", "likes"] == 2
        assert ("structure_bound_ratio", "likes") not in found
        assert found["structure_rows", "sessions"] == 3
        assert found["structure_bytes", "sessions"] == 30
        assert found["structure_bound_ratio", "sessions"] == 0.75
        assert found["structure_keys", "pageviews"] == 0
        assert found["structure_rows", "views"] == found["structure_keys", "views"] == 1
        assert found["expired_backlog_rows", "online"] == found["expired_backlog_rows", "views"] == 0
        assert ("expired_backlog_rows", "visits") not in found
        assert (found["structure_keys", "hits"], found["expired_backlog_rows", "hits"]) == (2, 0)
        by_hand(store, "UPDATE roost_online_rows SET until = 1", "UPDATE roost_views_rows SET start = 0")
        by_hand(store, "UPDATE roost_hits_head SET until = 1 WHERE newest = 0")
        now = measured(store)
        assert (now["expired_backlog_rows", "online"], now["expired_backlog_rows", "hits"]) == (2, 1)
        assert now["structure_rows", "online"] == 2
        server = any_url.partition(":")[0]
        assert (("structure_bytes", "visits") in now) is (server != "sqlite")
        assert (("dead_rows", "visits") in now) is (("oldest_snapshot_seconds",) in now) is (server == "postgresql")
        by_hand(store, "DELETE FROM roost_views_rows")


def test_beyond_what_is_counted_it_is_told_as_the_least_or_the_estimate(
    any_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.catalog.measure.MOST", 50)
    with roost.Store(any_url) as store:
        store.create(visits)
        store.run_all(*[visits.push(Visit(n, n)) for n in range(60)])
        found = measured(store)
        assert found["structure_keys", "visits"] == 50
        assert found["structure_rows", "visits"] >= 50


def test_a_table_that_is_missing_is_no_silence(any_url: str) -> None:
    with roost.Store(any_url) as store:
        assert not [name for name in measured(store) if name[0].startswith("structure_")]  # there is no database yet
        store.create(visits, likes)
        by_hand(store, "DROP TABLE roost_likes_head" + " CASCADE" * any_url.startswith("postgresql"))
        with pytest.raises(roost.StatementFailed, match="roost_likes_head"):
            measured(store)
        store.drop(likes)
        assert measured(store)["structure_keys", "visits"] == 0


def test_metrics_of_an_asynchronous_store(url: str) -> None:
    async def main() -> dict[tuple[str, ...], float]:
        async with roost.AsyncStore(url) as store:
            await store.create(pageviews)
            await store.run(pageviews.add("/"))
            return await asyncio.to_thread(measured, store)

    assert asyncio.run(main())["structure_rows", "pageviews"] == 1


def test_metrics_leave_no_limit_on_the_applications_reads(server_url: str) -> None:
    with roost.Store(server_url, timeout=60) as store:
        store.create(pageviews)
        store.run(pageviews.total("/"))
        links = store._core._readers
        before = [link.connection for link in links]
        assert measured(store)["structure_rows", "pageviews"] == 0
        assert [link.connection for link in links] == before


# --- the dashboard and the alerts ---------------------------------------------------------------------------------

FOLDER = Path(__file__).parents[2] / "contrib" / "grafana"


@pytest.fixture(scope="module")
def names() -> set[str]:
    """The metrics of a store, of its structures and of `roost serve`, as /metrics names them."""
    with roost.Store("sqlite://") as store:
        store.create(pageviews)
        registry = CollectorRegistry()
        for each in (StoreCollector(app=store), StructureCollector(store), Metrics([])):
            registry.register(each)
        return {*re.findall(r"^# TYPE (\w+) ", generate_latest(registry).decode(), re.MULTILINE)}


def expressions() -> Iterator[str]:
    panels: list[dict[str, Any]] = json.loads((FOLDER / "roost.json").read_text())["panels"]
    for panel in panels:
        yield from [target["expr"] for target in panel["targets"]]
    yield from re.findall(r"expr: (.*)", (FOLDER / "alerts.yml").read_text())


@pytest.mark.parametrize("expression", [*expressions()])
def test_every_metric_that_is_asked_for_exists(names: set[str], expression: str) -> None:
    asked = re.findall(r"\broost_\w+", expression)
    assert asked
    assert [name for name in asked if name.removesuffix("_bucket") not in names] == []
