"""Views on SQLite: its forms of INSERT, the order without ORDER BY, triggers of one's own, settings, query plans."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import roost
from tests.suite.shapes import Egg, Open, Visit, likes, pageviews, rows, visits
from tests.suite.views import WRITES, baskets, slotted

pytestmark = pytest.mark.needs("sqlite3")


def test_every_row_of_a_ring_is_shown_once_whatever_its_place(open_store: Open, sql: sqlite3.Connection) -> None:
    store = open_store(visits)
    for pushed in range(1, 14):
        store.run(visits.push(Visit(5, pushed)))
        newest = list(range(pushed, max(0, pushed - 5), -1))
        assert rows(sql, "SELECT visitor FROM visits WHERE uid = 5") == [(n,) for n in newest]
        assert rows(sql, "SELECT visitor FROM visits WHERE uid = 5 LIMIT 2 OFFSET 1") == [(n,) for n in newest[1:3]]


def test_a_client_s_own_settings_change_nothing(open_store: Open, sql: sqlite3.Connection) -> None:
    store = open_store(pageviews, visits, baskets, likes)
    for pragma in ("recursive_triggers = ON", "foreign_keys = ON", "trusted_schema = OFF", "case_sensitive_like = ON",
                   "reverse_unordered_selects = ON", "count_changes = ON", "defer_foreign_keys = ON"):  # fmt: skip
        sql.execute(f"PRAGMA {pragma}")
    for name, (columns, good, _, _) in WRITES.items():
        sql.execute(f"INSERT INTO {name} ({columns}) VALUES ({good})")
    for visitor in range(7):
        sql.execute("INSERT INTO visits (uid, visitor) VALUES (6, ?)", (visitor,))
    assert rows(sql, "SELECT visitor FROM visits WHERE uid = 6 LIMIT 3") == [(6,), (5,), (4,)]
    assert store.run_all(baskets.count(42), likes.size(7), pageviews.total("/home")) == (1, 1, 2)


def test_an_attached_database_has_its_own(open_store: Open, sql: sqlite3.Connection, tmp_path: Path) -> None:
    store = open_store(visits)
    other = sqlite3.connect(":memory:", isolation_level=None)
    other.execute("CREATE TABLE roost_visits_rows (x)")
    other.execute("ATTACH ? AS r", (str(tmp_path / "suite.db"),))
    other.execute("INSERT INTO r.visits (uid, visitor) VALUES (5, 7)")
    other.close()
    assert store.run(visits.latest(5)) == [Visit(5, 7)]


@pytest.mark.parametrize("analyzed", [False, True], ids=["", "analyzed"])
def test_a_key_is_looked_up_and_its_order_comes_from_an_index(
    open_store: Open, sql: sqlite3.Connection, analyzed: bool
) -> None:
    store = open_store(pageviews, slotted, visits, baskets, likes)
    if analyzed:
        store.run_all(*[visits.push(Visit(k, n)) for k in range(50) for n in range(6)])
        store.run_all(*[baskets.add(Egg(k, n)) for k in range(50) for n in range(3)])
        store.run_all(*[likes.add(k, "a", "b") for k in range(50)], *[pageviews.add(str(k)) for k in range(50)])
        sql.execute("ANALYZE")
    for name in ("pageviews", "slotted", "visits", "baskets", "likes"):
        key = WRITES.get(name, ("key",))[0].split(",")[0]
        queries = [f"SELECT * FROM {name} WHERE {key} = 5", f"SELECT * FROM {name} WHERE {key} = 5 LIMIT 3"]
        if name in ("visits", "baskets"):
            queries.append(f"SELECT * FROM {name}")
        if name == "baskets":
            queries.append(f"SELECT * FROM {name} WHERE {key} = 5 ORDER BY sequence DESC LIMIT 3")
        for query in queries:
            steps = " / ".join(step for *_, step in rows(sql, f"EXPLAIN QUERY PLAN {query}"))
            assert "B-TREE" not in steps, (query, steps)
            assert "WHERE" not in query or "SCAN r" not in steps, (query, steps)
            assert "WHERE" not in query or "SEARCH" in steps, (query, steps)


NO_TEXTS = [
    *(b"\xb0", b"20 \xb0C", b"a\xa3", b"\xa7 5", b"\xff", b"\xe9\xa9", b"\xc3\xa9\xa9", b"\xe2\x82", b"\xf0\x9f\x98"),
    *(b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"ok\0\xb0", b"\xef\xbf", b"caf\xe9"),
]


def test_f118_a_text_that_is_no_utf8_is_refused_and_one_that_is_there_is_told(
    store_url: str, sql: sqlite3.Connection
) -> None:
    with roost.Store(store_url) as store:
        store.create(pageviews, likes)
        for text in NO_TEXTS:
            for insert in (
                "INTO pageviews VALUES (CAST(? AS TEXT), 1)",
                "OR REPLACE INTO likes VALUES (7, CAST(? AS TEXT))",
            ):
                with pytest.raises(sqlite3.IntegrityError, match="it takes a text"):
                    sql.execute(f"INSERT {insert}", (text,))
        assert store.check() == []
        for text in NO_TEXTS:
            sql.execute("INSERT INTO roost_pageviews_rows (key, slot, n) VALUES (CAST(? AS TEXT), 0, 1)", (text,))
            sql.execute("INSERT INTO roost_likes_rows (key, member) VALUES (7, CAST(? AS TEXT))", (text,))
        sql.commit()
        found = [each for each in store.check() if each.rule == "value"]
        assert {each.key for each in found} == {7, *NO_TEXTS}


def test_f99_every_character_may_be_stored_and_written_by_sql(open_store: Open, sql: sqlite3.Connection) -> None:
    store = open_store(pageviews)
    for text in ("\ufffd", "\ufffe", "\uffff", "a\uffffé", "\U0010ffff\ufffe", "\x80", "\xbf", "°\0é"):
        store.run(pageviews.add(text))
        sql.execute("INSERT INTO pageviews VALUES (?, 1)", (text,))
        sql.execute("UPDATE pageviews SET total = total + 1 WHERE key = ?", (text,))
        sql.commit()
        assert store.run(pageviews.total(text)) == 3


def test_a_number_that_a_driver_binds_as_a_text_is_compared_as_a_number(
    open_store: Open, sql: sqlite3.Connection
) -> None:
    hourly = roost.Counter("hourly", window="hour", keep=2)
    spread = roost.Counter("spread", window="hour", keep=2, slots=4)
    pages, jobs = roost.Cache("pages", value=int), roost.Lease("jobs")
    logins = roost.RateLimit("logins", limit=5, within=900)
    store = open_store(pageviews, slotted, hourly, spread, visits, baskets, likes, pages, logins, jobs)
    store.run_all(*[counter.add("k", 3) for counter in (pageviews, slotted, hourly, spread)])
    store.run_all(pages.set("k", 3, flags=3), jobs.acquire("k", "me", 60))
    store.run_all(visits.push(Visit(3, 3)), baskets.add(Egg(3, 3, "")), likes.add(3, "ada"), logins.take("k", 2))
    for name in ("pageviews", "slotted", "hourly", "spread", "visits", "baskets", "likes", "pages", "logins", "jobs"):
        found = sql.execute(f"SELECT * FROM {name}")
        (row,) = found.fetchall()
        for (column, *_), value in zip(found.description, row, strict=True):
            if isinstance(value, int):  # PHP's PDO binds every parameter as a text
                where = f'"{column}" = ? AND "{column}" < ? AND "{column}" > ?'
                with_texts = sql.execute(f"SELECT * FROM {name} WHERE {where}", (str(value), str(value + 1), "0"))
                assert with_texts.fetchall() == [row], (name, column)
