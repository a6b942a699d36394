"""Writing processes are killed at random moments: what was answered is there, nothing is there twice or in part.

A writer forks, opens a store, and sends the number of each atom through a pipe after its answer. It is killed after a
random time, or, by itself, before a random statement: in the middle of a transaction, or just before COMMIT.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import roost
from tests import servers
from tests.campaigns.ledger import STRUCTURES, Ledger, shared
from tests.campaigns.played import asked, database
from tests.campaigns.processes import Child, Line

LONGEST = 0.03  # seconds that a writer may live, its start included


@dataclass
class Counts:
    """What a campaign has seen."""

    kills: int = 0
    answers: int = 0
    happened: int = 0  # of the atoms in flight when their process was killed

    def __str__(self) -> str:
        return f"{self.kills} kills, {self.answers} answered atoms all there, {self.happened} in flight had happened"


def write(line: Line, url: str, ledgers: Sequence[Ledger], last: float = float("inf")) -> None:
    """Write as fast as it goes, one thread per ledger, and say what was answered; never return.

    last: the statement before which the process kills itself.
    """
    sent = 0

    def trace(sql: str, row: object) -> None:
        nonlocal sent
        sent += 1
        if sent >= last:
            os.kill(os.getpid(), signal.SIGKILL)

    store = roost.Store(url, trace=None if last == float("inf") else trace, timeout=30)

    def work(ledger: Ledger) -> None:
        try:
            while True:
                atom = ledger.atom()
                answers = list(store.run_all(*atom)) if len(atom) > 1 else [store.run(atom[0])]
                if answers != ledger.apply():
                    line.say(f"wrong {ledger.owner} atom {ledger.done} {atom}: {answers}")
                line.say(f"{ledger.owner} {ledger.done}")
        except BaseException as error:
            line.say(f"wrong {ledger.owner}: {error!r}")
            raise

    threads = [threading.Thread(target=work, args=(ledger,), daemon=True) for ledger in ledgers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def answered(texts: Sequence[str]) -> dict[int, int]:
    """Return, per owner, the number of the last atom that was answered."""
    wrong = [text for text in texts if text.startswith("wrong")]
    assert not wrong, wrong
    return {int(owner): int(done) for owner, done in (text.split() for text in texts)}


def alone(
    url: str, rounds: int, seed: object, threads: int = 2, over: Callable[[str], None] = lambda _: None
) -> Counts:
    """Kill one writing process after another.

    over: returns when what the killed process had begun is over: on a server that takes a moment.
    """
    chance, counts = random.Random(f"alone/{seed}"), Counts()
    ledgers = [Ledger(owner, seed) for owner in range(1, threads + 1)]
    with roost.Store(url) as store:
        store.create(*STRUCTURES)
    for _ in range(rounds):
        before = sum(ledger.done for ledger in ledgers)
        last = chance.randrange(1, 400) if chance.random() < 0.5 else float("inf")
        with Child(lambda line, last=last: write(line, url, ledgers, last)) as child:  # type: ignore[misc]
            texts = child.line.overhear(chance.uniform(0, LONGEST) if last == float("inf") else 10.0)
            child.kill()
            texts += child.rest()
            assert child.wait() == -signal.SIGKILL
        counts.kills += 1
        last_answers = answered(texts)
        over(url)
        with roost.Store(url) as store:
            assert store.check() == []
            for ledger in ledgers:
                counts.happened += ledger.settle(store, last_answers.get(ledger.owner, 0))
            done = sum(ledger.done for ledger in ledgers)
            assert shared(store) == sum(ledger.shared for ledger in ledgers)
        counts.answers += done - before
    counts.answers -= counts.happened
    return counts


def crowd(url: str, rounds: int, seed: object, processes: int = 3, threads: int = 2) -> Counts:
    """Kill one of several writing processes, again and again, while the others go on."""
    chance, counts = random.Random(f"crowd/{seed}"), Counts()
    groups = [[Ledger(1 + p * threads + t, seed) for t in range(threads)] for p in range(processes)]
    with roost.Store(url) as store:
        store.create(*STRUCTURES)

    def start(p: int) -> Child:
        return Child(lambda line: write(line, url, groups[p]), patience=600)

    alive = [start(p) for p in range(processes)]
    heard: list[list[str]] = [[] for _ in range(processes)]
    try:
        for _ in range(rounds):
            victim = chance.randrange(processes)
            moment = time.monotonic() + chance.uniform(0, LONGEST)
            while time.monotonic() < moment:
                for p in range(processes):
                    heard[p] += alive[p].line.overhear(0.002)
            _bury(alive[victim], url, groups[victim], heard[victim], counts)
            heard[victim] = []
            alive[victim] = start(victim)
        for p in range(processes):
            heard[p].append(alive[p].hear())  # whoever is left goes on
            _bury(alive[p], url, groups[p], heard[p], counts)
        with roost.Store(url) as store:
            assert store.check() == []
            assert shared(store) == sum(ledger.shared for group in groups for ledger in group)
    finally:
        for child in alive:
            child.kill()
            child.wait()
            child.line.close()
    counts.answers = sum(ledger.done for group in groups for ledger in group) - counts.happened
    return counts


def _bury(child: Child, url: str, ledgers: Sequence[Ledger], heard: list[str], counts: Counts) -> None:
    child.kill()
    last_answers = answered(heard + child.rest())
    assert child.wait() == -signal.SIGKILL
    child.line.close()
    counts.kills += 1
    with roost.Store(url, timeout=30) as store:
        for ledger in ledgers:
            counts.happened += ledger.settle(store, last_answers.get(ledger.owner, 0))


def main() -> None:
    """Run both kinds and say what was found."""
    options = asked(rounds=1000, servers=100)  # rounds on each database server
    for kind in (alone, crowd):
        began = time.monotonic()
        with database(None) as url:
            found = kind(url, options.rounds, options.seed)
        print(f"{kind.__name__}: {found}; check is clean; {time.monotonic() - began:.0f} s")
    for name in ("mariadb", "postgresql"):
        began = time.monotonic()
        with database(name) as url:
            found = alone(url, options.servers, options.seed, over=servers.wait_for_silence)
        print(f"{name}: {found}; check is clean; {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
