"""Tables of the application's own, capped on PostgreSQL: at COMMIT, and under which locks."""

from __future__ import annotations

import subprocess
import threading

import psycopg
import pytest

import roost
from roost.store import bursts
from tests import servers
from tests.campaigns.processes import until
from tests.suite.application import Application
from tests.suite.capping import age_test as aged
from tests.suite.capping.age_test import DAY
from tests.suite.capping.tables import VISITS, Connect, Open, Role, cap, count, several, visitors
from tests.suite.shapes import Egg, baskets, likes, pageviews

pytestmark = pytest.mark.needs("trims at commit")


def test_what_a_transaction_adds_is_trimmed_when_it_ends(open_store: Open, visits: Application) -> None:
    store = open_store()
    cap(store, keep=2)
    visits("BEGIN")
    several(visits, 5)
    assert visits("SELECT count(*) FROM visits") == [(5,)]
    visits("SAVEPOINT here")
    several(visits, 5, uid=2)
    visits("ROLLBACK TO here")
    several(visits, 1, uid=3)
    visits("COMMIT")
    assert visits("SELECT uid, count(*) FROM visits GROUP BY uid ORDER BY 1") == [(1, 2), (3, 1)]
    visits("BEGIN")
    several(visits, 5)
    visits("SET CONSTRAINTS ALL IMMEDIATE")
    assert visits("SELECT count(*) FROM visits") == [(3,)]
    visits("ROLLBACK")
    assert visits("SELECT count(*) FROM visits") == [(3,)]


def test_a_transaction_of_very_many_statements_notes_no_more_than_it_may(open_store: Open, visits: Application) -> None:
    cap(open_store(), keep=2)
    body = "FOR n IN 1..4000 LOOP INSERT INTO visits (uid, visitor, at) VALUES (n % 7, n, 'x'); END LOOP;"
    visits(f"DO $$ BEGIN {body} END $$")
    assert visits("SELECT min(visitor), count(*) FROM visits") == [(3987, 14)]


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_an_older_snapshot_fails_not_and_deletes_nothing_of_the_newest(
    open_store: Open, visits: Application, connect: Connect, level: str
) -> None:
    store, other = open_store(), connect()
    cap(store, keep=3)
    several(visits, 3)
    other(f"BEGIN ISOLATION LEVEL {level}")
    assert count(other) == 3
    several(visits, 2, first=10)  # pushes out two that the older snapshot still sees
    several(other, 1, first=20)
    other("COMMIT")
    assert visitors(visits)[-3:] == [10, 11, 20]
    several(visits, 1, first=30)
    assert visitors(visits) == [11, 20, 30]


def test_of_transactions_that_overlap_only_their_own_rows_are_too_many(
    open_store: Open, visits: Application, connect: Connect
) -> None:
    # What another had deleted since its snapshot kept each from deleting anything, so the table grew.
    cap(open_store(), keep=2)
    others = [connect() for _ in range(6)]
    for n in range(60):
        other = others[n % 6]
        if n >= 6:
            several(other, 3, first=3 * n)
            other("COMMIT")
        other("BEGIN ISOLATION LEVEL REPEATABLE READ")
        count(other)
    assert count(visits) <= 2 + 3 * 6
    several(visits, 20, first=1000)
    assert visitors(visits) == [1018, 1019]


def test_a_row_that_somebody_holds_is_passed_over_until_the_next_write(
    open_store: Open, visits: Application, connect: Connect
) -> None:
    aged.make(visits)
    store, other = open_store(), connect()
    cap(store, keep=2)
    aged.cap(store)
    several(visits, 2)
    aged.age(visits, 20)
    other("BEGIN")
    other("SELECT * FROM visits WHERE id = 1 FOR UPDATE")
    other("UPDATE events SET n = -1 WHERE n = 19")  # the oldest
    visits("SET lock_timeout = '2s'")
    several(visits, 1, first=2)
    for n in (100, 101):
        aged.fill(visits, [0], first=n)
    assert (visitors(visits), aged.numbers(visits)) == ([0, 1, 2], [19, 100, 101])
    other("UPDATE visits SET at = '2009' WHERE id = 1")
    other(f"UPDATE events SET at = '{aged.now():%Y-%m-%d}' WHERE n = -1")
    other("COMMIT")
    several(visits, 1, first=3)
    aged.fill(visits, [0], first=102)
    assert (visitors(visits), aged.numbers(visits)) == ([0, 3], [-1, 100, 101, 102])  # they are the newest now


