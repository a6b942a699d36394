"""Everything Roost does, played in every way against a model: for databases whose settings are not the defaults."""

from __future__ import annotations

import asyncio
import datetime as dt
import enum
import pickle
import random
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import psycopg

import roost
from roost.store import bursts
from tests.model.model import Model
from tests.suite.ways import WAYS, App

ROOT = Path(__file__).parents[2]
RunAll = Callable[..., Sequence[Any]]
NO_OPTIONS: Mapping[str, Any] = {}


class Colour(enum.Enum):
    QUOTED = 'wh"ite'
    BACKSLASH = "bl\\ack"
    NULL = "NULL"
    BRACED = "{red}"
    SINGLE = "it's"


class Level(enum.IntEnum):
    LOW = -1
    HIGH = 2**40


@dataclass(frozen=True)
class Row:
    uid: str
    visitor: str
    number: int
    ratio: float
    blob: bytes
    flag: bool
    moment: dt.datetime
    day: dt.date
    price: Annotated[Decimal, roost.decimal(38, 10)]
    ident: uuid.UUID
    colour: Colour
    level: Level
    note: str | None = None
    half: float | None = None
    raw: bytes | None = None
    seen: dt.datetime | None = None
    cost: Annotated[Decimal, roost.decimal(12, 2)] | None = None

    def __deepcopy__(self, _: Any) -> Row:
        return self  # it never changes, and the model copies all it has before each atom


@dataclass(frozen=True)
class Longer(Row):
    title: str = "a \\ 'b' \"c\" {d}"
    mark: bytes = b"\\x00\0\xff'"
    mood: Colour = Colour.BACKSLASH
    since: dt.datetime = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
    share: float = 0.1 + 0.2
    kept: str | None = None


TEXTS = ["", "NULL", "null", 'a"b', "it's", "back\\slash", "\\", "\\x41", "{a,b}", "a,b", "%s", "$1", "\n"]
TEXTS += ["E'x'", "é\xff"]
EMOJI = ["😀", "日本"]
FLOATS = [0.1 + 0.2, 1e-310, 5e-324, -1.5e308, 0.0, 1 / 3, 123456789.123456789]
BLOBS = [b"", b"\0", b"\\", b"\\x41", b"'\"{}", bytes(range(255))]
MOMENTS = [
    dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC),
    dt.datetime(2026, 2, 1, 3, 4, 5, 6, dt.UTC),
    dt.datetime(1883, 11, 18, 17, tzinfo=dt.UTC),  # when New York's minutes were not whole
]
DAYS = [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2026, 2, 1)]
# asyncpg takes the first and the last of both for infinity, and Roost refuses to send them by it.
INSTANT, DAY = dt.timedelta(microseconds=1), dt.timedelta(days=1)
FINITE = [MOMENTS[0] + INSTANT, MOMENTS[1] - INSTANT, *MOMENTS[2:]]
FINITE_DAYS = [DAYS[0] + DAY, DAYS[1] - DAY, *DAYS[2:]]
PRICES = [Decimal("0E-10"), Decimal("-1234567890123456789012345678.0123456789"), Decimal("0.0000000001")]
IDENTS = [uuid.UUID(int=0), uuid.UUID(int=2**128 - 1)]

totals = roost.Counter("totals")
ring = roost.Ring("ring", Row, per="uid", keep=3)
evicting = roost.Capped("evicting", Row, per="uid", keep=3, unique="visitor")
rejecting = roost.Capped("rejecting", Row, per="uid", keep=3, unique="visitor", on_full="reject")
refreshing = roost.Capped("refreshing", Row, per="uid", keep=3, unique="visitor", on_duplicate="refresh")
texts = roost.Set("texts")
SETS: dict[Any, list[Any]] = {
    texts: TEXTS,
    roost.Set("blobs", key=bytes, member=bytes): BLOBS,
    roost.Set("moments", key=dt.datetime, member=dt.datetime): MOMENTS,
    roost.Set("days", key=dt.date, member=dt.date): DAYS,
    roost.Set("prices", key=roost.decimal(38, 10), member=roost.decimal(38, 10)): PRICES,
    roost.Set("idents", key=uuid.UUID, member=uuid.UUID): IDENTS,
    roost.Set("colours", key=Colour, member=Colour): list(Colour),
    roost.Set("levels", key=Level, member=Level): list(Level),
    roost.Set("flags", key=bool, member=bool): [False, True],
}
ROWS: list[Any] = [ring, evicting, rejecting, refreshing]
ALL = [totals, *ROWS, *SETS]


