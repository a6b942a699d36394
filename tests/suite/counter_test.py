"""What a counter promises."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

import roost
from tests.suite.application import Application
from tests.suite.shapes import Place, by_hand, pageviews

MOST = 2**63 - 1
Make = Callable[..., Any]
pytestmark = pytest.mark.needs("counter")


def test_a_key_that_was_never_counted_has_the_total_0(make: Make) -> None:
    assert make(pageviews).run(pageviews.total("/nowhere")) == 0


def test_adds_sum_up_also_below_zero(make: Make) -> None:
    store = make(pageviews)
    store.run(pageviews.add("/home", 3))
    store.run(pageviews.add("/home", -5))
    assert store.run(pageviews.total("/home")) == -2


def test_add_answers_none_and_0_is_allowed(make: Make) -> None:
    store = make(pageviews)
    assert store.run(pageviews.add("/home", 0)) is None
    assert store.run(pageviews.total("/home")) == 0


def test_totals_has_every_key_asked_in_the_order_asked(make: Make) -> None:
    store = make(pageviews)
    store.run_all(pageviews.add("a"), pageviews.add("b", 2))
    totals = store.run(pageviews.totals(["b", "nowhere", "a", "b"]))
    assert list(totals.items()) == [("b", 2), ("nowhere", 0), ("a", 1)]
    assert store.run(pageviews.totals([])) == {}


def test_top_is_greatest_first_and_equal_ones_in_key_order(make: Make) -> None:
    store = make(pageviews)
    store.run_all(*[pageviews.add(key, n) for key, n in [("c", 5), ("a", 5), ("b", 9), ("d", -1)]])
    assert store.run(pageviews.top(3)) == [("b", 9), ("a", 5), ("c", 5)]


def test_pitfall_keys_are_compared_byte_for_byte(make: Make) -> None:
    store = make(pageviews)
    keys = ["/Home", "/home", "/home ", "/hömé", "/ho\u0308me\u0301", "", " ", "0", "00", "😀"]
    store.run_all(*[pageviews.add(key, place + 1) for place, key in enumerate(keys)])
    assert store.run(pageviews.totals(keys)) == {key: place + 1 for place, key in enumerate(keys)}
    assert store.run(pageviews.keys()) == sorted(keys, key=str.encode)


@pytest.mark.needs("nul in text")
def test_nul_is_a_character_like_any_other(make: Make) -> None:
    store = make(pageviews)
    store.run_all(pageviews.add("a\0b"), pageviews.add("a\0c", 2), pageviews.add("a", 4))
    assert store.run(pageviews.totals(["a\0b", "a\0c", "a"])) == {"a\0b": 1, "a\0c": 2, "a": 4}


def test_keys_pages_through_all_of_them(make: Make) -> None:
    store = make(pageviews)
    wanted = [f"/{n:03}" for n in range(25)]
    store.run_all(*[pageviews.add(key) for key in reversed(wanted)])
    found: list[str] = []
    while page := store.run(pageviews.keys(after=found[-1] if found else None, n=10)):
        found += page
    assert found == wanted


def test_clear_and_forget_answer_the_total_they_removed(make: Make) -> None:
    store = make(pageviews)
    store.run_all(pageviews.add("/home", 7), pageviews.add("/other", 1))
    assert store.run(pageviews.clear("/home")) == 7
    assert store.run(pageviews.clear("/home")) == 0
    assert store.run(pageviews.forget("/other")) == 1
    assert store.run(pageviews.keys()) == []


def test_composite_keys_are_the_named_tuple_that_was_declared(make: Make) -> None:
    hits = roost.Counter("hits", key=Place)
    store = make(hits)
    store.run_all(hits.add(Place("a", 2)), hits.add(Place("a", 10)), hits.add(Place("B", 1), 3))
    assert store.run(hits.total(Place("a", 2))) == 1
    assert store.run(hits.keys()) == [Place("B", 1), Place("a", 2), Place("a", 10)]
    assert store.run(hits.keys(after=Place("a", 2))) == [Place("a", 10)]
    assert store.run(hits.top(1)) == [(Place("B", 1), 3)]
    assert isinstance(store.run(hits.keys())[0], Place)


def test_a_slot_holds_64_bits_and_not_one_more(make: Make) -> None:
    store = make(tickets)
    store.run(tickets.add("/home", MOST))
    with pytest.raises(roost.Overflow, match=r"tickets.add\('/home', 1\).*64 bits"):
        store.run(tickets.add("/home", 1))
    assert store.run(tickets.total("/home")) == MOST
    store.run(tickets.add("/low", -MOST - 1))
    with pytest.raises(roost.Overflow):
        store.run(tickets.add("/low", -1))
    assert store.run(tickets.total("/low")) == -MOST - 1


def test_the_sum_of_a_batch_is_judged_not_its_steps(make: Make) -> None:
    store = make(pageviews)
    store.run(pageviews.add("/home", MOST))
    store.run_all(pageviews.add("/home", 10), pageviews.add("/home", -10))
    assert store.run(pageviews.total("/home")) == MOST
    store.run_all(pageviews.add("/new", MOST), pageviews.add("/new", MOST), pageviews.add("/new", -MOST))
    assert store.run(pageviews.total("/new")) == MOST


spread = roost.Counter("spread", slots=4)
tickets = roost.Counter("tickets", slots=1)


@pytest.mark.parametrize("counter", [pageviews, spread, tickets], ids=repr)
def test_increment_answers_the_new_total(make: Make, counter: roost.Counter[str]) -> None:
    store = make(counter)
    assert store.run(counter.increment("/home")) == 1
    store.run(counter.add("/home", 5))
    assert store.run(counter.increment("/home", -7)) == -1
    assert store.run(counter.increment("/home", 0)) == -1
    assert store.run(counter.increment("/home", 2**50)) == 2**50 - 1
    assert store.run(counter.total("/home")) == 2**50 - 1
    assert store.run(counter.total("/other")) == 0


@pytest.mark.parametrize("counter", [pageviews, spread, tickets], ids=repr)
def test_increments_of_one_atom_answer_as_one_by_one(make: Make, counter: roost.Counter[str]) -> None:
    store = make(counter)
    store.run(counter.add("b", 10))
    assert store.run_all(
        counter.increment("b"),
        counter.increment("a", 2),
        counter.increment("b", -3),
        counter.add("b", 100),
        counter.increment("b"),
        counter.clear("a"),
        counter.increment("a"),
        counter.total("b"),
    ) == (11, 2, 8, None, 109, 2, 1, 109)


@pytest.mark.parametrize("counter", [spread, tickets], ids=repr)
def test_an_increment_past_64_bits_is_refused_and_changes_nothing(make: Make, counter: roost.Counter[str]) -> None:
    store = make(counter)
    assert store.run(counter.increment("/home", MOST)) == MOST
    with pytest.raises(roost.Overflow, match=rf"{counter.name}.increment\('/home', 1\).*64 bits"):
        store.run(counter.increment("/home", 1))
    with pytest.raises(roost.Overflow):
        store.run_all(counter.increment("/other"), counter.increment("/home", 2), counter.increment("/home", -2))
    assert store.run(counter.totals(["/home", "/other"])) == {"/home": MOST, "/other": 0}


def test_an_increment_sums_slots_beyond_64_bits(make: Make) -> None:
    store = make(spread)
    by_hand(store, *[f"INSERT INTO roost_spread_rows VALUES ('/home', {slot}, {MOST // 2})" for slot in range(4)])
    assert store.run(spread.increment("/home", 3)) == 4 * (MOST // 2) + 3


@pytest.mark.parametrize("counter", [pageviews, tickets], ids=repr)
def test_no_two_of_many_callers_get_the_same_total(open_store: Make, store_url: str, counter: Any) -> None:
    """Threads of two stores where there can be two, beside others that only add, and inside a longer transaction."""
    stores = [open_store(counter)]
    if store_url != "sqlite://":
        stores.append(open_store(random=random.Random(8)))
    start = threading.Barrier(9)
    answers: list[list[int]] = [[] for _ in range(6)]

    def increment(me: int) -> None:
        start.wait()
        for _ in range(25):
            answers[me].append(stores[me % len(stores)].run(counter.increment("/home")))

    def in_atoms() -> None:
        start.wait()
        for _ in range(10):
            answers[5] += stores[0].run_all(counter.increment("/home"), counter.increment("/home"))

    def add(me: int) -> None:
        start.wait()
        for _ in range(25):
            stores[me % len(stores)].run(counter.add("/home", 3))

    threads = [threading.Thread(target=increment, args=(me,)) for me in range(5)]
    threads += [threading.Thread(target=in_atoms), *[threading.Thread(target=add, args=(me,)) for me in range(3)]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [total for mine in answers for total in mine]
    assert len(set(found)) == len(found) == 5 * 25 + 2 * 10
    assert all(mine == sorted(mine) for mine in answers)
    assert max(found) <= stores[0].run(counter.total("/home")) == len(found) + 3 * 3 * 25


def test_an_atom_past_64_bits_keeps_nothing(make: Make) -> None:
    store = make(pageviews)
    with pytest.raises(roost.Overflow):
        store.run_all(pageviews.add("/other"), pageviews.add("/home", MOST), pageviews.add("/home", 1))
    assert store.run(pageviews.totals(["/home", "/other"])) == {"/home": 0, "/other": 0}


def test_totals_over_several_slots_are_exact_and_of_any_size(make: Make) -> None:
    spread = roost.Counter("spread", slots=4)
    store = make(spread)
    rows = [("/home", slot, MOST) for slot in range(4)] + [("/low", slot, -MOST - 1) for slot in range(4)]
    by_hand(store, *[f"INSERT INTO roost_spread_rows VALUES ('{key}', {slot}, {n})" for key, slot, n in rows])
    assert store.run(spread.total("/home")) == 4 * MOST
    assert store.run(spread.top()) == [("/home", 4 * MOST), ("/low", -4 * (MOST + 1))]
    assert store.run(spread.clear("/low")) == -4 * (MOST + 1)


def test_pitfall_a_null_count_a_default_or_an_id_per_add_do_not_exist(open_store: Make) -> None:
    (table,) = (sql for sql in open_store(pageviews).ddl(pageviews) if "CREATE TABLE roost_pageviews_rows" in sql)
    assert "NULL," not in table.replace("NOT NULL,", "")
    assert "AUTO" not in table
    assert "DEFAULT" not in table
    assert re.search(r"PRIMARY KEY \(.key., slot\)", table)


def test_source_text_the_slots_of_home_sum_up(make: Make) -> None:
    """The slotted counter's own table: slots 0, 36, 7, 81 and 23 of /home."""
    text = roost.Counter("pageviews_counts", slots=100)
    store = make(text)
    rows = [(0, 2), (36, 1), (7, 1), (81, 2), (23, 3)]
    by_hand(store, *[f"INSERT INTO roost_pageviews_counts_rows VALUES ('/home', {slot}, {n})" for slot, n in rows])
    assert store.run(text.total("/home")) == 9
    store.run(text.add("/home"))
    assert store.run(text.total("/home")) == 10


