"""The clock of a structure whose contents expire: times are whole microseconds since 1970-01-01 UTC (*moments*).

The clock is the database server's, read by a statement, never a client's; on SQLite it is the store's. Moments are
stored as BIGINT, so they are compared exactly and do not depend on any time zone.

A clock may jump back: somebody sets it, a machine starts with the wrong time, another server becomes the primary.
Expired contents would then reappear, and a client that has to wait for a minute would wait for the length of the jump.
So a structure has one row, in `roost_NAME_clock`: the latest moment that a writer has seen, and how far the structure's
time is `ahead` of the clock. Its time is

    max(clock + ahead, latest)

which never goes back. A writer that finds the clock more than a second behind `latest` increases `ahead` by the
difference: time continues from where it was, at the clock's pace. (If time merely stood still until the clock had
caught up, no wait would end.) A jump forward cannot be distinguished from a time in which nobody used the database:
contents then expire early, and when the clock jumps back, time continues.

`latest` is written at most once per second, by a writer that finds the row unlocked, so it is not a hot spot. Hence the
limits of the promise: after a jump back of less than a second, time stands still for that long; a moment that only
readers have seen, or that is less than a second old, can recur. A store on SQLite also remembers the moments that it
has read itself. On a server where every write is in a transaction of the application, which would hold the row until
its end, `latest` is written once in ten seconds, and at REPEATABLE READ never.

Moments serve durations. A structure that counts by the calendar uses `clock`, which is never ahead; the newest stored
window takes the place of `latest`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from roost.dialects.dialect import Answer, Dialect, Row, Statement, Template
from roost.errors import Invalid
from roost.types.column_types import ColumnType, shown
from roost.types.columns import Column

if TYPE_CHECKING:
    from roost.structures.plan import Context, StructurePlan

SECOND = 1_000_000
JOINED_STEP = 10 * SECOND  # after which a write in the application's own transaction stores the time
MOST_REFUSED = 1_000  # keys that a store remembers as refused
MOST_OWED = 16  # single writes in a row that delete no expired rows

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)

_COLUMNS = tuple(Column(name, ColumnType("int")) for name in ("id", "latest", "ahead"))

# The clock. MariaDB's UTC_TIMESTAMP is the moment at which the statement began, whatever the session's time zone (that
# of SYSDATE or UNIX_TIMESTAMP is ambiguous in the hour that occurs twice); PostgreSQL's now() would be the
# transaction's begin, before it has waited for locks.
CLOCK = {
    "sqlite": "?",
    "mariadb": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
    "postgresql": "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
}

# In a trigger on MariaDB, which runs with others' rights: any client may `SET timestamp`, on which UTC_TIMESTAMP
# depends. SYSDATE does not, but is ambiguous in the hour that occurs twice; so it is used only if the two disagree.
TRIGGER_CLOCK = """\
TIMESTAMPDIFF(MICROSECOND, '1970-01-01', IF(TIMESTAMPDIFF(SECOND, NOW(6), SYSDATE(6)) BETWEEN 0 AND 3599,
    UTC_TIMESTAMP(6), CONVERT_TZ(SYSDATE(6), @@time_zone, '+00:00')))"""

# The structure's time as an expression. On SQLite its row exists from the first write on. On PostgreSQL it is a query
# that is evaluated once: with the clock itself, which advances, a condition could not use an index.
NOW = {
    "sqlite": """\
