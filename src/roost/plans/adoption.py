"""Making an existing table a capped collection, in place, and undoing it: look, install, trim, release. SQLite.

Everything is found out before anything is done: a table that cannot be capped safely is refused with the reason.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from roost.dialects.dialect import Control, Statement, Template
from roost.errors import Invalid, Missing, StatementFailed
from roost.plans.adopted import AdoptedPlan, Cap, quoted, read, write
from roost.plans.catalog import Catalog
from roost.plans.values import no_utf8
from roost.structures import from_definition
from roost.structures.adopted import Adopted

Row = tuple[Any, ...]
SLICE = 50  # rows that one statement of a burst deletes at most: about a millisecond
KEPT = "a trigger keeps its rows from being deleted, so it cannot be capped"
SAFE = ("CASCADE", "SET NULL")  # what a foreign key may do when a row goes that it refers to


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of a table before anything is done."""

    cap: Cap
    old: Cap | None  # as it is capped already
    others: tuple[str, ...]  # tables whose rows go with its own, by ON DELETE CASCADE
    rows: int
    keyless: int  # rows with NULL in a column of the key: they are left alone
    keys: int
    full: int  # keys with too many rows
    excess: int  # rows that are too many
    bytes: int  # about how large the table is
    index: str  # how a key's rows are found, in SQLite's words; "" when no index leads to them in order


def look(table: str, per: Sequence[str], keep: int, newest_by: str | None) -> Generator[Statement, Any, Found]:
    """Return what capping a table would mean; `Missing` when there is none, `Invalid` with the reason it cannot be."""
    name, without_rowid = yield from _table(table)
    found = yield read("SELECT name, upper(type), pk, hidden FROM pragma_table_xinfo(?) ORDER BY cid", name)
    columns: list[str] = [column for column, *_ in found[0]]

    def column(given: str) -> str:
        for same in (str, _folded):
            for each in columns:
                if same(each) == same(given):
                    return each
        raise Invalid(f"{name} has no column {given!r}; it has {', '.join(columns)}")

    own_key = yield read("SELECT count(*) FROM pragma_index_list(?) WHERE origin = 'pk'", name)
    primary = [(pk, column, type_) for column, type_, pk, _ in found[0] if pk]
    id_ = tuple(column for _, column, _ in sorted(primary))
    if without_rowid and newest_by is None:
        raise Invalid(f"{name} is a table WITHOUT ROWID, so nothing tells which row is newer: say --newest-by COLUMN")
    is_rowid = len(primary) == 1 and primary[0][2] == "INTEGER" and not own_key[0][0][0]
    if not without_rowid and not is_rowid:
        id_ = tuple([alias for alias in ROWID if alias not in map(_folded, columns)][:1])
        if not id_:
            raise Invalid(f"{name} has columns called rowid, _rowid_ and oid: nothing is left to tell its rows apart")
    cap = Cap(name, tuple(map(column, per)), keep, None if newest_by is None else column(newest_by), id_)
    generated = [column for column, _, _, hidden in found[0] if hidden in (2, 3) and column in cap.per]
    if generated:
        raise Invalid(f"{name}.{generated[0]} is generated, so an UPDATE that changes it cannot be seen")
    old = yield from capped(name)
    yield from _none_in_the_way(cap)
    yield from _told_apart(cap)
    others = yield from _may_lose_rows(name)
    index = yield from _index(cap)
    if old is not None and old.index and old.index_name in index:
        cap = replace(cap, index=True)
    counts = yield from _count(cap)
    return Found(cap, old, tuple(others), *counts, (yield from _bytes(cap, columns, counts[0])), index)


ROWID = ("rowid", "_rowid_", "oid")


def _folded(name: str) -> str:
    # As SQLite compares names: only ASCII letters have a case.
    return "".join([each.lower() if each.isascii() else each for each in name])


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


