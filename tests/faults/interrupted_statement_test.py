"""MariaDB ends a statement from outside (KILL QUERY, a limit for its time): what was answered is done, once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pymysql
import pytest

import roost
from roost.databases.mariadb.address import arguments
from roost.databases.mariadb.rows import Reading
from tests import servers

# Seconds: from before the first statement to behind the last one, and some that are enough.
LIMITS = [*[hundredths / 100_000 for hundredths in range(4, 120, 2)], 1.0, 1.0]


@dataclass(frozen=True)
class Visit:
    uid: int
    visitor: int


pageviews = roost.Counter("pageviews", slots=1)
visits = roost.Ring("visits", Visit, per="uid", keep=1000)
likes = roost.Set("likes", key=int, member=int)


@pytest.fixture
def url() -> Iterator[str]:
    with servers.database("mariadb") as made:
        yield made


def test_an_operation_by_itself_is_done_once_whenever_it_is_interrupted(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit: list[float] = []
    results = Reading.results

    def limited(self: Any, text: str) -> Any:
        if "ROLLBACK" not in text and "BEGIN NOT ATOMIC" in text and limit:
            text = text.replace("SET STATEMENT ", f"SET STATEMENT max_statement_time = {limit.pop()}, ", 1)
        return results(self, text)

    with roost.Store(f"{url}?prepared=off", timeout=30) as store:
        store.create(pageviews, visits, likes, view=False)
        store.run(pageviews.add("/"))
        store.run(visits.push(Visit(1, 0)))
        store.run_all(likes.add(1, -1), likes.add(2, *range(len(LIMITS))))
        monkeypatch.setattr(Reading, "results", limited)
        for n, seconds in enumerate(LIMITS):
            limit[:] = [seconds]
            store.run(pageviews.add("/"))
            limit[:] = [seconds]
            assert store.run(visits.push(Visit(1, n))) == n + 2
            limit[:] = [seconds]
            assert store.run(likes.add(1, n))
            limit[:] = [seconds]
            assert store.run(likes.remove(2, n))
        monkeypatch.undo()
        assert store.stats().retries
        assert store.run(pageviews.total("/")) == len(LIMITS) + 1
        assert len(store.run(visits.latest(1))) == len(LIMITS) + 1
        assert store.run_all(likes.size(1), likes.size(2)) == (len(LIMITS) + 1, 0)
        assert store.check() == []


def test_an_operation_that_is_interrupted_behind_its_commit_is_not_done_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = Reading.results
    armed: list[bool] = []

    def interrupted(self: Any, text: str) -> Any:
        found = results(self, text)
        if "BEGIN NOT ATOMIC" in text and armed:  # as the server says it: COMMIT is done, the statement is not over
            armed.clear()
            raise pymysql.err.OperationalError(1317, "Query execution was interrupted")
        return found

    with roost.Store(f"{url}?prepared=off") as store:
        store.create(pageviews, visits, likes, view=False)
        store.run(pageviews.add("/"))
        store.run(visits.push(Visit(1, 0)))
        store.run(likes.add(1, -1))
        monkeypatch.setattr(Reading, "results", interrupted)
        for n in range(3):
            armed[:] = [True]
            store.run(pageviews.add("/"))
            armed[:] = [True]
            assert store.run(visits.push(Visit(1, n))) == n + 2
            armed[:] = [True]
            assert store.run(likes.add(1, n))
            assert not armed
        assert store.run(pageviews.total("/")) == 4
        assert store.run(likes.size(1)) == 4
        assert store.check() == []


def test_in_a_transaction_of_the_applications_nothing_is_left_of_it(url: str) -> None:
    with roost.Store(url) as store, closing(pymysql.connect(**arguments(url)[0])) as raw:
        store.create(visits, view=False)
        answered = refused = 0
        for n, seconds in enumerate(LIMITS):
            say(raw, f"SET SESSION max_statement_time = {seconds}")
            try:
                store.on(raw).run(visits.push(Visit(1, n)))
            except roost.Conflict:  # all of it again
                say(raw, "SET SESSION max_statement_time = 0")
                raw.rollback()
                refused += 1
            except roost.Busy:  # nothing was done
                say(raw, "SET SESSION max_statement_time = 0")
                raw.commit()
                refused += 1
            else:
                say(raw, "SET SESSION max_statement_time = 0")
                raw.commit()
                answered += 1
        assert answered
        assert refused
        assert len(store.run(visits.latest(1))) == answered
        assert store.check() == []


def say(raw: Any, sql: str) -> None:
    """Run a statement, however often it takes too long for the limit that it ends."""
    while True:
        with raw.cursor() as cursor:
            try:
                cursor.execute(sql)
            except pymysql.err.OperationalError as error:
                if error.args[0] != 1969:
                    raise
            else:
                return


SLOW = """\
CREATE TRIGGER slow BEFORE INSERT ON roost_visits_rows FOR EACH ROW
  IF NEW.visitor = 7 AND (SELECT SLEEP(0.5)) > 0 THEN SET NEW.visitor = 0; END IF"""


def test_a_procedure_that_is_interrupted_in_its_middle_in_a_batch_is_done_once(url: str) -> None:
    # The limit for waiting is over in its second statement: what the first one did must not be done again.
    with roost.Store(url, timeout=30, lock_wait=0.1) as store:
        store.create(visits, pageviews, view=False)
        with closing(pymysql.connect(**arguments(url)[0])) as other, other.cursor() as cursor:
            cursor.execute(SLOW)
        assert store.run_all(visits.push(Visit(1, 7)), pageviews.add("/")) == (1, None)
        assert store.run_all(visits.push(Visit(1, 8)), pageviews.total("/")) == (2, 1)
        assert [row.visitor for row in store.run(visits.latest(1))] == [8, 7]


# It takes a while to open, so that a limit of microseconds is over before a row is looked for.
STOCK = """\
CREATE TABLE stock (id INT PRIMARY KEY, n INT, shelf VARCHAR(50), KEY (n)) PARTITION BY HASH (id) PARTITIONS 16"""


def test_a_row_that_an_index_was_told_to_delete_is_gone_whenever_that_is_interrupted(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MariaDB answered a plain DELETE with OK, and no row, that it ended before it had looked for one."""
    limits = [microseconds / 1_000_000 for microseconds in range(1, 9)] * 40
    answers = Reading.answers

    def limited(self: Any, text: str) -> Any:
        limit = limits.pop() if limits and "FOR DELETE" in text else 1.0
        return answers(self, re.sub(r"(max_statement_time = )[\d.]+(?= FOR DELETE)", rf"\g<1>{limit:.6f}", text))

    with roost.Store(url, timeout=30) as store:
        store.create(likes, view=False)
        with closing(pymysql.connect(**arguments(url)[0], autocommit=True)) as raw, raw.cursor() as cursor:
            cursor.execute(STOCK)
            cursor.executemany("INSERT INTO stock VALUES (%s, 0, 'A')", [(id_,) for id_ in range(len(limits))])
        stock = roost.Index("stock", "PRIMARY", ["id"])
        monkeypatch.setattr(Reading, "answers", limited)
        for id_ in range(len(limits)):
            assert store.run(stock.delete("=", id_)) == 1
        monkeypatch.undo()
        assert store.stats().retries
        assert store.run(stock.find(">=", 0, limit=1000)) == []
