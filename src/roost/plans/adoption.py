"""Making an existing table a capped collection, in place, and undoing it: look, install, trim, release. SQLite.

Everything is found out before anything is done: a table that cannot be capped safely is refused with the reason.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from roost.dialects.dialect import Control, Statement, Template
from roost.errors import Invalid, Missing, StatementFailed
from roost.plans.adopted import AdoptedPlan, Cap, quoted, read, write
from roost.plans.catalog import Catalog
from roost.structures.adopted import Adopted

Row = tuple[Any, ...]
SLICE = 50  # rows that one statement of a burst deletes at most: about a millisecond
SAFE = ("CASCADE", "SET NULL")  # what a foreign key may do when a row goes that it refers to


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of a table before anything is done."""

    cap: Cap
    old: Cap | None  # as it is capped already
    rows: int
    keyless: int  # rows with NULL in a column of the key: they are left alone
    keys: int
    full: int  # keys with too many rows
    excess: int  # rows that are too many
    index: str  # how a key's rows are found, in SQLite's words; "" when no index leads to them in order


def look(table: str, per: Sequence[str], keep: int, newest_by: str | None) -> Generator[Statement, Any, Found]:
    """Return what capping a table would mean; `Missing` when there is none, `Invalid` with the reason it cannot be."""
    name, without_rowid = yield from _table(table)
    found = yield read("SELECT name, upper(type), pk FROM pragma_table_xinfo(?) ORDER BY cid", name)
    columns: dict[str, str] = {column.lower(): column for column, _, _ in found[0]}

    def column(given: str) -> str:
        if given.lower() not in columns:
            raise Invalid(f"{name} has no column {given!r}; it has {', '.join(columns.values())}")
        return columns[given.lower()]

    own_key = yield read("SELECT count(*) FROM pragma_index_list(?) WHERE origin = 'pk'", name)
    primary = [(pk, column, type_) for column, type_, pk in found[0] if pk]
    id_ = tuple(column for _, column, _ in sorted(primary))
    if without_rowid and newest_by is None:
        raise Invalid(f"{name} is a table WITHOUT ROWID, so nothing tells which row is newer: say --newest-by COLUMN")
    is_rowid = len(primary) == 1 and primary[0][2] == "INTEGER" and not own_key[0][0][0]
    if not without_rowid and not is_rowid:
        id_ = tuple([alias for alias in ("rowid", "_rowid_", "oid") if alias not in columns][:1])
        if not id_:
            raise Invalid(f"{name} has columns called rowid, _rowid_ and oid: nothing is left to tell its rows apart")
    cap = Cap(name, tuple(map(column, per)), keep, None if newest_by is None else column(newest_by), id_)
    yield from _may_lose_rows(name, set())
    old = yield from capped(name)
    index = yield from _index(cap)
    if old is not None and (old.per, old.newest_by) == (cap.per, cap.newest_by):
        cap = replace(cap, index=old.index)
    return Found(cap, old, *(yield from _count(cap)), index)


def _table(table: str) -> Generator[Statement, Any, tuple[str, bool]]:
    found = yield read(
        "SELECT name, type, wr FROM pragma_table_list WHERE schema = 'main' AND lower(name) = lower(?)", table
    )
    if not found[0]:
        raise Missing(f"the database has no table {table!r}")
    name, type_, without_rowid = found[0][0]
    if type_ != "table":
        raise Invalid(f"{name} is a {type_}; only a table can be capped")
    if name.lower().startswith(("sqlite_", "roost_")):
        raise Invalid(f"{name} belongs to {name.partition('_')[0]}; only a table of your own can be capped")
    return name, bool(without_rowid)