class Play:
    """Random atoms, each answered as the model says."""

    def __init__(self, seed: int, texts: list[str], number: int) -> None:
        self.number = number
        self.random = random.Random(seed)
        self.texts = texts
        self.moments, self.days = MOMENTS, DAYS
        self.model = Model()

    def values(self, structure: Any) -> list[Any]:
        """Return what keys and members of a set are chosen from."""
        chosen: dict[str, list[Any]] = {"texts": self.texts, "moments": self.moments, "days": self.days}
        return chosen.get(structure.name) or SETS[structure]

    def row(self) -> Row:
        """Return a row of values that are easily mangled."""
        some = self.random.choice
        keys = self.texts[:2] + self.texts[-2:]
        return Row(
            some(keys), some(self.texts), some([0, -(2**63), 2**63 - 1]), some(FLOATS), some(BLOBS),
            some([False, True]), some(self.moments), some(self.days), some(PRICES), some(IDENTS), some(list(Colour)),
            some(list(Level)),
            some([None, *self.texts]), some([None, *FLOATS]), some([None, *BLOBS]), some([None, *self.moments]),
            some([None, Decimal("0.10")]),
        )  # fmt: skip

    def operation(self) -> roost.Operation[Any]:
        """Return an operation of any structure."""
        some = self.random.choice
        kind = some(["counter", "rows", "rows", "set"])
        if kind == "counter":
            key = some(self.texts)
            reads = [totals.total(key), totals.totals(self.texts)]
            return some([totals.add(key), totals.add(key, -7), totals.clear(key), *reads])
        if kind == "set":
            structure = some(list(SETS))
            values = self.values(structure)
            key, members = some(values[:3]), self.random.sample(values, min(2, len(values)))
            reads = [structure.members(key), structure.contains(key, members[0]), structure.size(key)]
            return some([structure.add(key, *members), structure.remove(key, members[0]), *reads])
        structure, row = some(ROWS), self.row()
        adds = [structure.push(row)] if structure is ring else [structure.add(row)]
        reads = [structure.latest(row.uid), structure.entries(row.uid)]
        if structure is not ring:
            pair = row.uid, row.visitor
            reads += [structure.get(*pair), structure.remove(*pair), structure.count(row.uid)]
        return some([*adds * len(reads), *reads])

    def atoms(self) -> Iterator[list[roost.Operation[Any]]]:
        """Yield atoms, large ones among them, in which arrays have many values, None among them."""
        for _ in range(self.number):
            yield [self.operation() for _ in range(self.random.choice([1, 1, 3, 12]))]
        yield [ring.push(self.row()) for _ in range(12)]
        yield [refreshing.add(self.row()) for _ in range(6)]
        # Alone: what lists keys sees those that others of its atom are about to add, as their locks are taken first.
        yield [totals.keys(self.random.choice(self.texts))]
        for structure in ROWS:
            yield [structure.keys()]

    def run(self, run_all: RunAll) -> None:
        """Play, and then read everything."""
        for atom in self.atoms():
            self.compare(run_all, atom)
        self.read(run_all)

    def read(self, run_all: RunAll) -> None:
        """Read everything."""
        self.compare(run_all, [totals.top(100)])
        self.compare(run_all, [totals.totals(self.texts)])
        for structure in ROWS:
            self.compare(run_all, [structure.latest(text) for text in self.texts])
        for structure in SETS:
            self.compare(run_all, [structure.members(value) for value in self.values(structure)])

    def compare(self, run_all: RunAll, atom: Sequence[roost.Operation[Any]]) -> None:
        """Run an atom on both."""
        expected = self.model.run_all(atom)
        try:
            found: Any = tuple([_plain(each) for each in run_all(*atom)])
        except (roost.Duplicate, roost.Full, roost.Overflow) as error:
            found = type(error)
        assert found == expected, f"{atom}\n{found}\n{expected}"


def _plain(result: Any) -> Any:
    if isinstance(result, list) and result and isinstance(result[0], roost.Entry):
        return [(entry.sequence, entry.row) for entry in result]
    return result


def play_everything(
    url: str, folder: Path, texts: list[str], whole: bool, django: bool, options: Mapping[str, Any] = NO_OPTIONS
) -> None:
    """Create, and play in every way on the same tables; then cap a table of the application's, alter, and check.

    options: of the application's own connections.
    """
    play = Play(7, texts, 20 if whole else 5)
    with roost.Store(url) as store:
        store.create(*ALL)
        play.run(store.run_all)
        play_asyncio(play, url)
        for way in WAYS:
            brief = way.name in ("psycopg", "psycopg-async", "sqlalchemy-session-psycopg")
            if way.engine == "postgresql" and (whole or brief):
                play_joined(play, way, url, options)
        if django:
            play_django(play, url, folder)
        play_views(play, url, options)
        play.read(store.run_all)
        play_cap(store, url, texts, options)
        assert store.check() == []
        rows = store.run(ring.latest(texts[0]))
        longer = roost.Ring("ring", Longer, per="uid", keep=4)
        store.alter(longer)
        assert store.run(longer.latest(texts[0])) == [Longer(**row.__dict__) for row in rows]
        row = Longer(**{**play.row().__dict__, "uid": texts[0]}, kept=texts[-1])
        store.run(longer.push(row))
        assert store.run(longer.latest(texts[0], 1)) == [row]
        found = {each.name: each for each in store.structures() if each.name != "pages"}
        assert found == {each.name: each for each in [*ALL, longer]}
        assert store.check() == []


