"""Windowed counter as a SQL view: the totals of each key and window; an INSERT counts in the current window.

An INSERT also deletes expired rows, as the library's writes do, so the table does not grow if only SQL writes to it.
"""

from __future__ import annotations

from roost.dialects.conditions import wanted
from roost.structures.clock import CLOCK
from roost.structures.plan import StructurePlan
from roost.structures.views import mariadb, postgresql, sqlite
from roost.structures.windowed_counter.declaration import WindowedCounter
from roost.structures.windowed_counter.sql import START
from roost.types.column_types import INT_MAX, INT_MIN, ColumnType
from roost.types.columns import Column

TOTAL = Column("total", ColumnType("int"))
BEYOND = ": the sum would leave 64 bits"
SET_BY_ROOST = ": start is set by Roost; leave it out"
SWEEP = 4  # expired rows that are deleted with each inserted row; on MariaDB one
FIXED = ": a window's total cannot be changed; insert what is to be added"

# A window's start as the view shows it. Windows start at whole seconds.
SQLITE_SHOWN = "strftime('%Y-%m-%d %H:%M:%S.000000', start / 1000000, 'unixepoch')"
MARIADB_SHOWN = "TIMESTAMP'1970-01-01 00:00:00' + INTERVAL start MICROSECOND"
POSTGRESQL_SHOWN = "to_timestamp(0) + start * '1 microsecond'::interval"


def on_sqlite(plan: StructurePlan) -> sqlite.Made:
    """Return the view on SQLite, with its INSTEAD OF triggers."""
    structure, slots = _counter(plan)
    words = sqlite.ViewWords(plan)
    key, rows, seconds = words.dialect.names(words.key), words.rows, structure.seconds
    clock = f"CAST(strftime('%s', 'now') AS INTEGER) / {seconds} * {structure.size}"
    start = f"max({clock}, coalesce((SELECT max(w.start) FROM {rows} w), 0))"
    # SUM, and so the view, fails beyond 64 bits: halves of 32 bits are summed instead, and a greater total is a REAL.
    low = "sum(n & 4294967295)"
    total = "n" if slots == 1 else f"(sum(n >> 32) + ({low} >> 32)) * 4294967296 + ({low} & 4294967295)"
    group = "" if slots == 1 else f" GROUP BY {key}, start"
    there = f"{words.is_new(words.key)} AND start = {start} AND slot = 0"
    return sqlite.Made(
        view=(
            f"SELECT {key}, {SQLITE_SHOWN} AS start, {total} AS total FROM {rows}\n"
            f"  WHERE start >= {start} - {_back(structure)}{group}"
        ),
        insert=[
            words.refuse(
                ("NEW.start IS NOT NULL", SET_BY_ROOST),
                *words.rules([*words.key, TOTAL]),
                (f"(SELECT typeof(n + {words.new(TOTAL)}) FROM {rows} WHERE {there}) = 'real'", BEYOND),
            ),
            f"INSERT INTO {rows} ({key}, start, slot, n)\n"
            f"    VALUES ({words.news(words.key)}, {start}, 0, {words.new(TOTAL)})\n"
            f"    ON CONFLICT ({key}, start, slot) DO UPDATE SET n = n + excluded.n",
            f"DELETE FROM {rows} WHERE ({key}, start, slot) IN (SELECT {key}, start, slot FROM {rows}\n"
            f"    WHERE start < {start} - {_back(structure)} ORDER BY start LIMIT {SWEEP})",
        ],
        update=[words.refuse(("1", FIXED))],
        delete=[
            f"DELETE FROM {rows} WHERE {words.is_old(words.key)}\n"
            "    AND start = CAST(strftime('%s', OLD.start) AS INTEGER) * 1000000"
        ],
    )


