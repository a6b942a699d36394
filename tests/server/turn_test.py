"""Turns without sockets: text in, text out, and what is in the file afterwards."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from roost.protocols.handlersocket.opened import Session
from tests.index.databases import Database, db
from tests.server.playing import Bench, bench, played

__all__ = ["db"]  # a fixture

SCHEMA = {
    "sqlite": """
CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT, n INT);
INSERT INTO t VALUES (1, 'one', 10), (2, 'two', 20), (3, NULL, 30);
CREATE TABLE two (a INT, b TEXT, c BLOB, PRIMARY KEY (a, b)) WITHOUT ROWID;
INSERT INTO two VALUES (1, 'x', x'00ff'), (1, 'y', NULL);
CREATE TABLE nocase (k TEXT PRIMARY KEY COLLATE NOCASE, n INT);
INSERT INTO nocase VALUES ('a', 0);
CREATE TABLE parent (id INTEGER PRIMARY KEY);
CREATE TABLE child (id INTEGER PRIMARY KEY, p INT REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE strict_one (id INTEGER PRIMARY KEY, CHECK (id < 100));
CREATE TRIGGER gone BEFORE INSERT ON strict_one WHEN new.id = 13 BEGIN SELECT RAISE(ROLLBACK, 'thirteen'); END;
""",
    "mariadb": """
CREATE TABLE t (id BIGINT PRIMARY KEY AUTO_INCREMENT, v TEXT CHARACTER SET utf8mb4, n BIGINT);
INSERT INTO t VALUES (1, 'one', 10), (2, 'two', 20), (3, NULL, 30);
CREATE TABLE two (a INT, b VARCHAR(9) CHARACTER SET utf8mb4, c BLOB, PRIMARY KEY (a, b));
INSERT INTO two VALUES (1, 'x', x'00ff'), (1, 'y', NULL);
CREATE TABLE nocase (k VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY, n BIGINT);
INSERT INTO nocase VALUES ('a', 0);
CREATE TABLE parent (id INT PRIMARY KEY AUTO_INCREMENT);
CREATE TABLE child (id INT PRIMARY KEY AUTO_INCREMENT, p INT, FOREIGN KEY (p) REFERENCES parent (id));
CREATE TABLE strict_one (id INT PRIMARY KEY AUTO_INCREMENT);
CREATE TRIGGER gone BEFORE INSERT ON strict_one FOR EACH ROW
  IF new.id = 13 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'thirteen'; END IF;
""",
    "postgresql": """
CREATE TABLE t (id bigserial PRIMARY KEY, v text, n int8);
INSERT INTO t VALUES (1, 'one', 10), (2, 'two', 20), (3, NULL, 30);
SELECT setval('t_id_seq', 3);
CREATE TABLE two (a int, b text, c bytea, PRIMARY KEY (a, b));
INSERT INTO two VALUES (1, 'x', '\\x00ff'), (1, 'y', NULL);
CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE nocase (k text COLLATE nocase PRIMARY KEY, n int8);
INSERT INTO nocase VALUES ('a', 0);
CREATE TABLE parent (id serial PRIMARY KEY);
CREATE TABLE child (id serial PRIMARY KEY, p int REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE strict_one (id serial PRIMARY KEY, CHECK (id < 100));
CREATE FUNCTION gone() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN IF new.id = 13 THEN RAISE EXCEPTION 'thirteen'; END IF; RETURN new; END $$;
CREATE TRIGGER gone BEFORE INSERT ON strict_one FOR EACH ROW EXECUTE FUNCTION gone();
""",
}
SCHEMA["mysql"] = SCHEMA["mariadb"]


def opened(made: Bench) -> Session:
    """Return a connection that has opened some tables."""
    session = made.session()
    lines = ["P\t0\tapp\tt\tPRIMARY\tid,v,n\tn", "P\t1\tmain\ttwo\tPRIMARY\ta,b,c", "P\t2\tmain\tnocase\tPRIMARY\tn"]
    assert made.say(session, "\n".join(lines)) == ["0\t1"] * 3
    return session


@pytest.fixture
def made(db: Database) -> Database:
    """Each database in turn, with the tables."""
    if db.name == "sqlite":
        with closing(sqlite3.connect(db.url.removeprefix("sqlite:///"))) as connection:
            connection.executescript("PRAGMA journal_mode = WAL;" + SCHEMA["sqlite"])
    else:
        db.script(SCHEMA[db.name])
    return db


@pytest.fixture
def write(made: Database) -> Iterator[Bench]:
    with closing(bench(made, "write")) as found:
        yield found


@pytest.fixture
def read(made: Database) -> Iterator[Bench]:
    with closing(bench(made, "read")) as found:
        yield found


@pytest.fixture
def write_file(tmp_path: Path) -> Iterator[Bench]:
    with played(tmp_path, SCHEMA["sqlite"]) as found:
        yield found


def test_lookups_of_many_connections_are_answered_each_its_own(read: Bench) -> None:
    one, other = opened(read), opened(read)
    ids = [*range(-2, 9), "abc", "1.0", "", "99999999999999999999"]
    lines = [f"0\t=\t1\t{id}" for id in ids]
    rows = {"1": "1\tone\t10", "2": "2\ttwo\t20", "3": "3\t\0\t30", "1.0": "1\tone\t10"}
    wanted = [f"0\t3\t{rows[str(id)]}" if str(id) in rows else "0\t3" for id in ids]
    turn = read.play((one, "\n".join(lines)), (other, "\n".join(reversed(lines))))
    assert turn.texts[0].split("\n")[:-1] == wanted
    assert turn.texts[1].split("\n")[:-1] == wanted[::-1]
    for line, answer in zip(lines, wanted, strict=True):  # alone, they go another way
        assert read.say(one, line) == [answer]


def test_lookups_by_a_key_of_two_columns(read: Bench) -> None:
    session = opened(read)
    keys = [(1, "x"), (1, "y"), (1, "z"), ("q", "x"), (2, "x"), (1, "\udcff")]
    lines = [f"1\t=\t2\t{a}\t{b}" for a, b in keys]
    wanted = ["0\t3\t1\tx\t\x01@\udcff", "0\t3\t1\ty\t\0", *["0\t3"] * 4]
    assert read.say(session, "\n".join(lines)) == wanted
    assert [read.say(session, line)[0] for line in lines] == wanted


def test_what_needs_escapes_is_escaped_and_its_neighbours_are_not(write: Bench) -> None:
    session = opened(write)
    first = 1 if write.where.name == "postgresql" else 0  # whose texts have no NUL
    value = "".join(map(chr, range(first, 0x20)))
    escaped = "".join(f"\x01{chr(code + 0x40)}" if code < 0x10 else chr(code) for code in range(first, 0x20))
    assert write.say(session, f"0\t+\t2\t7\t{escaped}") == ["0\t1\t0"]
    assert write.sql("SELECT v FROM t WHERE id = 7") == [(value,)]
    lines = "\n".join(["0\t=\t1\t1", "0\t=\t1\t7", "0\t=\t1\t2", "0\t=\t1\t8"])
    assert write.say(session, lines) == ["0\t3\t1\tone\t10", f"0\t3\t7\t{escaped}\t\0", "0\t3\t2\ttwo\t20", "0\t3"]


def test_a_request_sees_what_its_turn_did_before_it(write: Bench) -> None:
    session = opened(write)
    lines = [
        *("0\t=\t1\t1\t1\t0\tU\t1\tuno", "0\t=\t1\t1", "0\t+\t3\t4\tfour\t40", "0\t=\t1\t4\t1\t0\t+\t\0\t\0\t2"),
        *("0\t>=\t1\t4\t9\t0", "0\t=\t1\t4\t1\t0\tD", "0\t=\t1\t4"),
    ]
    assert write.say(session, "\n".join(lines)) == [
        *("0\t1\t1", "0\t3\t1\tuno\t10", "0\t1\t0", "0\t1\t1", "0\t3\t4\tfour\t42", "0\t1\t1", "0\t3"),
    ]


def test_nulls_among_many_that_are_alike(write: Bench) -> None:
    session = opened(write)
    lines = ["0\t+\t2\t\0\tfour", "0\t+\t3\t\0\t\0\t\0", "0\t=\t1\t1\t1\t0\tU\t1\t\0", "0\t=\t1\t\0\t1\t0\tU\t1"]
    lines += [
        *("0\t=\t1\t2\t1\t0\t+\t\0\t\0\t1", "0\t=\t1\t\0\t1\t0\t+\t\0\t\0\t1", "0\t=\t1\t\0"),
        "0\t=\t1\t2\t1\t0\tU\t\0",
    ]
    refused = "1\t1\ttype" if write.where.name == "sqlite" else "1\t1\tnotnull"
    answers = ["0\t1\t4", "0\t1\t5", "0\t1\t1", "0\t1\t0", "0\t1\t1", "0\t1\t0", "0\t3", refused]
    assert write.say(session, "\n".join(lines)) == answers
    assert write.sql("SELECT * FROM t ORDER BY id") == [
        (1, None, 10),
        (2, "two", 21),
        (3, None, 30),
        (4, "four", None),
        (5, None, None),
    ]


def test_one_that_fails_costs_itself_alone(write: Bench) -> None:
    session = opened(write)
    lines = [
        *("0\t+\t2\t5\tfive", "0\t+\t2\t5\tagain", "0\t+\t2\tabc\tx", "0\t+\t3\t6\tsix\t60", "0\t=\t1\t6\t1\t0\tU\t5"),
    ]
    assert write.say(session, "\n".join(lines)) == ["0\t1\t0", "1\t1\t121", "1\t1\ttype", "0\t1\t0", "1\t1\t121"]
    assert write.sql("SELECT id, v FROM t WHERE id > 3 ORDER BY id") == [(5, "five"), (6, "six")]


def test_what_undoes_the_whole_transaction_costs_itself_alone(write: Bench) -> None:
    one, other = opened(write), opened(write)
    assert write.say(one, "P\t5\tmain\tstrict_one\tPRIMARY\tid") == ["0\t1"]
    turn = write.play((other, "0\t+\t2\t5\tfive"), (one, "5\t+\t1\t12\n5\t+\t1\t13\n5\t+\t1\t14"))
    assert turn.texts == ["0\t1\t0\n", "0\t1\t0\n1\t1\ttrigger\n0\t1\t0\n"]
    assert write.sql("SELECT id FROM strict_one ORDER BY id") == [(12,), (14,)]
    assert write.sql("SELECT v FROM t WHERE id = 5") == [("five",)]


def test_a_foreign_key_that_is_looked_at_at_commit_costs_itself_alone(write: Bench) -> None:
    session = opened(write)
    assert write.say(session, "P\t5\tmain\tchild\tPRIMARY\tid,p\nP\t6\tmain\tparent\tPRIMARY\tid") == ["0\t1"] * 2
    lines = ["6\t+\t1\t1", "5\t+\t2\t1\t1", "5\t+\t2\t2\t77"]
    assert write.say(session, "\n".join(lines)) == ["0\t1\t0", "0\t1\t0", "1\t1\t151"]
    assert write.sql("SELECT id FROM child") == [(1,)]


def test_sums_of_one_row_under_two_names(write: Bench) -> None:
    session = opened(write)
    lines = ["2\t=\t1\ta\t1\t0\t+\t1", "2\t=\t1\tA\t1\t0\t+\t1", "2\t=\t1\ta\t1\t0\t-\t50", "2\t=\t1\tb\t1\t0\t+\t1"]
    assert write.say(session, "\n".join(lines * 3)) == ["0\t1\t1", "0\t1\t1", "0\t1\t0", "0\t1\t0"] * 3
    assert write.sql("SELECT n FROM nocase") == [(6,)]


def test_a_minus_that_would_cross_zero_changes_nothing_whatever_the_column_holds(write: Bench) -> None:
    unsigned = {"mariadb": "BIGINT UNSIGNED", "postgresql": "natural_number"}.get(write.where.name, "INT")
    if write.where.name == "postgresql":
        write.sql("CREATE DOMAIN natural_number AS int8 CHECK (VALUE >= 0)")
    write.sql(f"CREATE TABLE u (id INT PRIMARY KEY, n {unsigned})")
    write.sql("INSERT INTO u VALUES (1, 5), (2, 5)")
    session = write.session()
    assert write.say(session, "P\t0\tmain\tu\tPRIMARY\tn") == ["0\t1"]
    minus = "0\t=\t1\t1\t1\t0\t-\t6"
    assert write.say(session, minus) == ["0\t1\t0"]
    assert write.say(session, f"{minus}\n{minus}\n0\t=\t1\t2\t1\t0\t-\t5") == ["0\t1\t0", "0\t1\t0", "0\t1\t1"]
    assert write.say(session, "0\t>=\t1\t1\t9\t0") == ["0\t1\t5\t0"]


def test_the_schema_may_change_under_an_opened_index(write: Bench) -> None:
    session = opened(write)
    write.sql("ALTER TABLE t ADD COLUMN more INT DEFAULT 7")
    assert write.say(session, "0\t=\t1\t1\n0\t+\t2\t4\tfour") == ["0\t3\t1\tone\t10", "0\t1\t0"]
    write.sql("ALTER TABLE t RENAME COLUMN v TO w")
    assert write.say(session, "0\t=\t1\t1\n0\t+\t2\t5\tfive") == ["1\t1\topen_table"] * 2
    write.sql("ALTER TABLE t RENAME COLUMN w TO v")
    assert write.say(session, "0\t=\t1\t1") == ["0\t3\t1\tone\t10"]
    write.sql("DROP TABLE t")
    assert write.say(session, "0\t=\t1\t1\n1\t=\t2\t1\ty") == ["1\t1\topen_table", "0\t3\t1\ty\t\0"]


def test_a_failing_open_leaves_what_was_opened(read: Bench) -> None:
    one, other = opened(read), opened(read)
    lines = ["P\t0\tmain\tnone\tPRIMARY\tid", "P\t0\tmain\tt\tnope\tid", "P\t0\tmain\tt\tPRIMARY\tnope", "0\t=\t1\t1"]
    answers = ["1\t1\topen_table", "2\t1\tidxnum", "2\t1\tfld", "0\t3\t1\tone\t10"]
    assert read.say(one, "\n".join(lines)) == answers
    assert read.say(other, "0\t=\t1\t1") == ["0\t3\t1\tone\t10"]


@pytest.mark.parametrize(
    "name", ["é", "日本", "a😀", "\udcff", "t\udcff", "'", "`", '"', "%s", "\\", "x" * 200, "é" * 100]
)
def test_names_that_are_not_there(read: Bench, name: str, caplog: pytest.LogCaptureFixture) -> None:
    session = opened(read)
    for line, answer in [
        (f"P\t7\tapp\t{name}\tPRIMARY\tid", "1\t1\topen_table"),
        (f"P\t7\t{name}\tt\tPRIMARY\tid", "1\t1\topen_table"),
        (f"P\t7\tapp\tt\t{name}\tid", "2\t1\tidxnum"),
        (f"P\t7\tapp\tt\tPRIMARY\tid,{name}", "2\t1\tfld"),
        (f"P\t7\tapp\tt\tPRIMARY\tid\t{name}", "2\t1\tfld"),
    ]:
        turn = read.play((session, line), (session, "0\t=\t1\t1"))
        assert turn.texts == [f"{answer}\n", "0\t3\t1\tone\t10\n"], line
    assert not caplog.records


def test_nothing_can_be_opened_that_is_not_allowed(made: Database) -> None:
    found = bench(made, "read", tables=("t", "tw*"))
    session = found.session()
    for table, answer in (
        ("t", "0\t1"),
        ("two", "0\t1"),
        ("nocase", "1\t1\topen_table"),
        ("sqlite_schema", "1\t1\topen_table"),
    ):
        assert found.say(session, f"P\t1\tmain\t{table}\tPRIMARY\t") == [answer]
    found.close()


def test_there_is_a_limit_to_indexes(made: Database) -> None:
    found = bench(made, "read", max_indexes=2)
    session = found.session()
    opened = [found.say(session, f"P\t{number}\tmain\tt\tPRIMARY\tid")[0] for number in (1, 4294967295, 3, 1)]
    assert opened == ["0\t1", "0\t1", "2\t1\tlimit", "0\t1"]
    found.close()


def test_f131_there_is_a_limit_to_columns_and_filters(read: Bench) -> None:
    session = opened(read)
    many = ",".join(["v"] * 4096)
    assert (
        read.say(session, f"P\t7\tapp\tt\tPRIMARY\t{many},v\nP\t7\tapp\tt\tPRIMARY\tv\t{many},n") == ["2\t1\tlimit"] * 2
    )
    assert read.say(session, f"P\t7\tapp\tt\tPRIMARY\t{many}\tn") == ["0\t1"]
    for kind in "FW":
        find = "0\t>\t1\t0\t9\t0" + f"\t{kind}\t<\t0\t11" * 900
        for _ in range(2):
            assert read.say(session, f"{find}\n{find}") == ["0\t3\t1\tone\t10"] * 2
        assert read.say(session, f"{find}\tF\t<\t0\t11") == ["2\t1\tlimit"]


def test_a_reader_writes_nothing(read: Bench) -> None:
    session = opened(read)
    lines = ["0\t+\t1\t9", "0\t=\t1\t1\t1\t0\tD", "0\t=\t2\t1\t1\t1\t0\tD", "0\t=\t1\t1\t1\t0\tX"]
    assert read.say(session, "\n".join(lines)) == ["2\t1\treadonly"] * 4


def test_the_secret(made: Database) -> None:
    found = bench(made, "read", read_secret="geheim")
    session = found.session()
    assert found.say(session, "P\t0\tmain\tt\tPRIMARY\tid\n0\t=\nX") == ["3\t1\tunauth"] * 2 + ["2\t1\tcmd"]
    turn = found.play((session, "A\t2\tgeheim\nA\t1\twrong\nA\t1\tgeheim\nP\t0\tmain\tt\tPRIMARY\tid"))
    rest = f"A\t1\tgeheim\nP\t0\t{found.database.names[0]}\tt\tPRIMARY\tid"
    assert (turn.texts, turn.late, turn.rest) == (["3\t1\tauthtype\n"], {0: "3\t1\tunauth\n"}, {0: rest})
    assert found.say(session, rest) == ["0\t1", "0\t1"]
    assert found.say(session, "0\t=\t1\t1") == ["0\t1\t1"]
    found.close()


def test_another_writer_is_waited_for_and_then_told(write_file: Bench) -> None:
    session = opened(write_file)
    program = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('BEGIN IMMEDIATE');"
        "print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(write_file.path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    write_file.file.wait_for(0.1)
    assert write_file.say(session, "0\t+\t1\t9\nX\nP\t9\tmain\tt\tPRIMARY\tid") == [
        "1\t1\t146",
        "2\t1\tcmd",
        "1\t1\t146",
    ]
    holder.communicate()
    write_file.file.wait_for(60)
    assert write_file.say(session, "0\t+\t1\t9") == ["0\t1\t0"]


def test_text_that_is_no_utf8_is_read_all_the_same(write_file: Bench) -> None:
    session = opened(write_file)
    write_file.sql("UPDATE t SET v = CAST(x'61ff62' AS TEXT) WHERE id = 2")
    wanted = ["0\t3\t2\ta\udcffb\t20"]
    assert write_file.say(session, "0\t=\t1\t2") == wanted
    assert write_file.say(session, "0\t=\t1\t1\n0\t=\t1\t2\n0\t=\t1\t3\n0\t=\t1\t4")[1:2] == wanted
    assert write_file.say(session, "0\t>=\t1\t2") == wanted


def test_a_row_that_cannot_be_read_costs_its_own_request_alone(tmp_path: Path) -> None:
    script = (
        "CREATE TABLE odd (id INTEGER PRIMARY KEY, n INT);"
        "INSERT INTO odd (id, n) VALUES (1, -5), (2, -9223372036854775808), (3, 7);"  # whose abs is no integer
        "ALTER TABLE odd ADD COLUMN m INT GENERATED ALWAYS AS (abs(n)) VIRTUAL"
    )
    with played(tmp_path, script, "read") as made:
        opened, one, two, three = made.say(
            made.session(), "P\t0\tmain\todd\tPRIMARY\tid,m\n0\t=\t1\t1\n0\t=\t1\t2\n0\t=\t1\t3"
        )
        assert (opened, one, two[:4], three) == ("0\t1", "0\t2\t1\t5", "1\t1\t", "0\t2\t3\t7")


def test_what_a_trigger_fails_is_undone_wholly(tmp_path: Path) -> None:
    script = (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, n INT);"
        "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3);"
        "CREATE TABLE log (id INT);"
        "CREATE TRIGGER u AFTER UPDATE ON t BEGIN INSERT INTO log VALUES (new.id);"
        " SELECT RAISE(FAIL, 'no') WHERE new.id = 3; END;"
        "CREATE TRIGGER d AFTER DELETE ON t BEGIN SELECT RAISE(FAIL, 'no'); END;"
        "CREATE TRIGGER i AFTER INSERT ON t BEGIN SELECT RAISE(FAIL, 'no'); END;"
    )
    with played(tmp_path, script) as made:
        changes = ("0\t>=\t1\t1\t9\t0\tU\t7", "0\t=\t1\t3\t1\t0\tU\t7", "0\t=\t1\t1\t1\t0\tD", "0\t+\t1\t9")
        lines = "\n".join(["P\t0\tmain\tt\tPRIMARY\tn", *changes])
        assert made.say(made.session(), lines) == ["0\t1"] + ["1\t1\ttrigger"] * 4
        assert made.sql("SELECT id, n FROM t") == [(1, 1), (2, 2), (3, 3)]
        assert made.sql("SELECT * FROM log") == []


def test_f138_a_line_that_cannot_be_answered_closes_its_connection_alone(
    write: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, bad, other = [opened(write) for _ in range(3)]

    def defect(*_: object) -> str:
        raise IndexError("a defect")

    monkeypatch.setattr(Session, "authorize", defect)
    find = "0\t=\t1\t1"
    turn = write.play((one, find), (bad, f"{find}\n0\t+\t1\t9\nA\t1\tx\n{find}"), (other, f"{find}\n{find}"))
    found = "0\t3\t1\tone\t10\n"
    assert [found, found * 2] == [turn.texts[0], turn.texts[2]]
    assert turn.texts[1] in (f"{found}0\t1\t0\n", f"{found}0\t1\n")
    assert [each.foreign for each in (one, bad, other)] == [False, True, False]
    assert (turn.rest, turn.late) == ({}, {})
    assert write.say(one, "0\t=\t1\t9") == ["0\t3\t9\t\0\t\0"]
    assert "its connection is closed" in caplog.text


def test_a_turn_that_is_run_again_finds_sessions_as_they_were(tmp_path: Path) -> None:
    script = (
        "CREATE TABLE a (id INTEGER PRIMARY KEY, v); CREATE TABLE b (id INTEGER PRIMARY KEY, v);"
        "CREATE TABLE c (v); CREATE UNIQUE INDEX PRIMARY_c ON c (v);"
        "CREATE TRIGGER t BEFORE INSERT ON c BEGIN SELECT RAISE(ROLLBACK, 'no'); END;"
    )
    with played(tmp_path, script) as made:
        one, other = made.session(), made.session()
        assert made.say(one, "P\t1\tmain\ta\tPRIMARY\tid,v") == ["0\t1"]
        assert made.say(other, "P\t1\tmain\tc\tPRIMARY_c\tv") == ["0\t1"]
        found = made.play((one, "1\t+\t2\t2\tfor-a\nP\t1\tmain\tb\tPRIMARY\tid,v"), (other, "1\t+\t1\tx"))
        assert found.texts == ["0\t1\t0\n0\t1\n", "1\t1\ttrigger\n"]
        assert made.sql("SELECT * FROM a") == [(2, "for-a")]
        assert made.sql("SELECT * FROM b") == []


def test_f59_a_view_without_a_trigger_takes_no_rows(tmp_path: Path) -> None:
    script = (
        "CREATE TABLE rows (id INTEGER PRIMARY KEY, v); CREATE VIEW seen AS SELECT id, v FROM rows;"
        "CREATE VIEW taken AS SELECT id, v FROM rows;"
        "CREATE TRIGGER takes INSTEAD OF INSERT ON taken BEGIN INSERT INTO rows VALUES (new.id, new.v); END;"
    )
    with played(tmp_path, script) as made:
        lines = ["P\t1\tmain\tseen\tPRIMARY\tid,v", "P\t2\tmain\ttaken\tPRIMARY\tid,v"]
        lines += ["1\t+\t2\t5\tx", "2\t+\t2\t5\tx", "1\t=\t1\t5"]
        found = ["0\t1", "0\t1", "2\t1\tnotimpl", "0\t1", "0\t2\t5\tx"]
        assert made.say(made.session(), "\n".join(lines)) == found
