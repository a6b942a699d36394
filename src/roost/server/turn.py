"""A turn: what has arrived from all connections becomes one transaction, and an answer for each request. No sockets.

Every byte of the turn was received before its transaction begins, so a request sees all that was answered before it
was sent. Nothing is answered before COMMIT. A request that fails costs itself alone: what it did is undone by SQLite,
statement by statement; where an error undid the whole transaction (a trigger's RAISE(ROLLBACK), a full disk, a
deferred foreign key at COMMIT), every request of the turn is run again, each in a transaction of its own.

Requests of one shape run together (`runs`), whichever connections they came from; so do those of structures. The lines
of a connection are done in their order: each round takes the next lines of one shape from every connection.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from roost.engines.apsw import ApswConnection, SQLiteError
from roost.errors import Error
from roost.protocols.requests import Refused
from roost.server.counters import Counters
from roost.server.guard import Guard, Undone
from roost.server.performing import Asked, Performer
from roost.server.plain import Plain
from roost.server.runs import Run, run_for
from roost.server.session import Session
from roost.server.settings import Role
from roost.server.tables import Handle, Tables

UNAUTHORIZED = "3\t1\tunauth"

log = logging.getLogger("roost.server")


class Played(NamedTuple):
    """What a connection is answered."""

    text: str  # at once; "" where there is nothing to say yet
    late: str = ""  # after a delay, since the secret was wrong; then its other lines go on
    rest: str = ""  # those lines


class _Talk:
    """The lines of one connection that are not all of one shape, and how far they are done."""

    __slots__ = ("late", "lines", "next", "place", "session")

    def __init__(self, place: int, session: Session, text: str) -> None:
        self.place = place  # among the connections of the turn
        self.session = session
        self.lines = text.split("\n")
        self.next = 0
        self.late = ""


class _Gathered:
    """Requests of one shape, from all connections, for one run."""

    __slots__ = ("_columns", "_rows", "handle", "owners", "requests")

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self.owners: list[tuple[int, int]] = []  # the connection, and how many of the requests are its own
        self.requests = 0
        self._rows: list[list[str]] = []
        self._columns: list[list[str]] = []

    def add(self, place: int, tokens: list[str]) -> None:
        """Take one request of a connection."""
        self._rows.append(tokens)
        self._own(place, 1)

    def add_all(self, place: int, columns: list[list[str]]) -> None:
        """Take requests of a connection, as columns."""
        self._join(columns)
        self._own(place, len(columns[0]))

    def _own(self, place: int, requests: int) -> None:
        self.requests += requests
        self.owners.append((place, requests))

    def _join(self, columns: Sequence[Sequence[str]]) -> None:
        if self._rows:
            rows, self._rows = self._rows, []
            self._join(list(zip(*rows, strict=True)))
        if not self._columns:
            self._columns = [list(column) for column in columns]
        else:
            for own, column in zip(self._columns, columns, strict=True):
                own.extend(column)

    def columns(self) -> Sequence[Sequence[str]]:
        """Return all requests."""
        if self._columns:
            self._join([()] * len(self._columns))
            return self._columns
        return list(zip(*self._rows, strict=True))


class Turn:
    """Plays turns on one connection to the database."""

    def __init__(self, connection: ApswConnection, tables: Tables, role: Role, counters: Counters) -> None:
        self._connection = connection
        self._tables = tables
        self._writes = role == "write"
        self._counters = counters
        self._guard = Guard(connection, counters)
        self._performer = Performer(connection, self._guard)
        self._plain = Plain(connection, tables, self._guard, self._performer)
        self._answers: list[str] = []  # of the connections, as far as they are known
        self._runs: dict[Run, _Gathered] = {}
        self._asked: list[tuple[int, Asked]] = []  # of structures

    def play(self, arrived: Sequence[tuple[Session, str]]) -> list[Played]:
        """Answer the complete lines of each connection, without the last LF."""
        try:
            return self._play(arrived)
        except Undone:
            self._connection.settle()
            return [self._alone(session, text) for session, text in arrived]

    def _alone(self, session: Session, text: str) -> Played:
        # Each request in a transaction of its own.
        told = []
        lines = text.split("\n")
        for place, line in enumerate(lines):
            try:
                (played,) = self._play([(session, line)])
            except Undone as undone:
                self._connection.settle()
                cause = undone.__cause__
                played = Played(self._guard.refusal(cause if isinstance(cause, Error) else Error()) + "\n")
            told.append(played.text)
            if played.late:
                return Played("".join(told), played.late, "\n".join(lines[place + 1 :]))
        return Played("".join(told))

    def _play(self, arrived: Sequence[tuple[Session, str]]) -> list[Played]:
        self._answers = [""] * len(arrived)
        self._runs.clear()
        self._asked = []
        talks = []
        self._begin()
        try:
            for place, (session, text) in enumerate(arrived):
                if not self._gather(place, session, text):
                    talks.append(_Talk(place, session, text))
            going = talks
            while going or self._runs or self._asked:
                going = [talk for talk in going if self._go_on(talk)]
                self._run()
            self._commit()
        except Undone:
            raise
        except BaseException:
            self._connection.settle()
            raise
        played = [Played(answer) for answer in self._answers]
        for talk in talks:
            if talk.late:
                played[talk.place] = Played(self._answers[talk.place], talk.late, "\n".join(talk.lines[talk.next :]))
        return played

    def _begin(self) -> None:
        self._plain.failed = None
        try:
            if self._writes:
                self._connection.begin()
            else:
                self._connection.fetch("BEGIN")
            self._tables.look()
        except Error as error:
            log.warning("no transaction could be begun: %s", error)
            self._connection.settle()
            self._plain.failed = error

    def _commit(self) -> None:
        if self._plain.failed is None:
            try:
                self._connection.commit()
            except Error as error:
                raise Undone from error

    def _handle(self, session: Session, token: str) -> Handle | None:
        # What requests that begin like this are for; None where the plain way has to say why not.
        handle = session.handles.get(token)
        if handle is None or not session.authorized or self._plain.failed is not None:
            return None
        return handle if handle.version == self._tables.version or handle.current() else None

    def _gather(self, place: int, session: Session, text: str) -> bool:
        # Takes all lines of a connection, if they are of one shape.
        end = text.find("\n")
        tokens = text.split("\t") if end < 0 else text[:end].split("\t")
        handle = self._handle(session, tokens[0])
        if handle is None or handle.structure is not None or "\x01" in text:
            return False
        run = run_for(handle, tokens)
        if run is None:
            return False
        if end < 0:
            self._gathered(run, handle).add(place, tokens)
            return True
        columns = run.columns(text)
        if columns is None:
            return False
        self._gathered(run, handle).add_all(place, columns)
        return True

    def _gathered(self, run: Run, handle: Handle) -> _Gathered:
        found = self._runs.get(run)
        if found is None:
            found = self._runs[run] = _Gathered(handle)
        return found

    def _go_on(self, talk: _Talk) -> bool:
        # Takes the next lines that run together, and answers what goes the plain way before them; returns whether
        # there will be more.
        lines, place = talk.lines, talk.place
        taken: Run | None = None
        asked = False
        while talk.next < len(lines):
            line = lines[talk.next]
            tokens = line.split("\t")
            handle = self._handle(talk.session, tokens[0])
            if handle is not None and handle.structure is not None and taken is None:
                try:
                    self._asked.append((place, (handle, self._plain.asked(handle, tokens))))
                    asked = True
                    talk.next += 1
                    continue
                except Refused:
                    pass  # the plain way says why
            run = None
            if handle is not None and handle.structure is None and "\x01" not in line:
                run = run_for(handle, tokens)
            if asked or (taken is not None and run is not taken):
                return True
            talk.next += 1
            if run is None or handle is None:
                told = self._plain.answer(talk.session, tokens)
                if told == UNAUTHORIZED and tokens[0] == "A" and talk.session.secret is not None:
                    talk.late = told + "\n"
                    return False
                self._answers[place] += told + "\n"
                self._counters.requests += 1
            else:
                self._gathered(run, handle).add(place, tokens)
                taken = run
        return False

    def _run(self) -> None:
        # Does what was gathered.
        runs, self._runs = self._runs, {}
        for run, gathered in runs.items():
            try:
                plainly = partial(self._plain.execute, gathered.handle)
                told = run.play(self._connection, gathered.columns(), plainly)
            except SQLiteError as error:  # of a read: each request finds out for itself
                raise Undone from self._connection.failure(error)
            self._counters.requests += gathered.requests
            if run.modifies:
                self._counters.rows += gathered.requests
            self._tell(gathered.owners, told)
        if self._asked:
            asked, self._asked = self._asked, []
            self._counters.requests += len(asked)
            self._tell([(place, 1) for place, _ in asked], self._performer.perform([each for _, each in asked]))

    def _tell(self, owners: Sequence[tuple[int, int]], told: list[str]) -> None:
        answers = self._answers
        begin = 0
        for place, requests in owners:
            if requests == 1:
                answers[place] += told[begin] + "\n"
            else:
                answers[place] += "\n".join(told[begin : begin + requests]) + "\n"
            begin += requests
