"""`roost serve` on MariaDB and PostgreSQL: values as their column's type and character set have them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.index.databases import Database, database
from tests.server.playing import Bench, bench


@pytest.fixture(scope="module", params=["mariadb", "postgresql"])
def server(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database of each kind."""
    with database(request.param, Path()) as made:
        yield made


@pytest.fixture
def writer(server: Database) -> Iterator[Bench]:
    """Turns that write."""
    with closing(bench(server, "write")) as made:
        yield made


ORDERED = {"mariadb": ["DECIMAL(5,1)", "DOUBLE", "INT ZEROFILL"], "postgresql": ["numeric", "float8", "real"]}


@pytest.mark.parametrize("place", range(3))
def test_a_range_is_in_the_order_of_the_values_and_not_of_their_texts(
    server: Database, writer: Bench, place: int
) -> None:
    kind = ORDERED[server.name][place]
    server.script("DROP TABLE IF EXISTS o", f"CREATE TABLE o (k {kind} PRIMARY KEY, n int)")
    server.script("INSERT INTO o VALUES (100, 100), (9, 9), (10, 10)")
    session = writer.session()
    opened, up = writer.say(session, "P\t1\tmain\to\tPRIMARY\tn,k\n1\t>\t1\t0\t9\t0")
    assert (opened, up.split("\t")[2::2]) == ("0\t1", ["9", "10", "100"])
    several = writer.say(session, "1\t<\t1\t1000\t2\t0\n1\t<\t1\t100\t2\t0")
    assert [answer.split("\t")[2::2] for answer in several] == [["100", "10"], ["10", "9"]]
    before, deleted = writer.say(session, "1\t>\t1\t0\t2\t0\t+?\t1\n1\t>\t1\t9\t9\t0\tD?")
    assert [answer.split("\t")[2::2] for answer in (before, deleted)] == [["9", "10"], ["11", "100"]]


NAMED = {
    "mariadb": [
        ("VARCHAR(9) CHARACTER SET latin1", "'ä'"),
        ("VARCHAR(9) CHARACTER SET sjis", "'表'"),
        ("VARCHAR(9) CHARACTER SET utf16", "'ä'"),
        ("DATE", "'0000-00-00'"),
        ("DATE", "'2026-02-31'"),
        ("TIMESTAMP", "'0000-00-00'"),
        ("DOUBLE", "1.1e300"),
        ("TIME(3)", "'-838:59:59.999'"),
        ("UUID", "'123e4567-e89b-12d3-a456-426614174000'"),
        (r"ENUM('x', 'a\\b', 'c''d', 'e\nf')", r"'a\\b'"),
    ],
    "postgresql": [
        ("inet", "'10.0.0.1/8'"),
        ("cidr", "'10.0.0.0/8'"),
        ("interval", "'1 mon 2 days -03:00'"),
        ("interval year", "'1 year'"),
        ("jsonb", "'\"x\"'"),
        ("int4range", "'[1,5)'"),
        ("int[]", "'[0:1]={1,2}'"),
        ("date", "'infinity'"),
        ("timestamptz", "'0044-03-15 BC'"),
        ("time", "'24:00'"),
        ("numeric", "'NaN'"),
        ("float8", "'-Infinity'"),
        ("bytea", r"'\x00ff'"),
    ],
}
CASES = [(kind, *each) for kind, listed in NAMED.items() for each in listed]


