"""What a store promises, whatever the structures: creating, atoms, batches, its life."""

from __future__ import annotations

import datetime as dt
import pickle
import threading
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import roost
from roost.contrib.windows import Windows
from roost.structures.registry import from_definition, plan_for
from tests.campaigns.processes import until
from tests.lengths import length
from tests.suite import clients
from tests.suite.age_test import KINDS
from tests.suite.shapes import Egg, Make, Place, Visit, baskets, in_threads, likes, pageviews, visits

ALL = (pageviews, visits, baskets, likes)


def test_create_makes_what_is_missing_and_may_be_called_again(make: Make) -> None:
    store = make(pageviews)
    store.run(pageviews.add("/home"))
    store.create(*ALL)
    store.create(*ALL)
    assert store.run_all(pageviews.total("/home"), visits.latest(1)) == (1, [])


def test_using_what_is_not_there_is_missing_and_says_what_to_do(make: Make) -> None:
    store = make(pageviews)
    with pytest.raises(roost.Missing, match=r"store\.create\(visits\)"):
        store.run(visits.latest(5))
    with pytest.raises(roost.Missing):
        store.run_all(pageviews.add("/home"), visits.push(Visit(5, 1)))
    assert store.run(pageviews.total("/home")) == 0


@pytest.mark.needs("file")
def test_before_create_there_is_no_file_and_everything_is_missing(
    open_store: Make, store_url: str, tmp_path: Path
) -> None:
    with roost.Store(store_url) as store:
        for operation in (pageviews.total("/home"), pageviews.add("/home")):
            with pytest.raises(roost.Missing, match=r"create"):
                store.run(operation)
        with pytest.raises(roost.Missing):
            store.check()
    assert list(tmp_path.iterdir()) == []
    open_store(pageviews)
    assert (tmp_path / "suite.db").exists()


CHANGED: list[tuple[Any, str]] = [
    (roost.Counter("pageviews", slots=4), "slots is None in the database and 4 in the declaration"),
    (roost.Counter("pageviews", key=int), r"column key is text\(255\) in the database and int in the declaration"),
    (roost.Ring("visits", Visit, per="uid", keep=6), "keep is 5 in the database and 6 in the declaration"),
    (roost.Ring("visits", Visit, per="visitor", keep=5), "per is uid in the database and visitor"),
    (roost.Ring("visits", Egg, per="egg", keep=5), r"column uid \(int\) is only in the database"),
    (roost.Set("visits"), "kind is ring in the database and set in the declaration"),
    (
        roost.Capped("baskets", Egg, per="basket", keep=12, unique="egg", on_full="reject"),
        "on_full is evict in the database and reject in the declaration",
    ),
]


def test_a_changed_declaration_is_refused_and_the_difference_named(make: Make) -> None:
    store = make(*ALL)
    for changed, message in CHANGED:
        with pytest.raises(roost.Mismatch, match=message):
            store.create(changed)
        operation = changed.clear((changed.key.columns[0].type.kind == "text" and "1") or 1)
        if message.partition(" ")[0] in ("keep", "slots", "on_full"):  # as while a change is deployed
            assert store.run(operation) == 0
        else:
            with pytest.raises(roost.Mismatch, match=message):
                store.run(operation)


@pytest.mark.shared
def test_two_declarations_of_one_name_in_one_batch(make: Make) -> None:
    store = make(pageviews)
    other = roost.Counter("pageviews", key=int)
    with pytest.raises(roost.Mismatch):
        store.run_all(pageviews.add("/home"), other.add(1))
    same = roost.Counter("pageviews")
    assert store.run_all(pageviews.add("/home"), same.add("/home"), pageviews.total("/home"))[2] == 2


def test_a_structure_may_be_named_as_a_part_of_another_one(make: Make) -> None:
    parts = [roost.Lease("pages_leases"), roost.RateLimit("hits_head", limit=1, within=60)]
    make(roost.Cache("pages"), Windows("hits"), *parts)


