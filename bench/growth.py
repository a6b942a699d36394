"""Time per operation as the data grows: 10 million keys beside 10 thousand, keep = 10,000 beside keep = 10."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from typing import Any

import roost
from bench.report import Line, in_turn, micros, say, show_lines
from bench.shapes import Visit, structures


def main(quick: bool) -> bool:
    few, many = 10_000, 200_000 if quick else 10_000_000
    number = 200 if quick else 1500
    keys_met = _keys(few, many, number)
    return _keep(10, 10_000, number) and keys_met


def _keys(few: int, many: int, number: int) -> bool:
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        stores = {}
        for keys in (few, many):
            store = stores[keys] = roost.Store(f"sqlite:///{folder}/{keys}.db")
            counter, ring, capped, likes = structures()
            store.create(counter, ring, capped, likes)
            for structure, fill in (
                (counter, (counter.add(n) for n in range(keys))),
                (ring, (ring.push(Visit(n, n)) for n in range(keys))),
                (capped, (capped.add(Visit(n, 1)) for n in range(keys))),
                (likes, (likes.add(n, 1) for n in range(keys))),
            ):
                say(f"filling {structure.name} with {keys:,} keys")
                _fill(store, fill)
        fresh = count(10)
        works: list[tuple[str, Callable[[int], Any]]] = [
            ("counter.add", lambda n: counter.add(n)),
            ("counter.total", lambda n: counter.total(n)),
            ("ring.push", lambda n: ring.push(Visit(n, n))),
            ("ring.latest", lambda n: ring.latest(n)),
            ("ring.entries", lambda n: ring.entries(n)),
            ("capped.add", lambda n: capped.add(Visit(n, next(fresh)))),
            ("capped.latest", lambda n: capped.latest(n)),
            ("capped.count", lambda n: capped.count(n)),
            ("set.add", lambda n: likes.add(n, next(fresh))),
            ("set.contains", lambda n: likes.contains(n, 1)),
            ("keys", lambda n: counter.keys(after=n, n=10)),
        ]
        for work, make in works:
            small, large = in_turn(
                5, _random_keys(stores[few], make, few, number), _random_keys(stores[many], make, many, number)
            )
            ratio = large / small
            lines.append(Line(work, micros(small / number), micros(large / number), ratio, "<= 2", ratio <= 2))
        for store in stores.values():
            store.close()
    return show_lines(f"Growth: {many:,} keys beside {few:,}", f"{few:,} keys", f"{many:,} keys", lines)


def _random_keys(store: roost.Store, make: Callable[[int], Any], keys: int, number: int) -> Callable[[], None]:
    chosen = random.Random(5)

    def run() -> None:
        for _ in range(number):
            store.run(make(chosen.randrange(keys)))

    return run


def _keep(few: int, many: int, number: int) -> bool:
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        sides = {}
        for keep in (few, many):
            store = roost.Store(f"sqlite:///{folder}/{keep}.db")
            _, ring, capped, _ = structures(keep=keep, capped_keep=keep)
            store.create(ring, capped)
            say(f"filling 20 keys with {keep:,} rows each, three times over")
            _fill(store, (ring.push(Visit(n % 20, n)) for n in range(60 * keep)))
            _fill(store, (capped.add(Visit(n % 20, n)) for n in range(60 * keep)))
            sides[keep] = (store, ring, capped, count(60 * keep))
        works: list[tuple[str, Callable[[Any, Any, Any], Any]]] = [
            ("ring.push", lambda ring, _, fresh: ring.push(Visit(7, next(fresh)))),
            ("ring.latest(n=5)", lambda ring, _, __: ring.latest(7, 5)),
            ("ring.entries(after=last - 5)", lambda ring, _, __: ring.entries(7, after=3 * ring.keep - 5, n=5)),
            ("capped.add, full", lambda _, capped, fresh: capped.add(Visit(7, next(fresh)))),
            ("capped.get", lambda _, capped, __: capped.get(7, 7)),
            ("capped.latest(n=5)", lambda _, capped, __: capped.latest(7, 5)),
            ("capped.count", lambda _, capped, __: capped.count(7)),
        ]
        for work, make in works:
            small, large = in_turn(5, *[_same_key(*sides[keep], make, number) for keep in (few, many)])
            ratio = large / small
            lines.append(Line(work, micros(small / number), micros(large / number), ratio, "<= 1.5", ratio <= 1.5))
        for store, *_ in sides.values():
            store.close()
    return show_lines(f"Growth: keep = {many:,} beside keep = {few}", f"keep {few}", f"keep {many:,}", lines)


def _same_key(
    store: roost.Store, ring: Any, capped: Any, fresh: Iterator[int], make: Callable[[Any, Any, Any], Any], number: int
) -> Callable[[], None]:
    def run() -> None:
        for _ in range(number):
            store.run(make(ring, capped, fresh))

    return run


def _fill(store: roost.Store, operations: Iterable[Any]) -> None:
    rest = iter(operations)
    while part := list(islice(rest, 10_000)):
        store.run_all(*part)
