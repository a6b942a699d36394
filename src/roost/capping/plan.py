"""Plans for adopted tables, as used from Python: only the catalog knows how a table is capped."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Generator, Sequence
from typing import Any

from roost.capping.cap import Cap, CapWords, read, write
from roost.capping.installation import Adoption
from roost.capping.mariadb import MariaDBAdoption
from roost.capping.postgresql import PostgreSQLAdoption
from roost.capping.sqlite import SQLiteAdoption
from roost.dialects.dialect import Control, Dialect, Row, Statement
from roost.errors import Error, Invalid, Mismatch
from roost.structures.adopted.declaration import Adopted
from roost.structures.aged.declaration import Aged
from roost.structures.plan import Context, Operations, Plan, StructurePlan
from roost.structures.registry import from_definition

MOST_TABLES = 100  # definitions and layouts whose SQL one plan caches

ADOPTIONS: dict[str, Adoption] = {
    each.dialect.name: each for each in (SQLiteAdoption(), PostgreSQLAdoption(), MariaDBAdoption())
}


def adoption_for(dialect: Dialect) -> Adoption:
    """Return the adoption for a dialect; `Invalid` for one in which it was never tested."""
    if dialect.name not in ADOPTIONS:
        raise Invalid(f"a table of your own cannot be capped on {dialect.name} yet: there was no server to try it on")
    return ADOPTIONS[dialect.name]


class AdoptedPlan(StructurePlan):
    """An adopted table in one dialect's words."""

    wire = None

    structure: Adopted

    def __init__(self, structure: Adopted, dialect: Dialect) -> None:
        super().__init__(structure, dialect)
        self.adoption = dialect.choose(ADOPTIONS)
        self.tables = ()
        self.made_by = f"`roost cap {structure.name} --per … --keep …` makes it a capped collection"
        self.stored = self.adoption.stored(structure.name)
        self.cap = Cap.of(structure) if structure.facts else None
        self._told: dict[str, AdoptedPlan] = {}
        self._makers: dict[tuple[str, ...], Callable[[Any], Any]] = {}

    def as_stored(self, definition: str) -> StructurePlan | Error:
        """Return the plan for the table's present cap."""
        found = self._told.get(definition)
        if found is None:
            try:
                stored = from_definition(definition)
            except Invalid as error:
                return error
            if isinstance(stored, Aged):
                return Mismatch(
                    f"{self.structure.name} is capped by the age of its rows, so it has no keys: read it with SQL"
                )
            if not isinstance(stored, Adopted):
                return Mismatch(
                    f"{self.structure.name} is a {stored.kind}, not a table that was capped; use its own declaration"
                )
            if self.adoption.folded(stored.name) != self.adoption.folded(self.structure.name):
                return Invalid(f"{self.structure.name}: its definition is that of {stored.name}")
            _bound(self._told)
            found = self._told[definition] = AdoptedPlan(stored, self.dialect)
        return found

    def broken(self) -> Generator[Statement, Any, list[tuple[str, Row | None, str]]]:
        """Return the promises of `roost cap` that the table violates."""
        assert self.cap is not None
        return (yield from self.adoption.broken(self.cap))

    def plan_latest(self, run: Operations, _: Context, __: bool) -> Plan:
        """Read rows, newest first, by the index."""
        assert self.cap is not None
        words = yield from self.adoption.reading(self.cap)
        if isinstance(words, Invalid):
            return [words] * len(run)
        results: list[Any] = []
        names = yield from self.adoption.shown_columns(self.cap)
        make = self._makers.get(names)
        if make is None:
            _bound(self._makers)
            make = self._makers[names] = row_type(names)._make
        shown = ", ".join(map(words.column, names))
        if self.dialect.placeholder == "%s":
            shown = shown.replace("%", "%%")
        latest = (
            f"SELECT {shown} FROM {words.table} WHERE {words.is_key()} ORDER BY {words.order}\n"
            f"  LIMIT {self.dialect.placeholder}"
        )
        for op in run:
            given, n = op.args
            key = yield from self._key(given)
            if isinstance(key, Invalid):
                results.append(key)
                continue
            found = yield read(latest, *key, self.cap.keep if n is None else min(n, self.cap.keep))
            results.append([make(row) for row in found[0]])
        return results

    def plan_count(self, run: Operations, _: Context, __: bool) -> Plan:
        """Count rows in the index."""
        assert self.cap is not None
        words = yield from self.adoption.reading(self.cap)
        if isinstance(words, Invalid):
            return [words] * len(run)
        results: list[Any] = []
        for op in run:
            key = yield from self._key(op.args[0])
            if isinstance(key, Invalid):
                results.append(key)
                continue
            found = yield read(f"SELECT count(*) FROM {words.table} WHERE {words.is_key()}", *key)
            results.append(found[0][0][0])
        return results

    def plan_keys(self, run: Operations, context: Context, _: bool) -> Plan:
        """List keys."""
        assert self.cap is not None
        words = yield from self.adoption.reading(self.cap)
        if isinstance(words, Invalid):
            return [words] * len(run)
        results: list[Any] = []
        head = f"SELECT DISTINCT {words.key} FROM {words.table} WHERE {words.has_key}"
        tail = f"ORDER BY {words.key} LIMIT {self.dialect.placeholder}"
        for op in run:
            after, n = op.args
            if after is None:
                found = yield read(f"{head} {tail}", n)
            else:
                key = yield from self._key(after)
                if isinstance(key, Invalid):
                    results.append(key)
                    continue
                found = yield read(f"{head} AND {words.behind} {tail}", *words.after(key), n)
            results.append([self.structure.key.value(row) for row in found[0]])
        return results

    def plan_add(self, run: Operations, _: Context, __: bool) -> Plan:
        """Insert as the application does; delete the displaced rows here if triggers cannot."""
        assert self.cap is not None
        words = CapWords(self.cap, self.dialect)
        grown: dict[Row, None] = {}
        for op in run:
            values = dict(op.args[0])
            names = words.columns(list(values))
            yield write(
                f"INSERT INTO {words.table} ({names}) VALUES ({self.dialect.holes(len(values))})", *values.values()
            )
            key = tuple(values.get(name) for name in self.cap.per)
            if None not in key:
                grown[key] = None
        yield Control.LOCKED
        for key in grown:
            yield from self.adoption.added(self.cap, key)
        return [None] * len(run)

    def _key(self, key: Sequence[Any]) -> Generator[Statement, Any, Row | Invalid]:
        # The values in the form of the columns, or an error.
        assert self.cap is not None
        if len(key) != len(self.cap.per):
            wanted = ", ".join(self.cap.per)
            return Invalid(f"{self.structure.name}: {self.structure.key.value(key)!r} is no key; it takes {wanted}")
        return (yield from self.adoption.key_values(self.cap, tuple(key)))


def row_type(names: tuple[str, ...]) -> Any:
    """Make the named tuple for columns of these names; the class cannot be pickled, but its values can."""
    made: Any = namedtuple("Row", names, rename=True)  # type: ignore[misc]
    return type("Row", (made,), {"__slots__": (), "__reduce__": lambda row: (_row, (names, tuple(row)))})


def _row(names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    return row_type(names)._make(values)


def _bound(remembered: dict[Any, Any]) -> None:
    if len(remembered) >= MOST_TABLES:
        remembered.clear()
