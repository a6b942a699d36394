"""Tables of the application's own, capped on MariaDB: notes, passes and the event."""

from __future__ import annotations

import datetime as dt

import pytest

import roost
from roost.store import bursts
from tests.campaigns.processes import until
from tests.suite.application import Application
from tests.suite.capping import age_test as aged
from tests.suite.capping.age_test import DAY, MONTH
from tests.suite.capping.number_test import added, named
from tests.suite.capping.tables import Connect, Open, cap, settle, several, visitors
from tests.suite.clients import numbers

pytestmark = pytest.mark.needs("trims in passes")
COUNT = "SELECT count(*) FROM visits"
NOTES = "SELECT count(*) FROM roostcap_visits_grown"


def passed(application: Application, times: int) -> None:
    """Return when the event of a table has come by so often, or has been there and is not run."""
    last = "SELECT LAST_EXECUTED FROM information_schema.EVENTS WHERE EVENT_SCHEMA = DATABASE()"
    for _ in range(times):
        before = application(last)
        until(lambda before=before: application(last) != before, "the event has come by")  # type: ignore[misc]


def test_between_passes_there_are_more_and_check_says_when_nobody_comes(store_url: str, visits: Application) -> None:
    aged.make(visits)
    with roost.Store(store_url) as store, roost.Store(store_url) as watcher:
        cap(store, keep=2)
        schema = visits.schema()
        aged.cap(store)
        assert visits.schema() == schema  # neither a trigger nor a table: an INSERT costs what it did
        made = [bursts.inspect(store, table).cap for table in ("visits", "events")]
        assert [bursts.keeper(store, each) for each in made] == ["", ""]
        several(visits, 5)
        assert visits("SELECT LAST_INSERT_ID(), min(id), count(*) FROM visits") == [(1, 1, 5)]
        aged.fill(visits, [40 * DAY] * 1200 + [0])
        found = {each.rule: each.detail for each in store.check()}
        assert set(found) == {"keep", "older_than"}
        assert "1,200 rows are older than 30d, and nobody deletes them" in found["older_than"]
        for each in (*made, *made):
            bursts.claim(watcher, each)
        # What is noted has been so for no second. Rows may be too old for long, and to hold the lock deletes none.
        assert [each.detail for each in store.check()] == [
            found["older_than"].replace("nobody deletes them; `roost cap events` does", "no pass has deleted them")
        ]
        assert [sum(bursts.work_off(watcher, each)) for each in made] == [3, 1200]
        assert (visitors(visits), aged.numbers(visits), visits(NOTES)) == ([3, 4], [1200], [(0,)])
        visits("DROP TRIGGER roostcap_visits_insert")
        several(visits, 5)
        assert {each.rule for each in store.check()} == {"keep", "triggers"}


def test_server_events_make_the_passes(store_url: str, visits: Application, scheduler: None) -> None:
    events = "SELECT count(*) FROM information_schema.EVENTS WHERE EVENT_SCHEMA = DATABASE()"
    aged.make(visits)
    with roost.Store(store_url) as store:
        cap(store, keep=2)
        aged.cap(store)
        assert {bursts.keeper(store, bursts.inspect(store, table).cap) for table in ("visits", "events")} == {"event"}
        several(visits, 900)
        several(visits, 5, uid=2)
        aged.fill(visits, [40 * DAY + n for n in range(1100)] + [29 * DAY, 0, -DAY])
        until(lambda: visits(COUNT) == [(4,)], "the event has come by")
        until(lambda: visits(NOTES) == [(0,)], "its notes are gone")
        assert visitors(visits) == [898, 899, 3, 4]
        until(lambda: aged.numbers(visits) == [1100, 1101, 1102], "the other event has come by")
        assert store.check() == []
        aged.cap(store, 20 * DAY)
        until(lambda: aged.numbers(visits) == [1101, 1102], "the event goes by the new age")
        visits("SET GLOBAL event_scheduler = OFF")
        aged.cap(store, 90 * DAY)  # the event of before would go by the smaller age
        assert visits(events) == [(1,)]
        visits("SET GLOBAL event_scheduler = ON")
        aged.cap(store, None, None)
        for table in ("visits", "events"):
            bursts.uncap(store, table)
        assert visits(events) == [(0,)]