def test_create_is_all_or_nothing(open_store: Make) -> None:
    store = open_store(pageviews)
    with pytest.raises(roost.Mismatch):
        store.create(visits, roost.Counter("pageviews", key=int))
    with pytest.raises(roost.Missing):
        store.run(visits.latest(1))


def test_ddl_is_exactly_what_create_runs(open_store: Make, statements: list[str]) -> None:
    store = open_store()
    store.create(*ALL)
    made = [sql for sql in statements if sql.startswith(("CREATE", "INSERT", "DO", "RENAME", "DROP PROCEDURE"))]
    assert sorted(made) == sorted(store.ddl(*ALL))


def test_an_atom_over_several_structures_is_all_or_nothing(make: Make) -> None:
    store = make(*ALL)
    store.run(baskets.add(Egg(1, 1)))
    with pytest.raises(roost.Duplicate):
        store.run_all(pageviews.add("/home"), likes.add(1, "a"), visits.push(Visit(1, 1)), baskets.add(Egg(1, 1)))
    assert store.run_all(pageviews.total("/home"), likes.size(1), visits.latest(1), baskets.count(1)) == (0, 0, [], 1)


@pytest.mark.shared
def test_what_is_asked_is_checked_and_may_be_asked_again(make: Make, statements: list[str]) -> None:
    store = make(pageviews)
    before = len(statements)
    assert store.run_all() == ()
    with pytest.raises(roost.Invalid, match="is not an operation"):
        store.run("add")
    assert len(statements) == before
    with pytest.raises(roost.Invalid, match="is not a structure"):
        store.create("pageviews")
    with pytest.raises(roost.Invalid, match="two different structures are named pageviews"):
        store.create(pageviews, roost.Counter("pageviews", key=int))
    store.create(pageviews, roost.Counter("pageviews"))
    operation = pageviews.add("/home")
    store.run_all(operation, operation)
    store.run(operation)
    assert store.run(pageviews.total("/home")) == 3


@pytest.mark.needs("file")
def test_reads_alone_go_on_a_connection_of_their_own(open_store: Make, statements: list[str]) -> None:
    store = open_store(pageviews)
    store.run(pageviews.add("/home"))
    statements.clear()
    store.run(pageviews.total("/home"))
    assert [sql.split()[0] for sql in statements] == ["BEGIN", "SELECT", "COMMIT"]
    assert "IMMEDIATE" not in statements[0]


@pytest.mark.shared
def test_stats_count_batches_and_operations(open_store: Make) -> None:
    store = open_store(pageviews)
    before = store.stats()
    store.run_all(*[pageviews.add("/home")] * 10)
    store.run(pageviews.add("/home"))
    after = store.stats()
    assert (after.batches - before.batches, after.operations - before.operations) == (2, 11)
    assert repr(store).startswith(f"<Store {store.url}: Stats(")


def test_closing_twice_and_using_afterwards() -> None:
    store = roost.Store("sqlite://")
    store.create(pageviews)
    store.close()
    store.close()
    for operation in (pageviews.total("/"), pageviews.add("/")):
        with pytest.raises(roost.Closed):
            store.run(operation)


def test_threads_get_each_its_own_answer(open_store: Make) -> None:
    store = open_store(*ALL)
    rounds = length(15, 40)

    def work(me: int) -> None:
        for n in range(1, rounds + 1):
            assert store.run(visits.push(Visit(me, n))) == n
            assert store.run(likes.add(0, f"{me}-{n}")) == 1
            store.run(pageviews.add("/home"))
            assert store.run(visits.latest(me, 1)) == [Visit(me, n)]
            assert store.run_all(pageviews.add(f"/{me}"), pageviews.total(f"/{me}"))[1] == n

    in_threads(*[partial(work, me) for me in range(16)])
    assert store.run_all(pageviews.total("/home"), likes.size(0)) == (16 * rounds, 16 * rounds)


