"""What a cache promises: memcached's verbs, and that what has expired is never answered and goes away."""

from __future__ import annotations

import datetime as dt
import random
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import pytest

import roost
from tests.lengths import length
from tests.memcached.cases import CONVERSATIONS
from tests.memcached.player import Player, without_tokens
from tests.model.cache import Model, cache, play
from tests.suite.clients import Client, MariaDBClient
from tests.suite.passing import passes
from tests.suite.shapes import Make, in_threads, rows
from tests.suite.views import insert, remove

pytestmark = pytest.mark.needs("cache")


class Place(NamedTuple):
    town: str
    number: int


pages = roost.Cache("pages")
words = roost.Cache("words", key=int, value=roost.text(30))
numbers = roost.Cache("numbers", key=Place, value=int)
days = roost.Cache("days", key=int, value=dt.datetime)
HOUR = 3600
NOON = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)


def size(sql: Client, structure: Any = pages) -> int:
    """How many rows are stored, over or not."""
    found: Any = sql.execute(f"SELECT count(*) FROM roost_{structure.name}_rows").fetchone()
    return int(found[0])


@pytest.mark.needs("second store")
def test_it_answers_like_a_dictionary(make: Make, sql: Client) -> None:
    store = make(cache)
    play(store, Model(), random.Random(3), lambda seconds: passes(sql, cache, seconds), length(150, 2000))


def test_cas_stores_over_the_same_value_only(make: Make) -> None:
    store = make(pages)
    store.run(pages.set("/", b"one"))
    item = store.run(pages.gets("/"))
    assert item.value == b"one"
    assert store.run(pages.cas("/", b"two", item.token)) is True
    assert store.run(pages.cas("/", b"three", item.token)) is False
    assert store.run(pages.get("/")) == b"two"
    again = store.run(pages.gets("/"))
    store.run(pages.set("/", b"two"))  # an equal one is another one
    assert store.run(pages.cas("/", b"three", again.token)) is False
    store.run(pages.delete("/"))
    assert store.run(pages.cas("/", b"three", again.token)) is None
    store.run(pages.set("/", b"two"))
    assert store.run(pages.cas("/", b"three", again.token)) is False
    token = store.run(pages.gets("/")).token
    store.run(pages.touch("/", 10))  # memcached keeps it, too
    assert store.run_all(pages.cas("/", b"4", token), pages.cas("/", b"5", token)) == (True, False)


def test_numbers_in_bytes_and_texts_are_those_of_memcached(make: Make) -> None:
    store = make(pages, words)
    store.run_all(pages.set("n", b"9"), words.set(1, "99"))
    assert store.run(pages.increment("n")) == 10
    assert store.run(pages.get("n")) == b"10"
    assert store.run(pages.decrement("n", 4)) == 6
    assert store.run(pages.decrement("n", 40)) == 0
    assert store.run(pages.increment("n", 2**64 - 1)) == 2**64 - 1
    assert store.run(pages.increment("n", 3)) == 2
    assert store.run_all(words.increment(1), words.increment(1), words.get(1)) == (100, 101, "101")
    for value in (b"", b"-1", b"1.0", b"0x1", b" 1", str(2**64).encode(), b"\xb9"):
        store.run(pages.set("n", value))
        with pytest.raises(roost.Invalid, match="no number"):
            store.run(pages.increment("n"))
        assert store.run(pages.get("n")) == value
    for text in ("\u0661", "1\U0001f600"):  # MariaDB could not compare what latin1 has not
        store.run(words.set(1, text))
        with pytest.raises(roost.Invalid, match="no number"):
            store.run(words.increment(1))


def test_an_int_is_a_number_of_64_bits(make: Make) -> None:
    store, home = make(numbers), Place("home", 1)
    store.run(numbers.set(home, 5))
    assert store.run_all(numbers.increment(home, 7), numbers.decrement(home, 20), numbers.get(home)) == (12, -8, -8)
    store.run(numbers.set(home, 2**63 - 2))
    assert store.run(numbers.increment(home)) == 2**63 - 1
    with pytest.raises(roost.Overflow):
        store.run(numbers.increment(home))
    assert store.run(numbers.get(home)) == 2**63 - 1
    assert store.run(numbers.keys()) == [home]