def _none_in_the_way(cap: Cap) -> Generator[Statement, Any, None]:
    # Objects of a cap stay with a table that is renamed, under the names that they had.
    names = (*cap.triggers, cap.index_name)
    found = yield read(
        "SELECT type, name, tbl_name FROM sqlite_master\n"
        r"  WHERE (name IN (?, ?, ?) AND lower(tbl_name) <> lower(?))"
        r" OR (lower(tbl_name) = lower(?) AND name LIKE 'roostcap\_%' ESCAPE '\' AND name NOT IN (?, ?, ?))",
        *(*names, cap.table, cap.table, *names),
    )
    if found[0]:
        type_, name, table = found[0][0]
        raise Invalid(
            f"{cap.table}: there is {type_} {name} on {table}, of a cap from before a table was renamed; `roost uncap` "
            "of the name that the table had removes it"
        )


def _told_apart(cap: Cap) -> Generator[Statement, Any, None]:
    # By a primary key that compares otherwise than its columns do, one row could be taken for another.
    where = " AND ".join(f"{cap.column(name)} = ?" for name in cap.id)
    found = yield read(f"EXPLAIN QUERY PLAN SELECT 1 FROM {quoted(cap.table)} WHERE {where}", *(0,) * len(cap.id))
    if not found[0][0][-1].count("=?") >= len(cap.id):
        raise Invalid(f"{cap.table}: its primary key and the columns of it have different collations")


def _may_lose_rows(table: str) -> Generator[Statement, Any, list[str]]:
    """Return the tables whose rows go with those of a table; `Invalid` when a row could not go, or not for long."""
    gone, waiting = [table], [table]
    while waiting:
        parent = waiting.pop()
        found = yield read(
            'SELECT m.name, f.id, f."from", f.on_delete FROM sqlite_master m, pragma_foreign_key_list(m.name) f'
            " WHERE m.type = 'table' AND lower(f.\"table\") = lower(?) ORDER BY 1, 2, f.seq",
            parent,
        )
        for other, action, columns in _grouped(found[0]):
            where = f"{other}.{columns[0]} refers to rows of {parent} with ON DELETE {action}"
            if action not in SAFE:
                raise Invalid(
                    f"{where}, so they cannot be deleted when they are too many; a foreign key must say ON DELETE "
                    f"{' or '.join(SAFE)}"
                )
            if action == "SET NULL":
                yield from _may_be_null(other, columns, where)
            elif other.lower() == table.lower():
                raise Invalid(f"{where}: a row that is too many would take newer ones of the table with it")
            elif other.lower() not in [each.lower() for each in gone]:
                gone.append(other)
                waiting.append(other)
            yield from _has_index(other, columns, where)
    return gone[1:]


def _grouped(rows: Sequence[Row]) -> list[tuple[str, str, list[str]]]:
    # Each foreign key: the table it is in, what it does, its columns.
    found: dict[tuple[str, int, str], list[str]] = {}
    for other, number, column, action in rows:
        found.setdefault((other, number, action), []).append(column)
    return [(other, action, columns) for (other, _, action), columns in found.items()]


def _may_be_null(other: str, columns: Sequence[str], where: str) -> Generator[Statement, Any, None]:
    found = yield read('SELECT name, "notnull" OR pk FROM pragma_table_xinfo(?)', other)
    fixed = {name.lower() for name, fixed in found[0] if fixed}
    if any(column.lower() in fixed for column in columns):
        raise Invalid(f"{where}, but may not be NULL, so a row could not go")
    found = yield read(
        'SELECT m.name, f."from" FROM sqlite_master m, pragma_foreign_key_list(m.name) f'
        " WHERE m.type = 'table' AND lower(f.\"table\") = lower(?) AND f.on_update NOT IN ('CASCADE', 'SET NULL')"
        f' AND lower(f."to") IN ({", ".join("?" * len(columns))})',
        *(other, *[column.lower() for column in columns]),
    )
    if found[0]:
        child, column = found[0][0]
        raise Invalid(f"{where}, and {child}.{column} refers to that and would forbid it, so a row could not go")


