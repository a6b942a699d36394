"""A turn: what has arrived from all connections becomes one transaction, and an answer for each request. No sockets.

Every byte of the turn was received before its transaction begins, so a request sees all that was answered before it
was sent. Nothing is answered before COMMIT. A request that fails costs itself alone: what it did is undone by SQLite,
statement by statement; where an error undid the whole transaction (a trigger's RAISE(ROLLBACK), a full disk, a
deferred foreign key at COMMIT), every request of the turn is run again, each in a transaction of its own.

Like requests run together: lookups by a unique key as one statement, and inserts, updates and increments as a run that
is compiled once (`runs.py`). Order is kept between what reads and what writes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

from roost.batches import Known, perform
from roost.core import utc_now
from roost.dialects import SQLITE, Control
from roost.engines.apsw import ApswConnection, SQLiteError
from roost.engines.engine import drive
from roost.errors import Error, Mismatch
from roost.plans import Careful, Context, Plan
from roost.plans.index.opened import Change, OpenedIndex, Working
from roost.plans.index.scan import Filtering, Scan
from roost.plans.index.values import number as as_number
from roost.protocols.requests import Find, Insert, Refused, Token, number, parse, parse_open
from roost.server import answers as say
from roost.server.counters import Counters
from roost.server.runs import Run, run_for
from roost.server.session import Session
from roost.server.settings import Role
from roost.server.structures import OpenedStructure, Wanted, refusal
from roost.server.tables import Handle, NotOpened, Tables
from roost.structures.operation import Operation

MOST_VALUES = 100_000  # of one list of IN: each is a lookup, and nobody else is served meanwhile
MOST_ROWS = 1_000_000  # of one answer
ONE_ROW = ["1", "0"]  # limit and offset

log = logging.getLogger("roost.server")


class Undone(Exception):
    """An error has undone the whole transaction."""


class Played(NamedTuple):
    """What a connection is answered."""

    text: str  # at once; "" where there is nothing to say yet
    late: str = ""  # after a delay, since the secret was wrong; then its other lines go on
    rest: str = ""  # those lines


class Turn:
    """Plays turns on one connection to the database."""

    def __init__(self, connection: ApswConnection, tables: Tables, role: Role, counters: Counters) -> None:
        self._connection = connection
        self._tables = tables
        self._writes = role == "write"
        self._counters = counters
        self._failed: Error | None = None  # why there is no transaction
        self._answers: list[str] = []
        self._lookups: dict[Handle, tuple[list[int], list[list[str]]]] = {}
        self._run: Run | None = None
        self._waiting: list[tuple[int, list[str]]] = []  # of the run
        self._wanted: list[tuple[int, Wanted, Handle, Find | Insert]] = []  # of structures
        self._known = Known(SQLITE)
        self._context = Context(utc_now, 0)

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
                played = Played(self._refusal(cause if isinstance(cause, Error) else Error()) + "\n")
            told.append(played.text)
            if played.late:
                return Played("".join(told), played.late, "\n".join(lines[place + 1 :]))
        return Played("".join(told))

    def _play(self, arrived: Sequence[tuple[Session, str]]) -> list[Played]:
        answers: list[str] = []
        self._answers = answers
        self._lookups.clear()
        self._run = None
        self._waiting = []
        self._wanted = []
        spans = []
        self._begin()
        try:
            for session, text in arrived:
                first = len(answers)
                late = self._take(session, text)
                spans.append((first, len(answers), late))
            self._flush()
            self._commit()
        except Undone:
            raise
        except BaseException:
            self._connection.settle()
            raise
        self._counters.requests += len(answers)
        played = []
        for first, end, late in spans:
            text = "\n".join(answers[first:end])
            if end > first:
                text += "\n"
            played.append(Played(text, *late) if late else Played(text))
        return played

    def _begin(self) -> None:
        self._failed = None
        try:
            if self._writes:
                self._connection.begin()
            else:
                self._connection.fetch("BEGIN")
            self._tables.look()
        except Error as error:
            log.warning("no transaction could be begun: %s", error)
            self._connection.settle()
            self._failed = error

    def _commit(self) -> None:
        if self._failed is None:
            try:
                self._connection.commit()
            except Error as error:
                raise Undone from error

    # --- lines ----------------------------------------------------------------------------------------------------

    def _take(self, session: Session, text: str) -> tuple[str, str] | None:
        # Answers lines, or joins them to a run; returns a late answer, and the lines behind it.
        answers = self._answers
        handles = session.handles
        version = self._tables.version
        plain = "\x01" not in text and self._failed is None and session.authorized
        nulls = "\0" in text
        lookups = self._lookups
        lines = text.split("\n")
        for place, line in enumerate(lines):
            tokens = line.split("\t")
            handle = handles.get(tokens[0])
            if handle is not None and plain and (handle.version == version or handle.current()):
                length = len(tokens)
                short = handle.short
                if (
                    (length == short or (length == handle.long and tokens[short:] == ONE_ROW))
                    and tokens[1] == "="
                    and tokens[2] == handle.width
                    and not (nulls and "\0" in line)
                ):
                    if self._run is not None or self._wanted:
                        self._flush()
                    waiting = lookups.get(handle)
                    if waiting is None:
                        waiting = lookups[handle] = ([], [])
                    waiting[0].append(len(answers))
                    waiting[1].append(tokens[3:short])
                    answers.append("")
                    continue
                if self._writes and handle.structure is None:
                    run = run_for(handle, tokens)
                    if run is not None:
                        self._join(run, tokens)
                        continue
            slot = len(answers)
            answers.append("")
            answers[slot] = told = self._answer(session, tokens, slot)
            if told == "3\t1\tunauth" and tokens[0] == "A" and session.secret is not None:
                answers.pop()
                return told + "\n", "\n".join(lines[place + 1 :])
            if tokens[0] == "A":
                plain = "\x01" not in text and self._failed is None and session.authorized
        return None

    def _join(self, run: Run, tokens: list[str]) -> None:
        if self._run is not run:
            self._flush()
            self._run = run
        self._waiting.append((len(self._answers), tokens))
        self._answers.append("")

    def _flush(self) -> None:
        # Does what waits: lookups, or a run of modifications; never both wait.
        if self._lookups:
            for handle, (slots, keys) in self._lookups.items():
                self._look_up(handle, slots, keys)
            self._lookups.clear()
        if self._wanted:
            self._perform()
        run, self._run = self._run, None
        if run is not None:
            waiting, self._waiting = self._waiting, []
            self._counters.rows += len(waiting)
            try:
                for slot, told in run.play(self._connection, waiting, self._guarded):
                    self._answers[slot] = told
            except SQLiteError as error:  # of a read: each request finds out for itself
                raise Undone from self._connection.failure(error)

    # --- structures -----------------------------------------------------------------------------------------------

    def _ask(self, handle: Handle, structure: OpenedStructure, asked: Find | Insert, slot: int) -> str:
        try:
            wanted = structure.ask(asked)
        except Error as error:
            return self._refusal(error)
        if isinstance(wanted, Wanted):
            if self._lookups or self._run is not None:
                self._flush()
            self._wanted.append((slot, wanted, handle, asked))
            return ""
        self._flush()
        return self._guarded(lambda: self._step_by_step(wanted.steps))

    def _step_by_step(self, steps: Generator[Operation[Any], Any, str]) -> str:
        # All of it or nothing.
        connection = self._connection
        connection.fetch("SAVEPOINT request")
        try:
            operation = next(steps)
            while True:
                (result,) = self._performed([operation])
                if isinstance(result, Error):
                    raise result
                operation = steps.send(result)
        except StopIteration as stop:
            connection.fetch("RELEASE request")
            told: str = stop.value
            return told
        except BaseException:
            if connection.in_transaction:
                connection.fetch("ROLLBACK TO request")
                connection.fetch("RELEASE request")
            raise

    def _perform(self) -> None:
        # The operations of all requests that wait, together; alone where that fails.
        waiting, self._wanted = self._wanted, []
        operations = [operation for _, wanted, _, _ in waiting for operation in wanted.operations]
        results: list[Any] | None = None
        try:
            results = self._performed(operations) if operations else []
        except Error as error:
            if not self._connection.in_transaction:
                raise Undone from error
        place = 0
        for slot, wanted, handle, asked in waiting:
            end = place + len(wanted.operations)
            part = None if results is None else results[place:end]
            self._answers[slot] = self._guarded(lambda w=wanted, p=part, h=handle, a=asked: self._told(w, p, h, a))  # type: ignore[misc]
            place = end

    def _told(self, wanted: Wanted, results: list[Any] | None, handle: Handle, asked: Find | Insert) -> str:
        found = self._performed(wanted.operations) if results is None else results
        if any([isinstance(result, Mismatch) for result in found]):
            structure = handle.again()
            if structure is None:
                return say.error(1, "open_table")
            once_more = structure.ask(asked)
            assert isinstance(once_more, Wanted)
            wanted, found = once_more, self._performed(once_more.operations)
        for result in found:
            if isinstance(result, Error):
                raise result
        return wanted.tell(found)

    def _performed(self, operations: list[Operation[Any]]) -> list[Any]:
        return drive(_savepoint(operations, self._known, self._context), self._connection)

    def _look_up(self, handle: Handle, slots: list[int], keys: list[list[str]]) -> None:
        try:
            told = handle.look_up(self._connection, keys)
        except (SQLiteError, UnicodeDecodeError):
            told = [self._one(handle, key) for key in keys]
        for slot, each in zip(slots, told, strict=True):
            self._answers[slot] = each

    def _one(self, handle: Handle, key: list[str]) -> str:
        # What one lookup of many refused, the plain way answers.
        return self._guarded(lambda: self._find(handle, Find("=", len(key), key, 1, 0, None, (), (), "", ())))

    # --- one request ----------------------------------------------------------------------------------------------

    def _answer(self, session: Session, tokens: list[str], slot: int) -> str:
        try:
            first = tokens[0]
            if first == "A":
                return session.authorize(tokens)
            if first == "P":
                return self._open(session, tokens) if session.authorized else "3\t1\tunauth"
            if first[:1].isdigit() and first[:1].isascii():
                return self._execute(session, tokens, slot) if session.authorized else "3\t1\tunauth"
            return self._wrong("cmd")
        except Refused as refused:
            return self._wrong(refused.word)

    def _wrong(self, word: str) -> str:
        self._counters.errors += 1
        return say.error(2, word)

    def _refusal(self, error: Error) -> str:
        self._counters.errors += 1
        return say.error(*refusal(error))

    def _open(self, session: Session, tokens: list[str]) -> str:
        asked = parse_open(tokens)
        if self._failed is not None:
            return self._refusal(self._failed)
        try:
            handle = self._tables.open(asked)
        except NotOpened as error:
            self._counters.errors += 1
            return say.error(error.code, error.word)
        except Error as error:
            return self._refusal(error)
        return "0\t1" if session.open(asked.number, handle) else self._wrong("limit")

    def _execute(self, session: Session, tokens: list[str], slot: int) -> str:
        wanted = number(tokens[0])
        handle = session.handles.get(str(wanted))
        if handle is None:
            return self._wrong(self._unopened(session, wanted, tokens))
        if self._failed is not None:
            return self._refusal(self._failed)
        if not handle.current():
            return say.error(1, "open_table")
        asked = parse(tokens, handle.fcolumns, MOST_VALUES)
        if not self._writes and (isinstance(asked, Insert) or asked.modification):
            return self._wrong("readonly")
        if isinstance(asked, Find):
            if asked.modification and asked.modification[0] not in "UD+-":
                return self._wrong("modop")
            if asked.width > handle.parts:
                return self._wrong("kpnum")
        if handle.structure is not None:
            return self._ask(handle, handle.structure, asked, slot)
        self._flush()
        if isinstance(asked, Insert):
            return self._guarded(lambda: self._insert(handle, asked))
        if asked.modification:
            return self._guarded(lambda: self._modify(handle, asked))
        return self._guarded(lambda: self._find(handle, asked))

    def _unopened(self, session: Session, wanted: int, tokens: list[str]) -> str:
        # The original looks at the list of IN and at the filters before it finds that a number was left out.
        if any([int(opened) > wanted for opened in session.handles]):
            try:
                parse(tokens, 0, MOST_VALUES)
            except Refused as refused:
                if refused.word not in ("op", "klen", "notimpl"):
                    return refused.word
        return "stmtnum"

    def _guarded(self, work: Callable[[], str]) -> str:
        # Returns an answer in any case, or raises Undone.
        try:
            return work()
        except Error as error:
            if not self._connection.in_transaction:
                raise Undone from error
            return self._refusal(error)
        except SQLiteError as error:
            found = self._connection.failure(error)
            if not self._connection.in_transaction:
                raise Undone from found
            return self._refusal(found)
        except Refused as refused:
            return self._wrong(refused.word)

    def _find(self, handle: Handle, asked: Find) -> str:
        index = handle.index
        scan = scan_of(handle, asked)
        scan = scan._replace(limit=min(scan.limit, MOST_ROWS + 1))
        rows = self._driven(index, lambda index: index.find(scan))
        if len(rows) > MOST_ROWS:
            raise Refused("limit")
        self._counters.rows += len(rows)
        return say.found(rows, index.width)

    def _driven(self, index: OpenedIndex, make: Callable[[OpenedIndex], Working]) -> Any:
        # What reads a text that is no UTF-8 reads it as bytes instead; nothing has been written by then.
        try:
            return drive(make(index), self._connection)
        except Error as error:
            if not isinstance(error.__cause__, UnicodeDecodeError):
                raise
            return drive(make(index.undecoded), self._connection)

    def _insert(self, handle: Handle, asked: Insert) -> str:
        wanted = min(asked.width, handle.index.width)
        number = drive(handle.index.insert(_padded(asked.values, wanted)), self._connection)
        self._counters.rows += 1
        return "0\t1" if number is None else f"0\t1\t{number}"

    def _modify(self, handle: Handle, asked: Find) -> str:
        index = handle.index
        change = Change(asked.modification[0], tuple(asked.to), asked.modification[1:2] == "?")
        scan = scan_of(handle, asked)
        scan = scan._replace(limit=min(scan.limit, MOST_ROWS))
        changed = self._driven(index, lambda index: index.modify(scan, change))
        if change.returning:
            return say.found(changed, index.width)
        self._counters.rows += changed
        return f"0\t1\t{changed}"


def scan_of(handle: Handle, asked: Find) -> Scan:
    """Return what is asked of an index, with the values as its columns store them."""
    parts = handle.index.key.parts
    given = _padded(asked.values, asked.width)
    values = tuple([part.column.key(value) for part, value in zip(parts, given, strict=False)])
    among: tuple[Any, ...] = ()
    if asked.place is not None:
        key = parts[asked.place].column.key
        among = tuple([key(value) for value in asked.among])
    filters = []
    for each in asked.filters:
        column = handle.index.fcolumns[each.place]
        against: Any = column.key(each.value)
        if column.kind in ("integer", "real") and each.value is not None:
            against = as_number(each.value)  # 10.4 is between 10 and 11, though no integer
        filters.append(Filtering(each.ends, each.op, column.sql, against))
    return Scan(asked.op, values, asked.limit, asked.offset, asked.place, among, tuple(filters))


def _savepoint(operations: list[Operation[Any]], known: Known, context: Context) -> Plan:
    # Operations of structures, each with its own outcome; what a statement refuses undoes all of them.
    yield Control.SAVEPOINT
    try:
        try:
            results = yield from perform(operations, known, context)
        except Careful:
            yield Control.BACK
            results = yield from perform(operations, known, context.carefully())
    except Error:
        yield Control.BACK
        yield Control.RELEASE
        raise
    yield Control.RELEASE
    return results


def _padded(values: Sequence[Token], wanted: int) -> Sequence[Token]:
    # A token that is missing is an empty one.
    return values[:wanted] if len(values) >= wanted else [*values, *[""] * (wanted - len(values))]