def test_a_lock_that_a_stranger_can_hold_stops_no_pass(
    store_url: str, visits: Application, connect: Connect, scheduler: None
) -> None:
    stranger, database = connect(), visits.url.rpartition("/")[2]
    public = f"CONCAT('roostcap ', LEFT(SHA2('{database}.visits', 256), 32))"
    with roost.Store(store_url) as store:
        cap(store, keep=2)
        assert stranger(f"SELECT GET_LOCK({public}, 5)") == [(1,)]
        several(visits, 5)
        until(lambda: visits(COUNT) == [(2,)], "the event has come by")
        bursts.uncap(store, "visits")


def test_f36_names_that_an_event_uses_itself(store_url: str, application: Application, scheduler: None) -> None:
    with roost.Store(store_url) as store:
        tables = []
        for table, key in named(application, 0):
            tables.append(table)
            cap(store, ",".join(key), 2, "by", table)
            application(added(application, table, key, (1, 1), (1, 2), (1, 3)))
            application(f"UPDATE `{table}` SET {', '.join(f'`{each}` = 2' for each in key)}")
            application(added(application, table, key, (2, 4)))
        for name in tables:
            left = f"SELECT (SELECT sum(`by`) FROM `{name}`), (SELECT count(*) FROM `roostcap_{name}_grown`)"
            until(lambda left=left: application(left) == [(7, 0)], f"{name} has 3 and 4")  # type: ignore[misc]
        assert store.check() == []


def test_f40_what_a_foreign_key_moves_is_told_by_check_and_trimmed_with_the_next_insert(
    store_url: str, application: Application
) -> None:
    application("CREATE TABLE people (uid INT, room INT, PRIMARY KEY (uid, room))")
    application("INSERT INTO people VALUES (1, 1), (2, 2)")
    application(
        "CREATE TABLE visits (id {id}, uid INT, room INT,"
        " FOREIGN KEY (uid, room) REFERENCES people (uid, room) ON UPDATE CASCADE)"
    )
    with roost.Store(store_url) as store:
        cap(store, keep=2, newest_by=None)
        application("INSERT INTO visits (uid, room) VALUES (1, 1), (1, 1), (2, 2), (2, 2)")
        settle(store)
        application("UPDATE people SET uid = 1 WHERE uid = 2")
        assert application("SELECT uid, count(*) FROM visits GROUP BY 1") == [(1, 4)]
        assert [each.rule for each in store.check()] == ["keep"]
        application("INSERT INTO visits (uid, room) VALUES (1, 1)")
        assert settle(store) == 3
        assert store.check() == []


def test_notes_of_an_earlier_version_are_told_and_made_anew(store_url: str, visits: Application) -> None:
    with roost.Store(store_url) as store:
        cap(store, keep=2)
        visits("ALTER TABLE roostcap_visits_grown CHANGE roostcap_n n BIGINT UNSIGNED NOT NULL DEFAULT 0")
        visits("DROP TRIGGER roostcap_visits_insert")
        visits(
            "CREATE TRIGGER roostcap_visits_insert AFTER INSERT ON visits FOR EACH ROW\n"
            "INSERT IGNORE INTO roostcap_visits_grown (n, uid) VALUES (UUID_SHORT(), NEW.uid)"
        )
        several(visits, 5)
        answers = [each.detail for each in store.check() if each.rule == "triggers"]
        assert len(answers) == 2
        assert "an earlier version of Roost" in answers[0]
        assert cap(store, "", None) == 3
        several(visits, 2)
        assert settle(store) == 2


