"""Everything at once, for long: threads run random operations of every structure, by two stores, beside a model.

Each thread has structures of its own, with every combination of options that does not expire, and every answer must be
the model's. All threads also share one key of a counter, a ring, a rate limit and a lease, whose sums are judged. Every
few seconds the threads pause and `check()` must be clean.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import roost
from tests import servers
from tests.campaigns.played import asked, database
from tests.model import operations
from tests.model.model import Model
from tests.model.operations import Points, alike, is_small, lasting, operation

LIMIT, WITHIN = 1_000, 600
SHARED = 0  # the key that every thread uses
values = roost.Cache("cached", key=int, value=str)
bounded = roost.Cache("bounded", key=int, value=str, max_items=50)
takes = roost.RateLimit("takes", key=int, limit=LIMIT, within=WITHIN)
held = roost.Lease("held", key=int)
together = roost.Counter("together", key=int)
pushes = roost.Ring("pushes", Points, per="uid", keep=100)
MODELLED = [structure for structure in operations.ALL if lasting(structure)]
ALL = (*MODELLED, values, bounded, takes, held, together, pushes)


@dataclass
class Thread:
    """One thread: its structures and their model, and what it has done to what all share."""

    number: int
    chance: random.Random
    structures: list[Any]
    model: Model = field(default_factory=Model)
    cached: dict[int, str] = field(default_factory=dict)
    operations: int = 0
    refused: int = 0
    added: int = 0
    taken: int = 0
    sequences: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    def step(self, store: roost.Store) -> None:
        """Run one atom, and judge its answer."""
        what = self.chance.random()
        if what < 0.7:
            self._modelled(store)
        elif what < 0.85:
            self._cached(store)
        else:
            self._shared(store)

    def _modelled(self, store: roost.Store) -> None:
        atom: list[Any] = []
        for _ in range(self.chance.choice((1, 1, 1, 2, 5))):
            drawn = operation(self.chance, self.chance.choice(self.structures))
            atom += [drawn] if is_small(drawn) else []
        wanted = self.model.run_all(atom)
        try:
            answer: Any = alike(store.run_all(*atom))
        except (roost.Duplicate, roost.Full) as error:
            answer, self.refused = type(error), self.refused + 1
        assert answer == wanted, f"thread {self.number}: {atom} answered {answer}, not {wanted}"
        self.operations += len(atom)

    def _cached(self, store: roost.Store) -> None:
        key, text = self.number * 100 + self.chance.randrange(20), str(self.chance.random())
        there = self.cached.get(key)
        match self.chance.choice(("set", "set", "get", "get", "add", "replace", "delete", "gone", "bounded")):
            case "set":
                store.run(values.set(key, text, ttl=86_400))
                self.cached[key] = text
            case "get":
                assert store.run(values.get(key)) == there
            case "add":
                assert store.run(values.add(key, text)) == (there is None)
                self.cached.setdefault(key, text)
            case "replace":
                assert store.run(values.replace(key, text)) == (there is not None)
                if there is not None:
                    self.cached[key] = text
            case "delete":
                assert store.run(values.delete(key)) == (there is not None)
                self.cached.pop(key, None)
            case "gone":
                store.run(values.set(key, text, ttl=1e-6))
                assert store.run(values.get(key)) is None
                self.cached.pop(key, None)
            case "bounded":
                store.run(bounded.set(key, text))
                assert store.run(bounded.get(key)) in (None, text)  # others may have evicted it
        self.operations += 1

    def _shared(self, store: roost.Store) -> None:
        match self.chance.choice(("both", "both", "take", "lease")):
            case "both":
                n = self.chance.randrange(-2, 3)
                _, sequence = store.run_all(together.add(SHARED, n), pushes.push(Points(SHARED, self.number)))
                self.added += n
                self.sequences.append(sequence)
            case "take":
                self.taken += store.run(takes.take(SHARED)).allowed
            case "lease":
                grant = store.run(held.acquire(SHARED, f"{self.number}", 60))
                if grant is not None:
                    self.tokens.append(grant.token)
                    assert store.run(held.release(grant))
        self.operations += 1


def judge(store: roost.Store, threads: list[Thread], seconds: float) -> None:
    """Raise AssertionError unless what all threads share is what they have done together."""
    assert store.check() == []
    assert store.run(together.total(SHARED)) == sum(thread.added for thread in threads)
    sequences = sorted(sequence for thread in threads for sequence in thread.sequences)
    assert sequences == list(range(1, len(sequences) + 1))
    assert sum(thread.taken for thread in threads) <= LIMIT + seconds * LIMIT / WITHIN
    tokens = [token for thread in threads for token in thread.tokens]
    assert len(tokens) == len(set(tokens))
    assert len(store.run(bounded.keys(n=1_000))) <= 50


def soaked(url: str, seconds: float, seed: object, number: int = 8, every: float = 10) -> str:
    """Run threads on two stores, pausing for a check now and then; return what was found."""
    began = time.monotonic()
    checks = 0
    threads = [Thread(n, random.Random(f"{seed}/{n}"), MODELLED[n::number]) for n in range(number)]
    errors: list[BaseException] = []

    def work(thread: Thread, stores: list[roost.Store], until: float) -> None:
        try:
            while time.monotonic() < until and not errors:
                thread.step(thread.chance.choice(stores))
        except BaseException as error:
            errors.append(error)

    with roost.Store(url, timeout=60) as one, roost.Store(url, timeout=60) as two:
        one.create(*ALL)
        while time.monotonic() - began < seconds:
            until = min(time.monotonic() + every, began + seconds)
            running = [threading.Thread(target=work, args=(thread, [one, two], until)) for thread in threads]
            for each in running:
                each.start()
            for each in running:
                each.join()
            if errors:
                raise errors[0]
            judge(one, threads, time.monotonic() - began)
            checks += 1
    done, refused = sum(thread.operations for thread in threads), sum(thread.refused for thread in threads)
    return (
        f"{done:,} operations in {time.monotonic() - began:.0f} s, {refused:,} refused as they must be, {checks} checks"
    )


def main() -> None:
    """Run, and say what was found."""
    options = asked(seconds=3_600.0, threads=8, server=servers.SERVERS)
    with database(options.server) as url:
        print(soaked(url, options.seconds, options.seed, options.threads))


if __name__ == "__main__":
    main()
