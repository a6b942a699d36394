"""Tables of the application's own that lose their rows by age, on PostgreSQL: at COMMIT, in growing lots."""

from __future__ import annotations

import pytest

import roost
from tests.suite.application import Application
from tests.suite.capping.age_test import DAY, age, cap, fill, make, now, numbers, told
from tests.suite.capping.tables import Connect, Open

pytestmark = pytest.mark.needs("trims at commit")


@pytest.fixture
def events(application: Application) -> Application:
    make(application)
    return application


def test_a_transaction_deletes_when_it_ends_and_twice_what_it_adds(open_store: Open, events: Application) -> None:
    cap(open_store())
    age(events)
    events("BEGIN")
    events("INSERT INTO events (n, at) SELECT 5000 + k, now() AT TIME ZONE 'UTC' FROM generate_series(1, 40) k")
    assert len(numbers(events)) == 1040
    events("SAVEPOINT here")
    events("INSERT INTO events (n, at) SELECT 6000 + k, now() AT TIME ZONE 'UTC' FROM generate_series(1, 40) k")
    events("ROLLBACK TO here")
    events("COMMIT")
    assert len(numbers(events)) == 1000 + 40 - (10 + 20 + 40 + 80)  # at the rows 1, 6, 16 and 36
    fill(events, [0], first=7000)
    assert len(numbers(events)) == 890 + 1 - 10
    events("BEGIN")
    events("SET CONSTRAINTS ALL IMMEDIATE")
    events("UPDATE events SET at = now() AT TIME ZONE 'UTC' WHERE n = 7000")
    assert len(numbers(events)) == 871
    events("ROLLBACK")
    events("UPDATE events SET n = 7001 WHERE n = 7000")  # not of its time
    assert len(numbers(events)) == 881
    events("DELETE FROM events WHERE n < 999")
    events("INSERT INTO events (n, at) SELECT 0, now() AT TIME ZONE 'UTC' FROM generate_series(1, 3000)")
    assert events("SELECT count(*) FROM events WHERE n = 999") == [(0,)]


def test_a_transaction_of_many_rows_searches_a_few_times(open_store: Open, events: Application) -> None:
    cap(open_store())
    age(events, 3000)
    events("BEGIN")
    events("INSERT INTO events (n, at) SELECT 0, now() AT TIME ZONE 'UTC' FROM generate_series(1, 2000) k")
    events("SET CONSTRAINTS ALL IMMEDIATE")
    ((lot,),) = events("SELECT current_setting('roostcap.l' || 'events'::regclass::oid)::int")
    assert 2000 <= lot <= 8000  # twice as many rows each time
    events("COMMIT")
    assert len([n for n in numbers(events) if n]) == 0


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("child", [False, True])
def test_two_that_write_at_once_wait_for_nothing_and_fail_not(
    open_store: Open, events: Application, connect: Connect, level: str, child: bool
) -> None:
    if child:
        events("CREATE TABLE notes (event bigint REFERENCES events ON DELETE CASCADE)")
        events("CREATE INDEX ON notes (event)")
    cap(open_store())
    age(events, 30)
    if child:
        events("INSERT INTO notes SELECT id FROM events")
    first, second = connect(), connect()
    for each in (first, second):
        each("SET lock_timeout = '5s'")
        each(f"BEGIN ISOLATION LEVEL {level}")
        each("SELECT count(*) FROM events WHERE n = -1")
    moment = told(events, "plain", now())
    first("INSERT INTO events (n, at) VALUES (100, ?)", moment)
    first("COMMIT")
    second("INSERT INTO events (n, at) VALUES (101, ?)", moment)
    second("COMMIT")
    assert {100, 101} <= set(numbers(events))
    for n in range(102, 106):
        events("INSERT INTO events (n, at) VALUES (?, ?)", n, moment)
    assert numbers(events) == [100, 101, 102, 103, 104, 105]


def test_rows_of_other_tables_that_somebody_holds_keep_only_theirs(
    open_store: Open, events: Application, connect: Connect
) -> None:
    events("CREATE TABLE notes (event bigint REFERENCES events ON DELETE CASCADE)")
    events("CREATE INDEX ON notes (event)")
    store = open_store()
    fill(events, [31 * DAY + n for n in range(700)])
    events("INSERT INTO notes SELECT id FROM events WHERE n = 650")
    other = connect()
    other("BEGIN")
    other("SELECT * FROM notes FOR UPDATE")
    assert cap(store) == 699
    assert numbers(events) == [650]
    fill(events, [0], first=1000)
    assert numbers(events) == [650, 1000]
    other("COMMIT")
    fill(events, [0], first=1001)
    assert numbers(events) == [1000, 1001]


def test_a_domain_tells_no_time(open_store: Open, application: Application) -> None:
    application("CREATE DOMAIN moment AS timestamptz")
    application("CREATE TABLE events (id {id}, n int, at moment)")
    with pytest.raises(roost.Invalid, match="at has the type domain over timestamptz"):
        cap(open_store())
