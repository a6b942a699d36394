"""What the tests of views share: declarations, what the structures hold, and what SQL clients write."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

import pytest

import roost
from tests.suite.clients import MariaDBClient, SQLiteClient
from tests.suite.shapes import Egg, Visit, likes, pageviews, visits


class Colour(enum.Enum):
    WHITE = "white"
    QUOTED = "it's"


class Level(enum.IntEnum):
    LOW = -1
    HIGH = 2


@dataclass(frozen=True)
class Everything:
    k: int
    i: int | None = None
    f: float | None = None
    s: Annotated[str, roost.text(3)] | None = None
    b: Annotated[bytes, roost.binary(3)] | None = None
    t: bool | None = None
    moment: dt.datetime | None = None
    day: dt.date | None = None
    price: Annotated[Decimal, roost.decimal(5, 2)] | None = None
    whole: Annotated[Decimal, roost.decimal(3, 0)] | None = None
    part: Annotated[Decimal, roost.decimal(2, 2)] | None = None
    ident: uuid.UUID | None = None
    colour: Colour | None = None
    level: Level | None = None


ring = roost.Ring("ring", Everything, per="k", keep=3)
baskets = roost.Capped("baskets", Egg, per="basket", keep=3, unique="egg")
refreshing = roost.Capped("refreshing", Visit, per="uid", keep=3, unique="visitor", on_duplicate="refresh")
rejecting = roost.Capped("rejecting", Visit, per="uid", keep=2, unique="visitor", on_full="reject")
both = roost.Capped("both_ways", Visit, per="uid", keep=2, unique="visitor", on_full="reject", on_duplicate="refresh")
slotted = roost.Counter("slotted", slots=4)


# What the structures hold before each cell.
FILL = [
    pageviews.add("/home", 3),
    pageviews.add("/about", 1),
    *[visits.push(Visit(5, n)) for n in range(1, 8)],
    visits.push(Visit(6, 7)),
    *[baskets.add(Egg(42, n)) for n in range(1, 5)],
    baskets.add(Egg(43, 2)),
    likes.add(7, "ada", "bob"),
    likes.add(8, "ada"),
]


def filled(open_store: Callable[..., roost.Store], name: str) -> roost.Store:
    """Make the structure of that name, and fill it."""
    operations = [each for each in FILL if each.structure.name == name]
    store = open_store(operations[0].structure)
    store.run_all(*operations)
    return store


HELD: dict[str, tuple[str, list[Any]]] = {
    "pageviews": ("key, total", [("/about", 1), ("/home", 3)]),
    "visits": ("uid, sequence, visitor", [(6, 1, 7), (5, 7, 7), (5, 6, 6), (5, 5, 5), (5, 4, 4), (5, 3, 3)]),
    "baskets": (
        "basket, egg, colour, sequence",
        [(43, 2, "white", 1), (42, 4, "white", 4), (42, 3, "white", 3), (42, 2, "white", 2)],
    ),
    "likes": ("key, member", [(7, "ada"), (7, "bob"), (8, "ada")]),
}
COUNTED, PUSHED = [("/about", 1), ("/home", 5)], [(6, 1, 7), (5, 8, 9), *HELD["visits"][1][1:5]]
ADDED = [HELD["baskets"][1][0], (42, 9, "red", 5), *HELD["baskets"][1][1:3]]
LIKED = [(7, "ada"), (7, "bob"), (7, "eve"), (8, "ada")]
WRITES: dict[str, tuple[str, str, str, list[Any]]] = {
    # columns, a row, a row that is refused, what is held after the first
    "pageviews": ("key, total", "'/home', 2", "'/home', NULL", COUNTED),
    "visits": ("uid, visitor", "5, 9", "NULL, 9", PUSHED),
    "baskets": ("basket, egg, colour", "42, 9, 'red'", "42, 4, 'red'", ADDED),
    "likes": ("key, member", "7, 'eve'", "NULL, 'eve'", LIKED),
}
FORMS = [
    "INSERT",
    "INSERT OR ABORT",
    "INSERT OR FAIL",
    "INSERT OR ROLLBACK",
    "INSERT OR IGNORE",
    "INSERT OR REPLACE",
    "REPLACE",
]


def obeys_its_declaration(store: roost.Store, sql: Any, form: str, uid: int = 5) -> None:
    """Fill collections of every `on_full` and `on_duplicate` through their views, in one form of INSERT."""

    def insert(name: str, visitor: int) -> None:
        sql.execute(f"{form} INTO {into(sql, name)} (uid, visitor) VALUES (?, ?)", (uid, visitor))

    for visitor in (1, 2, 3, 1, 4, 1):
        insert("refreshing", visitor)
    newest = [Visit(uid, 1), Visit(uid, 4), Visit(uid, 3)]
    assert store.run_all(refreshing.latest(uid), refreshing.count(uid)) == (newest, 3)
    for name in ("rejecting", "both_ways"):
        for visitor in (1, 2):
            insert(name, visitor)
        with pytest.raises(sql.Error, match=f"{name}: the collection is full; keep is 2"):
            insert(name, 3)
    with pytest.raises(sql.IntegrityError, match="rejecting: visitor is there already"):
        insert("rejecting", 1)
    insert("both_ways", 1)
    assert store.run_all(rejecting.latest(uid), both.latest(uid), both.count(uid)) == (
        [Visit(uid, 2), Visit(uid, 1)], [Visit(uid, 1), Visit(uid, 2)], 2
    )  # fmt: skip


def forms(sql: Any) -> list[str]:
    """Return the forms that an engine's INSERT has."""
    if isinstance(sql, MariaDBClient):
        return ["INSERT", "INSERT IGNORE", "REPLACE"]
    return FORMS if isinstance(sql, SQLiteClient) else FORMS[:1]


def newest_first(sql: Any, before: str = "") -> str:
    """Return what a SELECT needs to be in order: nothing on SQLite, where a view's order comes from its index."""
    return "" if isinstance(sql, SQLiteClient) else f"ORDER BY {before}sequence DESC"


def into(sql: Any, name: str) -> str:
    """Return what a client inserts into: the view, or on MariaDB and MySQL its inlet."""
    return f"{name}_in" if isinstance(sql, MariaDBClient) else f'"{name}"'


def insert(sql: Any, name: str, **row: Any) -> Any:
    """Insert a row through the view, or through the inlet."""
    quote = "`" if isinstance(sql, MariaDBClient) else '"'
    columns = ", ".join(f"{quote}{each}{quote}" for each in row)
    return sql.execute(
        f"INSERT INTO {into(sql, name)} ({columns}) VALUES ({', '.join('?' * len(row))})", [*row.values()]
    )


def remove(sql: Any, name: str, **row: Any) -> Any:
    """Remove a row through the view, or on MariaDB and MySQL through its outlet."""
    if isinstance(sql, MariaDBClient):
        columns = ", ".join(f"`{each}`" for each in row)
        return sql.execute(f"INSERT INTO {name}_out ({columns}) VALUES ({', '.join('?' * len(row))})", [*row.values()])
    condition = " AND ".join(f'"{each}" = ?' for each in row)
    return sql.execute(f'DELETE FROM "{name}" WHERE {condition}', [*row.values()])


def empty(sql: Any, name: str) -> None:
    """Remove all rows, whoever's."""
    sql.execute(f"DELETE FROM {f'roost_{name}_rows' if isinstance(sql, MariaDBClient) else name}")
