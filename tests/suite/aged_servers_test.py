"""Tables that lose their rows by age, on servers: what only PostgreSQL or only MariaDB does."""

from __future__ import annotations

import datetime as dt
import subprocess
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

import roost
from roost.store import bursts
from tests import servers
from tests.campaigns.processes import until
from tests.suite.aged_test import DAY, INDEX, INSERT, MONTH, Open, cap, fill, make, now, numbers, settle, told
from tests.suite.application import Application

commit = pytest.mark.needs("trims at commit")
passes = pytest.mark.needs("trims in passes")

Connect = Callable[[], Application]


@pytest.fixture
def connect(store_url: str) -> Iterator[Connect]:
    """Make another connection."""
    made: list[Application] = []

    def connect_() -> Application:
        made.append(Application(store_url))
        return made[-1]

    yield connect_
    for each in made:
        each.close()


@pytest.fixture
def events(application: Application) -> Application:
    make(application)
    return application


# PostgreSQL


def age(application: Application, n: int = 1000) -> None:
    """Let rows of a capped table get too old without a write that a trigger sees."""
    application("SET session_replication_role = replica")
    fill(application, [31 * DAY + k for k in range(n)])
    application("RESET session_replication_role")


@commit
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


@commit
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


@commit
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


@commit
def test_rows_that_somebody_holds_are_passed_over(open_store: Open, events: Application, connect: Connect) -> None:
    cap(open_store())
    age(events, 20)
    other = connect()
    other("BEGIN")
    other("UPDATE events SET n = -1 WHERE n = 19")  # the oldest
    events("SET lock_timeout = '2s'")
    fill(events, [0], first=100)
    fill(events, [0], first=101)
    assert numbers(events) == [19, 100, 101]
    other(f"UPDATE events SET at = '{now():%Y-%m-%d}' WHERE n = -1")
    other("COMMIT")
    fill(events, [0], first=102)
    assert numbers(events) == [-1, 100, 101, 102]  # it was renewed


@commit
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


@commit
def test_by_the_owner_s_rights_whoever_writes_and_whoever_has_capped(
    application: Application, connect: Connect
) -> None:
    owner, new, capper, writer = names = [
        f"{what}_{application.url.rpartition('/')[2]}" for what in ("owner", "new", "capper", "writer")
    ]
    for role in names:
        application(f"CREATE ROLE {role} LOGIN")
    try:
        application(f"GRANT CREATE ON SCHEMA public TO {owner}, {new}, {capper}")
        application(f"GRANT {owner}, {new} TO {capper}")
        application(f"SET ROLE {owner}")
        make(application)
        application(f"GRANT INSERT ON events TO {writer}")
        application(
            "CREATE FUNCTION become() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN RAISE 'a superuser'; END IF;"
            " RETURN OLD; END $$"
        )
        application("CREATE TRIGGER own BEFORE DELETE ON events FOR EACH ROW EXECUTE FUNCTION become()")
        fill(application, [40 * DAY] * 30)
        application("RESET ROLE")
        url = urlsplit(application.url)
        with roost.Store(url._replace(netloc=f"{capper}@{url.netloc.rpartition('@')[2]}").geturl()) as store:
            assert cap(store) == 30
            age(application, 5)
            other = connect()
            other(f"SET ROLE {writer}")
            fill(other, [0], first=100)
            assert numbers(application) == [100]
            # Given to somebody else, it takes rows as before, and loses none until it is capped anew.
            application("DROP TRIGGER own ON events")
            application(f"ALTER TABLE events OWNER TO {new}")
            age(application, 5)
            fill(other, [0], first=101)
            assert len(numbers(application)) == 7
            assert {each.rule for each in store.check()} == {"triggers"}
            assert cap(store, None, None) == 5
            assert store.check() == []
            application(f"ALTER TABLE events OWNER TO {owner}")
            cap(store, None, None)
            bursts.uncap(store, "events")
    finally:
        application("RESET ROLE")
        for role in names:
            application(f"REASSIGN OWNED BY {role} TO CURRENT_USER")
            application(f"DROP OWNED BY {role} CASCADE")
            application(f"DROP ROLE {role}")