@pytest.mark.parametrize(
    ("kind", "declared", "value"), CASES, ids=[f"{kind} {declared}" for kind, declared, _ in CASES]
)
def test_a_row_is_modified_whatever_its_primary_key_is(
    server: Database, writer: Bench, kind: str, declared: str, value: str
) -> None:
    if kind != server.name:
        return
    settings = ["SET sql_mode = 'ALLOW_INVALID_DATES'"] if kind == "mariadb" else []
    server.script(
        "DROP TABLE IF EXISTS named",
        *settings,
        f"CREATE TABLE named (k {declared} PRIMARY KEY, id int UNIQUE, n int NOT NULL)",
        f"INSERT INTO named VALUES ({value}, 7, 0)",
    )
    session = writer.session()
    by_id = "id" if kind == "mariadb" else "named_id_key"
    opening = f"P\t1\tmain\tnamed\t{by_id}\tn\nP\t2\tmain\tnamed\t{by_id}\tk,n"
    assert writer.say(session, opening) == ["0\t1"] * 2
    said = []
    for chunk in ("U\t5", "+\t1", "+\t1\n1\t=\t1\t7\t1\t0\t+\t1", "U\t20\n1\t=\t1\t7\t1\t0\tU\t30", "+?\t1", "-\t2"):
        said.append(writer.say(session, f"1\t=\t1\t7\t1\t0\t{chunk}"))
        said[-1] += [str(n) for (n,) in server.sql("SELECT n FROM named")]
    one = "0\t1\t1"
    assert said == [[one, "5"], [one, "6"], [one, one, "8"], [one, one, "30"], ["0\t1\t30", "31"], [one, "29"]]
    (deleted,) = writer.say(session, "2\t=\t1\t7\t1\t0\tD?")
    assert deleted.endswith("\t29")
    assert server.sql("SELECT n FROM named") == []


def test_the_labels_of_an_enum_are_what_they_were_declared_as(server: Database, writer: Bench) -> None:
    if server.name != "mariadb":
        return
    server.script("DROP TABLE IF EXISTS e")
    server.script(r"CREATE TABLE e (k ENUM('x', 'a\\b', 'c''d', 'e\nf', 'g\\nh') PRIMARY KEY)")
    session = writer.session()
    said = writer.say(
        session, "P\t1\tmain\te\tPRIMARY\tk\n1\t+\t1\ta\\b\n1\t+\t1\tc'd\n1\t+\t1\te\x01Jf\n1\t+\t1\tg\\nh"
    )
    assert said == ["0\t1"] * 5
    assert server.sql("SELECT k FROM e ORDER BY k") == [("a\\b",), ("c'd",), ("e\nf",), ("g\\nh",)]
    assert writer.say(session, "1\t=\t1\ta\\b\n1\t=\t1\tg\\nh") == ["0\t1\ta\\b", "0\t1\tg\\nh"]


CAPS = {
    "mariadb": ["CREATE TRIGGER caps BEFORE UPDATE ON s FOR EACH ROW SET NEW.n = LEAST(NEW.n, 100)"],
    "postgresql": [
        "CREATE OR REPLACE FUNCTION caps() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.n := least(NEW.n, 100); RETURN NEW; END $$",
        "CREATE TRIGGER caps BEFORE UPDATE ON s FOR EACH ROW EXECUTE FUNCTION caps()",
    ],
}
FORBIDS = ["ALTER TABLE s ADD CHECK (n <> 5)"]
SUMS = [
    (CAPS, ["+\t60", "+\t60", "+\t-50"], ["0\t1\t1"] * 3, 50),
    (CAPS, ["+\t160", "+\t160", "+\t-60"], ["0\t1\t1"] * 3, 40),
    (dict.fromkeys(CAPS, FORBIDS), ["-\t-5", "-\t7", "-\t1"], ["1\t1\tcheck", "0\t1\t1", "0\t1\t1"], -8),
]


@pytest.mark.parametrize("case", range(len(SUMS)))
def test_sums_of_one_row_are_those_that_each_would_make_alone(server: Database, writer: Bench, case: int) -> None:
    makes, asked, answers, n = SUMS[case]
    server.script("DROP TABLE IF EXISTS s", "CREATE TABLE s (id int PRIMARY KEY, n int)", *makes[server.name])
    server.script("INSERT INTO s VALUES (1, 0), (2, 0)")
    session = writer.session()
    assert writer.say(session, "P\t1\tmain\ts\tPRIMARY\tn") == ["0\t1"]
    together = writer.say(session, "\n".join([f"1\t=\t1\t1\t1\t0\t{each}" for each in asked]))
    alone = [writer.say(session, f"1\t=\t1\t2\t1\t0\t{each}")[0] for each in asked]
    assert (together, alone) == (answers, answers)
    assert server.sql("SELECT n FROM s ORDER BY id") == [(n,), (n,)]