def _may_lose_rows(table: str, seen: set[str]) -> Generator[Statement, Any, None]:
    # Rows that others refer to can go only when the foreign key says what then becomes of those.
    seen.add(table.lower())
    found = yield read(
        'SELECT m.name, f."from", f.on_delete FROM sqlite_master m, pragma_foreign_key_list(m.name) f'
        " WHERE m.type = 'table' AND lower(f.\"table\") = lower(?) ORDER BY 1, 2",
        table,
    )
    for other, column, action in found[0]:
        if action not in SAFE:
            raise Invalid(
                f"{other}.{column} refers to rows of {table} with ON DELETE {action}, so they cannot be deleted when "
                f"they are too many; a foreign key must say ON DELETE {' or '.join(SAFE)}"
            )
        if action == "CASCADE" and other.lower() not in seen:
            yield from _may_lose_rows(other, seen)


def capped(table: str) -> Generator[Statement, Any, Cap | None]:
    """Return how a table is capped; None when it is not. `Invalid` when a structure has its name."""
    there = yield read("SELECT count(*) FROM sqlite_master WHERE name = 'roost_catalog'")
    if not there[0][0][0]:
        return None
    found = yield read("SELECT name, definition FROM roost_catalog WHERE lower(name) = lower(?)", table)
    if not found[0]:
        return None
    name, definition = found[0][0]
    if not definition.startswith('{"kind":"adopted"'):
        raise Invalid(f"there is a structure {name} already, and the catalog can have but one of that name")
    return Cap.of(Adopted.from_facts(name, json.loads(definition)))


def _index(cap: Cap) -> Generator[Statement, Any, str]:
    # The plan must find a key's rows by all columns of the key, and have them in order without a sort.
    found = yield read(f"EXPLAIN QUERY PLAN {cap.excess(1)}", *(0,) * len(cap.per))
    steps = [step for *_, step in found[0]]
    good = len(steps) == 1 and steps[0].startswith("SEARCH") and steps[0].count("=?") >= len(cap.per)
    return str(steps[0]) if good else ""


def _count(cap: Cap) -> Generator[Statement, Any, tuple[int, int, int, int, int]]:
    table = quoted(cap.table)
    keyless = yield read(f"SELECT count(*) FROM {table} WHERE NOT ({cap.has_key})")
    counted = yield read(
        f"SELECT coalesce(sum(n), 0), count(*), coalesce(sum(n > {cap.keep}), 0), "
        f"coalesce(sum(max(n - {cap.keep}, 0)), 0)\n"
        f"  FROM (SELECT count(*) AS n FROM {table} WHERE {cap.has_key} GROUP BY {cap.key})"
    )
    rows, keys, full, excess = counted[0][0]
    return rows + keyless[0][0][0], keyless[0][0][0], keys, full, excess


def install(catalog: Catalog, cap: Cap, old: Cap | None, make_index: bool) -> Generator[Statement, Any, Cap]:
    """Enter a table into the catalog and make its triggers, and its index if it needs one; return how it is capped.

    From then on no key gets more rows; those that are too many are for `burst`.
    """
    yield from _probe(cap)
    yield write(catalog.table)
    now = yield from capped(cap.table)
    if now != old:
        raise Invalid(f"{cap.table} was capped otherwise by somebody else in this moment; look again")
    if old is not None:
        yield from _drop(old, keep_index=cap.index)
    if make_index:
        cap = replace(cap, index=True)
        yield write(cap.index_sql)
    for sql in cap.triggers.values():
        yield write(sql)
    if old is None:
        yield write("INSERT INTO roost_catalog (name, version, definition) VALUES (?, 1, ?)", cap.table, cap.definition)
    elif old != cap:
        yield Statement(catalog.change, [(cap.definition, cap.table)])
    return cap


def _probe(cap: Cap) -> Generator[Statement, Any, None]:
    # A trigger or a foreign key may forbid what will be done in the application's own INSERT: better to know now.
    ids = ", ".join(map(quoted, cap.id))
    yield write("SAVEPOINT roost_probe")
    try:
        yield write(cap.delete(f"(SELECT {ids} FROM {quoted(cap.table)} ORDER BY {ids} LIMIT 1)"))
    except StatementFailed as error:
        raise Invalid(f"{cap.table}: its rows cannot be deleted, so it cannot be capped ({error})") from error
    yield write("ROLLBACK TO roost_probe")
    yield write("RELEASE roost_probe")