def _has_index(other: str, columns: Sequence[str], where: str) -> Generator[Statement, Any, None]:
    table = quoted(other)
    equal = " AND ".join(f"{table}.{quoted(column)} = ?" for column in columns)
    found = yield read(f"EXPLAIN QUERY PLAN SELECT 1 FROM {table} WHERE {equal}", *(0,) * len(columns))
    if not found[0][0][-1].startswith("SEARCH"):
        names = ", ".join(map(quoted, columns))
        raise Invalid(
            f"{where} without an index: each row that goes would read all of {other}. CREATE INDEX … ({names})"
        )


def capped(table: str) -> Generator[Statement, Any, Cap | None]:
    """Return how a table is capped; None when it is not. `Invalid` when a structure has its name."""
    there = yield read("SELECT count(*) FROM sqlite_master WHERE name = 'roost_catalog'")
    if not there[0][0][0]:
        return None
    found = yield read("SELECT definition FROM roost_catalog WHERE lower(name) = lower(?)", table)
    if not found[0]:
        return None
    structure = from_definition(found[0][0][0])
    if not isinstance(structure, Adopted):
        raise Invalid(f"there is a structure {structure.name} already, and the catalog can have but one of that name")
    return Cap.of(structure)


def _index(cap: Cap) -> Generator[Statement, Any, str]:
    # The plan must find a key's rows by all columns of the key, and have them in order without a sort.
    found = yield read(f"EXPLAIN QUERY PLAN {cap.excess(1)}", *(0,) * len(cap.per))
    steps = [step for *_, step in found[0]]
    good = len(steps) == 1 and steps[0].startswith("SEARCH") and steps[0].count("=?") >= len(cap.per)
    return str(steps[0]) if good else ""


def _count(cap: Cap) -> Generator[Statement, Any, tuple[int, int, int, int, int]]:
    table = quoted(cap.table)
    keyless = yield read(f"SELECT count(*) FROM {table} WHERE NOT ({cap.has_key})")
    damaged = " OR ".join(f"typeof({cap.column(name)}) = 'text' AND {no_utf8(cap.column(name))}" for name in cap.per)
    counted = yield read(
        f"SELECT coalesce(sum(n), 0), count(*), coalesce(sum(n > {cap.keep}), 0), "
        f"coalesce(sum(max(n - {cap.keep}, 0)), 0), coalesce(max(damaged), 0)\n"
        f"  FROM (SELECT count(*) AS n, {damaged} AS damaged FROM {table} WHERE {cap.has_key} GROUP BY {cap.key})"
    )
    rows, keys, full, excess, damaged = counted[0][0]
    if damaged:
        raise Invalid(
            f"{cap.table}: there is a text in {', '.join(cap.per)} that is not UTF-8, so Python cannot read it"
        )
    return rows + keyless[0][0][0], keyless[0][0][0], keys, full, excess


def _bytes(cap: Cap, columns: Sequence[str], rows: int) -> Generator[Statement, Any, int]:
    # From a hundred rows; only the order of magnitude matters.
    size = " + ".join(f"coalesce(length(CAST({cap.column(name)} AS BLOB)), 1)" for name in columns)
    found = yield read(f"SELECT coalesce(avg(size), 0) FROM (SELECT {size} AS size FROM {quoted(cap.table)} LIMIT 100)")
    return int(rows * found[0][0][0])


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
    if not (yield from _index(cap)):
        raise Invalid(f"{cap.table}: no index leads to a key's rows in their order any more; look again")
    own = yield from _own_triggers(cap)
    for sql in cap.triggers.values():
        yield write(sql)
    for name, sql in own:
        yield write(f"DROP TRIGGER {quoted(name)}")
        yield write(sql)
    if old is None:
        yield write("INSERT INTO roost_catalog (name, version, definition) VALUES (?, 1, ?)", cap.table, cap.definition)
    elif old != cap:
        yield Statement(catalog.change, [(cap.definition, cap.table)])
    return cap


