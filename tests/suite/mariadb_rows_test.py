"""Roost reads the rows of PyMySQL's results by itself: they are what PyMySQL reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pymysql
import pytest

import roost
from roost.databases.mariadb.rows import Reading
from tests import servers

QUERIES = {
    "every kind of value": """
        SELECT 1, -9223372036854775808, NULL, 1.5, 1e0, 'é', X'00FF', DATE '2008-01-01',
            TIMESTAMP '2008-01-01 22:03:23.5', CAST('12.50' AS DECIMAL(10, 2)), CAST('11:22:33' AS TIME),
            CAST(NULL AS DATETIME), '', JSON_OBJECT('a', 1)
    """,
    "no row": "SELECT 1 FROM DUAL WHERE 0",
    "one short column": "SELECT 1 UNION ALL SELECT NULL UNION ALL SELECT ''",
    "values of every length": """
        SELECT REPEAT('x', seq), seq, REPEAT('y', 600 - seq) FROM seq_0_to_600
    """,
    "long values": """
        SELECT REPEAT('x', seq), seq FROM seq_65530_to_65540 UNION ALL SELECT REPEAT('é', 5000000), 1
        UNION ALL SELECT REPEAT(X'FF', 3), 2
    """,
    "packets beyond the first 256, and reads beyond the first": "SELECT seq, seq * 1000003 FROM seq_1_to_20000",
    "more than a packet holds": "SELECT REPEAT('x', 16777210), REPEAT('y', 16777000)",
}


@pytest.fixture(scope="module")
def arguments() -> dict[str, Any]:
    parts = urlsplit(servers.mariadb().url)
    return {"host": "127.0.0.1", "port": parts.port, "user": "root", "database": "mysql", "charset": "utf8mb4"}


@pytest.fixture
def both(arguments: dict[str, Any]) -> Iterator[list[Any]]:
    made = [pymysql.connect(**arguments), Reading(**arguments)]
    yield [connection.cursor() for connection in made]
    for connection in made:
        connection.close()


@pytest.mark.parametrize("query", QUERIES.values(), ids=list(QUERIES))
def test_rows_are_what_pymysql_reads(both: list[Any], query: str) -> None:
    answers = []
    for cursor in both:
        for _ in range(2):  # the second time its columns are known
            cursor.execute(query)
            answers.append((cursor.fetchall(), cursor.rowcount, cursor.description))
    plain, again, first, ours = answers
    assert plain == again == first == ours
    assert [[type(value) for value in row] for row in ours[0]] == [[type(value) for value in row] for row in plain[0]]


def test_an_error_among_the_rows_is_pymysqls_and_the_connection_goes_on(both: list[Any]) -> None:
    # Rows are sent while the server still reads, so the error comes behind some of them.
    for cursor in both:
        with pytest.raises(pymysql.MySQLError) as caught:
            cursor.execute("SELECT IF(seq < 9000, seq, (SELECT 1 UNION SELECT seq)) FROM seq_1_to_10000")
        assert caught.value.args[0] == 1242
        cursor.execute("SELECT seq FROM seq_1_to_3")
        assert cursor.fetchall() == ((1,), (2,), (3,))


def test_a_connection_that_is_cut_among_the_rows_is_told_by_pymysql(both: list[Any], arguments: dict[str, Any]) -> None:
    with pymysql.connect(**arguments, autocommit=True) as other, other.cursor() as killer:
        for cursor in both:
            killer.execute(f"KILL {cursor.connection.thread_id()}")
            with pytest.raises(pymysql.OperationalError) as caught:
                cursor.execute("SELECT seq FROM seq_1_to_100000")
            assert caught.value.args[0] in (2006, 2013, 1927)


def test_f84_a_statement_of_many_values_has_more_time_than_one_of_few(arguments: dict[str, Any]) -> None:
    """What a batch may wait for a lock is short; what many rows need by themselves comes on top of it."""
    server = servers.mariadb()
    url = server.database("timed")
    pageviews = roost.Counter("timed_views")
    with roost.Store(url) as store:
        store.create(pageviews)
        server.run("SET GLOBAL log_output = 'TABLE'")
        server.run("SET GLOBAL general_log = ON")
        try:
            for many in (2, 2000):
                store.run_all(*[pageviews.add(f"/{many}/{n}") for n in range(many)])
        finally:
            server.run("SET GLOBAL general_log = OFF")
            server.run("SET GLOBAL log_output = DEFAULT")
    with pymysql.connect(**arguments) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT argument FROM mysql.general_log WHERE argument LIKE '%CALL roost_timed_views_add_all%'")
        rows = [bytes(text).decode() if isinstance(text, bytes) else text for (text,) in cursor.fetchall()]
    limits = {
        many: max(
            float(each)
            for text in rows
            if f'"/{many}/1"' in text
            for each in re.findall(r"max_statement_time = ([0-9.]+)", text)
        )
        for many in (2, 2000)
    }
    assert limits[2000] - limits[2] > 0.1
