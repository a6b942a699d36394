"""The reading plan of capped tables, as used from Python: only the catalog knows how a table is capped."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Generator
from functools import lru_cache, partial
from typing import Any

from roost.capping.adoption import Adoption
from roost.capping.cap import Asking, Words
from roost.capping.mariadb import MariaDBAdoption
from roost.capping.mysql import MySQLAdoption
from roost.capping.postgresql import PostgreSQLAdoption
from roost.capping.sqlite import SQLiteAdoption
from roost.dialects.dialect import Dialect, Row, Statement, execute, fetch
from roost.errors import Error, Invalid, Mismatch
from roost.structures.adopted import Adopted
from roost.structures.plan import Context, Operations, Plan, StructurePlan
from roost.structures.registry import from_definition

MOST_TABLES = 100  # definitions and layouts whose SQL one plan caches

ADOPTIONS: dict[str, Adoption[Any]] = {
    each.dialect.name: each for each in (SQLiteAdoption(), PostgreSQLAdoption(), MariaDBAdoption(), MySQLAdoption())
}


def adoption_for(dialect: Dialect) -> Adoption[Any]:
    return ADOPTIONS[dialect.name]


class AdoptedPlan(StructurePlan):
    """An adopted table in one dialect's words."""

    wire = None

    structure: Adopted

    def __init__(self, structure: Adopted, dialect: Dialect) -> None:
        super().__init__(structure, dialect)
        self.adoption = dialect.choose(ADOPTIONS)
        self.tables = ()
        self.made_by = f"`roost cap {structure.name}` makes it a capped table"
        self.stored = self.adoption.stored(structure.name)
        self.cap = structure.cap
        self._told: dict[str, AdoptedPlan] = {}
        self._verbs = {"add": self._adds}
        for verb in ("latest", "count", "keys", "state"):
            self._verbs[verb] = partial(self._each, getattr(self, f"_{verb}"))

    def as_stored(self, definition: str) -> StructurePlan | Error:
        found = self._told.get(definition)
        if found is None:
            try:
                stored = from_definition(definition)
            except Invalid as error:
                return error
            if not isinstance(stored, Adopted):
                return Mismatch(
                    f"{self.structure.name} is a {stored.kind}, not a table that was capped; use its own declaration"
                )
            if self.adoption.folded(stored.name) != self.adoption.folded(self.structure.name):
                return Invalid(f"{self.structure.name}: its definition is that of {stored.name}")
            if len(self._told) >= MOST_TABLES:
                self._told.clear()
            found = self._told[definition] = AdoptedPlan(stored, self.dialect)
        return found

    def broken(self) -> Generator[Statement, Any, list[tuple[str, Row | None, str]]]:
        """Return the promises of `roost cap` that the table violates."""
        assert self.cap is not None
        return (yield from self.adoption.broken(self.cap))

    def _each(self, ask: Callable[..., Asking], run: Operations, _: Context) -> Plan:
        assert self.cap is not None
        try:
            words = yield from self.adoption.reading(self.cap)
        except Invalid as error:
            return [error] * len(run)
        results: list[Any] = []
        for op in run:
            try:
                results.append((yield from ask(words, *op.args)))
            except (Invalid, Mismatch) as error:
                results.append(error)
        return results

    def _latest(self, words: Words, given: Row, n: int | None) -> Asking:
        # Newest first, by the index.
        key = yield from self._key(given)
        names = tuple([each.name for each in (yield from self.adoption.columns(words.cap.table)) if each.shown])
        shown = ", ".join(map(words.column, names))
        if self.dialect.placeholder == "%s":
            shown = shown.replace("%", "%%")
        order = ", ".join(f"{words.column(name)} DESC" for name in words.cap.order)
        which = f"{words.table} WHERE {words.is_key()} ORDER BY {order} LIMIT {self.dialect.placeholder}"
        found = yield from fetch(
            f"SELECT {shown} FROM {which}", *(*key, words.cap.keep if n is None else min(n, words.cap.keep))
        )
        return list(map(row_type(names)._make, found))

    def _count(self, words: Words, given: Row) -> Asking:
        key = yield from self._key(given)
        found = yield from fetch(f"SELECT count(*) FROM {words.table} WHERE {words.is_key()}", *key)
        return found[0][0]

    def _keys(self, words: Words, after: Row | None, n: int) -> Asking:
        # A table that is capped by age is one key, by its name.
        if words.cap.older_than:
            name = words.cap.table
            return [name][:n] if after is None or name > after[0] else []
        behind, values = "", ()
        if after is not None:
            behind, values = f" AND {words.behind}", words.after((yield from self._key(after)))
        found = yield from fetch(
            f"SELECT DISTINCT {words.key} FROM {words.table} WHERE {words.has_key}{behind}"
            f" ORDER BY {words.key} LIMIT {self.dialect.placeholder}",
            *(*values, n),
        )
        return [self.structure.key.value(row) for row in found]

    def _state(self, words: Words) -> Asking:
        if not words.cap.older_than:
            raise Mismatch(f"{self.structure.name} is not capped by the age of its rows")
        over = yield from fetch(f"SELECT count(*) FROM {words.table} i WHERE {words.over('i')}")
        return over[0][0], *(yield from words.ends(words.shown))

    def _adds(self, run: Operations, _: Context) -> Plan:
        # Insert as the application does; delete the displaced rows here if triggers cannot.
        assert self.cap is not None
        words = self.adoption.words(self.cap)
        grown: dict[Row, None] = {}
        for op in run:
            values = dict(op.args[0])
            names = words.columns(list(values))
            yield execute(
                f"INSERT INTO {words.table} ({names}) VALUES ({self.dialect.holes(len(values))})", *values.values()
            )
            key = tuple(values.get(name) for name in self.cap.per)
            if key and None not in key:
                grown[key] = None
        for key in grown:
            yield from self.adoption.added(self.cap, key)
        return [None] * len(run)

    def _key(self, key: Row) -> Asking:
        # The values in the form of the columns.
        assert self.cap is not None
        if self.cap.older_than:
            raise Mismatch(
                f"{self.structure.name} is capped by the age of its rows, so it has no keys: read it with SQL"
            )
        if len(key) != len(self.cap.per):
            wanted = ", ".join(self.cap.per)
            raise Invalid(f"{self.structure.name}: {self.structure.key.value(key)!r} is no key; it takes {wanted}")
        return (yield from self.adoption.key_values(self.cap, tuple(key)))


@lru_cache(MOST_TABLES)
def row_type(names: tuple[str, ...]) -> Any:
    """Make the named tuple for columns of these names; the class cannot be pickled, but its values can."""
    made: Any = namedtuple("Row", names, rename=True)  # type: ignore[misc]
    return type("Row", (made,), {"__slots__": (), "__reduce__": lambda row: (_row, (names, tuple(row)))})


def _row(names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    return row_type(names)._make(values)