def test_f66_keys_of_a_counter_are_removed_by_its_rows_too(open_store: Make) -> None:
    """A trigger on a view works off one row after the other: for many keys the page on views names this way."""
    store = open_store(pageviews)
    store.run_all(*[pageviews.add(f"/{n}", n) for n in range(100)])
    by_hand(store, "DELETE FROM roost_pageviews_rows")
    assert store.check() == []
    assert store.run(pageviews.top()) == []
    assert store.run_all(pageviews.add("/1"), pageviews.total("/1")) == (None, 1)


def test_clear_returns_what_slots_beyond_the_declared_ones_hold(make: Make) -> None:
    few = roost.Counter("few", slots=2)
    store = make(few)
    by_hand(store, "INSERT INTO roost_few_rows VALUES ('/home', 20, 15)")
    assert store.run(few.clear("/home")) == 15
    assert store.run(few.clear("/home")) == 0


@pytest.mark.needs("application", "second store")
@pytest.mark.parametrize("slots", [1, 4])
def test_an_increment_returns_no_old_snapshots_total(open_store: Make, application: Application, slots: int) -> None:
    """The isolation level may be that of the next transaction only, which no variable of MariaDB's shows."""
    if application.kind not in ("mariadb", "mysql"):
        return  # PostgreSQL: `test_f87_...`
    tickets = roost.Counter("tickets", slots=slots)
    store = open_store(tickets)
    store.run(tickets.add("oslo", 2))
    application("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    application("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    application("START TRANSACTION")
    application("SELECT * FROM roost_tickets_rows")
    store.run(tickets.add("oslo", 30))
    application("CALL roost_tickets_increment('oslo', 1, @total)")
    assert application("SELECT @total") == [(33,)]
    application("ROLLBACK")


@pytest.mark.needs("psycopg")
@pytest.mark.parametrize("parameters", ["key text, n bigint", "k text, n bigint", "cmd text"])
def test_a_function_that_somebody_else_has_made_is_not_taken_for_a_program(
    open_store: Make, application: Application, parameters: str
) -> None:
    application(f"CREATE FUNCTION pageviews_add({parameters}) RETURNS text LANGUAGE sql AS 'SELECT NULL::text'")
    application("COMMENT ON FUNCTION pageviews_add IS 'of somebody'")
    with pytest.raises(roost.Invalid, match="pageviews_add that Roost has not made"):
        open_store(pageviews)
    assert application("SELECT prosecdef, prosrc FROM pg_proc WHERE proname = 'pageviews_add'") == [
        (False, "SELECT NULL::text")
    ]


@pytest.mark.needs("psycopg")
def test_rights_that_a_former_owner_gave_are_not_kept(open_store: Make, application: Application, role: str) -> None:
    store = open_store(pageviews)
    application("DROP FUNCTION pageviews_add(text, bigint)")
    application(f"GRANT USAGE, CREATE ON SCHEMA public TO {role}")
    application(f"SET ROLE {role}")
    text = "/* made by Roost */ SELECT"
    application(f"CREATE FUNCTION pageviews_add(key text, n bigint) RETURNS void LANGUAGE sql AS '{text}'")
    application("COMMENT ON FUNCTION pageviews_add IS 'a program, made by Roost'")
    application("RESET ROLE")
    store.create(pageviews)
    assert application(f"SELECT has_function_privilege('{role}', 'pageviews_add(text, bigint)', 'EXECUTE')") == [
        (False,)
    ]
    assert store.check() == []