def test_flags_are_kept_beside_a_value(make: Make) -> None:
    store, most = make(pages, numbers), 2**32 - 1

    def flags(key: str = "/") -> Any:
        item = store.run(pages.gets(key))
        return item.value, item.flags

    store.run(pages.set("/", b"1", flags=most))
    assert flags() == (b"1", most)
    store.run_all(pages.append("/", b"2"), pages.prepend("/", b"3"), pages.increment("/"), pages.touch("/", 100))
    assert flags() == (b"313", most)  # what changes a value leaves them, as in memcached
    assert store.run_all(pages.replace("/", b"4", flags=5), pages.gets_many(["/", "/a"]))[1]["/"][::3] == (b"4", 5)
    assert store.run(pages.cas("/", b"5", store.run(pages.gets("/")).token, flags=6)) is True
    assert flags() == (b"5", 6)
    assert store.run_all(pages.add("/", b"6", flags=7), pages.add("/b", b"7", flags=8)) == (False, True)
    assert (flags(), flags("/b")) == ((b"5", 6), (b"7", 8))
    store.run(pages.set("/", b"8"))
    assert flags() == (b"8", 0)
    store.run(pages.set_many({"/": b"9", "/c": b"10"}, flags=9))
    assert (flags(), flags("/c")) == ((b"9", 9), (b"10", 9))
    store.run_all(pages.set("/", b"11", flags=10), pages.get("/"))
    assert store.run_all(pages.gets("/"), pages.gets("/none"))[0][::3] == (b"11", 10)
    store.run(numbers.set(Place("home", 1), 1, flags=2))
    assert store.run(numbers.gets(Place("home", 1))).flags == 2


def test_memcacheds_protocol_on_every_database(make: Make) -> None:
    store = make(pages)
    with roost.Store("sqlite://") as other:
        other.create(pages)
        for conversation in CONVERSATIONS:
            asked = b"".join(conversation)
            assert without_tokens(Player(store, pages).one(asked)) == without_tokens(Player(other, pages).one(asked))
            other.run(pages.clear())
            store.run(pages.clear())


@pytest.mark.needs("second store")
def test_what_is_touched_all_the_time_is_seldom_written(open_store: Make, sql: Client) -> None:
    store = open_store(pages)
    store.run(pages.set("/", b"session", ttl=1600))
    written, before = 0, None
    for _ in range(65):
        passes(sql, pages, 10)
        assert store.run(pages.touch("/", 1600)) is True
        until: Any = sql.execute("SELECT until FROM roost_pages_rows").fetchone()
        written += before not in (None, until[0])
        before = until[0]
    assert 4 <= written <= 7
    passes(sql, pages, 1500)
    assert store.run(pages.get("/")) == b"session"
    passes(sql, pages, 101)
    assert store.run(pages.get("/")) is None


@pytest.mark.needs("second store")
def test_a_value_that_was_stored_anew_outlives_its_first_end(open_store: Make, sql: Client) -> None:
    store = open_store(pages)
    keys = ["set", "touched", "forever", "set sooner", "touched sooner", "stored", "gone"]
    store.run(pages.set_many(dict.fromkeys(keys, b"1"), ttl=10))
    token = store.run(pages.gets("forever")).token
    store.run_all(pages.set("set", b"2", ttl=100), pages.touch("touched", 100), pages.cas("forever", b"2", token))
    store.run_all(pages.set("set sooner", b"2", ttl=5), pages.touch("touched sooner", 5))
    store.run(pages.replace("stored", b"2", ttl=100))
    others = pages.set_many({f"other {n}": b"" for n in range(10)}, ttl=1000)
    left = []
    for seconds in (6, 5, 90):
        passes(sql, pages, seconds)
        store.run_all(others, pages.set("last", b""))  # a batch removes what has expired
        found = store.run(pages.get_many(keys))
        assert (size(sql), store.check()) == (len(found) + 11, [])
        left.append(sorted(found))
    assert left[0] == ["forever", "gone", "set", "stored", "touched"]
    assert left[1:] == [["forever", "set", "stored", "touched"], ["forever"]]