def test_a_foreign_key_has_an_index_whatever_comes_and_goes(open_store: Open, application: Application) -> None:
    # InnoDB drops the index that it has made for one as soon as Roost's is there, which then could not be dropped.
    application("CREATE TABLE users (id BIGINT PRIMARY KEY)")
    application("CREATE TABLE visits (id {id}, uid BIGINT, at VARCHAR(20), FOREIGN KEY (uid) REFERENCES users (id))")
    store, schema = open_store(), application.schema()
    for per, newest_by in (("uid", "at"), ("at", None)):
        cap(store, per, 5, newest_by)
        assert store.check() == []
    bursts.uncap(store, "visits")
    assert application.schema() == schema


def test_a_row_that_somebody_holds_is_passed_over_and_its_note_stays(
    open_store: Open, visits: Application, connect: Connect
) -> None:
    aged.make(visits)
    store, other = open_store(), connect()
    cap(store, keep=2)
    aged.cap(store)
    several(visits, 4)
    aged.fill(visits, [31 * DAY + n for n in range(20)])
    other("BEGIN")
    other("SELECT * FROM visits WHERE id = 1 FOR UPDATE")
    other("UPDATE events SET n = -1 WHERE id = 20")
    assert (settle(store), aged.settle(store)) == (1, 19)
    assert (visitors(visits), aged.numbers(visits)) == ([0, 2, 3], [19])
    other("UPDATE visits SET at = '2009' WHERE id = 1")
    other(f"UPDATE events SET at = '{aged.now():%Y-%m-%d}' WHERE n = -1")
    other("COMMIT")
    assert (settle(store), aged.settle(store)) == (1, 0)
    assert (visitors(visits), aged.numbers(visits)) == ([0, 3], [-1])


def test_a_pass_waits_for_no_writer_and_leaves_what_is_noted_meanwhile_to_the_next(
    open_store: Open, visits: Application, connect: Connect
) -> None:
    store, other = open_store(timeout=0.3), connect()
    cap(store, keep=2)
    several(visits, 20)  # of which nearly all go, which could be found by a scan
    other("BEGIN")
    several(other, 2, uid=2)
    deleted = []
    for gone in bursts.work_off(store, bursts.inspect(store, "visits").cap):
        deleted.append(gone)
        several(visits, 3)
        assert len(deleted) < 5
    assert sum(deleted) == 18
    other("COMMIT")
    settle(store)
    assert visits("SELECT uid, count(*) FROM visits GROUP BY 1") == [(1, 2), (2, 2)]


def test_rows_of_other_tables_that_somebody_holds_are_not_waited_for(
    open_store: Open, visits: Application, connect: Connect
) -> None:
    visits("CREATE TABLE notes (visit BIGINT, FOREIGN KEY (visit) REFERENCES visits (id) ON DELETE CASCADE)")
    store, other = open_store(timeout=0.3), connect()
    cap(store, keep=1)
    several(visits, 2)
    visits("INSERT INTO notes SELECT min(id) FROM visits")
    other("BEGIN")
    other("SELECT * FROM notes FOR UPDATE")
    with pytest.raises(roost.Busy):
        settle(store)
    store.run(roost.Capped.of("visits").add(uid=1, visitor=9, at="2009"))  # what it cannot have is left to the pass
    other("COMMIT")
    settle(store)
    assert visitors(visits) == [9]


def test_a_column_that_was_widened_makes_no_insert_fail(store_url: str, application: Application) -> None:
    application("CREATE TABLE visits (id {id}, uid TINYINT, visitor BIGINT)")
    with roost.Store(store_url) as store:
        cap(store, keep=1, newest_by=None)
        application("ALTER TABLE visits MODIFY uid INT")
        for n in range(3):
            application("INSERT INTO visits (uid, visitor) VALUES (1000, ?)", n)
        assert "triggers" in [each.rule for each in store.check()]
        assert cap(store, "", None, None) == 2
        application("INSERT INTO visits (uid, visitor) VALUES (1000, 9)")
        settle(store)
        assert visitors(application) == [9]
        assert store.check() == []


