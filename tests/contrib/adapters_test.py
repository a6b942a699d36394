"""The adapters of other libraries, each on every database: values, what expires, what is atomic, what others plant."""

from __future__ import annotations

import asyncio
import logging
import pickle
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from aiocache import cached, caches  # type: ignore[import-untyped]
from aiocache.lock import OptimisticLock, OptimisticLockError, RedLock  # type: ignore[import-untyped]
from aiocache.serializers import JsonSerializer, PickleSerializer, StringSerializer  # type: ignore[import-untyped]
from celery import Celery, chord  # type: ignore[import-untyped]
from dogpile.cache import make_region
from dogpile.cache.api import NO_VALUE
from requests_cache import CachedSession

import roost
import roost.contrib.dogpile
from roost.contrib.aiocache import RoostCache as AioCache
from roost.contrib.requests_cache import RoostCache as RequestsCache
from roost.contrib.serializers import Signed
from roost.contrib.starsessions import RoostStore
from tests.campaigns.processes import at_once
from tests.contrib.serializers_test import Planted
from tests.suite import clients

LONG = "k" * 1000


@pytest.fixture
def planted(tmp_path: Path) -> Iterator[bytes]:
    yield pickle.dumps(Planted(tmp_path / "executed"))
    assert not (tmp_path / "executed").exists()


@pytest.fixture
def store(any_url: str) -> Iterator[roost.Store]:
    with roost.Store(any_url) as store:
        yield store
        assert store.check() == []


# --- dogpile.cache ------------------------------------------------------------------------------------------------


def region(url: str, **arguments: Any) -> Any:
    return make_region().configure("roost", expiration_time=60, arguments={"url": url, **arguments})


def test_a_region_of_dogpile(any_url: str, store: roost.Store, planted: bytes) -> None:
    found = region(any_url)
    assert (found.get("a"), found.get_or_create("a", lambda: ("made", 1)), found.get("a")) == (
        *(NO_VALUE, ("made", 1)),
        ("made", 1),
    )
    found.set_multi({"b": 1, LONG: [2], "c": None})
    assert found.get_multi(["b", LONG, "c", "d"]) == [1, [2], None, NO_VALUE]
    found.delete_multi(["b", "nowhere"])
    found.delete("c")
    assert found.get_multi(["b", "c"]) == [NO_VALUE, NO_VALUE]
    store.run(found.backend.cache.set("a", planted))
    assert (found.get("a"), found.get_or_create("a", lambda: "again")) == (NO_VALUE, "again")


def once(url: str, made: str) -> str:
    def create() -> str:
        time.sleep(0.2)
        with open(made, "a") as file:
            file.write("made\n")
        return "a value"

    found: str = region(url, lock_timeout=5).get_or_create("a", create)
    return found


@pytest.mark.spread
def test_one_process_computes_and_the_others_wait(any_url: str, tmp_path: Path) -> None:
    assert at_once(3, lambda _: once(any_url, f"{tmp_path}/made")) == ["a value"] * 3
    assert (tmp_path / "made").read_text() == "made\n"


def test_a_mutex_of_dogpile(any_url: str) -> None:
    backend = region(any_url, lock_timeout=1).backend
    mine, other = backend.get_mutex("a"), backend.get_mutex("a")
    assert (mine.locked(), mine.acquire(), other.acquire(wait=False), other.locked()) == (False, True, False, True)
    mine.release()
    assert (other.acquire(), mine.acquire(False)) == (True, False)
    other.release()
    assert not mine.locked()
    long = backend.get_mutex(LONG)
    assert long.acquire(False)
    long.release()


def test_nobody_computes_for_dogpile_while_the_database_is_locked(any_url: str) -> None:
    made: list[int] = []
    with roost.Store(any_url, timeout=0.1) as store, closing(clients.connect(any_url)) as other:
        found: Any = make_region().configure("roost", arguments={"store": store})
        assert found.get_or_create("a", lambda: 1) == 1
        other.execute("BEGIN")
        store.on(other).run(found.backend.locks.acquire("b", "another", 30))
        with pytest.raises(roost.Busy):
            found.get_or_create("b", lambda: made.append(1))
    assert made == []


# --- aiocache -----------------------------------------------------------------------------------------------------


