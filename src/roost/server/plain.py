"""The plain way: one request by itself, whatever it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from roost.databases.engine import drive
from roost.databases.sqlite.apsw import ApswConnection
from roost.errors import Error
from roost.protocols.requests import Find, Insert, Refused, Token, is_request, number, parse, parse_open
from roost.server import answers as say
from roost.server.guard import Guard
from roost.server.performing import Performer
from roost.server.room import ANY, Room
from roost.server.session import UNAUTHORIZED, Session
from roost.server.tables import Handle, NotOpened, Tables
from roost.structures.index.opened import Change, OpenedIndex, Working
from roost.structures.index.scan import Filtering, Scan

MOST_VALUES = 100_000  # of one list of IN: each is a lookup, and nobody else is served meanwhile
MOST_ROWS = 1_000_000  # of one answer


class Plain:
    """Answers requests on one connection, within the transaction of a turn."""

    def __init__(self, connection: ApswConnection, tables: Tables, guard: Guard, performer: Performer) -> None:
        self._connection = connection
        self._tables = tables
        self._guard = guard
        self._performer = performer
        self.failed: Error | None = None  # why there is no transaction
        self.seconds = inf  # that a request may take in the database

    def answer(self, session: Session, tokens: list[str]) -> str:
        """Answer one line.

        Raises: Undone.
        """
        try:
            first = tokens[0]
            if not session.known and not is_request(first):
                session.foreign = True
            if first == "A":
                return session.authorize(tokens)
            if first == "P":
                return self._open(session, tokens) if session.authorized else UNAUTHORIZED
            if first[:1].isdigit() and first[:1].isascii():
                return self._execute(session, tokens) if session.authorized else UNAUTHORIZED
            return self._guard.wrong("cmd")
        except Refused as refused:
            return self._guard.wrong(refused.word)

    def _open(self, session: Session, tokens: list[str]) -> str:
        asked = parse_open(tokens)
        if self.failed is not None:
            return self._guard.refusal(self.failed)
        try:
            handle = self._tables.open(asked)
        except NotOpened as error:
            return self._guard.answer(error.code, error.word)
        except Error as error:
            return self._guard.refusal(error)
        return "0\t1" if session.open(asked.number, handle) else self._guard.wrong("limit")

    def _execute(self, session: Session, tokens: list[str]) -> str:
        wanted = number(tokens[0])
        handle = session.handles.get(str(wanted))
        if handle is None:
            return self._guard.wrong(self._unopened(session, wanted, tokens))
        if self.failed is not None:
            return self._guard.refusal(self.failed)
        if not handle.current():
            return self._guard.answer(1, "open_table")
        return self.execute(handle, tokens)

    def _unopened(self, session: Session, wanted: int, tokens: list[str]) -> str:
        # The original looks at the list of IN and at the filters before it finds that a number was left out.
        if any([int(opened) > wanted for opened in session.handles]):
            try:
                parse(tokens, 0, MOST_VALUES)
            except Refused as refused:
                if refused.word not in ("op", "klen", "notimpl"):
                    return refused.word
        return "stmtnum"

    def execute(self, handle: Handle, tokens: list[str]) -> str:
        """Answer a request of an opened index, which is current."""
        self._connection.allow(self.seconds)
        try:
            asked = self.asked(handle, tokens)
        except Refused as refused:
            return self._guard.wrong(refused.word)
        if handle.structure is not None:
            return self._performer.perform([(handle, asked)], Room(ANY), self.seconds)[0]
        if isinstance(asked, Insert):
            return self._guard.answered(lambda: self._insert(handle.index, asked))
        if asked.modification:
            return self._guard.answered(lambda: self._modify(handle.index, asked))
        return self._guard.answered(lambda: self._find(handle.index, asked))

    def asked(self, handle: Handle, tokens: list[str]) -> Find | Insert:
        """Return what a request asks.

        Raises: Refused.
        """
        asked = parse(tokens, handle.fcolumns, MOST_VALUES)
        if not handle.writes and (isinstance(asked, Insert) or asked.modification):
            raise Refused("readonly")
        if isinstance(asked, Find):
            if asked.modification and asked.modification[0] not in "UD+-":
                raise Refused("modop")
            if asked.width > handle.parts:
                raise Refused("kpnum")
        return asked

    def _find(self, index: OpenedIndex, asked: Find) -> str:
        scan = _scan(index, asked)
        scan = scan._replace(limit=min(scan.limit, MOST_ROWS + 1))
        rows = self._driven(index, lambda index: index.find(scan))
        if len(rows) > MOST_ROWS:
            raise Refused("limit")
        self._tables.counters.rows += len(rows)
        return say.found(rows, index.width)

    def _driven(self, index: OpenedIndex, make: Callable[[OpenedIndex], Working]) -> Any:
        # What reads a text that is no UTF-8 reads it as bytes instead; nothing has been written by then.
        try:
            return drive(make(index), self._connection)
        except Error as error:
            if not isinstance(error.__cause__, UnicodeDecodeError):
                raise
            self._connection.left = self._connection.most_bytes
            return drive(make(index.undecoded), self._connection)

    def _insert(self, index: OpenedIndex, asked: Insert) -> str:
        if index.table.view and not index.table.triggers:
            raise Refused("notimpl")
        wanted = min(asked.width, index.width)
        number = drive(index.insert(_padded(asked.values, wanted)), self._connection)
        self._tables.counters.rows += 1
        return "0\t1" if number is None else f"0\t1\t{number}"

    def _modify(self, index: OpenedIndex, asked: Find) -> str:
        change = Change(asked.modification[0], tuple(asked.to), asked.modification[1:2] == "?")
        scan = _scan(index, asked)
        scan = scan._replace(limit=min(scan.limit, MOST_ROWS))
        changed = self._driven(index, lambda index: index.modify(scan, change))
        if change.returning:
            return say.found(changed, index.width)
        self._tables.counters.rows += changed
        return f"0\t1\t{changed}"


def _scan(index: OpenedIndex, asked: Find) -> Scan:
    # What is asked of an index, with the values as its columns store them.
    filters = [
        Filtering(each.ends, each.op, (column := index.fcolumns[each.place]).sql, column.against(each.value))
        for each in asked.filters
    ]
    among = None if asked.place is None else (asked.place, asked.among)
    return index.scan(asked.op, _padded(asked.values, asked.width), asked.limit, asked.offset, among, filters)


def _padded(values: Sequence[Token], wanted: int) -> Sequence[Token]:
    # A token that is missing is an empty one.
    return values[:wanted] if len(values) >= wanted else [*values, *[""] * (wanted - len(values))]
