"""Counter as a SQL view: what plain SQL clients see, and the effect of their statements."""

from __future__ import annotations

from roost.dialects.conditions import wanted
from roost.structures.counter.declaration import Counter
from roost.structures.plan import StructurePlan
from roost.structures.views import mariadb, postgresql, sqlite
from roost.types.column_types import INT_MAX, INT_MIN, ColumnType
from roost.types.columns import Column

TOTAL = Column("total", ColumnType("int"))


def on_sqlite(plan: StructurePlan) -> sqlite.Made:
    """Return the view on SQLite, with its INSTEAD OF triggers."""
    slots = _slots(plan)
    words = sqlite.ViewWords(plan)
    key, rows = words.dialect.names(words.key), words.rows
    put = (
        f"INSERT INTO {rows} ({key}, slot, n) VALUES ({words.news(words.key)}, 0, {words.new(TOTAL)})\n"
        f"    ON CONFLICT ({key}, slot)"
    )
    one = slots == 1
    # SUM errors past 64 bits, and the view with it: halves of 32 bits are summed, and a total past that is a REAL.
    low = "sum(n & 4294967295)"
    shown = "n" if one else f"(sum(n >> 32) + ({low} >> 32)) * 4294967296 + ({low} & 4294967295)"
    beyond = [f"(SELECT typeof(n + {words.new(TOTAL)}) FROM {rows} WHERE {words.is_new(words.key)} AND slot = 0)"]
    if not one:
        beyond.append(f"(SELECT typeof({shown} + {words.new(TOTAL)}) FROM {rows} WHERE {words.is_new(words.key)})")
    return sqlite.Made(
        view=f"SELECT {key}, {shown} AS total FROM {rows}{'' if one else f' GROUP BY {key}'}",
        insert=[
            words.refuse(
                *words.rules([*words.key, TOTAL]),
                *((f"{each} = 'real'", ": the sum would leave 64 bits") for each in beyond),
            ),
            f"{put} DO UPDATE SET n = n + excluded.n",
        ],
        update=[
            words.refuse(
                words.fixed(words.key, "a key cannot be changed; delete it and insert the other one"),
                *words.changes([TOTAL]),
            ),
            *([] if one else [f"DELETE FROM {rows} WHERE {words.is_old(words.key)} AND slot <> 0"]),
            f"{put} DO UPDATE SET n = excluded.n",
        ],
        delete=[f"DELETE FROM {rows} WHERE {words.is_old(words.key)}"],
    )


def on_mariadb(plan: StructurePlan) -> mariadb.Made:
    """Return the view on MariaDB, with what is inserted and removed through its inlets or procedures."""
    slots = _slots(plan)

    def add(words: mariadb.ViewWords) -> mariadb.Door:
        key = words.names(words.key)
        beyond = words.signal(f"{words.name}: the sum would leave 64 bits")
        return words.door(
            [*words.key, TOTAL],
            ["DECLARE `the slots` BIGINT", f"DECLARE EXIT HANDLER FOR {mariadb.OUT_OF_RANGE} {beyond}"],
            [
                words.option("slots", str(plan.dialect.slots)),
                f"INSERT INTO {words.rows} ({key}, slot, n)\n"
                f"    VALUES ({words.news(words.key)}, CONNECTION_ID() % `the slots`, {words.news([TOTAL])})\n"
                "    ON DUPLICATE KEY UPDATE n = n + VALUES(n)",
            ],
        )

    def remove(words: mariadb.ViewWords) -> mariadb.Door:
        delete = f"DELETE FROM {words.rows} WHERE {words.is_new(words.key, f'{words.rows}.')}"
        return words.door(words.key, [], [delete])

    key = plan.dialect.names(plan.structure.key.columns)
    summed = f"SELECT {key}, SUM(n) AS total FROM {plan.rows_table} {{mark}} GROUP BY {key}"
    single = f"SELECT * FROM (SELECT {key}, n AS total FROM {plan.rows_table}) {{mark}}"
    return mariadb.Made(single if slots == 1 else summed, add, remove, False)


def on_postgresql(plan: StructurePlan) -> postgresql.Made:
    """Return the view on PostgreSQL, with its INSTEAD OF triggers."""
    slots = _slots(plan)
    words = postgresql.ViewWords(plan)
    key, rows, mine = words.names(words.key), words.rows, words.equal(words.key, "OLD")
    slot = f"pg_backend_pid() % {slots}" if slots > 1 else "0"
    in_range = f"BETWEEN {INT_MIN}::numeric AND {INT_MAX}::numeric"
    beyond = words.stop("22003", ": the sum would leave 64 bits")
    total = (
        f"NEW.total IS NULL OR NEW.total <> trunc(NEW.total) OR NEW.total NOT {in_range}",
        "23514",
        f".total: it takes {wanted(words.dialect, TOTAL)}",
    )
    # All slots are locked, those that are not there by making them; where all had to be made, the key was gone. Then
    # what it has goes, in one statement that tells how much it was.
    take = [
        f"INSERT INTO {rows} ({key}, slot, n)\n"
        f"  SELECT {words.values(words.key, 'OLD')}, s, 0 FROM generate_series(0, {slots - 1}) s\n"
        f"  ON CONFLICT ({key}, slot) DO UPDATE SET n = 0 WHERE false;",
        "GET DIAGNOSTICS it.made = ROW_COUNT;",
        f"WITH gone AS (DELETE FROM {rows} WHERE {mine} RETURNING n) SELECT sum(n) INTO it.had FROM gone;",
        f"IF it.made = {slots} THEN\n  RETURN NULL;\nEND IF;",
    ]
    return postgresql.Made(
        view=f"SELECT {key}, n::numeric AS total FROM {rows}"
        if slots == 1
        else f"SELECT {key}, sum(n) AS total FROM {rows} GROUP BY {key}",
        insert=[
            words.refuse(*words.rules(words.key), total),
            f"INSERT INTO {rows} AS r ({key}, slot, n) VALUES ({words.values(words.key)}, {slot}, NEW.total)\n"
            f"  ON CONFLICT ({key}, slot) DO UPDATE SET n = r.n + excluded.n\n"
            f"  WHERE r.n::numeric + excluded.n::numeric {in_range};",
            f"IF NOT FOUND THEN\n  {beyond}\nEND IF;",
            "RETURN NEW;",
        ],
        # An UPDATE counts the difference to the total that it read, so what others add meanwhile is not lost.
        update=[
            words.refuse(
                words.fixed(words.key, "a key cannot be changed; delete it and insert the other one"),
                total,
            ),
            *take,
            "NEW.total := it.had + NEW.total - OLD.total;",
            f"IF NEW.total NOT {in_range} THEN\n  {beyond}\nEND IF;",
            f"INSERT INTO {rows} ({key}, slot, n) VALUES ({words.values(words.key, 'OLD')}, {slot}, NEW.total);",
            "RETURN NEW;",
        ],
        delete=[words.refuse(), *take, "RETURN OLD;"],
        variables=("made bigint", "had numeric"),
    )


def _slots(plan: StructurePlan) -> int:
    assert isinstance(plan.structure, Counter)
    return plan.structure.slots or plan.dialect.slots


VIEWS = {"sqlite": on_sqlite, "mariadb": on_mariadb, "postgresql": on_postgresql}