def test_a_cache_of_aiocache(any_url: str, planted: bytes) -> None:
    async def main() -> None:
        async with AioCache(any_url, namespace="ns") as cache:
            assert await cache.get("a", "nothing") == "nothing"
            await cache.multi_set([("a", (1, b"b")), (LONG, {"c": 2})], ttl=60)
            assert await cache.multi_get(["a", LONG, "d"]) == [(1, b"b"), {"c": 2}, None]
            with pytest.raises(ValueError, match="already exists"):
                await cache.add("a", 1)
            assert [await cache.increment("n"), await cache.increment("n", -5), await cache.get("n")] == [1, -4, -4]
            with pytest.raises(TypeError):
                await cache.increment("a")
            assert (await cache.expire("a", 5), await cache.expire("nothing", 5), await cache.delete("a")) == (
                *(True, False),
                1,
            )
            assert (await cache.exists("a"), await cache.exists("n")) == (False, True)
            await cache.multi_set([("", 1), ("b", 1)])
            await cache.set("b", 1, namespace="other")
            await cache.clear(namespace="ns")
            assert await cache.multi_get(["", "b", "n"]) == [None] * 3
            assert await cache.get("b", namespace="other") == 1
            await cache.clear()
            assert await cache.get("b", namespace="other") is None
            await cache.set("a", 1)
            await cache._opened.run(cache.cache.set("ns:a", planted))
            assert await cache.get("a") is None
        for serializer, value in ((JsonSerializer(), [1]), (StringSerializer(), "1"), (PickleSerializer(), {1, 2})):
            async with AioCache(any_url, name="raw", serializer=serializer) as cache:
                await cache.set("a", value)
                assert await cache.get("a") == value
                if not isinstance(serializer, PickleSerializer):
                    await cache.set("n", 7)
                    assert await cache.increment("n", 2) == 9

    asyncio.run(main())


def test_aiocaches_decorator_and_settings_take_it(any_url: str) -> None:
    def key_of(key: str, namespace: str | None = None) -> str:
        return f"{namespace}/{key}"

    @cached(cache=AioCache, store=any_url, namespace="n")  # type: ignore[untyped-decorator]
    async def squared(n: int) -> dict[str, int]:
        return {"asked": next(asked), "squared": n * n}

    async def main() -> None:
        assert [await squared(3), await squared(3)] == [{"asked": 0, "squared": 9}] * 2
        await squared.cache.close()
        caches.set_config({"default": {"cache": "roost.contrib.aiocache.RoostCache", "store": any_url}})
        async with caches.get("default") as cache:
            await cache.set("a", {1, 2})
            assert await cache.get("a") == {1, 2}
        async with AioCache(any_url, namespace="n", key_builder=key_of) as cache:
            await cache.set(LONG, 1)
            assert (await cache.get(LONG), await cache.exists("k")) == (1, False)

    asked = count()
    asyncio.run(main())


def test_the_locks_of_aiocache(any_url: str) -> None:
    async def main() -> None:
        cache = AioCache(any_url, serializer=Signed("secret"))
        await cache.set("a", 1)
        async with OptimisticLock(cache, "a") as lock:
            await lock.cas(2)
        async with OptimisticLock(cache, "a") as lock:
            await cache.set("a", 2)
            with pytest.raises(OptimisticLockError):
                await lock.cas(3)
        assert await cache.get("a") == 2
        inside = 0

        async def work() -> None:
            nonlocal inside
            async with RedLock(cache, "a", lease=10):
                inside += 1
                await asyncio.sleep(0.05)

        await asyncio.gather(work(), work())
        assert inside == 2
        assert not await cache._redlock_release("a-lock", "of nobody")
        await cache.close()

    asyncio.run(main())


# --- Celery -------------------------------------------------------------------------------------------------------


def celery(url: str, **settings: Any) -> Celery:
    app = Celery("tests", broker="memory://", backend=f"roost+{url}", set_as_current=False)
    app.loader.override_backends = {"roost": "roost.contrib.celery:RoostBackend"}  # as its entry point says
    app.conf.update(**settings)
    return app


def test_results_of_celery(any_url: str, store: roost.Store, planted: bytes) -> None:
    app = celery(any_url, result_expires=60)
    backend: Any = app.backend
    assert type(backend).__name__ == "RoostBackend"
    backend.store_result("a", {"sum": 3}, "SUCCESS")
    backend.store_result(LONG, 7, "SUCCESS")
    assert app.AsyncResult(LONG).get(timeout=5) == 7
    backend.store_result("b", ValueError("wrong"), "FAILURE", traceback="its traceback")
    assert (app.AsyncResult("a").get(timeout=5), app.AsyncResult("b").state) == ({"sum": 3}, "FAILURE")
    assert app.AsyncResult("c").state == "PENDING"
    with pytest.raises(ValueError, match="wrong"):
        app.AsyncResult("b").get(timeout=5)
    assert [each for _, each in sorted((key, each["status"]) for key, each in backend.get_many(["a", "b"], timeout=5))]
    app.AsyncResult("a").forget()
    assert app.AsyncResult("a").state == "PENDING"
    item = store.run(backend.cache.gets("celery-task-meta-b"))
    assert item is not None
    assert 50 < (item.ttl or 0) <= 60  # it expires without beat
    assert [backend.incr("chord"), backend.incr("chord")] == [1, 2]
    store.run(backend.cache.set("celery-task-meta-c", planted))
    with pytest.raises(Exception, match=r"."):  # what is no JSON is no result
        backend.get_task_meta("c")
    backend._opened.store.close()