def test_another_table_of_the_name_is_left_alone(open_store: Open, visits: Application) -> None:
    aged.make(visits)
    store = open_store()
    cap(store, keep=1)
    aged.cap(store)
    visits("CREATE SCHEMA tenant")
    for table in ("visits", "events"):
        visits(f"CREATE TABLE tenant.{table} (LIKE {table} INCLUDING ALL)")
    visits("SET search_path = tenant")
    several(visits, 4)
    aged.fill(visits, [40 * DAY])
    visits("INSERT INTO public.visits (uid, visitor, at) SELECT 1, n, 'x' FROM generate_series(1, 4) n")
    visits("INSERT INTO public.events (n, at) SELECT 1, '2008-01-01' FROM generate_series(1, 4) n")
    for table, found in (("visits", (4, 1)), ("events", (1, 0))):
        counts = f"SELECT (SELECT count(*) FROM tenant.{table}), (SELECT count(*) FROM public.{table})"
        assert visits(counts) == [found]


def test_an_index_that_was_broken_off_is_made_anew(open_store: Open, application: Application) -> None:
    application(VISITS)
    application("CREATE INDEX roostcap_visits ON visits (uid, at, id)")
    application("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'roostcap_visits'::regclass")
    store = open_store()
    found = bursts.inspect(store, "visits", ["uid"], 5, "at")
    assert not found.index
    list(bursts.cap(store, found))
    assert store.check() == []


def test_a_transaction_that_has_written_the_table_is_waited_for_in_short_steps(
    open_store: Open, visits: Application, connect: Connect
) -> None:
    store, other = open_store(timeout=0.3), connect()
    several(other, 1)
    other("BEGIN")
    several(other, 1)
    with pytest.raises(roost.Busy):
        cap(store)
    several(visits, 1)
    other("COMMIT")
    assert cap(store) == 0
    assert visits("SELECT count(*) FROM visits") == [(3,)]


REFUSED: list[tuple[str, str | None, str]] = [
    ("(id bigint, uid int, PRIMARY KEY (id, uid)) PARTITION BY HASH (uid)", "id", "is a partitioned table"),
    ("(id bigint GENERATED ALWAYS AS IDENTITY, uid int)", "id", "no primary key"),
    ("(id uuid PRIMARY KEY, uid int)", None, "say --newest-by"),
    ("(id bigint PRIMARY KEY, uid int)", None, "say --newest-by"),
    ("(id bigint PRIMARY KEY, uid real)", "id", "uid is a float4, which cannot be a key"),
    ("(id bigint PRIMARY KEY, uid jsonb)", "id", "uid is a jsonb, which cannot be a key"),
    ("(uid int) INHERITS (base)", "id", "is part of other tables"),
    ("(id {id}, uid int); CREATE TABLE c (v bigint REFERENCES visits ON DELETE CASCADE)", "id", "would scan all of c"),
]


def test_what_could_not_be_kept_by_triggers_is_refused(open_store: Open, application: Application) -> None:
    store = open_store()
    application("CREATE TABLE base (id bigint PRIMARY KEY)")
    for ddl, newest_by, answer in REFUSED:
        application(f"CREATE TABLE visits {ddl}")
        with pytest.raises(roost.Invalid, match=answer):
            cap(store, newest_by=newest_by)
        application("DROP TABLE visits CASCADE")


def test_rows_of_tables_that_inherit_later_are_neither_counted_nor_deleted(store_url: str, visits: Application) -> None:
    visits("CREATE TABLE events (id serial PRIMARY KEY, at timestamptz)")
    visits("CREATE INDEX events_at ON events (at)")
    with roost.Store(store_url) as store:
        cap(store, keep=3)
        assert sum(bursts.cap(store, bursts.inspect(store, "events", by="at", older_than=3600))) == 0
    for table in ("visits", "events"):
        visits(f"CREATE TABLE old_{table} () INHERITS ({table})")
    several(visits, 3)
    visits("INSERT INTO old_visits SELECT id, uid, visitor, '2007' FROM ONLY visits")  # with the same ids
    visits("INSERT INTO events (at) VALUES (now())")
    visits("INSERT INTO old_events SELECT id, at - interval '1 day' FROM events")
    several(visits, 1)
    visits("INSERT INTO events (at) VALUES (now())")
    found = [
        visits(f"SELECT id FROM ONLY {name} ORDER BY 1") for name in ("visits", "old_visits", "events", "old_events")
    ]
    assert found == [[(2,), (3,), (4,)], [(1,), (2,), (3,)], [(1,), (2,)], [(1,)]]
    with roost.Store(store_url) as store:
        assert {(found.structure, found.rule) for found in store.check()} == {
            ("visits", "tables"),
            ("events", "tables"),
        }