@pytest.mark.needs("second store")
def test_a_clock_that_jumps_back_brings_nothing_to_life(make: Make, sql: Client) -> None:
    store = make(pages)
    store.run(pages.set("/", b"1", ttl=10))
    passes(sql, pages, 11)
    assert store.run_all(pages.set("/other", b"2"), pages.get("/")) == (None, None)
    passes(sql, pages, -HOUR)
    assert store.run(pages.get("/")) is None
    assert store.run_all(pages.set("/other", b"2", ttl=10), pages.get("/")) == (None, None)  # time goes on from there
    passes(sql, pages, 10)
    assert store.run(pages.get("/other")) is None


@pytest.mark.needs("second store")
def test_a_delete_removes_what_is_over_too(open_store: Make, sql: Client) -> None:
    store = open_store(pages)
    store.run(pages.set_many({f"/{n}": b"1" for n in range(100)}, ttl=10))
    passes(sql, pages, 11)
    assert store.run(pages.delete("/0")) is False
    assert size(sql) < 100


def test_values_are_of_any_type_and_compared_by_nobody(make: Make) -> None:
    store = make(pages, days)
    value = bytes(range(256)) * 4
    store.run_all(pages.set("é\n", value), days.set(1, NOON))
    assert store.run_all(pages.get("é\n"), days.get(1), days.get_many([1, 2])) == (value, NOON, {1: NOON})
    assert store.run(days.gets(1)).value == NOON
    store.run(pages.set("E\n", b"another"))
    assert store.run(pages.keys()) == ["E\n", "é\n"]


@pytest.mark.needs("readable views", "cache")
def test_plain_sql_reads_and_writes_it(open_store: Make, sql: Any) -> None:
    store, in_place = open_store(pages, words), not isinstance(sql, MariaDBClient)
    shown = f"SELECT {'key' if in_place else '`key`'}, {{}} FROM words ORDER BY 1"
    for key, value in ((1, "one"), (2, "it's")):
        insert(sql, "words", key=key, value=value)
    assert store.run_all(words.get(1), words.get(2)) == ("one", "it's")
    insert(sql, "words", key=1, value="another", expires="2000-01-01 00:00:00")
    assert store.run(words.get(1)) is None
    insert(sql, "words", key=1, value="last", expires="2999-01-01 10:00:00")
    token = store.run(words.gets(1)).token
    assert [str(expires)[:19] for _, expires in rows(sql, shown.format("expires"))] == ["2999-01-01 10:00:00", "None"]
    insert(sql, "words", key=5, value="five", flags=2**32 - 1)
    for wrong in (-1, 2**32):
        with pytest.raises(sql.Error, match=r"words\.flags: it takes a whole number from 0 to 4294967295"):
            insert(sql, "words", key=5, value="five", flags=wrong)
    with pytest.raises(sql.Error, match="it takes"):
        insert(sql, "words", key=3, value="x" * 31)
    assert [*rows(sql, shown.format("flags"))] == [(1, 0), (2, 0), (5, 2**32 - 1)]
    if in_place:
        sql.execute("UPDATE words SET value = 'sad' WHERE key < 3")
        assert store.run_all(words.get(1), words.cas(1, "x", token), words.get(2)) == ("sad", False, "sad")
        sql.execute("UPDATE words SET flags = 7 WHERE key = 1")
        sql.execute("UPDATE words SET flags = '8', expires = '9999-12-31 23:59:59.999999' WHERE key = 5")
        ((_, _, _), _, (_, flags, expires)) = rows(sql, shown.format("flags, expires"))
        assert (flags, str(expires)[:26]) == (8, "9999-12-31 23:59:59.999999")
        for refused, message in (("flags = -1", r"words\.flags"), ("key = key + 1", "a key cannot be changed")):
            with pytest.raises(sql.Error, match=message):
                sql.execute(f"UPDATE words SET {refused}")
    assert [store.run(words.gets(key)).flags for key in (1, 2, 5)] == ([7, 0, 8] if in_place else [0, 0, 2**32 - 1])
    remove(sql, "words", key=5)
    store.run(words.set(3, "three", ttl=10))
    passes(sql, words, 11)
    assert [*rows(sql, shown.format("value"))] == ([(1, "sad"), (2, "sad")] if in_place else [(1, "last"), (2, "it's")])
    remove(sql, "words", key=1)
    assert store.run(words.keys()) == [2]


