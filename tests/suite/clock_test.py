"""The time of a structure: it is the database's, and never goes back, whatever its clock does."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import roost
from roost import own
from roost.structures import registry
from roost.structures.clock import SECOND, datetime_of, microseconds
from roost.structures.plan import Context
from roost.structures.registry import register
from roost.structures.rules import UNTIL, sweep
from roost.structures.structure import Group, Structure, column_facts, key_from
from roost.types.columns import Column
from tests.suite.clients import Client
from tests.suite.engines import Engine
from tests.suite.passing import Hand, passes
from tests.suite.shapes import Make, in_threads, rows
from tests.suite.ways import App

pytestmark = pytest.mark.needs("counter", "second store")


HOUR = 3600


class Ticking(Structure):
    """Tells the time: by what a batch reads behind its locks, and by an expression."""

    kind = "ticking"

    def __init__(self, name: str) -> None:
        super().__init__(name, Group.declared(name, "key", int))
        self._define({"name": name}, key=column_facts(self.key.columns))

    @property
    def columns(self) -> tuple[Column, ...]:
        """The key."""
        return self.key.columns

    def read(self) -> roost.Operation[int]:
        """Ask for the moment that a write has."""
        return roost.Operation(self, "read", ((0,),))

    def get(self) -> roost.Operation[int]:
        """Ask for the moment that a read has."""
        return roost.Operation(self, "get", ((0,),))

    @classmethod
    def from_facts(cls, name: str, facts: dict[str, Any]) -> Ticking:
        """Make the declaration from the facts of a definition."""
        assert key_from(name, "key", facts["key"])
        return cls(name)


class TickingPlan(own.ProgramPlan):
    """Its rows would expire; its program gives the time that it has."""

    expires = True

    def made(self) -> Iterator[str]:
        """Yield the statements that make the table."""
        key = self.structure.key.columns
        yield self.create(self.rows_table, [*key, UNTIL], self.dialect.names(key))
        yield f"CREATE INDEX roost_ticks_over ON {self.rows_table} (until)"

    def programs(self) -> Iterator[own.Program]:
        """Yield the programs."""

        def reading(w: own.Words) -> Iterator[own.Step]:
            yield own.Now()
            yield own.Give([w["now"] if w.loops else w.now])

        key = self.structure.key.columns
        yield own.Program("read", key, reading, [own.number("now")], after=f"SELECT {self.now}")
        yield sweep(key)

    def written(self) -> dict[str, own.Write]:
        """Return what the verb that writes calls."""
        return {"read": own.Write("read", self.key_of, own.first)}

    def asked(self) -> dict[str, own.Ask]:
        """Return what the verb that reads asks."""
        read = self.read(f"SELECT {self.now}", [*self.structure.key.columns, *self.timed])

        def row(op: roost.Operation[Any], context: Context) -> own.Row:
            return (*self.key_out(op.args[0]), *self.moment(context))

        return {"get": own.Ask(read, row, lambda _, rows: rows[0][0])}


ticks = Ticking("ticks")


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    register(Ticking, TickingPlan)
    yield
    for kinds in (registry.DECLARATIONS, registry._PLANS, registry._CONSOLES):
        del kinds["ticking"]


def row(sql: Client) -> tuple[int, int] | None:
    """What is stored: the latest moment, and how far time is ahead."""
    found: tuple[int, int] | None = sql.execute("SELECT latest, ahead FROM roost_ticks_clock").fetchone()
    return found


def test_moments_are_exact() -> None:
    for moment in (0, 1, 1_777_636_800_123_457, microseconds(dt.datetime.max.replace(tzinfo=dt.UTC))):
        assert microseconds(datetime_of(moment)) == moment


def test_a_write_and_a_read_have_the_databases_time(make: Make, sql: Client) -> None:
    store = make(ticks)
    before = microseconds(dt.datetime.now(dt.UTC))
    moments = [store.run(ticks.read()), store.run(ticks.get()), store.run(ticks.get()), store.run(ticks.read())]
    after = microseconds(dt.datetime.now(dt.UTC))
    assert [before, *moments, after] == sorted([before, *moments, after])
    assert row(sql) == (moments[0], 0)  # the last one was less than a second later


def test_a_session_in_another_time_zone_has_the_same_time(
    open_store: Make, app: Callable[..., App], engine: Engine
) -> None:
    store, one = open_store(ticks), app()
    one.sql(
        {"mariadb": "SET time_zone = '-05:00'", "postgresql": "SET TIME ZONE 'America/New_York'"}.get(
            engine.name, "SELECT 1"
        )
    )
    before = store.run(ticks.read())
    assert 0 <= one.run(ticks.read()) - before < HOUR * SECOND
    one.rollback()


def test_time_that_jumps_back_goes_on_from_where_it_was(make: Make, sql: Client) -> None:
    store = make(ticks)
    first = store.run(ticks.read())
    passes(sql, ticks, HOUR)
    later = store.run(ticks.read())
    assert later - first >= HOUR * SECOND
    passes(sql, ticks, -HOUR)
    assert store.run(ticks.get()) >= later
    again = store.run(ticks.read())
    assert again >= later
    latest, ahead = row(sql) or (0, 0)
    assert latest == again
    assert (HOUR - 60) * SECOND < ahead <= HOUR * SECOND
    assert store.run(ticks.get()) > again  # and does not stand still


@pytest.mark.needs("file")
def test_on_sqlite_it_is_the_stores_clock_written_down_once_in_a_second(open_store: Make, sql: Client) -> None:
    clock = Hand()
    store = open_store(ticks, clock=clock)
    noon = microseconds(clock())
    assert store.run(ticks.read()) == noon
    clock.moves(0.5)
    assert store.run(ticks.read()) == noon + SECOND // 2
    assert row(sql) == (noon, 0)
    clock.moves(0.5)
    assert store.run(ticks.read()) == noon + SECOND
    assert row(sql) == (noon + SECOND, 0)


@pytest.mark.needs("file")
def test_another_store_of_sqlite_that_starts_with_an_earlier_clock_goes_on(open_store: Make) -> None:
    early, late = Hand(), Hand()
    early.moves(-HOUR)
    first, second = open_store(ticks, clock=late), open_store(clock=early)
    noon = first.run(ticks.read())
    assert second.run(ticks.get()) == noon
    assert second.run(ticks.read()) == noon
    early.moves(3)
    late.time = early.time  # their machine's clock was set
    assert second.run(ticks.read()) == noon + 3 * SECOND
    assert first.run(ticks.read()) == noon + 3 * SECOND
    early.moves(3)
    assert first.run(ticks.get()) == noon + 3 * SECOND
    assert second.run(ticks.get()) == noon + 6 * SECOND


@pytest.mark.needs("programs for SQL")
def test_nobody_waits_for_who_writes_the_time(open_store: Make, sql: Client) -> None:
    store = open_store(ticks, timeout=2.0)
    first = store.run(ticks.read())
    passes(sql, ticks, HOUR)
    sql.execute("BEGIN")
    sql.execute("SELECT 1 FROM roost_ticks_clock WHERE id = 0 FOR UPDATE")
    assert store.run(ticks.read()) - first >= HOUR * SECOND
    assert (row(sql) or (0,))[0] == first
    sql.execute("COMMIT")
    written = store.run(ticks.read())
    assert (row(sql) or (0,))[0] == written


@pytest.mark.needs("programs for SQL", "psycopg")
def test_who_is_held_up_while_others_write_the_time_does_not_put_it_forward(open_store: Make, sql: Client) -> None:
    store = open_store(ticks, lock_wait=4.0)
    first = store.run(ticks.read())
    now = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

    def others() -> None:
        while not rows(sql, "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'roost_ticks_clock'::regclass"):
            pass
        sql.execute("SELECT pg_sleep(1.1)")
        sql.execute(f"UPDATE roost_ticks_clock SET latest = {now}")
        sql.execute("COMMIT")

    sql.execute("BEGIN")
    sql.execute("LOCK TABLE roost_ticks_clock")
    held_up, _ = in_threads(partial(store.run, ticks.read()), others)
    assert held_up - first >= SECOND
    assert (row(sql) or (0, 1))[1] == 0


@pytest.mark.ways("server")
def test_the_applications_transaction_holds_no_lock_on_time(open_store: Make, app: Callable[..., App]) -> None:
    store, one = open_store(ticks), app()
    assert one.run(ticks.read()) > 0
    assert store.run(ticks.read()) > 0
    one.rollback()


def test_many_threads_begin_at_once(open_store: Make, sql: Client) -> None:
    stores = [open_store(ticks) for _ in range(4)]

    def work(store: roost.Store) -> list[int]:
        return [store.run(each) for _ in range(20) for each in (ticks.read(), ticks.get())]

    moments = in_threads(*[partial(work, store) for store in stores])
    assert all(len(mine) == 40 and mine == sorted(mine) for mine in moments)
    assert (row(sql) or (0, 1))[1] == 0


def test_a_clock_that_was_emptied_is_told_and_made_again(open_store: Make, sql: Client) -> None:
    fading = roost.Set("fading", key=int, member=int, keep_for=HOUR)
    store = open_store(fading)
    assert store.check() == []
    sql.execute("DELETE FROM roost_fading_clock")
    (violation,) = store.check()
    assert (violation.structure, violation.rule) == ("fading", "clock")
    sql.execute(violation.detail.partition("run ")[2])
