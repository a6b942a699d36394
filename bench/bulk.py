"""`run_all` of 1,000 operations already made, and what making and checking them costs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import roost
from bench.report import in_turn, rate, show
from bench.shapes import Visit, structures

SIZE = 1000


def main(quick: bool) -> bool:
    rounds = 10 if quick else 60
    met = True
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        store = roost.Store(f"sqlite:///{folder}/roost.db")
        counter, ring, capped, likes = structures()
        store.create(counter, ring, capped, likes)
        fresh = count()
        works: list[tuple[str, Callable[[], list[Any]], float]] = [
            ("counter: adds over 10 keys", lambda: [counter.add(n % 10) for n in range(SIZE)], 0.7e6),
            ("ring: pushes over 100 keys", lambda: [ring.push(Visit(n % 100, n)) for n in range(SIZE)], 150e3),
            ("ring: pushes over 1,000 keys", lambda: [ring.push(Visit(n, n)) for n in range(SIZE)], 0),
            (
                "capped: adds over 100 keys, full",
                lambda: [capped.add(Visit(n % 100, next(fresh))) for n in range(SIZE)],
                0,
            ),
            ("set: adds over 100 keys", lambda: [likes.add(n % 100, next(fresh)) for n in range(SIZE)], 0),
        ]
        for work, make, target in works:
            made: Iterator[list[Any]] = iter([make() for _ in range(rounds)])
            (took,) = in_turn(rounds, lambda made=made: store.run_all(*next(made)))  # type: ignore[misc]
            (making,) = in_turn(rounds // 2, make)
            got = SIZE / took
            met &= got >= target
            rows.append(
                [
                    work,
                    rate(got),
                    f">= {target:,.0f}/s" if target else "",
                    "" if not target else "ok" if got >= target else "MISSED",
                    f"{making / SIZE * 1e6:.2f} µs",
                    f"{took / SIZE * 1e6:.2f} µs",
                ]
            )
        store.close()
    show(
        "run_all of 1,000 operations already made, synchronous=FULL, commit included",
        ["work", "operations", "target", "", "making one", "running one"],
        rows,
    )
    return met