@pytest.mark.parametrize("again", [True, False])
def test_a_table_that_was_moved_to_another_schema_is_capped_again_or_released(
    store_url: str, visits: Application, connect: Connect, again: bool
) -> None:
    with roost.Store(store_url) as store:
        cap(store, keep=2)
    visits("CREATE SCHEMA moved")
    for table in ("visits", "roost_catalog", "roost_former", "roost_once", "roost_writers"):
        visits(f"ALTER TABLE {table} SET SCHEMA moved")
    visits(f"ALTER DATABASE {visits.url.rpartition('/')[2]} SET search_path = moved")
    moved = connect()
    with roost.Store(store_url) as store:
        assert {found.rule for found in store.check()} == {"triggers"}
        if again:
            cap(store, keep=2)
        else:
            bursts.uncap(store, "visits")
        several(moved, 5)
        assert count(moved) == (2 if again else 5)
        assert store.check() == []
    functions = moved("SELECT DISTINCT pronamespace::regnamespace::text FROM pg_proc WHERE proname LIKE 'roostcap%'")
    triggers = moved("SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'roostcap%'")
    assert (functions, triggers) == (([("moved",)], [(4,)]) if again else ([], [(0,)]))


def test_f34_a_transaction_with_very_many_keys_holds_few_locks(open_store: Open, visits: Application) -> None:
    cap(open_store(), keep=1)
    visits("BEGIN")
    visits("INSERT INTO visits (uid, visitor, at) SELECT n % 20000, n, 'x' FROM generate_series(1, 40000) n")
    visits("SET CONSTRAINTS ALL IMMEDIATE")
    held = visits("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")[0][0]
    visits("COMMIT")
    assert 0 < held <= 512
    assert visits("SELECT count(*), min(visitor) FROM visits") == [(20000, 20001)]


def test_f111_triggers_that_fail_are_found_before_the_application_meets_them(
    store_url: str, visits: Application
) -> None:
    visits("CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM nothing(); END $$")
    visits("CREATE TRIGGER fails AFTER INSERT ON visits EXECUTE FUNCTION fails()")
    before = visits.schema()
    with roost.Store(store_url) as store:
        with pytest.raises(roost.Invalid, match="with the triggers no row could be inserted, so it cannot be capped"):
            cap(store, keep=2)
        assert visits.schema() == before
        visits("DROP TRIGGER fails ON visits")
        cap(store, keep=2)


def test_f38_what_goes_with_a_row_and_is_held_makes_no_deadlock(
    open_store: Open, visits: Application, connect: Connect
) -> None:
    visits("CREATE TABLE notes (id int PRIMARY KEY, text text, visit bigint REFERENCES visits ON DELETE CASCADE)")
    visits("CREATE INDEX ON notes (visit)")
    store = open_store()
    cap(store, keep=2)
    several(visits, 2)
    visits("INSERT INTO notes SELECT 1, 'x', min(id) FROM visits")
    several(visits, 2, uid=2)
    one, other = connect(), connect()
    other("BEGIN")
    other("UPDATE notes SET text = 'y'")  # what would go with the first row of the key
    one("BEGIN")
    one("INSERT INTO visits (uid, visitor, at) VALUES (1, 9, '2009'), (2, 9, '2009')")
    other("INSERT INTO visits (uid, visitor, at) VALUES (1, 8, '2009')")
    failed: list[BaseException] = []

    def end() -> None:
        try:
            other("COMMIT")
        except psycopg.Error as error:
            failed.append(error)

    one("COMMIT")  # the row stays, and another key is trimmed all the same
    assert visits("SELECT uid, count(*) FROM visits GROUP BY 1 ORDER BY 1") == [(1, 3), (2, 2)]
    thread = threading.Thread(target=end)
    thread.start()
    thread.join(60)
    assert failed == []
    assert visits("SELECT uid, count(*) FROM visits GROUP BY 1 ORDER BY 1") == [(1, 2), (2, 2)]


def _locks(application: Application) -> list[int]:
    # Which an open transaction will take; it is rolled back.
    ((noted,),) = application("SELECT current_setting('roostcap.locks')")
    application("ROLLBACK")
    return [int(each) for each in noted.strip(" ,").split(",")]


