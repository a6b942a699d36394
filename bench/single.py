"""One operation at a time, from the call to the answer, beside the statements written by hand."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from itertools import count

import roost
from bench.report import Line, in_turn, micros, show_lines
from bench.shapes import ByHand, Visit, structures


def main(quick: bool) -> bool:
    number = 300 if quick else 2000
    met = [_measure(synchronous, number) for synchronous in ("FULL", "NORMAL")]
    return met[0]


def _measure(synchronous: str, number: int) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        hand = ByHand(f"{folder}/hand.db", synchronous)
        store = roost.Store(f"sqlite:///{folder}/roost.db?synchronous={synchronous.lower()}")
        counter, ring, capped, likes = structures()
        store.create(counter, ring, capped, likes)
        run = store.run
        hand_ids, our_ids = count(), count()
        pairs: list[tuple[str, Callable[[], object], Callable[[], object]]] = [
            ("counter: add", lambda: hand.add(7, 1), lambda: run(counter.add(7))),
            ("ring: push", lambda: hand.push(7, 8), lambda: run(ring.push(Visit(7, 8)))),
            (
                "capped: add, full",
                lambda: hand.add_visitor(7, next(hand_ids)),
                lambda: run(capped.add(Visit(7, next(our_ids)))),
            ),
            ("set: add", lambda: hand.like(7, next(hand_ids)), lambda: run(likes.add(7, next(our_ids)))),
            ("counter: total", lambda: hand.total(7), lambda: run(counter.total(7))),
            ("ring: latest 5", lambda: hand.latest(7), lambda: run(ring.latest(7))),
        ]
        lines = []
        for work, by_hand, ours in pairs:
            reads = "add" not in work and "push" not in work
            base, mine = in_turn(5, _repeat(by_hand, number), _repeat(ours, number))
            ratio = mine / base
            judged = synchronous == "FULL" and not reads
            lines.append(
                Line(
                    work,
                    micros(base / number),
                    micros(mine / number),
                    ratio,
                    "<= 1.6" if judged else f"+{(mine - base) / number * 1e6:.0f} µs",
                    ratio <= 1.6 or not judged,
                )
            )
        hand.close()
        store.close()
    return show_lines(f"One at a time, synchronous={synchronous}", "by hand", "Roost", lines)


def _repeat(call: Callable[[], object], number: int) -> Callable[[], None]:
    def repeated() -> None:
        for _ in range(number):
            call()

    return repeated