def test_a_text_is_never_taken_for_a_number(open_store: Open, visits: Application) -> None:
    store, table = open_store(), roost.Capped.of("visits")
    cap(store)
    several(visits, 3, uid=0)
    assert store.run_all(table.count("0"), table.count(0)) == (3, 3)
    for operation in (table.count("abc"), table.latest("abc"), table.keys(after="abc"), table.count(b"0")):
        with pytest.raises(roost.Invalid, match="uid is a bigint"):
            store.run(operation)


def test_a_noted_key_that_no_pass_works_off_is_told(open_store: Open, visits: Application) -> None:
    store = open_store()
    cap(store, keep=2)
    made = bursts.inspect(store, "visits", [], None, None).cap
    visits("DROP EVENT IF EXISTS roostcap_visits")
    bursts.claim(store, made)
    several(visits, 5)
    assert store.check() == []  # the next pass does it
    visits("UPDATE roostcap_visits_grown SET roostcap_at = roostcap_at - INTERVAL 1 HOUR")
    assert [(each.rule, each.key) for each in store.check()] == [("keep", 1)]
    assert settle(store) == 3
    assert store.check() == []


def test_f106_a_server_that_takes_no_writes_is_left_alone_and_an_event_that_is_off_is_told(
    store_url: str, visits: Application, scheduler: None
) -> None:
    with roost.Store(store_url) as store:
        cap(store, keep=2)
        visits("SET GLOBAL read_only = ON")  # which holds nobody up who may write all the same, as the event may
        try:
            several(visits, 5)
            passed(visits, 3)
            assert visits(COUNT) == [(5,)]
        finally:
            visits("SET GLOBAL read_only = OFF")
        until(lambda: visits(COUNT) == [(2,)], "the event has come by")
        visits("ALTER EVENT roostcap_visits DISABLE ON SLAVE")  # as a replica has it, before and after it is promoted
        (found,) = store.check()
        assert "SIDE_DISABLED, is not as Roost makes it" in found.detail
        (advice,) = [each.advice for each in store.doctor() if each.subject == "roost cap"]
        assert "`roost cap visits`" in advice
        visits("SET GLOBAL read_only = ON")
        try:
            assert store.check() == []  # a replica
        finally:
            visits("SET GLOBAL read_only = OFF")
        assert (cap(store, "", None), store.check()) == (0, [])
        bursts.uncap(store, "visits")


def test_f112_rows_that_may_not_be_deleted_are_passed_over(
    store_url: str, visits: Application, scheduler: None
) -> None:
    visits("CREATE TABLE events (id {id}, at DATETIME, kept INT, KEY (at))")
    with roost.Store(store_url) as store:
        cap(store, keep=2, newest_by=None)
        list(bursts.cap(store, bursts.inspect(store, "events", by="at", older_than=3600)))
        for table, column in (("visits", "visitor"), ("events", "kept")):
            visits(
                f"CREATE TRIGGER kept_{table} BEFORE DELETE ON {table} FOR EACH ROW\n"
                f"IF OLD.{column} >= 1000 THEN SIGNAL SQLSTATE '45000'; END IF"
            )
        several(visits, 5)
        several(visits, 600, first=1000)  # newer than what may be deleted, and more than one statement takes
        several(visits, 2)
        several(visits, 5, uid=2)
        visits(f"INSERT INTO events (at, kept) SELECT '2008-01-01' + INTERVAL seq SECOND, 1000 FROM {numbers(600)}")
        visits(f"INSERT INTO events (at, kept) SELECT '2009-01-01' + INTERVAL seq SECOND, 1 FROM {numbers(600)}")
        until(lambda: visits("SELECT uid, count(*) FROM visits GROUP BY 1") == [(1, 602), (2, 2)], "by key")
        until(lambda: visits("SELECT count(*) FROM events") == [(600,)], "by age")
        until(lambda: visits("SELECT count(*) FROM roostcap_visits_grown") == [(0,)], "nothing is tried for ever")
        until(lambda: {each.rule for each in store.check()} == {"keep", "older_than"}, "both are told")
        for table in ("events", "visits"):
            visits(f"DROP EVENT roostcap_{table}")
        several(visits, 1)
        visits("INSERT INTO events (at, kept) VALUES ('2010-01-01', 1)")
        settle(store)
        list(bursts.work_off(store, bursts.inspect(store, "events").cap))
        # An event that has begun goes on, and may be the one that deletes them.
        until(lambda: visits("SELECT uid, count(*) FROM visits GROUP BY 1") == [(1, 602), (2, 2)], "by key, again")
        until(lambda: visits("SELECT count(*) FROM events") == [(600,)], "by age, again")
        for table in ("events", "visits"):
            bursts.uncap(store, table)


