"""Operations that run once per token: the token and their answers are stored in the same transaction. No I/O."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Generator, Sequence
from typing import Any

from roost.catalog.catalog import ANSWER, TOKEN, UNTIL
from roost.dialects.dialect import Answer, Dialect, Row, Statement, Template, Wanted
from roost.errors import Conflict, Error, Invalid
from roost.structures.clock import CLOCK, microseconds
from roost.structures.operation import Operation
from roost.structures.plan import Context, Plan

TABLE, COLUMNS = "roost_once", (TOKEN, UNTIL, ANSWER)
LONGEST = 255  # characters of a token
LONE = re.compile("[\ud800-\udfff]")  # lone surrogates, which UTF-8 cannot encode
SWEPT = 2  # expired tokens that are deleted with each new one


def checked(once: Any, operations: Sequence[Operation[Any]]) -> str:
    """Return a token; `Invalid` if it is not valid, or if an operation only reads."""
    if type(once) is not str or not once or len(once) > LONGEST or "\0" in once or LONE.search(once):
        raise Invalid(f"once is a text of 1 to {LONGEST} characters without NUL and lone surrogates, not {once!r}")
    for op in operations:
        if isinstance(op, Operation) and not op.writes:
            raise Invalid(f"{op!r} only reads: once is for operations that write")
    return once


class Once:
    """The table of tokens, in one dialect.

    seconds: how long a token is stored.
    """

    def __init__(self, dialect: Dialect, seconds: float | dt.timedelta = 86_400.0) -> None:
        if isinstance(seconds, dt.timedelta):
            seconds = seconds.total_seconds()
        if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not 1 <= seconds <= 3_650 * 86_400:
            raise Invalid(
                f"once_for is a number of seconds, or a timedelta, from a second to ten years, not {seconds!r}"
            )
        self._microseconds = round(seconds * 1_000_000)
        self.speak(dialect)

    def speak(self, dialect: Dialect) -> None:
        self._dialect = dialect
        token, until, answer = map(dialect.name_of, COLUMNS)
        hole, clock, ignores = dialect.placeholder, dialect.choose(CLOCK), dialect.family == "mariadb"
        self._forget_over = Template(f"DELETE FROM {TABLE} WHERE {token} = {hole} AND {until} <= {clock}")
        self._take = Template(
            f"INSERT {'IGNORE ' if ignores else ''}INTO {TABLE} ({dialect.names(COLUMNS)})\n"
            f"  VALUES ({hole}, {clock} + {hole}, ''){'' if ignores else ' ON CONFLICT DO NOTHING'}"
        )
        self._answer = Template(
            f"SELECT {answer} FROM {TABLE} WHERE {token} = {hole}{dialect.for_share}", answer=Answer.ORDINAL
        )
        self._keep = Template(f"UPDATE {TABLE} SET {answer} = {hole} WHERE {token} = {hole}")
        # The clock advances, and an index cannot be searched for what may change: it is read once.
        self._over = Template(
            f"SELECT {token} FROM {TABLE} WHERE {until} <= (SELECT {clock}) ORDER BY {until} LIMIT {SWEPT}"
            f"{' FOR UPDATE SKIP LOCKED' if dialect.is_server else ''}",
            answer=Answer.ORDINAL,
        )
        self._remove = Template(f"DELETE FROM {TABLE} WHERE {token} = {hole}")

    def perform(
        self,
        token: str,
        trusts: Generator[Wanted, Any, bool],
        work: Plan,
        context: Context,
        verbs: Sequence[str] | None = None,
    ) -> Plan:
        """Run the work of a new token, or return the answers stored for a used one.

        trusts: whether the table of tokens may be touched; where it may not, the work says what is missing.
        verbs: the operations, which are compared with the stored ones: `Invalid` if the token was used for others.
        """
        if not (yield from trusts):
            return (yield from work)
        clock: Row = (microseconds(context.clock()),) if not self._dialect.is_server else ()
        yield Statement(self._forget_over, [(token, *clock)])
        taken = yield Statement(self._take, [(token, *clock, self._microseconds)])
        if not taken:
            work.close()
            found = yield Statement(self._answer, [(token,)])
            if not found[0]:  # deleted since: on PostgreSQL a conflicting INSERT does not lock the row
                raise Conflict(f"the token {token!r} existed, but has expired and was removed meanwhile")
            kept = json.loads(found[0][0][0])
            if verbs is not None and kept["of"] != verbs:
                before, now = ", ".join(kept["of"]), ", ".join(verbs)
                raise Invalid(f"the token {token!r} was used for {before} before, not for {now}")
            answers: list[Any] = kept if verbs is None else kept["answers"]
            return answers
        results = yield from work
        if any([isinstance(each, Error) for each in results]):
            return results
        if not all(map(_is_plain, results)):
            raise Invalid("the result of such an operation cannot be stored with a token")
        kept = results if verbs is None else {"of": verbs, "answers": results}
        yield Statement(self._keep, [(json.dumps(kept), token)])
        if context.joined:  # other tokens' rows would be locked until the application commits
            return results
        over = yield Statement(self._over, [clock])
        for (each,) in over[0]:
            yield Statement(self._remove, [(each,)])
        return results


def _is_plain(value: Any) -> bool:
    return (
        value is None or type(value) in (bool, int, float, str) or (type(value) is list and all(map(_is_plain, value)))
    )
