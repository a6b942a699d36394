"""5 million pushes over 1,000 keys, keep 5: the file stops growing."""

from __future__ import annotations

import os
import sqlite3
import tempfile

import roost
from bench.report import Line, rate, say, seconds, show_lines
from bench.shapes import Visit, structures


def main(quick: bool) -> bool:
    early, marks = 100_000, (200_000, 300_000) if quick else (1_000_000, 2_000_000, 3_000_000, 4_000_000, 5_000_000)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/roost.db"
        store = roost.Store(f"sqlite:///{path}")
        _, ring, *_ = structures()
        store.create(ring)
        pushed = 0
        sizes = {}
        for mark in (early, *marks):
            say(f"pushing up to {mark:,}")
            took = seconds(lambda start=pushed, stop=mark: _push(store, ring, start, stop))  # type: ignore[misc]
            pushes = mark - pushed
            pushed = mark
            with sqlite3.connect(path) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.close()
            say(rate(pushes / took))
            sizes[mark] = os.path.getsize(path)
        store.close()
    first = sizes[early]
    settled = sizes[marks[0]]
    lines = []
    for mark in marks:
        size = sizes[mark]
        met = size <= 1.15 * first and size <= settled
        lines.append(
            Line(
                f"after {mark:,} pushes",
                f"{first:,} bytes",
                f"{size:,} bytes",
                size / first,
                "<= 1.15, no growth",
                met,
            )
        )
    return show_lines("Footprint of a ring, 1,000 keys, keep 5", f"after {early:,}", "later", lines)


def _push(store: roost.Store, ring: roost.Ring[Visit, int], start: int, stop: int) -> None:
    for first in range(start, stop, 1000):
        store.run_all(*[ring.push(Visit(n % 1000, n)) for n in range(first, min(first + 1000, stop))])
