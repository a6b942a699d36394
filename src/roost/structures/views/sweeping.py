"""What a view's INSERT removes beside what it writes: a few rows that are over, as the library's writes do.

By an index on the moment, the column `until`; what others hold is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence

from roost.structures.plan import StructurePlan
from roost.types.columns import Column

MOST = 4  # rows that are over and go with a row that is inserted; on MariaDB one


def sweep_on_sqlite(rows: str, names: str, now: str) -> str:
    """Return the statement of a trigger. names: the key of a row."""
    return (
        f"DELETE FROM {rows} WHERE ({names}) IN (SELECT {names} FROM {rows}\n"
        f"    WHERE until <= {now} ORDER BY until LIMIT {MOST})"
    )


def sweep_on_mariadb(plan: StructurePlan, columns: Sequence[Column], now: str) -> tuple[list[str], str]:
    """Return what is declared, and the statement. columns: the key of a row."""
    dialect, rows = plan.dialect, plan.rows_table
    over = ", ".join([f"`over {each.name}`" for each in columns])
    is_over = " AND ".join([f"{rows}.`{each.name}` = `over {each.name}`" for each in columns])
    # The first look takes no lock: where nothing is over, one on the gap before what is not would hold up those who
    # insert there.
    return (
        [f"DECLARE `over {each.name}` {dialect.types[each.type.kind](each)}" for each in columns],
        f"IF (SELECT MIN(r.until) FROM {rows} r) <= {now} THEN\n"
        f"    SELECT {dialect.names(columns, 'r.')} INTO {over}\n"
        f"      FROM {rows} r FORCE INDEX ({plan.indexes[0]}) WHERE r.until <= {now}\n"
        "      ORDER BY r.until LIMIT 1 FOR UPDATE SKIP LOCKED;\n"
        f"    DELETE FROM {rows} WHERE {is_over};\n"
        "  END IF",
    )


def sweep_on_postgresql(rows: str) -> str:
    """Return the statement of a trigger, which has the moment in its variable `now`: an expression uses no index.

    At another level than READ COMMITTED a row that has gone since the snapshot would be an error.
    """
    return (
        "IF current_setting('transaction_isolation') = 'read committed' THEN\n"
        f"  DELETE FROM {rows} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {rows}\n"
        f"    WHERE until <= it.now ORDER BY until LIMIT {MOST} FOR UPDATE SKIP LOCKED));\n"
        "END IF;"
    )