def test_a_result_is_stored_when_the_lock_is_free_again(any_url: str) -> None:
    backend: Any = celery(any_url, result_backend_always_retry=True).backend
    backend.store_result("a", 1, "STARTED")
    backend._opened.store.close()
    with roost.Store(any_url, timeout=0.1) as store, closing(clients.connect(any_url)) as other:
        backend._opened.store = store
        backend.on_backend_retryable_error = lambda _: other.execute("ROLLBACK")
        other.execute("BEGIN")
        store.on(other).run(backend.cache.delete("celery-task-meta-a"))
        backend.store_result("a", 2, "SUCCESS")
        assert backend.get_result("a") == 2


@pytest.fixture
def level_of_the_log() -> Iterator[None]:
    """A worker of Celery sets it, for good."""
    level = logging.root.level
    yield
    logging.root.setLevel(level)


@pytest.mark.spread
@pytest.mark.usefixtures("level_of_the_log")
def test_a_worker_of_celery(any_url: str) -> None:
    from celery.contrib.testing.worker import start_worker  # type: ignore[import-untyped]

    app = celery(any_url)

    @app.task(name="add", shared=False)  # type: ignore[untyped-decorator]
    def add(x: int, y: int) -> int:
        return x + y

    @app.task(name="total", shared=False)  # type: ignore[untyped-decorator]
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    logging.getLogger("celery").setLevel(logging.CRITICAL)
    with start_worker(app, perform_ping_check=False, pool="threads", concurrency=4, shutdown_timeout=60):
        results = [add.delay(n, n) for n in range(20)]
        assert [each.get(timeout=60) for each in results] == [2 * n for n in range(20)]
        assert chord([add.s(n, 1) for n in range(10)], app=app)(total.s()).get(timeout=60) == 55
    backend: Any = app.backend
    backend._opened.store.close()


# --- starsessions -------------------------------------------------------------------------------------------------


def test_sessions_of_starsessions(any_url: str) -> None:
    async def main() -> None:
        async with roost.AsyncStore(any_url) as store:
            sessions = RoostStore(store)
            assert await sessions.read("nobody", 60) == b""
            assert await sessions.write("a", b"data", lifetime=60, ttl=30) == "a"
            assert await sessions.write("b", b"data", lifetime=0, ttl=0) == "b"
            left = {key: item.ttl or 0 for key, item in (await store.run(sessions.cache.gets_many(["a", "b"]))).items()}
            assert (25 < left["a"] <= 30, left["b"] > 29 * 86_400) == (True, True)
            assert await sessions.read("a", 60) == b"data"
            await sessions.remove("a")
            await sessions.remove("nobody")
            assert await sessions.read("a", 60) == b""

    asyncio.run(main())


# --- requests-cache -----------------------------------------------------------------------------------------------


class Counting(BaseHTTPRequestHandler):
    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        if self.path == "/old":
            self.send_response(302)
            self.send_header("Location", "/new")
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{self.path} \xe4".encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Counting)
    Counting.asked = 0
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_store_that_was_given_stays_open(store: roost.Store) -> None:
    with closing(CachedSession(backend=RequestsCache(store))) as session:
        assert len(session.cache.responses) == 0
    assert len(session.cache.responses) == 0


def test_responses_of_requests_cache(any_url: str, store: roost.Store, address: str, planted: bytes) -> None:
    with closing(CachedSession(backend=RequestsCache(any_url), expire_after=60)) as session:
        session.trust_env = False
        responses: Any = session.cache.responses
        for _ in range(2):
            assert session.get(f"{address}/old").text == "/new \xe4"
        assert (Counting.asked, session.get(f"{address}/new").from_cache) == (2, True)
        assert len(session.cache.responses) == 2
        (name, *_) = keys = list(session.cache.responses)
        item = store.run(responses.cache.gets(name))
        assert item is not None
        assert 3_600 < (item.ttl or 0) <= 3_660
        for key in keys:
            store.run(responses.cache.set(key, planted))
        assert not session.get(f"{address}/new").from_cache
        assert session.get(f"{address}/new").from_cache
        session.cache.delete(urls=[f"{address}/new"])
        responses.clear()
        session.cache.redirects.clear()
        given: Any = CachedSession(backend=RequestsCache(store))
        given.close()  # a store that it was given stays open
        assert (len(session.cache.responses), len(session.cache.redirects), Counting.asked) == (0, 0, 3)