def test_f113_very_many_notes_of_a_key_that_somebody_holds_keep_no_other_waiting(
    store_url: str, visits: Application, connect: Connect, scheduler: None
) -> None:
    with roost.Store(store_url) as store:
        cap(store, keep=1)
        several(visits, 2)
        until(lambda: visits(COUNT) == [(1,)], "the event has come by")
        other = connect()
        other("BEGIN")
        other("SELECT * FROM visits WHERE id = 2 FOR UPDATE")
        visits("SET GLOBAL event_scheduler = OFF")
        visits(f"INSERT INTO visits (uid, visitor, at) SELECT 1, seq, 2009 FROM {numbers(2)}")
        visits(f"INSERT INTO roostcap_visits_grown (roostcap_n, uid) SELECT seq, 1 FROM {numbers(10_000)}")
        several(visits, 3, uid=2)
        visits("SET GLOBAL event_scheduler = ON")
        until(lambda: visits("SELECT count(*) FROM visits WHERE uid = 2") == [(1,)], "the other key is trimmed")
        until(lambda: visits("SELECT uid, count(*) FROM roostcap_visits_grown GROUP BY 1") == [(1, 1)], "one note")
        other("COMMIT")
        until(lambda: visits("SELECT count(*) FROM roostcap_visits_grown") == [(0,)], "the key is trimmed too")
        assert visits(COUNT) == [(2,)]
        bursts.uncap(store, "visits")


def test_an_event_is_known_again_whatever_the_table_is_called(
    store_url: str, application: Application, scheduler: None
) -> None:
    application("CREATE TABLE `ünï\\-Ö` (id {id}, `zeit_é` DATETIME(6))")
    with roost.Store(store_url) as store:
        found = bursts.inspect(store, "ünï\\-Ö", by="zeit_é", older_than=MONTH)
        list(bursts.cap(store, found))
        assert bursts.keeper(store, found.cap) == "event"
        assert store.check() == []
        bursts.uncap(store, "ünï\\-Ö")


