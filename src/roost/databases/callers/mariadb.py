"""MariaDB and MySQL: connections of PyMySQL and of asyncmy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from roost.databases.callers import BACK, NO_TRANSACTION, RELEASE, SAVEPOINT, Caller, Work
from roost.databases.engine import Engine
from roost.databases.mariadb.connection import (
    AUTOCOMMIT,
    CONVERSIONS,
    FAILURES,
    IN_TRANSACTION,
    PlainCursor,
    number_of,
)
from roost.databases.mariadb.engine import MariaDBEngine
from roost.databases.mariadb.errors import INTERRUPTED, NO_SAVEPOINT, to_flush, translate, unparsed
from roost.databases.mariadb.statements import is_galera, joined_text, judge, question
from roost.dialects import Dialect
from roost.dialects.dialect import Exchange, Row
from roost.errors import Busy, Conflict, ConnectionLost, Error, Invalid

# An operation by itself. An error leaves the transaction as it was; if the savepoint is gone by then, the server has
# rolled back the whole transaction.
AT_ONCE = """\
BEGIN NOT ATOMIC
DECLARE `the count` BIGINT;
IF @@autocommit AND NOT @@in_transaction THEN SIGNAL SQLSTATE '45000'; END IF;
SAVEPOINT roost_joined;
BEGIN
DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
  ROLLBACK TO SAVEPOINT roost_joined;
  RELEASE SAVEPOINT roost_joined;
  RESIGNAL;
END;
{work};
IF {answer} IS NULL THEN SIGNAL SQLSTATE '45000'; END IF;
END;
RELEASE SAVEPOINT roost_joined;
SELECT {answer};
END"""


class MariaDBCaller(Caller):
    """One call on a connection to MariaDB."""

    failures: Any = FAILURES
    where = "store.on"  # in the message about a setting

    def __init__(self, *arguments: Any, dialect: Dialect) -> None:
        super().__init__(*arguments)
        self._dialect = dialect

    async def _look(self) -> None:
        # Whether Roost's statements can run in this session.
        if asked := question(self.raw, self._dialect):
            judge(self.raw, self._dialect, (await self.say(asked))[0], self.where)

    async def begin(self) -> None:
        """Set the savepoint. With autocommit off, the server then begins a transaction.

        The status in the server's answer shows whether there is one: after a deadlock, the driver's flag is stale.
        """
        await self._look()
        if not self.writes:
            return  # a query that fails leaves the transaction as it was
        await self.say(SAVEPOINT)
        status = self.raw.server_status
        if status & AUTOCOMMIT and not status & IN_TRANSACTION:
            raise Invalid(NO_TRANSACTION)
        self.depth = 1

    async def at_once(self, exchange: Exchange) -> Row | None:
        """Send a compound statement; if it fails, the transaction is unchanged, or gone.

        On Galera it is not sent: if another node aborts the transaction between two of its statements, no error is
        raised, and the remaining statements run outside of the transaction.
        """
        await self._look()
        if is_galera(self.raw):
            return None
        work, row, answer, *_ = exchange
        text = joined_text(self._dialect, AT_ONCE.format(work=work, answer=answer), row)
        try:
            rows: Sequence[Row] = await self.send(text, several=True)
            return rows[0]
        except Busy as error:
            if number_of(error) in INTERRUPTED:  # no handler has run
                try:
                    await self.say(BACK)
                except Conflict:  # there is no savepoint: the operation had not begun, or it was completed
                    unknown = f"{error}; whether the operation was done is not known: roll back, and do all again"
                    raise Conflict(unknown) from error
                await self.say(RELEASE)
            raise
        except (Conflict, ConnectionLost):
            raise
        except Error:
            return None

    def is_lost(self) -> bool:
        return not getattr(self.raw, "open", True) or not getattr(self.raw, "connected", True)  # PyMySQL's, asyncmy's

    def failed(self, error: Any, sql: str) -> Exception:
        found = translate(error, self.place, sql)
        if isinstance(found, Conflict) and error.args[:1] == (NO_SAVEPOINT,):
            self.depth = 0
        table = unparsed(error, sql)
        return to_flush(found, table) if table and is_galera(self.raw) else found

    def sent(self, sql: str, row: Row) -> tuple[str, Row | None]:
        """Return a statement with its values in the text: a driver's literals are valid in some sql_modes only."""
        return joined_text(self._dialect, sql, row), None


@contextmanager
def plain(raw: Any, prefix: str, conversions: Mapping[Any, Any]) -> Iterator[None]:
    """Give a connection its driver's default conversion of values for the duration of a call.

    prefix: the prefix of the attributes' names.
    """
    charset = getattr(raw, f"{prefix}charset")
    if charset != "utf8mb4":
        raise Invalid(
            f"store.on: the connection's character set is {charset}, which cannot carry every text; connect with "
            "charset='utf8mb4'"
        )
    decoders = {kind: convert for kind, convert in conversions.items() if isinstance(kind, int)}
    wanted = {"decoders": decoders, "use_unicode": True}  # values go out in the text, so nothing is encoded
    had = {name: getattr(raw, f"{prefix}{name}") for name in wanted}
    try:
        for name, value in wanted.items():
            setattr(raw, f"{prefix}{name}", value)
        yield
    finally:
        for name, value in had.items():
            setattr(raw, f"{prefix}{name}", value)


async def pymysql_call(raw: Any, engine: Engine, _: bool, work: Work, writes: bool) -> None:
    cast(MariaDBEngine, engine).met(raw.get_server_info())
    with plain(raw, "", CONVERSIONS), PlainCursor(raw) as cursor:
        caller = MariaDBCaller(raw, engine.place, writes, cursor, engine.trace, dialect=engine.dialect)
        await caller.play(work)


async def asyncmy_call(raw: Any, engine: Engine, awaits: bool, work: Work, writes: bool) -> None:
    """Run a call on an asyncmy connection, which is lost if a call is cancelled while it waits."""
    from asyncmy.converters import conversions
    from asyncmy.cursors import Cursor as Plain
    from asyncmy.errors import MySQLError

    cast(MariaDBEngine, engine).met(raw.get_server_info())
    with plain(raw, "_", conversions):
        caller = MariaDBCaller(raw, engine.place, writes, Plain(raw), engine.trace, dialect=engine.dialect)
        caller.failures, caller.awaits = MySQLError, awaits
        await caller.play(work)
