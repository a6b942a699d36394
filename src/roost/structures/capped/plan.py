"""Capped: read under the head's lock all that a refusal depends on, simulate the run in Python, write the result."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from roost.dialects.dialect import (
    Answer,
    Control,
    Dialect,
    Exchange,
    Gather,
    Row,
    Statement,
    Template,
    Together,
    Wanted,
)
from roost.errors import Error
from roost.structures.capped.adds import OptimisticAdds, Request
from roost.structures.capped.alter import ALTERATIONS
from roost.structures.capped.check import rules
from roost.structures.capped.declaration import Capped
from roost.structures.capped.reads import FIND, HEAD, OLDEST, OLDEST_ONE, places
from roost.structures.capped.simulation import Game, Miscounted
from roost.structures.capped.view import VIEWS
from roost.structures.capped.wire import CappedWire
from roost.structures.operation import Operation
from roost.structures.plan import (
    AT,
    CUT,
    SEQUENCE,
    Alteration,
    Careful,
    Context,
    Locked,
    N,
    Operations,
    Plan,
    Question,
    Rule,
    StructurePlan,
    Transaction,
    by_key,
    composed,
    each,
    is_locked,
    locking,
    nth,
    replaced,
    same,
    same_columns,
    write,
)
from roost.structures.rows import Entry
from roost.types.columns import Column

PUT_ROW = {
    "sqlite": write(
        """\
INSERT INTO {rows} ({columns}) VALUES ({holes})
  ON CONFLICT ({pairs}) DO UPDATE SET {excluded}""",
        "{holes}",
    ),
    "mariadb": Template(
        "INSERT INTO {rows} ({columns}) VALUES {{rows}}\n  ON DUPLICATE KEY UPDATE {values}", Gather.VALUES
    ),
    "mysql": Template(
        "INSERT INTO {rows} ({columns}) VALUES {{rows}} AS new\n  ON DUPLICATE KEY UPDATE {new}", Gather.VALUES
    ),
    "postgresql": Template(
        """\
INSERT INTO {rows} ({columns}) SELECT * FROM unnest({arrays})
  ON CONFLICT ({pairs}) DO UPDATE SET {excluded}""",
        Gather.ARRAYS,
    ),
}

PUT_HEAD = {
    "sqlite": write(
        """\
INSERT INTO {head} ({key}, sequence, n) VALUES ({key_holes}, ?, ?)
  ON CONFLICT ({key}) DO UPDATE SET sequence = excluded.sequence, n = excluded.n""",
        "{key_holes}, ?, ?",
    ),
    "mariadb": Template(
        """\
INSERT INTO {head} ({key}, sequence, n) VALUES {{rows}}
  ON DUPLICATE KEY UPDATE sequence = VALUES(sequence), n = VALUES(n)""",
        Gather.VALUES,
    ),
    "mysql": Template(
        """\
INSERT INTO {head} ({key}, sequence, n) VALUES {{rows}} AS new
  ON DUPLICATE KEY UPDATE sequence = new.sequence, n = new.n""",
        Gather.VALUES,
    ),
    "postgresql": Template(
        """\
INSERT INTO {head} ({key}, sequence, n) SELECT * FROM unnest({key_arrays}, %s::bigint[], %s::bigint[])
  ON CONFLICT ({key}) DO UPDATE SET sequence = excluded.sequence, n = excluded.n""",
        Gather.ARRAYS,
    ),
}

# Creates or locks the head, and changes nothing. MariaDB also returns its contents.
LOCK = {
    "sqlite": None,
    "mariadb": Template(
        """\
INSERT INTO {head} ({key}, sequence, n) VALUES {{rows}} ON DUPLICATE KEY UPDATE n = n
  RETURNING {key}, sequence, n""",
        Gather.VALUES,
        Answer.KEY,
    ),
    "mysql": Template(
        "INSERT INTO {head} ({key}, sequence, n) VALUES {{rows}} ON DUPLICATE KEY UPDATE n = n", Gather.VALUES
    ),
    "postgresql": Template(
        """\
