"""What is exercised on a strange server, by every way in, beside the dumb model: nothing here knows an engine.

A way in is a function that runs operations as one atom, like `Store.run_all`. All ways write the same structures, and
one model goes with them, so each has to read what the others wrote.
"""

from __future__ import annotations

import datetime as dt
import enum
import json
import os
import random
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Protocol

import roost
from roost.store import bursts
from tests.model.model import Model

ALL_OF_IT = os.environ.get("ROOST_TEST_STRANGE") == "all"
ATOMS = 40 if ALL_OF_IT else 12  # by each way in
SEED = int(os.environ.get("ROOST_TEST_STRANGE_SEED", "7"))


class Colour(enum.Enum):
    PLAIN = "white"
    QUOTED = 'it\'s "red"'
    SLASHED = "blue\\green\\'"
    NULL = "NULL"
    BRACED = "{red}"


class Level(enum.Enum):
    LOW = -1
    HIGH = 2


@dataclass(frozen=True)
class Thing:
    """A row with a column of every type; the model knows its key as `uid` and its id as `visitor`."""

    uid: Annotated[str, roost.text(60)]
    visitor: Annotated[str, roost.text(60)]
    n: int | None = None
    f: float | None = None
    s: Annotated[str, roost.text(60)] | None = None
    b: Annotated[bytes, roost.binary(60)] | None = None
    yes: bool | None = None
    moment: dt.datetime | None = None
    day: dt.date | None = None
    price: Annotated[Decimal, roost.decimal(20, 4)] | None = None
    ident: uuid.UUID | None = None
    colour: Colour | None = None
    level: Level | None = None


@dataclass(frozen=True)
class Longer(Thing):
    """The same with columns that were added, whose rows have these values."""

    title: Annotated[str, roost.text(60)] = "a \\ 'b' \"c\" {d}"
    mark: Annotated[bytes, roost.binary(60)] = b"\\x00\0\xff'"
    mood: Colour = Colour.SLASHED
    since: dt.datetime = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
    share: float = 0.1 + 0.2
    kept: Annotated[str, roost.text(60)] | None = None


counter = roost.Counter("counts", key=roost.text(60))
ring = roost.Ring("things", Thing, per="uid", keep=3)
evicting = roost.Capped("evicting", Thing, per="uid", keep=3, unique="visitor")
rejecting = roost.Capped("rejecting", Thing, per="uid", keep=2, unique="visitor", on_full="reject")
refreshing = roost.Capped("refreshing", Thing, per="uid", keep=3, unique="visitor", on_duplicate="refresh")
members = roost.Set("members", key=roost.text(60), member=roost.text(60))
ROWS: tuple[Any, ...] = (counter, ring, evicting, rejecting, refreshing, members)

