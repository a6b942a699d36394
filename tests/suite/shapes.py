"""Declarations that the suite shares, and small helpers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import roost
from roost.dialects.dialect import Statement, Template

Make = Callable[..., Any]  # of stores of either kind
Open = Callable[..., roost.Store]


@dataclass(frozen=True)
class Visit:
    uid: int
    visitor: int


@dataclass(frozen=True)
class Egg:
    basket: int
    egg: int
    colour: Annotated[str, roost.text(20)] = "white"


class Place(NamedTuple):
    site: str
    page: int


@dataclass(frozen=True)
class Seen:
    site: Annotated[str, roost.text(255)]
    page: int
    who: int


pageviews = roost.Counter("pageviews")
visits = roost.Ring("visits", Visit, per="uid", keep=5)
baskets = roost.Capped("baskets", Egg, per="basket", keep=12, unique="egg")
likes = roost.Set("likes", key=int, member=str)


def by_hand(store: Any, *statements: str) -> None:
    """Do something to a store's tables that no operation does; names are to need no quotes."""

    def work() -> Any:
        for sql in statements:
            yield Statement(Template(sql), [()])

    inner(store)._core.exclusive(work())


def rows(sql: Any, query: str, *values: Any) -> list[Any]:
    """What a SQL client reads."""
    found = sql.execute(query, values)
    return found.fetchall() if found.description else []


def inner(store: Any) -> Any:
    """The store itself, also where a test holds it `InAsyncio`."""
    return getattr(store, "_store", store)


def in_threads(*works: Callable[[], Any]) -> list[Any]:
    """Run works at once, each in a thread of its own; return what they return, or raise what one has raised."""
    start = threading.Barrier(len(works))

    def run(work: Callable[[], Any]) -> Any:
        start.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return [each.result() for each in [pool.submit(run, work) for work in works]]
