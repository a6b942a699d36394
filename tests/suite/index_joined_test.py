"""Indexes of the application's own tables, inside its transactions, by every driver."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal

import pytest

import roost
from tests.suite.shapes import Make
from tests.suite.ways import App, Way

Connect = Callable[..., App]

MARIADB = (
    "CREATE TABLE goods (id INT PRIMARY KEY AUTO_INCREMENT, code VARCHAR(20), n INT, price DECIMAL(8, 2),"
    " raw VARBINARY(20), day DATE, at DATETIME(6), kind ENUM('x', 'y'), ratio FLOAT, UNIQUE KEY code (code),"
    " KEY by_day (day, n DESC), KEY by_at (at), KEY by_kind (kind), KEY by_ratio (ratio)) CHARACTER SET utf8mb4"
)
TABLES = {
    "sqlite": "CREATE TABLE goods (id INTEGER PRIMARY KEY, code TEXT UNIQUE, n INT, price REAL, raw BLOB)",
    "mariadb": MARIADB,
    "mysql": MARIADB,
    "postgresql": "CREATE TABLE goods (id serial PRIMARY KEY, code varchar(20) CONSTRAINT code UNIQUE, n int, price"
    " numeric(8, 2), raw bytea, day date, at timestamp, kind text, ratio real)",
}
INDEXES = [f"CREATE INDEX {name} ON goods ({name[3:]})" for name in ("by_day", "by_at", "by_kind", "by_ratio")]

goods = roost.Index("goods", columns=["id", "code", "n"], filters=["n", "price"])
by_code = roost.Index("goods", "code", ["price", "raw", "n"])


@pytest.fixture
def one(open_store: Make, app: Connect, way: Way) -> App:
    open_store(roost.Counter("pageviews"))
    made = app()
    made.sql(TABLES[way.engine.partition("-")[0]])
    if way.engine == "postgresql":
        for text in INDEXES:
            made.sql(text)
    made.commit()
    return made


def test_operations_are_part_of_the_applications_transaction(one: App) -> None:
    one.sql("INSERT INTO goods (id, code, n) VALUES (7, 'seven', 7)")
    assert one.run(goods.find("=", 7)) == [(7, "seven", 7)]
    assert one.run(goods.update("=", 7, (8,))) == 1
    with pytest.raises(roost.StatementFailed) as refused:
        one.run(goods.insert((8, "again")))
    assert refused.value.word == "121"
    assert one.run(goods.insert((9, "nine", 9))) == 0
    assert one.run_all(*[goods.increment("=", key, (None, None, 1)) for key in (8, 9, 10)]) == (1, 1, 0)
    assert one.run(goods.find(">=", 8, limit=9, filters=[("n", ">", 8.5)])) == [(9, "nine", 10)]
    assert one.run(goods.returning(goods.delete("=", 9))) == [(9, "nine", 10)]
    one.rollback()
    assert one.run(goods.find(">=", 0, limit=9)) == []


def test_many_finds_and_changes_at_once(one: App) -> None:
    assert list(one.run_all(*[goods.insert((key, f"c{key}", key)) for key in range(1, 21)])) == ([0] * 20)
    found = one.run_all(*[goods.find("=", key) for key in (3, 1, 99, "2", "x", None, 3)])
    assert list(found) == [[(3, "c3", 3)], [(1, "c1", 1)], [], [(2, "c2", 2)], [], [], [(3, "c3", 3)]]
    found = one.run_all(*[goods.find(">=", key, limit=2, filters=[("n", "!=", 4)]) for key in (3, 20, 21)])
    assert list(found) == [[(3, "c3", 3), (5, "c5", 5)], [(20, "c20", 20)], []]
    assert list(one.run_all(*[by_code.update("=", f"c{n}", ("1.50", b"\0'\\")) for n in (1, 2, 77, 2)])) == [1, 1, 0, 1]
    ((price, raw, _),) = one.run(by_code.find("=", "c2"))
    assert (price, bytes(raw)) == (Decimal("1.5"), b"\0'\\")
    assert list(one.run_all(*[goods.delete("=", n) for n in (1, 2, 77, 2)])) == [1, 1, 0, 0]
    one.rollback()


TRIGGERS = {
    "sqlite": ["CREATE TRIGGER seen AFTER INSERT ON goods BEGIN SELECT 1; END"],
    "mariadb": ["CREATE TRIGGER seen AFTER INSERT ON goods FOR EACH ROW SET @seen = NEW.id"],
    "postgresql": [
        "CREATE FUNCTION seen() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "CREATE TRIGGER seen AFTER INSERT ON goods FOR EACH ROW EXECUTE FUNCTION seen()",
    ],
}


@pytest.mark.parametrize("triggers", [False, True])
def test_f91_a_call_whose_modification_fails_leaves_nothing_of_itself(one: App, way: Way, triggers: bool) -> None:
    pageviews = roost.Counter("pageviews")
    engine = way.engine.partition("-")[0]
    for text in TRIGGERS["mariadb" if engine == "mysql" else engine] if triggers else ():
        one.sql(text)
    one.run_all(pageviews.add("/kept"), goods.insert((1, "c1", 1)), goods.insert((2, "c2", 2)))
    for call in (
        [goods.insert((3, "c3", 3)), goods.insert((1, "again", 1))],
        [goods.insert((1, "again", 1))],
        [goods.insert((3, "c3", 3)), goods.update("=", 1, (2,))],
        [goods.update("=", 1, (7,)), goods.update("=", 2, (7,))],
    ):
        with pytest.raises(roost.StatementFailed):
            one.run_all(pageviews.add("/"), *call)
        assert one.run(goods.find(">=", 0, limit=9)) == [(1, "c1", 1), (2, "c2", 2)]
        one.run(pageviews.add("/kept"))
    one.commit()
    assert one.run_all(pageviews.total("/"), pageviews.total("/kept")) == (0, 5)
    one.rollback()


@pytest.mark.ways("server")
def test_values_are_those_of_the_driver(one: App) -> None:
    dates = roost.Index("goods", "by_day", ["day", "at", "kind", "ratio", "price"])
    row = (dt.date(2026, 1, 31), dt.datetime(2026, 1, 31, 12, 30, 0, 250000), "y", 0.5, Decimal("12.50"))
    one.run(dates.insert(row))
    one.run(dates.insert(("2026-02-01", "2026-02-01 00:00:00", "x", "0.25", "3")))
    for name, value in (("by_day", row[0]), ("by_at", row[1]), ("by_kind", "y"), ("by_ratio", 0.5)):
        index = roost.Index("goods", name, ["day", "at", "kind", "ratio", "price"])
        assert one.run(index.find("=", value)) == [row]
        assert one.run(index.find("=", str(value))) == [row]
        assert one.run_all(*[index.find("=", value)] * 3) == ([row],) * 3
        assert len(one.run(index.find(">=", value, limit=9))) == (2 if name in ("by_day", "by_at") else 1)
    for refused in ((dt.date(2026, 1, 31), "yesterday"), ("2026-13-01",), (None, None, "y", "much"), (b"\xff",)):
        with pytest.raises(roost.StatementFailed) as error:
            one.run(dates.insert(refused))
        assert error.value.word == "type"
    with pytest.raises(roost.StatementFailed):
        one.run(roost.Index("goods", columns=["price"]).insert(("1.505",)))
    assert one.run(roost.Index("goods", "by_day", ["n"]).find("=", "never")) == []
    one.rollback()