@pytest.mark.parametrize("one_statement", [True, False])
def test_f83_the_locks_of_a_transaction_are_asked_for_in_one_order(
    open_store: Open, visits: Application, connect: Connect, one_statement: bool
) -> None:
    visits("CREATE TABLE others (LIKE visits INCLUDING ALL)")
    store = open_store()
    for table in ("visits", "others"):
        cap(store, keep=2, table=table)
    locks = {}
    for key in [("visits", uid) for uid in range(8)] + [("others", 1)]:
        visits("BEGIN")
        several(visits, 1, key[1], into=key[0])
        (locks[key],) = _locks(visits)
    keys = sorted(locks, key=lambda key: locks[key])
    for order in (keys, keys[::-1], [*keys[4:], *keys[:4]]):
        client, watch = connect(), connect()
        for lock in locks.values():
            visits("SELECT pg_advisory_lock(?)", lock)
        client("BEGIN")
        if one_statement:
            order = [key for key in order if key[0] == "visits"]
            client(f"INSERT INTO visits (uid, visitor, at) VALUES {', '.join([f'({uid}, 1, 0)' for _, uid in order])}")
        else:
            for table, uid in order:
                several(client, 1, uid, into=table)
        pid = client("SELECT pg_backend_pid()")[0][0]
        thread = threading.Thread(target=client, args=("COMMIT",))
        thread.start()
        waiting = (
            f"SELECT (classid::bigint << 32) + objid::bigint FROM pg_locks "
            f"WHERE pid = {pid} AND locktype = 'advisory' AND NOT granted"
        )
        until(lambda waiting=waiting, watch=watch: watch(waiting) != [], "it waits for a lock")  # type: ignore[misc]
        first = watch(waiting)
        visits("SELECT pg_advisory_unlock_all()")
        thread.join(60)
        assert not thread.is_alive()
        assert first == [(min(locks[key] for key in order),)]


OLD = """\
CREATE FUNCTION roostcap_visits_trim(relation bigint) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
  SET search_path = "pg_catalog", "pg_temp" AS $$ BEGIN END $$;
CREATE FUNCTION roostcap_visits_insert() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE FUNCTION roostcap_visits_update() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE FUNCTION roostcap_visits_commit() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN PERFORM public.roostcap_visits_trim(TG_RELID::bigint); RETURN NULL; END $$;
CREATE TRIGGER roostcap_visits_insert AFTER INSERT ON visits REFERENCING NEW TABLE AS new_rows
  EXECUTE FUNCTION roostcap_visits_insert();
CREATE TRIGGER roostcap_visits_update AFTER UPDATE ON visits FOR EACH ROW
  WHEN (ROW(OLD.uid) IS DISTINCT FROM ROW(NEW.uid)) EXECUTE FUNCTION roostcap_visits_update();
CREATE CONSTRAINT TRIGGER roostcap_visits_inserted AFTER INSERT ON visits DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  EXECUTE FUNCTION roostcap_visits_commit();
CREATE CONSTRAINT TRIGGER roostcap_visits_updated AFTER UPDATE ON visits DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  WHEN (ROW(OLD.uid) IS DISTINCT FROM ROW(NEW.uid)) EXECUTE FUNCTION roostcap_visits_commit()"""


def test_what_an_earlier_version_made_is_told_and_replaced(store_url: str, visits: Application) -> None:
    with roost.Store(store_url) as store:
        cap(store, keep=2)
        visits("DROP FUNCTION roostcap_visits_insert, roostcap_visits_update, roostcap_visits_commit CASCADE")
        visits("DROP FUNCTION roostcap_visits_trim")
        visits(OLD)
        several(visits, 5)
        found = store.check()
        assert {each.rule for each in found} == {"triggers", "keep"}
        assert "an earlier version of Roost" in found[0].detail
        assert cap(store, "", None) == 3
        assert store.check() == []
        several(visits, 5)
        assert count(visits) == 2
        assert visits("SELECT count(*) FROM pg_proc WHERE proname = 'roostcap_visits_trim'") == [(1,)]
        bursts.uncap(store, "visits")


def test_r9_a_function_that_has_the_name_of_the_probe_is_told(open_store: Open, visits: Application) -> None:
    store = open_store()
    visits("CREATE FUNCTION roostcap_visits_probe(n integer) RETURNS integer LANGUAGE sql AS 'SELECT n'")
    cap(store, keep=2)
    visits("CREATE FUNCTION roostcap_visits_probe() RETURNS integer LANGUAGE sql AS 'SELECT 1'")
    with pytest.raises(roost.Invalid, match=r"there is a function public\.roostcap_visits_probe\(\)"):
        cap(store, keep=3)
    visits("DROP FUNCTION roostcap_visits_probe()")
    cap(store, keep=3)
    assert store.check() == []


