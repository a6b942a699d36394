"""Adopted tables: what keeps a table of the application's own short, and how Python reads it. SQLite.

    CREATE TRIGGER roostcap_visits_insert AFTER INSERT ON visits BEGIN
      DELETE FROM visits WHERE id =
        (SELECT id FROM visits WHERE uid = NEW.uid ORDER BY at DESC, id DESC LIMIT 1 OFFSET 5);
    END

No head and no count: the row that is too many is found by its place in an index, which is right whatever has happened
to the table before (REPLACE fires no DELETE trigger). It costs `keep` steps in the index per INSERT. A key that had too
many stays as long as it was, which is for `roost cap` to trim. The row is named by `=`: with IN, and statistics from a
time when the table was small, SQLite would scan it.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from roost.dialects.dialect import Dialect, Statement, Template
from roost.errors import Error, Invalid, Mismatch
from roost.plans.plan import Context, Operations, Plan, StructurePlan, each, unsupported
from roost.structures import from_definition
from roost.structures.adopted import FACTS, Adopted

MOST_TABLES = 100  # definitions and layouts whose words are remembered by one plan


@dataclass(frozen=True, slots=True)
class Cap:
    """How a table is capped, and the words for it."""

    table: str
    per: tuple[str, ...]
    keep: int
    newest_by: str | None  # None: the order of `id`
    id: tuple[str, ...]  # what tells rows apart: the rowid, or the primary key where there is none
    index: bool = False  # whether Roost has made one

    @property
    def facts(self) -> dict[str, Any]:
        """What the definition says beside kind and name."""
        return {fact: getattr(self, fact) for fact in FACTS}

    @classmethod
    def of(cls, structure: Adopted) -> Cap:
        """Return how a structure from the catalog is capped."""
        facts = structure.facts or {}
        return cls(
            structure.name, tuple(facts["per"]), facts["keep"], facts["newest_by"], tuple(facts["id"]), facts["index"]
        )

    @property
    def definition(self) -> str:
        """What the catalog has."""
        return Adopted.from_facts(self.table, self.facts).definition

    def column(self, name: str) -> str:
        """Return a column with its table: by its bare name, one that was renamed would be a text to SQLite."""
        return f"{quoted(self.table)}.{quoted(name)}"

    @property
    def order(self) -> str:
        """The order of a key's rows, newest first."""
        names = dict.fromkeys([*([self.newest_by] if self.newest_by else []), *self.id])
        return ", ".join(f"{self.column(name)} DESC" for name in names)

    @property
    def key(self) -> str:
        """The columns of the key."""
        return ", ".join(map(self.column, self.per))

    @property
    def has_key(self) -> str:
        """The condition under which a row has a key: NULL is none."""
        return " AND ".join(f"{self.column(name)} IS NOT NULL" for name in self.per)

    def is_key(self, new: bool = False) -> str:
        """Return the condition for the rows of one key: given by parameters, or in a trigger the new row's."""
        return " AND ".join(f"{self.column(name)} = {f'NEW.{quoted(name)}' if new else '?'}" for name in self.per)

    def excess(self, limit: int, new: bool = False) -> str:
        """Return the query for rows that are too many, by what tells them apart."""
        return (
            f"SELECT {', '.join(map(self.column, self.id))} FROM {quoted(self.table)} WHERE {self.is_key(new)}\n"
            f"    ORDER BY {self.order} LIMIT {limit} OFFSET {self.keep}"
        )

    def delete(self, which: str) -> str:
        """Return the statement that deletes one row."""
        ids = ", ".join(map(self.column, self.id))
        return f"DELETE FROM {quoted(self.table)} WHERE {f'({ids})' if len(self.id) > 1 else ids} = {which}"

    @property
    def triggers(self) -> dict[str, str]:
        """What keeps the table short, by name."""
        changed = " OR ".join(f"NEW.{quoted(name)} IS NOT OLD.{quoted(name)}" for name in self.per)
        body = self.delete(f"\n    ({self.excess(1, new=True)})")
        events = {"insert": "AFTER INSERT", "update": f"AFTER UPDATE OF {', '.join(map(quoted, self.per))}"}
        return {
            f"roostcap_{self.table}_{event}": (
                f"CREATE TRIGGER {quoted(f'roostcap_{self.table}_{event}')} {when} ON {quoted(self.table)}"
                f"{f' WHEN {changed}' if event == 'update' else ''} BEGIN\n  {body};\nEND"
            )
            for event, when in events.items()
        }

    @property
    def index_name(self) -> str:
        """The name of the index that Roost makes where none leads to a key's rows in their order."""
        return f"roostcap_{self.table}"

    @property
    def index_sql(self) -> str:
        """The statement that makes it."""
        # What tells rows apart stands at the end of every index, a rowid or the rest of a primary key.
        columns = [*self.per, *([self.newest_by] if self.newest_by and self.id != (self.newest_by,) else [])]
        return f"CREATE INDEX {quoted(self.index_name)} ON {quoted(self.table)} ({', '.join(map(quoted, columns))})"


