"""What the pages read is found by an index, or ends with a limit: it does not grow with the structures."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from html import unescape
from typing import Any

import pytest
from click.testing import CliRunner

import roost
from roost.catalog import measure
from roost.cli import main
from roost.console import reading
from tests import servers
from tests.console.conftest import KEYS, Browser, fill
from tests.lengths import length
from tests.suite.application import Application

# Those of MySQL are left to the campaign, which has more rows, too, and counts as many as people do.
LARGE = "ROOST_CONSOLE_ROWS" in os.environ
COUNTED = measure.MOST if LARGE else measure.MOST // 10
ROWS = int(os.environ.get("ROOST_CONSOLE_ROWS", 20 * COUNTED))  # in each structure
MOST = 6 * COUNTED  # rows that one statement may visit: a few counts, each by index and by row
STEPS = 25 * COUNTED  # of SQLite's machine, for one statement: a scan of all rows takes twice as many

# Rows in the private tables, as many as ROWS; {n} is the number of each.
FILL: dict[str, tuple[str, str]] = {
    "visits": ("head (uid, sequence, keep)", "{n}, 1, 5"),
    "large": ("head (uid, sequence, keep)", "{n}, 1, 1000"),
    "baskets": ("head (basket, sequence, n{bound})", "{n}, 1, 0{zero}"),
    "likes": ("head ({key}, n)", "{n}, 0"),
    "pageviews": ("rows ({key}, slot, n)", "{text}, 0, 1"),
    "views": ("rows ({key}, start, slot, n)", "{text}, {now} - {now} % 3600000000, 0, 1"),
    "cached": ("rows ({key}, value, token, flags, until{due})", "{text}, 'v', 1, 0, {now} + {n} * 1000000{due}"),
    "logins": ("rows ({key}, part, tat{due})", "{text}, 0, {now} - 9000000 - {n}{due}"),
    "jobs": ("rows ({key}, holder, token, ttl, expires)", "{text}, 'me', 1, 1000000, {now} - 9000000 - {n}"),
    "online": ("rows ({key}, member, sequence, until)", "{text}, {n}, 1, {now} - {n}"),
}


# Tables of the application's own, with as many rows.
CAPS = {"seen": ("--per", "uid", "--keep", "5"), "log": ("--older-than", "30d", "--by", "at")}

DEPTH = {"mysql": ["cte_max_recursion_depth"]}


@dataclass
class Asked:
    url: str
    statements: list[tuple[str, Sequence[Any]]]

    def note(self, sql: str, row: Sequence[Any]) -> None:
        self.statements.append((sql, row))


def numbers(kind: str) -> str:
    if kind == "postgresql":
        return f"(SELECT generate_series(1000::bigint, {ROWS + 999}) AS n) s"
    if kind == "mariadb":  # a recursion would keep all numbers first
        return f"(SELECT seq AS n FROM seq_1000_to_{ROWS + 999}) s"
    more = f"SELECT 1000 AS n UNION ALL SELECT n + 1 FROM c WHERE n < {ROWS + 999}"
    return f"(WITH RECURSIVE c AS ({more}) SELECT n FROM c) s"


DATABASES = ["sqlite", "mariadb", "postgresql", *(["mysql"] if LARGE else length([], ["mysql"]))]


@pytest.fixture(scope="module", params=DATABASES)
def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """Every statement of the pages, on a database with many rows."""
    kind = request.param
    with pytest.MonkeyPatch.context() as patch:
        for module in (measure, reading):
            patch.setattr(module, "MOST", COUNTED)
        yield from looked_at(kind, f"{tmp_path_factory.mktemp('plans')}/console.db")


def looked_at(kind: str, file: str) -> Iterator[Asked]:
    with servers.own_database(kind, file) as url:
        asked = Asked(url, [])
        with roost.Store(url) as store:
            fill(store)
            now = 1_700_000_000_000_000
            for name, (table, values) in FILL.items():
                key, text = ('"key"', "'k' || n") if kind in ("sqlite", "postgresql") else ("`key`", "CONCAT('k', n)")
                bound, due, zero = ("", "", "") if kind == "sqlite" else (", roost_bound", ", due", ", 0")
                target = f"roost_{name}_{table.format(key=key, bound=bound, due=due)}"
                end = values.format(n="n", now=now, text=text, zero=zero, due="").rpartition(", ")[2]
                made = values.format(n="n", now=now, text=text, zero=zero, due=due and f", {end}")
                with closing(Application(url)) as sql:
                    for setting in DEPTH.get(kind, ()):
                        sql(f"SET SESSION {setting} = 100000000")
                    sql(f"INSERT INTO {target} SELECT {made} FROM {numbers(kind)}")
                    sql(f"ANALYZE {'TABLE ' if kind in ('mariadb', 'mysql') else ''}roost_{name}_rows")
            for name, rule in CAPS.items():
                with closing(Application(url)) as sql:
                    for setting in DEPTH.get(kind, ()):
                        sql(f"SET SESSION {setting} = 100000000")
                    moment = "timestamptz" if kind == "postgresql" else "TIMESTAMP"
                    at = f"{moment} NOT NULL DEFAULT CURRENT_TIMESTAMP"
                    sql(f"CREATE TABLE {name} (id {{id}}, uid INTEGER NOT NULL, at {at})")
                    sql(f"INSERT INTO {name} (uid) SELECT n - n % 3 FROM {numbers(kind)}")
                arguments = ["cap", name, *rule, "--store", url, "--yes", "--make-index"]
                ran = CliRunner().invoke(main, arguments)
                assert ran.exit_code == 0, ran.output
        with roost.Store(url, timeout=60, trace=asked.note) as store:
            browser = Browser(store, show_values=True)
            browser.text("/")
            for name, key_text in KEYS.items():
                browser.get(f"/structure?name={name}")
                browser.get("/structure", params={"name": name, "key": key_text})
            for page in ("/structure?name=seen", "/structure?name=seen&key=1002", "/structure?name=log", "/doctor"):
                browser.text(page)
            for name in FILL:  # the second page of keys
                if following := re.search(r'rel="next" href="([^"]+)"', browser.get(f"/structure?name={name}").text):
                    browser.get(unescape(following[1]))
            browser.get("/metrics")
        yield asked


def test_no_statement_of_a_page_visits_all_rows(asked: Asked) -> None:
    reads = {(sql, repr(row)): (sql, row) for sql, row in asked.statements if re.match(r"\s*\(?(SELECT|WITH)\b", sql)}
    assert len(reads) > 40
    with closing(Application(asked.url)) as application:
        for sql, row in reads.values():
            n = visited(application, sql, row)
            assert n <= MOST, sql


def visited(application: Application, sql: str, row: Sequence[Any]) -> int:
    """How many rows a statement reads, whatever it returns; on SQLite, its steps in that proportion."""
    raw: Any = application._raw
    if isinstance(raw, sqlite3.Connection):
        steps = [0]

        def step() -> int:
            steps[0] += 1000
            return 0

        raw.set_progress_handler(step, 1000)
        raw.execute(sql, row).fetchall()
        raw.set_progress_handler(None, 0)
        return steps[0] * MOST // STEPS
    cursor = raw.cursor()
    if application.kind == "postgresql":
        cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {sql}", row or None)
        (((found,),),) = cursor.fetchall()
        return scanned(found["Plan"])
    cursor.execute("FLUSH STATUS")
    cursor.execute(sql, row or None)
    cursor.fetchall()
    cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
    return sum(int(n) for _, n in cursor.fetchall())


def scanned(node: dict[str, Any]) -> int:
    rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) if "Scan" in node["Node Type"] else 0
    return int(rows * node["Actual Loops"]) + sum(scanned(each) for each in node.get("Plans", []))