def _own_triggers(cap: Cap) -> Generator[Statement, Any, list[tuple[str, str]]]:
    # SQLite fires the triggers that were made last first. Ours may delete the very row that came, when it is older than
    # the others: so it has to be the first that was made, and the application's see the row before it goes.
    if cap.newest_by is None:
        return []
    found = yield from _triggers_on(cap.table)
    return [(name, sql) for name, sql in found if name not in cap.triggers]


def _triggers_on(table: str) -> Generator[Statement, Any, list[tuple[str, str]]]:
    # Name and text, in the order in which they were made.
    found = yield read(
        "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND lower(tbl_name) = lower(?) ORDER BY rowid",
        table,
    )
    rows: list[tuple[str, str]] = found[0]
    return rows


def _probe(cap: Cap) -> Generator[Statement, Any, None]:
    # A trigger or a foreign key may forbid what will be done in the application's own INSERT: better to know now.
    ids = ", ".join(map(cap.column, cap.id))
    yield write("SAVEPOINT roost_probe")
    try:
        gone = yield write(cap.delete(f"(SELECT {ids} FROM {quoted(cap.table)} ORDER BY {ids} LIMIT 1)"))
        there = yield read(f"SELECT count(*) FROM (SELECT 1 FROM {quoted(cap.table)} LIMIT 1)")
    except StatementFailed as error:
        raise Invalid(f"{cap.table}: its rows cannot be deleted, so it cannot be capped ({error})") from error
    if there[0][0][0] and not gone:
        raise Invalid(f"{cap.table}: {KEPT}")
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
    if (yield from capped(cap.table)) != cap or (yield from _changed_triggers(cap)):
        raise Invalid(f"{cap.table} was uncapped, capped otherwise or made anew meanwhile; nothing more was deleted")
    excess = cap.excess(SLICE)
    holes = ", ".join("?" * len(cap.id))
    delete = Template(cap.delete(f"({holes})" if len(cap.id) > 1 else holes))
    deleted = 0
    while keys:
        found = yield read(excess, *keys[0])
        rows: list[Row] = found[0]
        for row in rows:
            if not (yield Statement(delete, [row])):
                raise Invalid(f"{cap.table}: {KEPT}")
            deleted += 1
            if is_over():
                return deleted
        if len(rows) < SLICE:
            keys.popleft()
        if is_over():
            break
    return deleted


def _changed_triggers(cap: Cap) -> Generator[Statement, Any, list[str]]:
    stored = dict((yield from _triggers_on(cap.table)))
    return [name for name, sql in cap.triggers.items() if stored.get(name) != sql]


def broken(plan: AdoptedPlan) -> Generator[Statement, Any, list[tuple[str, Row | None, str]]]:
    """Return what does not keep a table capped: rule, key, and what is wrong."""
    cap = plan.cap
    assert cap is not None
    try:
        yield from _table(cap.table)
    except (Missing, Invalid) as error:
        return [("tables", None, str(error))]
    found: list[tuple[str, Row | None, str]] = []
    columns = yield read("SELECT name FROM pragma_table_xinfo(?)", cap.table)
    names = [_folded(name) for (name,) in columns[0]]
    wanted = [*cap.per, *([cap.newest_by] if cap.newest_by else []), *(() if cap.id[0] in ROWID else cap.id)]
    if lost := [name for name in wanted if _folded(name) not in names]:
        return [("tables", None, f"{cap.table} has no column {lost[0]} any more; `roost uncap {cap.table}`")]
    if cap.id[0] in ROWID and cap.id[0] in names:
        return [("tables", None, f"{cap.id[0]} is a column now, and tells no rows apart; `roost uncap {cap.table}`")]
    try:
        yield from _may_lose_rows(cap.table)
    except Invalid as error:
        found.append(("foreign key", None, str(error)))
    again = f"`roost cap {cap.table}` again makes it"
    found += [
        ("triggers", None, f"{name} is not as Roost makes it; {again}") for name in (yield from _changed_triggers(cap))
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