def test_what_waits_while_a_batch_commits_shares_the_next(open_store: Make) -> None:
    committing, go_on = threading.Event(), threading.Event()

    def trace(sql: str, row: object) -> None:
        if sql == "COMMIT" and armed and not committing.is_set():
            committing.set()
            go_on.wait()

    armed = False
    store = open_store(pageviews, trace=trace)
    before, armed = store.stats().batches, True
    threads = [threading.Thread(target=store.run, args=(pageviews.add("/home"),)) for _ in range(16)]
    threads[0].start()
    assert committing.wait(60)
    for thread in threads[1:]:
        thread.start()
    until(lambda: len(store._working.writers._waiting) == 15, "15 threads that wait")
    go_on.set()
    for thread in threads:
        thread.join()
    assert store.run(pageviews.total("/home")) == 16
    assert store.stats().batches - before == 2 + 1  # the first, the one of those who waited, and the reading


@pytest.mark.needs("second store")
def test_another_store_sees_what_was_answered(open_store: Make) -> None:
    one, two = open_store(*ALL), open_store(*ALL)
    for n in range(1, 30):
        writer, reader = (one, two) if n % 2 else (two, one)
        assert writer.run(visits.push(Visit(5, n))) == n
        assert reader.run(visits.latest(5, 1)) == [Visit(5, n)]


@pytest.mark.needs("ring", "capped", "file")  # on servers the clock is theirs
@pytest.mark.parametrize("hours", [0, 2, -7])
def test_f5_the_clock_comes_in_as_an_argument_and_may_be_of_any_zone(make: Make, hours: int) -> None:
    noon = dt.datetime(2026, 6, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=hours)))
    store = make(visits, baskets, clock=lambda: noon)
    store.run_all(visits.push(Visit(1, 1)), baskets.add(Egg(1, 1)))
    entries = store.run_all(visits.entries(1), baskets.entries(1))
    assert [(entry.at, entry.at.utcoffset()) for (entry,) in entries] == [(noon, dt.timedelta(0))] * 2


@pytest.mark.needs("ring", "capped", "file")
@pytest.mark.parametrize("moment", [dt.datetime(2026, 6, 1, 12), dt.date(2026, 6, 1), 1780315200.0])
def test_f5_a_clock_that_tells_no_moment_is_refused(make: Make, moment: Any) -> None:
    store = make(visits, baskets, likes, clock=lambda: moment)
    for op in (visits.push(Visit(1, 1)), baskets.add(Egg(1, 1))):
        with pytest.raises(roost.Invalid, match="the store's clock: "):
            store.run(op)
    assert store.run_all(visits.entries(1), baskets.entries(1)) == ([], [])
    assert store.run(likes.add(1, "a")) == 1, "what needs no clock asks none"


@pytest.mark.needs("memcached")
def test_f5_a_clock_without_a_zone_tells_no_time_to_live(make: Make) -> None:
    brief = roost.MemcachedSet("brief", int, str, ttl=1000)
    store = make(brief, clock=lambda: dt.datetime(2026, 6, 1, 12))
    with pytest.raises(roost.Invalid, match="has no time zone"):
        store.run(brief.add(1, "a"))
    assert store.run(brief.size(1)) == 0


@pytest.mark.parametrize("options", [{"timeout": -1}, {"timeout": "5"}, {"lock_wait": float("nan")}])
def test_options_that_mean_nothing_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(roost.Invalid, match="number of seconds"):
        roost.Store("sqlite://", **options)


@pytest.mark.shared
def test_declarations_that_are_equal_answer_with_rows_of_their_own_class(make: Make) -> None:
    @dataclass(frozen=True)
    class Other:
        uid: int
        visitor: int

    other = roost.Ring("visits", Other, per="uid", keep=5)
    assert other == visits
    store = make(visits)
    assert store.run_all(
        visits.push(Visit(1, 2)), other.latest(1), visits.latest(1), other.push(Other(1, 3)), visits.latest(1, 1)
    ) == (1, [Other(1, 2)], [Visit(1, 2)], 2, [Visit(1, 3)])


