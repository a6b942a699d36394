"""Declarations that the tests of values share. They are at module level, so that they can be pickled."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

import roost


def named(title: str, /, **fields: Any) -> Any:
    """Make a NamedTuple class whose fields are known only now."""
    make: Any = NamedTuple
    return make(title, list(fields.items()))


class Colour(enum.Enum):
    WHITE = "white"
    BROWN = "brown"


class Level(enum.IntEnum):
    LOW = -1
    HIGH = 7


class Mode(enum.Flag):
    READ = 1
    WRITE = 2


class Place(NamedTuple):
    site: str
    page: int


@dataclass
class Visit:
    uid: int
    visitor: int


@dataclass(frozen=True)
class Egg:
    basket: int
    egg: int
    colour: Annotated[str, roost.text(20)] = "white"


@dataclass(frozen=True)
class Points:
    board: str
    player: int
    points: int


@dataclass(frozen=True, slots=True)
class Seen:
    page: int
    who: int
    site: Annotated[str, roost.text(255)]


@dataclass(kw_only=True)
class Everything:
    k: int
    i: int = 0
    f: float = 0.0
    s: str = ""
    t: Annotated[str, roost.text(5)] = ""
    b: bytes = b""
    c: Annotated[bytes, roost.binary(4)] = b""
    o: bool = False
    m: dt.datetime = field(default_factory=lambda: dt.datetime(2008, 1, 1, tzinfo=dt.UTC))
    d: dt.date = dt.date(2008, 1, 1)
    p: Annotated[Decimal, roost.decimal(6, 2)] = Decimal(0)
    u: uuid.UUID = field(default_factory=uuid.uuid4)
    e: Colour = Colour.WHITE
    g: Level = Level.LOW
    q: int | None = None


ranking = roost.Capped("ranking", Points, per="board", keep=5, unique="player", order="points")
hourly = roost.Counter("hourly", window="hour", keep=72)
pageviews = roost.Counter("pageviews")
places = roost.Counter("places", key=Place)
visits = roost.Ring("visits", Visit, per="uid", keep=5)
seen = roost.Ring("seen", Seen, per=Place, keep=5)
baskets = roost.Capped("baskets", Egg, per="basket", keep=12, unique="egg")
sightings = roost.Capped("sightings", Seen, per=("site",), keep=3, unique=("page", "who"), on_duplicate="refresh")
likes = roost.Set("likes", key=int, member=str)
tags = roost.Set("tags", key=Place, member=Colour)
things = roost.Ring("things", Everything, per="k", keep=2)
