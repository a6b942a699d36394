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
from roost.errors import CannotOpen, Error
from roost.protocols.requests import Refused
from roost.server.counters import Counters
from roost.server.guard import Guard, Undone
from roost.server.performing import Asked, Performer
from roost.server.plain import Plain
from roost.server.runs import Columns, Run, run_for
from roost.server.session import UNAUTHORIZED, Session
from roost.server.settings import Role
from roost.server.tables import Handle, Tables

log = logging.getLogger("roost.server")


class Late(NamedTuple):
    """What a connection is answered after a delay, since the secret was wrong, and its lines that go on then."""

    text: str
    rest: str


class Played(NamedTuple):
    """What the connections of a turn are answered, in their order."""

    texts: list[str]  # "" where there is nothing to say yet
    late: dict[int, Late]  # by their places, after their texts


class _Talk:
    """The lines of one connection that are not all of one shape, and how far they are done."""

    __slots__ = ("late", "lines", "next", "place", "session")

    def __init__(self, place: int, session: Session, text: str) -> None:
        self.place = place  # among the connections of the turn
        self.session = session
        self.lines = text.split("\n")
        self.next = 0
        self.late = ""


class _Alike:
    """Requests of one shape, for one run."""

    __slots__ = ("handle", "owners", "rows")

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self.owners: list[int] = []  # the connections that they came from
        self.rows: list[list[str]] = []


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
        self._runs: dict[Run, _Alike] = {}
        self._asked: list[tuple[int, Asked]] = []  # of structures

    def play(self, arrived: Sequence[tuple[Session, str]]) -> Played:
        """Answer the complete lines of each connection, without the last LF."""
        try:
            return self._play(arrived)
        except Undone:
            self._connection.settle()
            texts, late = [], {}
            for place, (session, text) in enumerate(arrived):
                told, later = self._alone(session, text)
                texts.append(told)
                if later is not None:
                    late[place] = later
            return Played(texts, late)

    def _alone(self, session: Session, text: str) -> tuple[str, Late | None]:
        # Each request in a transaction of its own.
        told = []
        lines = text.split("\n")
        for place, line in enumerate(lines):
            try:
                played = self._play([(session, line)])
            except Undone as undone:
                self._connection.settle()
                told.append(self._guard.refusal(_error_of(undone)) + "\n")
                continue
            told += played.texts
            if session.foreign:
                break
            if played.late:
                return "".join(told), Late(played.late[0].text, "\n".join(lines[place + 1 :]))
        return "".join(told), None

    def _play(self, arrived: Sequence[tuple[Session, str]]) -> Played:
        self._answers = [""] * len(arrived)
        self._runs.clear()
        self._asked = []
        self._begin()
        try:
            talks = [_Talk(place, *arrived[place]) for place in self._chunks(arrived)]
            going = talks
            while going:
                going = [talk for talk in going if self._go_on(talk)]
                self._run()
            late = {talk.place: Late(talk.late, "\n".join(talk.lines[talk.next :])) for talk in talks if talk.late}
        except Undone:
            raise
        except Exception as error:  # a mistake: whose request it is, is found out by playing each alone
            raise Undone from error
        except BaseException:
            self._connection.settle()
            raise
        self._commit()  # the last that can fail: what is played again was never committed
        return Played(self._answers, late)

    def _begin(self) -> None:
        self._plain.failed = None
        connection = self._connection
        try:
            if connection.broken:  # by an error that concerned the file: on a connection that is known to be well
                self._tables.reopened()
                connection.reopen()
            if self._writes:
                connection.begin()
            else:
                connection.fetch("BEGIN")
            self._tables.look()
        except (Error, OSError) as error:  # OSError: the lock file's
            log.warning("no transaction could be begun: %s", error)
            connection.settle()
            self._plain.failed = error if isinstance(error, Error) else CannotOpen(str(error))

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

    def _chunks(self, arrived: Sequence[tuple[Session, str]]) -> list[int]:
        # Answers the connections that have requests of one shape, all of them together; returns the others.
        others = []
        begun: dict[tuple[Handle, str], list[int]] = {}  # connections by what their first lines begin with
        for place, (session, text) in enumerate(arrived):
            tab = text.find("\t")
            handle = self._handle(session, text[:tab])
            if handle is None or handle.structure is not None:
                others.append(place)
                continue
            beginning = (handle, text[: text.find("\t", tab + 1)])
            if beginning in begun:
                begun[beginning].append(place)
            else:
                begun[beginning] = [place]
        for (handle, _), places in begun.items():
            if not self._together(handle, places, [arrived[place][1] for place in places]):
                others += places
        return sorted(others)

    def _together(self, handle: Handle, places: list[int], texts: list[str]) -> bool:
        # Plays these chunks as one run; returns whether they can be.
        text = "\n".join(texts)
        run = None if "\x01" in text else run_for(handle, text.partition("\n")[0].split("\t"))
        columns = None if run is None else run.columns(text)
        if run is None or columns is None:
            return False
        told = self._told(run, handle, columns)
        answers = self._answers
        if len(told) == len(places):
            for place, answer in zip(places, told, strict=True):
                answers[place] = answer + "\n"
            return True
        begin = 0
        for place, chunk in zip(places, texts, strict=True):
            end = begin + chunk.count("\n") + 1
            answers[place] = "\n".join(told[begin:end]) + "\n"
            begin = end
        return True

    def _told(self, run: Run, handle: Handle, columns: Columns) -> list[str]:
        try:
            told = run.play(self._connection, columns, partial(self._plain.execute, handle))
        except SQLiteError as error:  # of a read: each request finds out for itself
            raise Undone from self._connection.failure(error)
        self._counters.requests += len(told)
        if run.modifies:
            self._counters.rows += len(told)
        return told

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
                if talk.session.foreign:
                    return False
            else:
                alike = self._runs.get(run)
                if alike is None:
                    alike = self._runs[run] = _Alike(handle)
                alike.owners.append(place)
                alike.rows.append(tokens)
                taken = run
        return False

    def _run(self) -> None:
        # Does what was gathered.
        runs, self._runs = self._runs, {}
        for run, alike in runs.items():
            self._tell(alike.owners, self._told(run, alike.handle, list(zip(*alike.rows, strict=True))))
        if self._asked:
            asked, self._asked = self._asked, []
            self._counters.requests += len(asked)
            self._tell([place for place, _ in asked], self._performer.perform([each for _, each in asked]))

    def _tell(self, owners: Sequence[int], told: list[str]) -> None:
        answers = self._answers
        for place, answer in zip(owners, told, strict=True):
            answers[place] += answer + "\n"


def _error_of(undone: Undone) -> Error:
    cause = undone.__cause__
    if isinstance(cause, Error):
        return cause
    log.error("a request failed", exc_info=cause)
    return Error()