@pytest.mark.needs("file")
def test_a_connection_that_failed_is_dropped_and_the_log_says_so(
    open_store: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(pageviews)
    store.run(pageviews.add("/home"))
    store._core._writer.connection.raw.execute("PRAGMA query_only = ON")
    with pytest.raises(roost.ReadOnly):
        store.run(pageviews.add("/home"))
    assert [record.name for record in caplog.records] == ["roost"]
    store.run(pageviews.add("/home"))
    assert store.run(pageviews.total("/home")) == 2


@pytest.mark.needs("counter", "ring")
def test_who_reads_all_keys_sees_none_that_a_later_operation_makes(open_store: Make) -> None:
    counted, pushed = roost.Counter("counted"), roost.Ring("pushed", Visit, per="uid", keep=2)
    store = open_store(counted, pushed)
    assert store.run_all(counted.top(2), counted.add("a", -3), counted.keys(), counted.add("b"), counted.top(2)) == (
        *([], None, ["a"], None),
        [("b", 1), ("a", -3)],
    )
    assert store.run_all(pushed.keys(), pushed.push(Visit(1, 1)), pushed.keys()) == ([], 1, [1])


# --- declarations and operations are values ----------------------------------------------------------------------

logins = roost.RateLimit("logins", limit=3, within=86_400)
jobs = roost.Lease("jobs")
DECLARED: list[Any] = [
    *ALL,
    *[kind.declare() for kind in KINDS],
    roost.Set("short", keep=3),
    roost.Counter("hourly", window="hour", keep=2),
    roost.Cache("numbers", key=Place, value=int),
    roost.Cache("few", max_items=3, max_bytes=5_000),
    logins,
    jobs,
]


def test_declarations_come_back_from_the_catalog_as_they_were() -> None:
    with roost.Store("sqlite://") as store:
        store.create(*DECLARED)
        assert store.structures() == sorted(DECLARED, key=lambda each: each.name)
        with pytest.raises(roost.Mismatch, match="value"):
            store.create(roost.Cache("numbers", key=Place, value=bytes))
    for each in DECLARED:
        again = from_definition(each.definition)
        assert again == each == pickle.loads(pickle.dumps(each))
        assert type(again) is type(each)
    assert len(set(DECLARED)) == len(DECLARED)
    assert logins == roost.RateLimit("logins", limit=3, within=logins.within)
    assert logins.within == dt.timedelta(days=1)
    assert logins != roost.RateLimit("logins", limit=3, within=86_400.5)


def test_programs_are_not_replaced_by_those_of_a_version_with_another_column(server_url: str) -> None:
    pages = roost.Cache("pages")
    with roost.Store(server_url) as store:
        store.create(pages, view=False)
        dialect = store._core.known.catalog.dialect
        *_, last = plan_for(pages, dialect).routines
        with closing(clients.connect(server_url)) as connection:
            for sql in [*last.drop, "ALTER TABLE roost_pages_rows RENAME COLUMN due TO was"]:
                connection.execute(sql)
        with pytest.raises(roost.Mismatch, match="roost_pages_rows has no column due"):
            store.create(pages, view=False)
        with closing(clients.connect(server_url)) as connection:
            connection.execute("ALTER TABLE roost_pages_rows RENAME COLUMN was TO due")
        store.create(pages, view=False)
        store.run(pages.set("a", b"1"))
        assert store.check() == []
        with closing(clients.connect(server_url)) as connection:
            for sql in [*last.drop, "DROP TABLE roost_pages_rows"]:
                connection.execute(sql)
        with pytest.raises(roost.Mismatch, match=r"no roost_pages_rows: .* store\.drop\(pages\) drops the rest"):
            store.create(pages, view=False)
        store.drop(pages)
        store.create(pages, view=False)
