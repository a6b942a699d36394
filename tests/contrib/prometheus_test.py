"""What a store counts, as Prometheus reads it."""

from __future__ import annotations

import asyncio
import threading
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import roost
from roost.contrib.prometheus import StoreCollector
from tests.faults.messages import committing
from tests.proxy import Cut, Proxy
from tests.suite.shapes import pageviews, visits


def samples(**stores: roost.Store | roost.AsyncStore) -> dict[tuple[str, ...], float]:
    """Every sample, by its name and the values of its labels."""
    registry = CollectorRegistry()
    registry.register(StoreCollector(**stores))
    text = generate_latest(registry).decode()
    return {
        (
            sample.name.removeprefix("roost_store_"),
            *[sample.labels[name] for name in sorted(sample.labels)],
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


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
        unknown: list[BaseException] = []

        def call() -> None:
            try:
                store.run(pageviews.add("/"))
            except roost.OutcomeUnknown as error:
                unknown.append(error)

        caller = threading.Thread(target=call)
        caller.start()
        caller.join()
        assert len(unknown) == 1
        found = samples(app=store)
        assert found["unknown_outcomes_total", "app"] == 1
        assert found["waits_total", "server", "app"] == 1
        proxy.disarm()
        assert store.run(pageviews.total("/")) in (1, 2)
