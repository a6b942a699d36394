"""A declaration of each kind with time in it, and another one that an `alter` makes of it, where there is one."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import roost

HOUR = dt.timedelta(hours=1)


@dataclass
class Seen:
    uid: int
    visitor: int


@dataclass
class Score:
    board: int
    player: int
    points: int


def capped(keep: int, keep_for: dt.timedelta) -> Any:
    return roost.Capped(
        "k_capped", Seen, per="uid", keep=keep, unique="visitor", on_duplicate="refresh", keep_for=keep_for
    )


def ranked(keep: int) -> Any:
    return roost.Capped("k_ranked", Score, per="board", keep=keep, unique="player", order="points", on_duplicate="best")


KINDS: list[tuple[Any, Any, Any]] = [  # declared, declared otherwise, and an operation that either takes
    (roost.Cache("k_cache"), None, lambda s: s.set("a", b"x", 60)),
    (
        roost.RateLimit("k_limit", limit=5, within=60),
        roost.RateLimit("k_limit", limit=9, within=60),
        lambda s: s.take("a"),
    ),
    (roost.Lease("k_lease"), None, lambda s: s.acquire("a", "ada", 60)),
    (ranked(5), ranked(3), lambda s: s.add(Score(1, 2, 3))),
    (
        roost.Counter("k_views", window="hour", keep=72),
        roost.Counter("k_views", window="hour", keep=24),
        lambda s: s.add("a"),
    ),
    (roost.Set("k_set", keep_for=HOUR), roost.Set("k_set", keep_for=2 * HOUR), lambda s: s.add("a", "b")),
    (
        roost.Ring("k_ring", Seen, per="uid", keep=5, keep_for=HOUR),
        roost.Ring("k_ring", Seen, per="uid", keep=3, keep_for=HOUR / 2),
        lambda s: s.push(Seen(1, 2)),
    ),
    (capped(5, HOUR), capped(3, HOUR / 2), lambda s: s.add(Seen(1, 2))),
]