TEXTS = [
    "", "a", "A", "a ", "'", "''", '"', "\\", "a\\b", "\\'", "x\\' UNION SELECT 1,2 -- ", "%s %(a)s %%", "é", "😀",
    "NULL", ";", "/*!", "\n\r\t\x1a", "--", "null", "\\x41", "{a,b}", "$1", "E'x'",
]  # fmt: skip
NUL = ["\0", "a\0"]
UTC = dt.UTC
VALUES: dict[str, list[Any]] = {
    "n": [0, -1, 2**63 - 1, -(2**63)],
    "f": [0.0, 0.1 + 0.2, -1.7976931348623157e308, 5e-324, 1e22, 1 / 3],
    "b": [b"", b"'", b"\\", b"\\'\"\0\xff\x80", b"NULL", b"\\x41"],
    "yes": [True, False],
    "moment": [
        dt.datetime(2008, 1, 1, 22, 3, 23, 5, UTC),
        dt.datetime(2024, 3, 31, 2, 30, tzinfo=UTC),
        dt.datetime(1, 1, 1, tzinfo=UTC),
        dt.datetime(1883, 11, 18, 17, tzinfo=UTC),  # when New York's minutes were not whole
        dt.datetime.max.replace(tzinfo=UTC),
    ],
    "day": [dt.date(2008, 2, 29), dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    "price": [Decimal("0.0000"), Decimal("-1234567890123456.7891"), Decimal("0.1000")],
    "ident": [uuid.UUID(int=0), uuid.UUID("5c275c27-0022-4000-8000-00ff5c270a0d")],
    "colour": list(Colour),
    "level": list(Level),
}

# A set of each type, as key and as member.
TYPES: dict[str, Any] = {
    "b": roost.binary(60),
    "yes": bool,
    "moment": dt.datetime,
    "day": dt.date,
    "price": roost.decimal(20, 4),
    "ident": uuid.UUID,
    "colour": Colour,
    "level": Level,
}
SETS: dict[Any, list[Any]] = {
    roost.Set(f"set_of_{name}", key=type_, member=type_): VALUES[name] for name, type_ in TYPES.items()
}
ALL = (*ROWS, *SETS)

RunAll = Callable[..., Sequence[Any]]


class Chooser:
    """Operations at random.

    nul: whether the server's texts can have one.
    empty: whether the client can write a text that is empty.
    encoding: of the database.
    """

    def __init__(self, chance: random.Random, *, nul: bool, empty: bool = True, encoding: str = "utf8") -> None:
        self._chance = chance
        texts = [text for text in [*TEXTS, *(NUL if nul else [])] if text or empty]
        self.texts = [text for text in texts if text.encode(encoding, "ignore").decode(encoding) == text]

    def text(self) -> str:
        """A text that somebody reads wrongly; a few of them often, so that keys get full."""
        return self._chance.choice(self.texts if self._chance.random() < 0.5 else self.texts[:10:3])

    def thing(self) -> Thing:
        """A row with some of its values."""
        given = {name: self._chance.choice(values) for name, values in VALUES.items() if self._chance.random() < 0.6}
        return Thing(self.text(), self.text(), s=self._chance.choice([None, *self.texts]), **given)

    def write(self) -> roost.Operation[Any]:
        """One that a SQL client can ask for, too."""
        made: list[Callable[[], roost.Operation[Any]]] = [
            lambda: counter.add(self.text(), self._chance.randint(-3, 9)),
            lambda: ring.push(self.thing()),
            lambda: evicting.add(self.thing()),
            lambda: rejecting.add(self.thing()),
            lambda: refreshing.add(self.thing()),
            lambda: members.add(self.text(), self.text()),
        ]
        return self._chance.choice(made)()

    def operation(self) -> roost.Operation[Any]:
        """Any operation."""
        chance, text = self._chance, self.text
        if chance.random() < 0.6:
            return self.write()
        if chance.random() < 0.2:
            return self.of_a_set()
        capped = chance.choice([evicting, rejecting, refreshing])
        made: list[Callable[[], roost.Operation[Any]]] = [
            lambda: counter.total(text()),
            lambda: counter.totals(self.texts),
            lambda: counter.top(5),
            lambda: counter.top(50),
            lambda: counter.clear(text()),
            lambda: ring.latest(text()),
            lambda: ring.entries(text()),
            lambda: ring.clear(text()),
            lambda: capped.latest(text(), 2),
            lambda: capped.entries(text()),
            lambda: capped.get(text(), text()),
            lambda: capped.count(text()),
            lambda: capped.remove(text(), text()),
            lambda: capped.clear(text()),
            lambda: members.add(text(), *[text() for _ in range(4)]),
            lambda: members.remove(text(), text(), text()),
            lambda: members.members(text()),
            lambda: members.contains(text(), text()),
            lambda: members.size(text()),
            lambda: ring.keys(n=5),
            lambda: members.keys(text(), n=5),
        ]
        return chance.choice(made)()

    def of_a_set(self) -> roost.Operation[Any]:
        """One of a set of any type."""
        structure = self._chance.choice(list(SETS))
        key, one, other = self._chance.choices(SETS[structure], k=3)
        made = [structure.members(key), structure.contains(key, one), structure.size(key), structure.remove(key, one)]
        found: roost.Operation[Any] = self._chance.choice([structure.add(key, one, other), *made])
        return found


def play(run_all: RunAll, model: Model, chooser: Chooser, chance: random.Random, message: str) -> None:
    """Run atoms, and compare each answer with the model's; in the end all that there is."""
    for _ in range(ATOMS):
        atom = [chooser.operation() for _ in range(chance.choice([1, 1, 2, 5]))]
        # What lists keys stands alone: it sees those that others of its atom are about to add, locked before it reads.
        atom = [op for op in atom if op.verb in ("top", "keys")][:1] or atom
        assert answered(run_all, atom) == model.run_all(atom), (message, atom)
    for atom in ([ring.push(chooser.thing()) for _ in range(12)], [refreshing.add(chooser.thing()) for _ in range(30)]):
        assert answered(run_all, atom) == model.run_all(atom), (message, atom)
    compare(run_all, model, message)


def answered(run_all: RunAll, atom: Sequence[roost.Operation[Any]]) -> Any:
    """Return the results as the model has them, or the class of the error that is the atom's own."""
    try:
        results = run_all(*atom)
    except (roost.Duplicate, roost.Full, roost.Overflow) as error:
        return type(error)
    return tuple([_plain(result) for result in results])


def _plain(result: Any) -> Any:
    if isinstance(result, list):
        return [(each.sequence, each.row) if isinstance(each, roost.Entry) else each for each in result]
    return result


def compare(run_all: RunAll, model: Model, message: str) -> None:
    """Read everything: all that the model has is there, and nothing else."""
    texts = [*TEXTS, *NUL]
    found = model.run_all([each.keys(n=100) for each in ROWS])
    keys = [key for each in found for key in each]
    reads: list[roost.Operation[Any]] = [counter.top(100), *[each.keys(n=100) for each in ROWS]]
    for key in sorted({key for key in keys if key in texts}):
        reads += [counter.total(key), ring.entries(key), members.members(key), members.size(key)]
        for each in (evicting, rejecting, refreshing):
            reads += [each.entries(key), each.count(key)]
    reads += [each.members(value) for each, values in SETS.items() for value in values]
    assert answered(run_all, reads) == model.run_all(reads), message


def emptied(store: roost.Store) -> None:
    """Forget every key, so that a new model is right."""
    for each in ALL:
        for key in store.run(each.keys(n=1000)):
            store.run(each.forget(key))


def altered(store: roost.Store, chooser: Chooser) -> None:
    """Add columns, whose values are in the rows that are there, too."""
    longer = roost.Ring(ring.name, Longer, per="uid", keep=4)
    text = chooser.texts[0]
    rows = store.run(ring.latest(text))
    store.alter(longer)
    assert store.run(longer.latest(text)) == [Longer(**each.__dict__) for each in rows]
    row = Longer(**{**chooser.thing().__dict__, "uid": text}, kept=chooser.texts[-1])
    store.run(longer.push(row))
    assert store.run(longer.latest(text, 1)) == [row]
    assert {each.name: each for each in store.structures()} == {each.name: each for each in [*ALL, longer]}


def play_by_django(databases: dict[str, dict[str, Any]]) -> None:
    """Play on Django's connections, in a process of its own, on structures that hold nothing."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.strange.django_way"],
        env={**os.environ, "ROOST_TEST_DJANGO": json.dumps(databases)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr


class SQLClient(Protocol):
    """A client that knows nothing of Roost, on the strange server."""

    def insert(self, name: str, row: dict[str, Any]) -> None:
        """Insert a row through the view of a structure; None is NULL, and what is neutral is written as its type."""

    def remove(self, name: str, row: dict[str, Any]) -> None:
        """Remove one through the view, by what tells it apart."""

    def count(self, name: str) -> int:
        """Return how many rows the view shows."""


def play_by_sql(client: SQLClient, refused: type[Exception], model: Model, chooser: Chooser, message: str) -> None:
    """Write through the views what the model is told, too.

    refused: the error that the client is given for what is there already, or full.
    """
    for _ in range(ATOMS):
        operation = chooser.write()
        structure, args = operation.structure, operation.args
        if structure is counter:
            row = {"key": args[0][0], "total": args[1]}
        elif structure is members:
            row = {"key": args[0][0], "member": args[1][0][0]}
        else:
            assert isinstance(structure, roost.Ring | roost.Capped)
            row = asdict(structure.rows.make(args[0]))
        try:
            client.insert(structure.name, row)
        except refused:
            assert isinstance(model.run_all([operation]), type), (message, operation)
        else:
            assert not isinstance(model.run_all([operation]), type), (message, operation)
    for key, held in list(model.sets.get("members", {}).items()):
        for member in sorted(held)[:1]:
            if member in chooser.texts and key in chooser.texts:
                client.remove("members", {"key": key, "member": member})
                model.run_all([members.remove(key, member)])
    shown = sum(len(rows) for _, rows in model.rows.get("evicting", {}).values())
    assert client.count("evicting") == shown, message


def capped_table(url: str, sql: Callable[..., Any], table: str, numbered: str) -> None:
    """Cap a table of the application's own, add to it, and see that its newest rows are there.

    sql: runs a statement of the application, with %s for values, and returns the rows.
    numbered: the type of a primary key that the database numbers.
    """
    sql(f"CREATE TABLE {table} (id {numbered}, who VARCHAR(60), note VARCHAR(60))")
    notes = [f"it's \\ {n}" for n in range(12)]
    for n, note in enumerate(notes[:9]):
        sql(f"INSERT INTO {table} (who, note) VALUES (%s, %s)", "a\\'" if n % 3 else "b", note)
    with roost.Store(url) as store:
        found = bursts.inspect(store, table, ["who"], 3, None)
        work = bursts.cap(store, found)
        while True:
            try:
                next(work)
            except StopIteration as stop:
                made = stop.value
                break
        for note in notes[9:]:
            sql(f"INSERT INTO {table} (who, note) VALUES (%s, %s)", "a\\'", note)
        for _ in bursts.work_off(store, made):
            pass
        assert store.check() == []
        assert [row.note for row in store.run(roost.Capped.of(table).latest("a\\'"))] == notes[:8:-1]
        kept = f"SELECT count(*) FROM {table} WHERE who = %s AND note IN (%s, %s, %s)"
        assert sql(kept, "b", *notes[:9:3])[0][0] == 3
        bursts.uncap(store, table)