def play_asyncio(play: Play, url: str) -> None:
    """Play on an `AsyncStore`."""
    loop = asyncio.new_event_loop()
    store = roost.AsyncStore(url)
    try:
        play.run(lambda *atom: loop.run_until_complete(store.run_all(*atom)))
    finally:
        loop.run_until_complete(store.close())
        loop.close()


def play_joined(play: Play, way: Any, url: str, options: Mapping[str, Any]) -> None:
    """Play inside a transaction of the application's."""
    app = App(way, url, **options)
    if "over asyncpg" in way.capabilities:
        play.moments, play.days = FINITE, FINITE_DAYS
    try:
        play.run(app.run_all)
        app.commit()
    finally:
        play.moments, play.days = MOMENTS, DAYS
        app.close()


def play_django(play: Play, url: str, folder: Path) -> None:
    """Play inside a transaction of Django's, in a process of its own."""
    kept = folder / "play"
    kept.write_bytes(pickle.dumps(play))
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.strange.postgresql_django", url, str(kept)],
        cwd=ROOT, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    made = pickle.loads(kept.read_bytes())
    play.model, play.random = made.model, made.random


def play_views(play: Play, url: str, options: Mapping[str, Any]) -> None:
    """Write by SQL, as a client does that has the session as it comes."""
    with psycopg.connect(url, client_encoding="UTF8", **options) as connection:
        for _ in range(play.number):
            row, some = play.row(), play.random.choice
            key, member = some(play.texts), some(play.texts)
            for operation, sql, values in (
                (totals.add(key, 3), "INSERT INTO totals (key, total) VALUES (%s, 3)", (key,)),
                (ring.push(row), _insert("ring"), _values(row)),
                (refreshing.add(row), _insert("refreshing"), _values(row)),
                (evicting.remove(row.uid, row.visitor), REMOVE, (row.uid, row.visitor)),
                (texts.add(key, member), "INSERT INTO texts (key, member) VALUES (%s, %s)", (key, member)),
            ):  # fmt: skip
                connection.execute(sql, values)
                play.model.run_all([operation])


REMOVE = "DELETE FROM evicting WHERE uid = %s AND visitor = %s"


def _insert(name: str) -> str:
    return f"INSERT INTO {name} ({', '.join(Row.__dataclass_fields__)}) VALUES ({', '.join(['%s'] * 17)})"


def _values(row: Row) -> list[Any]:
    return [value.value if isinstance(value, enum.Enum) else value for value in row.__dict__.values()]


def play_cap(store: roost.Store, url: str, texts: list[str], options: Mapping[str, Any]) -> None:
    """Cap a table of the application's, and write it by Roost and by SQL."""
    made = (
        "CREATE TABLE pages (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, uid text, moment timestamptz,"
        " local timestamp, day date, took interval, blob bytea, price numeric, ratio float8, note text)"
    )
    with psycopg.connect(url, autocommit=True, client_encoding="UTF8", **options) as connection:
        connection.execute(made)
        connection.execute("CREATE INDEX ON pages (uid, id)")
        list(bursts.cap(store, bursts.inspect(store, "pages", ["uid"], 2, None)))
        pages = roost.Capped.of("pages")
        facts: dict[str, Any] = {}
        for number, text in enumerate(texts * 2):
            facts = {
                "moment": MOMENTS[number % 4], "local": dt.datetime(2026, 2, 1, 3, 4, 5, 6), "day": DAYS[number % 3],
                "blob": BLOBS[number % 6], "price": PRICES[number % 3], "ratio": FLOATS[number % 7], "note": text,
            }  # fmt: skip
            store.run(pages.add(uid=texts[0], **facts))
            connection.execute("INSERT INTO pages (uid, took) VALUES (%s, '1 day 02:03:04.5')", (text,))
        assert connection.execute("SELECT max(n) FROM (SELECT count(*) n FROM pages GROUP BY uid) c").fetchone() == (2,)
        with psycopg.connect(url, client_encoding="UTF8", **options) as other:
            for run in (store.run, store.on(other).run):
                (row,) = run(pages.latest(texts[0], 1))
                assert {name: getattr(row, name) for name in facts} == facts
                (row,) = run(pages.latest(texts[-1], 1))
                assert row.took == dt.timedelta(days=1, hours=2, minutes=3, seconds=4.5)
                assert run(pages.keys()) == sorted(texts)