def on_mariadb(plan: StructurePlan) -> mariadb.Made:
    """Return the view on MariaDB, with the statements of its inlets or procedures."""
    structure, _ = _counter(plan)
    start = _start(plan)

    def add(words: mariadb.ViewWords) -> mariadb.Door:
        key, rows = words.names(words.key), words.rows
        beyond = words.signal(f"{words.name}{BEYOND}")
        first = f"`the start` - (`the keep` - 1) * {structure.size}"
        over = ", ".join([f"`over {each.name}`" for each in words.key])
        is_over = " AND ".join([f"{rows}.`{each.name}` = `over {each.name}`" for each in words.key])
        return words.door(
            [*words.key, TOTAL],
            [
                *(f"DECLARE `over {each.name}` {plan.dialect.types[each.type.kind](each)}" for each in words.key),
                "DECLARE `the slots`, `the keep`, `the start`, `over start`, `over slot` BIGINT",
                f"DECLARE EXIT HANDLER FOR {mariadb.OUT_OF_RANGE} {beyond}",
            ],
            [
                words.option("slots", str(plan.dialect.slots)),
                words.option("keep"),
                f"SELECT {start} INTO `the start`",
                f"INSERT INTO {words.rows} ({key}, start, slot, n)\n"
                f"    VALUES ({words.news(words.key)}, `the start`, CONNECTION_ID() % `the slots`,"
                f" {words.news([TOTAL])})\n"
                "    ON DUPLICATE KEY UPDATE n = n + VALUES(n)",
                # The first read takes no lock: if nothing has expired, a lock on the gap before the first row would
                # delay clients that insert there.
                f"IF (SELECT MIN(r.start) FROM {rows} r) < {first} THEN\n"
                f"    SELECT {words.names(words.key, 'r.')}, r.start, r.slot INTO {over}, `over start`, `over slot`\n"
                f"      FROM {rows} r FORCE INDEX ({plan.indexes[0]}) WHERE r.start < {first}\n"
                "      ORDER BY r.start LIMIT 1 FOR UPDATE SKIP LOCKED;\n"
                f"    DELETE FROM {rows} WHERE {is_over} AND start = `over start` AND slot = `over slot`;\n"
                "  END IF",
            ],
        )

    def remove(words: mariadb.ViewWords) -> mariadb.Door:
        delete = f"DELETE FROM {words.rows} WHERE {words.is_new(words.key, f'{words.rows}.')}"
        return words.door(words.key, [], [delete])

    key = plan.dialect.names(plan.structure.key.columns)
    summed = (
        f"SELECT {key}, start, SUM(n) AS total FROM {plan.rows_table}\n"
        f"    WHERE start >= {start} - {_back(structure)} GROUP BY {key}, start"
    )
    return mariadb.Made(
        f"SELECT {key}, {MARIADB_SHOWN} AS start, total\n  FROM ({summed}) {{mark}}", add, remove, False
    )


def on_postgresql(plan: StructurePlan) -> postgresql.Made:
    """Return the view on PostgreSQL, with its INSTEAD OF triggers."""
    structure, slots = _counter(plan)
    words = postgresql.ViewWords(plan)
    key, rows, start = words.names(words.key), words.rows, _start(plan)
    slot = f"pg_backend_pid() % {slots}" if slots > 1 else "0"
    in_range = f"BETWEEN {INT_MIN}::numeric AND {INT_MAX}::numeric"
    total = (
        f"NEW.total IS NULL OR NEW.total <> trunc(NEW.total) OR NEW.total NOT {in_range}",
        "23514",
        f".total: it takes {wanted(words.dialect, TOTAL)}",
    )
    return postgresql.Made(
        view=(
            f"SELECT {key}, {POSTGRESQL_SHOWN} AS start, sum(n) AS total FROM {rows}\n"
            f"  WHERE start >= {start} - {_back(structure)} GROUP BY {key}, start"
        ),
        insert=[
            words.refuse(("NEW.start IS NOT NULL", "0A000", SET_BY_ROOST), *words.rules(words.key), total),
            f"INSERT INTO {rows} AS r ({key}, start, slot, n)\n"
            f"  VALUES ({words.values(words.key)}, {start}, {slot}, NEW.total)\n"
            f"  ON CONFLICT ({key}, start, slot) DO UPDATE SET n = r.n + excluded.n\n"
            f"  WHERE r.n::numeric + excluded.n::numeric {in_range};",
            f"IF NOT FOUND THEN\n  {words.stop('22003', BEYOND)}\nEND IF;",
            # At another isolation level, a row that was deleted since the snapshot would cause an error.
            "IF current_setting('transaction_isolation') = 'read committed' THEN\n"
            f"  DELETE FROM {rows} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {rows}\n"
            f"    WHERE start < {start} - {_back(structure)} ORDER BY start LIMIT {SWEEP} FOR UPDATE SKIP LOCKED));\n"
            "END IF;",
            "RETURN NEW;",
        ],
        update=[words.refuse(("true", "0A000", FIXED))],
        delete=[
            words.refuse(),
            f"DELETE FROM {rows} WHERE {words.equal(words.key, 'OLD')}\n"
            "  AND start = (extract(epoch FROM OLD.start) * 1000000)::bigint;",
            "IF NOT FOUND THEN\n  RETURN NULL;\nEND IF;",
            "RETURN OLD;",
        ],
    )


def _counter(plan: StructurePlan) -> tuple[WindowedCounter[object], int]:
    assert isinstance(plan.structure, WindowedCounter)
    return plan.structure, plan.structure.slots or plan.dialect.slots


def _start(plan: StructurePlan) -> str:
    structure, _ = _counter(plan)
    clock = plan.dialect.choose(CLOCK)
    return plan.dialect.choose(START).format(clock=clock, size=structure.size, rows=plan.rows_table)


def _back(structure: WindowedCounter[object]) -> int:
    return (structure.keep - 1) * structure.size


VIEWS = {"sqlite": on_sqlite, "mariadb": on_mariadb, "postgresql": on_postgresql}
