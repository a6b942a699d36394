"""16 threads, each with one operation at a time, beside 16 threads that commit for themselves."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Callable

import roost
from bench.report import Line, in_turn, rate, show_lines
from bench.shapes import ByHand, connect, structures

THREADS = 16


def main(quick: bool) -> bool:
    number = 100 if quick else 500  # by hand; Roost does four times as many, to take about as long
    with tempfile.TemporaryDirectory() as folder:
        hand = ByHand(f"{folder}/hand.db", "FULL")
        store = roost.Store(f"sqlite:///{folder}/roost.db")
        counter, *_ = structures()
        store.create(counter)

        def by_hand() -> None:
            connection = connect(f"{folder}/hand.db", "FULL")
            execute = connection.cursor().execute
            for _ in range(number):
                execute("BEGIN IMMEDIATE")
                execute("INSERT INTO pageviews VALUES (7, 1) ON CONFLICT (key) DO UPDATE SET n = n + excluded.n")
                execute("COMMIT")
            connection.close()

        def ours() -> None:
            for _ in range(4 * number):
                store.run(counter.add(7))

        async def tasks() -> None:
            async with roost.AsyncStore(f"sqlite:///{folder}/roost.db") as awaited:

                async def task() -> None:
                    for _ in range(4 * number):
                        await awaited.run(counter.add(7))

                await asyncio.gather(*[task() for _ in range(THREADS)])

        rounds = 5
        base, mine, awaited = in_turn(rounds, _threads(by_hand), _threads(ours), lambda: asyncio.run(tasks()))
        lines = []
        before = THREADS * number / base
        for work, took, must, aim in (
            ("16 threads: counter.add", mine, 5, 8),
            ("16 tasks of asyncio: counter.add", awaited, 6, 10),
        ):
            after = THREADS * 4 * number / took
            lines.append(
                Line(
                    work,
                    rate(before),
                    rate(after),
                    after / before,
                    f">= {must} (aim {aim})",
                    after >= must * before,
                )
            )
        wanted = 2 * rounds * THREADS * 4 * number
        counted = store.run(counter.total(7))
        lines.append(Line("none lost", str(wanted), str(counted), counted / wanted, "= 1", counted == wanted))
        store.close()
        hand.close()
    return show_lines("Shared commits, synchronous=FULL", "each for itself", "Roost", lines)


def _threads(work: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        threads = [threading.Thread(target=work) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return run
