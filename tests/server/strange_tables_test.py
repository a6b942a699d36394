"""Tables and servers that few have, by `roost serve` and by `roost.Index`: each request has its own answer."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import roost
from tests import servers
from tests.campaigns.processes import until
from tests.index.databases import Database, database
from tests.server.playing import Bench, bench
from tests.strange.mariadb import connection, strange
from tests.suite.clients import WAITS

WAITING = f"SELECT 1 FROM {WAITS['postgresql']}"


@pytest.fixture(scope="module")
def mariadb() -> Iterator[Database]:
    """A database of MariaDB."""
    with database("mariadb", Path()) as made:
        yield made


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Database]:
    """A database of PostgreSQL."""
    with database("postgresql", Path()) as made:
        yield made


def played(db: Database) -> closing[Bench]:
    return closing(bench(db, "write"))


@pytest.mark.parametrize("engine", ["MyISAM", "Aria"])
def test_a_table_without_transactions_is_read_and_not_modified(mariadb: Database, engine: str) -> None:
    # What fails there in the middle is not undone, so that what is run again would be done twice; and no row is locked.
    mariadb.script(
        "DROP TABLE IF EXISTS m",
        f"CREATE TABLE m (id int PRIMARY KEY, n int NOT NULL) ENGINE={engine}",
        "INSERT INTO m VALUES (5, 50)",
    )
    with played(mariadb) as writer:
        session = writer.session()
        said = writer.say(
            session, "P\t1\tmain\tm\tPRIMARY\tid,n\n1\t=\t1\t5\n1\t+\t2\t4\t0\n1\t+\t2\t5\t0\n1\t+\t2\t6\t0"
        )
        assert said == ["0\t1", "0\t2\t5\t50", *["2\t1\tnotimpl"] * 3]
        changes = ("+\t\0\t1", "U\t5\t1", "D", "D?")
        said = writer.say(session, "\n".join([f"1\t=\t1\t5\t1\t0\t{change}" for change in (*changes, *changes)]))
        assert said == ["2\t1\tnotimpl"] * 8
    table = roost.Index("m", "PRIMARY", ["id", "n"])
    with roost.Store(mariadb.url) as store:
        assert store.run(table.find(">", 0, limit=9)) == [(5, 50)]
        for operation in (table.insert((6, 1)), table.increment("=", 5, (None, 1)), table.delete("=", 5)):
            with pytest.raises(roost.Invalid, match="m has an engine without transactions"):
                store.run(operation)
            with pytest.raises(roost.Invalid, match="m has an engine without transactions"):
                store.run_all(operation, operation)
    assert mariadb.sql("SELECT id, n FROM m") == [(5, 50)]


def test_a_table_that_gets_transactions_is_modified(mariadb: Database) -> None:
    mariadb.script("DROP TABLE IF EXISTS m", "CREATE TABLE m (id int PRIMARY KEY) ENGINE=Aria")
    with played(mariadb) as writer:
        session = writer.session()
        assert writer.say(session, "P\t1\tmain\tm\tPRIMARY\tid\n1\t+\t1\t1") == ["0\t1", "2\t1\tnotimpl"]
        mariadb.script("ALTER TABLE m ENGINE=InnoDB")
        assert writer.say(session, "1\t+\t1\t1\n1\t=\t1\t1") == ["0\t1", "0\t1\t1"]


@pytest.mark.parametrize("name", ["v{i}", "v{rows}", "{shown}", "%s{0}"])
def test_a_column_may_have_any_name(mariadb: Database, name: str) -> None:
    mariadb.script(
        "DROP TABLE IF EXISTS named",
        f"CREATE TABLE named (id int PRIMARY KEY, `{name}` varchar(9), v0 int, v1 int, KEY k (`{name}`))",
    )
    with played(mariadb) as writer:
        session = writer.session()
        writer.say(session, f"P\t1\tmain\tnamed\tPRIMARY\tid,{name},v0,v1\nP\t2\tmain\tnamed\tk\t{name}")
        assert writer.say(session, "1\t+\t4\t1\ta\t8\t9\n1\t+\t4\t2\tb\t8\t9") == ["0\t1"] * 2
        assert writer.say(session, "2\t=\t1\ta\n2\t=\t1\tb\n1\t=\t1\t1\n1\t=\t1\t2") == [
            *("0\t1\ta", "0\t1\tb"),
            *("0\t4\t1\ta\t8\t9", "0\t4\t2\tb\t8\t9"),
        ]
        assert writer.say(session, "1\t=\t1\t1\t1\t0\tU\t1\tx\n1\t=\t1\t2\t1\t0\tU\t2\ty") == ["0\t1\t1"] * 2
    assert mariadb.sql(f"SELECT `{name}` FROM named ORDER BY id") == [("x",), ("y",)]


def test_a_shape_is_shown_as_it_is_stored(mariadb: Database) -> None:
    mariadb.script(
        "DROP TABLE IF EXISTS places",
        "CREATE TABLE places (id int PRIMARY KEY, p point, g multipoint)",
        "INSERT INTO places VALUES (1, POINT(1, 2), NULL)",
    )
    ((stored,),) = mariadb.sql("SELECT p FROM places")
    token = "".join([chr(byte) if byte > 15 else f"\x01{chr(byte + 64)}" for byte in stored if byte < 128])
    with played(mariadb) as writer:
        session = writer.session()
        opened, found = writer.say(session, "P\t1\tmain\tplaces\tPRIMARY\tp,g\n1\t=\t1\t1")
        assert (opened, found.encode("ascii", "ignore").decode()) == ("0\t1", f"0\t2\t{token}\t\0")


def test_a_row_that_a_trigger_leaves_out_costs_the_others_nothing(postgresql: Database) -> None:
    postgresql.script(
        "CREATE TABLE left_out (id serial PRIMARY KEY, n int)",
        "CREATE FUNCTION leave_out() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN IF new.n = 3 THEN RETURN NULL; END IF; RETURN new; END $$",
        "CREATE TRIGGER leaving BEFORE INSERT ON left_out FOR EACH ROW EXECUTE FUNCTION leave_out()",
    )
    table = roost.Index("left_out", "PRIMARY", ["n"])
    with roost.Store(postgresql.url) as store:
        numbers = store.run_all(*[table.insert((n,)) for n in range(1, 6)])
    rows = postgresql.sql("SELECT id, n FROM left_out ORDER BY n")
    assert rows == [(number, n) for n, number in enumerate(numbers, 1) if n != 3]
    assert numbers[2] == 0


def test_what_a_parent_finds_in_its_children_is_modified_row_by_row(postgresql: Database) -> None:
    postgresql.script(
        "CREATE TABLE parent (id int PRIMARY KEY, n int)",
        "CREATE TABLE child (id int PRIMARY KEY) INHERITS (parent)",
        "INSERT INTO parent VALUES (1, 10), (2, 20)",
        "INSERT INTO child VALUES (1, 100)",
    )

    def rows() -> list[int]:
        return [n for (n,) in postgresql.sql("SELECT n FROM parent ORDER BY n")]

    with played(postgresql) as writer:
        session = writer.session()
        found = writer.say(session, "P\t1\tmain\tparent\tPRIMARY\tn\n1\t=\t1\t1\t9\t0")[1]
        assert sorted(found.split("\t")[2:]) == ["10", "100"]
        assert writer.say(session, "1\t=\t1\t1\t9\t0\t+\t1") == ["0\t1\t2"]
        assert rows() == [11, 20, 101]
        # Each is one of the two: which, no order says.
        assert writer.say(session, "1\t=\t1\t1\t1\t0\t+\t1000\n1\t=\t1\t1\t1\t0\t+\t1000") == ["0\t1\t1"] * 2
        assert sum(rows()) == 2132
        assert writer.say(session, "1\t=\t1\t1\t1\t0\tD\n1\t=\t1\t2\t1\t0\tD") == ["0\t1\t1"] * 2
        assert len(rows()) == 1


def test_a_serial_column_numbers_itself_whatever_the_account_has_set(postgresql: Database) -> None:
    postgresql.script("CREATE TABLE numbered (id serial PRIMARY KEY, n int)")
    ((own,),) = postgresql.sql("SELECT current_database()")
    postgresql.script(f"ALTER DATABASE {own} SET quote_all_identifiers = on")
    try:
        with played(postgresql) as writer:
            session = writer.session()
            opening = "P\t1\tmain\tnumbered\tPRIMARY\tid,n\n"
            assert writer.say(session, f"{opening}1\t+\t2\t0\t7\n1\t+\t2\t\0\t7")[1:] == ["0\t1\t1", "0\t1\t2"]
    finally:
        postgresql.script(f"ALTER DATABASE {own} RESET quote_all_identifiers")


MADE = {
    "table": ["CREATE TABLE anew (id int PRIMARY KEY, n int)"],
    "partitions": [
        "CREATE TABLE anew (id int PRIMARY KEY, n int) PARTITION BY RANGE (id)",
        "CREATE TABLE anew_1 PARTITION OF anew FOR VALUES FROM (0) TO (10)",
    ],
    "children": ["CREATE TABLE anew (id int PRIMARY KEY, n int)", "CREATE TABLE anew_1 (k int) INHERITS (anew)"],
    "view": ["CREATE TABLE anew_1 (id int, n int)", "CREATE VIEW anew AS SELECT * FROM anew_1"],
}
EMPTIED = ["DROP SCHEMA public CASCADE", "CREATE SCHEMA public", "GRANT USAGE ON SCHEMA public TO PUBLIC"]
FILL = "INSERT INTO {} VALUES (1, 7)"
REWRITTEN = [
    ("table", "anew", ["TRUNCATE anew", FILL.format("anew")]),
    ("table", "anew", ["ALTER TABLE anew ALTER n TYPE bigint"]),
    (
        "table",
        "anew",
        [
            *("CREATE TABLE other AS SELECT * FROM anew", "DROP TABLE anew", "ALTER TABLE other RENAME TO anew"),
            "ALTER TABLE anew ADD PRIMARY KEY (id)",
        ],
    ),
    ("partitions", "anew", ["ALTER TABLE anew ALTER n TYPE bigint"]),
    ("partitions", "anew_1", ["TRUNCATE anew_1", FILL.format("anew_1")]),
    ("children", "anew_1", ["TRUNCATE anew_1", FILL.format("anew_1 (id, n)")]),
    ("view", "anew_1", ["TRUNCATE anew_1", FILL.format("anew_1")]),
]


# The rows of a view cannot be modified.
CASES = [(*case, verb) for case in REWRITTEN for verb in ("find", "update") if (case[0], verb) != ("view", "update")]


@pytest.mark.parametrize(
    ("made", "locked", "rewrite", "verb"),
    CASES,
    ids=[f"{made}-{sql[0].split()[0]}-{verb}" for made, _, sql, verb in CASES],
)
def test_rows_are_found_and_modified_while_their_table_is_rewritten(
    postgresql: Database, made: str, locked: str, rewrite: list[str], verb: str
) -> None:
    # What waits has a snapshot that sees none of the rows which are there when it goes on; the table's own rows of the
    # catalog stay as they are.
    postgresql.script(*EMPTIED, *MADE[made])
    postgresql.script(FILL.format(f"{'anew_1' if made == 'children' else 'anew'} (id, n)"))
    index = roost.Index("anew", "PRIMARY", ["id", "n"])

    def ask() -> object:
        return store.run(index.find("=", 1)) if verb == "find" else store.run_all(index.update("=", 1, (1, 8)))

    with (
        roost.Store(postgresql.url, lock_wait=60, timeout=60) as store,
        closing(postgresql.connect()) as other,
        ThreadPoolExecutor() as pool,
    ):
        wanted = [(1, 7)] if verb == "find" else (1,)
        for _ in range(2 if verb == "find" else 8):  # until it is known, or prepared
            assert ask() == wanted
        other.execute(f"LOCK TABLE {locked}")
        waiting = pool.submit(ask)
        until(lambda: postgresql.sql(WAITING) != [], "nobody waits")
        for text in rewrite:
            other.execute(text)
        other.commit()
        assert waiting.result() == wanted
    assert postgresql.sql("SELECT n FROM anew") == [(7 if verb == "find" else 8,)]


@pytest.mark.parametrize("kind", ["mariadb", "postgresql"])
def test_writes_go_on_when_somebody_has_dropped_the_writers_table(kind: str) -> None:
    add = "1\t=\t1\t1\t1\t0\t+\t1"
    with database(kind, Path()) as db:
        db.script("CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (1, 0)")
        index = roost.Index("t", "PRIMARY", ["n"])
        with roost.Store(db.url) as store, played(db) as writer:
            store.create()
            session = writer.session()
            assert writer.say(session, f"P\t1\tmain\tt\tPRIMARY\tn\n{add}") == ["0\t1", "0\t1\t1"]
            store.run_all(*[index.increment("=", 1, (1,))] * 2)
            assert db.sql("SELECT count(*) FROM roost_writers") != [(0,)]
            db.script("DROP TABLE roost_writers")
            assert writer.say(writer.session(), f"P\t1\tmain\tt\tPRIMARY\tn\n{add}") == ["0\t1", "0\t1\t1"]
            assert writer.say(session, f"{add}\n{add}") == ["0\t1\t1"] * 2
            assert store.run_all(*[index.increment("=", 1, (1,))] * 2) == (1, 1)
            assert store.run(index.increment("=", 1, (1,))) == 1
            assert db.sql("SELECT n FROM t") == [(9,)]
            store.create()
            assert writer.say(session, add) == ["0\t1\t1"]
            assert db.sql("SELECT count(*) FROM roost_writers") != [(0,)]


def test_a_server_that_takes_no_such_statement(caplog: pytest.LogCaptureFixture) -> None:
    with strange({"max_allowed_packet": 4 * 2**20}) as url, connection(url) as other:
        other.read("CREATE TABLE t (id int PRIMARY KEY, v longblob)")
        with played(Database("mariadb", url)) as writer:
            session = writer.session()
            writer.say(session, "P\t1\tmain\tt\tPRIMARY\tid,v")
            # Bytes are written by two digits each.
            said = writer.say(session, f"1\t+\t2\t1\t{'x' * 3 * 2**20}\n1\t+\t2\t2\tx")
            assert said == ["1\t1\ttoobig", "0\t1"]
            other.read("SET GLOBAL max_allowed_packet = 1048576")
            for (number,) in other.read("SELECT id FROM information_schema.processlist WHERE db = DATABASE()"):
                if number != other.number:
                    other.read(f"KILL {number}")
            assert writer.say(session, "1\t=\t1\t2") == ["1\t1\tunavailable"]
            assert "max_allowed_packet of the server is 1,048,576 bytes" in caplog.text
            other.read("SET GLOBAL max_allowed_packet = 16777216")
            assert writer.say(session, "1\t=\t1\t2") == ["0\t2\t2\tx"]


@pytest.mark.parametrize("state", ["45000", "02000"])
def test_a_row_that_a_trigger_keeps_is_still_there_for_the_next_request(mariadb: Database, state: str) -> None:
    mariadb.script(
        "DROP TABLE IF EXISTS kept",
        "CREATE TABLE kept (id int PRIMARY KEY)",
        "INSERT INTO kept VALUES (6), (7)",
        f"CREATE TRIGGER keeps BEFORE DELETE ON kept FOR EACH ROW IF old.id = 7 THEN SIGNAL SQLSTATE '{state}'; END IF",
    )
    with played(mariadb) as writer:
        session = writer.session()
        writer.say(session, "P\t1\tmain\tkept\tPRIMARY\tid")
        said = writer.say(session, "\n".join([f"1\t=\t1\t{key}\t1\t0\tD" for key in ("7", "6", "\0", "7", "6")]))
    assert said == ["1\t1\ttrigger", "0\t1\t1", "0\t1\t0", "1\t1\ttrigger", "0\t1\t0"]


def test_a_range_by_all_the_columns_of_the_longest_key() -> None:
    # MariaDB 10.11.19 crashes when it plans the search for a range of the 32nd column.
    names = [f"c{place}" for place in range(32)]
    with strange({}, options=("--skip-log-bin",)) as url:  # a server of its own
        db = Database("mariadb", url)
        db.script(
            f"CREATE TABLE longest ({' int NOT NULL, '.join(names)} int NOT NULL, PRIMARY KEY ({', '.join(names)}))",
            f"INSERT INTO longest VALUES ({'1, ' * 31} 1), ({'1, ' * 31} 5), ({'2, ' * 31} 2)",
        )
        key = "\t".join(["1"] * 32)
        with played(db) as reader:
            session = reader.session()
            reader.say(session, "P\t1\tmain\tlongest\tPRIMARY\tc0,c31")
            said = [reader.say(session, f"1\t{op}\t32\t{key}\t9\t0") for op in ("=", ">", ">=", "<", "<=")]
            assert said == [["0\t2\t1\t1"], ["0\t2\t1\t5\t2\t2"], ["0\t2\t1\t1\t1\t5\t2\t2"], ["0\t2"], ["0\t2\t1\t1"]]
            lines = [f"1\t>\t32\t{key}\t9\t0"] * 3
            assert reader.say(session, "\n".join(lines)) == ["0\t2\t1\t5\t2\t2"] * 3


def test_a_moment_of_an_hour_that_comes_twice_names_no_other_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    daemon = servers.mariadb_daemon()
    with daemon:
        db = Database("mariadb", servers.mariadb_server(daemon.url).database("twice"))
        db.script(
            "CREATE TABLE t (at timestamp(3) PRIMARY KEY, u int UNIQUE, n int)",
            "SET time_zone = '+00:00'",
            "INSERT INTO t VALUES ('2026-10-25 00:30', 1, 0), ('2026-10-25 01:30', 2, 0), ('2026-10-25 02:30', 3, 0)",
        )
        changes = ("+\t1", "U\t7", "D")
        with played(db) as writer:
            session = writer.session()
            writer.say(session, "P\t1\tmain\tt\tu\tn")
            earlier = [writer.say(session, f"1\t=\t1\t1\t1\t0\t{change}") for change in changes]
            many = writer.say(session, "\n".join([f"1\t=\t1\t{u}\t1\t0\t+\t5" for u in (1, 2, 3)]))
        assert earlier == [["1\t1\terror"]] * 3
        assert many == ["1\t1\terror", "0\t1\t1", "0\t1\t1"]
        assert db.sql("SELECT u, n FROM t ORDER BY u") == [(1, 0), (2, 5), (3, 5)]


def test_the_schema_of_a_type_may_be_renamed(postgresql: Database) -> None:
    postgresql.script(
        "CREATE SCHEMA words",
        "CREATE TYPE words.mood AS ENUM ('sad', 'happy')",
        "CREATE TABLE moods (mood words.mood PRIMARY KEY, n int)",
        "INSERT INTO moods VALUES ('sad', 1)",
    )
    moods = roost.Index("moods", "PRIMARY", ["mood", "n"])
    with played(postgresql) as writer, roost.Store(postgresql.url) as store:
        session = writer.session()
        asked = "1\t=\t1\tsad\n1\t=\t1\tsad\t1\t0\t+\t\0\t1"
        assert writer.say(session, f"P\t1\tmain\tmoods\tPRIMARY\tmood,n\n{asked}")[1:] == ["0\t2\tsad\t1", "0\t1\t1"]
        assert store.run(moods.find("=", "sad")) == [("sad", 2)]
        postgresql.script("ALTER SCHEMA words RENAME TO feelings")
        assert writer.say(session, asked) == ["0\t2\tsad\t2", "0\t1\t1"]
        assert store.run(moods.find("=", "sad")) == [("sad", 3)]


def test_a_find_that_waits_for_a_locked_table_sees_what_was_written_under_the_lock(mariadb: Database) -> None:
    mariadb.script("DROP TABLE IF EXISTS anew", "CREATE TABLE anew (id int PRIMARY KEY, n int)", FILL.format("anew"))
    waiting = "SELECT 1 FROM information_schema.processlist WHERE db = DATABASE() AND state LIKE 'Waiting for table%'"
    index = roost.Index("anew", "PRIMARY", ["id", "n"])
    with (
        roost.Store(mariadb.url, lock_wait=60, timeout=60) as store,
        closing(mariadb.connect()) as other,
        ThreadPoolExecutor() as pool,
    ):
        assert store.run(index.find("=", 1)) == [(1, 7)]
        cursor = other.cursor()
        for text in ("SET autocommit = 1", "LOCK TABLES anew WRITE", "DELETE FROM anew"):
            cursor.execute(text)
        finding = pool.submit(store.run, index.find("=", 1))
        until(lambda: mariadb.sql(waiting) != [], "nobody waits")
        for text in (FILL.format("anew"), "UNLOCK TABLES"):
            cursor.execute(text)
        assert finding.result() == [(1, 7)]


def test_rights_on_columns_alone(mariadb: Database, postgresql: Database, caplog: pytest.LogCaptureFixture) -> None:
    who = f"col{secrets.token_hex(4)}"
    for db, grantee in (mariadb, f"{who}@'127.0.0.1'"), (postgresql, who):
        db.script(
            "DROP TABLE IF EXISTS parts",
            "CREATE TABLE parts (id int PRIMARY KEY, n int, secret int)",
            "INSERT INTO parts VALUES (1, 2, 3)",
            f"CREATE USER {grantee}",
            f"GRANT SELECT (id, n), UPDATE (n) ON parts TO {grantee}",
        )
        where = urlsplit(db.url)
        limited = Database(db.name, where._replace(netloc=f"{who}@{where.hostname}:{where.port}").geturl())
        with played(limited) as writer:
            session = writer.session()
            said = writer.say(session, "P\t1\tmain\tparts\tPRIMARY\tn\nP\t2\tmain\tparts\tPRIMARY\tsecret")
            if db is mariadb:
                assert said == ["1\t1\tdenied"] * 2
                assert f"SHOW command denied to user '{who}'" in caplog.text
            else:
                asked = "1\t=\t1\t1\n2\t=\t1\t1\n1\t=\t1\t1\t1\t0\t+\t1\n1\t=\t1\t1\t1\t0\tD"
                assert writer.say(session, asked) == ["0\t1\t2", "1\t1\tdenied", "0\t1\t1", "1\t1\tdenied"]