INSERT INTO {head} ({key}, sequence, n) SELECT * FROM unnest({key_arrays}, %s::bigint[], %s::bigint[])
  ON CONFLICT ({key}) DO UPDATE SET n = 0 WHERE false""",
        Gather.ARRAYS,
    ),
}

HEAD_OPTIONS = {"postgresql": " WITH (fillfactor = 50)"}  # room for HOT updates
ROWS_OPTIONS = {"postgresql": " WITH (fillfactor = 80)"}


class CappedPlan(StructurePlan):
    """A capped collection in one dialect's words."""

    wire = CappedWire

    structure: Capped[Any, Any]
    views = VIEWS
    alterations: ClassVar[Mapping[str, Alteration]] = ALTERATIONS
    together: Mapping[str, str] = {"add": "change", "add_all": "change", "remove": "change"}
    further: ClassVar[tuple[Column, ...]] = ()  # columns after `at`

    def __init__(self, structure: Capped[Any, Any], dialect: Dialect) -> None:
        super().__init__(structure, dialect)
        self.indexes = (f"roost_{structure.name}_{'best' if structure.score else 'newest'}",)
        key, id_ = structure.key.columns, structure.id.columns
        others = [column for column in structure.columns if column not in key and column not in id_]
        quoted = [dialect.name_of(column) for column in others]
        rows, head, name = self.rows_table, self.head_table, dialect.name
        pair, written = (*key, *id_), [*quoted, "sequence", "at", *map(dialect.name_of, self.further)]
        living = self.living()
        equal, hole = dialect.equal(key), dialect.placeholder
        values = dialect.names(structure.columns)
        replacing = dialect, structure.rows.unknown, written
        words = {
            "rows": rows,
            "head": head,
            "index": self.indexes[0],
            "key": dialect.names(key),
            "key_holes": dialect.holes(len(key)),
            "key_arrays": dialect.arrays(key),
            "same_key": dialect.same(key, "r.", "q."),
            "same_head": dialect.same(key, "h.", "q."),
            "ids": dialect.names(id_),
            "r_ids": dialect.names(id_, "r."),
            "pairs": dialect.names(pair),
            "pair_arrays": dialect.arrays(pair),
            "same_pair": dialect.same(pair, "q.", "r."),
            "nth_key": nth(dialect, key),
            "nth_pair": nth(dialect, pair),
            **places(dialect, structure.score),
            "equal": equal,
            "equal_pair": dialect.equal(pair),
            "columns": ", ".join([dialect.names(pair), *written]),
            "holes": dialect.holes(len(structure.columns) + 2 + len(self.further)),
            "arrays": dialect.arrays([*pair, *others, SEQUENCE, AT, *self.further]),
            "excluded": replaced(*replacing, "excluded.{}"),
            "values": replaced(*replacing, "VALUES({})"),
            "new": replaced(*replacing, "new.{}"),
        }
        self.tables = (
            self.create(head, [*key, SEQUENCE, N], words["key"]) + HEAD_OPTIONS.get(name, ""),
            self.create(rows, [*pair, *others, SEQUENCE, AT, *self.further], words["pairs"])
            + ROWS_OPTIONS.get(name, ""),
            f"CREATE INDEX {self.indexes[0]} ON {rows} ({words['key']}, {words['best']})",
        )
        self.head, self.find, self.oldest = (dialect.choose(each).format(words) for each in (HEAD, FIND, OLDEST))
        self.delete_row, self.put_row, self.put_head = (
            dialect.choose(each).format(words) for each in (CUT, PUT_ROW, PUT_HEAD)
        )
        lock = dialect.choose(LOCK)
        self.lock = None if lock is None else replace(lock.format(words), key=len(key))
        self.take = None if lock is None else each(f"SELECT 1 FROM {head} WHERE {equal} FOR UPDATE")
        self.optimistic = OptimisticAdds.made(structure, dialect, words, self.put_head, self.guarded("1"))
        self.recount = each(f"SELECT count(*) FROM {rows} WHERE {equal}")
        reads = (self.head, self.find, self.oldest, self.recount)
        one = name == "mariadb" and structure.score is None
        self.reads = Reads(*reads, OLDEST_ONE.format(words) if one else None)
        self.reads_now = Reads(*(locking(read, dialect) for read in reads))
        self.words = words
        self.get = each(f"SELECT {values} FROM {rows} WHERE {words['equal_pair']}{living}")
        self.latest = each(f"SELECT {values} FROM {rows} WHERE {equal}{living} ORDER BY sequence DESC LIMIT {hole}")
        self.entries = each(
            f"SELECT sequence, at, {values} FROM {rows}"
            f" WHERE {equal}{living} AND sequence > {hole} ORDER BY sequence LIMIT {hole}"
        )
        self.delete = write(f"DELETE {by_key(dialect, rows)} WHERE {equal}")
        self.empty = write(f"UPDATE {head} SET n = 0 WHERE {equal}")
        self.drop = write(f"DELETE FROM {head} WHERE {equal}")
        self.first_keys, self.later_keys = self.key_after(head)

        self.id_out: Callable[[Row], Row] = dialect.encoder(id_) or same
        self._key_of, self._key_columns = self._taking(key)
        self._id_of, self._id_columns = self._taking(id_)
        self._others_of, self._other_columns = self._taking(others)
        self.rows_of = structure.rows.maker(dialect.decoder(structure.columns))
        self._one_insert = f"INSERT INTO {rows} ({words['columns']}) VALUES ({words['holes']})"
        of_key = dialect.equal(key, "r.")
        self._one_head = self.question_sql("r.sequence, r.n", head, of_key)
        r_values = dialect.names(structure.columns, "r.")
        of_id = dialect.equal(id_, "r.")
        self._one_row = self.question_sql(f"r.sequence, {r_values}", rows, f"{of_key} AND {of_id}{living}")
        self._one_count = self.question_sql("r.n", head, of_key)
        self._one_latest = self.question_sql(
            f"r.sequence, {r_values}", rows, of_key + living, f" ORDER BY r.sequence DESC LIMIT {hole}"
        )
        self._at_out, self._at_in = dialect.encoder([AT]) or same, dialect.decoder([AT]) or same

    def _taking(self, columns: Sequence[Column]) -> tuple[Callable[[Row], Row], Callable[[Sequence[Any]], Any]]:
        # Returns functions that take the stored form of these columns from a row's values, and from columns of many
        # rows.
        take = self.structure.rows.taking([column.name for column in columns])
        return (
            composed(self.dialect.encoder(columns) or same, take),
            composed(self.dialect.column_encoder(columns) or same_columns, take),
        )

    def living(self) -> str:
        """Return the condition that a row has not expired, to follow others; `now` returns its parameters."""
        return ""

    def now(self, context: Context) -> Row:
        """Return the parameters of the current moment."""
        return ()

    def stamp(self, context: Context) -> Generator[Wanted, Any, Row]:
        """Return the values of `at` and of the columns after it for new rows."""
        yield from ()
        return self._at_out((context.clock(),))

    def game(self) -> Game:
        """Return the simulation of one key's collection, still without its stored rows."""
        return Game(self.structure)

    def answer(self, op: Operation[Any], played: list[Any]) -> Any:
        """Return the result of an operation, from the results of its rows."""
        if op.verb == "add_all":
            return next((each for each in played if isinstance(each, Error)), None)
        return played[0]

    def rules(self) -> Iterator[Rule]:
        """Return the invariants of its tables."""
        return rules(self, self.structure.keep)

    def heads_of(self, op: Operation[Any]) -> Iterable[Row]:
        """Return the keys, as they are stored, whose heads an operation locks."""
        return map(self._key_of, op.args) if op.verb in ("add", "add_all") else super().heads_of(op)

    def take_heads(self, operations: Operations, context: Context) -> Generator[Wanted, Any, Locked]:
        """Create or lock the heads of keys that get rows, and lock those of the other keys that are written."""
        made = {head for op in operations if op.verb in ("add", "add_all") for head in self.heads_of(op)}
        taken = {head for op in operations if op.writes for head in self.heads_of(op)}
        if not taken:
            return False
        return (yield from self.make_or_take(made, taken, context, 0, 0))[0]

    def plan_change(self, run: Operations, context: Context, locked: Locked) -> Plan:
        """Simulate adds and removes in Python, in their order, and write their net effect."""
        if self.optimistic is not None and locked is False and all([op.verb != "remove" for op in run]):
            columns = list(zip(*[row for op in run for row in op.args], strict=True))
            if not columns:
                return [None] * len(run)
            key_columns, id_columns = self._key_columns(columns), self._id_columns(columns)
            keys: list[Row] = list(zip(*key_columns, strict=True))
            ids: list[Row] = list(zip(*id_columns, strict=True))
            adds = self.optimistic.takes(keys, ids, context)
            if adds is not None:
                (at,) = self._at_out((context.clock(),))
                written = [*key_columns, *id_columns, *self._other_columns(columns)]
                yield from self.optimistic.add(adds, keys, written, at)
                return [None] * len(run)
        asked = [self._requests(op) for op in run]
        requests = [request for of_one in asked for request in of_one]
        if not requests:
            return [self.answer(op, []) for op in run]
        games: dict[Row, Game] = {}
        for request in requests:
            game = games.get(request.key)
            if game is None:
                game = games[request.key] = self.game()
            game.ids[request.id] = 0
            game.adds += request.adds
        named_keys = sorted(games)
        reads = self.reads_now if context.joined else self.reads
        heads = None
        if self.lock is not None and locked is False:
            made = {request.key for request in requests if request.adds}
            locked, written = yield from self.make_or_take(made, set(named_keys), context, 0, 0)
            if self.lock.returns and len(made) == len(named_keys):
                heads = written
        named_keys = [key for key in named_keys if is_locked(key, locked)]
        if heads is None:
            heads = yield Statement(reads.head, named_keys)
        if locked is False:
            yield Control.LOCKED
        for key, rows in zip(named_keys, heads, strict=True):
            games[key].sequence, games[key].n = rows[0] if rows else (0, 0)
        named = [(key, id_) for key in named_keys for id_ in games[key].ids]
        found = yield Statement(reads.find, [key + id_ for key, id_ in named])
        for (key, id_), rows in zip(named, found, strict=True):
            if rows:
                games[key].find(id_, rows[0])
        yield from self._look_at_oldest({key: games[key] for key in named_keys if games[key].may_evict()}, reads)
        results: list[Any] = []
        for op, of_one in zip(run, asked, strict=True):
            played: list[Any] = []
            for request in of_one:
                game = games[request.key]
                try:
                    answer = game.play(request)
                except Miscounted:
                    found = yield Statement(reads.recount, [request.key])
                    game.mend(found[0][0][0])
                    yield from self._look_at_oldest({request.key: game}, reads)
                    answer = game.play(request)
                played.append(answer)
            results.append(self.answer(op, played))
        yield from self._write(games, context)
        return results

    def transact_add(self, op: Operation[Any], context: Context) -> Transaction | None:
        """Add one new row; if the collection is full, delete the oldest."""
        return self._one(op, context)

    def _one(self, op: Operation[Any], context: Context) -> Transaction:
        values, keep = op.args[0], self.structure.keep
        key = self._key_of(values)
        id_ = self._id_of(values)
        others = self._others_of(values)
        refresh = self.structure.on_duplicate == "refresh"
        there = bool((yield self.find.sql, key + id_)) if refresh else False
        found = yield self._one_head, key
        if not found:
            raise Careful  # the declaration is not stored
        sequence, n = (found[0][0] or 0) + 1, found[0][1] or 0
        if not there and n == keep:
            if self.structure.on_full != "evict":
                raise Careful
            oldest = yield self.oldest.sql, (*key, 1)
            if not oldest or oldest[0][-1] > sequence - keep or oldest[0][:-1] == id_:
                raise Careful  # the count is wrong, or the id is a duplicate
            yield self.delete_row.sql, (*key, *oldest[0][:-1])
        elif not there:
            n += 1
        if n > keep:
            raise Careful
        yield self.put_head.sql, (*key, sequence, n)
        (at,) = self._at_out((context.clock(),))
        yield self.put_row.sql if there else self._one_insert, (*key, *id_, *others, sequence, at)

    def exchange_add(self, op: Operation[Any], context: Context) -> Exchange | None:
        """Add one new row; if the collection is full, delete the oldest."""
        if self.optimistic is None:
            return None
        values = op.args[0]
        (at,) = self._at_out((context.clock(),))
        parts = self._key_of(values), self._id_of(values), self._others_of(values)
        return self.optimistic.exchange(*parts, at, context.joined)

    def _requests(self, op: Operation[Any]) -> list[Request]:
        if op.verb == "remove":
            key, id_ = op.args
            return [Request(self.key_out(key), self.id_out(id_), None, op)]
        adds = [op] if op.verb == "add" else [Operation(op.structure, "add", (row,)) for row in op.args]
        return [
            Request(self._key_of(row), self._id_of(row), self._others_of(row), add)
            for row, add in zip(op.args, adds, strict=True)
        ]

    def _look_at_oldest(self, games: dict[Row, Game], reads: Reads) -> Plan:
        wanted = {key: game.victims() for key, game in games.items()}
        one = [key for key, n in wanted.items() if n == 1 and reads.oldest_one is not None]
        if one:
            assert reads.oldest_one is not None
            found = yield Statement(reads.oldest_one, one)
            self._line_up([games[key] for key in one], found)
        more = [(*key, n) for key, n in wanted.items() if n > 1 or reads.oldest_one is None]
        if more:
            found = yield Statement(reads.oldest, more)
            self._line_up([games[row[:-1]] for row in more], found)
        return []

    def _line_up(self, games: Sequence[Game], found: Sequence[Sequence[Row]]) -> None:
        for game, rows in zip(games, found, strict=True):
            game.line_up(rows)

    def _write(self, games: dict[Row, Game], context: Context) -> Plan:
        stamp = yield from self.stamp(context)
        dead = [key + id_ for key, game in games.items() for id_ in game.dead if id_ not in game.put]
        put = [
            (*key, *id_, *others, sequence, *stamp)
            for key, game in games.items()
            for id_, (others, sequence) in game.put.items()
        ]
        heads = [(*key, game.sequence, game.n) for key, game in games.items() if game.changed]
        statements = [(self.delete_row, dead), (self.put_row, put), (self.put_head, heads)]
        if changes := [Statement(template, rows) for template, rows in statements if rows]:
            yield Together(changes)
        return []

    def plan_get(self, run: Operations, context: Context, _: bool) -> Plan:
        """Look up rows by id."""
        now = self.now(context)
        found = yield Statement(self.get, [self.key_out(op.args[0]) + self.id_out(op.args[1]) + now for op in run])
        return [self.rows_of(rows)[0] if rows else None for rows in found]

    def plan_count(self, run: Operations, context: Context, _: bool) -> Plan:
        """Read the heads."""
        found = yield Statement(self.head, [self.key_out(op.args[0]) for op in run])
        return [rows[0][1] if rows else 0 for rows in found]

    def plan_latest(self, run: Operations, context: Context, _: bool) -> Plan:
        """Read the newest rows by their index."""
        keep, now = self.structure.keep, self.now(context)
        found = yield Statement(self.latest, [(*self.key_out(op.args[0]), *now, op.args[1] or keep) for op in run])
        return [self.rows_of(rows) for rows in found]

    def ask_get(self, op: Operation[Any], context: Context) -> Question:
        """Look up one row by its id."""
        row = self.key_out(op.args[0]) + self.id_out(op.args[1]) + self.now(context)
        return Question(self._one_row, row, self._row)

    def ask_count(self, op: Operation[Any], context: Context) -> Question:
        """Read one head."""
        return Question(self._one_count, self.key_out(op.args[0]) + self.now(context), _count)

    def ask_latest(self, op: Operation[Any], context: Context) -> Question:
        """Read the newest rows of one key."""
        key, n = op.args
        row = (*self.key_out(key), *self.now(context), n or self.structure.keep)
        return Question(self._one_latest, row, self._newest_rows)

    def _row(self, rows: list[Row]) -> Any:
        found = self._newest_rows(rows)
        return found[0] if found else None

    def _newest_rows(self, rows: list[Row]) -> list[Any]:
        return [] if rows[0][0] is None else self.rows_of([row[1:] for row in rows])

    def plan_entries(self, run: Operations, context: Context, _: bool) -> Plan:
        """Read the rows after a sequence by the same index."""
        keep, now = self.structure.keep, self.now(context)
        asked = [(*self.key_out(key), *now, after, n or keep) for key, after, n in [op.args for op in run]]
        found = yield Statement(self.entries, asked)
        return [[Entry(row[0], self._at_in(row[1:2])[0], self.rows_of([row[2:]])[0]) for row in rows] for rows in found]

    def plan_clear(self, run: Operations, context: Context, locked: Locked) -> Plan:
        """Delete a key's rows; the head stays, so the sequence goes on."""
        return (yield from self.remove_keys(run, locked, self.delete, self.empty))

    def plan_forget(self, run: Operations, context: Context, locked: Locked) -> Plan:
        """Delete a key's rows and its head."""
        return (yield from self.remove_keys(run, locked, self.delete, self.drop))


def _count(rows: list[Row]) -> int:
    n: int | None = rows[0][0]
    return 0 if n is None else n


class Reads(NamedTuple):
    """The statements that read what a change depends on."""

    head: Template
    find: Template
    oldest: Template
    recount: Template
    oldest_one: Template | None = None
