"""A counter as a relation of its own name: keys with their totals, or keys and windows with theirs.

An INSERT adds its total. Without windows, an UPDATE counts the difference to the total that it has read, so what others
add meanwhile is not lost. With windows, an INSERT counts in the current one, and totals cannot be updated.
"""

from __future__ import annotations

from typing import Any

from roost.dialects.conditions import wanted
from roost.structures.clock import CLOCK, SHOWN, SQLITE_CLOCK
from roost.structures.views import mysql, postgresql, sqlite
from roost.types.column_types import INT_MAX, INT_MIN, ColumnType
from roost.types.columns import Column

TOTAL = Column("total", ColumnType("int"))
BEYOND = ": the sum would leave 64 bits"
KEY_FIXED = "a key cannot be changed; delete it and insert the other one"
SET_BY_ROOST = ": start is set by Roost; leave it out"
FIXED = ": a window's total cannot be changed; insert what is to be added"


def _kept(plan: Any, now: str) -> str:
    return f"start >= {plan.start(now)} - {(plan.structure.keep - 1) * plan.structure.size}"


def on_sqlite(plan: Any) -> sqlite.Made:
    """Return the view on SQLite, with its INSTEAD OF triggers."""
    words, name, one = sqlite.ViewWords(plan), plan.structure.name, plan.structure.slots in (None, 1)
    key, rows, windows = words.dialect.names(words.key), words.rows, bool(plan.structure.size)
    # SUM errors past 64 bits, and the view with it: halves of 32 bits are summed, and a total past that is a REAL.
    low = "sum(n & 4294967295)"
    shown = "n" if one else f"(sum(n >> 32) + ({low} >> 32)) * 4294967296 + ({low} & 4294967295)"
    start = f"{SHOWN['sqlite'].format('start')} AS start, " if windows else ""
    where = f"\n  WHERE {_kept(plan, SQLITE_CLOCK)}" if windows else ""
    group = "" if one else f" GROUP BY {key}{', start' if windows else ''}"
    there = f"{words.is_new(words.key)} AND slot = 0{f' AND start = {plan.start(SQLITE_CLOCK)}' if windows else ''}"
    beyond = [f"(SELECT typeof(n + {words.new(TOTAL)}) FROM {rows} WHERE {there})"]
    if not one and not windows:
        beyond.append(f"(SELECT typeof({shown} + {words.new(TOTAL)}) FROM {rows} WHERE {words.is_new(words.key)})")
    add = f"INSERT INTO roost_{name}_add VALUES ({words.news(words.key)}, {words.new(TOTAL)}, {SQLITE_CLOCK})"
    old = ", ".join(f'OLD."{each.name}"' for each in words.key)
    clear = f"INSERT INTO roost_{name}_clear VALUES ({old}, {SQLITE_CLOCK})"
    return sqlite.Made(
        view=f"SELECT {key}, {start}{shown} AS total FROM {rows}{where}{group}",
        insert=[
            words.refuse(
                *([("NEW.start IS NOT NULL", SET_BY_ROOST)] if windows else []),
                *words.rules([*words.key, TOTAL]),
                *((f"{each} = 'real'", BEYOND) for each in beyond),
            ),
            add,
        ],
        update=[words.refuse(("1", FIXED))]
        if windows
        else [words.refuse(words.fixed(words.key, KEY_FIXED), *words.changes([TOTAL])), clear, add],
        delete=[
            f"DELETE FROM {rows} WHERE {words.is_old(words.key)}\n"
            "    AND start = CAST(strftime('%s', OLD.start) AS INTEGER) * 1000000"
        ]
        if windows
        else [clear],
    )