def _drop(cap: Cap, keep_index: bool) -> Generator[Statement, Any, None]:
    for name in cap.triggers:
        yield write(f"DROP TRIGGER IF EXISTS {quoted(name)}")
    if cap.index and not keep_index:
        yield write(f"DROP INDEX IF EXISTS {quoted(cap.index_name)}")


def release(table: str) -> Generator[Statement, Any, Cap]:
    """Remove every trace of a cap but the rows; `Missing` when the table is not capped."""
    cap = yield from capped(table)
    if cap is None:
        raise Missing(f"{table} is not capped")
    yield from _drop(cap, keep_index=False)
    yield write("DELETE FROM roost_catalog WHERE name = ?", cap.table)
    left = yield read("SELECT count(*) FROM roost_catalog")
    if not left[0][0][0]:
        yield write("DROP TABLE roost_catalog")
    return cap


def full_keys(cap: Cap, after: Row | None, n: int) -> Generator[Statement, Any, list[Row]]:
    """Return the next keys behind one that have too many rows."""
    holes = ", ".join("?" * len(cap.per))
    behind = "" if after is None else f" AND ({cap.key}) > ({holes})"
    found = yield read(
        f"SELECT {cap.key} FROM {quoted(cap.table)} WHERE {cap.has_key}{behind} GROUP BY {cap.key}\n"
        f"  HAVING count(*) > {cap.keep} ORDER BY {cap.key} LIMIT ?",
        *(after or ()),
        n,
    )
    keys: list[Row] = found[0]
    return keys


def burst(cap: Cap, keys: deque[Row], is_over: Callable[[], bool]) -> Generator[Statement | Control, Any, int]:
    """Delete what keys have too many of until it is over; keys that are done leave the queue. Returns the rows deleted.

    What is too much is found under the lock: the application may have deleted rows since the keys were listed.
    """
    excess = cap.excess(SLICE)
    holes = ", ".join("?" * len(cap.id))
    delete = Template(cap.delete(f"({holes})" if len(cap.id) > 1 else holes))
    deleted = 0
    while keys:
        found = yield read(excess, *keys[0])
        rows: list[Row] = found[0]
        if rows:
            deleted += yield Statement(delete, rows)
        if len(rows) < SLICE:
            keys.popleft()
        if is_over():
            break
    return deleted


def broken(plan: AdoptedPlan) -> Generator[Statement, Any, list[tuple[str, Row | None, str]]]:
    """Return what does not keep a table capped: rule, key, and what is wrong."""
    cap = plan.cap
    assert cap is not None
    try:
        yield from _table(cap.table)
    except (Missing, Invalid) as error:
        return [("tables", None, str(error))]
    found: list[tuple[str, Row | None, str]] = []
    there = yield read(
        "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND lower(tbl_name) = lower(?)", cap.table
    )
    stored = dict(there[0])
    again = f"`roost cap {cap.table}` again makes it"
    found += [
        ("triggers", None, f"{name} is not as Roost makes it; {again}")
        for name, sql in cap.triggers.items()
        if stored.get(name) != sql
    ]
    if not (yield from _index(cap)):
        found.append(("tables", None, "no index leads to a key's rows in their order: every INSERT reads the table"))
    full = yield read(
        f"SELECT {cap.key}, count(*) FROM {quoted(cap.table)} WHERE {cap.has_key} GROUP BY {cap.key}\n"
        f"  HAVING count(*) > {cap.keep} LIMIT 100"
    )
    found += [
        ("keep", row[:-1], f"{row[-1]:,} rows, keep is {cap.keep:,}; `roost cap {cap.table}` goes on trimming")
        for row in full[0]
    ]
    return found