def test_an_hour_that_is_there_twice_is_two_hours(open_store: Open, application: Application) -> None:
    # A zone of the tests' own: ten days ago the clock went back by an hour.
    change = aged.now().replace(microsecond=0) - dt.timedelta(days=10)
    zone = 70_000
    application(f"INSERT INTO mysql.time_zone VALUES ({zone}, 'N')")
    application(f"INSERT INTO mysql.time_zone_name VALUES ('Roost/Autumn {change:%s}', {zone})")
    application(f"INSERT INTO mysql.time_zone_transition VALUES ({zone}, {change:%s}, 1)")
    for kind, offset in ((0, 7200), (1, 3600)):
        application(f"INSERT INTO mysql.time_zone_transition_type VALUES ({zone}, {kind}, {offset}, 0, 'R{kind}')")
    application("CREATE TABLE events (n INT, at TIMESTAMP NOT NULL, PRIMARY KEY (n, at))")
    application(aged.INDEX)
    application("SET time_zone = '+00:00'")
    application(f"SET GLOBAL time_zone = 'Roost/Autumn {change:%s}'")
    try:
        for n in range(5):
            for minutes in (-30, 30):
                application(aged.INSERT, n, f"{change + dt.timedelta(minutes=minutes):%Y-%m-%d %H:%M:%S}")
        assert aged.cap(open_store(), 10 * DAY + 900) == 5
        assert application("SELECT count(*), min(at) FROM events") == [
            (5, (change + dt.timedelta(minutes=30)).replace(tzinfo=None))
        ]
    finally:
        application("SET GLOBAL time_zone = 'SYSTEM'")
        for table in ("time_zone", "time_zone_name", "time_zone_transition", "time_zone_transition_type"):
            application(f"DELETE FROM mysql.{table} WHERE time_zone_id = {zone}")


def test_a_date_of_noughts_tells_no_time(open_store: Open, application: Application) -> None:
    application("SET sql_mode = ''")
    application("CREATE TABLE events (id {id}, n INT, at DATETIME NOT NULL)")
    application(aged.INDEX)
    application("INSERT INTO events (n, at) VALUES (1, '0000-00-00'), (2, '2008-01-01')")
    assert aged.cap(open_store(), MONTH) == 1
    assert aged.numbers(application) == [1]


AUTO = "(id BIGINT AUTO_INCREMENT PRIMARY KEY, uid"


REFUSED: list[tuple[str, str | None, str]] = [
    (f"{AUTO} INT) ENGINE=MyISAM", None, "only one of InnoDB"),
    ("(id BIGINT, uid INT)", None, "no primary key"),
    ("(id BIGINT PRIMARY KEY, uid INT)", None, "say --newest-by"),
    ("(id FLOAT PRIMARY KEY, uid INT)", None, "id is a float, and by a primary key of that type"),
    ("(id BIT(8) PRIMARY KEY, uid INT)", None, "id is a bit, and by a primary key of that type"),
    (f"{AUTO} FLOAT)", None, "uid is a float, which cannot be a key"),
    (f"{AUTO} INT) /*M! WITH SYSTEM VERSIONING */", None, "is a system versioned"),
    (f"{AUTO} INT) PARTITION BY HASH (id) PARTITIONS 2", None, "is a partitioned"),
    (f"{AUTO} INT, at TEXT)", "at", "at is a text, which cannot be in the index"),
    (f"{AUTO} INT, at JSON)", "at", "at is a (longtext|json), which cannot be in the index"),
    (f"{AUTO} INT, at MULTIPOINT NOT NULL)", "at", "at is a multipoint, which cannot be in the index"),
    (
        f"{AUTO} INT, at VARCHAR(20) /*M! COMPRESSED */)",
        "at",
        "at is a compressed varchar, which cannot be in the index",
    ),
    (f"{AUTO} INT, at VARBINARY(4000))", "at", "up to 4,000 bytes, and an index takes 3,072 at most"),
    (f"{AUTO} INT, at ENUM('compressed'))", "at", ""),
]


def test_what_could_not_be_kept_by_passes_is_refused_before_anything_is_made(
    open_store: Open, application: Application
) -> None:
    store = open_store()
    for ddl, newest_by, answer in REFUSED:
        application(f"CREATE TABLE visits {ddl}")
        if answer and ("/*M!" not in ddl or "MariaDB" in application("SELECT VERSION()")[0][0]):
            with pytest.raises(roost.Invalid, match=answer):
                cap(store, newest_by=newest_by)
            assert (store.structures(), store.check()) == ([], []), ddl
        else:
            assert cap(store, newest_by=newest_by) == 0, ddl
            bursts.uncap(store, "visits")
        application("DROP TABLE visits")
