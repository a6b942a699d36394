"""Views on SQLite: a view of the structure's name, with INSTEAD OF triggers.

The triggers do what the plans do, for one row: the head first, then the rows; the library writes the private tables
directly, so no trigger fires and nothing is counted twice. Two rules hold for all of them:

- What can be refused is refused by the first statement, with RAISE(ABORT): `INSERT OR IGNORE` and `OR REPLACE` override
  the handling of every other conflict inside a trigger, and would leave counts wrong.
- What a statement writes is taken from the head, never from what the client gave for `sequence` or `at`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from roost.dialects.conditions import refused, stored, wanted
from roost.dialects.dialect import Dialect, Statement
from roost.structures.capped.plan import CappedPlan
from roost.structures.counter.plan import CounterPlan
from roost.structures.plan import N, StructurePlan, each
from roost.structures.ring.plan import RingPlan
from roost.structures.rows import RowStructure
from roost.structures.set.plan import SetPlan
from roost.structures.views.view import MARK, MARKS, NO_VIEW, Found, Powers, Room, View
from roost.types.column_types import ColumnType
from roost.types.columns import Column

NOW = "strftime('%Y-%m-%d %H:%M:%f000', 'now')"  # as `at` is stored
TOTAL = Column("total", ColumnType("int"))


def _view(plan: StructurePlan, _: Powers | None) -> View:
    made = _MAKERS[type(plan)](plan)
    name = plan.structure.name
    objects = {name: f"CREATE VIEW {_quoted(name)} AS {MARK}\n{made.view}"}
    for event, body in (("insert", made.insert), ("update", made.update), ("delete", made.delete)):
        objects[f"roost_{name}_{event}"] = (
            f"CREATE TRIGGER roost_{name}_{event} INSTEAD OF {event.upper()} ON {_quoted(name)} BEGIN\n"
            + "".join(f"  {statement};\n" for statement in body)
            + "END"
        )
    return View(tuple(objects.values()), (f"DROP VIEW {_quoted(name)}",), objects)  # its triggers go with it


def _triggers(name: str) -> list[str]:
    return [f"roost_{name}_{event}" for event in ("insert", "update", "delete")]


def _found(plan: StructurePlan) -> Generator[Statement, Any, Found]:
    found = yield Statement(
        each("SELECT type, name, sql FROM sqlite_master WHERE tbl_name = ? AND type IN ('view', 'trigger')"),
        [(plan.structure.name,)],
    )
    if not any(type_ == "view" and mark in sql for type_, _, sql in found[0] for mark in MARKS):
        return NO_VIEW
    ours = {plan.structure.name, *_triggers(plan.structure.name)}
    return Found(
        {name: sql for _, name, sql in found[0] if name in ours},
        tuple(sql for _, name, sql in found[0] if name not in ours),
    )


def _taken(plan: StructurePlan) -> Generator[Statement, Any, str]:
    names = (plan.structure.name, *_triggers(plan.structure.name))
    found = yield Statement(
        each(
            "SELECT type || ' ' || name FROM sqlite_master\n"
            f"  WHERE name COLLATE NOCASE IN ({plan.dialect.holes(len(names))})"
        ),
        [names],
    )
    return found[0][0][0] if found[0] else ""


@dataclass(frozen=True, slots=True)
class _Made:
    """One view before it has its name: the query of the view, and the statements of each trigger."""

    view: str
    insert: Sequence[str]
    update: Sequence[str]
    delete: Sequence[str]


class _Words:
    """What the triggers of one structure are made of."""

    def __init__(self, plan: StructurePlan) -> None:
        self.plan = plan
        self.dialect: Dialect = plan.dialect
        self.name = plan.structure.name
        self.key = plan.structure.key.columns
        self.rows, self.head = plan.rows_table, plan.head_table

    def new(self, column: Column) -> str:
        return stored(self.dialect, column, f"NEW.{_quoted(column.name)}")

    def news(self, columns: Iterable[Column]) -> str:
        return ", ".join(map(self.new, columns))

    def is_new(self, columns: Iterable[Column], prefix: str = "") -> str:
        return " AND ".join(f"{prefix}{_quoted(each.name)} = {self.new(each)}" for each in columns)

    def is_old(self, columns: Iterable[Column]) -> str:
        return " AND ".join(f"{_quoted(each.name)} = OLD.{_quoted(each.name)}" for each in columns)

    def same(self, columns: Iterable[Column], one: str, other: str) -> str:
        return " AND ".join(f"{one}{_quoted(each.name)} = {other}{_quoted(each.name)}" for each in columns)

    def shown(self, columns: Iterable[Column], prefix: str = "") -> str:
        """The columns that may change, as the view shows them: texts without affinity, or UPDATE makes them of numbers.

        SQLite applies a view's affinities before its trigger runs, and would round a decimal on the way.
        """
        return ", ".join(
            f"+{prefix}{_quoted(each.name)} AS {_quoted(each.name)}"
            if self.dialect.types[each.type.kind](each) == "TEXT"
            else f"{prefix}{_quoted(each.name)}"
            for each in columns
        )

    def excluded(self, columns: Iterable[Column]) -> str:
        return ", ".join(f"{_quoted(each.name)} = excluded.{_quoted(each.name)}" for each in columns)

    def refuse(self, *cases: tuple[str, str]) -> str:
        """Return the statement that refuses a row in the first of these cases: a condition, and what is said."""
        told = "\n    ".join(
            f"WHEN {condition} THEN RAISE(ABORT, {self.dialect.literal(f'{self.name}{message}')})"
            for condition, message in cases
        )
        return f"SELECT CASE\n    {told} END"

    def rules(self, columns: Iterable[Column]) -> list[tuple[str, str]]:
        """Return the cases in which a value is not allowed."""
        return [
            (
                refused(self.dialect, each, f"NEW.{_quoted(each.name)}"),
                f".{each.name}: it takes {wanted(self.dialect, each)}",
            )
            for each in columns
        ]

    def changes(self, columns: Iterable[Column]) -> list[tuple[str, str]]:
        """Return the cases in which a value that an UPDATE changes is not allowed: what is stored is not its doing."""
        return [
            (f"NEW.{_quoted(each.name)} IS NOT OLD.{_quoted(each.name)} AND ({condition})", told)
            for each, (condition, told) in zip(columns, self.rules(columns), strict=True)
        ]

    def fixed(self, columns: Iterable[Column], why: str) -> tuple[str, str]:
        """Return the case in which an UPDATE changes what it may not."""
        changed = " OR ".join(f"NEW.{_quoted(each.name)} IS NOT OLD.{_quoted(each.name)}" for each in columns)
        return changed, f": {why}"

    @property
    def own(self) -> tuple[str, str]:
        """The case in which an INSERT names what only Roost sets."""
        return "NEW.sequence IS NOT NULL OR NEW.at IS NOT NULL", ": sequence and at are set by Roost; leave them out"

    def change(self, columns: Sequence[Column], where: str) -> list[str]:
        """Return the statement that writes the columns of a row that an UPDATE may change; none when there are none."""
        if not columns:
            return []
        values = ", ".join(f"{_quoted(each.name)} = {self.new(each)}" for each in columns)
        return [f"UPDATE {self.rows} SET {values} WHERE {where}"]


def _counter(plan: StructurePlan) -> _Made:
    assert isinstance(plan, CounterPlan)
    words = _Words(plan)
    key, rows = words.dialect.names(words.key), words.rows
    put = (
        f"INSERT INTO {rows} ({key}, slot, n) VALUES ({words.news(words.key)}, 0, {words.new(TOTAL)})\n"
        f"    ON CONFLICT ({key}, slot)"
    )
    one = plan.slots == 1
    # SUM errors past 64 bits, and the view with it: halves of 32 bits are summed, and a total past that is a REAL.
    low = "sum(n & 4294967295)"
    shown = "n" if one else f"(sum(n >> 32) + ({low} >> 32)) * 4294967296 + ({low} & 4294967295)"
    beyond = [f"(SELECT typeof(n + {words.new(TOTAL)}) FROM {rows} WHERE {words.is_new(words.key)} AND slot = 0)"]
    if not one:
        beyond.append(f"(SELECT typeof({shown} + {words.new(TOTAL)}) FROM {rows} WHERE {words.is_new(words.key)})")
    return _Made(
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


def _ring(plan: StructurePlan) -> _Made:
    assert isinstance(plan, RingPlan)
    words, keep = _Words(plan), plan.structure.keep
    rows, head, key = words.rows, words.head, words.dialect.names(words.key)
    others = _others(plan.structure, words.key)
    columns = ", ".join([key, "slot, sequence, at", *([words.dialect.names(others)] if others else [])])
    shown = ", ".join(
        [words.dialect.names(words.key, "h."), "r.sequence, r.at", *([words.shown(others, "r.")] if others else [])]
    )
    # The newest row is in slot `sequence % keep`: the slots up to it are newer than the others, and both are runs of
    # the primary key, so nothing is sorted.
    same = words.same(words.key, "r.", "h.")
    run = (
        f"SELECT * FROM (SELECT {shown}\n"
        f"  FROM {head} h CROSS JOIN {rows} r ON {same} AND r.slot {{}} h.sequence % {keep}\n"
        f"  ORDER BY {', '.join(f'h.{_quoted(each.name)} DESC' for each in words.key)}, r.slot DESC)"
    )
    values = "".join(f", {words.new(each)}" for each in others)
    place = f"{words.is_old(words.key)} AND slot = OLD.sequence % {keep} AND sequence = OLD.sequence"
    return _Made(
        view=f"{run.format('<=')}\nUNION ALL\n{run.format('>')}",
        insert=[
            words.refuse(words.own, *words.rules([*words.key, *others])),
            f"INSERT INTO {head} ({key}, sequence) VALUES ({words.news(words.key)}, 1)\n"
            f"    ON CONFLICT ({key}) DO UPDATE SET sequence = sequence + 1",
            f"INSERT INTO {rows} ({columns})\n"
            f"    SELECT {key}, sequence % {keep}, sequence, {NOW}{values}\n"
            f"    FROM {head} WHERE {words.is_new(words.key)}\n"
            f"    ON CONFLICT ({key}, slot) DO UPDATE SET sequence = excluded.sequence, at = excluded.at"
            + "".join(f", {words.excluded([each])}" for each in others),
        ],
        update=[
            words.refuse(
                _fixed_row(words, words.key),
                *words.changes(others),
            ),
            *words.change(others, place),
        ],
        delete=[f"DELETE FROM {rows} WHERE {place}"],
    )


def _capped(plan: StructurePlan) -> _Made:
    assert isinstance(plan, CappedPlan)
    words, structure = _Words(plan), plan.structure
    rows, head, key, keep = words.rows, words.head, words.dialect.names(words.key), structure.keep
    ids = structure.id.columns
    others = [each for each in _others(structure, words.key) if each not in ids]
    columns = ", ".join(
        [key, words.dialect.names(ids), *([words.dialect.names(others)] if others else []), "sequence, at"]
    )
    values = "".join(f", {words.new(each)}" for each in others)
    refreshes, rejects = structure.on_duplicate == "refresh", structure.on_full == "reject"
    there = f"EXISTS (SELECT 1 FROM {rows} WHERE {words.is_new([*words.key, *ids])})"
    mine = words.is_new(words.key)
    count = f"(SELECT count(*) FROM {rows} WHERE {mine})"
    is_full = f"(SELECT n FROM {head} WHERE {mine}) >= {keep}"
    more = f"NOT {there}" if refreshes else "1"
    cases = [words.own, *words.rules(structure.columns)]
    if not refreshes:
        cases.append((there, f": {' and '.join(each.name for each in ids)} is there already"))
    if rejects:  # the count may be too high: somebody has emptied the table
        absent = f" AND NOT {there}" if refreshes else ""
        cases.append((f"{is_full}{absent} AND {count} >= {keep}", f": the collection is full; keep is {keep}"))
    insert = [words.refuse(*cases)]
    if rejects:
        insert.append(
            f"UPDATE {head} SET n = {count} WHERE {mine} AND n >= {keep}" + (f" AND NOT {there}" if refreshes else "")
        )
    insert += [
        f"INSERT INTO {head} ({key}, sequence, n) VALUES ({words.news(words.key)}, 1, 1)\n"
        f"    ON CONFLICT ({key}) DO UPDATE SET sequence = sequence + 1, n = n + {more}",
        f"INSERT INTO {rows} ({columns})\n"
        f"    VALUES ({words.news([*words.key, *ids])}{values}, (SELECT sequence FROM {head} WHERE {mine}), {NOW})\n"
        f"    ON CONFLICT ({key}, {words.dialect.names(ids)}) DO UPDATE SET "
        + ", ".join([*(words.excluded([each]) for each in others), "sequence = excluded.sequence, at = excluded.at"]),
    ]
    if not rejects:
        # The guard: the newest `keep` sequences never go, whatever the count says. Where it demanded more than went, it
        # was wrong, and is counted anew.
        insert += [
            f"DELETE FROM {rows} WHERE {mine} AND sequence <= (SELECT sequence FROM {head} WHERE {mine}) - {keep}\n"
            f"    AND sequence <= (SELECT sequence FROM {rows} WHERE {mine} ORDER BY sequence\n"
            f"    LIMIT (SELECT n > {keep} FROM {head} WHERE {mine})\n"
            f"    OFFSET (SELECT n - {keep} - 1 FROM {head} WHERE {mine}))",
            f"UPDATE {head} SET n = CASE WHEN changes() = n - {keep} THEN {keep} ELSE {count} END\n"
            f"    WHERE {mine} AND n > {keep}",
        ]
    place = words.is_old([*words.key, *ids])
    shown = ", ".join(
        words.shown([each]) if each in others else words.dialect.names([each]) for each in structure.columns
    )
    return _Made(
        view=(
            f"SELECT {shown}, sequence, at FROM {rows}\n"
            f"  ORDER BY {', '.join(f'{_quoted(each.name)} DESC' for each in words.key)}, sequence DESC"
        ),
        insert=insert,
        update=[
            words.refuse(_fixed_row(words, [*words.key, *ids]), *words.changes(others)),
            *words.change(others, place),
        ],
        delete=[
            f"DELETE FROM {rows} WHERE {place}",
            f"UPDATE {head} SET n = n - changes() WHERE {words.is_old(words.key)}",
        ],
    )


def _set(plan: StructurePlan) -> _Made:
    assert isinstance(plan, SetPlan)
    words = _Words(plan)
    rows, head, key = words.rows, words.head, words.dialect.names(words.key)
    pair = [*words.key, *plan.structure.member.columns]
    return _Made(
        view=f"SELECT {words.dialect.names(pair)} FROM {rows}",
        insert=[
            words.refuse(*words.rules(pair)),
            f"INSERT INTO {head} ({key}, {_quoted(N.name)}) SELECT {words.news(words.key)}, 1\n"
            f"    WHERE NOT EXISTS (SELECT 1 FROM {rows} WHERE {words.is_new(pair)})\n"
            f"    ON CONFLICT ({key}) DO UPDATE SET n = n + 1",
            f"INSERT INTO {rows} ({words.dialect.names(pair)}) VALUES ({words.news(pair)}) ON CONFLICT DO NOTHING",
        ],
        update=[words.refuse(("1", ": a member cannot be changed; delete it and insert the other one"))],
        delete=[
            f"DELETE FROM {rows} WHERE {words.is_old(pair)}",
            f"UPDATE {head} SET n = n - changes() WHERE {words.is_old(words.key)}",
        ],
    )


def _others(structure: RowStructure[Any, Any], key: Sequence[Column]) -> list[Column]:
    return [each for each in structure.columns if each not in key]


def _fixed_row(words: _Words, columns: Sequence[Column]) -> tuple[str, str]:
    own = [Column("sequence", ColumnType("int")), Column("at", ColumnType("text", 1))]
    names = ", ".join(each.name for each in columns)
    return words.fixed(
        [*columns, *own], f"{names}, sequence and at cannot be changed; delete the row and insert another"
    )


def _quoted(name: str) -> str:
    return f'"{name}"'


_MAKERS: dict[type[StructurePlan], Callable[[StructurePlan], _Made]] = {
    CounterPlan: _counter,
    RingPlan: _ring,
    CappedPlan: _capped,
    SetPlan: _set,
}

SQLITE_VIEWS = Room(_view, _found, _taken)