@pytest.mark.needs("readable views", "cache")
def test_expiry_times_in_plain_sql_are_by_the_clock_when_that_has_jumped_back(open_store: Make, sql: Any) -> None:
    store = open_store(words)
    passes(sql, words, 3600)  # which time is ahead of the clock
    ends = f"{dt.datetime.now(dt.UTC) + dt.timedelta(minutes=30):%Y-%m-%d %H:%M:%S.%f}"
    insert(sql, "words", key=1, value="one", expires=ends)
    assert 0 < store.run(words.gets(1)).ttl <= 1800
    assert [str(expires)[:26] for (expires,) in rows(sql, "SELECT expires FROM words")] == [ends]


@pytest.mark.needs("second store", "cache")
def test_cas_and_increment_lose_nothing_between_stores(open_store: Make) -> None:
    stores = [open_store(words, pages, timeout=60.0) for _ in range(3)]
    stores[0].run(pages.set("n", b"0"))
    added: list[bool] = []

    def count(store: roost.Store, number: int) -> None:
        for turn in range(20):
            store.run(pages.increment("n"))
            added.append(store.run(words.add(turn, f"{number}")))
            while True:
                item = store.run(words.gets(1000))
                if item is None:
                    if store.run(words.add(1000, "1")):
                        break
                elif store.run(words.cas(1000, f"{int(item.value) + 1}", item.token)):
                    break

    in_threads(*[partial(count, store, n) for n in range(2) for store in stores])
    assert stores[0].run_all(pages.get("n"), words.get(1000)) == (b"120", "120")
    assert (added.count(True), len(added)) == (20, 120)


@pytest.mark.needs("file", "cache")
def test_a_touch_that_writes_nothing_waits_for_no_writer(open_store: Make, sql: Client) -> None:
    store = open_store(pages, timeout=0)
    store.run(pages.set("/", b"session", ttl=1600))
    store.run(pages.set("/a", b"session"))
    store.run(pages.get("/"))  # connects
    sql.execute("BEGIN IMMEDIATE")
    assert store.run(pages.touch("/", 1600)) is True
    assert store.run(pages.touch("/a")) is True
    assert store.run(pages.touch("/b", 1600)) is False
    for changing in (pages.touch("/", 1000), pages.touch("/"), pages.touch("/a", 10)):
        with pytest.raises(roost.Busy):
            store.run(changing)
    sql.execute("ROLLBACK")
    assert store.run(pages.touch("/a", 10)) is True


def test_values_of_megabytes(make: Make) -> None:
    large = roost.Cache("large", value=roost.binary(2_000_000))
    texts = roost.Cache("texts", value=roost.text(500_000), max_bytes=2_250_000)
    store = make(large, texts, timeout=60.0)
    value, text = bytes(range(256)) * 7_812 + bytes(128), "é\\'" * 150_000
    store.run(large.set("a", value, ttl=HOUR))
    assert store.run(large.get("a")) == value
    assert store.run_all(large.delete("a"), large.add("b", value[:1_999_999]), large.append("b", b"!")) == (True,) * 3
    assert store.run(large.gets("b")).value == value[:1_999_999] + b"!"
    store.run_all(texts.set("a", text), texts.set("b", text), texts.set("c", text))
    assert store.run(texts.get_many(["b", "c"]))["c"] == text
    with pytest.raises(roost.Invalid, match="2,000,000"):
        large.set("a", value + b"!")


@pytest.mark.needs("second store")
def test_what_two_clear_at_once_is_counted_once(open_store: Make) -> None:
    one, other = open_store(pages), open_store()
    one.run(pages.set_many({f"/{n}": b"x" for n in range(500)}))
    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(lambda store: store.run(pages.clear()), (one, other))) == 500
