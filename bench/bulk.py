"""1,000 rows at once, making the operations included: as one operation with many rows, and as `run_all` of 1,000."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import roost
from bench.report import in_turn, rate, show
from bench.shapes import Visit, structures

SIZE = 1000

Work = tuple[str, Callable[[], list[Any]], Callable[[Any], Any], Callable[[list[Any]], Any], float]


def main(quick: bool) -> bool:
    rounds = 10 if quick else 60
    met = True
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        store = roost.Store(f"sqlite:///{folder}/roost.db")
        counter, ring, capped, likes = structures()
        store.create(counter, ring, capped, likes)
        fresh = count()
        works: list[Work] = [
            (
                "counter: adds over 10 keys",
                lambda: [n % 10 for n in range(SIZE)],
                counter.add,
                lambda keys: counter.add_all(Counter(keys)),
                0.7e6,
            )
        ]
        for keys in 100, 1000:
            works += [
                (
                    f"ring: pushes over {keys:,} keys",
                    lambda keys=keys: [Visit(n % keys, n) for n in range(SIZE)],  # type: ignore[misc]
                    ring.push,
                    ring.push_all,
                    192e3,
                ),
                (
                    f"capped: adds over {keys:,} keys, full",
                    lambda keys=keys: [Visit(n % keys, next(fresh)) for n in range(SIZE)],  # type: ignore[misc]
                    capped.add,
                    capped.add_all,
                    157e3,
                ),
                (
                    f"set: adds over {keys:,} keys",
                    lambda keys=keys: [(n % keys, next(fresh)) for n in range(SIZE)],  # type: ignore[misc]
                    lambda pair: likes.add(*pair),
                    likes.add_all,
                    265e3,
                ),
            ]
        for work, make, one, many, target in works:
            for _ in range(12):  # a collection is full
                store.run(many(make()))
            given: Iterator[list[Any]] = iter([make() for _ in range(2 * rounds)])
            at_once, each = in_turn(
                rounds,
                lambda given=given, many=many: store.run(many(next(given))),  # type: ignore[misc]
                lambda given=given, one=one: store.run_all(*map(one, next(given))),  # type: ignore[misc]
            )
            got = SIZE / at_once
            met &= got >= target
            rows.append(
                [
                    work,
                    rate(got),
                    f">= {target:,.0f}/s",
                    "ok" if got >= target else "MISSED",
                    f"{at_once / SIZE * 1e6:.2f} µs",
                    rate(SIZE / each),
                ]
            )
        store.close()
    show(
        "1,000 rows at once, making operations and COMMIT included, synchronous=FULL",
        ["work", "one operation", "target", "", "a row", "run_all of 1,000"],
        rows,
    )
    return met