class AdoptedPlan(StructurePlan):
    """An adopted table as Python reads it; how it is capped is known only from the catalog."""

    structure: Adopted

    def __init__(self, structure: Adopted, dialect: Dialect) -> None:
        super().__init__(structure, dialect)
        if dialect.name != "sqlite":
            raise unsupported(structure, dialect)
        self.tables = ()
        self.made_by = f"`roost cap {structure.name} --per … --keep …` makes it a capped collection"
        self.stored = Statement(
            each("SELECT definition FROM roost_catalog WHERE lower(name) = lower(?)"), [(structure.name,)]
        )
        self.cap = Cap.of(structure) if structure.facts else None
        self._told: dict[str, AdoptedPlan] = {}
        self._makers: dict[tuple[str, ...], Callable[[Any], Any]] = {}

    def as_stored(self, definition: str) -> StructurePlan | Error:
        """Return the plan for the table as it is capped now."""
        found = self._told.get(definition)
        if found is None:
            stored = from_definition(definition)
            if not isinstance(stored, Adopted):
                return Mismatch(
                    f"{self.structure.name} is a {stored.kind}, not a table that was capped; use its own declaration"
                )
            _bound(self._told)
            found = self._told[definition] = AdoptedPlan(stored, self.dialect)
        return found

    def plan_latest(self, run: Operations, _: Context, __: bool) -> Plan:
        """Read newest first, by the index."""
        assert self.cap is not None
        cap = self.cap
        results: list[Any] = []
        columns = yield Statement(COLUMNS, [(cap.table,)])
        names = tuple(name for (name,) in columns[0])
        make = self._makers.get(names)
        if make is None:
            _bound(self._makers)
            make = self._makers[names] = row_type(names)._make
        shown = ", ".join(map(cap.column, names))
        latest = each(
            f"SELECT {shown} FROM {quoted(cap.table)} WHERE {cap.is_key()} ORDER BY {cap.order}\n"
            f"  LIMIT min(?, {cap.keep})"
        )
        for op in run:
            key, n = op.args
            if error := self._refused(key):
                results.append(error)
                continue
            found = yield Statement(latest, [(*key, cap.keep if n is None else n)])
            results.append([make(row) for row in found[0]])
        return results

    def plan_count(self, run: Operations, _: Context, __: bool) -> Plan:
        """Count in the index."""
        assert self.cap is not None
        count = each(f"SELECT count(*) FROM {quoted(self.cap.table)} WHERE {self.cap.is_key()}")
        results: list[Any] = []
        for op in run:
            if error := self._refused(op.args[0]):
                results.append(error)
                continue
            found = yield Statement(count, [op.args[0]])
            results.append(found[0][0][0])
        return results

    def plan_keys(self, run: Operations, _: Context, __: bool) -> Plan:
        """List keys."""
        assert self.cap is not None
        cap = self.cap
        results: list[Any] = []
        head = f"SELECT DISTINCT {cap.key} FROM {quoted(cap.table)} WHERE {cap.has_key}"
        tail = f"ORDER BY {cap.key} LIMIT ?"
        for op in run:
            after, n = op.args
            if after is not None and (error := self._refused(after)):
                results.append(error)
                continue
            behind = "" if after is None else f" AND ({cap.key}) > ({self.dialect.holes(len(cap.per))})"
            found = yield Statement(each(f"{head}{behind} {tail}"), [(*(after or ()), n)])
            results.append([self.structure.key.value(row) for row in found[0]])
        return results

    def _refused(self, key: Sequence[Any]) -> Invalid | None:
        assert self.cap is not None
        if len(key) == len(self.cap.per):
            return None
        wanted = ", ".join(self.cap.per)
        return Invalid(f"{self.structure.name}: {self.structure.key.value(key)!r} is no key; it takes {wanted}")


def row_type(names: tuple[str, ...]) -> Any:
    """Make the named tuple for columns of these names; its values can be pickled, as the class cannot."""
    made: Any = namedtuple("Row", names, rename=True)  # type: ignore[misc]
    return type("Row", (made,), {"__slots__": (), "__reduce__": lambda row: (_row, (names, tuple(row)))})


def _row(names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    return row_type(names)._make(values)


# Hidden columns are those that SELECT * leaves out, of which only virtual tables have any.
COLUMNS = each("SELECT name FROM pragma_table_xinfo(?) WHERE hidden <> 1")


def quoted(name: str) -> str:
    """Return a name as an identifier, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def _bound(remembered: dict[Any, Any]) -> None:
    if len(remembered) >= MOST_TABLES:
        remembered.clear()


def read(sql: str, *values: Any) -> Statement:
    """Return a statement that asks once."""
    return Statement(each(sql), [values])


def write(sql: str, *values: Any) -> Statement:
    """Return a statement that changes something."""
    return Statement(Template(sql), [values])