(SELECT max(m.column1 + coalesce(t.ahead, 0), coalesce(t.latest, 0), m.column2)
  FROM (VALUES (?, ?)) m LEFT JOIN {table} t)""",
    "mariadb": "COALESCE((SELECT GREATEST({clock} + t.ahead, t.latest) FROM {table} t), {clock})",
    "postgresql": "(SELECT greatest({clock} + coalesce(max(t.ahead), 0), max(t.latest)) FROM {table} t)",
}

# For a view, which has no parameters: on SQLite the system's clock, whatever the store's is.
SQLITE_CLOCK = "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000"
SQLITE_SHOWN = "(SELECT max({clock} + coalesce(max(t.ahead), 0), coalesce(max(t.latest), 0)) FROM {table} t)"

# A moment as a view shows it.
SHOWN = {
    "sqlite": "strftime('%Y-%m-%d %H:%M:%S.', {0} / 1000000, 'unixepoch') || substr({0} + 10000000, -6)",
    "mariadb": "TIMESTAMP'1970-01-01 00:00:00' + INTERVAL {0} MICROSECOND",
    "postgresql": "to_timestamp(0) + {0} / 1000000 * '1 second'::interval + {0} % 1000000 * '1 microsecond'::interval",
}

READ = "SELECT {clock}, t.latest, t.ahead FROM (SELECT 1) one LEFT JOIN {table} t ON t.id = 0"
TAKE = "SELECT latest, ahead FROM {table} WHERE id = 0{committed} FOR UPDATE SKIP LOCKED"
FIRST = "INSERT INTO {table} (id, latest, ahead) VALUES (0, 0, 0)"
ADVANCE = {
    "sqlite": "INSERT OR REPLACE INTO {table} (id, latest, ahead) VALUES (0, ?, ?)",
    "mariadb": "UPDATE {table} SET latest = %s, ahead = %s WHERE id = 0",
    "postgresql": "UPDATE {table} SET latest = %s, ahead = %s WHERE id = 0",
}
MAKE = {
    "mariadb": "INSERT INTO {table} (id, latest, ahead) VALUES (0, %s, %s) ON DUPLICATE KEY UPDATE id = id",
    "postgresql": "INSERT INTO {table} (id, latest, ahead) VALUES (0, %s, %s) ON CONFLICT DO NOTHING",
}


@dataclass(slots=True)
class Seen:
    """A structure's time, as a store has last seen it."""

    ahead: int = 0
    moment: int = 0  # the latest one
    read: int = 0  # by the store's clock, when the row was read
    owed: int = 0  # single writes since expired rows were deleted
    refused: dict[Row, None] = field(default_factory=dict)  # keys of which something was refused
    contended: int = 0  # runs that must lock before they decide, since another session has changed the same rows


def microseconds(moment: dt.datetime) -> int:
    """Return a moment as it is stored.

    >>> microseconds(dt.datetime(1970, 1, 2, tzinfo=dt.UTC))
    86400000000
    """
    return (moment - _EPOCH) // _MICROSECOND


def datetime_of(moment: int) -> dt.datetime:
    """Return a moment as a datetime, in UTC.

    >>> datetime_of(86_400_000_000)
    datetime.datetime(1970, 1, 2, 0, 0, tzinfo=datetime.timezone.utc)
    """
    return _EPOCH + moment * _MICROSECOND


def duration(where: str, value: Any, most: int) -> int:
    """Return a timedelta, or a number of seconds, in microseconds; `Invalid` if it is not from 1 to `most`."""
    found: int | None = None
    if isinstance(value, dt.timedelta):
        found = value // _MICROSECOND
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 10**12:  # NaN is not
        found = round(value * SECOND)
    if found is None or not 1 <= found <= most:
        raise Invalid(
            f"{where} is a timedelta or a number of seconds, more than 0 and at most {most / SECOND:,.0f}, not "
            f"{shown(value)}"
        )
    return found


def joined_only(dialect: Dialect) -> str:
    """Return the condition under which the application's own transaction may take locks that its work does not need."""
    return f" AND {dialect.read_committed}" if dialect.read_committed else ""


def at_moment(dialect: Dialect, moment: str) -> str:
    """Return the expression of a moment as a view shows it."""
    return dialect.choose(SHOWN).format(moment)


def shown_now(plan: StructurePlan) -> str:
    """Return the expression of the current moment for a view."""
    dialect, table = plan.dialect, f"roost_{plan.structure.name}_clock"
    if dialect.name == "sqlite":
        return SQLITE_SHOWN.format(table=table, clock=SQLITE_CLOCK)
    return dialect.choose(NOW).format(table=table, clock=dialect.choose(CLOCK))


