"""The plan of a structure whose promise its programs keep: operations become calls of stored routines, and reads.

A structure says what its verbs call (`writes`) and ask (`asks`). A call is a text, its rows, and how its outcomes
become results; nothing here knows what a program does. One operation by itself, a batch, and the application's
transaction use the same description.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, groupby, islice
from typing import Any, ClassVar, NamedTuple

from roost.dialects.dialect import Dialect, Exchange, Row, Statement, Template, Together, Wanted, execute, parts
from roost.errors import Error, StatementFailed
from roost.structures.clock import SECOND, microseconds, time_table
from roost.structures.operation import RUNS, Operation, first
from roost.structures.plan import (
    Careful,
    Context,
    Operations,
    Plan,
    Transaction,
    Verb,
    in_place,
    in_rounds,
    in_turns,
    seizing,
    write,
)
from roost.structures.reading import NOW, Ask, Read, ReadPlan
from roost.structures.rules import end_late_rows
from roost.structures.steps import Do, Head, Let, Program, Step, number
from roost.structures.words.mysql import MOST_JSON_LENGTH, MOST_JSON_ROWS, calling, in_json, results
from roost.structures.words.sqlite import SQLiteWords
from roost.structures.words.words import Words, short_digest
from roost.types.columns import Column

MOST_CALLS = 64  # procedures that one text calls on MariaDB and MySQL
SOME = 10  # rows from which the set form takes them in one call, where there is one
SWEPT = 16  # expired rows that are deleted for each written one, by a batch of the store's own
SWEEPS = 16  # writes after which a batch deletes expired rows
MOST_SWEPT = 1_000  # rows that one batch deletes
MOST_ARRAY_BYTES = 2**22  # of one text on PostgreSQL, about: while it is written they are in memory eight times
MAKES = number("roost_makes")  # a parameter beside a structure's columns, whose names cannot be it

Calling = Generator[Wanted, Any, list[Any]]
Answering = tuple[str, Callable[[int], Any]]  # an expression, and what makes a result of its value


class Write(NamedTuple):
    """What a verb that writes calls.

    program: the verb of the program.
    rows: the rows that an operation gives to it, as they are stored.
    result: makes the operation's result, or the error with which it is refused, of their outcomes.
    makes: whether a key that is not there is made.
    answer: for one operation in one exchange, a number from 0 on that is made of the outcome, whose columns are named
        in braces, and what makes the result of it; NULL: nothing was changed, and a batch runs the operation. None:
        this operation needs a batch. By default the number is the first column.
    together: under which name the verb runs together with those of other programs; see `ProgramPlan.apart`.
    """

    program: str
    rows: Callable[[Operation[Any]], Sequence[Row]]
    result: Callable[[Operation[Any], Sequence[Any]], Any] = lambda _, __: None
    makes: bool = True
    answer: Callable[[Operation[Any], Context], Answering | None] | None = None
    together: str = ""


class ProgramPlan(ReadPlan):
    """One structure in one dialect's words, with its programs.

    A structure's own plan defines `programs`, `writes` and `asks`; in `verbs` it can add what these do not express.
    first: values of a created head that are not zero.
    own_time: by its own time, which never goes back, and has a table; otherwise by the clock.
    optimistic: verbs that seldom refuse a row: on SQLite many are given at once, and after a refusal one by one.
    apart: the width of the columns by which calls are told apart: those in which these differ can be in any order.
    of_all: the verbs that read all keys.
    """

    first: Mapping[str, str] = {}
    own_time = True
    settled: ClassVar[Any] = {"keep_for": end_late_rows}
    optimistic: ClassVar[frozenset[str]] = frozenset()
    of_all: ClassVar[frozenset[str]] = frozenset(["keys"])

    def __init__(self, structure: Any, dialect: Dialect) -> None:
        super().__init__(structure, dialect)
        rows = getattr(structure, "rows", None)
        if rows is not None:
            self.form = [each.name for each in (*rows.others, *rows.unknown)]
        # On MariaDB each form has its own name: an inlet's trigger goes on calling the one that it knows.
        if rows is not None and dialect.replaces and (rows.unknown or dialect.family == "mariadb"):
            self.words.variant = f"_{short_digest(','.join([*rows.per, *(each.name for each in rows.others)]))}"
        self.lock_width = self.apart = self.key_width  # of the columns that identify what a call locks
        self._programs: dict[str, Program] = {}
        # By verb: the call of its program for many rows, and for one; SQLite's queries before and after it.
        self._many: dict[str, Template] = {}
        self._one: dict[str, str] = {}
        self._asked_around: dict[str, tuple[Read | None, Read | None]] = {}
        self._timed: set[str] = set()  # the verbs of programs that need the moment
        self._owed = self._swept = 0  # writes since expired rows were deleted; when that was, by the store's clock
        self.tables = tuple(self.made())
        if self.expires and self.own_time:
            self.tables += time_table(self, self.timing())
        routines = [*self.words.marks]
        self._refused_as: dict[str, Mapping[str, int]] = {}
        for program in self.programs():
            if program.many and isinstance(self.words, SQLiteWords):
                if sql := self.words.statement(program):
                    self._many[program.verb] = write(sql, self.dialect.holes(len(program.given)))
                continue
            routine = self.words.routine(program)
            routines.append(routine)
            self._programs[program.verb], self._refused_as[program.verb] = program, routine.refusals
            self._one[program.verb], self._many[program.verb] = self.words.calls(program)
            if (program.before or program.after) and self._by_store:
                asked = [*program.given, NOW]
                self._asked_around[program.verb] = (
                    self.read(program.before, asked) if program.before else None,
                    self.read(program.after, asked) if program.after else None,
                )
            if self.words.clock in routine.text or NOW.name in program.before + program.after:
                self._timed.add(program.verb)
            if (door := self.words.door(program)) is not None:
                routines.append(door)
        self.routines = tuple(routines)
        self.form = [*self.form, *([] if dialect.replaces else [each.name for each in routines])]
        self._refusals = {message: outcome for each in routines for message, outcome in each.refusals.items()}
        self.seize = seizing(dialect, self.head_table if self.heads else self.rows_table, structure.key.columns)
        self.altering = dialect.lock_table.format(self.rows_table, "SHARE ROW EXCLUSIVE")
        if self.heads:  # in the order of the programs, and against SELECT FOR UPDATE, too
            self.altering = dialect.lock_table.format(f"{self.head_table}, {self.rows_table}", "EXCLUSIVE")
        removing = {"clear", "forget"} & self._programs.keys()
        self.writes = {verb: Write(verb, self.key_of, first, makes=False) for verb in removing} | dict(self.written())
        self.asks = dict(self.asked())
        if dialect.singles:
            self.transactions = {verb: partial(self._single, write) for verb, write in self.writes.items()}
            self.questions = {verb: partial(self._question, ask) for verb, ask in self.asks.items()}
        self._verbs |= {verb: partial(self._asks, ask) for verb, ask in self.asks.items()}
        self._verbs |= dict.fromkeys(self.writes, self._writes)
        self._verbs |= {"keys": self.list_keys(living=self.listed)} | self.verbs()
        # Verbs of one program run together, in their order.
        self.together = {verb: write.together or write.program for verb, write in self.writes.items()}
        for verb in self.together.values():
            self._verbs.setdefault(verb, self._writes)

    # --- what a structure defines ---------------------------------------------------------------------------------

    def made(self) -> Iterable[str]:
        """Return the statements that make its tables and indexes."""
        return self.tables

    def timing(self) -> Mapping[Column, str]:
        """Return what reads need of the declaration, beside the structure's time."""
        return {}

    def programs(self) -> Iterable[Program]:
        """Return the programs, one for each verb that writes; those for many rows are made on servers."""
        raise NotImplementedError

    def written(self) -> Mapping[str, Write]:
        """Return what the verbs that write call, besides those of programs `clear` and `forget`."""
        return {}

    def asked(self) -> Mapping[str, Ask]:
        """Return what the verbs that only read ask."""
        return {}

    def verbs(self) -> dict[str, Verb]:
        """Return what runs the operations of verbs that are neither of these."""
        return {}

    # --- calls ----------------------------------------------------------------------------------------------------

    def program(self, verb: str) -> Program:
        return self._programs[verb]

    def _now(self, verb: str, context: Context) -> Row:
        # The moment that SQLite's program of a verb is given; one that does not use it does not ask the store's clock.
        return self.moment(context) if verb in self._timed else (0,)

    def refusals(self, verb: str) -> Mapping[str, int]:
        """Return the outcomes with which a program refuses a row, by what a stranger is told."""
        return self._refused_as[verb]

    def call(self, verb: str, rows: Sequence[Row], context: Context) -> Calling:
        """Call a program for each row, on servers in the order of their keys; return an outcome for each."""
        if self._by_store:
            return (yield from self.on_file(verb, rows, context))
        order = sorted(range(len(rows)), key=lambda place: rows[place][: self.lock_width])
        ordered = [rows[place] for place in order]
        if len(rows) >= SOME and (many := self._programs.get(f"{verb}_all")) is not None and not context.joined:
            found = yield from self.call_all(many, ordered)
        else:
            found = yield from self.call_each(verb, ordered)
        return in_place(order, found)

    def on_file(self, verb: str, rows: Sequence[Row], context: Context) -> Calling:
        """Call a program on SQLite for each row, in their order; return the outcomes."""
        now, direct = self._now(verb, context), self._many.get(f"{verb}_all")
        if direct and len(rows) > 1:
            yield Statement(direct, rows)
            return [None] * len(rows)
        # What is asked around the calls is right for calls of different keys; a row that is refused ends its statement.
        rounds = [[place] for place in range(len(rows))]
        if not context.careful and verb not in self._asked_around:
            rounds = [[*range(len(rows))]]
        elif not context.careful and self.apart and (verb in self.optimistic or not self.refusals(verb)):
            rounds = in_rounds([row[: self.key_width] for row in rows])
        found: list[Any] = []
        for places in rounds:
            found += yield from self._call_on_file(verb, [rows[place] + now for place in places])
        return in_place(chain.from_iterable(rounds), found)

    def _call_on_file(self, verb: str, rows: Sequence[Row]) -> Calling:
        # What the trigger does to rows is told by what is asked around the call.
        program, (first, last) = self._programs[verb], self._asked_around.get(verb, (None, None))
        before = [next(iter(each), None) for each in (yield first.statement(rows))] if first else [None] * len(rows)
        called = [row for row, found in zip(rows, before, strict=True) if found is None or not program.idle(found)]
        try:
            if called:
                yield Statement(self._many[verb], called)
        except StatementFailed as error:
            # SQLite's trigger has given it by RAISE.
            outcome = next((outcome for message, outcome in self._refusals.items() if message in str(error)), None)
            if outcome is None:
                raise
            if len(rows) > 1:
                raise Careful from None  # one by one: some may have been stored before the one that is refused
            return [outcome]
        after = [next(iter(each), None) for each in (yield last.statement(rows))] if last else [None] * len(rows)
        return [program.tell(*found) for found in zip(before, after, strict=True)]

    def call_all(self, program: Program, rows: Sequence[Row]) -> Calling:
        """Call the set form of a program on a server; return the outcomes, None for each if it gives none."""
        template = self._many[program.verb]
        outcomes: list[Any] = []
        if self.dialect.family == "postgresql":
            for _, part in parts(rows, len(rows), MOST_ARRAY_BYTES):
                found = yield Statement(template, part)
                told = [row[0] for row in found[0]] if program.gives else [None] * len(part)
                outcomes += yield from self.completed(part, told)
            return outcomes
        for _, part in parts(rows, MOST_JSON_ROWS, MOST_JSON_LENGTH):
            given = self.placed(part)
            if given is None:
                outcomes += yield from self.call_each(program.verb.removesuffix("_all"), part)
                continue
            called = Statement(template, [(in_json(given),)])
            answers = yield Together((called, Statement(results(1), [()]))) if program.gives else called
            by_place = json.loads(answers[1][0][0][0] or "{}") if program.gives else {}
            told = [by_place.get(str(place)) for place in range(1, len(part) + 1)]
            outcomes += yield from self.completed(part, told)
        return outcomes

    def placed(self, rows: Sequence[Row]) -> Sequence[Row] | None:
        """Return what a set form on MariaDB and MySQL is given for rows; None if they are to be called one by one."""
        return rows

    def completed(self, rows: Sequence[Row], outcomes: list[Any]) -> Calling:
        """Return the outcomes of the rows of one call of a set form, before the next is made."""
        yield from ()
        return outcomes

    def call_each(self, verb: str, rows: Sequence[Row]) -> Calling:
        """Call a program on a server, once for each row; return the outcomes."""
        return self.call_several([(verb, rows)])

    def call_several(self, calls: Sequence[tuple[str, Sequence[Row]]]) -> Calling:
        """Call programs on a server, each once for each of its rows, together; return the outcomes of all."""
        gives = {verb: len(self._programs[verb].gives) for verb, _ in calls}
        if self.dialect.family == "postgresql":
            pieces = [(verb, part) for verb, rows in calls for _, part in parts(rows, len(rows), MOST_ARRAY_BYTES)]
            statements = [Statement(self._many[verb], part) for verb, part in pieces]
            answers = (yield Together(statements)) if 1 < len(calls) == len(pieces) else []
            for statement in statements[len(answers) :]:
                answers.append((yield statement))
            told = zip(pieces, answers, strict=True)
            return [_outcome(found[0], gives[verb]) for (verb, _), answer in told for found in answer]
        outcomes: list[Any] = []
        single = [(verb, row) for verb, rows in calls for row in rows]
        for begin in range(0, len(single), MOST_CALLS):
            part, statements, width = single[begin : begin + MOST_CALLS], [], 0
            for verb, row in part:
                statements.append(Statement(calling(self._one[verb], width, gives[verb]), [row]))
                width += gives[verb]
            if width:
                statements.append(Statement(results(width), [()]))
            *_, last = yield Together(statements)
            values = iter(last[0][0] if width else ())
            outcomes += [_outcome([next(values) for _ in range(gives[verb])], gives[verb]) for verb, _ in part]
        return outcomes

    def run(self, operations: Operations, context: Context) -> Plan:
        if context.nowait and self.seize is not None:
            yield Statement(self.seize, self.seized(operations))
        results = yield from self._run(operations, context)
        if self.expires and not context.joined and (written := [op for op in operations if op.writes]):
            self._owed += sum([len(self.writes[op.verb].rows(op)) for op in written if op.verb in self.writes])
            if len(operations) > 1 or written[0].verb in RUNS or self._is_due(context):
                yield from self.sweep(context)
        return results

    def _run(self, operations: Operations, context: Context) -> Plan:
        if len(operations) == 1:
            only: list[Any] = yield from self._verbs[operations[0].verb](operations, context)
            return only
        # To lock a key that is not there makes it, which a reader of all keys must not see before it is written. So
        # those that are there are locked in their order, and the others by the operations on both sides of the reader.
        readers = [place for place, op in enumerate(operations, 1) if op.verb in self.of_all]
        if readers and self.dialect.is_server and any(op.writes for op in operations[readers[0] :]):
            if not context.joined:
                yield from self.take_heads(operations, context, makes=False)
            before = yield from self._run(operations[: readers[0]], context)
            return before + (yield from self._run(operations[readers[0] :], context))

        together = groupby(operations, lambda op: self.together.get(op.verb) or op.verb)
        runs = [(verb, list(run)) for verb, run in together]
        if len(runs) > 1:
            yield from self.take_heads(operations, context)
            context = replace(context, locked=True)
        results: list[Any] = []
        for verb, run in runs:
            results += yield from self._verbs[verb](run, context)
        return results

    def _writes(self, run: Operations, context: Context) -> Plan:
        # The operations of programs that run together.
        made = [(self.writes[op.verb], op, self.writes[op.verb].rows(op)) for op in run]
        calls = [(write.program, row) for write, _, rows in made for row in rows]
        programs = {program for program, _ in calls}
        outcomes: list[Any] = []
        if len(programs) == 1:
            outcomes = yield from self.call(calls[0][0], [row for _, row in calls], context)
        elif programs:
            locks = [] if context.locked or self._by_store else self.locks(run, context)
            outcomes = yield from self._call_mixed(calls, locks, context)
        told = iter(outcomes)
        results = [write.result(op, list(islice(told, len(rows)))) for write, op, rows in made]
        for (_, op, rows), result in zip(made, results, strict=True):
            if isinstance(result, Error) and len(rows) > 1 and op.verb not in RUNS:
                raise result  # its other rows may be stored: the batch is undone, and run without it
        return results

    def _call_mixed(self, calls: Sequence[tuple[str, Row]], locks: Sequence[Row], context: Context) -> Calling:
        # On servers behind one that takes all locks; on MariaDB only if a key's first call would not make its head.
        groups = in_turns(calls, self.apart)
        if self.dialect.family == "mariadb" and self.apart:
            order = sorted(range(len(calls)), key=lambda place: calls[place][1][: self.lock_width])
            groups = [(program, [*places]) for program, places in groupby(order, lambda place: calls[place][0])]
            makes = {write.program for write in self.writes.values() if write.makes}
            firsts = {row[: self.lock_width]: program for program, row in reversed(calls)}
            locks = locks if any(firsts.get(tuple(key)) not in makes for *key, made in locks if made) else ()
        given = [(program, [calls[place][1] for place in places]) for program, places in groups]
        found: list[Any] = []
        if self._by_store:
            for program, rows in given:
                found += yield from self.call(program, rows, context)
        else:
            locking = [("lock", locks)] if locks and "lock" in self._programs else []
            found = (yield from self.call_several([*locking, *given]))[len(locks) if locking else 0 :]
        return in_place(chain.from_iterable(places for _, places in groups), found)

    def _single(self, write: Write, op: Operation[Any], context: Context) -> Transaction | Exchange | None:
        # One operation as a transaction of its own; None: a batch, if it has several rows, or expired ones are to go.
        rows = write.rows(op)
        if len(rows) != 1 or op.verb in RUNS or (self.expires and not context.joined and self._is_due(context)):
            return None
        if self.dialect.is_server:
            return self._single_exchange(write, op, rows[0], context)
        return self._single_on_file(write, op, rows[0] + self._now(write.program, context))

    def _single_on_file(self, write: Write, op: Operation[Any], given: Row) -> Transaction:
        around = self._asked_around.get(write.program)
        if around is None:
            yield self._one[write.program], given
            return write.result(op, [None])
        first, last = around
        before = (yield first.sql, first.row(given)) if first else []
        yield self._one[write.program], given
        after = (yield last.sql, last.row(given)) if last else []
        outcome = self._programs[write.program].tell(next(iter(before), None), next(iter(after), None))
        result = write.result(op, [outcome])
        if isinstance(result, Error):
            raise Careful
        return result

    def _single_exchange(self, write: Write, op: Operation[Any], row: Row, context: Context) -> Exchange | None:
        # An outcome that is not a small number from 0 on is for a batch, which is asked the same again.
        call, gives = self._one[write.program], self._programs[write.program].gives
        on_postgresql = self.dialect.family == "postgresql"
        outs = [f'a."{each.name}"' for each in gives]
        if not on_postgresql:
            outs = ["`the count`", *(f"@roost_{place}" for place in range(1, len(gives)))][: len(gives)]
        answer, source = _BOUNDED.format(outs[0]) if outs else "0", "FROM a"
        result: Callable[[int], Any] | None = None
        if write.answer is not None:
            if (answering := write.answer(op, context)) is None:
                return None
            text, result = answering
            found = text.format(**{each.name: out for each, out in zip(gives, outs, strict=True)})
            answer, source = _BOUNDED.format(found), f"FROM a WHERE ({found}) IS NOT NULL"
        elif gives:
            # A refusal is an answer, too. The application's transaction undoes it, with what was made before it.
            least = 0 if context.joined else min(self.refusals(write.program).values(), default=0)
            answer, more = _BOUNDED.format(f"{outs[0]} - ({least})" if least else outs[0]), [None] * (len(gives) - 1)
            result = lambda outcome: write.result(op, [(outcome + least, *more) if more else outcome + least])  # noqa: E731
        if on_postgresql:
            named = f'a ("{gives[0].name}")' if len(gives) == 1 else "a"
            return Exchange(f"{named} AS (SELECT o.* FROM {call} AS o)", row, answer, source, result)
        return Exchange(call.format(result="".join(f", {each}" for each in outs)), row, answer, "", result)

    # --- what expires ---------------------------------------------------------------------------------------------

    def _is_due(self, context: Context) -> bool:
        # Whether expired rows are to be deleted, and the time to be stored; counts a write.
        self._owed += 1
        return self._owed >= SWEEPS or abs(microseconds(context.clock()) - self._swept) >= SECOND

    def sweep(self, context: Context) -> Generator[Wanted, Any, None]:
        """Delete expired rows, whoever's, in a transaction of the store's own; store the structure's time."""
        most, self._owed, self._swept = min(SWEPT * self._owed, MOST_SWEPT), 0, microseconds(context.clock())
        if self._by_store:
            yield execute(self._one["sweep"], most, *self.moment(context))
        else:
            yield from self.call_each("sweep", [(most,)])

    def expired(self) -> tuple[str, str]:
        """Return the table whose rows expire, and the condition of those that have: a query's, with `timed`."""
        return self.rows_table, f"until <= {self.now}"

    # --- locks ----------------------------------------------------------------------------------------------------

    def lock_program(self) -> Program:
        """Return the program that locks the heads of keys that operations of several kinds write."""
        columns = self.layout[self.head_table if self.heads else self.rows_table][self.key_width :]
        given = [*self.structure.key.columns, MAKES]
        return Program("lock", given, lambda w: iter([Head(columns, f"{w.new(MAKES.name)} = 1", self.first)]))

    def row_locks(self) -> Iterator[Program]:
        """Yield the program that locks the row of a key that is written, where the rows are their own heads."""

        def steps(w: Words) -> Iterator[Step]:
            yield Let("there", f"SELECT 1 FROM {w.rows} WHERE {w.mine()} FOR UPDATE")

        if self.dialect.is_server:
            yield Program("lock", [*self.structure.key.columns, MAKES], steps)

    def seized(self, operations: Operations) -> list[Row]:
        """Return the keys that operations write, in the order of locks; with them `seize` locks their rows."""
        return sorted({head for op in operations if op.writes for head in self.heads_of(op)})

    def locks(self, operations: Operations, context: Context) -> list[Row]:
        """Return the keys that operations write, in their order, each with whether its head is made."""
        made = {key for op in operations if op.writes and self._makes(op) for key in self.heads_of(op)}
        return [(*key, int(key in made)) for key in self.seized(operations)]

    def _makes(self, op: Operation[Any]) -> bool:
        return op.verb not in self.writes or self.writes[op.verb].makes

    def take_heads(self, operations: Operations, context: Context, *, makes: bool = True) -> Generator[Any, Any, None]:
        """Lock what operations of several kinds write, in key order.

        makes: whether heads that are missing are made, where an operation makes them.
        """
        if self.dialect.is_server and "lock" in self._programs and (keys := self.locks(operations, context)):
            yield from self.call_each("lock", keys if makes else [(*key[:-1], 0) for key in keys])

    def heads_of(self, op: Operation[Any]) -> Iterable[Row]:
        if op.verb in self.writes:
            return {row[: self.key_width] for row in self.writes[op.verb].rows(op)}
        return super().heads_of(op)

    def ends(self, w: Words) -> Mapping[str, str]:
        """Return what a row that is written now has in its column `until`, where rows expire."""
        lasts: int = getattr(self.structure, "keep_for", None) or 0
        return {"until": f"{w['now']} + {lasts * SECOND}"} if self.expires else {}

    def remember(self, w: Words, mine: str) -> Iterable[Do]:
        """Return what is done before rows of a key are removed, given the condition of that key."""
        return ()

    def key_of(self, op: Operation[Any]) -> Sequence[Row]:
        """Return the stored key of an operation that concerns a whole key, as the only row of a call."""
        return [self.key_out(op.args[0])]


_BOUNDED = "CASE WHEN {0} BETWEEN 0 AND 1099511627774 THEN ({0}) END"  # less than MOST_ANSWER


def _outcome(values: Sequence[Any], width: int) -> Any:
    return values[0] if width == 1 else tuple(values) if width else None