@commit
def test_a_dump_is_restored_without_an_error(open_store: Open, events: Application) -> None:
    try:
        dumps, restores = [
            servers.binary(name, servers.POSTGRESQL[1], "postgresql-client") for name in ("pg_dump", "psql")
        ]
    except servers.NotHere as error:
        servers.not_run(error)
    cap(open_store())
    age(events, 5)
    restored = f"{events.url}_restored"
    events(f"CREATE DATABASE {restored.rpartition('/')[2]}")
    dump = subprocess.run([dumps, events.url], check=True, capture_output=True).stdout
    done = subprocess.run([restores, "-qv", "ON_ERROR_STOP=1", restored], input=dump, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    application = Application(restored)
    try:
        with roost.Store(restored) as store:
            assert store.check() == []
        fill(application, [0], first=100)
        assert numbers(application) == [100]
    finally:
        application.close()


@commit
def test_a_session_in_another_zone_deletes_nothing_younger(open_store: Open, application: Application) -> None:
    make(application, "zoned")
    cap(open_store(), 2 * 3600)
    for zone in ("Pacific/Kiritimati", "Pacific/Niue"):
        application(f"SET TIME ZONE '{zone}'")
        fill(application, [3600, 3 * 3600, 0], "zoned")
        assert numbers(application) == [0, 2]
        application("DELETE FROM events")


@commit
def test_a_domain_and_another_schema(open_store: Open, application: Application) -> None:
    application("CREATE DOMAIN moment AS timestamptz")
    application("CREATE TABLE events (id {id}, n int, at moment)")
    with pytest.raises(roost.Invalid, match="at has the type domain over timestamptz"):
        cap(open_store())
    application("DROP TABLE events")
    make(application)
    cap(open_store())
    application("CREATE SCHEMA tenant")
    application("CREATE TABLE tenant.events (LIKE events INCLUDING ALL)")
    application("SET search_path = tenant")
    fill(application, [40 * DAY])
    application("INSERT INTO public.events (n, at) SELECT 1, '2008-01-01' FROM generate_series(1, 4) n")
    assert application("SELECT (SELECT count(*) FROM tenant.events), (SELECT count(*) FROM public.events)") == [(1, 0)]


# MariaDB


@passes
def test_a_pass_deletes_and_check_says_when_nobody_makes_one(store_url: str, events: Application) -> None:
    with roost.Store(store_url) as store, roost.Store(store_url) as watcher:
        cap(store)
        made = bursts.inspect(store, "events").cap
        assert bursts.keeper(store, made) == ""
        fill(events, [40 * DAY] * 1200 + [0])
        (violation,) = store.check()
        assert violation.rule == "older_than"
        assert "1,200 rows are older than 30d, and nobody deletes them" in violation.detail
        bursts.claim(watcher, made)
        assert store.check() == []
        assert sum(bursts.work_off(watcher, made)) == 1200
        assert numbers(events) == [1200]
        assert "roostcap" not in str(events.schema())  # neither a trigger nor a table: an INSERT costs what it did


@passes
def test_a_server_event_makes_the_passes(store_url: str, events: Application) -> None:
    before = events("SELECT @@event_scheduler")[0][0]
    events("SET GLOBAL event_scheduler = ON")
    try:
        with roost.Store(store_url) as store:
            cap(store)
            assert bursts.keeper(store, bursts.inspect(store, "events").cap) == "event"
            fill(events, [40 * DAY + n for n in range(1100)] + [29 * DAY, 0, -DAY])
            until(lambda: numbers(events) == [1100, 1101, 1102], "the event has come by")
            assert store.check() == []
            cap(store, 20 * DAY)
            until(lambda: numbers(events) == [1101, 1102], "the event goes by the new age")
            events("SET GLOBAL event_scheduler = OFF")
            cap(store, 90 * DAY)  # the event of before would go by the smaller age
            assert "roostcap" not in str(events.schema())
            events("SET GLOBAL event_scheduler = ON")
            cap(store, None, None)
            bursts.uncap(store, "events")
            cap(store)
            keeps = "IF OLD.n = 1 THEN SIGNAL SQLSTATE '45000'; END IF"
            events(f"CREATE TRIGGER kept BEFORE DELETE ON events FOR EACH ROW {keeps}")
            fill(events, [40 * DAY] * 3)
            until(lambda: numbers(events) == [1, 1101, 1102], "all but the row that a trigger keeps")
            bursts.uncap(store, "events")
        assert events("SELECT count(*) FROM information_schema.EVENTS WHERE EVENT_SCHEMA = DATABASE()") == [(0,)]
    finally:
        events(f"SET GLOBAL event_scheduler = {before}")


@passes
def test_an_event_is_known_again_whatever_the_table_is_called(store_url: str, application: Application) -> None:
    before = application("SELECT @@event_scheduler")[0][0]
    application("CREATE TABLE `ünï\\-Ö` (id {id}, `zeit_é` DATETIME(6))")
    application("SET GLOBAL event_scheduler = ON")
    try:
        with roost.Store(store_url) as store:
            found = bursts.inspect(store, "ünï\\-Ö", by="zeit_é", older_than=MONTH)
            list(bursts.cap(store, found))
            assert bursts.keeper(store, found.cap) == "event"
            assert store.check() == []
            bursts.uncap(store, "ünï\\-Ö")
    finally:
        application(f"SET GLOBAL event_scheduler = {before}")


@passes
def test_rows_that_somebody_holds_stay_for_the_next_pass(
    open_store: Open, events: Application, connect: Connect
) -> None:
    store = open_store()
    cap(store)
    fill(events, [31 * DAY + n for n in range(20)])
    other = connect()
    other("BEGIN")
    other("UPDATE events SET n = -1 WHERE id = 20")
    assert settle(store) == 19
    assert numbers(events) == [19]
    other(f"UPDATE events SET at = '{now():%Y-%m-%d}' WHERE n = -1")
    other("COMMIT")
    assert settle(store) == 0
    assert numbers(events) == [-1]
    bursts.uncap(store, "events")


@passes
@pytest.mark.parametrize("zone", ["+13:00", "-12:00"])
def test_a_session_s_zone_changes_nothing(open_store: Open, application: Application, zone: str) -> None:
    make(application, "zoned")
    application(f"SET GLOBAL time_zone = '{zone}'")
    try:
        fill(application, [3600, 3 * 3600, 0], "zoned")
        assert cap(open_store(), 2 * 3600) == 1
        assert numbers(application) == [0, 2]
    finally:
        application("SET GLOBAL time_zone = 'SYSTEM'")


@passes
def test_an_hour_that_is_there_twice_is_two_hours(open_store: Open, application: Application) -> None:
    # A zone of the tests' own: ten days ago the clock went back by an hour.
    change = now().replace(microsecond=0) - dt.timedelta(days=10)
    zone = 70_000
    application(f"INSERT INTO mysql.time_zone VALUES ({zone}, 'N')")
    application(f"INSERT INTO mysql.time_zone_name VALUES ('Roost/Autumn {change:%s}', {zone})")
    application(f"INSERT INTO mysql.time_zone_transition VALUES ({zone}, {change:%s}, 1)")
    for kind, offset in ((0, 7200), (1, 3600)):
        application(f"INSERT INTO mysql.time_zone_transition_type VALUES ({zone}, {kind}, {offset}, 0, 'R{kind}')")
    application("CREATE TABLE events (n INT, at TIMESTAMP NOT NULL, PRIMARY KEY (n, at))")
    application(INDEX)
    application("SET time_zone = '+00:00'")
    application(f"SET GLOBAL time_zone = 'Roost/Autumn {change:%s}'")
    try:
        for n in range(5):
            for minutes in (-30, 30):
                application(INSERT, n, f"{change + dt.timedelta(minutes=minutes):%Y-%m-%d %H:%M:%S}")
        assert cap(open_store(), 10 * DAY + 900) == 5
        assert application("SELECT count(*), min(at) FROM events") == [
            (5, (change + dt.timedelta(minutes=30)).replace(tzinfo=None))
        ]
    finally:
        application("SET GLOBAL time_zone = 'SYSTEM'")
        for table in ("time_zone", "time_zone_name", "time_zone_transition", "time_zone_transition_type"):
            application(f"DELETE FROM mysql.{table} WHERE time_zone_id = {zone}")


@passes
def test_a_date_of_noughts_tells_no_time(open_store: Open, application: Application) -> None:
    application("SET sql_mode = ''")
    application("CREATE TABLE events (id {id}, n INT, at DATETIME NOT NULL)")
    application(INDEX)
    application("INSERT INTO events (n, at) VALUES (1, '0000-00-00'), (2, '2008-01-01')")
    assert cap(open_store(), MONTH) == 1
    assert numbers(application) == [1]
