"""What a cap deletes, and how that is found: the SQL that all databases have in common.

By number there is neither a head row nor a count: an excess row is found by its position in an index, which is correct
whatever happened to the table before. It costs `keep` steps in the index.

By age, rows that are too old are found by an index on the column with their time and the database's own clock, oldest
first. The column stores the time in one of these ways:

    zoned                    a time independent of the session's zone: timestamptz, MariaDB's TIMESTAMP
    plain                    a time without a zone: timestamp, DATETIME, SQLite's texts; in UTC, or `offset` from UTC
    date                     a day; its age counts from its end
    seconds, milliseconds    since 1970, in an integer

Values before 2 January 1970 are not times: 0, '0000-00-00', an empty text, -infinity. Such rows stay, as with NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, ClassVar

from roost.dialects.dialect import Dialect, Row, Statement, fetch
from roost.errors import Invalid
from roost.structures.adopted import DAY, PER_SECOND, Cap

Asking = Generator[Statement, Any, Any]

EPOCHS = {"s": "seconds", "ms": "milliseconds"}
FIRST = "1970-01-02"  # earlier values are not times; MariaDB's TIMESTAMP has no earlier day in every zone
EIGHTIES, FAR = 315_532_800, 100_000_000_000  # seconds: numbers in another unit would be before 1980, or after 5138


def answered(value: Any) -> Asking:
    yield from ()
    return value


class Words:
    """A cap in the SQL of one dialect."""

    def __init__(self, cap: Cap, dialect: Dialect) -> None:
        self.cap = cap
        self.dialect = dialect
        self.table = dialect.quoted(cap.table)
        self.unit = PER_SECOND.get(cap.time, 0)  # of the numbers that are times
        # By how many seconds the limit lies before the current UTC time, for the column's offset.
        self.seconds = cap.older_than - cap.offset * 60

    def column(self, name: str) -> str:
        """Return a column qualified with its table: SQLite would take the bare name of a renamed column for a text."""
        return f"{self.table}.{self.dialect.quoted(name)}"

    def columns(self, names: Sequence[str], prefix: str = "") -> str:
        """Return the quoted names of columns, each after a prefix."""
        return ", ".join(prefix + self.dialect.quoted(name) for name in names)

    @property
    def by(self) -> str:
        return self.dialect.quoted(self.cap.by or "")

    @property
    def key(self) -> str:
        return ", ".join(map(self.column, self.cap.per))

    @property
    def id(self) -> str:
        return ", ".join(map(self.column, self.cap.id))

    @property
    def count_sql(self) -> str:
        """The query for how many rows there are, how many without key or time, keys, full keys, and excess rows."""
        if self.cap.older_than:
            over = f"coalesce(sum(CASE WHEN {self.over('i')} THEN 1 ELSE 0 END), 0)"
            return f"SELECT count(*), count(*) - count(i.{self.by}), 0, 0, {over} FROM {self.table} i"
        keep, total = self.cap.keep, "coalesce(sum(CASE WHEN {} ELSE 0 END), 0)"
        cases = (
            "NOT keyed THEN n",
            "keyed THEN 1",
            f"keyed AND n > {keep} THEN 1",
            f"keyed AND n > {keep} THEN n - {keep}",
        )
        return (
            f"SELECT coalesce(sum(n), 0), {', '.join([total.format(case) for case in cases])}\n"
            f"  FROM (SELECT count(*) AS n, {self.has_key} AS keyed FROM {self.table} GROUP BY {self.key}) counted"
        )

    @property
    def full_sql(self) -> str:
        """The query for keys that have too many rows, and how many; {} is a condition, and the limit a parameter."""
        return (
            f"SELECT {self.key}, count(*) FROM {self.table} WHERE {self.has_key}{{}} GROUP BY {self.key}\n"
            f"  HAVING count(*) > {self.cap.keep} ORDER BY {self.key} LIMIT {self.dialect.placeholder}"
        )

    @property
    def has_key(self) -> str:
        """The condition that a row has a key: NULL is not a key."""
        return " AND ".join(f"{self.column(name)} IS NOT NULL" for name in self.cap.per)

    def is_key(self) -> str:
        return " AND ".join(f"{self.column(name)} = {self.dialect.placeholder}" for name in self.cap.per)

    @property
    def behind(self) -> str:
        """The condition for the keys after one; its parameters are those of `after`."""

        # Not (a, b) > (?, ?): MariaDB would read the whole index for it.
        def is_(i: int, how: str) -> str:
            name = self.cap.per[i]
            return f"{self.column(name)} {self.compares(name, how)} {self.dialect.placeholder}"

        later = [" AND ".join([*(is_(j, "=") for j in range(i)), is_(i, ">")]) for i in range(len(self.cap.per))]
        return f"{is_(0, '>=')} AND ({' OR '.join(later)})"

    @property
    def triggers(self) -> Mapping[str, Any]:
        raise NotImplementedError

    def compares(self, name: str, how: str) -> str:
        return how

    @staticmethod
    def after(key: Sequence[Any]) -> Row:
        """Return the parameters of `behind` for a key."""
        return (key[0], *[value for i in range(len(key)) for value in key[: i + 1]])

    @property
    def first(self) -> str:
        """The least value that counts as a time, as a literal."""
        return str(DAY * self.unit) if self.unit else f"'{FIRST}'"

    def over(self, row: str) -> str:
        by = f"{row}.{self.by}"
        return f"{by} > {self.first} AND {by} < {self.limit(by)}"

    def limit(self, by: str) -> str:
        """Return the time before which a row is too old, and what else has to be true of its column."""
        raise NotImplementedError

    def shown(self, expression: str) -> str:
        return expression

    def ends(self, shown: Callable[[str], str] = str) -> Asking:
        """Return the oldest and the newest time of the rows. shown: how the query has a time."""
        # In separate queries: a single one would read the whole table.
        by = self.column(self.cap.by or "")
        oldest = yield from fetch(f"SELECT {shown(f'min({by})')} FROM {self.table} WHERE {by} > {self.first}")
        newest = yield from fetch(f"SELECT {shown(f'max({by})')} FROM {self.table}")
        return oldest[0][0], newest[0][0]

    def delete(self, which: str) -> str:
        return f"DELETE FROM {self.table} WHERE {f'({self.id})' if len(self.cap.id) > 1 else self.id} = {which}"

    @property
    def index_columns(self) -> tuple[str, ...]:
        """The columns of the index that Roost makes if none leads to the rows in their order."""
        # In SQLite and MariaDB every index ends with the columns that identify a row.
        newest = [self.cap.by] if self.cap.by and self.cap.id != (self.cap.by,) else []
        return (*self.cap.per, *newest)

    @property
    def index_sql(self) -> str:
        name = self.dialect.quoted(self.cap.index_name)
        return f"CREATE INDEX {name} ON {self.table} ({self.columns(self.index_columns)})"

    @property
    def drop_index_sql(self) -> str:
        return f"DROP INDEX IF EXISTS {self.dialect.quoted(self.cap.index_name)}"


def tells_no_time(cap: Cap, type_: str, epoch: str | None, integer: bool) -> Invalid:
    how = "say --epoch s or --epoch ms" if integer else "leave out --epoch" if epoch else "which tells no time"
    return Invalid(f"{cap.table}.{cap.by} has the type {type_}: {how}")


def check_unit(cap: Cap, oldest: Any, newest: Any) -> None:
    """Raise `Invalid` if the oldest or the newest value shows that the numbers have another unit.

    A single extreme value proves nothing, such as 9999999999999 for "never": its row stays in any unit. Rows would be
    lost if seconds were taken for milliseconds, which the oldest value shows.
    """
    unit = PER_SECOND[cap.time]
    if not isinstance(oldest, (int, float)) or not isinstance(newest, (int, float)):
        return
    if newest / unit <= EIGHTIES:
        which, value, hint = "greatest", newest, " in any unit" if unit == 1 else ": is it --epoch s?"
    elif unit == 1 and oldest >= FAR:
        which, value, hint = "least", oldest, ": is it --epoch ms?"
    elif unit > 1 and oldest / unit <= EIGHTIES:
        which, value, hint = "least", oldest, ": is it --epoch s?"
    else:
        return
    raise Invalid(
        f"{cap.table}.{cap.by}: its {which} value, {value:,}, is not a recent time in {cap.time} since 1970{hint}"
    )


SAFE = ("CASCADE", "SET NULL")  # the allowed actions of a foreign key when the row to which it refers is deleted


class ForeignKeys:
    """What one database's catalog tells about tables; each query asks about the table that is its parameter."""

    dialect: ClassVar[Dialect]
    foreign_keys_sql: ClassVar[str]  # to it: their table, name, column, and the ON DELETE action
    fixed_sql: ClassVar[str] = ""  # the columns that may not be NULL; "": there is no SET NULL where NULL may not be
    referring_sql: ClassVar[str]  # table, column and column here of the foreign keys that forbid changes
    indexes_sql: ClassVar[str]  # name, column, and whether it is in order, in the order of the columns
    sorts_ties: ClassVar[bool] = False  # whether rows that are equal in an index are sorted without reading the others

    def folded(self, name: str) -> str:
        """Return a name as the database compares it, if it is not found as it is."""
        return name.lower()

    def ask(self, sql: str, table: str) -> Asking:
        return fetch(sql, *[table] * sql.count(self.dialect.placeholder))

    def may_lose_rows(self, table: str) -> Asking:
        """Return the tables whose rows are deleted with a table's; `Invalid` if a deletion could fail or be slow."""
        gone, waiting = [table], [table]
        while waiting:
            parent = waiting.pop()
            grouped: dict[tuple[str, Any, str], list[str]] = {}
            for other, name, column, action in (yield from self.ask(self.foreign_keys_sql, parent)):
                grouped.setdefault((other, name, action), []).append(column)
            for (other, _, action), columns in grouped.items():
                where = f"{other}.{columns[0]} refers to rows of {parent} with ON DELETE {action}"
                if action not in SAFE:
                    raise Invalid(
                        f"{where}, so excess rows cannot be deleted; the foreign key must say ON DELETE "
                        f"{' or '.join(SAFE)}"
                    )
                if action == "SET NULL":
                    yield from self._may_be_null(other, columns, where)
                elif self.folded(other) == self.folded(table):
                    raise Invalid(f"{where}: deleting an excess row would delete newer rows of the table too")
                elif self.folded(other) not in map(self.folded, gone):
                    gone.append(other)
                    waiting.append(other)
                if not (yield from self._is_indexed(other, columns)):
                    raise Invalid(
                        f"{where} without an index: each deletion would scan all of {other}. CREATE INDEX … "
                        f"({', '.join(map(self.dialect.quoted, columns))})"
                    )
        return gone[1:]

    def _may_be_null(self, other: str, columns: Sequence[str], where: str) -> Asking:
        changed = [self.folded(column) for column in columns]
        fixed = (yield from self.ask(self.fixed_sql, other)) if self.fixed_sql else []
        if any(self.folded(column) in changed for (column,) in fixed):
            raise Invalid(f"{where}, but may not be NULL, so a row could not be deleted")
        for child, column, referred in (yield from self.ask(self.referring_sql, other)):
            if referred is None or self.folded(referred) in changed:  # None: SQLite's primary key
                raise Invalid(f"{where}, and {child}.{column} refers to that and would forbid a deletion")

    def _indexes(self, table: str) -> Asking:
        indexes: dict[str, list[tuple[str, bool]]] = {}
        for name, column, in_order in (yield from self.ask(self.indexes_sql, table)):
            indexes.setdefault(name, []).append((column, bool(in_order)))
        return indexes

    def _is_indexed(self, table: str, columns: Sequence[str]) -> Asking:
        # Whether rows are found by these columns without reading all of them.
        found = (yield from self._indexes(table)).values()
        return any({column for column, _ in each[: len(columns)]} == set(columns) for each in found)
