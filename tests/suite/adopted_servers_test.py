"""Tables of the application's own, capped on servers: what only PostgreSQL or only MariaDB does.

Longer than 500 lines: the tests share their tables and their passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

import roost
from roost.store import bursts
from tests.campaigns.processes import until
from tests.suite.adopted_test import INDEX, INSERT, VISITS, Open, cap, settle
from tests.suite.application import Application

commit = pytest.mark.needs("trims at commit")
passes = pytest.mark.needs("trims in passes")
COUNT = "SELECT count(*) FROM visits"


@pytest.fixture
def visits(application: Application) -> Application:
    application(VISITS)
    application(INDEX)
    return application


@pytest.fixture
def other(store_url: str) -> Iterator[Application]:
    """A second connection."""
    application = Application(store_url)
    yield application
    application.close()


def several(application: Application, n: int, uid: int = 1, first: int = 0) -> None:
    application(
        f"INSERT INTO visits (uid, visitor, at) VALUES {', '.join(f'({uid}, {first + k}, 2008)' for k in range(n))}"
    )


def visitors(application: Application) -> list[int]:
    return [visitor for (visitor,) in application("SELECT visitor FROM visits ORDER BY id")]


# PostgreSQL


@commit
def test_what_a_transaction_adds_is_trimmed_when_it_ends(open_store: Open, visits: Application) -> None:
    store = open_store()
    cap(store, keep=2)
    visits("BEGIN")
    several(visits, 5)
    assert visits(COUNT) == [(5,)]
    visits("SAVEPOINT here")
    several(visits, 5, uid=2)
    visits("ROLLBACK TO here")
    several(visits, 1, uid=3)
    visits("COMMIT")
    assert visits("SELECT uid, count(*) FROM visits GROUP BY uid ORDER BY 1") == [(1, 2), (3, 1)]
    visits("BEGIN")
    several(visits, 5)
    visits("SET CONSTRAINTS ALL IMMEDIATE")
    assert visits(COUNT) == [(3,)]
    visits("ROLLBACK")
    assert visits(COUNT) == [(3,)]


@commit
def test_a_transaction_of_very_many_statements_notes_no_more_than_it_may(open_store: Open, visits: Application) -> None:
    cap(open_store(), keep=2)
    body = "FOR n IN 1..4000 LOOP INSERT INTO visits (uid, visitor, at) VALUES (n % 7, n, 'x'); END LOOP;"
    visits(f"DO $$ BEGIN {body} END $$")
    assert visits("SELECT min(visitor), count(*) FROM visits") == [(3987, 14)]


@commit
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_an_older_snapshot_fails_not_and_deletes_nothing_of_the_newest(
    open_store: Open, visits: Application, other: Application, level: str
) -> None:
    store = open_store()
    cap(store, keep=3)
    several(visits, 3)
    other(f"BEGIN ISOLATION LEVEL {level}")
    assert other(COUNT) == [(3,)]
    several(visits, 2, first=10)  # pushes out two that the older snapshot still sees
    several(other, 1, first=20)
    other("COMMIT")
    assert visitors(visits)[-3:] == [10, 11, 20]
    several(visits, 1, first=30)
    assert visitors(visits) == [11, 20, 30]


@commit
def test_a_row_that_somebody_holds_is_passed_over_until_the_next_insert(
    open_store: Open, visits: Application, other: Application
) -> None:
    store = open_store()
    cap(store, keep=2)
    several(visits, 2)
    other("BEGIN")
    other("SELECT * FROM visits WHERE id = 1 FOR UPDATE")
    visits("SET lock_timeout = '2s'")
    several(visits, 1, first=2)
    assert visitors(visits) == [0, 1, 2]
    other("UPDATE visits SET at = '2009' WHERE id = 1")
    other("COMMIT")
    several(visits, 1, first=3)
    assert visitors(visits) == [0, 3]  # it is the newest now


@commit
def test_an_account_that_may_only_insert(open_store: Open, visits: Application, other: Application) -> None:
    cap(open_store(), keep=2)
    role = f"writer_{visits.url.rpartition('/')[2]}"
    visits(f"CREATE ROLE {role}")
    try:
        visits(f"GRANT INSERT ON visits TO {role}")
        other(f"SET ROLE {role}")
        several(other, 5)
        other("RESET ROLE")
    finally:
        visits(f"DROP OWNED BY {role}")
        visits(f"DROP ROLE {role}")
    assert visitors(visits) == [3, 4]


@commit
def test_another_table_of_the_name_is_left_alone(open_store: Open, visits: Application) -> None:
    cap(open_store(), keep=1)
    visits("CREATE SCHEMA tenant")
    visits("CREATE TABLE tenant.visits (LIKE visits INCLUDING ALL)")
    visits("SET search_path = tenant")
    several(visits, 4)
    visits("INSERT INTO public.visits (uid, visitor, at) SELECT 1, n, 'x' FROM generate_series(1, 4) n")
    assert visits("SELECT (SELECT count(*) FROM tenant.visits), (SELECT count(*) FROM public.visits)") == [(4, 1)]


@commit
def test_an_index_that_was_broken_off_is_made_anew(open_store: Open, application: Application) -> None:
    application(VISITS)
    application("CREATE INDEX roostcap_visits ON visits (uid, at, id)")
    application("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'roostcap_visits'::regclass")
    store = open_store()
    found = bursts.inspect(store, "visits", ["uid"], 5, "at")
    assert not found.index
    list(bursts.cap(store, found))
    assert store.check() == []


@commit
def test_a_transaction_that_has_written_the_table_is_waited_for_in_short_steps(
    open_store: Open, visits: Application, other: Application
) -> None:
    store = open_store(timeout=0.3)
    several(other, 1)
    other("BEGIN")
    several(other, 1)
    with pytest.raises(roost.Busy):
        cap(store)
    several(visits, 1)
    other("COMMIT")
    assert cap(store) == 0
    assert visits(COUNT) == [(3,)]


@commit
@pytest.mark.parametrize(
    ("ddl", "newest_by", "answer"),
    [
        ("(id bigint, uid int, PRIMARY KEY (id, uid)) PARTITION BY HASH (uid)", "id", "is a partitioned table"),
        ("(id bigint GENERATED ALWAYS AS IDENTITY, uid int)", "id", "no primary key"),
        ("(id uuid PRIMARY KEY, uid int)", None, "say --newest-by"),
        ("(id bigint PRIMARY KEY, uid int)", None, "say --newest-by"),
        ("(id bigint PRIMARY KEY, uid real)", "id", "uid is a float4, which cannot be a key"),
        ("(id bigint PRIMARY KEY, uid jsonb)", "id", "uid is a jsonb, which cannot be a key"),
        ("(uid int) INHERITS (base)", "id", "is part of other tables"),
    ],
)
def test_what_could_not_be_kept_by_triggers_is_refused(
    open_store: Open, application: Application, ddl: str, newest_by: str | None, answer: str
) -> None:
    application("CREATE TABLE base (id bigint PRIMARY KEY)")
    application(f"CREATE TABLE visits {ddl}")
    with pytest.raises(roost.Invalid, match=answer):
        cap(open_store(), newest_by=newest_by)


@commit
def test_a_foreign_key_without_an_index_is_refused(open_store: Open, visits: Application) -> None:
    visits("CREATE TABLE notes (visit bigint REFERENCES visits ON DELETE CASCADE)")
    with pytest.raises(roost.Invalid, match="would scan all of notes"):
        cap(open_store())
    visits("CREATE INDEX ON notes (visit)")
    cap(open_store())


# MariaDB


@passes
def test_between_passes_there_are_more_and_check_says_when_nobody_comes(store_url: str, visits: Application) -> None:
    with roost.Store(store_url) as store, roost.Store(store_url) as watcher:
        cap(store, keep=2)
        made = bursts.inspect(store, "visits", [], None, None).cap
        assert bursts.keeper(store, made) == ""
        several(visits, 5)
        assert visits(COUNT) == [(5,)]
        assert [each.rule for each in store.check()] == ["keep"]
        bursts.claim(watcher, made)
        bursts.claim(watcher, made)
        assert store.check() == []
        assert sum(bursts.work_off(watcher, made)) == 3
        assert visitors(visits) == [3, 4]
        assert visits("SELECT count(*) FROM roostcap_visits_grown") == [(0,)]
        visits("DROP TRIGGER roostcap_visits_insert")
        several(visits, 5)
        assert {each.rule for each in store.check()} == {"keep", "triggers"}


@passes
def test_a_server_event_makes_the_passes(store_url: str, visits: Application) -> None:
    before = visits("SELECT @@event_scheduler")[0][0]
    visits("SET GLOBAL event_scheduler = ON")
    try:
        with roost.Store(store_url) as store:
            cap(store, keep=2)
            assert bursts.keeper(store, bursts.inspect(store, "visits", [], None, None).cap) == "event"
            several(visits, 900)
            several(visits, 5, uid=2)
            until(lambda: visits(COUNT) == [(4,)], "the event has come by")
            until(lambda: visits("SELECT count(*) FROM roostcap_visits_grown") == [(0,)], "its notes are gone")
            assert visitors(visits) == [898, 899, 3, 4]
            assert store.check() == []
            bursts.uncap(store, "visits")
        assert visits("SELECT count(*) FROM information_schema.EVENTS WHERE EVENT_SCHEMA = DATABASE()") == [(0,)]
    finally:
        visits(f"SET GLOBAL event_scheduler = {before}")


INTERNAL = [
    *("n", "held", "cut", "began", "noted", "gone", "key", "q", "r", "i", "o", "new", "old", "values", "visits"),
    *("roostcap", "excluded", "counted"),
]


@passes
def test_f36_names_that_the_triggers_and_the_event_use_themselves(store_url: str, application: Application) -> None:
    with roost.Store(store_url) as store:
        for name in INTERNAL:
            application(f"CREATE TABLE `{name}` (x1 {{id}}, `{name}` INT, other INT, `by` INT)")
            cap(store, f"{name},other", 2, "by", name)
            application(f"INSERT INTO `{name}` (`{name}`, other, `by`) VALUES (1, 1, 1), (1, 1, 2), (1, 1, 3)")
            application(f"UPDATE `{name}` SET `{name}` = 2")
            application(f"INSERT INTO `{name}` (`{name}`, other, `by`) VALUES (2, 1, 4)")
            assert settle(store, name) == 2, name
            assert application(f"SELECT `by` FROM `{name}` ORDER BY 1") == [(3,), (4,)]
        assert store.check() == []


@passes
def test_f36_a_server_event_keeps_tables_of_any_name_short(store_url: str, application: Application) -> None:
    before = application("SELECT @@event_scheduler")[0][0]
    application("SET GLOBAL event_scheduler = ON")
    try:
        with roost.Store(store_url) as store:
            for name in INTERNAL:
                application(f"CREATE TABLE `{name}` (x1 {{id}}, `{name}` INT, other INT, `by` INT)")
                cap(store, f"{name},other", 2, "by", name)
                rows = ", ".join(f"(1, 1, {n})" for n in range(5))
                application(f"INSERT INTO `{name}` (`{name}`, other, `by`) VALUES {rows}")
            for name in INTERNAL:
                left = f"SELECT (SELECT count(*) FROM `{name}`), (SELECT count(*) FROM `roostcap_{name}_grown`)"
                until(lambda left=left: application(left) == [(2, 0)], f"{name} is short")  # type: ignore[misc]
                bursts.uncap(store, name)
    finally:
        application(f"SET GLOBAL event_scheduler = {before}")


@passes
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


@passes
def test_notes_of_an_earlier_version_are_told_and_made_anew(store_url: str, visits: Application) -> None:
    with roost.Store(store_url) as store:
        cap(store, keep=2)
        visits("ALTER TABLE roostcap_visits_grown CHANGE roostcap_n n BIGINT UNSIGNED NOT NULL DEFAULT 0")
        visits(
            "CREATE OR REPLACE TRIGGER roostcap_visits_insert AFTER INSERT ON visits FOR EACH ROW\n"
            "INSERT IGNORE INTO roostcap_visits_grown (n, uid) VALUES (UUID_SHORT(), NEW.uid)"
        )
        several(visits, 5)
        answers = [each.detail for each in store.check() if each.rule == "triggers"]
        assert len(answers) == 2
        assert "an earlier version of Roost" in answers[0]
        assert cap(store, "", None) == 3
        several(visits, 2)
        assert settle(store) == 2


@passes
def test_a_row_that_somebody_holds_is_passed_over_and_its_note_stays(
    open_store: Open, visits: Application, other: Application
) -> None:
    store = open_store()
    cap(store, keep=2)
    several(visits, 4)
    other("BEGIN")
    other("SELECT * FROM visits WHERE id = 1 FOR UPDATE")
    assert settle(store) == 1
    assert visitors(visits) == [0, 2, 3]
    other("UPDATE visits SET at = '2009' WHERE id = 1")
    other("COMMIT")
    assert settle(store) == 1
    assert visitors(visits) == [0, 3]


@passes
def test_rows_of_other_tables_that_somebody_holds_are_not_waited_for(
    open_store: Open, visits: Application, other: Application
) -> None:
    visits("CREATE TABLE notes (visit BIGINT, FOREIGN KEY (visit) REFERENCES visits (id) ON DELETE CASCADE)")
    store = open_store(timeout=0.3)
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


@passes
def test_the_application_s_last_number_is_its_own(open_store: Open, visits: Application) -> None:
    store = open_store()
    cap(store)
    visits(INSERT, 1, 1, "x")
    assert visits("SELECT LAST_INSERT_ID(), max(id) FROM visits") == [(1, 1)]


@passes
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


@passes
def test_a_text_is_never_taken_for_a_number(open_store: Open, visits: Application) -> None:
    store, table = open_store(), roost.Capped.of("visits")
    cap(store)
    several(visits, 3, uid=0)
    assert store.run_all(table.count("0"), table.count(0)) == (3, 3)
    for operation in (table.count("abc"), table.latest("abc"), table.keys(after="abc"), table.count(b"0")):
        with pytest.raises(roost.Invalid, match="uid is a bigint"):
            store.run(operation)


@passes
@pytest.mark.parametrize(
    ("ddl", "answer"),
    [
        ("(id BIGINT AUTO_INCREMENT PRIMARY KEY, uid INT) ENGINE=MyISAM", "only one of InnoDB"),
        ("(id BIGINT, uid INT)", "no primary key"),
        ("(id BIGINT PRIMARY KEY, uid INT)", "say --newest-by"),
        ("(id FLOAT AUTO_INCREMENT PRIMARY KEY, uid INT)", "id is a float, and by a primary key of that type"),
        ("(id BIT(8) PRIMARY KEY, uid INT)", "id is a bit, and by a primary key of that type"),
        ("(id BIGINT AUTO_INCREMENT PRIMARY KEY, uid FLOAT)", "uid is a float, which cannot be a key"),
        ("(id BIGINT AUTO_INCREMENT PRIMARY KEY, uid INT) WITH SYSTEM VERSIONING", "is a system versioned"),
        ("(id BIGINT AUTO_INCREMENT PRIMARY KEY, uid INT) PARTITION BY HASH (id) PARTITIONS 2", "is a partitioned"),
    ],
)
def test_what_could_not_be_kept_by_passes_is_refused(
    open_store: Open, application: Application, ddl: str, answer: str
) -> None:
    application(f"CREATE TABLE visits {ddl}")
    with pytest.raises(roost.Invalid, match=answer):
        cap(open_store(), newest_by=None)


@passes
@pytest.mark.parametrize(
    ("column", "answer"),
    [
        ("TEXT", "at is a text, which cannot be in the index"),
        ("JSON", "at is a longtext, which cannot be in the index"),
        ("MULTIPOINT NOT NULL", "at is a multipoint, which cannot be in the index"),
        ("VARCHAR(20) COMPRESSED", "at is a compressed varchar, which cannot be in the index"),
        ("VARBINARY(4000)", "uid and at have up to 4,000 bytes, and an index takes 3,072 at most"),
    ],
)
def test_an_order_that_no_index_can_have_is_refused_before_anything_is_made(
    open_store: Open, application: Application, column: str, answer: str
) -> None:
    application(f"CREATE TABLE visits (id BIGINT AUTO_INCREMENT PRIMARY KEY, uid INT, at {column})")
    store = open_store()
    with pytest.raises(roost.Invalid, match=answer):
        cap(store)
    assert (store.structures(), store.check()) == ([], [])
    application("ALTER TABLE visits MODIFY at ENUM('compressed')")
    cap(store)


@passes
def test_a_renamed_table_can_be_written_and_check_says_what_to_do(open_store: Open, visits: Application) -> None:
    store = open_store()
    cap(store, keep=2)
    visits("RENAME TABLE visits TO visitors")
    visits("INSERT INTO visitors (uid, visitor, at) VALUES (1, 1, 2008), (1, 2, 2008), (1, 3, 2008)")
    (found,) = store.check()
    assert (found.structure, found.rule) == ("visits", "tables")
    assert "no table 'visits'" in found.detail
    assert "on visitors" in found.detail
    assert "`roost uncap`" in found.detail
    bursts.uncap(store, "visits")
    assert store.check() == []
    list(bursts.cap(store, bursts.inspect(store, "visitors", ["uid"], 2, "at")))
    assert visits("SELECT visitor FROM visitors ORDER BY id") == [(2,), (3,)]


@commit
def test_a_renamed_table_refuses_rows_and_check_says_what_to_do(open_store: Open, visits: Application) -> None:
    store = open_store()
    cap(store, keep=2)
    visits("ALTER TABLE visits RENAME TO visitors")
    with pytest.raises(Exception, match="visits"):
        visits("INSERT INTO visitors (uid, visitor, at) VALUES (1, 1, 2008), (1, 2, 2008), (1, 3, 2008)")
    (found,) = store.check()
    assert (found.structure, found.rule) == ("visits", "tables")
    assert "on visitors" in found.detail
    bursts.uncap(store, "visits")
    visits("INSERT INTO visitors (uid, visitor, at) VALUES (1, 1, 2008), (1, 2, 2008), (1, 3, 2008)")
    assert store.check() == []


@passes
def test_an_account_that_may_make_no_event_is_told_to_watch(store_url: str, visits: Application) -> None:
    before = visits("SELECT @@event_scheduler")[0][0]
    name = visits.url.rpartition("/")[2]
    visits("SET GLOBAL event_scheduler = ON")
    try:
        visits(f"CREATE USER capper_{name}@'%' IDENTIFIED BY 'x'")
        rights = "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, INDEX, ALTER, TRIGGER"
        visits(f"GRANT {rights} ON {name}.* TO capper_{name}@'%'")
        url = urlsplit(store_url)
        with roost.Store(url._replace(netloc=f"capper_{name}:x@{url.netloc.rpartition('@')[2]}").geturl()) as store:
            cap(store, keep=2)
            made = bursts.inspect(store, "visits", [], None, None).cap
            assert bursts.keeper(store, made) == ""
            several(visits, 5)
            assert settle(store) == 3
            bursts.uncap(store, "visits")
    finally:
        visits(f"SET GLOBAL event_scheduler = {before}")
        visits(f"DROP USER IF EXISTS capper_{name}@'%'")


@pytest.fixture
def capper(store_url: str, visits: Application) -> Iterator[tuple[str, Callable[[], roost.Store]]]:
    """An account with all rights on the database, and what opens a store as it; the event scheduler is on."""
    before = visits("SELECT @@event_scheduler")[0][0]
    database = visits.url.rpartition("/")[2]
    name = f"definer_{database}@'%'"
    visits("SET GLOBAL event_scheduler = ON")
    visits(f"CREATE USER {name} IDENTIFIED BY 'x'")
    visits(f"GRANT ALL ON {database}.* TO {name}")
    url = urlsplit(store_url)
    netloc = f"definer_{database}:x@{url.netloc.rpartition('@')[2]}"
    yield name, lambda: roost.Store(url._replace(netloc=netloc).geturl())
    visits(f"SET GLOBAL event_scheduler = {before}")
    visits(f"DROP USER IF EXISTS {name}")


@passes
@pytest.mark.parametrize(
    ("lost", "answer"),
    [
        ("REVOKE INSERT ON {database}.* FROM {name}", ["roostcap_visits_insert", "roostcap_visits_update"]),
        ("REVOKE DELETE ON {database}.* FROM {name}", ["roostcap_visits"]),
        ("REVOKE EVENT ON {database}.* FROM {name}", ["roostcap_visits"]),
        ("DROP USER {name}", ["roostcap_visits", "roostcap_visits_insert", "roostcap_visits_update"]),
    ],
    ids=lambda each: each.split()[1].lower() if isinstance(each, str) else "",
)
def test_a_cap_whose_account_has_lost_its_rights_is_told_and_made_anew(
    open_store: Open, visits: Application, capper: tuple[str, Callable[[], roost.Store]], lost: str, answer: list[str]
) -> None:
    name, as_capper = capper
    store = open_store()
    with as_capper() as theirs:
        cap(theirs, keep=2)
        assert theirs.check() == store.check() == []
    visits(lost.format(database=visits.url.rpartition("/")[2], name=name))
    found = store.check()
    assert {each.rule for each in found} == {"triggers"}
    assert sorted(each.detail.partition(" ")[0] for each in found) == answer
    assert all("an account that is gone or may not do it any more" in each.detail for each in found)
    cap(store, keep=2)
    assert store.check() == []
    several(visits, 5)
    settle(store)
    assert visits(COUNT) == [(2,)]
    bursts.uncap(store, "visits")


@passes
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


@passes
def test_a_view_in_place_of_the_notes_runs_nothing_by_the_rights_of_who_makes_the_passes(
    open_store: Open, visits: Application, capper: tuple[str, Callable[[], roost.Store]]
) -> None:
    name, as_capper = capper
    visits("CREATE TABLE doers (who TEXT)")
    with as_capper() as theirs:
        theirs.create(roost.Counter("unused"), view=False)  # the account goes at the end, and a view's definer with it
    visits(
        f"CREATE DEFINER = {name} FUNCTION evil() RETURNS BIGINT SQL SECURITY INVOKER\n"
        "BEGIN INSERT INTO doers VALUES (CURRENT_USER()); RETURN 1; END"
    )
    store = open_store()
    cap(store, keep=2)
    made = bursts.inspect(store, "visits", [], None, None).cap
    visits("DROP EVENT IF EXISTS roostcap_visits")  # the server's own pass, each second
    visits("RENAME TABLE roostcap_visits_grown TO taken")
    visits(
        f"CREATE DEFINER = {name} SQL SECURITY INVOKER VIEW roostcap_visits_grown AS\n"
        "  SELECT roostcap_n, roostcap_at, uid FROM taken WHERE evil() = 1"
    )
    visits("INSERT INTO taken (roostcap_n, uid) VALUES (1, 1)")
    with pytest.raises(roost.Invalid, match="made anew meanwhile"):
        list(bursts.work_off(store, made))
    with pytest.raises(roost.Invalid, match="roostcap_visits_grown is no table"):
        cap(store, keep=2)
    assert "roostcap_visits_grown is not as Roost makes it" in "".join(each.detail for each in store.check())
    assert visits("SELECT who FROM doers") == []
    visits("DROP VIEW roostcap_visits_grown")
    visits("DROP FUNCTION evil")
    cap(store, keep=2)
    assert store.check() == []
    bursts.uncap(store, "visits")


@pytest.fixture
def scheduler(visits: Application) -> Iterator[None]:
    """The server runs events."""
    before = visits("SELECT @@event_scheduler")[0][0]
    visits("SET GLOBAL event_scheduler = ON")
    yield
    visits(f"SET GLOBAL event_scheduler = {before}")


@passes
def test_f110_by_a_definer_of_its_own_nothing_is_lent_to_others(
    store_url: str, visits: Application, scheduler: None
) -> None:
    database = visits.url.rpartition("/")[2]
    definer = f"roostcap_{database}@localhost"
    visits("CREATE TABLE doers (who TEXT)")
    visits(
        "CREATE FUNCTION evil() RETURNS BIGINT SQL SECURITY INVOKER\n"
        "BEGIN INSERT INTO doers VALUES (CURRENT_USER()); RETURN 1; END"
    )
    with roost.Store(store_url) as store:
        assert "rights that root@" in bursts.inspect(store, "visits", ["uid"], 2, "at").runs_as
        with pytest.raises(roost.Invalid, match=rf"GRANT SELECT, .* TO `roostcap_{database}`@`localhost`"):
            list(bursts.cap(store, bursts.inspect(store, "visits", ["uid"], 2, "at", definer=definer)))
        visits(f"CREATE USER {definer} ACCOUNT LOCK")
        try:
            visits(f"GRANT SELECT, INSERT, DELETE, TRIGGER, EVENT ON {database}.* TO {definer}")
            found = bursts.inspect(store, "visits", ["uid"], 2, "at", definer=definer)
            assert found.runs_as == ""
            assert list(bursts.cap(store, found)) == []
            several(visits, 5)
            until(lambda: visits(COUNT) == [(2,)], "the event has come by")
            assert (cap(store, "", None), store.check()) == (0, [])  # keeps the definer
            assert bursts.inspect(store, "visits", ["uid"], 2, "at").runs_as == ""
            made = visits(
                "SELECT DEFINER FROM information_schema.EVENTS WHERE EVENT_SCHEMA = DATABASE() UNION ALL\n"
                "SELECT DEFINER FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = DATABASE()"
            )
            assert made == [(definer,)] * 3
            visits("RENAME TABLE roostcap_visits_grown TO taken")
            visits(
                "CREATE SQL SECURITY INVOKER VIEW roostcap_visits_grown AS\n"
                "  SELECT roostcap_n, roostcap_at, uid FROM taken"
                "  WHERE evil() = 1 WITH CHECK OPTION"
            )
            visits(f"GRANT EXECUTE ON {database}.* TO {definer}")
            several(visits, 1)
            assert {*visits("SELECT who FROM doers")} == {(definer,)}
            visits("DROP VIEW roostcap_visits_grown")
            visits(f"REVOKE DELETE ON {database}.* FROM {definer}")
            assert "rights that root@" in bursts.inspect(store, "visits", [], None, None).runs_as
            bursts.uncap(store, "visits")
        finally:
            visits(f"DROP USER {definer}")


def passed(application: Application, times: int = 2) -> None:
    """Return when the event of a table has come by so often, or has been there and is not run."""
    last = "SELECT LAST_EXECUTED FROM information_schema.EVENTS WHERE EVENT_SCHEMA = DATABASE()"
    for _ in range(times):
        before = application(last)
        until(lambda before=before: application(last) != before, "the event has come by")  # type: ignore[misc]


@passes
def test_f110_who_may_name_no_definer_is_told_before_anything_is_made(
    visits: Application, capper: tuple[str, Callable[[], roost.Store]]
) -> None:
    _, as_capper = capper
    before = visits.schema()
    with as_capper() as theirs:
        with pytest.raises(roost.Invalid, match="may name no other definer"):
            list(bursts.cap(theirs, bursts.inspect(theirs, "visits", ["uid"], 2, "at", definer="root@localhost")))
        assert bursts.capped(theirs, "visits") is None
        made = visits.schema()
        assert [each for each in made[0] if each not in before[0]] == [("roost_catalog",), ("roost_writers",)]


@passes
def test_f110_the_event_reads_no_view_in_a_table_s_place(store_url: str, visits: Application, scheduler: None) -> None:
    visits("CREATE TABLE doers (who TEXT)")
    visits(
        "CREATE FUNCTION evil() RETURNS BIGINT SQL SECURITY INVOKER\n"
        "BEGIN INSERT INTO doers VALUES (CURRENT_USER()); RETURN 1; END"
    )
    visits("CREATE TABLE events (id {id}, at DATETIME, KEY (at))")
    with roost.Store(store_url) as store:
        found = bursts.inspect(store, "visits", ["uid"], 2, "at")
        visits("RENAME TABLE visits TO taken")
        visits("CREATE SQL SECURITY INVOKER VIEW visits AS SELECT * FROM taken WHERE evil() = 1")
        with pytest.raises(roost.Invalid, match="visits is no table"):
            list(bursts.cap(store, found))
        visits("DROP VIEW visits")
        visits("RENAME TABLE taken TO visits")
        cap(store, keep=2)
        list(bursts.cap(store, bursts.inspect(store, "events", by="at", older_than=3600)))
        made = bursts.inspect(store, "events").cap
        for table, columns in (("events", "id, at"), ("roostcap_visits_grown", "roostcap_n, roostcap_at, uid")):
            visits(f"RENAME TABLE {table} TO taken_{table}")
            visits(f"CREATE SQL SECURITY INVOKER VIEW {table} AS SELECT {columns} FROM taken_{table} WHERE evil() = 1")
        visits("INSERT INTO taken_events (at) VALUES ('2008-01-01')")
        visits("INSERT INTO taken_roostcap_visits_grown (roostcap_n, uid) VALUES (1, 1)")
        passed(visits, 3)
        with pytest.raises(roost.Invalid, match="events is no table"):
            list(bursts.work_off(store, made))
        assert visits("SELECT * FROM doers") == []
        for table in ("events", "roostcap_visits_grown"):
            visits(f"DROP VIEW {table}")
            visits(f"RENAME TABLE taken_{table} TO {table}")
        until(lambda: visits("SELECT * FROM events") == [], "the event works on tables")
        for table in ("events", "visits"):
            bursts.uncap(store, table)


@passes
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
        assert "roostcap_visits, whose status is SLAVESIDE_DISABLED, is not as Roost makes it" in found.detail
        (advice,) = [each.advice for each in store.doctor() if each.subject == "roost cap"]
        assert "`roost cap visits`" in advice
        visits("SET GLOBAL read_only = ON")
        try:
            assert store.check() == []  # a replica
        finally:
            visits("SET GLOBAL read_only = OFF")
        assert (cap(store, "", None), store.check()) == (0, [])
        bursts.uncap(store, "visits")


@passes
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
        visits("INSERT INTO events (at, kept) SELECT '2008-01-01' + INTERVAL seq SECOND, 1000 FROM seq_1_to_600")
        visits("INSERT INTO events (at, kept) SELECT '2009-01-01' + INTERVAL seq SECOND, 1 FROM seq_1_to_600")
        until(lambda: visits("SELECT uid, count(*) FROM visits GROUP BY 1") == [(1, 602), (2, 2)], "by key")
        until(lambda: visits("SELECT count(*) FROM events") == [(600,)], "by age")
        until(lambda: visits("SELECT count(*) FROM roostcap_visits_grown") == [(0,)], "nothing is tried for ever")
        until(lambda: {each.rule for each in store.check()} == {"keep", "older_than"}, "both are told")
        for table in ("events", "visits"):
            visits(f"DROP EVENT roostcap_{table}")
        several(visits, 1)
        visits("INSERT INTO events (at, kept) VALUES ('2010-01-01', 1)")
        assert settle(store) == 1
        assert sum(bursts.work_off(store, bursts.inspect(store, "events").cap)) == 1
        for table in ("events", "visits"):
            bursts.uncap(store, table)


@passes
def test_f113_very_many_notes_of_a_key_that_somebody_holds_keep_no_other_waiting(
    store_url: str, visits: Application, other: Application, scheduler: None
) -> None:
    with roost.Store(store_url) as store:
        cap(store, keep=1)
        several(visits, 2)
        until(lambda: visits(COUNT) == [(1,)], "the event has come by")
        other("BEGIN")
        other("SELECT * FROM visits WHERE id = 2 FOR UPDATE")
        visits("SET GLOBAL event_scheduler = OFF")
        visits("INSERT INTO visits (uid, visitor, at) SELECT 1, seq, 2009 FROM seq_1_to_2")
        visits("INSERT INTO roostcap_visits_grown (roostcap_n, uid) SELECT seq, 1 FROM seq_1_to_100000")
        several(visits, 3, uid=2)
        visits("SET GLOBAL event_scheduler = ON")
        until(lambda: visits("SELECT count(*) FROM visits WHERE uid = 2") == [(1,)], "the other key is trimmed")
        until(lambda: visits("SELECT uid, count(*) FROM roostcap_visits_grown GROUP BY 1") == [(1, 1)], "one note")
        other("COMMIT")
        until(lambda: visits("SELECT count(*) FROM roostcap_visits_grown") == [(0,)], "the key is trimmed too")
        assert visits(COUNT) == [(2,)]
        bursts.uncap(store, "visits")
