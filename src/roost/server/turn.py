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
from math import inf
from time import monotonic
from typing import NamedTuple

from roost.databases.sqlite.apsw import ApswConnection, SQLiteError
from roost.errors import Busy, CannotOpen, Error
from roost.protocols.requests import Refused
from roost.server.counters import Counters
from roost.server.guard import Guard, Undone
from roost.server.performing import Asked, Performer
from roost.server.plain import Plain
from roost.server.room import ANY, Limits, Room
from roost.server.runs import Columns, Run, run_for
from roost.server.session import UNAUTHORIZED, Session
from roost.server.settings import Role
from roost.server.tables import Handle, Tables

LOT = 1024  # requests of a run, after which it is looked whether there is still room

log = logging.getLogger("roost.server")


class Late(NamedTuple):
    """What a connection is answered after a delay, since the secret was wrong, and its lines that go on then."""

    text: str
    rest: str


class Played(NamedTuple):
    """What the connections of a turn are answered, in their order."""

    texts: list[str]  # "" where there is nothing to say yet
    late: dict[int, Late]  # by their places, after their texts
    rest: dict[int, str]  # by their places: the lines that the turn had no room for
    seconds: Sequence[float]  # that each took of the turn


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

    def __init__(
        self,
        connection: ApswConnection,
        tables: Tables,
        role: Role,
        counters: Counters,
        limits: Limits = ANY,
    ) -> None:
        self._connection = connection
        self._tables = tables
        self._writes = role == "write"
        self._counters = counters
        self._guard = Guard(connection, counters)
        self._performer = Performer(connection, self._guard)
        self._plain = Plain(connection, tables, self._guard, self._performer)
        self._room = Room(ANY)
        self._begun = False
        self._rest: dict[int, str] = {}
        self._seconds: list[float] = []
        self._answers: list[str] = []  # of the connections, as far as they are known
        self._runs: dict[Run, _Alike] = {}
        self._asked: list[tuple[int, Asked]] = []  # of structures

        self.limit(limits)

    def limit(self, limits: Limits) -> None:
        """Say what turns may take from now on."""
        self._limits = limits
        self._connection.most_bytes = limits.answer
        self._plain.seconds = limits.request

    def play(self, arrived: Sequence[tuple[Session, str]]) -> Played:
        """Answer the complete lines of each connection, without the last LF, as far as there is room."""
        self._room = Room(self._limits)
        try:
            return self._play(arrived)
        except Undone:
            self._connection.settle()
            self._room = Room(self._limits)
            texts, late, rest, seconds = [], {}, {}, []
            for place, (session, text) in enumerate(arrived):
                begun = monotonic()
                told, later, left = self._alone(session, text)
                seconds.append(monotonic() - begun)
                texts.append(told)
                if later is not None:
                    late[place] = later
                if left:
                    rest[place] = left
            return Played(texts, late, rest, seconds)

    def ready(self) -> bool:
        """Begin the transaction of the next turn; False where somebody else holds the write lock."""
        self._begin()
        self._begun = True
        return not isinstance(self._plain.failed, Busy)

    def _alone(self, session: Session, text: str) -> tuple[str, Late | None, str]:
        # Each request in a transaction of its own.
        told: list[str] = []
        lines = text.split("\n")
        for place, line in enumerate(lines):
            if not self._room.open:
                return "".join(told), None, "\n".join(lines[place:])
            try:
                played = self._play([(session, line)])
            except Undone as undone:
                self._connection.settle()
                told.append(self._guard.refusal(_error_of(undone)) + "\n")
                self._room.take(0)
                continue
            told += played.texts
            if session.foreign:
                break
            if played.late:
                return "".join(told), Late(played.late[0].text, "\n".join(lines[place + 1 :])), ""
        return "".join(told), None, ""

    def _play(self, arrived: Sequence[tuple[Session, str]]) -> Played:
        self._answers = [""] * len(arrived)
        self._seconds = [0.0] * len(arrived)
        self._rest = {}
        self._runs.clear()
        self._asked = []
        if not self._begun:
            self._begin()
        self._begun = False
        try:
            talks = {place: _Talk(place, *arrived[place]) for place in self._chunks(arrived)}
            going = list(talks.values())
            while going:
                going = [talk for talk in going if self._going_on(talk)]
                self._run(talks)
            late = {}
            for talk in talks.values():
                left = "\n".join(talk.lines[talk.next :])
                if talk.late:
                    late[talk.place] = Late(talk.late, left)
                elif talk.next < len(talk.lines) and not talk.session.foreign:
                    self._rest[talk.place] = left
        except Undone:
            raise
        except Exception as error:  # a mistake: whose request it is, is found out by playing each alone
            log.exception("a turn failed; each of its requests is played alone")
            raise Undone from error
        except BaseException:
            self._connection.settle()
            raise
        self._commit()  # the last that can fail: what is played again was never committed
        return Played(self._answers, late, self._rest, self._seconds)

    def _begin(self) -> None:
        self._plain.failed = None
        connection = self._connection
        connection.deadline = inf
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
            if not isinstance(error, Busy):
                log.warning("no transaction could be begun: %s", error)
            connection.settle()
            self._plain.failed = error if isinstance(error, Error) else CannotOpen(str(error))

    def _commit(self) -> None:
        if self._plain.failed is None:
            self._connection.deadline = inf
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
        begun = monotonic()
        told = self._told(run, handle, columns)
        each = (monotonic() - begun) / max(1, len(told))
        answers, seconds = self._answers, self._seconds
        if len(told) == len(columns[0]) == len(places):
            for place, answer in zip(places, told, strict=True):
                answers[place] = answer + "\n"
                seconds[place] = each
            return True
        begin = 0
        for place, chunk in zip(places, texts, strict=True):
            lines = chunk.count("\n") + 1
            part = told[begin : begin + lines]
            begin += lines
            if part:
                answers[place] = "\n".join(part) + "\n"
                seconds[place] = each * len(part)
            if len(part) < lines:
                self._rest[place] = chunk.split("\n", len(part))[-1]
        return True

    def _told(self, run: Run, handle: Handle, columns: Columns) -> list[str]:
        # The answers of the first requests, as far as there is room.
        room, connection = self._room, self._connection
        total = len(columns[0])
        told: list[str] = []
        plainly = partial(self._plain.execute, handle)
        try:
            while room.open:
                begin = len(told)
                lot = columns if not begin and total <= LOT else [column[begin : begin + LOT] for column in columns]
                # What only reads is interrupted when the turn has no more time, and then tried alone.
                connection.deadline = monotonic() + self._plain.seconds if run.modifies else room.deadline
                told += run.play(connection, lot, plainly, room)
                if len(told) == total:
                    break
                room.take(0)
        except SQLiteError as error:  # of a read: each request finds out for itself
            raise Undone from connection.failure(error)
        self._counters.requests += len(told)
        if run.modifies:
            self._counters.rows += len(told)
        return told

    def _going_on(self, talk: _Talk) -> bool:
        begun = monotonic()
        goes_on = self._go_on(talk)
        self._seconds[talk.place] += monotonic() - begun
        return goes_on

    def _go_on(self, talk: _Talk) -> bool:
        # Takes the next lines that run together, and answers what goes the plain way before them; returns whether
        # there will be more.
        lines, place = talk.lines, talk.place
        taken: Run | None = None
        asked = False
        while talk.next < len(lines) and self._room.open:
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
                self._room.take(len(told))
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

    def _run(self, talks: dict[int, _Talk]) -> None:
        # Does what was gathered, as far as there is room.
        runs, self._runs = self._runs, {}
        for run, alike in runs.items():
            begun = monotonic()
            told = self._told(run, alike.handle, list(zip(*alike.rows, strict=True)))
            self._tell(talks, alike.owners, told, monotonic() - begun)
        if self._asked:
            asked, self._asked = self._asked, []
            begun = monotonic()
            told = self._performer.perform([each for _, each in asked], self._room, self._plain.seconds)
            self._counters.requests += len(told)
            self._tell(talks, [place for place, _ in asked], told, monotonic() - begun)

    def _tell(self, talks: dict[int, _Talk], owners: Sequence[int], told: list[str], seconds: float) -> None:
        answers = self._answers
        each = seconds / max(1, len(told))
        for place, answer in zip(owners, told, strict=False):
            answers[place] += answer + "\n"
            self._seconds[place] += each
        for place in owners[len(told) :]:  # the last lines that their connections gave
            talks[place].next -= 1


def _error_of(undone: Undone) -> Error:
    cause = undone.__cause__
    if isinstance(cause, Error):
        return cause
    log.error("a request failed", exc_info=cause)
    return Error()