@pytest.mark.parametrize("what", ["ALL", "roostcap_visits_inserted, roostcap_visits_updated"])
def test_r4_a_transaction_whose_constraints_are_immediate_is_trimmed(
    open_store: Open, visits: Application, role: Role, what: str
) -> None:
    store = open_store()
    cap(store, keep=2)
    several(visits, 2, uid=3)
    writer = role("writer")
    visits(f"GRANT INSERT ON visits TO {writer}")
    visits(f"SET ROLE {writer}")
    for n in (1, 1, 1, 1, 4, 1):
        visits("BEGIN")
        visits(f"SET CONSTRAINTS {what} IMMEDIATE")
        several(visits, n)
        several(visits, 5, uid=2)
        visits("COMMIT")
    visits("RESET ROLE")
    assert visits("SELECT uid, count(*) FROM visits GROUP BY uid ORDER BY uid") == [(1, 2), (2, 2), (3, 2)]
    visits("BEGIN")
    several(visits, 3)  # noted, and then trimmed by what follows
    visits(f"SET CONSTRAINTS {what} IMMEDIATE")
    assert visits("SELECT count(*) FROM visits WHERE uid = 1") == [(2,)]
    visits("UPDATE visits SET uid = 1")
    assert count(visits) == 2
    several(visits, 3, uid=4)
    assert visits("SELECT count(*) FROM visits WHERE uid = 4") == [(2,)]
    visits(f"SET CONSTRAINTS {what} DEFERRED")
    several(visits, 3, uid=4)
    several(visits, 3, uid=4)
    visits("COMMIT")
    assert visits("SELECT uid, count(*) FROM visits GROUP BY uid ORDER BY uid") == [(1, 2), (4, 2)]
    assert store.check() == []


def test_r7_a_table_is_emptied_behind_an_insert_when_constraints_are_immediate(
    open_store: Open, visits: Application
) -> None:
    cap(open_store(), keep=2)
    visits("BEGIN")
    several(visits, 3)
    with pytest.raises(psycopg.errors.ObjectInUse):
        visits("TRUNCATE visits")
    visits("ROLLBACK")
    visits("BEGIN")
    several(visits, 3)
    visits("SET CONSTRAINTS ALL IMMEDIATE")
    visits("TRUNCATE visits")
    visits("ALTER TABLE visits ADD COLUMN more integer")
    several(visits, 3)
    visits("COMMIT")
    assert count(visits) == 2


EVERYBODY_S = (
    "SELECT p.proname FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) g\n"
    "  WHERE p.prosecdef AND g.grantee = 0"
)


@pytest.mark.parametrize(("per", "options"), [("uid", ["-x"]), ("uid,visitor", [])])
def test_r1_a_dump_of_capped_tables_and_structures_is_restored_without_an_error(
    open_store: Open, visits: Application, per: str, options: list[str]
) -> None:
    dumps, restores = [servers.binary(name, servers.POSTGRESQL[1], "postgresql-client") for name in ("pg_dump", "psql")]
    aged.make(visits)
    store = open_store()
    cap(store, per, keep=2)
    aged.cap(store)
    store.create(pageviews, baskets, likes)
    store.run(baskets.add(Egg(5, 7)))
    several(visits, 2)
    aged.age(visits, 5)
    restored = f"{visits.url}_restored"
    visits(f"CREATE DATABASE {restored.rpartition('/')[2]}")
    dump = subprocess.run([dumps, *options, visits.url], check=True, capture_output=True).stdout
    done = subprocess.run([restores, "-qv", "ON_ERROR_STOP=1", restored], input=dump, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    application = Application(restored)
    try:
        with roost.Store(restored) as store:
            store.create(pageviews, baskets, likes)
            if options:  # without rights, so everybody may execute functions until they are made anew
                cap(store, per, keep=2)
                aged.cap(store)
            assert (store.check(), application(EVERYBODY_S)) == ([], [])
            application("INSERT INTO baskets (basket, egg, colour) VALUES (5, 8, 'red')")
            assert store.run(baskets.latest(5)) == [Egg(5, 8, "red"), Egg(5, 7)]
        several(application, 3, uid=2)
        application("UPDATE visits SET uid = 1, visitor = 1")
        aged.fill(application, [0], first=100)
        assert (count(application), aged.numbers(application)) == (2, [100])
    finally:
        application.close()