def time_table(plan: StructurePlan, more: Mapping[Column, str]) -> tuple[str, ...]:
    """Return the statements that make the table of a structure's time, and its row.

    The row is made at once: if an application's transaction created it, others would wait for that to end.

    more: what reads need of the declaration.
    """
    name = f"roost_{plan.structure.name}_clock"
    columns, values = [*_COLUMNS, *more], ", ".join(["0"] * len(_COLUMNS) + [*more.values()])
    insert = f"INSERT INTO {name} ({plan.dialect.names(columns)}) VALUES ({values})"
    return plan.create(name, columns, "id"), insert


class Clock:
    """A structure's time in one dialect's words. A plan makes one, and has its `tables` among its own.

    tables: creates the table, and on servers its row: if an application's transaction created that, others would wait.
    now: the current moment as an expression, for a single statement that reads or writes; its placeholders take
        `row(context)`.
    goes_on: the condition that the clock has not jumped and the time need not be stored, for statements that write
        without reading first.
    clock: the same for the clock itself, never ahead of it; `clock_row(context)`.
    """

    def __init__(self, plan: StructurePlan) -> None:
        dialect = plan.dialect
        self._name = plan.structure.name
        name = f"roost_{self._name}_clock"
        self.tables: tuple[str, ...] = (plan.create(name, _COLUMNS, "id"),)
        self.clock = dialect.choose(CLOCK)
        self.now = dialect.choose(NOW).format(table=name, clock=self.clock)
        self.goes_on = f"EXISTS (SELECT 1 FROM {name} t WHERE abs({self.clock} + t.ahead - t.latest) < {SECOND})"
        self._by_store = dialect.name == "sqlite"
        self._read = Template(READ.format(table=name, clock=self.clock), answer=Answer.ORDINAL)
        self._advance = Template(dialect.choose(ADVANCE).format(table=name))
        self._rows, self._dialect, self._key = plan.rows_table, dialect, plan.structure.key.columns
        self._skips_locked = dialect.row_locks
        if self._skips_locked:
            self._take, self._take_joined = (
                Template(TAKE.format(table=name, committed=each), answer=Answer.ORDINAL)
                for each in ("", joined_only(dialect))
            )
            self._make = Template(dialect.choose(MAKE).format(table=name))
            self.tables += (FIRST.format(table=name),)

    def keys(self, column: str, distinct: str = "") -> tuple[Template, Template]:
        """Return the statements that list the keys whose moment is yet to come: the first ones, and those after a key.

        distinct: "DISTINCT " if a key has many rows.
        """
        key = self._dialect.names(self._key)
        head = f"SELECT {distinct}{key} FROM {self._rows} r WHERE r.{column} > {self.now}"
        tail = f"ORDER BY {key} LIMIT {self._dialect.placeholder}"
        behind = f"AND ({key}) > ({self._dialect.holes(len(self._key))})"
        return (
            Template(f"{head} {tail}", answer=Answer.ORDINAL),
            Template(f"{head} {behind} {tail}", answer=Answer.ORDINAL),
        )

    def clock_row(self, context: Context) -> Row:
        """Return the parameters of `clock`."""
        return (microseconds(context.clock()),) if self._by_store else ()

    def row(self, context: Context) -> Row:
        """Return the parameters of `now`."""
        if not self._by_store:
            return ()
        seen, clock = self._seen(context), microseconds(context.clock())
        seen.moment = max(seen.moment, clock + seen.ahead)
        return clock, seen.moment

    def is_due(self, context: Context) -> bool:
        """Whether a single operation must leave its work to a batch, whose plan reads the time by `read`.

        True once per second, and when the clock has jumped.
        """
        return abs(microseconds(context.clock()) - self._seen(context).read) >= SECOND

    def stands(self, context: Context, moment: int) -> bool:
        """Whether `read` must be called after a plain read: because it is due, or because the time has not advanced."""
        seen = self._seen(context)
        stands = not self._by_store and moment <= seen.moment
        seen.moment = max(seen.moment, moment)
        return stands or self.is_due(context)

    def stands_still(self, context: Context, moment: int) -> bool:
        """Whether a plain read alone must refuse nothing: its time stands still, which only a writer mends."""
        seen = self._seen(context)
        if self._by_store:
            return moment - (microseconds(context.clock()) + seen.ahead) >= SECOND
        before, seen.moment = seen.moment, max(seen.moment, moment)
        return moment <= before

    def refuses(self, context: Context, key: Row) -> None:
        """Remember that something of a key was refused: a plain read comes first from now on."""
        refused = self._seen(context).refused
        if len(refused) >= MOST_REFUSED:
            refused.clear()
        refused[key] = None

    def may_refuse(self, context: Context, key: Row) -> bool:
        """Whether a plain read should come first, as another exchange; on a file it costs next to nothing."""
        return self._by_store or self._seen(context).refused.pop(key, 1) is None

    def is_calm(self, context: Context) -> bool:
        """Whether a run may change rows that it has not locked before; count it."""
        seen = self._seen(context)
        if not seen.contended:
            return True
        seen.contended -= 1
        return False

    def contends(self, context: Context, runs: int) -> None:
        """Record that another session has changed the same rows: the next runs lock them first."""
        self._seen(context).contended = runs

    def owes(self, context: Context) -> bool:
        """Count a write of one exchange, which deletes no expired rows; True if a batch must do it instead."""
        seen = self._seen(context)
        seen.owed += 1
        return seen.owed >= MOST_OWED

    def settled(self, context: Context) -> int:
        """Return the number of writes that have deleted no expired rows, for a batch that does it for them."""
        seen = self._seen(context)
        if context.joined and self._skips_locked:
            seen.owed += 1
            return 0
        owed, seen.owed = seen.owed, 0
        return owed

    def read(self, context: Context, *, writes: bool = True) -> Generator[Statement, Any, int]:
        """Return the current moment, after all locks were taken; store it if that is due.

        The application's own transaction would keep the row locked until its end, and others would skip it until then;
        so there it is stored rarely, and at READ COMMITTED only. At REPEATABLE READ, PostgreSQL would fail if another
        session has written the row, and MariaDB's writes wait for the row although they only read it.

        writes: the transaction writes anyway; otherwise the time is stored only to correct it after a jump back.
        """
        found = yield self.question(context)
        return (yield from self.answered(found, context, writes=writes))

    def question(self, context: Context) -> Statement:
        """Return the statement of `read`, to be sent along with others; `answered` takes its answer."""
        return Statement(self._read, [self.clock_row(context)])

    def answered(self, found: Any, context: Context, *, writes: bool = True) -> Generator[Statement, Any, int]:
        """Return the current moment from the answer to `question`, and store it if that is due."""
        seen, ours = self._seen(context), microseconds(context.clock())
        clock, latest, ahead = found[0][0]
        there = latest is not None
        latest, ahead = latest or 0, ahead or 0
        moment: int = max(clock + ahead, latest, seen.moment if self._by_store else 0)
        back = moment - (clock + ahead) >= SECOND
        seen.ahead = ahead
        step = JOINED_STEP if context.joined and self._skips_locked else SECOND
        if back or (writes and moment - latest >= step):
            wanted = (moment, moment - clock if back else ahead)
            if not self._skips_locked:
                yield Statement(self._advance, [wanted])
                seen.ahead = wanted[1]
            elif not there:
                if not context.joined:
                    yield Statement(self._make, [wanted])
            else:
                held = yield Statement(self._take_joined if context.joined else self._take, [()])
                if held[0] and tuple(held[0][0]) == (latest, ahead):  # nobody else has written it since
                    yield Statement(self._advance, [wanted])
        seen.moment, seen.read = max(seen.moment, moment), ours
        return moment

    def _seen(self, context: Context) -> Seen:
        seen = context.seen.get(self._name)
        if seen is None:
            seen = context.seen[self._name] = Seen()
        return seen
