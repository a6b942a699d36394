"""Sets in memcached, on real servers: what an exchange costs, what is full, what survives, and what is refused.

Longer than 500 lines: the tests share their servers and what they look for in the items.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import unquote

import pytest
from pymemcache.client.hash import HashClient  # type: ignore[import-untyped]

import roost
from roost.store.memcached import CacheCore
from roost.structures.memcached_set.commands import List
from roost.structures.memcached_set.plan import GRACE
from tests import servers
from tests.proxy import Cut, Proxy
from tests.suite.shapes import in_threads

likes = roost.MemcachedSet("likes", int, str, shards=256)
brief = roost.MemcachedSet("brief", int, str, ttl=1000)
single = roost.MemcachedSet("single", int, str, shards=0)
recipe = roost.MemcachedSet("recipe", str, str, encoding="readable")
blobs = roost.MemcachedSet("blobs", bytes, bytes)
STRUCTURES = (likes, brief, single, recipe, blobs)

Made = Callable[..., roost.Store]


class Dice(random.Random):
    """Fate can be told: 0.0, whatever is left to chance happens; 1.0, it does not."""

    fate = 1.0

    def random(self) -> float:
        return self.fate


@pytest.fixture(params=["two servers", "small items"])
def url(request: pytest.FixtureRequest) -> str:
    options = servers.items_of() if request.param == "small items" else ()
    return servers.emptied(servers.memcached(*options))


@pytest.fixture
def sent() -> list[str]:
    return []


@pytest.fixture
def made(url: str, sent: list[str]) -> Iterator[Made]:
    stores: list[roost.Store] = []

    def make(fate: float = 1.0, **options: Any) -> roost.Store:
        dice = Dice(len(stores))
        dice.fate = fate
        stores.append(roost.Store(url, random=dice, trace=lambda text, _: sent.append(text.split()[0]), **options))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def clients(url: str) -> Iterator[list[Any]]:
    found = servers.memcached_clients(url)
    yield found
    for client in found:
        client.close()


def items(clients: list[Any]) -> dict[str, bytes]:
    """What is on the servers, by item."""
    found: dict[str, bytes] = {}
    for client in clients:
        client.version()
        client.sock.sendall(b"lru_crawler metadump hash\r\n")
        outcome = b""
        while not outcome.endswith(b"END\r\n"):
            outcome += client.sock.recv(65536)
        names = [unquote(line.split()[0].removeprefix("key=")) for line in outcome.decode().splitlines()[:-1]]
        found |= client.get_many(names)
    return found


def holder(clients: list[Any], item: str) -> Any:
    """The client of the server that has an item."""
    return next(client for client in clients if client.get(item) is not None)


# --- what it costs -----------------------------------------------------------------------------------------------


def test_an_add_a_remove_and_a_fetch_are_one_exchange(made: Made, sent: list[str]) -> None:
    store = made()
    store.run(likes.add(7, "ada"))
    assert sent == ["append", "add"]
    for operation, command in [
        (likes.add(7, "bob", "cyd"), "append"),
        (likes.remove(7, "bob"), "append"),
        (likes.members(7), "gets"),
        (likes.contains(7, "ada"), "gets"),
        (likes.size(7), "gets"),
        (likes.info(7), "gets"),
        (likes.members(8), "gets"),
    ]:
        sent.clear()
        store.run(operation)
        assert sent == [command]


def test_a_fetch_that_compacts_is_two(made: Made, sent: list[str]) -> None:
    store = made()
    for _ in range(100):
        store.run(likes.add(7, "ada"))
    assert store.run(likes.info(7)).waste > 400
    eager = made(fate=0.0)
    sent.clear()
    assert eager.run(likes.members(7)) == {"ada"}
    assert sent == ["gets", "cas"]
    sent.clear()
    assert eager.run(likes.members(7)) == {"ada"}
    assert sent == ["gets"]
    assert store.run(likes.info(7)).waste == 0


def test_a_set_in_shards_is_added_to_and_fetched_in_one_exchange_too(made: Made, sent: list[str]) -> None:
    members = {f"member {n} {'x' * 90}" for n in range(10_000)}  # a megabyte
    store, other = made(), made()
    store.run(likes.replace(7, members))
    assert store.run(likes.info(7)).shards > 1
    sent.clear()
    store.run(likes.add(7, "ada"))
    assert store.run(likes.members(7)) == members | {"ada"}
    assert store.run(likes.contains(7, "ada"))
    assert sent == ["append", "gets", "gets"]
    sent.clear()
    other.run(likes.remove(7, "ada"))  # knows of no shards, and need not
    assert other.run(likes.members(7)) == members  # the first time it finds them
    assert other.run(likes.members(7)) == members
    assert sent == ["append", "gets", "gets", "gets"]
    assert store.check(likes) == []


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def test_on_the_wire_it_is_one_message_each(url: str) -> None:
    with Proxy(port_of(url)) as proxy, roost.Store(f"memcached://127.0.0.1:{proxy.port}", random=Dice()) as store:
        store.run(likes.add(7, "ada"))
        for operation in (likes.add(7, "bob"), likes.remove(7, "ada"), likes.members(7)):
            proxy.arm(1, Cut.BEFORE)  # the second would not arrive
            store.run(operation)
            assert proxy.disarm()


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER])
def test_a_connection_that_breaks_is_an_error_and_never_a_silent_no(url: str, cut: Cut) -> None:
    with Proxy(port_of(url)) as proxy, roost.Store(f"memcached://127.0.0.1:{proxy.port}", random=Dice()) as store:
        store.run(likes.replace(7, ["ada"]))
        for operation in (likes.add(7, "bob"), likes.remove(7, "ada"), likes.replace(7, ["x"]), likes.clear(7)):
            store.run(likes.members(7))
            proxy.arm({"clear": 1, "replace": 2}.get(operation.verb, 0), cut)  # what they ask before is asked again
            with pytest.raises(roost.OutcomeUnknown, match="may have been done"):
                store.run(operation)
            store.run(likes.replace(7, ["ada"]))
        proxy.arm(0, cut)
        assert store.run(likes.members(7)) == {"ada"}  # a read is asked again
        assert proxy.cuts == 5


# --- how large ---------------------------------------------------------------------------------------------------


def test_pitfall_a_full_set_loses_no_member(made: Made) -> None:
    store = made()
    members = {f"{n}" + "x" * 250 for n in range(8000)}  # 2 MB
    for member in members:
        store.run(likes.add(7, member))
    info = store.run(likes.info(7))
    assert store.run(likes.members(7)) == members
    assert info.size == 8000
    assert info.shards > 1
    store.run(likes.remove(7, *members))
    assert store.run(likes.members(7)) == set()
    assert store.check(likes) == []


def test_without_shards_full_is_an_error_that_names_the_limit(made: Made, url: str) -> None:
    store = made()
    kept = set[str]()
    limit = 32_768 if url == servers.memcached(*servers.items_of()) else 2**20
    found = None
    while found is None:
        member = f"{len(kept)}" + "x" * 250
        try:
            store.run(single.add(7, member))
            kept.add(member)
        except roost.Full as full:
            found = str(full)
    assert f"one item can hold: an item of this memcached has at most {limit:,} bytes" in found
    assert limit - 1024 < store.run(single.info(7)).bytes < limit
    assert store.run(single.members(7)) == kept
    store.run(single.remove(7, *sorted(kept)[:10]))  # there is no room for this either, but then there is
    store.run(single.add(7, "x" * 250))
    assert store.run(single.size(7)) == len(kept) - 9
    with pytest.raises(roost.Full):
        store.run(single.replace(7, [f"{n}" + "y" * 250 for n in range(5000)]))
    assert store.run(single.size(7)) == len(kept) - 9


def test_a_member_that_no_item_can_hold_is_full(made: Made) -> None:
    large = roost.MemcachedSet("large", int, roost.text(1_000_000), shards=4)
    store = made()
    store.run(large.add(7, "ada"))
    with pytest.raises(roost.Full, match="shards=4"):
        store.run(large.add(7, *["\U0001f414" * 500_000]))
    assert store.run(large.members(7)) == {"ada"}


@pytest.mark.parametrize("knows", [True, False])
def test_old_shards_are_let_go(made: Made, clients: list[Any], knows: bool) -> None:
    store = made()
    store.run(likes.replace(7, [f"{n}" + "x" * 250 for n in range(3000)]))
    before = {item for item in items(clients) if "%%" in item}
    (store if knows else made()).run(likes.replace(7, ["ada"]))
    assert before
    for item in before:
        found = holder(clients, item).raw_command(f"mg {item} t")
        assert 0 < int(found[4:]) <= GRACE


# --- what survives, and what is told -----------------------------------------------------------------------------


def test_pitfall_expiry_and_flags_survive_compaction_and_growth(made: Made, clients: list[Any]) -> None:
    store = made(fate=0.0)
    store.run(brief.add(7, "ada"))
    client = holder(clients, "brief:7")
    # Somebody's flags, as other programs have them for what a value is.
    client.set("brief:7", client.get("brief:7"), expire=1000, flags=9)
    for _ in range(100):
        store.run(brief.add(7, "ada"))
    assert store.run(brief.info(7)).bytes < 200
    found = client.raw_command("mg brief:7 t f")
    assert found.split()[2] == b"f9"
    assert 990 < int(found.split()[1][1:]) <= 1000
    store.run(brief.add(7, *[f"{n}" + "x" * 250 for n in range(3000)]))
    assert store.run(brief.info(7)).shards > 0
    found = client.raw_command("mg brief:7 t f")
    assert found.split()[2] == b"f9"
    assert 990 < int(found.split()[1][1:]) <= 1000
    expires = store.run(brief.info(7)).expires
    assert expires is not None
    assert store.check(brief) == []


def test_complete_is_what_was_replaced_and_not_evicted_since(made: Made, clients: list[Any]) -> None:
    store, other = made(), made()
    store.run(likes.add(7, "ada"))
    assert not store.run(likes.info(7)).complete
    store.run(likes.replace(7, ["ada", "bob"]))
    store.run(likes.add(7, "cyd"))
    store.run(likes.remove(7, "ada"))
    assert other.run(likes.info(7)).complete
    assert other.run(likes.members(7)) == {"bob", "cyd"}
    for _ in range(100):
        made(fate=0.0).run(likes.members(7))
    assert store.run(likes.info(7)).complete
    holder(clients, "likes:7").delete("likes:7")  # as an eviction does
    assert store.run(likes.info(7)) == roost.SetInfo(0, 0, 0, 0, False, None)
    store.run(likes.add(7, "eve"))
    info = store.run(likes.info(7))
    assert (info.complete, info.size) == (False, 1)


def test_a_shard_that_was_evicted_is_told_and_stays_told(made: Made, clients: list[Any]) -> None:
    store, other = made(), made()
    members = [f"{n}" + "x" * 250 for n in range(5000)]
    store.run(likes.replace(7, members))
    before = store.run(likes.info(7))
    assert before.complete
    victim = next(item for item in items(clients) if item.startswith("likes:7%%"))
    holder(clients, victim).delete(victim)
    found = other.run(likes.members(7))
    assert found < set(members)
    assert found
    assert not store.run(likes.info(7)).complete
    assert [each.rule for each in store.check(likes)] == ["shards"]
    store.run(likes.add(7, *members))  # which writes it anew
    assert store.run(likes.members(7)) == set(members)
    assert not store.run(likes.info(7)).complete
    assert store.check(likes) == []
    store.run(likes.replace(7, members))
    assert store.run(likes.info(7)).complete


def test_what_is_listed_is_all_there_is_whoever_else_lists_or_reads(made: Made) -> None:
    store = made()
    for key in range(2000):
        store.run(likes.add(key, "ada" * 20))
    finished = threading.Event()

    def read() -> None:  # which moves items from one LRU list to another
        other = made()
        while not finished.is_set():
            other.run_all(*[likes.size(key) for key in range(2000)])

    def count(_: int) -> int:
        core = made()._working
        assert isinstance(core, CacheCore)
        return len(core.engine.execute(List("likes:")))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            assert set(pool.map(count, range(20))) == {2000}
    finally:
        finished.set()
        reader.join()


def test_what_the_original_recipe_has_written(made: Made, clients: list[Any], url: str) -> None:
    store, eager = made(), made(fate=0.0)
    store.run(recipe.add("x", "y"))
    client = holder(clients, "recipe:x")
    client.set("recipe:x", b"+a +b +c ", expire=500, flags=3)
    client.append("recipe:x", b"-b +d ")
    assert store.run(recipe.members("x")) == {"a", "c", "d"}
    assert store.run(recipe.info("x")) == roost.SetInfo(3, bytes=15, shards=0, waste=2, complete=False, expires=None)
    store.run(recipe.remove("x", "a"))
    assert client.get("recipe:x") == b"+a +b +c -b +d -a "
    client.append("recipe:x", b"+d " * 100)
    eager.run(recipe.add("x", "e"))
    found = client.raw_command("mg recipe:x t f")
    assert found.split()[2] == b"f3"
    assert 490 < int(found.split()[1][1:]) <= 500
    kept = client.get("recipe:x").split()
    assert sorted(kept[1:]) == [b"+c", b"+d", b"+e"]
    assert store.check(recipe) == []


def test_items_are_where_pymemcache_looks_for_them(made: Made, url: str, clients: list[Any]) -> None:
    store = made()
    for key in range(40):
        store.run(recipe.add(f"{key}", "ada"))
    everywhere = HashClient(url.partition("://")[2].split(","))
    assert all(everywhere.get(f"recipe:{key}") == b"=,0,0,0 +ada " for key in range(40))
    everywhere.close()
    assert all(client.stats()[b"curr_items"] > 5 for client in clients)


def test_bytes_and_keys_of_every_kind(made: Made) -> None:
    store = made()
    keys = [b"", b"\0\xff", b"x" * 255]
    for key in keys:
        store.run(blobs.add(key, b"\0", b"\r\n", b"END\r\n", key))
    assert [store.run(blobs.members(key)) for key in keys] == [{b"\0", b"\r\n", b"END\r\n", key} for key in keys]
    words = roost.MemcachedSet("words", str, str)
    texts = ["", " ", "%", "%%", "a b", "\u00e4\n\0", "a%20b", "7%%1%0", "x" * 255]
    texts += ["\U0001f414" * 255, "\U0001f414" * 254]
    for n, text in enumerate(texts):
        store.run(words.add(text, f"{n}"))
    assert [store.run(words.members(text)) for text in texts] == [{f"{n}"} for n in range(len(texts))]
    assert store.check(words, blobs) == []


def test_check_finds_what_is_not_as_it_should_be(made: Made, clients: list[Any]) -> None:
    store = made()
    numbers = roost.MemcachedSet("numbers", int, int)
    store.run(numbers.add(1, 1))
    client = holder(clients, "numbers:1")
    good = client.get("numbers:1")
    client.append("numbers:1", b"?\1x")
    for item, data in {"numbers:2": good + b"+\1x", "numbers:x": good, "numbers:4": b"", "numbers:5": good}.items():
        _place(clients, store, item).set(item, data, expire=1000 if item == "numbers:5" else 0)
    found = {str(each.key): each.rule for each in store.check(numbers)}
    assert found == {"1": "records", "2": "records", "None": "key", "4": "records", "5": "ttl"}
    with pytest.raises(roost.Mismatch, match="numbers:1"):
        store.run(numbers.members(1))
    with pytest.raises(roost.Invalid, match="no catalog: name the structures"):
        store.check()


def _place(clients: list[Any], store: roost.Store, item: str) -> Any:
    work: Any = store._working
    names = [server.name for server in work.engine._servers]
    return clients[names.index(work.engine._server(item).name)]


# --- what is refused ---------------------------------------------------------------------------------------------


def test_other_structures_and_what_takes_a_database_are_refused(made: Made) -> None:
    store = made()
    counter = roost.Counter("pageviews")
    add = counter.add("/")
    for call in (lambda: store.create(likes, counter), lambda: store.run(add), lambda: store.check(counter)):
        with pytest.raises(roost.Invalid, match="pageviews is a Counter, which memcached does not hold"):
            call()
    for refused in (
        lambda: store.ddl(likes),
        lambda: store.alter(likes),
        lambda: store.structures(),
        lambda: store.on(object()),  # type: ignore[arg-type]
    ):
        with pytest.raises(roost.Invalid, match="no catalog, no tables and no transactions"):
            refused()
    assert store.create(*STRUCTURES) is None  # type: ignore[func-returns-value]


def test_what_is_not_one_append_is_no_transaction(made: Made) -> None:
    store = made()
    for several in (
        [likes.add(1, "a"), likes.add(2, "a")],
        [likes.add(1, "a"), brief.add(1, "a")],
        [likes.add(1, "a"), likes.members(1)],
        [likes.clear(1), likes.add(1, "a")],
        [likes.replace(1, ["a"]), likes.replace(1, ["b"])],
    ):
        with pytest.raises(roost.Invalid, match="memcached has no transactions"):
            store.run_all(*several)
    assert store.run_all(likes.members(1), likes.members(2)) == (set(), set())
    assert store.run_all(likes.add(1, "a"), likes.remove(1, "a"), likes.add(1, "b")) == (None, None, None)
    assert store.run_all(likes.members(1), likes.size(1), likes.contains(2, "b")) == ({"b"}, 1, False)


@pytest.mark.needs("set")
def test_a_database_refuses_it_and_its_neighbours_go_on(store_url: str) -> None:
    words = roost.Set("words")

    async def main() -> list[Any]:
        async with roost.AsyncStore(store_url) as store:
            await store.create(words)
            with pytest.raises(roost.Invalid, match=r"likes is a MemcachedSet, .* take roost\.Set"):
                await store.create(likes)
            together = [words.add("k", "a"), likes.add(7, "ada"), words.add("k", "b"), likes.members(7)]
            found = await asyncio.gather(*[store.run(each) for each in together], return_exceptions=True)
            return [*found, await store.run(words.size("k"))]

    one, refused, two, read, size = asyncio.run(main())
    assert (one, two, size) == (1, 1, 2)
    assert isinstance(refused, roost.Invalid)
    assert isinstance(read, roost.Invalid)


# --- asyncio -----------------------------------------------------------------------------------------------------


def test_what_waits_in_asyncio_shares_exchanges(url: str) -> None:
    sent: list[str] = []

    async def main() -> None:
        async with roost.AsyncStore(url, trace=lambda text, _: sent.append(text.split()[0]), random=Dice()) as store:
            await store.create(likes)
            await store.run(likes.replace(7, []))
            sent.clear()
            await asyncio.gather(*[store.run(likes.add(7, f"{n}")) for n in range(64)])
            assert sent == ["append"]
            sent.clear()
            found = await asyncio.gather(*[store.run(likes.members(key)) for key in (7, 8, 9, 7)])
            assert found == [{f"{n}" for n in range(64)}, set(), set(), {f"{n}" for n in range(64)}]
            assert found[0] is not found[3]
            assert sent == ["gets"]
            order = [likes.add(7, "x"), likes.remove(7, "x"), likes.clear(7), likes.add(7, "y")]
            assert await asyncio.gather(*map(store.run, [*order, likes.replace(8, ["z"])])) == [None] * 5
            assert await store.run_all(likes.members(7), likes.members(8)) == ({"y"}, {"z"})
            assert store.stats().operations == 1 + 64 + 4 + 5 + 2

    asyncio.run(main())


def test_who_asks_for_too_much_among_others_is_told_alone(url: str) -> None:
    async def main() -> list[Any]:
        async with roost.AsyncStore(url) as store:
            await store.run(single.add(7, "before"))
            asked = [single.add(7, "a"), single.add(7, *[f"{n}" + "x" * 240 for n in range(5000)]), single.add(7, "b")]
            wrong = roost.Counter("pageviews").add("/")
            found = await asyncio.gather(*[store.run(each) for each in [*asked, wrong]], return_exceptions=True)
            return [*found, await store.run(single.members(7))]

    one, full, two, refused, members = asyncio.run(main())
    assert (one, two, members) == (None, None, {"before", "a", "b"})
    assert isinstance(full, roost.Full)
    assert isinstance(refused, roost.Invalid)


def test_many_threads_on_one_store(made: Made) -> None:
    store = made()

    def work(thread: int) -> None:
        for n in range(100):
            store.run(likes.add(7, f"{thread}/{n}"))
            if n % 2:
                store.run(likes.remove(7, f"{thread}/{n}"))

    in_threads(*[partial(work, thread) for thread in range(8)])
    assert store.run(likes.members(7)) == {f"{thread}/{n}" for thread in range(8) for n in range(0, 100, 2)}
    assert store.stats().operations == 8 * 150 + 1