def on_mariadb(plan: Any) -> mysql.Made:
    """Return the view on MariaDB and MySQL, with what is inserted and removed through its inlets or procedures."""
    name, windows = plan.structure.name, bool(plan.structure.size)

    def add(words: mysql.ViewWords) -> mysql.Door:
        beyond = words.signal(f"{words.name}{BEYOND}")
        return words.door(
            [*words.key, TOTAL],
            [f"DECLARE EXIT HANDLER FOR {mysql.OUT_OF_RANGE} {beyond}"],
            [f"CALL roost_{name}_add({words.news([*words.key, TOTAL])})"],
        )

    def remove(words: mysql.ViewWords) -> mysql.Door:
        return words.door(
            words.key,
            ["DECLARE `the total` DECIMAL(65)"],
            [f"CALL roost_{name}_clear({words.news(words.key)}, `the total`)"],
        )

    key = plan.dialect.names(plan.structure.key.columns)
    if windows:
        summed = (
            f"SELECT {key}, start, SUM(n) AS total FROM {plan.rows_table}\n"
            f"    WHERE {_kept(plan, CLOCK[plan.dialect.family])} GROUP BY {key}, start"
        )
        shown = SHOWN["mariadb"].format("start")
        return mysql.Made(f"SELECT {key}, {shown} AS start, total\n  FROM ({summed}) {{mark}}", add, remove, False)
    summed = f"SELECT {key}, SUM(n) AS total FROM {plan.rows_table} {{mark}} GROUP BY {key}"
    return mysql.Made(summed, add, remove, False)


def on_postgresql(plan: Any) -> postgresql.Made:
    """Return the view on PostgreSQL, with its INSTEAD OF triggers."""
    words, name, windows = postgresql.ViewWords(plan), plan.structure.name, bool(plan.structure.size)
    key, rows, mine = words.names(words.key), words.rows, words.equal(words.key, "OLD")
    in_range = f"BETWEEN {INT_MIN}::numeric AND {INT_MAX}::numeric"
    total = (
        f"NEW.total IS NULL OR NEW.total <> trunc(NEW.total) OR NEW.total NOT {in_range}",
        "23514",
        f".total: it takes {wanted(words.dialect, TOTAL)}",
    )
    add = f"PERFORM {name}_add({words.values(words.key)}, NEW.total::bigint);"
    if windows:
        return postgresql.Made(
            view=(
                f"SELECT {key}, {SHOWN['postgresql'].format('start')} AS start, sum(n) AS total FROM {rows}\n"
                f"  WHERE {_kept(plan, CLOCK[plan.dialect.family])} GROUP BY {key}, start"
            ),
            insert=[words.refuse(("NEW.start IS NOT NULL", "0A000", SET_BY_ROOST), total), add, "RETURN NEW;"],
            update=[words.refuse(("true", "0A000", FIXED))],
            delete=[
                words.refuse(),
                f"DELETE FROM {rows} WHERE {mine}\n  AND start = (extract(epoch FROM OLD.start) * 1000000)::bigint;",
                "IF NOT FOUND THEN\n  RETURN NULL;\nEND IF;",
                "RETURN OLD;",
            ],
        )
    return postgresql.Made(
        view=f"SELECT {key}, sum(n) AS total FROM {rows} GROUP BY {key}",
        insert=[words.refuse(total), add, "RETURN NEW;"],
        update=[
            words.refuse(words.fixed(words.key, KEY_FIXED), total),
            # A total that 64 bits cannot hold, in several slots, is replaced as a whole.
            f"IF NEW.total - OLD.total {in_range} THEN\n"
            f"  PERFORM {name}_add({words.values(words.key)}, (NEW.total - OLD.total)::bigint);\n"
            f"ELSE\n  PERFORM {name}_clear({words.values(words.key)});\n  {add}\nEND IF;",
            f"SELECT sum(n) INTO NEW.total FROM {rows} WHERE {mine};",
            "RETURN NEW;",
        ],
        delete=[
            words.refuse(),
            f"IF {name}_clear({words.values(words.key, 'OLD')}) IS NULL THEN\n  RETURN NULL;\nEND IF;",
            "RETURN OLD;",
        ],
    )


VIEWS = {"sqlite": on_sqlite, "mariadb": on_mariadb, "postgresql": on_postgresql}
