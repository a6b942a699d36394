"""Every structure with every combination of its options, and operations of them at random, for the dumb model."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import roost
from tests.model.model import MOST

SECONDS = 300  # that rows and members are kept for
MOVES = (103, 153, 310)  # no sum of them is near that


@dataclass(frozen=True)
class Points:
    uid: int
    visitor: int
    points: int = 0


COUNTERS: list[Any] = [
    roost.Counter("counter"),
    roost.Counter("single", slots=1),
    roost.Counter("spread", slots=5),
    *[
        roost.Counter(f"windowed_{slots or 0}", window=dt.timedelta(days=366), keep=3, slots=slots)
        for slots in (None, 1, 4)
    ],
]
LIMITS: dict[str, dict[str, Any]] = {
    "keep": {"keep": 3},
    "keep_for": {"keep": 3, "keep_for": SECONDS},
    "for": {"keep_for": SECONDS},
    "many": {"keep": 60},
}


def capped(name: str, **options: Any) -> Any:
    """Declare a capped collection."""
    return roost.Capped(name, Points, per="uid", unique="visitor", **options)


RINGS: list[Any] = [
    roost.Ring(f"ring_{limit}", Points, per="uid", **LIMITS[limit]) for limit in ("keep", "keep_for", "many")
]
CAPPED: list[Any] = [
    *[
        capped(f"{limit}_{each}", **options, on_duplicate=each)
        for limit, options in LIMITS.items()
        for each in ("error", "refresh")
    ],
    *[
        capped(f"{limit}_{each}_reject", **LIMITS[limit], on_duplicate=each, on_full="reject")
        for limit in ("keep", "keep_for")
        for each in ("error", "refresh")
    ],
    *[
        capped(f"{limit}_{each}_order", **LIMITS[limit], on_duplicate=each, order="points")
        for limit in ("keep", "keep_for", "many")
        for each in ("error", "refresh", "best")
    ],
]
SETS: list[Any] = [
    roost.Set("members", key=int, member=int),
    *[roost.Set(f"members_{each}", key=int, member=int, **LIMITS[each]) for each in ("keep", "keep_for", "for")],
]
ALL = [*COUNTERS, *RINGS, *CAPPED, *SETS]


def lasting(structure: Any) -> bool:
    """Whether nothing of it expires."""
    return getattr(structure, "keep_for", None) is None


def operation(chance: random.Random, structure: Any) -> Any:
    """Draw an operation; those that write are more likely."""
    s, choose = structure, chance.choice
    key, id_, few = choose([0, 0, 0, 1, 2]), chance.randrange(7), choose([None, 1, 2, 3])
    page = (choose([None, 0, 1, 2]), chance.randrange(1, 4))

    def wide() -> int:
        return chance.randrange(60)

    if isinstance(s, roost.Counter):
        name, n = choose(["a", "a", "b", "é"]), chance.randrange(-3, 4)
        large = choose([n, n, n, MOST, -MOST - 1, MOST - 2]) if s.name == "single" else n
        made: list[Callable[[], Any]] = [
            *[lambda: s.add(name, large)] * 4,
            *[lambda: s.increment(name, n)] * 2,
            lambda: s.add_all({choose("abé"): n for _ in range(2)}),
            lambda: s.add_all({f"{wide()}": n for _ in range(12)}),
            lambda: s.total(name),
            lambda: s.totals([name, choose("abx")]),
            lambda: s.top(page[1]),
            lambda: s.clear(name),
            lambda: s.keys(choose([None, name]), page[1]),
        ]
        made += [
            *[lambda: s.series(name, choose([None, 1, 2, 9]))] * 2,
            lambda: s.total(name, last=choose([1, 2, 9])),
            lambda: s.totals([name, choose("abx")], last=few),
            lambda: s.top(2, last=few),
        ] * (s.window is not None)
    elif isinstance(s, roost.Set):
        several = [chance.randrange(7) for _ in range(chance.randrange(4))]
        made = [
            *[lambda: s.add(key, *several)] * 5,
            *[lambda: s.remove(key, *several)] * 2,
            lambda: s.add_all([(choose([0, 1]), chance.randrange(7)) for _ in range(3)]),
            lambda: s.add_all([(wide(), wide()) for _ in range(20)]),
            lambda: s.members(key),
            lambda: s.contains(key, id_),
            lambda: s.size(key),
        ]
    else:
        add, add_all = (s.push, s.push_all) if isinstance(s, roost.Ring) else (s.add, s.add_all)
        pairs = [(choose([0, 1, 2]), chance.randrange(7)) for _ in range(3)]
        many = {(wide(), wide()) for _ in range(24)}
        crowd = {(choose([0, 0, 1, 2]), wide()): None for _ in range(14)}
        made = [
            *[lambda: add(Points(key, id_, chance.randrange(6)))] * 12,
            *[lambda: add(Points(key, wide(), chance.randrange(6)))] * 4,
            *[lambda: add_all([Points(*pair, chance.randrange(6)) for pair in pairs])] * 3,
            *[lambda: add_all([Points(*pair, chance.randrange(60)) for pair in sorted(many)])] * 3,
            *[lambda: add_all([Points(*pair, chance.randrange(6)) for pair in crowd])] * 3,
            *[lambda: s.latest(key, few)] * 2,
            lambda: s.entries(key, after=chance.randrange(9), n=few),
        ]
    if isinstance(s, roost.Capped):
        made += [*[lambda: s.remove(key, id_)] * 3, lambda: s.get(key, id_), lambda: s.count(key)]
        made += [*[lambda: s.top(key, few), lambda: s.rank(key, id_)] * 2] if s.score else []
    if not isinstance(s, roost.Counter):
        made += [lambda: s.clear(key), lambda: s.forget(key), lambda: s.keys(*page)]
    return choose(made)()


def alike(results: Any) -> Any:
    """Return results as the model has them: entries and windows without the clock."""

    def timeless(each: Any) -> Any:
        if isinstance(each, roost.Entry):
            return each.sequence, each.row
        is_window = isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], dt.datetime)
        return each[1] if is_window else each

    if not isinstance(results, tuple):
        return results
    return tuple([[*map(timeless, result)] if isinstance(result, list) else result for result in results])


def is_small(operation: Any) -> bool:
    """Leave out adds near 64 bits: an atom and a batch judge their sum, one by one one of them may be refused."""
    return bool(operation.structure.name != "single" or operation.verb != "add" or abs(operation.args[1]) < 10)
