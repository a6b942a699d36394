"""The load generator: it checks what it counts, on a real server; and its tables are what it takes them for."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from bench.handlersocket import MARIADB, SQLITE, statements
from click.testing import CliRunner

import roost
from roost.cli import main
from roost.client.load import Load, drive
from roost.client.load.generator import Process
from roost.client.load.load import Report
from roost.client.load.workloads import is_as_good, value, wide, workload_of
from tests.client.conftest import Server
from tests.lengths import length
from tests.servers import Plugin

ROWS = 2000


@pytest.fixture
def tables(server: Server) -> Server:
    server.sql("CREATE TABLE bench (id BIGINT PRIMARY KEY, v VARCHAR(64))")
    server.sql("CREATE TABLE counts (id BIGINT PRIMARY KEY, n BIGINT)")
    return server


def plan(server: Server, work: str, **options: object) -> Load:
    reads = work in ("get", "range", "wide")
    port, secret = (server.read_port, server.read_secret) if reads else (server.write_port, server.write_secret)
    made = Load(work, f"127.0.0.1:{port}", secret, server.database, rows=ROWS, connections=3, seconds=0.1, warmup=0.0)
    return replace(made, **options)  # type: ignore[arg-type]


def driven(load: Load, processes: int = 1, least: int = 1) -> Report:
    """Drive a load; again and for longer when so little was answered in that time, as on a machine that is busy."""
    report = drive(load, processes)
    if report.requests + report.errors.total() < least:
        return driven(replace(load, seconds=5 * load.seconds), processes, least)
    return report


def fill(server: Server) -> None:
    filled = drive(plan(server, "fill", seconds=60.0, pipeline=50))
    assert (filled.errors, filled.lost, filled.answered) == ({}, 0, ROWS - 50)  # and those before, one at least


def test_every_work_is_answered_as_it_has_to_be(tables: Server) -> None:
    fill(tables)
    assert tables.sql("SELECT count(*), min(id), max(id) FROM bench") == [(ROWS, 1, ROWS)]
    works = [("get", 1), ("range", 7), ("update", 1), ("insert", 7), ("update", 7), ("get", 7)]
    for work, pipeline in works[: length(4, 6)]:
        report = driven(plan(tables, work, pipeline=pipeline, idle=2), length(2 if pipeline == 1 else 1, 2))
        assert (work, report.errors, report.example, report.lost) == (work, {}, "", 0)
        assert report.answered >= report.requests > 0
        assert report.latencies.total() * pipeline == report.requests
    paced = driven(plan(tables, "get", pace=500.0, zipf=0.99))
    assert paced.errors == {}
    assert 0 < paced.requests <= 1000 * paced.seconds
    more = tables.sql("SELECT count(*) FROM bench")[0][0]
    assert more > ROWS


def test_increments_are_counted_on_both_sides(tables: Server) -> None:
    for pipeline in (1, 9):
        report = drive(plan(tables, "increment", table="counts", hot=3, pipeline=pipeline), 2)
        assert report.errors == {}
        assert report.counted == report.answered > 0
    assert tables.sql("SELECT count(*) FROM counts") == [(3,)]


@pytest.mark.parametrize("pipeline", [1, 5])
def test_an_answer_that_is_not_right_is_an_error(tables: Server, pipeline: int) -> None:
    fill(tables)
    tables.sql("UPDATE bench SET v = 'wrong' WHERE id % 2 = 0")
    tables.sql("DELETE FROM bench WHERE id % 3 = 0")
    report = driven(plan(tables, "get", pipeline=pipeline, seconds=0.2), least=2000)
    assert set(report.errors) == {"wrong answer"}
    assert 0.3 < report.requests / (report.requests + report.errors.total()) < 0.37
    assert "in place of" in report.example


def test_what_a_server_refuses_is_counted_by_kind(tables: Server) -> None:
    fill(tables)
    twice = plan(tables, "fill", first=1)  # rows that are there already, and no others behind them
    process = Process(twice, 0, 1, b"0\t1\n")
    try:
        report = process.run()
    finally:
        process.close()
    assert set(report.errors) == {"1 1 121"}
    assert (report.requests, report.answered) == (0, 0)


def test_what_cannot_be_started_is_told(handlersocket_plugin: Plugin) -> None:
    plugin = handlersocket_plugin
    there = Load("get", f"{plugin.host}:{plugin.read_port}", "wrong", connections=1)
    with pytest.raises(roost.Refused, match="unauth"):
        drive(there)
    with pytest.raises(roost.CannotOpen, match="refused"):
        drive(replace(there, address="127.0.0.1:1"))
    with pytest.raises(roost.Invalid, match="2 processes cannot share 1"):
        drive(there, 2)


def test_the_command_tells_and_fails(tables: Server) -> None:
    fill(tables)

    def run(*arguments: str, **env: str) -> tuple[int, str]:
        common = ["--rows", str(ROWS), "--database", tables.database, "--seconds", "0.1", "--connections", "2"]
        where = ["--read", f"127.0.0.1:{tables.read_port}", "--write", f"127.0.0.1:{tables.write_port}"]
        done = CliRunner(env=env).invoke(main, ["bench", *arguments, *common, *where])
        return done.exit_code, done.output

    code, found = run("get", "--secret", tables.read_secret)
    assert code == 0, found
    assert re.search(r"requests\t[\d,]+ per second", found)
    assert "p99.9 of a chunk" in found
    assert "of CPU per request" in found
    code, found = run("update", "--json", ROOST_BENCH_SECRET=tables.write_secret)
    assert code == 0, found
    assert '"errors": {}' in found
    tables.sql("UPDATE bench SET v = 'wrong'")
    code, found = run("get", "--secret", tables.read_secret)
    assert code == 1
    assert "answers were not what they have to be" in found


def test_the_rows_that_sql_makes_are_those_that_are_expected(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "rows.db")) as connection:
        for statement in statements(SQLITE, ROWS):
            connection.execute(statement)
        found = connection.execute("SELECT id, v FROM bench ORDER BY id").fetchall()
        assert found == [(row, value(row).decode()) for row in range(1, ROWS + 1)]
        assert connection.execute("SELECT * FROM changed").fetchall() == found
        many = connection.execute("SELECT * FROM wide ORDER BY a, b").fetchall()
        assert [[str(each).encode() for each in row] for row in many] == [wide(row) for row in range(1, ROWS + 1)]


def test_the_rows_that_mariadb_makes_are_the_same(handlersocket_plugin: Plugin) -> None:
    handlersocket_plugin.sql("CREATE DATABASE rows_of_bench")
    connection = handlersocket_plugin.connection(database="rows_of_bench")
    with connection, connection.cursor() as cursor:
        for statement in statements(MARIADB, ROWS):
            cursor.execute(statement)
        cursor.execute("SELECT id, v FROM bench ORDER BY id")
        assert list(cursor.fetchall()) == [(row, value(row).decode()) for row in range(1, ROWS + 1)]
        cursor.execute("SELECT * FROM wide ORDER BY a, b")
        many = cursor.fetchall()
        assert [[str(each).encode() for each in row] for row in many] == [wide(row) for row in range(1, ROWS + 1)]
    handlersocket_plugin.sql("DROP DATABASE rows_of_bench")


def test_keys_are_drawn_as_planned() -> None:
    made = Load("get", "", rows=1000, pipeline=1)
    uniform = drawn(made)
    assert set(uniform) <= set(range(1, 1001))
    assert len(set(uniform)) > 950
    skewed = drawn(replace(made, zipf=1.2))
    assert set(skewed) <= set(range(1, 1001))
    often = max(skewed.count(each) for each in set(skewed))
    assert often > 10 * max(uniform.count(each) for each in set(uniform))


def drawn(plan: Load) -> list[int]:
    chunks = workload_of(plan, 0, 1).chunks
    return [int(next(chunks)[0].split(b"\t")[3]) for _ in range(5000)]


def test_an_updated_row_is_as_good_and_another_is_not() -> None:
    expected = b"0\t2\t7\t%s" % value(7)
    assert is_as_good(expected, b"0\t2\t7\t%s" % value(7, 42))
    assert not is_as_good(expected, b"0\t2\t7\t%s" % value(15, 42))
    assert not is_as_good(expected, b"0\t2\t15\t%s" % value(7))
    assert not is_as_good(expected, b"0\t2")