def test_a_row_that_another_has_taken_along_is_not_deleted_again(server: Database, writer: Bench) -> None:
    server.script("DROP TABLE IF EXISTS family", "CREATE TABLE family (id int PRIMARY KEY, parent int)")
    server.script("ALTER TABLE family ADD FOREIGN KEY (parent) REFERENCES family (id) ON DELETE CASCADE")
    server.script("INSERT INTO family VALUES (1, NULL), (2, 1), (3, NULL)")
    session = writer.session()
    lines = [f"1\t=\t1\t{id}\t1\t0\tD" for id in (1, 2, 3)]
    said = writer.say(session, "\n".join(["P\t1\tmain\tfamily\tPRIMARY\tid", *lines]))
    assert said == ["0\t1", "0\t1\t1", "0\t1\t0", "0\t1\t1"]
    assert server.sql("SELECT id FROM family") == []


def test_a_zero_asks_for_a_number_however_it_is_written(server: Database, writer: Bench) -> None:
    kind = "int AUTO_INCREMENT" if server.name == "mariadb" else "serial"
    server.script("DROP TABLE IF EXISTS numbered", f"CREATE TABLE numbered (id {kind} PRIMARY KEY, v int)")
    session = writer.session()
    assert writer.say(session, "P\t1\tmain\tnumbered\tPRIMARY\tid,v") == ["0\t1"]
    zeros = ["-0", "00", "0.0", "", "\0", "0"]
    together = writer.say(session, "\n".join([f"1\t+\t2\t{zero}\t7" for zero in zeros]))
    alone = [writer.say(session, f"1\t+\t2\t{zero}\t7")[0] for zero in zeros]
    assert together + alone == [f"0\t1\t{id}" for id in range(1, 13)]
    assert [id for (id,) in server.sql("SELECT id FROM numbered ORDER BY id")] == [*range(1, 13)]


@pytest.mark.parametrize("name", ["k", "50%s", "%%", "t", "{i}", "a.b", 'd"x`y'])
def test_a_table_may_have_any_name(
    server: Database, writer: Bench, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    quote = "`" if server.name == "mariadb" else '"'
    quoted = f"{quote}{name.replace(quote, 2 * quote)}{quote}"
    with closing(server.connect()) as connection:
        cursor = connection.cursor()
        cursor.execute(f"DROP TABLE IF EXISTS {quoted}")
        cursor.execute(f"CREATE TABLE {quoted} ({quoted} int PRIMARY KEY, v int)")
        cursor.execute(f"INSERT INTO {quoted} VALUES (1, 10), (2, 20)")
        connection.commit()
    session = writer.session()
    assert writer.say(session, f"P\t1\tmain\t{name}\tPRIMARY\tv\tv") == ["0\t1"]
    assert writer.say(session, "1\t=\t1\t1\n1\t=\t1\t2") == ["0\t1\t10", "0\t1\t20"]
    assert writer.say(session, "1\t<\t1\t9\t1\t0\tF\t>\t0\t1\n1\t<\t1\t2\t1\t0\tF\t>\t0\t2") == ["0\t1\t20", "0\t1\t10"]
    assert writer.say(session, "1\t=\t1\t1\t1\t0\t+\t1\n1\t=\t1\t2\t1\t0\t+\t1") == ["0\t1\t1"] * 2
    assert writer.say(session, "1\t=\t1\t1\t1\t0\tD\n1\t=\t1\t2\t1\t0\tD") == ["0\t1\t1"] * 2
    assert not caplog.records


def test_a_sum_has_all_the_digits_of_a_float(server: Database, writer: Bench) -> None:
    kind = "FLOAT" if server.name == "mariadb" else "real"
    server.script("DROP TABLE IF EXISTS f", f"CREATE TABLE f (id int PRIMARY KEY, r {kind})")
    server.script("INSERT INTO f VALUES (1, 16777211), (2, 16777211)")
    session = writer.session()
    assert writer.say(session, "P\t1\tmain\tf\tPRIMARY\tr") == ["0\t1"]
    assert writer.say(session, "1\t=\t1\t1\t1\t0\t+\t1\n1\t=\t1\t1\t1\t0\t+\t1") == ["0\t1\t1"] * 2
    (shown,) = writer.say(session, "1\t=\t1\t2\t1\t0\t-?\t2")
    assert shown == {"mariadb": "0\t1\t16777200", "postgresql": "0\t1\t1.6777211e+07"}[server.name]
    assert server.sql("SELECT r + 0e0 FROM f ORDER BY id") == [(16777213.0,), (16777209.0,)]
