"""The structures of the application, and its store: both at module level."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated

import roost
from roost.contrib.django import DjangoStore


class Mood(enum.Enum):
    GOOD = "it's good"
    BAD = "100 % bad?"


@dataclass(frozen=True)
class Visit:
    uid: int
    visitor: int


@dataclass(frozen=True)
class Item:
    cart: int
    item: int


@dataclass(frozen=True)
class Everything:
    key: str
    a_float: float
    a_bool: bool
    a_bytes: bytes
    a_datetime: dt.datetime
    a_date: dt.date
    a_decimal: Annotated[Decimal, roost.decimal(12, 2)]
    a_uuid: uuid.UUID
    a_mood: Mood
    nothing: str | None = None


pageviews = roost.Counter("pageviews")
visits = roost.Ring("visits", Visit, per="uid", keep=5)
carts = roost.Capped("carts", Item, per="cart", keep=3, unique="item", on_full="reject")
likes = roost.Set("likes", key=int, member=str)
everything = roost.Capped("everything", Everything, per="key", keep=3, unique="a_uuid", on_duplicate="refresh")
ALL = (pageviews, visits, carts, likes, everything)

store = DjangoStore()
